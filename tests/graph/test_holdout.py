"""Runs held out and runs treated: what is counted of them, whichever way they end."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from langchain_spectool import (
    DraftModel,
    Policy,
)
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool.telemetry.arms import held_out
from langchain_spectool.testing import ScriptedModel, calls, text
from tests.cases.harness import HELLO, THINKS_S, Outcome, Rehearsal, Scene, Way, settle
from tests.graph.paying import (
    ONE_CALL,
    PRICES,
    STOCK_S,
    TAKES_S,
    USAGE,
    A,
    B,
    Bodies,
    Fickle,
    Limited,
    rehearsal,
    timed,
    watched,
    ways,
)

# --- holdout


def arms(seed: int, runs: int) -> list[bool]:
    """Return which of the first runs are held out, at a share of one half."""
    return [held_out(seed, number, 0.5) for number in range(1, runs + 1)]


async def test_runs_held_out_are_stock() -> None:
    """Nobody is asked, nothing runs early, and each takes what stock takes."""
    bodies, source = Bodies(), Fickle("a")
    policy = Policy(holdout=0.5, seed=3)
    show = rehearsal(bodies, speculators=[source], policy=policy, prices=PRICES)
    expected = arms(3, 12)
    for held in expected:
        asked, events = source.asked, len(show.events("guess"))
        seconds, _ = await timed(show.agent)
        assert seconds == (STOCK_S if held else STOCK_S - TAKES_S)
        assert (source.asked == asked) is held
        assert (len(show.events("guess")) == events) is held
        assert watched(show) == 0
    assert {True, False} == set(expected)
    assert show.report.idle["held_out"] == 2 * sum(expected)
    assert show.report.turns == 24
    assert show.report.hits == expected.count(False)


def priced(source: Any, policy: Policy, **contract: Any) -> Rehearsal:
    """Return an agent whose model and tool have a price."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        speculators=[source],
        tools=[bodies.read("look", **contract)],
        policy=policy,
        prices=PRICES,
    )
    model = show.scene.model()
    model.usage_metadata = USAGE
    show.agent = show.scene.agent(show.spec, model)
    return show


async def test_both_arms_are_compared() -> None:
    """Seconds end to end and per turn, and dollars per success, as they were."""
    show = priced(Fickle("a"), Policy(holdout=0.5, seed=3), cost_usd=0.004)
    expected = arms(3, 44)
    for _ in expected:
        await show.run()
    seen = show.spec.report().comparison
    assert (seen.holdout.n, seen.treated.n) == (sum(expected), 44 - sum(expected))
    assert (seen.holdout.p50_s, seen.treated.p50_s) == (STOCK_S, STOCK_S - TAKES_S)
    assert (seen.holdout.p95_s, seen.treated.p95_s) == (STOCK_S, STOCK_S - TAKES_S)
    assert (seen.holdout.turn_s, seen.treated.turn_s) == (STOCK_S / 2, (STOCK_S - TAKES_S) / 2)
    for arm in (seen.holdout, seen.treated):
        assert arm.cost_per_success_usd == pytest.approx(0.004 + 2 * 1000 / 1e6)


async def test_what_speculation_costs_is_part_of_a_treated_run() -> None:
    """Wrong early runs, and the tokens of drafts."""
    policy = Policy(holdout=1e-9, benefit=None)
    show = priced(Fickle("b"), policy, cost_usd=0.004)
    await show.run()
    assert show.spec.report().comparison.treated.cost_per_success_usd == pytest.approx(
        2 * 0.004 + 2 * 1000 / 1e6
    )
    draft = ScriptedModel(
        turns=ONE_CALL, generation_s=0.1, model_name="small", usage_metadata=USAGE
    )
    show = priced(DraftModel(draft), policy)
    await show.run()
    assert show.spec.report().comparison.treated.cost_per_success_usd == pytest.approx(
        2 * 1000 / 1e6 + 2 * 1000 / 2e6
    )


async def test_runs_of_unknown_price_have_no_cost() -> None:
    """Without prices there are seconds, and no dollars."""
    show = rehearsal(Bodies(), [A], policy=Policy(holdout=1.0))
    await show.run()
    seen = show.spec.report().comparison
    assert (seen.holdout.n, seen.holdout.cost_per_success_usd) == (1, None)


@ways
async def test_a_failing_run_costs_but_is_no_success(way: Way) -> None:
    """What was spent on it is spent on the successes of the others."""

    @tool
    def boom(q: str) -> str:
        """Fail."""
        raise ToolException(q)

    bodies = Bodies(way)
    fails = [False, True, False]
    scene = Scene(turns=ONE_CALL, tools=[boom, bodies.read("look")], way=way)
    show = Rehearsal(scene, speculators=[Fickle("a")], policy=Policy(holdout=1.0), prices=PRICES)
    for failing in fails:
        model = ScriptedModel(
            turns=[calls(("boom", {"q": "x"})) if failing else calls(A), text("done")],
            usage_metadata=USAGE,
        )
        agent = scene.agent(show.spec, model)
        ended = await _outcome(agent, way)
        assert (ended.error is not None) is failing
        assert watched(show) == 0
    seen = show.spec.report().comparison.holdout
    assert seen.n == 3
    assert seen.cost_per_success_usd == pytest.approx((2 + 1 + 2) * 0.001 / 2)


async def _outcome(agent: Any, way: Way, config: Any = None) -> Outcome:
    try:
        if way == "ainvoke":
            await agent.ainvoke(HELLO, config)
        else:
            await asyncio.to_thread(agent.invoke, HELLO, config)
    except ToolException as error:
        return Outcome(error=(type(error), str(error)))
    return Outcome()


@ways
async def test_a_run_that_waits_for_a_human_is_a_success_and_its_sequel_a_run(way: Way) -> None:
    """It raised nothing: it goes on later, as a run of its own."""

    @tool
    def ask(q: str) -> str:
        """Ask a human."""
        return str(interrupt(q))

    scene = Scene(
        turns=[calls(("ask", {"q": "x"})), text("done")],
        tools=[ask, Bodies(way).read("look")],
        way=way,
        options={"checkpointer": InMemorySaver()},
    )
    show = Rehearsal(scene, speculators=[Fickle("a")], policy=Policy(holdout=1.0), prices=PRICES)
    model = ScriptedModel(turns=scene.turns, usage_metadata=USAGE)
    agent = scene.agent(show.spec, model)
    await _outcome(agent, way, {"configurable": {"thread_id": "1"}})
    assert watched(show) == 0
    seen = show.spec.report().comparison.holdout
    assert (seen.n, seen.cost_per_success_usd) == (1, pytest.approx(0.001))


@pytest.mark.parametrize("mode", ["updates", "messages", "values"])
async def test_a_stream_that_is_closed_is_no_failure(mode: str) -> None:
    """Whoever has seen enough of an answer leaves: that says nothing against the run."""
    show = rehearsal(Bodies(), [A], policy=Policy(holdout=1e-9), prices=PRICES)
    async with aclosing(show.agent.astream(HELLO, stream_mode=mode)) as stream:
        async for _ in stream:
            if show.events("guess"):
                break
    (run,) = show.spec._tally.arms._kept["treated"]
    assert run.success
    assert watched(show) == 0


def test_a_blocking_stream_that_is_closed_is_no_failure() -> None:
    """The same in threads."""
    show = rehearsal(Bodies("invoke"), [A], policy=Policy(holdout=1e-9), prices=PRICES)
    stream = show.agent.stream(HELLO, stream_mode="updates")
    next(stream)
    stream.close()
    settle()
    (run,) = show.spec._tally.arms._kept["treated"]
    assert run.success


# --- nothing is left


async def cancelled(agent: Any) -> None:
    """Cancel a run while its model writes."""
    task = asyncio.ensure_future(agent.ainvoke(HELLO))
    await asyncio.sleep(THINKS_S / 2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def closed(agent: Any) -> None:
    """Leave a stream after its first step."""
    async with aclosing(agent.astream(HELLO, stream_mode="updates")) as steps:
        async for _ in steps:
            break


async def failed(agent: Any) -> None:
    """Let the tool fail for real."""
    with suppress(Limited):
        await agent.ainvoke(HELLO)


@pytest.mark.parametrize("leave", [cancelled, closed, failed])
async def test_nothing_is_left_of_a_run_whichever_way_it_ends(leave: Callable[..., Any]) -> None:
    """No run is followed, nothing stays reserved, and the next run has its whole budget."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        [A, B],
        policy=Policy(
            budgets=Budgets(run=Budget(calls=2), turn=Budget(calls=2), process=Budget(calls=50))
        ),
    )
    bodies.limits |= {"a"} if leave is failed else set()
    for _ in range(3):
        await leave(show.agent)
        await asyncio.sleep(TAKES_S)
        assert watched(show) == 0
    if leave is not failed:
        assert show.verdicts("guess") == ["run", "run"] * 3
        assert show.spec.report().comparison.treated.n == 3
    ledger = show.spec._economy._economy.ledger
    assert [len(each) for each in ledger._accounts.values()] == [0, 0, 1]
    ((account,),) = [[*ledger._accounts["process"].values()]]
    assert account.open == 0
    assert account.spent.calls == show.report.verdicts["run"]
