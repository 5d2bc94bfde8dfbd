"""What the cases share: an agent in every form, guesses on cue, and stock beside ours."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_spectool import Event, Guess, Observer, Policy, Speculation, TurnRequest
from langchain_spectool._runtime.pool import POOL
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn

WAYS: tuple["Way", ...] = ("ainvoke", "invoke")
Form = Literal["create_agent", "graph"]
Way = Literal["ainvoke", "invoke"]
Shape = dict[str, Any]
"""A form and a way, as arguments of a `Scene`."""

THINKS_S = 1.0
"""Virtual seconds a model takes for a turn; a blocking one waits for the guesses instead."""
PATIENCE_S = 10.0
"""Real seconds after which a blocking model stops waiting for guesses that do not come."""

HELLO: Mapping[str, Any] = {"messages": [HumanMessage("hi", id="hi")]}


class Oracle:
    """Guesses the calls it was told, turn by turn, and says when they have been offered."""

    name = "oracle"
    samples = 1
    timeout_s = 30.0

    def __init__(self, *turns: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self._turns = turns
        self._offered: dict[int, threading.Semaphore] = {}
        self._lock = threading.Lock()

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        turn = _turn_of(request.messages)
        try:
            for name, args in self._turns[turn] if turn < len(self._turns) else ():
                yield Guess(tool=name, args=args)
        finally:
            self._offering(turn).release()

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        for guess in self.guess(request, sample):
            yield guess

    def wait(self, messages: Sequence[BaseMessage]) -> None:
        """Block until the guesses for the answer to `messages` have been offered."""
        self._offering(_turn_of(messages)).acquire(timeout=PATIENCE_S)

    def _offering(self, turn: int) -> threading.Semaphore:
        # The guessing and the waiting thread may both be the first to ask.
        with self._lock:
            return self._offered.setdefault(turn, threading.Semaphore(0))


def _turn_of(messages: Sequence[Any]) -> int:
    return sum(isinstance(message, AIMessage) for message in messages)


class CuedModel(ScriptedModel):
    """A scripted model that, when it blocks, waits for a cue in place of some seconds."""

    cue: Callable[[list[BaseMessage]], None] | None = None

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self._wait(messages)
        return super()._generate(messages, *args, **kwargs)

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[Any]:
        self._wait(messages)
        yield from super()._stream(messages, *args, **kwargs)

    def _wait(self, messages: list[BaseMessage]) -> None:
        if self.cue is not None:
            self.cue(messages)


@dataclass(kw_only=True)
class Outcome:
    """How a run ended, in a form that can be compared."""

    messages: list[tuple[Any, ...]] = field(default_factory=list)
    error: tuple[type[BaseException], str] | None = None
    state: dict[str, Any] = field(default_factory=dict)
    raised: BaseException | None = None

    @property
    def said(self) -> tuple[Any, ...]:
        """Everything that must not differ from stock."""
        return self.messages, self.error

    @property
    def tools(self) -> list[tuple[Any, ...]]:
        """The id, status and content of every tool message."""
        return [(m[3], m[5], m[1]) for m in self.messages if m[0] == "tool"]


@dataclass(kw_only=True)
class Scene:
    """An agent and the script of its model."""

    turns: Sequence[Turn | AIMessage]
    tools: Sequence[BaseTool]
    form: Form = "create_agent"
    way: Way = "ainvoke"
    middleware: Sequence[Any] = ()
    inner: Sequence[Any] = ()
    """Middleware between ours and the tools."""
    node: Mapping[str, Any] = field(default_factory=dict)
    """Options of the tool node of a graph."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `create_agent` and `compile`."""
    schema: type[Any] = MessagesState

    def add(self, middleware: Any, where: str) -> None:
        """Put another middleware `outside` or `inside` of ours."""
        if where == "outside":
            self.middleware = [*self.middleware, middleware]
        else:
            self.inner = [*self.inner, middleware]

    def model(self, cue: Callable[[list[BaseMessage]], None] | None = None) -> CuedModel:
        """Return the scene's model; without a `cue` a blocking one answers at once."""
        takes_s = THINKS_S if self.way == "ainvoke" else 0.0
        return CuedModel(turns=self.turns, generation_s=takes_s, cue=cue)

    def agent(self, spec: Speculation | None = None, model: CuedModel | None = None) -> Any:
        """Return the agent, plain or with `spec` plugged in."""
        model = model or self.model()
        if self.form == "create_agent":
            ours = () if spec is None else (spec.middleware(),)
            middleware = [*self.middleware, *ours, *self.inner]
            return create_agent(model, [*self.tools], middleware=middleware, **self.options)
        return self._graph(spec, model.bind_tools([*self.tools]))

    def _graph(self, spec: Speculation | None, bound: Any) -> Any:
        def call(state: Any) -> Any:
            return {"messages": [bound.invoke(state["messages"])]}

        async def acall(state: Any) -> Any:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        node: Any = call if self.way == "invoke" else acall
        tool_node = ToolNode([*self.tools], **self.node)
        if spec is not None:
            node, tool_node = spec.model_node(node), spec.tool_node(**self.node)
        builder = StateGraph(self.schema)
        builder.add_node("agent", node)
        builder.add_node("tools", tool_node)
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "agent")
        return builder.compile(**self.options)

    async def stock(self, config: Any = None, **inputs: Any) -> Outcome:
        """Run without this package."""
        return await outcome(self.agent(), {**HELLO, **inputs}, config, way=self.way)


class Rehearsal:
    """A scene with speculation, and what became of it."""

    def __init__(
        self,
        scene: Scene,
        *guesses: Sequence[tuple[str, Mapping[str, Any]]],
        policy: Policy | None = None,
        observers: Sequence[Observer] = (),
        **options: Any,
    ) -> None:
        self.scene = scene
        self.log = RecordingObserver()
        self.oracle = Oracle(*guesses)
        self.spec = Speculation(
            scene.tools,
            **{"speculators": [self.oracle], **options},
            policy=policy,
            observers=[self.log, *observers],
        )
        can_run = any(each.early for each in self.spec.explain())
        asked = can_run and self.oracle in self.spec.speculators
        self.model = scene.model(self.oracle.wait if asked else None)
        self.agent = scene.agent(self.spec, self.model)

    async def run(self, config: Any = None, **inputs: Any) -> Outcome:
        """Run once."""
        return await outcome(self.agent, {**HELLO, **inputs}, config, way=self.scene.way)

    @property
    def report(self) -> Any:
        """The figures so far."""
        return self.spec.report()

    def events(self, kind: str) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in self.log.events if event.kind == kind]

    def verdicts(self, kind: str) -> list[str]:
        """The verdicts of the events of one kind, in order."""
        return [event.verdict for event in self.events(kind)]


async def outcome(agent: Any, inputs: Any, config: Any = None, *, way: Way) -> Outcome:
    """Run `agent` and return how it ended, an exception included."""
    try:
        if way == "invoke":
            state = await asyncio.to_thread(agent.invoke, inputs, config)
        else:
            state = await agent.ainvoke(inputs, config)
    except Exception as error:  # noqa: BLE001 - compared with stock's
        return Outcome(error=(type(error), str(error)), raised=error)
    return Outcome(messages=comparable(state["messages"]), state=state)


def comparable(messages: Sequence[BaseMessage]) -> list[tuple[Any, ...]]:
    """Return everything of `messages` but the ids LangChain draws at random."""
    return [
        (
            message.type,
            message.content,
            [(c["name"], c["args"], c["id"]) for c in getattr(message, "tool_calls", ())],
            getattr(message, "tool_call_id", None),
            message.name,
            getattr(message, "status", None),
            [(c["name"], c["args"]) for c in getattr(message, "invalid_tool_calls", ())],
        )
        for message in messages
    ]


def streamed(
    *deltas: Sequence[tuple[Any, str | None, str | None, str | None]],
    finish: str = "tool_calls",
    after: str = "",
    every_s: float = 0.1,
) -> Turn:
    """Return a turn that streams `deltas` of (index, id, name, args), then the text `after`."""
    pieces = [
        AIMessageChunk(
            content="",
            tool_call_chunks=[
                tool_call_chunk(index=index, id=id_, name=name, args=args)
                for index, id_, name, args in delta
            ],
        )
        for delta in deltas
    ]
    if after:
        pieces.append(AIMessageChunk(content=after))
    pieces.append(AIMessageChunk(content="", response_metadata={"finish_reason": finish}))
    return Turn(chunks=[(every_s * n, piece) for n, piece in enumerate(pieces, start=1)])


def settle() -> None:
    """Let the early runs that nobody waited for return: a thread cannot be stopped."""
    for _ in range(5_000):
        if POOL.busy == 0:
            return
        time.sleep(0.001)
    pytest.fail("an early run never returned")
