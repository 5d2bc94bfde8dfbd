"""What else speculation that pays must not forget, and what it tells."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from langchain_spectool import (
    Policy,
)
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool.graph import model_turn
from langchain_spectool.testing import calls, text
from tests.cases.harness import HELLO
from tests.graph.paying import ONE_CALL, TAKES_S, A, B, Bodies, Fickle, rehearsal, watched

# --- what else must not be forgotten


@pytest.mark.parametrize("nested", ["node", "call"])
async def test_agents_of_one_graph_share_its_run(nested: str) -> None:
    """One budget, and one decision about the holdout, for a whole graph with two agents."""
    show = rehearsal(
        Bodies(),
        [A],
        [],
        [A],
        turns=[*ONE_CALL, *ONE_CALL],
        policy=Policy(budgets=Budgets(run=Budget(calls=1))),
    )
    one, two = (show.scene.agent(show.spec, show.scene.model()) for _ in range(2))

    async def ask(state: Any) -> Any:
        return {"messages": (await two.ainvoke(HELLO))["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("one", one)
    builder.add_node("two", two if nested == "node" else ask)
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    for _ in range(2):
        await builder.compile().ainvoke(HELLO)
        assert watched(show) == 0
    assert show.verdicts("guess") == ["run", "over_budget"] * 2
    assert show.spec.report().comparison.treated.n == 2


async def test_an_answered_call_is_one_call_of_its_minute() -> None:
    """What a guess has fetched, the committed call does not fetch again."""
    bodies = Bodies()
    show = rehearsal(bodies, [A], tools=[bodies.read("look", calls_per_minute=4)])
    for _ in range(3):
        await show.run()
    assert show.verdicts("guess") == ["run"] * 3
    assert len(bodies.ran) == 3


async def test_an_answer_that_was_cut_off_says_nothing_of_guesses() -> None:
    """Nobody knows what the model would have called."""
    bodies = Bodies()
    cut = AIMessage(content="", response_metadata={"finish_reason": "length"})
    show = rehearsal(bodies, [A], turns=[cut])
    await show.run()
    assert show.verdicts("scored") == []


async def test_a_guess_that_fails_to_start_reserves_nothing(monkeypatch: Any) -> None:
    """An argument that cannot be copied, say."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("our own")

    monkeypatch.setattr(model_turn, "early_run", broken)
    show = rehearsal(Bodies(), [A], policy=Policy(budgets=Budgets(process=Budget(calls=2))))
    await show.run()
    ledger = show.spec._economy._economy.ledger
    (account,) = ledger._accounts["process"].values()
    assert (account.open, account.spent.calls) == (0, 0)


async def test_tools_are_measured_without_guesses_too() -> None:
    """A committed call of a declared tool tells how long it takes."""
    show = rehearsal(Bodies(), speculators=[Fickle("a", warm_up=99)])
    await show.run()
    assert show.spec._economy._economy.pace.tool_s("look") == pytest.approx(TAKES_S)


# --- events


async def test_every_guess_is_one_event_and_the_scores_add_up() -> None:
    """Whatever its verdict: as many events as guesses, and as many scores as different calls."""
    bodies = Bodies()
    guesses = [A, A, B, ("look", {"q": 1}), ("gone", {}), ("write", {"q": "a"})]

    @tool
    def write(q: str) -> str:
        """Write."""
        return q

    show = rehearsal(
        bodies,
        guesses,
        turns=[calls(A), text("done")],
        tools=[bodies.read("look"), write],
        policy=Policy(budgets=Budgets(turn=Budget(calls=1))),
    )
    await show.run()
    await show.run()
    assert show.verdicts("guess") == 2 * [
        "run",
        "over_budget",
        "over_budget",
        "invalid",
        "unknown_tool",
        "undeclared",
    ]
    scored = [(event.source, event.tool, event.verdict) for event in show.events("scored")]
    assert scored == 2 * [("oracle", "look", "right"), ("oracle", "look", "wrong")]
    oracle = show.report.sources["oracle"]
    assert (oracle.guesses, oracle.right, oracle.precision) == (4, 2, 0.5)
    assert sum(show.report.verdicts.values()) == 2 * len(guesses)


async def test_what_held_guesses_back_is_printed() -> None:
    """A report says why guesses did not run; in shadow none of them counts as wasted."""
    show = rehearsal(Bodies(), [A], policy=Policy(mode="shadow"))
    await show.run()
    assert (show.report.wasted, show.report.shadow_hits) == (0, 1)
    held = rehearsal(Bodies(), speculators=[Fickle("a", warm_up=99)])
    await held.run()
    assert "guesses that did not run: warming_up 1" in str(held.report)
