"""An agent whose calls follow from each other's results, and a source that knows them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from langchain_spectool import Guess, Policy, Rules, Speculation, speculatable
from langchain_spectool._core.verdicts import SERVED
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text
from tests.graph.leftovers import until

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
        builder.add_conditional_edges("model", route, ["tools", END])
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


def route(state: MessagesState) -> str:
    """Say where a graph goes on after the model."""
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


def seen(messages: Sequence[BaseMessage]) -> list[tuple[str, Any, Any]]:
    """Return messages without what differs between any two runs."""
    return [(m.type, m.content, getattr(m, "tool_calls", None)) for m in messages]
