"""`Chain` in real graphs: what it saves, what it leaves behind, and that nobody else notices."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from langchain_spectool import EarlyDispatch, Guess, Policy, Rules, Speculation, speculatable
from langchain_spectool._core.verdicts import SERVED
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.pool import POOL
from langchain_spectool._runtime.turn_scope import TurnScope
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text

PATIENCE_S = 5.0
GENERATION_S = 2.0
HELLO = {"messages": [HumanMessage("Where is Ann's order?")]}
FIND = ("find", {"q": "Ann"})
ORDER = ("order", {"q": "find Ann"})
TRACK = ("track", {"q": "order find Ann"})
NEXT = {"find": "order", "order": "track"}
DONE = text("On its way.")
THREE = (calls(FIND), calls(ORDER), calls(TRACK), DONE)
TWO = (calls(FIND), calls(ORDER), DONE)
"""What the main model says: each call takes the result of the one before."""
forms = pytest.mark.parametrize("form", ["create_agent", "graph"])


def expected(messages: Sequence[BaseMessage]) -> list[Guess]:
    """Guess as one who knows the way: from the last message alone."""
    last = messages[-1]
    if isinstance(last, HumanMessage):
        return [Guess(tool="find", args={"q": "Ann"}, confidence=0.8)]
    following = NEXT.get(str(last.name))
    found = [] if following is None else [(following, {"q": last.content})]
    return [Guess(tool=name, args=args, confidence=0.8) for name, args in found]


def ahead(messages: Sequence[BaseMessage]) -> list[Guess]:
    """Guess the first call, and go on from early results only."""
    late = isinstance(messages[-1], ToolMessage) and messages[-1].tool_call_id.startswith("c")
    return [] if late else expected(messages)


@dataclass
class Scene:
    """An agent of either form, and what can be seen of it."""

    form: str = "graph"
    turns: Sequence[Turn | AIMessage] = TWO
    depth: int = 2
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """What tools take that do not take a second."""
    contracts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    rule: Callable[[Sequence[BaseMessage]], list[Guess]] = expected
    sources: Sequence[Any] | None = None
    policy: Policy = field(default_factory=Policy)
    synchronous: bool = False
    paced: Callable[["Scene", int], bool] | None = None
    """In threads: what the model waits for before it gives its answer of that number."""
    saver: Any = None
    ends: list[str] = field(default_factory=list[str])
    asked: list[list[BaseMessage]] = field(default_factory=list[list[BaseMessage]])
    """The messages that the rule was shown."""
    log: RecordingObserver = field(default_factory=RecordingObserver)

    def __post_init__(self) -> None:
        self.model = ScriptedModel(
            script=self._answer, generation_s=0 if self.synchronous else GENERATION_S
        )
        inner = Rules(self._guesses)
        source = inner if self.depth == 1 else Chain(inner, depth=self.depth)
        self.spec = Speculation(
            [*map(self._tool, ("find", "order", "track")), *self._undeclared()],
            speculators=[source] if self.sources is None else self.sources,
            policy=self.policy,
            observers=[self.log],
        )
        self.agent = self.built(speculative=True)

    def _guesses(self, messages: Sequence[BaseMessage]) -> list[Guess]:
        self.asked.append([*messages])
        return self.rule(messages)

    def _answer(self, messages: list[BaseMessage]) -> Turn | AIMessage:
        place = sum(isinstance(message, AIMessage) for message in messages)
        if self.paced is not None:
            until(lambda: self.paced is None or self.paced(self, place))
        return self.turns[place]

    def _tool(self, name: str) -> BaseTool:
        async def abody(q: str) -> str:
            try:
                await asyncio.sleep(self.seconds.get(name, 1.0))
            except asyncio.CancelledError:
                self.ends.append(f"{name} cancelled")
                raise
            self.ends.append(name)
            return f"{name} {q}"

        def body(q: str) -> str:
            self.ends.append(name)
            return f"{name} {q}"

        made = tool(name, description=name)(body if self.synchronous else abody)
        return speculatable(made, **self.contracts.get(name, {}))

    @staticmethod
    def _undeclared() -> list[BaseTool]:
        @tool
        def write(q: str) -> str:
            """Change the world."""
            return f"wrote {q}"

        @tool
        def ask(q: str) -> str:
            """Ask a human."""
            return str(interrupt(q))

        return [write, ask]

    def built(self, *, speculative: bool) -> Any:
        """Return the agent, or what it would be without speculation."""
        tools = self.spec.tools
        if self.form == "create_agent":
            ours = [self.spec.middleware()] if speculative else []
            return create_agent(self.model, tools, middleware=ours, checkpointer=self.saver)
        bound = self.model.bind_tools(tools)

        def call_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [bound.invoke(state["messages"])]}

        async def acall_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        node = call_model if self.synchronous else acall_model
        builder = StateGraph(MessagesState)
        builder.add_node("model", self.spec.model_node(node) if speculative else node)  # type: ignore[arg-type]
        builder.add_node("tools", self.spec.tool_node() if speculative else ToolNode(tools))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", _route, ["tools", END])
        builder.add_edge("tools", "model")
        return builder.compile(checkpointer=self.saver)

    async def lasts_s(self, agent: Any = None) -> float:
        """Run the agent; return the seconds that took."""
        began_s = asyncio.get_running_loop().time()
        self.answer = await (agent or self.agent).ainvoke(HELLO)
        return asyncio.get_running_loop().time() - began_s

    async def stock_lasts_s(self) -> float:
        """Run the agent without speculation; return the seconds that took."""
        return await self.lasts_s(self.built(speculative=False))

    def told(self, kind: str) -> list[tuple[str, str, str]]:
        """Return verdict, tool and source of the events of one kind."""
        events = [event for event in self.log.events if event.kind == kind]
        return [(event.verdict, event.tool, event.source) for event in events]

    def balanced(self) -> bool:
        """Whether every early run has ended once: as the answer to a call, or discarded."""
        errors = [event for event in self.log.events if event.kind == "error"]
        assert errors == []
        served = [verdict for verdict, _, _ in self.told("claim") if verdict in SERVED]
        started = [verdict for verdict, _, _ in self.told("guess") if verdict == "run"]
        return len(started) == len(served) + len(self.told("discarded"))


def _route(state: MessagesState) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


def until(holds: Callable[[], bool]) -> None:
    """Wait for threads to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)


def seen(messages: Sequence[BaseMessage]) -> list[tuple[str, Any, Any]]:
    """Return messages without what differs between any two runs."""
    return [(m.type, m.content, getattr(m, "tool_calls", None)) for m in messages]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever a test does: no run in the registry, no thread at work, after it."""
    yield
    left = runs._all()
    for run in left:
        run.end()
    assert not left
    until(lambda: POOL.busy == 0)


# --- what it saves


@forms
@pytest.mark.parametrize(
    ("find_s", "order_s", "depth", "lasts_s"),
    [
        (0.5, 1.0, 2, 6.0),  # three answers; both tools are done before they are called
        (0.5, 3.0, 1, 7.0),  # begun with its own turn, the second is a second late
        (0.5, 3.0, 2, 6.0),  # begun a turn ahead, it is in time
        (0.5, 5.0, 2, 7.5),  # from 0.5 to 5.5 s, called at 4 s
        (1.5, 3.0, 2, 6.5),  # from 1.5 to 4.5 s, called at 4 s
        (2.5, 3.0, 2, 7.5),  # found at 2.5 s, after the answer: guessed in the next turn, as ever
    ],
)
async def test_time_is_saved_to_the_second(
    form: str, find_s: float, order_s: float, depth: int, lasts_s: float
) -> None:
    """As computed by hand, and the stock agent takes the sum of it all."""
    scene = Scene(form, depth=depth, seconds={"find": find_s, "order": order_s})
    assert await scene.lasts_s() == pytest.approx(lasts_s)
    assert await scene.stock_lasts_s() == pytest.approx(3 * GENERATION_S + find_s + order_s)


@forms
@pytest.mark.parametrize(("depth", "lasts_s"), [(2, 11.5), (3, 10.5)])
async def test_three_links(form: str, depth: int, lasts_s: float) -> None:
    """The last call, made at 6 s, began at 1 s with 3 links, with 2 as the second turn did."""
    seconds = {"find": 0.5, "order": 0.5, "track": 7.5}
    scene = Scene(form, THREE, depth=depth, seconds=seconds)
    assert await scene.lasts_s() == pytest.approx(lasts_s)
    assert scene.told("claim") == [
        ("hit", "find", "rules"),
        ("hit", "order", "chain"),
        ("joined", "track", "chain"),
    ]
    assert await scene.stock_lasts_s() == pytest.approx(4 * GENERATION_S + 8.5)
    assert scene.balanced()


async def test_chain_goes_on_from_what_lands_a_turn_later() -> None:
    """The second call lands at 3 s, in the second turn; the third begins then: 3 + 7.5 + 2."""
    seconds = {"find": 0.5, "order": 2.5, "track": 7.5}
    scene = Scene(turns=THREE, rule=ahead, seconds=seconds)
    assert await scene.lasts_s() == pytest.approx(12.5)
    assert scene.told("claim")[-1] == ("joined", "track", "chain")
    assert scene.balanced()


@forms
async def test_confidences_multiply(form: str) -> None:
    """Along the chain, and the gate for confidence sees the product."""
    scene = Scene(form, THREE, depth=3, seconds={"find": 0.1, "order": 0.1})
    await scene.lasts_s()
    heard = {(e.tool, e.source): e.confidence for e in scene.log.events if e.kind == "landed"}
    assert heard["find", "rules"] == pytest.approx(0.8)
    assert heard["order", "chain"] == pytest.approx(0.64)
    assert heard["track", "chain"] == pytest.approx(0.512)
    gated = Scene(form, THREE, depth=3, policy=Policy(min_confidence=0.6))
    await gated.lasts_s()
    verdicts = [
        (verdict, tool) for verdict, tool, source in gated.told("guess") if source == "chain"
    ]
    assert verdicts[:2] == [("run", "order"), ("unsure", "track")]


@forms
async def test_report_counts_it_like_any_other(form: str) -> None:
    """Hits, hidden seconds and what was scored, per source too."""
    scene = Scene(form, seconds={"find": 0.5, "order": 3.0})
    await scene.lasts_s()
    report = scene.spec.report()
    assert (report.hits, report.misses, report.errors) == (2, 0, 0)
    assert report.hidden_s == pytest.approx(3.5)
    assert report.saved_s == pytest.approx(3.5)
    assert scene.told("landed")[:2] == [("landed", "find", "rules"), ("landed", "order", "chain")]
    assert scene.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]


async def test_early_runs_of_other_sources_are_gone_on_from() -> None:
    """The main model's own stream closes a call; what comes after it is guessed at once."""
    chain = Chain(Rules(lambda messages: expected(messages) if len(messages) > 1 else []))
    scene = Scene(seconds={"find": 0.1, "order": 3.0}, sources=[EarlyDispatch(force=True), chain])
    scene.turns = [calls(FIND, ("write", {"q": "x" * 9})), *TWO[1:]]
    await scene.lasts_s()
    assert ("landed", "find", "early_dispatch") in scene.told("landed")
    assert ("run", "order", "chain") in scene.told("guess")
    # The write of the same turn came after what was read ahead.
    assert ("other_epoch", "order", "chain") in scene.told("discarded")
    assert scene.balanced()


# --- what nobody notices


@forms
async def test_messages_are_stocks(form: str) -> None:
    """What the model is shown and what the graph holds: nothing of a chain is in them."""
    scene = Scene(form, THREE, depth=3, seconds={"find": 0.1, "order": 0.1})
    await scene.lasts_s()
    ours, shown = scene.answer["messages"], [seen(asked) for asked in scene.model.seen]
    scene.model.seen.clear()
    await scene.stock_lasts_s()
    assert seen(ours) == seen(scene.answer["messages"])
    assert shown == [seen(asked) for asked in scene.model.seen]


@forms
async def test_shadow_never_chains(form: str) -> None:
    """Nothing runs, so there is no result to go on from."""
    scene = Scene(form, policy=Policy(mode="shadow"))
    await scene.lasts_s()
    assert all(source == "rules" for _, _, source in scene.told("guess"))
    assert scene.ends == ["find", "order"]
    assert scene.told("landed") == []


# --- what the inner source is asked


async def test_asked_is_the_conversation_as_it_would_go_on() -> None:
    """Each call of the chain with its result, the oldest first; the agent's own list stays."""
    scene = Scene(turns=THREE, depth=3, seconds={"find": 0.1, "order": 0.1})
    await scene.lasts_s()
    first, second, third = scene.asked[:3]
    assert first == HELLO["messages"]
    assert [message.type for message in third] == ["human", "ai", "tool", "ai", "tool"]
    assert second[:1] == third[:1] == first
    for asked, places in ((second, (1,)), (third, (1, 3))):
        for place, (name, args) in zip(places, (FIND, ORDER), strict=False):
            call, result = asked[place], asked[place + 1]
            assert isinstance(call, AIMessage)
            assert isinstance(result, ToolMessage)
            assert [(each["name"], each["args"]) for each in call.tool_calls] == [(name, args)]
            assert result.tool_call_id == call.tool_calls[0]["id"]
            assert (result.name, result.content) == (name, f"{name} {args['q']}")


class Odd:
    """Something that is no JSON."""

    def __str__(self) -> str:
        return "odd"


def _labelled(value: object) -> str:
    """Return a label without addresses, which differ between workers."""
    return re.sub(r"<.+? object at .+?>", "odd", repr(value))


VALUES: list[Any] = [
    "text",
    "",
    7,
    None,
    1.5,
    True,
    {"number": 5, "name": "Änn"},
    {"odd": Odd()},
    [1, "two", {"three": 3}],
    ["one", "two"],
    [],
    [{"type": "text", "text": "a block"}],
    [{"type": "unheard-of"}],
    (1, 2),
    (),
    ("a", "b"),
    ({"type": "text", "text": "a block"},),
    (Odd(),),
    {1},
    b"bytes",
    Odd(),
    float("nan"),
    "\ud800",
]


@pytest.mark.parametrize("artifact", [False, True])
@pytest.mark.parametrize("value", VALUES, ids=_labelled)
async def test_result_is_shown_as_stock_shows_it(value: Any, artifact: bool) -> None:
    """Whatever a tool returns: text as it is, blocks as they are, else JSON, else `str`."""
    kind: Any = "content_and_artifact" if artifact else "content"

    @speculatable
    @tool(response_format=kind)
    async def fetch(q: str) -> Any:
        """Fetch."""
        return (value, Odd()) if artifact else value

    shown: list[BaseMessage] = []

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        shown.append(messages[-1])
        fresh = isinstance(messages[-1], HumanMessage)
        return [Guess(tool="fetch", args={"q": "a"})] if fresh else []

    scene = Scene(rule=rule)
    script = [calls(("fetch", {"q": "a"})), DONE]
    model = ScriptedModel(turns=script, generation_s=1)
    spec = Speculation([fetch], speculators=[Chain(Rules(rule))], observers=[scene.log])
    agent: Any = create_agent(model, [fetch], middleware=[spec.middleware()])
    answer = await agent.ainvoke(HELLO)
    _, early, *_ = shown
    _, _, late, _ = answer["messages"]
    assert isinstance(early, ToolMessage)
    assert (early.content, early.name) == (late.content, "fetch")
    assert scene.told("claim") == [("hit", "fetch", "rules")]


@forms
async def test_failing_source_is_a_miss_and_an_event(form: str) -> None:
    """What it raises on a result that surprises it reaches nobody."""

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        if messages[-1].type != "tool":
            return expected(messages)
        raise LookupError("no such order")

    scene = Scene(form, rule=rule)
    assert await scene.lasts_s() == pytest.approx(3 * GENERATION_S + 1.0)
    errors = [(e.verdict, e.detail) for e in scene.log.events if e.kind == "error"]
    assert errors[0] == ("LookupError", "no such order")
    assert scene.spec.report().errors == len(errors) == 3  # the chain's, and two turns' own
    assert scene.told("claim")[0] == ("hit", "find", "rules")


# --- broken chains


@forms
async def test_child_that_is_not_called(form: str) -> None:
    """The link came true, the guess did not: it is cancelled when the next answer commits."""
    scene = Scene(form, (calls(FIND), DONE), seconds={"find": 0.5, "order": 9.0})
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S)
    assert scene.told("discarded") == [("unclaimed", "order", "chain")]
    await asyncio.sleep(0)
    assert scene.ends == ["find", "order cancelled"]
    assert scene.balanced()


@forms
async def test_link_that_is_not_called(form: str) -> None:
    """The tail goes at once, its bodies with it."""
    seconds = {"find": 0.5, "order": 0.5, "track": 9.0}
    scene = Scene(form, (calls(("write", {"q": "x"})), DONE), depth=3, seconds=seconds)
    began_s = asyncio.get_running_loop().time()
    await scene.lasts_s()
    gone = [e for e in scene.log.events if e.kind == "discarded"]
    assert [(e.verdict, e.tool) for e in gone[:3]] == [
        ("unclaimed", "find"),
        ("broken_link", "order"),
        ("broken_link", "track"),
    ]
    assert {e.at_s for e in gone[:3]} == {began_s + GENERATION_S}
    assert scene.ends[:3] == ["find", "order", "track cancelled"]
    assert scene.balanced()


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "stale": ({"fresh_for_s": 1.0}, "unclaimed"),  # too old already when the answer commits
    "changed": ({"freshness": lambda _: object()}, "changed"),
}


@forms
@pytest.mark.parametrize("why", REFUSALS)
async def test_refused_link(form: str, why: str) -> None:
    """What was guessed on a value that no call will have is stopped with it."""
    contract, reason = REFUSALS[why]
    seconds, contracts = {"find": 0.5, "order": 30.0}, {"find": contract}
    scene = Scene(form, (calls(FIND), DONE), rule=ahead, seconds=seconds, contracts=contracts)
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S + 0.5)
    tail = ("broken_link", "order", "chain")
    assert scene.told("discarded") == [(reason, "find", "rules"), tail]
    assert scene.ends.count("order cancelled") == 1
    assert scene.ends.count("find") == 2
    assert scene.balanced()


async def test_edited_link() -> None:
    """The call was made, but a middleware changed its arguments."""

    @wrap_tool_call  # type: ignore[arg-type]
    async def edit(request: Any, handler: Any) -> Any:
        call = {**request.tool_call, "args": {"q": "Bob"}}
        return await handler(request.override(tool_call=call))

    scene = Scene(seconds={"find": 0.5, "order": 30.0}, turns=(calls(FIND), DONE))
    agent: Any = create_agent(
        scene.model, scene.spec.tools, middleware=[edit, scene.spec.middleware()]
    )
    assert await scene.lasts_s(agent) == pytest.approx(2 * GENERATION_S + 0.5)
    assert scene.told("discarded")[:2] == [
        ("mismatch", "find", "rules"),
        ("broken_link", "order", "chain"),
    ]
    assert "order cancelled" in scene.ends
    assert scene.answer["messages"][2].content == "find Bob"


@forms
async def test_write_in_between(form: str) -> None:
    """What a chain read before a write is never served after it."""
    written = calls(FIND, ("write", {"q": "x"}))
    scene = Scene(form, (written, calls(ORDER), DONE), rule=ahead)
    await scene.lasts_s()
    assert scene.told("discarded") == [("other_epoch", "order", "chain")]
    assert scene.ends == ["find", "order", "order"]  # read again, after the write
    assert ("hit", "order", "chain") not in scene.told("claim")


@forms
async def test_call_beside_its_link(form: str) -> None:
    """Calls of one answer: the child is found there, a turn earlier than expected."""
    scene = Scene(form, (calls(FIND, ORDER), DONE), seconds={"find": 0.5, "order": 1.0})
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S)
    assert scene.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]


@forms
async def test_child_called_without_its_link(form: str) -> None:
    """The guess was right after all."""
    scene = Scene(form, (calls(ORDER), DONE), seconds={"find": 0.5, "order": 1.0})
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S)
    assert scene.told("claim") == [("hit", "order", "chain")]
    assert scene.told("discarded")[0] == ("unclaimed", "find", "rules")


async def test_rival_guesses_with_one_sequel_run_it_once() -> None:
    """Whichever of them comes true, the call after it is there."""

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        if isinstance(messages[-1], HumanMessage):
            return [Guess(tool="find", args={"q": name}) for name in ("Ann", "Bob")]
        return [Guess(tool="order", args={"q": "7"})] if messages[-1].name == "find" else []

    turns = (calls(("find", {"q": "Bob"})), calls(("order", {"q": "7"})), DONE)
    scene = Scene(turns=turns, rule=rule, seconds={"find": 0.5, "order": 3.0})
    assert await scene.lasts_s() == pytest.approx(3 * GENERATION_S)
    assert scene.ends.count("order") == 1
    assert ("duplicate", "order", "chain") in scene.told("guess")
    assert scene.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]
    assert scene.balanced()


# --- contracts and limits


@forms
async def test_reuse_keeps_a_child_for_a_later_turn(form: str) -> None:
    """Like any flight of its tool that was not claimed."""
    middle = calls(("find", {"q": "Bob"}))
    contracts = {"order": {"reuse": "run"}}
    turns = (calls(FIND), middle, calls(ORDER), DONE)
    scene = Scene(form, turns, rule=ahead, contracts=contracts)
    await scene.lasts_s()
    assert scene.told("claim")[-1] == ("hit", "order", "chain")
    assert scene.ends.count("order") == 1


@forms
async def test_deterministic_child_answers_twice(form: str) -> None:
    """In its own turn and in a later one."""
    contracts = {"order": {"deterministic": True}}
    scene = Scene(form, (calls(FIND), calls(ORDER), calls(ORDER), DONE), contracts=contracts)
    assert await scene.lasts_s() == pytest.approx(4 * GENERATION_S)
    orders = [verdict for verdict, name, _ in scene.told("claim") if name == "order"]
    assert orders == ["hit", "shared"]
    assert scene.ends.count("order") == 1


@forms
async def test_limits_count_chained_runs(form: str) -> None:
    """Per turn, and in the air."""
    scene = Scene(form, policy=Policy(guesses_per_turn=1))
    await scene.lasts_s()
    assert ("turn_limit", "order", "chain") in scene.told("guess")
    scene = Scene(form, (calls(FIND), calls(FIND), DONE), policy=Policy(in_flight_per_run=1))
    scene.seconds = {"find": 0.5, "order": 30.0}
    await scene.lasts_s()
    assert ("run", "order", "chain") in scene.told("guess")


async def test_outputs_of_others_are_not_sent_abroad() -> None:
    """What a chain takes from an early result is untrusted as it would be a turn later."""
    scene = Scene(contracts={"order": {"audience": "external"}}, policy=Policy(allow_external=True))
    await scene.lasts_s()
    orders = [told for told in scene.told("guess") if told[1] == "order"]
    assert orders == [("untrusted", "order", "chain"), ("untrusted", "order", "rules")]


async def test_warm_up_is_the_inner_sources_own() -> None:
    """A chain's guesses can only be scored once they have run."""
    scene = Scene()
    inner = Rules(expected)
    inner.warm_up = 1  # type: ignore[attr-defined]
    scene = Scene(sources=[Chain(inner)])
    for _ in range(2):
        await scene.lasts_s()
    verdicts = [
        (verdict, name) for verdict, name, source in scene.told("guess") if source == "chain"
    ]
    assert verdicts[0][0] == "run"


# --- side by side


class Parts:
    """The parts of a graph of two branches."""

    def __init__(self) -> None:
        self.scene = Scene(seconds={"find": 0.5, "order": 3.0})

    def agent(self, turns: Sequence[AIMessage]) -> Any:
        model = ScriptedModel(turns=turns, generation_s=GENERATION_S)
        return create_agent(model, self.scene.spec.tools, middleware=[self.scene.spec.middleware()])

    async def run(self, **branches: Any) -> dict[str, list[tuple[str, Any, Any]]]:
        """Run the branches as nodes of one superstep; return their messages."""
        found: dict[str, list[tuple[str, Any, Any]]] = {}

        def node(name: str, agent: Any) -> Any:
            async def call(_: MessagesState) -> dict[str, Any]:
                found[name] = seen((await agent.ainvoke(HELLO))["messages"])
                return {}

            return call

        builder = StateGraph(MessagesState)
        for name, agent in branches.items():
            builder.add_node(name, node(name, agent))
            builder.add_edge(START, name)
        graph: Any = builder.compile()
        await graph.ainvoke(HELLO)
        return found


async def test_subgraphs_side_by_side() -> None:
    """Each claims what it guessed itself; the one that stops early ends nothing of the other's."""
    parts = Parts()
    long, short = parts.agent(TWO), parts.agent((calls(FIND), DONE))
    began_s = asyncio.get_running_loop().time()
    await parts.run(long=long, short=short)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3 * GENERATION_S)
    claims = parts.scene.told("claim")
    assert sorted(claims) == [("hit", "find", "rules")] * 2 + [("hit", "order", "chain")]
    assert ("unclaimed", "order", "chain") in parts.scene.told("discarded")
    assert parts.scene.balanced()


async def test_branches_of_one_graph() -> None:
    """Model nodes of one superstep: the branch without calls does not end the other's chain."""
    scene = Scene(seconds={"find": 0.5, "order": 3.0})
    quiet = ScriptedModel(script=lambda _: text("nothing to do"), generation_s=GENERATION_S / 4)
    slow = ScriptedModel(script=lambda _: text("nothing either"), generation_s=GENERATION_S * 2)

    async def main(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await scene.model.ainvoke(state["messages"])]}

    def beside(model: ScriptedModel) -> Any:
        bound = model.bind_tools(scene.spec.tools)

        async def node(state: MessagesState) -> dict[str, Any]:
            await bound.ainvoke([HumanMessage("anything else?")])
            return {}

        return scene.spec.model_node(node)

    bound = scene.model.bind_tools(scene.spec.tools)

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("main", scene.spec.model_node(call))
    builder.add_node("quiet", beside(quiet))
    builder.add_node("slow", beside(slow))
    builder.add_node("tools", scene.spec.tool_node())
    for name in ("main", "quiet", "slow"):
        builder.add_edge(START, name)
        builder.add_edge("tools", name)
    builder.add_conditional_edges("main", _route, ["tools", END])
    graph: Any = builder.compile()
    await graph.ainvoke(HELLO)
    claims = scene.told("claim")
    assert ("hit", "order", "chain") in claims
    assert scene.balanced()


# --- leaving


async def _cancelled(scene: Scene, after_s: float) -> None:
    task = asyncio.ensure_future(scene.agent.ainvoke(HELLO))
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@forms
@pytest.mark.parametrize("after_s", [1.0, 2.5, 3.0])
async def test_cancelled_run_leaves_nothing(form: str, after_s: float) -> None:
    """In the first answer, in the tools, and in the second answer, while a chain's run is on."""
    seconds = {"find": 0.6 if after_s != 2.5 else 1.5, "order": 30.0}
    scene = Scene(form, seconds=seconds)
    await _cancelled(scene, after_s)
    await check_left(scene)
    assert "order cancelled" in scene.ends


@forms
@pytest.mark.parametrize("place", [0, 1])
async def test_failed_model_leaves_nothing(form: str, place: int) -> None:
    """The first answer fails, or the second, which the chain's run waits for."""
    turns = [*TWO]
    turns[place] = Turn(error=ValueError("planted"))  # type: ignore[call-overload]
    scene = Scene(form, turns, seconds={"find": 0.5, "order": 30.0})
    with pytest.raises(ValueError, match="planted"):
        await scene.lasts_s()
    await check_left(scene)
    assert "order cancelled" in scene.ends


@forms
async def test_interrupt_leaves_nothing(form: str) -> None:
    """The run ends where a human is asked; resumed, it starts from nothing and ends as stock."""
    scene = Scene(
        form,
        (calls(FIND, ("ask", {"q": "may I?"})), DONE),
        seconds={"find": 0.5, "order": 30.0},
        saver=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    paused = await scene.agent.ainvoke(HELLO, config)
    assert paused["__interrupt__"]
    await check_left(scene)
    assert scene.ends.count("order cancelled") == 1


async def check_left(scene: Scene) -> None:
    """The run is over: in two steps of the loop nothing of ours is left."""
    assert runs.in_progress() == 0
    for _ in range(3):
        await asyncio.sleep(0)
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert [name for name in names if name.startswith("spectool")] == []
    assert scene.balanced()


# --- in threads


@forms
@pytest.mark.parametrize("depth", [2, 3])
def test_threads(form: str, depth: int) -> None:
    """Under `invoke` a chain goes on in the thread that brought the result."""

    def ready(scene: Scene, place: int) -> bool:
        return len(scene.told("landed")) >= min(depth, 3) or place > 0

    scene = Scene(form, THREE, depth=depth, synchronous=True, paced=ready)
    answer = scene.agent.invoke(HELLO)
    until(lambda: POOL.busy == 0)
    sources = [source for _, _, source in scene.told("claim")]
    assert sources[:depth] == ["rules", *["chain"] * (depth - 1)]
    assert seen(answer["messages"]) == seen(
        scene.built(speculative=False).invoke(HELLO)["messages"]
    )
    assert scene.balanced()


async def test_blocking_tools_under_a_loop() -> None:
    """Their threads bring the result back to the loop, where the inner source is asked."""

    def ready(scene: Scene, place: int) -> bool:
        return True

    scene = Scene("create_agent", TWO)
    scene.synchronous = True
    blocking = Scene("create_agent", TWO, synchronous=True)
    model = ScriptedModel(turns=TWO, generation_s=GENERATION_S)
    where: list[str] = []

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        where.append(threading.current_thread().name)
        return expected(messages)

    spec = Speculation(
        blocking.spec.tools, speculators=[Chain(Rules(rule))], observers=[blocking.log]
    )
    agent: Any = create_agent(model, spec.tools, middleware=[spec.middleware()])
    await agent.ainvoke(HELLO)
    assert set(where) == {threading.main_thread().name}
    assert blocking.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]
    assert blocking.balanced()


@pytest.mark.parametrize("form", ["create_agent", "graph"])
def test_result_that_comes_at_once_is_gone_on_from(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body may be back in its thread before who started it can do anything more."""
    offer = TurnScope.offer

    def ready(scene: Scene, place: int) -> bool:
        return len(scene.told("landed")) >= 2 or bool(scene.told("error")) or place > 0

    def slow(turn: TurnScope, *candidate: Any) -> Any:
        flight = offer(turn, *candidate)
        until(lambda: flight is None or flight.landed_s is not None)
        time.sleep(0.005)
        return flight

    monkeypatch.setattr(TurnScope, "offer", slow)
    scene = Scene(form, TWO, synchronous=True, paced=ready)
    scene.agent.invoke(HELLO)
    assert scene.told("error") == []
    assert ("run", "order", "chain") in scene.told("guess")
