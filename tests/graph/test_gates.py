"""Gates of the same agent are found wherever they stand, for the installed langchain."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AutoModeMiddleware,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.tools import BaseTool, tool
from langgraph.prebuilt import ToolNode

from langchain_spectool import Guess, Rules, SpeculationMiddleware, speculatable
from langchain_spectool.graph import gates
from langchain_spectool.graph.gates import gated_names, gates_around, reachable
from langchain_spectool.testing import RecordingObserver, ScriptedModel, text

ASK: Any = {"messages": [("user", "hi")]}


@speculatable
@tool
def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"


@speculatable
@tool
def pay(q: str) -> str:
    """Pay; declared by mistake, so that only a gate holds it back."""
    return f"paid {q}"


class Classifier(BaseDecisionModel):
    """Is never asked."""

    model: str = "fake"

    @property
    def _provider(self) -> str:
        return "fake"

    def _classify(self, state: Any, questions: Any) -> ClassifierResponse:
        raise NotImplementedError


class OwnApproval(HumanInTheLoopMiddleware):
    """A user's own kind of approval."""


class OwnAutoMode(AutoModeMiddleware):
    """A user's own kind of auto mode."""


GATES: dict[str, Callable[[], AgentMiddleware]] = {
    "approval": lambda: HumanInTheLoopMiddleware(interrupt_on={"pay": True}),
    "approval of a call": lambda: HumanInTheLoopMiddleware(
        interrupt_on={"pay": True}, interrupt_mode="per_call"
    ),
    "auto mode": lambda: AutoModeMiddleware(tools=["pay"], classifier=Classifier()),
    "auto mode of an object": lambda: AutoModeMiddleware(tools=[pay], classifier=Classifier()),
    "own approval": lambda: OwnApproval(interrupt_on={"pay": {"allowed_decisions": ["approve"]}}),
    "own auto mode": lambda: OwnAutoMode(tools=["pay"], classifier=Classifier()),
}


class Wraps(AgentMiddleware):
    """One that wraps everything."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


def _others() -> list[AgentMiddleware]:
    return [
        Wraps(),
        ToolRetryMiddleware(),
        ModelRetryMiddleware(),
        TodoListMiddleware(),
    ]


def _ours(observed: RecordingObserver) -> SpeculationMiddleware:
    rules = Rules(lambda _: [Guess(tool=name, args={"q": "ants"}) for name in ("look", "pay")])
    return SpeculationMiddleware(speculators=[rules], observers=[observed])


def _verdicts(observed: RecordingObserver) -> list[tuple[str, str]]:
    return sorted((e.tool, e.verdict) for e in observed.events if e.kind == "guess")


def _agent(middleware: list[AgentMiddleware], generation_s: float = 0.05) -> Any:
    model = ScriptedModel(turns=[text("done")], generation_s=generation_s)
    return create_agent(model, [look, pay], middleware=middleware)


HELD_BACK = [("look", "run"), ("pay", "gated")]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("order", [*itertools.permutations(["ours", "gate", "others"])])
async def test_gate_is_found_wherever_ours_stands(gate: str, order: tuple[str, ...]) -> None:
    """First, last or in the middle: what the gate holds back never runs early."""
    observed = RecordingObserver()
    parts = {"ours": [_ours(observed)], "gate": [GATES[gate]()], "others": _others()}
    agent = _agent([each for part in order for each in parts[part]])
    await agent.ainvoke(ASK)
    assert _verdicts(observed) == HELD_BACK


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("first", [True, False])
def test_gate_is_found_in_a_blocking_run(gate: str, first: bool) -> None:
    """The same where handlers are plain functions."""
    observed = RecordingObserver()
    pair = [_ours(observed), GATES[gate]()]
    # Real seconds: a busy machine starts the speculator's thread late.
    _agent(pair if first else pair[::-1], generation_s=0.5).invoke(ASK)
    assert _verdicts(observed) == HELD_BACK


async def test_all_gates_of_an_agent_count() -> None:
    """Several gates add up: with every tool held back nobody is even asked to guess."""
    ours = _ours(RecordingObserver())
    auto = AutoModeMiddleware(tools=["look"], classifier=Classifier())
    await _agent([auto, ours, GATES["approval"]()]).ainvoke(ASK)
    assert ours.speculation.report().idle == {"no_contracts": 1}


async def test_agents_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects around an agent are walked at its first turn only."""
    searched: list[str] = []

    def counted(start: object) -> Any:
        searched.append(getattr(start, "__name__", ""))
        return reachable(start)

    monkeypatch.setattr(gates, "reachable", counted)
    agent = _agent([_ours(RecordingObserver()), GATES["approval"]()])
    for _ in range(3):
        await agent.ainvoke(ASK)
    assert searched.count("_execute_model_async") == 1


# --- gates named by hand


@pytest.mark.parametrize("gate", GATES)
def test_gate_objects_name_their_tools(gate: str) -> None:
    """`gated` takes names and gates, mixed."""
    assert gated_names([GATES[gate](), "look"]) == {"pay", "look"}


def test_no_gates() -> None:
    """Nothing named holds nothing back."""
    assert gated_names([]) == frozenset()


@pytest.mark.parametrize("gate", [object(), pay, Wraps(), 7, None, HumanInTheLoopMiddleware])
def test_unknown_gate(gate: Any) -> None:
    """What is no gate we know is refused: its tools have to be named."""
    with pytest.raises(ValueError, match="list the names of the tools it holds back"):
        gated_names([gate])


def test_spaces_around_names() -> None:
    """Auto mode strips the names it is given, and so do we."""
    auto = AutoModeMiddleware(tools=[" pay "], classifier=Classifier())
    assert gated_names([auto]) == {"pay"}


# --- the search


def test_handler_of_nobody() -> None:
    """A handler that leads to no agent has no gates."""
    assert gates_around(lambda _: None) == frozenset()


def test_handler_that_is_the_agents_own() -> None:
    """Innermost, the handler is the agent's model call itself."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})

    def _execute_model_sync(request: Any) -> Any:
        return gate.after_model

    assert gates_around(_execute_model_sync) == {"pay"}


def test_what_is_reachable() -> None:
    """Closures, methods, partials, sequences and tool nodes are followed, each object once."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    hidden = [gate]

    def closure() -> Any:
        return hidden, closure  # a cycle

    def unfilled() -> Any:
        return later

    def wrapper(request: Any, execute: Any) -> Any:
        return hidden

    node = ToolNode([look], wrap_tool_call=wrapper)
    starts = [
        closure,
        gate.after_model,
        functools.partial(print, gate),
        functools.partial(closure),
        [(closure,)],
        node,
        functools.wraps(closure)(lambda: None),
    ]
    for start in starts:
        found = [*reachable(start)]
        assert any(item is gate for item in found)
        assert len({id(item) for item in found}) == len(found)
    assert [*reachable(unfilled)] == [unfilled]  # its cell is empty as yet
    later = None


def test_search_ends() -> None:
    """Whoever holds more than can be searched names the gates: an unfound one would be open."""
    with pytest.raises(RuntimeError, match="name its gates in `gated`"):
        list(reachable([object() for _ in range(50_000)]))


async def test_agent_too_large_to_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing runs early, and the event says what to do."""
    monkeypatch.setattr(gates, "_MOST_OBJECTS", 10)
    observed = RecordingObserver()
    await _agent([_ours(observed), *_others()]).ainvoke(ASK)
    [event] = observed.events
    assert (event.kind, event.verdict) == ("error", "RuntimeError")
    assert "name its gates in `gated`" in event.detail


def test_gate_beyond_the_tools() -> None:
    """A stock tool node without wrappers leads nowhere."""
    tools: list[BaseTool] = [look]
    assert [*reachable(node := ToolNode(tools))] == [node]
