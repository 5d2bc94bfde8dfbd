"""Nothing that a conversation can hold makes it raise, and nothing makes it grow without end."""

from typing import Any

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

from langchain_spectool import TurnRequest
from langchain_spectool.speculators.contract import check_speculator
from langchain_spectool.speculators.patterns.calibration import Calibration
from langchain_spectool.speculators.patterns.context import Contexts
from langchain_spectool.speculators.patterns.history import Histories, History
from langchain_spectool.speculators.patterns.parsing import parse
from langchain_spectool.speculators.patterns.schema import read_schema
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


def test_conversations_kept_are_bounded() -> None:
    """The conversation unused longest is let go."""
    histories = Histories(size=3)
    for n in range(10):
        histories.at(visit(n))
    assert len(histories._histories) == 3


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
