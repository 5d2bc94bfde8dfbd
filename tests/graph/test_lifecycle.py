"""Leaving a run: whichever way it ends, nothing of ours goes on, and nobody hears of it."""

import asyncio
import gc
import logging
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError, NodeTimeoutError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import RunControl
from langgraph.types import Command, RetryPolicy, TimeoutPolicy, interrupt

from langchain_spectool import Guess, Rules, Speculation, TurnRequest, speculatable
from langchain_spectool._core.verdicts import SERVED
from langchain_spectool._runtime import pool as pool_module
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.pool import POOL
from langchain_spectool._runtime.turn_scope import Place, TurnScope
from langchain_spectool.graph import place
from langchain_spectool.graph.team import team_of
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text

PATIENCE_S = 5.0
UNHURRIED_S = 0.2
"""Real seconds of a turn in which a guess is sure to come, on a busy machine as well."""
HELLO = {"messages": [HumanMessage("hi")]}
THREAD = {"configurable": {"thread_id": "1"}}
DRAFTED = calls(("look", {"q": "a"}), ("look", {"q": "b"}))
"""What the draft always expects: `a` is right where the model calls `look`, `b` never is."""
GENERATION_S = 1.0
LOOK_S = 5.0
FORMS = ("create_agent", "graph")
forms = pytest.mark.parametrize("form", FORMS)


class Bodies:
    """The tools, with a note of how each early or committed body of `look` ended."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.gate = threading.Event()
        self.threads: list[str] = []
        self.fails_last = False
        """Whether `boom` waits for the gate, so that the call beside it has been claimed."""

    def tools(self, *, synchronous: bool = False) -> list[BaseTool]:
        return [self._blocking_look() if synchronous else self._look(), *self._undeclared()]

    def _look(self) -> BaseTool:
        @speculatable
        @tool
        async def look(q: str) -> str:
            """Look something up."""
            try:
                await asyncio.sleep(LOOK_S)
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise
            self.ends.append("returned")
            return q

        return look

    def _blocking_look(self) -> BaseTool:
        @speculatable
        @tool
        def look(q: str) -> str:
            """Look something up."""
            self.threads.append(threading.current_thread().name)
            self.gate.wait(PATIENCE_S)
            self.ends.append("returned")
            return q

        return look

    def _undeclared(self) -> list[BaseTool]:
        @tool
        def boom(q: str) -> str:
            """Fail."""
            if self.fails_last:
                self.gate.wait(PATIENCE_S)
            raise ValueError(q)

        @tool
        def ask(q: str) -> str:
            """Ask a human."""
            return str(interrupt(q))

        return [boom, ask]


@dataclass
class Scene:
    """An agent of either form, and what can be seen of it."""

    form: str
    turns: Sequence[Turn | AIMessage]
    generation_s: float = GENERATION_S
    synchronous: bool = False
    gated: bool = False
    """A human has to approve `boom`, between the model and the tools."""
    node: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the graph's model node."""
    speculative: bool = True
    paced: bool = False
    """The model answers once the turn's two guesses were judged, however slow the threads."""
    control: RunControl | None = None
    bodies: Bodies = field(default_factory=Bodies)
    observer: RecordingObserver = field(default_factory=RecordingObserver)

    def __post_init__(self) -> None:
        script = self._answer if self.paced else None
        turns = () if self.paced else self.turns
        self.main = ScriptedModel(turns=turns, script=script, generation_s=self.generation_s)
        draft = ScriptedModel(script=lambda _: DRAFTED, generation_s=self.generation_s / 10)
        self.spec = Speculation(
            self.bodies.tools(synchronous=self.synchronous), draft=draft, observers=[self.observer]
        )
        self.agent = self._agent() if self.form == "create_agent" else self._graph()

    def _answer(self, messages: list[BaseMessage]) -> Turn | AIMessage:
        place = sum(isinstance(message, AIMessage) for message in messages)
        until(lambda: len(self.verdicts("guess")) >= 2 * (place + 1))
        return self.turns[place]

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments of a run."""
        return {"input": HELLO, "config": THREAD, "control": self.control}

    def _agent(self) -> Any:
        ours = [self.spec.middleware()] if self.speculative else []
        gate = [HumanInTheLoopMiddleware(interrupt_on={"boom": True})] if self.gated else []
        return create_agent(
            self.main,
            self.spec.tools,
            middleware=[*ours, *gate],
            checkpointer=InMemorySaver() if self.gated else None,
        )

    def _graph(self) -> Any:
        bound = self.main.bind_tools(self.spec.tools)

        def call_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [bound.invoke(state["messages"])]}

        async def acall_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        def approve(state: MessagesState) -> dict[str, Any]:
            if self.gated:
                interrupt("may it?")
            return {}

        def route(state: MessagesState) -> str:
            return "approve" if getattr(state["messages"][-1], "tool_calls", None) else END

        builder = StateGraph(MessagesState)
        node = call_model if self.synchronous else acall_model
        model: Any = self.spec.model_node(node) if self.speculative else node
        tools = self.spec.tool_node() if self.speculative else ToolNode(self.spec.tools)
        builder.add_node("model", model, **self.node)
        builder.add_node("approve", approve)
        builder.add_node("tools", tools)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", route, ["approve", END])
        builder.add_edge("approve", "tools")
        builder.add_edge("tools", "model")
        return builder.compile(checkpointer=InMemorySaver() if self.gated else None)

    # --- what is left

    def verdicts(self, kind: str) -> list[str]:
        return [event.verdict for event in self.observer.events if event.kind == kind]

    def balanced(self) -> bool:
        """Whether every early run has ended once: as the answer to a call, or discarded."""
        assert not self.verdicts("error")
        served = [verdict for verdict in self.verdicts("claim") if verdict in SERVED]
        return self.verdicts("guess").count("run") == len(self.verdicts("discarded")) + len(served)

    async def check_left(self) -> None:
        """The run is over: in two steps of the loop nothing of ours is left."""
        assert runs.in_progress() == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not our_tasks()
        assert self.balanced()
        wasted = len(self.verdicts("discarded"))
        assert self.bodies.ends.count("cancelled") == wasted


def our_tasks() -> list[str]:
    """Return the names of our tasks on the running loop."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("spectool")]


def our_threads() -> list[str]:
    """Return the names of our threads."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("spectool")]


def until(holds: Callable[[], bool]) -> None:
    """Wait for threads to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)


@pytest.fixture(autouse=True, scope="module")
def _quick_collector() -> Iterator[None]:
    """The collector need not look at all that was imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _silence(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test ends with a word from asyncio, or with a run in the registry."""
    caplog.set_level(logging.DEBUG, logger="asyncio")
    yield
    left = runs._all()
    for run in left:
        run.end()
    assert not left
    words = [r for r in caplog.records if r.name == "asyncio" and r.levelno > logging.DEBUG]
    assert not words
    until(lambda: POOL.busy == 0)


# --- the ways to leave


async def _success(scene: Scene) -> None:
    await scene.agent.ainvoke(**scene.asked)


async def _fails(scene: Scene) -> None:
    with pytest.raises(ValueError, match="planted"):
        await scene.agent.ainvoke(**scene.asked)


async def _one_of_two_fails(scene: Scene) -> None:
    await _fails(scene)
    # A graph's ToolNode leaves the other calls running, with speculation and without.
    await asyncio.sleep(LOOK_S)


async def _interrupted(scene: Scene) -> None:
    assert (await scene.agent.ainvoke(**scene.asked))["__interrupt__"]


async def _cancelled(scene: Scene, after_s: float) -> None:
    task = asyncio.create_task(scene.agent.ainvoke(**scene.asked))
    await asyncio.sleep(after_s)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def _cancelled_in_the_model(scene: Scene) -> None:
    await _cancelled(scene, GENERATION_S / 2)


async def _cancelled_in_the_tools(scene: Scene) -> None:
    await _cancelled(scene, GENERATION_S * 2)


async def _out_of_time(scene: Scene) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.agent.ainvoke(**scene.asked), GENERATION_S * 2)


async def _left_after_one_chunk(scene: Scene, mode: str) -> None:
    stream: AsyncIterator[Any] = scene.agent.astream(**scene.asked, stream_mode=mode)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]


async def _disconnected_in_the_model(scene: Scene) -> None:
    await _left_after_one_chunk(scene, "messages")


async def _disconnected_after_the_model(scene: Scene) -> None:
    await _left_after_one_chunk(scene, "updates")


LOOKS = calls(("look", {"q": "a"}))
SPOKEN = Turn(chunks=[(n / 5, AIMessageChunk(content=f"{n} ")) for n in range(1, 11)])
BOTH = calls(("look", {"q": "a"}), ("boom", {"q": "planted"}))
ASKS = calls(("look", {"q": "a"}), ("ask", {"q": "may I?"}))

Way = Callable[[Scene], Awaitable[None]]
WAYS: dict[str, tuple[Way, list[Turn | AIMessage], bool]] = {
    "success": (_success, [text("done")], False),
    "success after a hit": (_success, [LOOKS, text("done")], False),
    "model error": (_fails, [Turn(error=ValueError("planted"))], False),
    "tool error": (_one_of_two_fails, [BOTH], False),
    "approval": (_interrupted, [BOTH], True),
    "cancelled in the model": (_cancelled_in_the_model, [text("done")], False),
    "cancelled in the tools": (_cancelled_in_the_tools, [LOOKS], False),
    "out of time": (_out_of_time, [LOOKS], False),
    "disconnected in the model": (_disconnected_in_the_model, [SPOKEN], False),
    "disconnected after the model": (_disconnected_after_the_model, [LOOKS], False),
}
ways = pytest.mark.parametrize("way", WAYS)


def arranged(form: str, way: str) -> tuple[Scene, Way]:
    """Return the scene in which `way` can happen."""
    leave, turns, gated = WAYS[way]
    return Scene(form, turns, gated=gated), leave


@forms
@ways
async def test_run_leaves_nothing(form: str, way: str) -> None:
    """When the run is over, so are our tasks; wasted bodies were cancelled, each told of once."""
    scene, leave = arranged(form, way)
    await leave(scene)
    await scene.check_left()
    assert scene.verdicts("guess")[:2] == (["run"] * 2 if scene.bodies.ends else [])


class Control(RunControl):
    """A control whose end can be seen."""


def _gone_soon(gone: "weakref.ref[Control]") -> bool:
    """A thread on its way out may hold it for a moment; nothing collects garbage meanwhile."""
    for _ in range(100):
        if gone() is None:
            return True
        time.sleep(0.01)
    return False


async def _freed(scene: Scene, leave: Way) -> bool:
    """Leave a run of `scene`; say whether nobody holds its control then."""
    scene.control = Control()
    gone = weakref.ref(scene.control)
    gc.disable()
    try:
        await leave(scene)
        scene.control = None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return _gone_soon(gone)
    finally:
        gc.enable()


@forms
@ways
async def test_run_is_freed_when_stock_code_frees_it(form: str, way: str) -> None:
    """Counting references, nothing of ours holds a run for longer than LangGraph does itself."""
    scene, leave = arranged(form, way)
    stock, _ = arranged(form, way)
    stock = replace(stock, speculative=False)
    assert await _freed(scene, leave) or not await _freed(stock, leave)


@forms
@ways
async def test_janitor_ends_what_no_graph_told_of(
    form: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the end of a graph cannot be seen, an entry goes with the references to its run."""
    monkeypatch.setattr(place, "_exit_stack", lambda _: None)
    monkeypatch.setattr(runs, "SWEEP_S", 0.002)
    until(lambda: "spectool-janitor" not in our_threads())
    scene, leave = arranged(form, way)
    await leave(scene)
    gc.collect()
    until(lambda: runs.in_progress() == 0 and scene.balanced())
    await asyncio.sleep(0)
    await scene.check_left()


@forms
async def test_end_of_a_graph_is_seen(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pins, for the installed LangGraph, the way by which a node learns that its graph ends."""
    places: list[Place] = []
    opened = TurnScope.__init__

    def noting(self: TurnScope, where: Place, *args: Any, **options: Any) -> None:
        places.append(where)
        opened(self, where, *args, **options)

    monkeypatch.setattr(TurnScope, "__init__", noting)
    await Scene(form, [LOOKS, text("done")]).agent.ainvoke(HELLO)
    blocking = Scene(form, [LOOKS, text("done")], generation_s=0.01, synchronous=True)
    blocking.bodies.gate.set()
    blocking.agent.invoke(HELLO)
    assert len(places) == 4
    assert all(where.at_end is not None for where in places)


# --- more ways, one by one


@forms
async def test_interrupt_in_a_tool(form: str) -> None:
    """A tool that asks a human ends the run; the flight beside it is served or cancelled."""
    asks = calls(("look", {"q": "a"}), ("ask", {"q": "may I?"}))
    scene = Scene(form, [asks], gated=True)
    if form == "graph":
        # The gate of the graph interrupts first; what follows it is a run of its own.
        await _interrupted(scene)
        result = await scene.agent.ainvoke(Command(resume=False), THREAD)
        assert result["__interrupt__"][0].value == "may I?"
    else:
        await _interrupted(scene)
    await asyncio.sleep(LOOK_S)
    await scene.check_left()


async def test_node_timeout() -> None:
    """LangGraph cancels a node that takes too long: its guesses go with it."""
    scene = Scene(
        "graph", [text("late")], generation_s=10, node={"timeout": TimeoutPolicy(run_timeout=4)}
    )
    with pytest.raises(NodeTimeoutError):
        await scene.agent.ainvoke(HELLO)
    assert asyncio.get_running_loop().time() == 4
    await scene.check_left()
    assert scene.bodies.ends == ["cancelled"] * 2


class Chatty:
    """A speculator that calls a model again and again."""

    name = "chatty"
    samples = 1
    timeout_s = 60.0

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        raise NotImplementedError

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        draft = ScriptedModel(script=lambda _: text("hm"), generation_s=0.02)
        while True:
            await draft.ainvoke([*request.messages])
            yield Guess(tool="nothing", args={})


@pytest.mark.real_loop
async def test_guesses_are_no_progress_of_the_node() -> None:
    """Models that speculators call do not keep a silent main model alive."""
    idle = TimeoutPolicy(idle_timeout=0.3)
    scene = Scene("graph", [text("late")], generation_s=3, node={"timeout": idle})
    scene.spec._opener.team = team_of([Chatty()])
    with pytest.raises(NodeTimeoutError):
        await scene.agent.ainvoke(HELLO)
    assert scene.verdicts("guess")
    await scene.check_left()


async def test_node_that_is_tried_again() -> None:
    """Each attempt guesses anew, and leaves nothing to the next."""
    answers = iter([Turn(error=ConnectionError("1")), Turn(error=ConnectionError("2")), text("ok")])
    retry = RetryPolicy(initial_interval=1, jitter=False, retry_on=ConnectionError)
    scene = Scene("graph", [text("unused")], node={"retry_policy": retry})
    scene.main.script, scene.main.turns = lambda _: next(answers), ()
    result = await scene.agent.ainvoke(HELLO)
    assert result["messages"][-1].content == "ok"
    await scene.check_left()
    assert scene.verdicts("discarded") == ["turn_failed"] * 4 + ["unclaimed"] * 2


@forms
async def test_recursion_limit(form: str) -> None:
    """A run that takes too many steps ends with planned flights in the air."""
    scene = Scene(form, [LOOKS])
    with pytest.raises(GraphRecursionError):
        await scene.agent.ainvoke(HELLO, {"recursion_limit": 1})
    await scene.check_left()


@forms
async def test_error_that_the_caller_keeps(form: str) -> None:
    """Who keeps the exception keeps the run's frames, and none of our tasks."""
    scene = Scene(form, [BOTH], gated=False)
    try:
        await scene.agent.ainvoke(HELLO)
    except ValueError as error:
        kept = error
    await asyncio.sleep(LOOK_S if form == "graph" else 0)
    await scene.check_left()
    assert kept.__traceback__ is not None


@forms
async def test_subgraph_that_is_left(form: str) -> None:
    """A subgraph whose run is interrupted ends its own flights; the parent goes on to its end."""
    scene = Scene(form, [BOTH], gated=True)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", scene.agent)
    builder.add_edge(START, "agent")
    parent = builder.compile(checkpointer=InMemorySaver())
    assert (await parent.ainvoke(HELLO, THREAD))["__interrupt__"]
    await scene.check_left()


tenant: ContextVar[str] = ContextVar("tenant")


@forms
async def test_runs_that_share_a_control_keep_apart(form: str) -> None:
    """Two users' runs get one control and make the same call: each has its own result.

    Alice's second turn opens while Bob still waits for his first.
    """

    @speculatable
    @tool
    async def look(q: str) -> str:
        """Look something up for who asks."""
        await asyncio.sleep(LOOK_S)
        return tenant.get()

    scene = Scene(form, [LOOKS, text("done")], bodies=SameTool(look))
    control = RunControl()

    async def run(name: str, delay_s: float) -> str:
        tenant.set(name)
        await asyncio.sleep(delay_s)
        state = await scene.agent.ainvoke(HELLO, control=control)
        return str(state["messages"][-2].content)

    assert await asyncio.gather(run("alice", 0), run("bob", 0.5)) == ["alice", "bob"]
    assert scene.verdicts("claim") == ["joined"] * 2


class SameTool(Bodies):
    """Tools of which one is given."""

    def __init__(self, given: BaseTool) -> None:
        super().__init__()
        self._given = given

    def _look(self) -> BaseTool:
        return self._given


@forms
async def test_speculator_that_leaves_the_program(form: str) -> None:
    """`sys.exit()` in a speculator costs its guesses, not the event loop."""

    def leave(_: object) -> list[Guess]:
        sys.exit(3)

    scene = Scene(form, [text("done")])
    scene.spec._opener.team = team_of([Rules(leave)])
    result = await scene.agent.ainvoke(HELLO)
    assert result["messages"][-1].content == "done"
    assert scene.verdicts("error") == ["SystemExit"]


# --- loops


@forms
def test_loop_that_asyncio_runs(form: str) -> None:
    """`asyncio.run` finds nothing of ours to cancel when the agent was its last work."""
    scene = Scene(form, [text("done")], generation_s=0.1)
    asyncio.run(scene.agent.ainvoke(HELLO))
    assert runs.in_progress() == 0
    assert scene.balanced()
    assert scene.bodies.ends == ["cancelled"] * 2


@forms
def test_loop_that_is_closed_after_the_run(form: str) -> None:
    """A wrong guess still flies when its run ends and its loop is closed: nothing is said (B35)."""
    scene = Scene(form, [text("done")], generation_s=0.1)
    loop = asyncio.SelectorEventLoop()
    loop.run_until_complete(scene.agent.ainvoke(HELLO))
    loop.close()
    gc.collect()
    assert runs.in_progress() == 0
    assert scene.verdicts("discarded") == ["unclaimed"] * 2


@forms
@pytest.mark.filterwarnings("ignore:coroutine 'AsyncCallbackManager:RuntimeWarning")
@pytest.mark.parametrize("after_s", [0.002, 0.01, 0.03], ids=["sampling", "flying", "committed"])
def test_loop_that_is_closed_in_the_middle(
    form: str, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped and closed, a loop takes everything along; only stock code has a word to say."""
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: said.append(_raised_in(args.exc_value)))
    monkeypatch.setattr(runs, "SWEEP_S", 0.002)
    until(lambda: "spectool-janitor" not in our_threads())
    scene = Scene(form, [LOOKS], generation_s=0.02)
    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(scene.agent.ainvoke(HELLO))
    loop.call_later(after_s, loop.stop)
    loop.run_forever()
    for each in asyncio.all_tasks(loop):
        if not each.get_name().startswith("spectool"):
            each._log_destroy_pending = False  # type: ignore[attr-defined] # those of stock code
    loop.close()
    del task, each
    gc.collect()
    until(lambda: runs.in_progress() == 0 and scene.balanced())
    gc.collect()
    assert not [path for path in said if "langchain_spectool" in path]


def _raised_in(error: BaseException | None) -> str:
    """Return the file that raised `error`, or what else it may be."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return frames[-1].filename if frames else repr(error)


# --- threads


@pytest.fixture
def _quick_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle threads of ours end soon."""
    monkeypatch.setattr(pool_module, "IDLE_S", 0.005)
    monkeypatch.setattr(runs, "SWEEP_S", 0.005)
    until(lambda: not our_threads())


def blocking(
    form: str, turns: list[Turn | AIMessage], *, generation_s: float = 0.01, **options: Any
) -> Scene:
    """Return a scene for `invoke`, which takes real time."""
    return Scene(form, turns, generation_s=generation_s, synchronous=True, **options)


def opened_when_joined(scene: Scene) -> None:
    """Let the bodies return once a committed call waits for one of them."""

    def joined() -> bool:
        return any(flight.waiters for run in runs._all() for flight in [*run.aloft])

    def watch() -> None:
        until(joined)
        scene.bodies.gate.set()

    threading.Thread(target=watch, name="watch").start()


def _streamed(scene: Scene) -> None:
    stream = scene.agent.stream(HELLO, stream_mode="updates")
    next(stream)
    stream.close()


def _invoked(scene: Scene) -> None:
    with suppress(ValueError):
        scene.agent.invoke(HELLO, THREAD)


BLOCKING_WAYS: dict[str, tuple[Callable[[Scene], None], list[Turn | AIMessage], bool]] = {
    "success": (_invoked, [text("done")], False),
    "model error": (_invoked, [Turn(error=ValueError("planted"))], False),
    "approval": (_invoked, [BOTH], True),
    "disconnected after the model": (_streamed, [LOOKS], False),
}


@forms
@pytest.mark.parametrize("way", BLOCKING_WAYS)
@pytest.mark.usefixtures("_quick_threads")
def test_blocking_run_leaves_only_bodies(form: str, way: str) -> None:
    """After `invoke` or `stream` only the threads inside a user's body are left, and end."""
    leave, turns, gated = BLOCKING_WAYS[way]
    scene = blocking(form, turns, gated=gated, paced=True)
    leave(scene)
    until(lambda: runs.in_progress() == 0)
    assert scene.balanced()
    assert scene.verdicts("guess") == ["run"] * 2
    assert len(scene.verdicts("discarded")) == 2
    until(lambda: len(our_threads()) == 2)
    assert sorted(our_threads()) == sorted(scene.bodies.threads)
    scene.bodies.gate.set()
    until(lambda: not our_threads())
    assert len(scene.verdicts("discarded")) == 2


@forms
@pytest.mark.usefixtures("_quick_threads")
def test_blocking_tool_error(form: str) -> None:
    """A call that fails beside one that is served: the run raises, and nothing is left."""
    scene = blocking(form, [BOTH], paced=True, generation_s=UNHURRIED_S)
    scene.bodies.fails_last = True
    opened_when_joined(scene)
    with pytest.raises(ValueError, match="planted"):
        scene.agent.invoke(HELLO)
    until(lambda: runs.in_progress() == 0)
    until(lambda: not our_threads())
    assert scene.balanced()


@forms
@pytest.mark.usefixtures("_quick_threads")
def test_hundred_blocking_runs_at_once(form: str) -> None:
    """Many runs share the pool: each gets its answer, and all books balance in the end."""
    scene = blocking(form, [LOOKS, text("done")])
    scene.bodies.gate.set()
    with ThreadPoolExecutor(120) as executor:
        results = list(executor.map(lambda _: scene.agent.invoke(HELLO), range(120)))
    assert {result["messages"][-1].content for result in results} == {"done"}
    assert {result["messages"][-2].content for result in results} == {"a"}
    until(lambda: POOL.busy == 0 and runs.in_progress() == 0)
    assert scene.balanced()
    until(lambda: not our_threads())


@forms
async def test_hundred_runs_at_once(form: str) -> None:
    """Many runs of one loop keep out of each other's way."""
    scene = Scene(form, [LOOKS, text("done")])
    results = await asyncio.gather(*(scene.agent.ainvoke(HELLO) for _ in range(120)))
    assert {result["messages"][-1].content for result in results} == {"done"}
    await scene.check_left()
    in_flight = scene.verdicts("guess").count("run")
    assert in_flight >= 64
    assert scene.verdicts("claim").count("joined") == in_flight - len(scene.verdicts("discarded"))


@forms
@pytest.mark.real_loop
async def test_invoke_inside_a_running_loop(form: str) -> None:
    """Called where a loop runs, as in a notebook, `invoke` speculates in threads all the same."""
    scene = blocking(form, [LOOKS, text("done")], paced=True, generation_s=UNHURRIED_S)
    opened_when_joined(scene)
    result = scene.agent.invoke(HELLO)
    assert [message.content for message in result["messages"][-2:]] == ["a", "done"]
    assert scene.verdicts("claim") == ["joined"]
    until(lambda: POOL.busy == 0 and runs.in_progress() == 0)
    assert scene.balanced()


@pytest.mark.real_loop
async def test_early_bodies_keep_out_of_the_loops_executor() -> None:
    """Twelve blocking guesses fly; a committed blocking call has the executor to itself."""
    bodies = Bodies()
    committed: list[str] = []

    @tool
    def work(q: str) -> str:
        """Work in a thread."""
        committed.append(threading.current_thread().name)
        return q

    drafted = calls(*(("look", {"q": str(n)}) for n in range(12)))
    spec = Speculation(
        [*bodies.tools(synchronous=True), work], draft=ScriptedModel(script=lambda _: drafted)
    )
    main = ScriptedModel(turns=[calls(("work", {"q": "w"})), text("done")], generation_s=0.1)
    agent = create_agent(main, spec.tools, middleware=[spec.middleware()])
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="only"))
    try:
        result = await asyncio.wait_for(agent.ainvoke(HELLO), PATIENCE_S)
    finally:
        bodies.gate.set()
    assert result["messages"][-2].content == "w"
    assert committed == ["only_0"]
    assert len(bodies.threads) >= 12
    assert all(name.startswith("spectool-") for name in bodies.threads)


# --- the interpreter's end

EXIT = """
import asyncio, threading, time
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_spectool import SpeculationMiddleware, speculatable
from langchain_spectool.testing import ScriptedModel, calls, text

started = threading.Event()

@speculatable
@tool
def look(q: str) -> str:
    "Look something up, for long."
    started.set()
    time.sleep(300)
    return q

draft = ScriptedModel(script=lambda _: calls(("look", {{"q": "a"}})))
main = ScriptedModel(turns=[text("done")], generation_s=0.2)
agent = create_agent(main, [look], middleware=[SpeculationMiddleware(draft=draft)])
asked = {{"messages": [("user", "hi")]}}
print({run}["messages"][-1].content, started.is_set(), flush=True)
"""


@pytest.mark.parametrize("run", ["agent.invoke(asked)", "asyncio.run(agent.ainvoke(asked))"])
def test_interpreter_does_not_wait_for_abandoned_bodies(run: str) -> None:
    """A wrong guess whose body sleeps on in a thread does not hold the program's end."""
    script = textwrap.dedent(EXIT).format(run=run)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout == "done True\n"
    assert ended.stderr == ""
    assert ended.returncode == 0
