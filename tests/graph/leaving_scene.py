"""An agent to be left in the middle, and what may still be seen of it then."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import RunControl
from langgraph.types import interrupt

from langchain_spectool import Speculation, speculatable
from langchain_spectool._core.verdicts import SERVED
from langchain_spectool._runtime import runs
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls
from tests.graph.leftovers import PATIENCE_S, our_tasks, until

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


async def interrupted(scene: Scene) -> None:
    """Leave it where it waits for a human."""
    assert (await scene.agent.ainvoke(**scene.asked))["__interrupt__"]


LOOKS = calls(("look", {"q": "a"}))
BOTH = calls(("look", {"q": "a"}), ("boom", {"q": "planted"}))


def blocking(
    form: str, turns: list[Turn | AIMessage], *, generation_s: float = 0.01, **options: Any
) -> Scene:
    """Return a scene for `invoke`, which takes real time."""
    return Scene(form, turns, generation_s=generation_s, synchronous=True, **options)
