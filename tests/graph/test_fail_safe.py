"""Whatever of ours fails: a miss and one `error` event, and the agent says what stock says."""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_spectool import EarlyDispatch, Event, Guess, Rules, Speculation, speculatable
from langchain_spectool._core.assembly import CallAssembler
from langchain_spectool._core.run import RunMachine
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.turn_scope import TurnScope
from langchain_spectool.graph import (
    book,
    committed,
    early,
    gates,
    middleware,
    model_turn,
    opening,
    speculation,
)
from langchain_spectool.graph.book import ToolBook
from langchain_spectool.graph.committed import CommittedCallScope
from langchain_spectool.graph.isolation import silence
from langchain_spectool.testing import RecordingObserver, ScriptedModel, calls, text

FORMS = ("create_agent", "graph", "model")
MAIN_S = 0.5
TOOL_S = 0.2


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Check that whatever broke, the run's entry goes with the run."""
    yield
    if runs.in_progress():
        gc.collect()  # a kept traceback holds the run
    for _ in range(1000):
        if runs.in_progress():
            time.sleep(0.002)
    assert runs.in_progress() == 0


class PlantedError(Exception):
    """What every broken seam raises."""


@dataclass
class Broken:
    """Stands in a seam of ours: raises whenever it is called, and counts."""

    count: int = 0

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.count += 1
        raise PlantedError("planted")


@dataclass
class World:
    """One tool, what ran of it, and a way to hold a blocking model until guesses were judged."""

    blocking: bool
    samples: bool = True
    """Whether anybody guesses before the model has written."""
    options: dict[str, Any] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    judged: threading.Event = field(default_factory=threading.Event)
    observed: RecordingObserver = field(default_factory=RecordingObserver)

    def on_event(self, event: Event) -> None:
        self.observed.on_event(event)
        if event.kind in ("guess", "error"):
            self.judged.set()

    def _note(self) -> None:
        config = var_child_runnable_config.get() or {}
        ours = "lc_source" in (config.get("metadata") or {})
        self.ran.append("early" if ours else "real")

    def tool(self) -> BaseTool:
        def look(q: str) -> str:
            self._note()
            return f"found {q}"

        async def alook(q: str) -> str:
            self._note()
            await asyncio.sleep(TOOL_S)
            return f"found {q}"

        made = StructuredTool.from_function(look, alook, name="look", description="Look.")
        return speculatable(made, **self.options)

    def model(self) -> ScriptedModel:
        def script(messages: list[BaseMessage]) -> Any:
            if messages[-1].type == "tool":
                return text("done")
            if self.blocking and self.samples:
                self.judged.wait(2)
            return calls(("look", {"q": "ants"}), content="Let me see.")

        return ScriptedModel(script=script, generation_s=0.0 if self.blocking else MAIN_S)

    def errors(self) -> list[Event]:
        return [event for event in self.observed.events if event.kind == "error"]

    def speculation(self, look: BaseTool, *sources: Any) -> Speculation:
        given = sources or (Rules(_expects),)
        self.samples = any(isinstance(source, Rules) for source in given)
        return Speculation([look], speculators=given, observers=[self])


def _expects(messages: Sequence[BaseMessage]) -> Iterator[Guess]:
    if messages[-1].type == "human":
        yield Guess(tool="look", args={"q": "ants"})


def _agent(form: str, model: ScriptedModel, look: BaseTool, spec: Speculation | None) -> Any:
    if form == "create_agent":
        return create_agent(model, [look], middleware=[spec.middleware()] if spec else [])
    bound = model.bind_tools([look])

    def call(state: MessagesState) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    async def acall(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    node: Any = acall if _in_a_loop() else call
    if spec is not None:
        node = spec.model_node(model if form == "model" else node, messages_key="messages")
    builder = StateGraph(MessagesState)
    builder.add_node("agent", node)
    builder.add_node("tools", ToolNode([look]) if spec is None else spec.tool_node())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _said(state: Any) -> list[Any]:
    return [
        (m.type, m.content, getattr(m, "tool_calls", None), getattr(m, "tool_call_id", None))
        for m in state["messages"]
    ]


ASK: Any = {"messages": [("user", "hi")]}
STOCK = [
    ("human", "hi", None, None),
    (
        "ai",
        "Let me see.",
        [{"name": "look", "args": {"q": "ants"}, "id": "c0", "type": "tool_call"}],
        None,
    ),
    ("tool", "found ants", None, "c0"),
    ("ai", "done", [], None),
]


@dataclass(frozen=True)
class Seam:
    """A place that may break, and what is then expected."""

    owner: Any
    name: str
    sources: Callable[[], list[Any]] = list
    started: bool = False
    """Whether a guess has started by then, so that the body runs early as well."""
    real: int = 1
    """How often the body runs for real."""
    forms: Sequence[str] = FORMS
    blocks: bool = True
    """Whether a blocking run knows as well what comes first, the guess or the failure."""
    silent: bool = False
    """Whether the failure is an ordinary verdict, and no event of its own."""


def _listening() -> list[Any]:
    return [EarlyDispatch(force=True)]


def _both() -> list[Any]:
    return [Rules(_expects), EarlyDispatch()]


SEAMS = {
    "place": Seam(opening, "place_in"),
    "config": Seam(opening, "current_config"),
    "context": Seam(opening, "detached_context"),
    "scope": Seam(opening, "TurnScope"),
    "gates": Seam(middleware, "gates_around", forms=["create_agent"]),
    "gates search": Seam(gates, "reachable", forms=["create_agent"]),
    "judge": Seam(opening, "judge_of"),
    "bound names": Seam(opening, "bound_names", forms=["graph", "model"]),
    "hearing": Seam(
        opening,
        "caller_streams",
        _both,
        forms=["create_agent"],
        started=True,
        real=0,
        blocks=False,
    ),
    "contract at the guess": Seam(book, "contract_of"),
    "contract at the claim": Seam(speculation, "contract_of", started=True),
    "resolve": Seam(ToolBook, "resolve"),
    "committed calls": Seam(ToolBook, "committed", started=True),
    "sample": Seam(TurnScope, "sample"),
    "offer": Seam(TurnScope, "offer"),
    "commit": Seam(TurnScope, "commit", started=True),
    "early run": Seam(model_turn, "early_run"),
    "proxy of the early run": Seam(early, "proxy"),
    "key of the early run": Seam(early, "body_key", silent=True),
    "admit": Seam(RunMachine, "admit"),
    "open": Seam(RunMachine, "open"),
    "plan": Seam(RunMachine, "commit", started=True),
    "booking": Seam(RunMachine, "booking", started=True),
    "claim": Seam(RunMachine, "claim", started=True),
    "begin": Seam(CommittedCallScope, "begin", started=True),
    "end": Seam(CommittedCallScope, "end", started=True, real=0),
    "proxy of the call": Seam(committed, "proxy", started=True),
    "key of the call": Seam(committed, "body_key", started=True, silent=True),
    "ended": Seam(RunMachine, "ended", started=True, real=0),
    "listen": Seam(EarlyDispatch, "listen", _listening),
    "assembler": Seam(CallAssembler, "feed", _listening),
    "answer": Seam(speculation, "answer_in", started=True, real=0, forms=["graph", "model"]),
    "forced tap": Seam(speculation, "ForcingTap", _listening, forms=["create_agent"]),
    "answer of the agent": Seam(speculation, "answer_in", forms=["create_agent"], started=True),
}
CASES = [(name, form) for name, seam in SEAMS.items() for form in seam.forms]


def _check(world: World, seam: Seam, broken: Broken, state: Any) -> None:
    assert _said(state) == STOCK
    assert broken.count > 0
    assert len(world.errors()) == (0 if seam.silent else broken.count)
    assert all("PlantedError" in event.verdict + event.detail for event in world.errors())
    assert world.ran.count("real") == seam.real


@pytest.mark.parametrize(("name", "form"), CASES)
async def test_broken_seam(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seam that raises costs the guess at most, and says so once each time."""
    seam, world, broken = SEAMS[name], World(blocking=False), Broken()
    look = world.tool()
    agent = _agent(form, world.model(), look, world.speculation(look, *seam.sources()))
    monkeypatch.setattr(seam.owner, seam.name, broken)
    state = await agent.ainvoke(ASK)
    _check(world, seam, broken, state)
    assert world.ran.count("early") == seam.started


@pytest.mark.parametrize(("name", "form"), [case for case in CASES if SEAMS[case[0]].blocks])
def test_broken_seam_of_a_blocking_run(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where guesses run in threads."""
    seam, world, broken = SEAMS[name], World(blocking=True), Broken()
    look = world.tool()
    agent = _agent(form, world.model(), look, world.speculation(look, *seam.sources()))
    monkeypatch.setattr(seam.owner, seam.name, broken)
    state = agent.invoke(ASK)
    _check(world, seam, broken, state)


# --- what is not ours may break as well


class _Loud:
    """An observer that raises at every event."""

    def on_event(self, event: Event) -> None:
        raise PlantedError(event.kind)


@pytest.mark.parametrize("form", FORMS)
async def test_broken_observer(form: str) -> None:
    """An observer that raises takes no event from the others, and is named once."""
    world = World(blocking=False)
    look = world.tool()
    spec = Speculation([look], speculators=[Rules(_expects)], observers=[_Loud(), world])
    agent = _agent(form, world.model(), look, spec)
    with pytest.warns(RuntimeWarning, match="an observer raised PlantedError") as said:
        state = await agent.ainvoke(ASK)
    assert _said(state) == STOCK
    assert world.ran == ["early"]
    assert len({str(warning.message) for warning in said}) == len(said)
    kinds = [event.kind for event in world.observed.events]
    assert (kinds.count("claim"), kinds.count("error")) == (1, 0)


async def _run(
    form: str, world: World, model: ScriptedModel, look: BaseTool, spec: Speculation
) -> Any:
    if not world.blocking:
        return await _agent(form, model, look, spec).ainvoke(ASK)
    return await asyncio.to_thread(lambda: _agent(form, model, look, spec).invoke(ASK))


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.to_thread(time.sleep, 0.001)


class _RaisingSpeculator(Rules):
    def listen(self, request: Any) -> Any:
        raise PlantedError("planted")

    force = True


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("blocking", [False, True])
async def test_broken_speculator(form: str, blocking: bool) -> None:
    """A speculator may raise in every method; another one's guesses are still claimed."""
    world = World(blocking=blocking)
    look = world.tool()
    broken = Broken()
    spec = world.speculation(look, _RaisingSpeculator(broken), Rules(_expects))
    state = await _run(form, world, world.model(), look, spec)
    assert _said(state) == STOCK
    await _until(lambda: len(world.errors()) >= 4)  # a thread may come after the answer
    assert broken.count == 2  # one sample in each turn
    raised = [(event.source, event.verdict) for event in world.errors()]
    assert raised.count(("rules", "PlantedError")) == 2
    assert raised.count(("tap", "PlantedError")) == 2  # one listener in each turn, asked once
    assert len(raised) == 4


@pytest.mark.parametrize("form", FORMS)
async def test_listener_that_missed_a_step_hears_no_more(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assembler that raised is not fed the rest of the stream."""
    world, broken = World(blocking=False), Broken()
    look = world.tool()
    agent = _agent(form, world.model(), look, world.speculation(look, *_listening()))
    monkeypatch.setattr(CallAssembler, "feed", broken)
    await agent.ainvoke(ASK)
    assert broken.count == len(world.errors()) == 2  # once in each turn


def _at(call: int) -> Callable[..., Any]:
    """Return a contract function that raises the nth time it is asked, and later."""
    asked = iter(range(1000))

    def function(values: Any) -> Any:
        if next(asked) >= call:
            raise PlantedError("planted")
        return values

    return function


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", ["gate", "key", "freshness"])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("blocking", [False, True])
async def test_broken_contract_function(form: str, function: str, at: int, blocking: bool) -> None:
    """What a tool's author declared may raise at any time: the call runs as in stock."""
    world = World(blocking=blocking)
    fails = _at(at)
    world.options = {function: fails if function != "gate" else lambda v: bool(fails(v))}
    look = world.tool()
    spec = world.speculation(look)
    state = await _run(form, world, world.model(), look, spec)
    assert _said(state) == STOCK
    assert world.ran.count("real") == 1 - spec.report().hits
    asked = {"gate": 1, "key": 4, "freshness": 2}[function]
    assert spec.report().hits == (at >= asked)


# --- the user's own exception


class MainModelError(Exception):
    """What the user's model raises."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seam", ["abandon", "close", "place"])
@pytest.mark.parametrize("blocking", [False, True])
async def test_error_of_the_model_stays_its_own(
    form: str, seam: str, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that fails raises its own error, whatever fails of ours meanwhile."""
    world, broken = World(blocking=blocking), Broken()
    look = world.tool()
    spec = world.speculation(look)

    def script(_: list[BaseMessage]) -> Any:
        if blocking:
            world.judged.wait(2)
        raise MainModelError("theirs")

    model = ScriptedModel(script=script)
    owner, name = {
        "abandon": (TurnScope, "abandon"),
        "close": (RunMachine, "close"),
        "place": (opening, "place_in"),
    }[seam]
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(MainModelError, match="theirs"):
        await _run(form, world, model, look, spec)
    assert len(world.errors()) == 1


# --- what we lose track of may write


@pytest.mark.parametrize("form", ["create_agent", "graph"])
@pytest.mark.parametrize("seam", ["booking", "begin"])
async def test_call_that_escaped_us_counts_as_a_write(
    form: str, seam: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read made before a call that we failed to follow never answers a call after it."""
    world = World(blocking=False, options={"reuse": "run"})
    look = world.tool()

    async def put(q: str) -> str:
        """Write."""
        world.ran.append("written")
        return q

    script = [
        calls(("put", {"q": "ants"})),
        calls(("look", {"q": "ants"}), prefix="d"),
        text("done"),
    ]
    write = StructuredTool.from_function(coroutine=put, name="put")
    model = ScriptedModel(turns=script, generation_s=MAIN_S)
    spec = Speculation([look, write], speculators=[Rules(_expects)], observers=[world])
    if form == "create_agent":
        agent: Any = create_agent(model, [look, write], middleware=[spec.middleware()])
    else:
        builder = StateGraph(MessagesState)
        builder.add_node("agent", spec.model_node(model))
        builder.add_node("tools", spec.tool_node())
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "agent")
        agent = builder.compile()
    owner = {"booking": RunMachine, "begin": CommittedCallScope}[seam]
    monkeypatch.setattr(owner, seam, Broken())
    await agent.ainvoke(ASK)
    assert world.ran == ["early", "written", "real"]


# --- what an early body may not touch


def _configurable() -> Any:
    return (var_child_runnable_config.get() or {}).get("configurable", {})


async def _event() -> None:
    await adispatch_custom_event("news", {})


async def _send() -> None:
    _configurable()["__pregel_send"]([])


async def _read() -> None:
    _configurable()["__pregel_read"]("messages")


async def _attribute() -> None:
    _ = _configurable()["__pregel_scratchpad"].step


async def _write() -> None:
    get_stream_writer()("news")


TOUCHES = {"event": _event, "send": _send, "read": _read, "attribute": _attribute, "write": _write}


def _touching(world: World, touch: str, **contract: Any) -> BaseTool:
    async def look(q: str) -> str:
        world._note()
        await asyncio.sleep(TOOL_S)
        await TOUCHES[touch]()
        return f"found {q}"

    made = StructuredTool.from_function(coroutine=look, name="look", description="Look.")
    return speculatable(made, **contract)


@pytest.mark.parametrize("touch", TOUCHES)
async def test_live_handles_of_the_run(touch: str) -> None:
    """A body that reaches for what only its own call has is dropped, and runs for real."""
    world = World(blocking=False)
    look = _touching(world, touch)
    spec = world.speculation(look)
    state = await create_agent(world.model(), [look], middleware=[spec.middleware()]).ainvoke(ASK)
    assert _said(state) == STOCK
    assert world.ran == ["early", "real"]
    assert spec.report().discards == {"tainted": 1}
    assert world.errors() == []


@pytest.mark.parametrize("touch", ["event", "write"])
async def test_shared_body_is_watched(touch: str) -> None:
    """A committed body does all it does, and what cannot be repeated answers no equal call."""
    world = World(blocking=False)
    look = _touching(world, touch, deterministic=True)
    twice = calls(("look", {"q": "ants"}), ("look", {"q": "ants"}))
    model = ScriptedModel(turns=[twice, text("done")])
    spec = Speculation([look], speculators=[Rules(lambda _: ())], observers=[world])
    agent = create_agent(model, [look], middleware=[spec.middleware()])
    written = [part async for part in agent.astream(ASK, stream_mode="custom")]
    assert world.ran == ["real", "real"]
    assert written == (["news", "news"] if touch == "write" else [])
    assert world.errors() == []


async def test_span_of_the_caller_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where OpenTelemetry is loaded, an early run is no child of the span around it."""
    entered: list[Any] = []
    api = SimpleNamespace(INVALID_SPAN="none", set_span_in_context=lambda span: f"under {span}")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    context = SimpleNamespace(attach=entered.append)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", context)
    silence()
    assert entered == ["under none"]
