"""Nothing that a conversation can hold makes it raise, and nothing makes it grow without end."""

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from shop import TOOLS, Run, Tool, call, guesses, output, request, visit, visits

from langchain_spectool import Guess, TurnRequest
from langchain_spectool.speculators.contract import check_speculator
from langchain_spectool.speculators.patterns import schema
from langchain_spectool.speculators.patterns.calibration import Calibration
from langchain_spectool.speculators.patterns.context import Contexts
from langchain_spectool.speculators.patterns.history import Histories, History
from langchain_spectool.speculators.patterns.parsing import ParseCache, fingerprint, parse
from langchain_spectool.speculators.patterns.schema import Schemas, ToolSchema, read_schema
from langchain_spectool.speculators.patterns.speculator import Patterns

NAMES = st.sampled_from(["get_loan", "get_member", "", "weird name", "x" * 300, "a>b,{c}|d"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
CONTENT = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["", "\ud800", "{" * 999, "[1, NaN]", '{"a": ' * 300, "L-0001 " * 3_000]),
    JSON.map(repr),
    st.lists(
        st.text(max_size=9)
        | st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=9)})
        | st.fixed_dictionaries({"type": st.just("image_url")}),
        max_size=3,
    ),
)
ARGS = st.dictionaries(st.text(max_size=8) | st.just("loan_id"), JSON, max_size=3)
CALLS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "args": ARGS, "id": st.sampled_from(["c1", "c2", None])}),
    max_size=3,
)
MESSAGES = st.one_of(
    CONTENT.map(HumanMessage),
    CONTENT.map(SystemMessage),
    st.builds(lambda content, calls: AIMessage(content, tool_calls=calls), CONTENT, CALLS),
    st.builds(
        lambda content, status: ToolMessage(content, tool_call_id="c1", status=status),
        CONTENT,
        st.sampled_from(["success", "error"]),
    ),
    st.just(FunctionMessage("x", name="f")),
    st.just(AIMessageChunk("x")),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MESSAGES, max_size=8))
def test_any_conversation_is_learned_and_predicted(messages: list[BaseMessage]) -> None:
    """Whatever messages hold, fitting, learning, guessing and publishing go through."""
    patterns = Patterns()
    patterns.fit([Run(messages, "any")])
    for at, message in enumerate(messages):
        for guess in patterns.guess(request(messages[:at]), 0):
            assert 0 <= guess.confidence <= 1
        if isinstance(message, AIMessage):
            patterns.learn(request(messages[:at]), message.tool_calls)
    other = Patterns()
    other.merge(patterns)
    assert other.models[None].turns == patterns.models[None].turns


def test_promises_of_every_speculator_are_kept() -> None:
    """Patterns pass the check that every speculator must."""

    @tool
    def look(email: str) -> str:
        """Look something up, such as 'a@example.org'."""
        return email

    asked = TurnRequest(messages=[HumanMessage("b@example.org")], tools=[look], declared=[look])
    (guess,) = check_speculator(Patterns(), asked)
    assert guess.args == {"email": "b@example.org"}
    assert guess.origins == {"email": "user"}


def test_lesson_that_raises_costs_only_itself() -> None:
    """An object of the user's that cannot be shown stops neither guesses nor later lessons."""

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    patterns = Patterns()
    asked = request(visit(1)[:1])
    patterns.learn(asked, [{"name": "get_loan", "args": {"loan_id": Rude()}}])
    patterns.learn(asked, visit(1)[1].tool_calls)  # type: ignore[attr-defined]
    assert guesses(patterns, visit(1)[:1])
    assert patterns.models[None].turns >= 1


def test_queue_of_lessons_is_bounded() -> None:
    """Turns that nobody guesses after do not pile up for ever."""
    patterns = Patterns()
    for _ in range(2_000):
        patterns.learn(request(visit(1)[:1]), [])
    assert len(patterns._queue) <= 256


def test_growing_conversation_is_parsed_once() -> None:
    """A later turn continues the conversation it knows; a changed past starts it anew."""
    histories = Histories()
    messages = visit(1)
    early = histories.at(messages[:3])
    assert histories.at(messages[:5]) is early
    assert early.serial == 5
    changed = [HumanMessage("Hi, I am someone else"), *messages[1:5]]
    assert histories.at(changed) is not early
    assert histories.at(messages[:3]).serial == 3


def test_edited_past_is_noticed() -> None:
    """The same first words with another second message are another conversation."""
    histories = Histories()
    messages = visit(1)
    histories.at(messages[:5])
    edited = [messages[0], call("get_loan", 1, loan_id="L-1"), output("x", 1)]
    assert histories.at(edited).tools_called == {"get_loan"}


def test_endless_conversation_is_cut() -> None:
    """Only the last messages of a very long conversation are looked at."""
    messages = [HumanMessage(f"message {n}") for n in range(2_000)]
    assert Histories().at(messages).serial <= 400


def test_conversations_kept_are_bounded_by_characters() -> None:
    """Many small ones or few big ones: those unused longest are let go."""
    histories = Histories(size=100_000)
    for n in range(200):
        histories.at([HumanMessage(f"{n} " + "x" * (100 if n < 100 else 30_000))])
        assert histories._histories.currsize <= 100_000
    assert len(histories._histories) == 3
    for n in range(200):
        histories.at([HumanMessage(f"again {n}")])
    assert len(histories._histories) > 40


def test_growing_conversations_make_room_as_they_grow() -> None:
    """What a conversation counts for is what it holds by now, not what it held at first."""
    histories = Histories(size=100_000)
    talks = [[HumanMessage(f"talk {n}")] for n in range(5)]
    for turn in range(30):
        for talk in talks:
            talk.append(HumanMessage(f"{turn}" + "x" * 2_000))
            histories.at(talk)
            assert histories._histories.currsize <= 100_000
    held = [*histories._histories.values()]
    assert 0 < len(held) < 5
    assert sum(history.size for history in held) == histories._histories.currsize


def test_one_huge_conversation_is_cut_and_kept() -> None:
    """It is read from a later message on, and the same start holds for many turns."""
    histories = Histories(size=100_000)
    talk = [HumanMessage(f"{n}" + "x" * 900) for n in range(300)]
    seen = [histories.at(talk[:at]) for at in range(1, 301)]
    assert max(history.size for history in seen) <= 60_000
    changes = sum(one is not other for one, other in pairwise(seen))
    assert 3 < changes < 20
    assert histories.at([*talk, HumanMessage("y" * 200_000)]).size < 10_000


def test_parsed_messages_are_bounded_by_characters() -> None:
    """A message larger than all that may be held is parsed, and not held."""
    cache = ParseCache(size=10_000)
    for n in range(100):
        message = HumanMessage("x" * n * 200)
        assert len(cache.get("me", fingerprint(message), message).text.raw) >= min(n * 200, 8_000)
        assert cache._parsed.currsize <= 10_000


def test_hundreds_of_live_conversations_do_not_thrash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant's conversations go on where they were: no message of any is fed twice."""
    fed: list[int] = []
    feed = History.feed

    def noted(history: History, message: Any) -> None:
        fed.append(1)
        feed(history, message)

    monkeypatch.setattr(History, "feed", noted)
    patterns, talks = Patterns(), [visit(n) for n in range(500)]
    for at in (1, 3, 5):
        for talk in talks:
            guesses(patterns, talk[:at])
    assert len(fed) == 5 * len(talks)


def test_tenants_share_the_memory_and_nothing_in_it() -> None:
    """Equal conversations of two tenants are two; one tenant's many do not outgrow the bound."""
    histories, talk = Histories(size=100_000), visit(1)
    mine, other = histories.at(talk, "a"), histories.at(talk, "b")
    assert mine is not other
    assert mine.users[0][0] is not other.users[0][0]
    for n in range(200):
        histories.at(visit(n), f"tenant {n}")
    assert histories._histories.currsize <= 100_000


def test_a_forgotten_tenant_begins_anew() -> None:
    """Its notes go with its model: the same conversation is read again for the new one."""
    patterns = Patterns(max_tenants=1)
    patterns.fit(visits(6, tenant="a"))
    asked = visit(9)[:5]
    before = guesses(patterns, asked, tenant="a")
    guesses(patterns, asked, tenant="b")
    assert guesses(patterns, asked, tenant="a") == guesses(Patterns(), asked) != before


class Placed(Patterns):
    """Patterns that note in which thread each guess was worked out."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def _guesses(self, request: TurnRequest) -> list[Guess]:
        self.threads.append(threading.get_ident())
        return super()._guesses(request)

    async def here(self, asked: TurnRequest) -> bool:
        """Guess as in a loop; say whether that was done on the loop's own thread."""
        found = [guess async for guess in self.aguess(asked, 0)]
        assert found == [*Patterns().guess(asked, 0)]
        return self.threads[-1] == threading.get_ident()


MANY = [Tool(f"tool_{chr(97 + n % 26)}{n}", {"loan_id": {"type": "string"}}) for n in range(200)]
BLOCKS = HumanMessage([{"type": "text", "text": "L-0001 " * 10_000}])
ARGS_OF_A_CALL = call("get_loan", 1, loan_id="x" * 70_000)
LONG = [HumanMessage("L-0001 " * 10_000), *visit(1)[1:3]]


async def test_short_conversations_are_read_on_the_loop() -> None:
    """A thread would cost more than the work."""
    assert await Placed().here(request(visit(1)[:5]))


@pytest.mark.parametrize(
    "asked",
    [
        request(LONG),
        request([BLOCKS]),
        request([*visit(1)[:1], ARGS_OF_A_CALL, *visit(1)[2:3]]),
        request([*visit(1)[:3]] * 100),
        request(visit(1)[:3], tools=[*TOOLS, *MANY]),
    ],
    ids=["long text", "long block", "long call", "many messages", "many tools"],
)
async def test_long_work_leaves_the_loop(asked: TurnRequest) -> None:
    """Whatever makes a guess slow, the loop goes on meanwhile, and the guesses are the same."""
    assert not await Placed().here(asked)


async def test_lessons_that_are_long_leave_the_loop() -> None:
    """A short request that has to learn from a long one first is long work as well."""
    patterns = Placed()
    patterns.learn(request(LONG), [])
    assert [guess async for guess in patterns.aguess(request(visit(1)[:3]), 0)]
    assert patterns.threads != [threading.get_ident()]


async def test_a_taken_lock_does_not_hold_the_loop() -> None:
    """While another thread learns, the loop waits in a thread of ours, and stays free."""
    patterns, taken, let_go = Placed(), threading.Event(), threading.Event()

    def hold() -> None:
        with patterns._lock:
            taken.set()
            let_go.wait(5)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(5)
    task = asyncio.create_task(patterns.here(request(visit(1)[:3])))
    await asyncio.sleep(0)
    let_go.set()  # only a loop that is not held comes this far
    assert not await task
    holder.join()


def test_schemas_are_let_go_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tool too many costs one schema, not all of them."""
    read: list[Any] = []

    def noted(tool: Any) -> ToolSchema:
        read.append(tool)
        return read_schema(tool)

    monkeypatch.setattr(schema, "read_schema", noted)
    schemas = Schemas(size=50)
    schemas.of_all(MANY[:50])
    schemas.of(MANY[50])
    assert [kept.name for kept in schemas.of_all(MANY[1:51])] == [tool.name for tool in MANY[1:51]]
    assert len(read) == 51
    assert len(schemas._read) == 50


def test_contexts_are_bounded_and_keep_the_usual() -> None:
    """Thousands of rare contexts do not push out one that is seen all the time."""
    contexts = Contexts(limit=100)
    usual = History()
    for n in range(500):
        contexts.learn(usual, ["get_loan"], [])
        odd = History()
        odd.events = [f"tool{n}"]
        contexts.learn(odd, [f"tool{n + 1}"], [])
    assert len(contexts.tallies) <= 100
    assert "^" in contexts.tallies


def test_many_tools_do_not_slow_it_to_a_halt() -> None:
    """A request with a thousand tools still asks only the likeliest."""
    many = [
        Tool(f"tool_{chr(97 + n % 26)}{n}", {"loan_id": {"type": "string"}}) for n in range(999)
    ]
    patterns = Patterns()
    patterns.fit(visits(6))
    found = guesses(patterns, visit(9)[:5], tools=[*TOOLS, *many])
    assert found[0].tool == "get_loan"


def test_schema_that_cannot_be_read_has_no_arguments() -> None:
    """A tool whose schema raises is a tool without clues."""

    class Broken:
        name = "broken"

        @property
        def args_schema(self) -> Any:
            raise RuntimeError("no")

    assert read_schema(Broken()).args == {}


def test_calibration_follows_what_happens() -> None:
    """Chances that are too high come down, and confidence never falls as chance rises."""
    calibration = Calibration()
    for n in range(400):
        calibration.learn("look", 0.95, hit=n % 2 == 0)
    assert 0.35 < calibration.confidence("look", 0.95) < 0.65
    curve = [calibration.confidence("look", n / 50) for n in range(51)]
    assert curve == sorted(curve)


def test_calibration_knows_a_tool_that_disappoints() -> None:
    """One tool's misses lower its own confidence more than another's."""
    calibration = Calibration()
    for _ in range(30):
        calibration.learn("bad", 0.6, hit=False)
        calibration.learn("good", 0.6, hit=True)
    assert calibration.confidence("bad", 0.6) < calibration.confidence("good", 0.6)


def test_content_blocks_are_read_as_text() -> None:
    """Text blocks of a message are its text; other blocks are passed over."""
    message = HumanMessage([{"type": "text", "text": "L-0001"}, {"type": "image_url"}, "L-0002"])
    assert list(parse(message).text.find("A{1}-9{4}")) == ["L-0001", "L-0002"]
