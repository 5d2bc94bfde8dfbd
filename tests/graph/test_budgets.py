"""Budgets in whole agents: what guesses use up is counted, and what does not fit is refused."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import tool

from langchain_spectool import (
    Chain,
    DraftModel,
    EarlyDispatch,
    Ensemble,
    Policy,
    speculatable,
)
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool.testing import ScriptedModel, calls, text
from tests.cases.harness import THINKS_S, Rehearsal, Way
from tests.graph.paying import (
    ONE_CALL,
    PRICES,
    STOCK_S,
    USAGE,
    A,
    B,
    Bodies,
    Fickle,
    drafted,
    rehearsal,
    tenant,
    timed,
    watched,
    ways,
)


@ways
async def test_a_turn_has_its_budget(way: Way) -> None:
    """One early run a turn: the second guess of each is refused, the calls are answered alike."""
    bodies = Bodies(way)
    twice = calls(A, B)
    show = rehearsal(
        bodies,
        [A, B],
        [A, B],
        turns=[twice, twice, text("done")],
        policy=Policy(budgets=Budgets(turn=Budget(calls=1))),
    )
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert show.verdicts("guess") == ["run", "over_budget"] * 2
    assert show.report.hits == 2


@ways
async def test_a_run_has_its_budget(way: Way) -> None:
    """It lasts for all turns of a run and starts anew with the next one."""
    bodies = Bodies(way)
    show = rehearsal(
        bodies,
        [A],
        [A],
        turns=[calls(A), calls(A), text("done")],
        policy=Policy(budgets=Budgets(run=Budget(calls=1))),
    )
    for _ in range(3):
        await show.run()
        assert watched(show) == 0
    assert show.verdicts("guess") == ["run", "over_budget"] * 3


@ways
async def test_a_tenant_has_its_budget_over_all_runs(way: Way) -> None:
    """Another tenant has its own, and those of whom nobody spoke share one."""
    show = rehearsal(Bodies(way), [A], policy=Policy(budgets=Budgets(tenant=Budget(calls=1))))
    for config in (tenant("a"), tenant("a"), tenant("b"), None, None):
        await show.run(config)
    assert show.verdicts("guess") == ["run", "over_budget", "run", "run", "over_budget"]


async def test_a_process_has_its_budget_and_gets_it_again() -> None:
    """For all tenants together; after `every_s` it is full again."""
    policy = Policy(budgets=Budgets(process=Budget(calls=2, every_s=60)))
    show = rehearsal(Bodies(), [A], policy=policy)
    for wait_s in (0, 0, 0, 60, 0, 0):
        await asyncio.sleep(wait_s)
        await show.run(tenant(f"at {wait_s}"))
    assert show.verdicts("guess") == ["run", "run", "over_budget"] * 2


async def test_dollars_are_counted_whether_a_guess_was_right_or_not() -> None:
    """Three wrong guesses at a cent each, and there is nothing left for a right one."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        [("look", {"q": str(number)}) for number in range(4)],
        tools=[bodies.read("look", cost_usd=0.01)],
        policy=Policy(budgets=Budgets(process=Budget(usd=0.03)), benefit=None),
    )
    await show.run()
    await show.run()
    assert show.verdicts("guess") == ["run"] * 3 + ["over_budget"] * 5
    assert len(bodies.ran) == 3 + 2


async def test_seconds_of_abandoned_runs_are_counted() -> None:
    """A wrong guess that is cancelled after a second has used a second up."""
    bodies = Bodies()

    @speculatable
    @tool
    async def slow(q: str) -> str:
        """Take long."""
        await asyncio.sleep(100)
        return q

    guesses = [("slow", {"q": "a"})]
    show = rehearsal(
        bodies,
        guesses,
        turns=[text("done")],
        tools=[slow],
        policy=Policy(budgets=Budgets(process=Budget(tool_s=2.5)), benefit=None),
    )
    for _ in range(4):
        await show.run()
    # The usual second is reserved each time; one was used, for as long as the model wrote.
    assert show.verdicts("guess") == ["run", "run", "over_budget", "over_budget"]
    assert show.report.wasted_s == pytest.approx(2 * THINKS_S)


@pytest.mark.parametrize(
    "budget", [Budget(tokens=2500), Budget(usd=0.00125), Budget(calls=3)], ids=str
)
async def test_a_draft_model_is_asked_while_it_can_be_paid(budget: Budget) -> None:
    """Two requests of a thousand tokens each; a third, or its call, would be over the budget."""
    show, draft = drafted(USAGE, process=budget)
    ours = await show.run()
    before = len(draft.seen)
    seconds, _ = await timed(show.agent)
    assert before == 2
    assert len(draft.seen) == 2
    assert seconds == STOCK_S
    assert ours.said == (await show.scene.stock()).said
    refused = [event for event in show.events("guess") if event.verdict == "over_budget"]
    assert [(event.source, event.tool) for event in refused] == [("draft_model", "")] * 2
    assert show.report.usage == {"draft_model": (1800, 200)}


async def test_unknown_usage_stays_charged() -> None:
    """A draft that does not report its tokens uses up what was reserved for it."""
    show, draft = drafted(None, process=Budget(tokens=3 * 1100))
    await show.run()
    await show.run()
    assert len(draft.seen) == 3
    assert show.report.verdicts["over_budget"] == 1


GROUPS: dict[str, Callable[[Any], Any]] = {
    "ensemble": lambda draft: Ensemble(draft, EarlyDispatch()),
    "chain": lambda draft: Chain(draft, depth=2),
    "chain of an ensemble": lambda draft: Chain(Ensemble(draft, EarlyDispatch()), depth=2),
    "ensemble of ensembles": lambda draft: Ensemble(Ensemble(Fickle("b"), draft), EarlyDispatch()),
    "all of them": lambda draft: Chain(Ensemble(Ensemble(Fickle("b"), draft)), depth=2),
}


def grouped(kind: str, usage: Any, budget: Budget) -> tuple[Rehearsal, ScriptedModel]:
    """Return an agent whose draft model is asked for by a group."""
    draft = ScriptedModel(
        turns=ONE_CALL, generation_s=0.1, model_name="small", usage_metadata=usage
    )
    options = {"speculators": [GROUPS[kind](DraftModel(draft))], "prices": PRICES}
    policy = Policy(budgets=Budgets(process=budget), benefit=None)
    return rehearsal(Bodies(), **options, policy=policy), draft


@pytest.mark.parametrize("empty", [Budget(calls=0), Budget(tokens=0), Budget(usd=0)], ids=str)
@pytest.mark.parametrize("kind", GROUPS)
async def test_an_empty_budget_asks_nobody_in_a_group(kind: str, empty: Budget) -> None:
    """Whoever asks a model pays for it, however deep it stands."""
    show, draft = grouped(kind, USAGE, empty)
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert draft.seen == []
    refused = [e.source for e in show.events("guess") if e.verdict == "over_budget" and not e.tool]
    assert refused[0] == "draft_model"
    assert set(refused) == {"draft_model"}


@pytest.mark.parametrize("kind", ["ensemble", "ensemble of ensembles"])
async def test_unknown_usage_in_a_group_stays_charged(kind: str) -> None:
    """What a member does not report is what was reserved for it; after three there is no more."""
    show, draft = grouped(kind, None, Budget(tokens=3 * 1100))
    for _ in range(3):
        await show.run()
    assert len(draft.seen) == 3


@pytest.mark.parametrize("kind", ["ensemble", "ensemble of ensembles"])
async def test_known_usage_in_a_group_is_charged_once(kind: str) -> None:
    """As for a draft model alone: two requests of a thousand tokens fit, a third does not."""
    show, draft = grouped(kind, USAGE, Budget(tokens=2500))
    for _ in range(3):
        await show.run()
    assert len(draft.seen) == 2
    assert show.report.usage == {"draft_model": (1800, 200)}


@pytest.mark.parametrize("dear_first", [True, False])
async def test_of_two_drafts_of_one_label_the_dear_one_is_charged(dear_first: bool) -> None:
    """Which of the two is asked cannot be told by the label, so the dearer price is reserved."""
    names = ["scripted", "small"] if dear_first else ["small", "scripted"]
    drafts = [
        ScriptedModel(turns=ONE_CALL, generation_s=0.1, model_name=name, usage_metadata=USAGE)
        for name in names
    ]
    # Both at a thousand tokens and a dollar a million: one turn of two requests, and no more.
    policy = Policy(budgets=Budgets(process=Budget(usd=2.05e-3)), benefit=None)
    options = {"speculators": [*map(DraftModel, drafts)], "prices": PRICES, "policy": policy}
    show = rehearsal(Bodies(), **options)
    assert show.spec.team.models == {"draft_model": "scripted"}
    await show.run()
    await show.run()
    assert sum(len(draft.seen) for draft in drafts) <= 2


async def test_a_draft_that_is_cut_off_has_its_price() -> None:
    """The model answers before the draft does: the request was sent, and is charged."""
    show, draft = drafted(USAGE, process=Budget(tokens=2500))
    draft.generation_s = 10 * THINKS_S
    await show.run()
    assert len(draft.seen) == 2
    await show.run()
    assert len(draft.seen) == 2
