"""Uses of the public interface for a type checker to read. Not meant to be executed."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, assert_type

from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool, tool

from langchain_spectool import (
    DraftModel,
    EarlyDispatch,
    Event,
    Guess,
    LogObserver,
    Observer,
    Policy,
    Rules,
    Speculation,
    SpeculationMiddleware,
    SpeculativeToolNode,
    Speculator,
    TurnRequest,
    call_key,
    explain,
    speculatable,
    why_not,
)
from langchain_spectool.testing import ScriptedModel, calls, text


@tool
def plain(query: str) -> str:
    """Search."""
    return query


@speculatable
@tool
def bare(query: str) -> str:
    """Search."""
    return query


@speculatable(fresh_for_s=5, tags=["docs"], gate=lambda args: "query" in args)
@tool
def with_fields(query: str) -> str:
    """Search."""
    return query


@speculatable(deterministic=True)
class Search(StructuredTool):
    """A class of tools that all count as declared."""


declared: BaseTool = speculatable(plain, early=False)
instance: BaseTool = bare
other: BaseTool = with_fields
assert_type(speculatable(StructuredTool.from_function(print)), StructuredTool)
assert_type(call_key(plain, {"query": "x"}), str | None)
assert_type(why_not(plain, gated=["plain"]), str | None)
assert_type(explain([plain])[0].early, bool)


class Mine:
    """A speculator of one's own."""

    name = "mine"
    samples = 1
    timeout_s = 1.0

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        """Guess, blocking."""
        yield Guess(tool="plain", args={"query": str(sample)}, confidence=len(request.tools) / 10)

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Guess, awaiting."""
        for guess in self.guess(request, sample):
            yield guess


class Watching:
    """An observer of one's own."""

    def on_event(self, event: Event) -> None:
        """Take one event."""
        assert_type(event.verdict, str)


def rule(messages: Sequence[Any]) -> list[Guess]:
    """Guess nothing."""
    return [Guess(tool="plain", args={}) for _ in messages[:0]]


mine: Speculator = Mine()
watching: Observer = Watching()
model: BaseChatModel = ScriptedModel(turns=[calls(("plain", {"query": "x"})), text("done")])
middleware = SpeculationMiddleware(
    draft="openai:gpt-5-nano",
    speculators=[DraftModel(model, samples=2), EarlyDispatch(force=True), Rules(rule), mine],
    policy=Policy(mode="shadow", guesses_per_turn=4),
    gated=["pay"],
    trust_mcp=["github"],
    observers=[watching, LogObserver()],
)
taken_by_create_agent: AgentMiddleware[Any, Any, Any] = middleware
spec = Speculation([plain, bare], draft=model)
node = SpeculativeToolNode([plain], speculation=spec, handle_tool_errors=True)
assert_type(middleware.speculation, Speculation)
assert_type(spec.report().hits, int)
assert_type(spec.report().hit_rate, float | None)
assert_type(spec.model(model), ScriptedModel)
assert_type(spec.model(model.bind_tools([plain])), Runnable[LanguageModelInput, AIMessage])
spec.invalidate(tags=["docs"])
