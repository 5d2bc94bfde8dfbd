"""A hand-built graph around one model node, as each test wants it."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
)
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_spectool import (
    Guess,
    Rules,
    Speculation,
    speculatable,
)
from langchain_spectool.testing import RecordingObserver, ScriptedModel, calls, text

MAIN_S = 1.0
TOOL_S = 0.5


class Scene:
    """A tool, a Speculation that expects the call, and what they noted."""

    def __init__(self, *sources: Any, **options: Any) -> None:
        self.ran: list[str] = []
        self.observed = RecordingObserver()
        self.started = threading.Event()

        async def alook(q: str) -> str:
            self.ran.append(q)
            await asyncio.sleep(TOOL_S)
            return f"found {q}"

        def look(q: str) -> str:
            self.ran.append(q)
            self.started.set()
            return f"found {q}"

        self.look: BaseTool = speculatable(
            StructuredTool.from_function(look, alook, name="look", description="Look.")
        )
        rules = Rules(_expects)
        self.spec = Speculation(
            [self.look],
            speculators=sources or [rules],
            observers=[self.observed],
            **options,
        )

    def model(self, *, blocking: bool = False) -> ScriptedModel:
        def script(messages: list[BaseMessage]) -> Any:
            if messages[-1].type == "tool":
                return text("done")
            if blocking:
                self.started.wait(2)
            return calls(("look", {"q": "ants"}), content="Let me see.")

        return ScriptedModel(script=script, generation_s=0.0 if blocking else MAIN_S)

    def graph(self, node: Any, schema: Any = MessagesState, key: str = "messages") -> Any:
        builder = StateGraph(schema)
        builder.add_node("agent", node)
        builder.add_node("tools", self.spec.tool_node(messages_key=key))
        builder.add_edge(START, "agent")
        builder.add_conditional_edges(
            "agent", lambda s: "tools" if getattr(_chat(s, key)[-1], "tool_calls", 0) else END
        )
        builder.add_edge("tools", "agent")
        return builder.compile()

    def assert_hit(self, state: Any, key: str = "messages") -> None:
        found = [m.content for m in _chat(state, key)]
        assert found == ["hi", "Let me see.", "found ants", "done"]
        assert self.ran == ["ants"]
        assert (self.spec.report().hits, self.spec.report().errors) == (1, 0)


def _expects(messages: Sequence[BaseMessage]) -> list[Guess]:
    return [Guess(tool="look", args={"q": "ants"})] if messages[-1].type == "human" else []


def _chat(state: Any, key: str) -> list[Any]:
    if isinstance(state, list):
        return state
    return list(state[key] if isinstance(state, dict) else getattr(state, key))


def ask(key: str = "messages") -> Any:
    """Return the question, as a graph's input."""
    return {key: [("user", "hi")]}


def awaiting(bound: Any) -> Any:
    """Return a node function that awaits its model."""

    async def call(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    return call


FIRST, LAST = AIMessage("first"), AIMessage("last")
