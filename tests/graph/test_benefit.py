"""Guesses that pay, in whole agents: rates, warm-up, what is worth it, and rests."""

import asyncio
from typing import Any

import pytest

from langchain_spectool import (
    Policy,
)
from langchain_spectool._core.benefit import BenefitGate
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool.testing import calls, text
from tests.cases.harness import Way, settle
from tests.graph.paying import (
    STOCK_S,
    TAKES_S,
    A,
    B,
    Bodies,
    Fickle,
    Limited,
    rehearsal,
    timed,
    ways,
)

# --- rates


@ways
async def test_a_limited_guess_stops_guesses_on_its_tool_only(way: Way) -> None:
    """A 429 nobody asked for: `look` is left alone from then on, `find` is not, calls run on."""
    bodies = Bodies(way)
    bodies.limits.add("b")
    find = ("find", {"q": "a"})
    show = rehearsal(
        bodies,
        [B],
        [A, find],
        turns=[calls(find), calls(A, find), text("done")],
        tools=[bodies.read("look"), bodies.read("find")],
        policy=Policy(benefit=BenefitGate(usd_per_tool_s=0)),  # a thread's turn takes no time
    )

    def landed(messages: Any) -> None:
        show.oracle.wait(messages)
        settle()

    show.agent = show.scene.agent(show.spec, show.scene.model(landed))
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert show.verdicts("landed") == ["failed", "landed"]
    assert show.verdicts("guess") == ["run", "rate_limited", "run"]


async def test_guesses_come_back_when_the_service_does() -> None:
    """Sixty virtual seconds after the 429; the committed call meanwhile takes its usual time."""
    bodies = Bodies()
    bodies.limits.add("b")
    show = rehearsal(bodies, [B, A])
    first_s, first = await timed(show.agent)
    bodies.limits.clear()
    second_s, _ = await timed(show.agent)
    await asyncio.sleep(60)
    third_s, _ = await timed(show.agent)
    assert first["messages"][-2].content == "a"
    assert (first_s, second_s, third_s) == (STOCK_S - TAKES_S, STOCK_S, STOCK_S - TAKES_S)
    assert show.verdicts("guess") == ["run", "run", "rate_limited", "rate_limited", "run", "run"]


async def test_a_limited_committed_call_fails_as_in_stock() -> None:
    """A 429 of the model's own call is the agent's affair, whatever was guessed."""
    bodies = Bodies()
    bodies.limits.add("a")
    show = rehearsal(bodies, [A])
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert ours.error == (Limited, "HTTP 429")


async def test_guesses_leave_room_for_calls() -> None:
    """Four calls a minute: committed calls use them up, and are never held back themselves."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        [B],
        turns=[calls(A, A, A, A, A), text("done")],
        tools=[bodies.read("look", calls_per_minute=4)],
    )
    times = [(await timed(show.agent))[0] for _ in range(2)]
    await asyncio.sleep(60)
    await show.run()
    assert times == [STOCK_S, STOCK_S]
    assert show.verdicts("guess") == ["run", "rate_limited", "run"]


# --- warming up


@pytest.mark.parametrize(("gate", "needed"), [(None, 3), (1, 1), (0, 0)])
async def test_a_source_is_scored_before_its_guesses_run(gate: int | None, needed: int) -> None:
    """As often as it asks for, or as the gate says; what is scored is in the report."""
    bodies = Bodies()
    source = Fickle("a", warm_up=3)
    policy = Policy(benefit=BenefitGate(warm_up=gate))
    show = rehearsal(bodies, speculators=[source], policy=policy)
    times = [(await timed(show.agent))[0] for _ in range(5)]
    assert times == [STOCK_S] * needed + [STOCK_S - TAKES_S] * (5 - needed)
    assert show.verdicts("guess") == ["warming_up"] * needed + ["run"] * (5 - needed)
    assert show.verdicts("scored") == ["right"] * 5
    assert show.report.sources["fickle"].precision == 1.0
    assert len(bodies.ran) == 5


# --- what is worth it


async def test_a_dear_tool_runs_early_only_for_a_good_source() -> None:
    """Five cents a call: a source that is often wrong costs nothing, one that is right helps."""
    hits: dict[str, list[int]] = {}
    for name, right in (("poor", {3, 9, 15}), ("good", set(range(20)))):
        bodies, source = Bodies(), Fickle("b", confidence=0.3)
        show = rehearsal(
            bodies,
            speculators=[source],
            tools=[bodies.read("look", cost_usd=0.05)],
        )
        for number in range(20):
            source.q = "a" if number in right else "b"
            seconds, _ = await timed(show.agent)
            if seconds < STOCK_S:
                hits.setdefault(name, []).append(number)
        assert show.report.sources["fickle"].right == len(right)
        assert show.report.wasted == 0
        assert len(bodies.ran) == 20
    assert "poor" not in hits
    assert hits["good"][-10:] == [*range(10, 20)]


async def test_without_a_gate_a_dear_guess_runs() -> None:
    """Who says that every guess is worth it has it so."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        speculators=[Fickle("b", confidence=0.01)],
        tools=[bodies.read("look", cost_usd=5)],
        policy=Policy(benefit=None),
    )
    await show.run()
    assert show.verdicts("guess") == ["run"]
    assert bodies.ran == ["look b", "look a"]


# --- backing off


async def test_a_source_that_is_always_wrong_is_asked_ever_more_seldom() -> None:
    """Probes come at doubled distances, and are only scored."""
    source = Fickle("b")
    policy = Policy(benefit=BenefitGate(patience=5))
    show = rehearsal(Bodies(), turns=[text("done")], speculators=[source], policy=policy)
    asked: list[int] = []
    for number in range(70):
        before = source.asked
        await show.run()
        asked += [number] if source.asked > before else []
    assert asked == [0, 1, 2, 3, 4, 9, 18, 35, 68]
    assert show.verdicts("guess") == ["run"] * 5 + ["backing_off"] * 4
    assert show.report.wasted == 5


async def test_a_source_that_recovers_is_used_again() -> None:
    """After some right guesses that were only scored."""
    source = Fickle("b")
    policy = Policy(benefit=BenefitGate(patience=5))
    show = rehearsal(Bodies(), speculators=[source], policy=policy)
    for _ in range(5):
        await show.run()
    source.q = "a"
    times = [(await timed(show.agent))[0] for _ in range(25)]
    slow = times.count(STOCK_S)
    assert times == [STOCK_S] * slow + [STOCK_S - TAKES_S] * (25 - slow)
    assert 0 < slow < 20
    assert show.report.wasted == 5
    assert show.report.hits == 25 - slow


@pytest.mark.parametrize(("least", "runs"), [(0.0, 30), (0.05, 20), (0.9, 20)])
async def test_a_low_hit_rate_switches_a_source_off_on_that_tool(least: float, runs: int) -> None:
    """After twenty guesses, unless the least rate is none; another source goes on."""
    source, other = Fickle("b"), Fickle("a", name="steady")
    gate = BenefitGate(min_hit_rate=least, usd_per_tool_s=0)
    show = rehearsal(Bodies(), speculators=[source, other], policy=Policy(benefit=gate))
    for _ in range(30):
        await show.run()
    verdicts = [event.verdict for event in show.events("guess") if event.source == "fickle"]
    assert verdicts.count("run") == runs
    assert show.report.hits == 30


async def test_never_slower_than_stock_whatever_a_source_says() -> None:
    """Wrong, dear, limited or refused: the run takes what stock takes, and says the same."""
    bodies = Bodies()
    bodies.limits.add("c")
    wrong = [("look", {"q": q}) for q in "bcdef"]
    show = rehearsal(
        bodies,
        wrong,
        wrong,
        tools=[bodies.read("look", cost_usd=0.01, calls_per_minute=3)],
        policy=Policy(budgets=Budgets(run=Budget(calls=2))),
    )
    stock_s, stock = await timed(show.scene.agent())
    for _ in range(3):
        seconds, ours = await timed(show.agent)
        assert seconds == stock_s == STOCK_S
        assert [m.content for m in ours["messages"]] == [m.content for m in stock["messages"]]
