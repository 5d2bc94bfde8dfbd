"""The purse of a turn: what it reserves is settled, whichever way the turn goes."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from langchain_spectool._core.budget import Budget, Budgets, Charge
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.guess import CHAIN, Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.prices import Price, Prices
from langchain_spectool._runtime.shared_economy import (
    USUAL_USAGE,
    ChainLesson,
    Purse,
    SharedEconomy,
    payers_of,
)

PRICES = Prices({"small": Price(input_usd_per_million=1.0, output_usd_per_million=2.0)})
PAID = Contract(cost_usd=0.01)
ROOMY = Budget(calls=1000, usd=1000, tokens=10**6, tool_s=1000)


def shared(**budgets: Budget) -> SharedEconomy:
    """Return an economy with these budgets; if none are given, the process has a roomy one."""
    return SharedEconomy(Policy(budgets=Budgets(**budgets or {"process": ROOMY})), PRICES)


def purse_of(economy: SharedEconomy, *, turn: int = 1, tenant: str | None = None) -> Purse:
    """Return the purse of a turn that began at 10 s."""
    payers = payers_of(economy.budgets, turn=turn, run=7, tenant=tenant)
    return Purse(economy, payers, tenant, 10.0)


def books(economy: SharedEconomy, level: str = "process") -> Sequence[Any]:
    """Return the accounts of a level."""
    return [*economy._economy.ledger._accounts[level].values()]  # type: ignore[index]


def guess(contract: Contract = PAID, **fields: Any) -> Candidate:
    """Return a sure guess at a call of `look`."""
    made: dict[str, Any] = {"tool": "look", "source": "draft", "confidence": 1.0, "key": "a"}
    return Candidate(contract=contract, **{**made, **fields})


def flight(contract: Contract = PAID, started_s: float = 10.0) -> Flight:
    """Return the early run of such a guess."""
    return Flight(
        tool="look",
        source="draft",
        contract=contract,
        key="a",
        scope="main",
        epoch=0,
        started_s=started_s,
        deadline_s=99.0,
    )


# --- who pays


def test_only_levels_with_a_budget_pay() -> None:
    """Without budgets there is nothing to reserve in."""
    assert payers_of(Budgets(), turn=1, run=2, tenant="t") == []
    assert payers_of(Budgets(run=ROOMY, tenant=ROOMY), turn=1, run=2, tenant="t") == [
        ("run", 2),
        ("tenant", "t"),
    ]
    everyone = Budgets(turn=ROOMY, run=ROOMY, tenant=ROOMY, process=ROOMY)
    assert payers_of(everyone, turn=1, run=2, tenant=None) == [
        ("turn", 1),
        ("run", 2),
        ("tenant", None),
        ("process", ""),
    ]


# --- early runs


def test_an_early_run_is_settled_by_what_it_took() -> None:
    """Reserved by the usual time, booked by the measured one, which is learned."""
    economy = shared()
    purse, run = purse_of(economy), flight()
    judged = purse.judge(guess(), 10.0)
    assert judged.reservation is not None
    purse.took_off(run, judged.reservation)
    (account,) = books(economy)
    assert account.reserved == Charge(calls=1, usd=0.01, tool_s=1.0)
    purse.returned(run, 14.0, measured=True)
    assert account.reserved == Charge()
    assert account.spent == Charge(calls=1, usd=0.01, tool_s=4.0)
    assert economy._economy.pace.tool_s("look") == 4.0


def test_a_cancelled_run_costs_its_time_and_teaches_nothing() -> None:
    """Who was stopped does not say how long the tool takes."""
    economy = shared()
    purse, run = purse_of(economy), flight()
    judged = purse.judge(guess(), 10.0)
    assert judged.reservation is not None
    purse.took_off(run, judged.reservation)
    purse.returned(run, 10.5, measured=False)
    assert books(economy)[0].spent.tool_s == 0.5
    assert economy._economy.pace.tool_s("look") == 1.0


def test_a_run_that_comes_back_after_its_turn_is_settled_too() -> None:
    """A thread cannot be stopped: what it costs is booked when it returns, and once."""
    economy = shared()
    purse, run = purse_of(economy), flight()
    judged = purse.judge(guess(), 10.0)
    assert judged.reservation is not None
    purse.took_off(run, judged.reservation)
    purse.close()
    assert books(economy)[0].open == 1
    for _ in range(2):
        purse.returned(run, 12.0, measured=True)
    assert books(economy)[0].spent == Charge(calls=1, usd=0.01, tool_s=2.0)
    assert books(economy)[0].open == 0


def test_a_guess_that_did_not_start_costs_nothing() -> None:
    """All of its reservation is given back."""
    economy = shared(process=Budget(calls=1))
    purse = purse_of(economy)
    for _ in range(3):
        judged, run = purse.judge(guess(), 10.0), flight()
        assert judged.reservation is not None
        purse.took_off(run, judged.reservation)
        purse.grounded(run)
        purse.grounded(run)
    assert books(economy)[0].spent == Charge()
    assert books(economy)[0].open == 0


# --- requests to draft models


def test_a_request_is_settled_by_its_usage() -> None:
    """The first reserves what is usual, the next what the last one used."""
    economy = shared()
    purse = purse_of(economy)
    assert purse.asks("draft", "small", 10.0)
    (account,) = books(economy)
    assert account.reserved.tokens == sum(USUAL_USAGE)
    assert account.reserved.usd == PRICES.cost_usd("small", USUAL_USAGE)
    purse.used("draft", "small", (200, 50))
    assert account.spent == Charge(calls=1, tokens=250, usd=300 / 1e6)
    assert purse.asks("draft", "small", 10.0)
    assert account.reserved == Charge(calls=1, tokens=250, usd=300 / 1e6)
    assert purse.asks("other", "unpriced", 10.0)
    assert account.reserved.tokens == 250 + sum(USUAL_USAGE)


@pytest.mark.parametrize("told", [True, False])
def test_unknown_usage_stays_charged(told: bool) -> None:
    """Whether a source says that it does not know, or says nothing until the turn is over."""
    economy = shared()
    purse = purse_of(economy)
    assert purse.asks("draft", "small", 10.0)
    if told:
        purse.used("draft", "small", None)
    purse.close()
    (account,) = books(economy)
    assert account.spent.tokens == sum(USUAL_USAGE)
    assert account.reserved == Charge()


def test_usage_told_after_the_turn_is_not_booked_twice() -> None:
    """It is charged already; what it was is remembered for the next request."""
    economy = shared()
    purse = purse_of(economy)
    assert purse.asks("draft", "small", 10.0)
    for _ in range(2):
        purse.close()
    purse.used("draft", "small", (10, 1))
    assert books(economy)[0].spent.tokens == sum(USUAL_USAGE)
    assert purse_of(economy, turn=2).asks("draft", "small", 20.0)
    assert books(economy)[0].reserved.tokens == 11


def test_usage_nobody_reserved_for_is_booked() -> None:
    """A source that names no model is not asked for its price, but pays it; unknown is none."""
    economy = shared(process=Budget(tokens=100))
    purse = purse_of(economy)
    purse.used("mine", "mine", (90, 20))
    purse.used("mine", "mine", None)
    assert books(economy)[0].spent.tokens == 110
    assert not purse.asks("draft", "small", 10.0)


def test_over_budget_nobody_is_asked() -> None:
    """And nothing is left reserved."""
    economy = shared(tenant=Budget(tokens=1500))
    purse = purse_of(economy, tenant="a")
    assert [purse.asks("draft", "small", 10.0) for _ in range(2)] == [True, False]
    assert purse_of(economy, tenant="b").asks("draft", "small", 10.0)
    assert sum(account.open for account in books(economy, "tenant")) == 2


def test_after_the_turn_nobody_is_asked() -> None:
    """A chain that lands as the turn ends reserves nothing that would stay reserved."""
    economy = shared()
    purse = purse_of(economy)
    purse.close()
    assert not purse.asks("draft", "small", 10.0)
    assert books(economy) == []


def test_the_account_of_a_turn_goes_with_it() -> None:
    """Those of its run and tenant stay."""
    economy = shared(turn=ROOMY, run=ROOMY, tenant=ROOMY)
    purse = purse_of(economy)
    assert purse.asks("draft", "small", 10.0)
    purse.close()
    assert [len(books(economy, level)) for level in ("turn", "run", "tenant")] == [0, 1, 1]
    economy.forget("run", 7)
    assert books(economy, "run") == []


def test_threads_that_ask_while_the_turn_ends_leave_nothing_reserved() -> None:
    """Whoever comes first: every reservation is settled."""
    economy = shared()
    for turn in range(30):
        purse = purse_of(economy, turn=turn)
        barrier = threading.Barrier(4)

        def ask(purse: Purse = purse, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for _ in range(5):
                if purse.asks("draft", "small", 10.0):
                    purse.used("draft", "small", (1, 1))
                purse.asks("other", "small", 10.0)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        barrier.wait()
        purse.close()
        for thread in threads:
            thread.join()
    assert all(account.reserved == Charge() for account in books(economy))


# --- what was said


def test_what_was_said_is_scored_once() -> None:
    """At the commit; what could answer no call of this turn is not."""
    economy = shared()
    purse = purse_of(economy)
    purse.heard(guess())
    purse.heard(guess(key="b"))
    purse.heard(guess(key=None))
    purse.heard(guess(key="c", parent=flight()))
    scored = purse.committed(["a"], 14.0)
    assert [(said.key, came_true) for said, came_true in scored] == [("a", True), ("b", False)]
    assert purse.committed(["a"], 15.0) == []
    assert economy._economy.pace.turn_s == pytest.approx(4.5)


def test_a_guess_is_judged_by_where_in_the_turn_it_comes() -> None:
    """By the seconds that have passed, and the turns that a chain is ahead."""
    economy = shared()
    economy.turn_took(5.0)
    economy.tool_took("look", 5.0)
    purse, dear = purse_of(economy), Contract(cost_usd=0.03)
    likely, link = {"confidence": 0.5, "source": "x"}, flight()
    assert purse.judge(guess(dear, **likely), 10.0).refusal is None
    assert purse.judge(guess(dear, **likely), 14.5).refusal == "not_worth"
    assert purse.judge(guess(dear, **likely, parent=link), 14.5).refusal is None


def test_switches_and_limits_reach_the_judge() -> None:
    """For the purse's own tenant; by the tool's name; and committed calls use the minute up."""
    economy = shared()
    mine, theirs = (purse_of(economy, tenant=name) for name in ("me", "them"))
    economy.switch(on=False, tool=None, tenant="me")
    refusals = [each.judge(guess(), 10.0).refusal for each in (mine, theirs)]
    assert refusals == ["switched_off", None]
    assert economy.samples("draft", 3, tenant="me") == 0
    economy.switch(on=True, tool=None, tenant="me")
    economy.limited("look", 12.0)
    assert [mine.judge(guess(), now_s).refusal for now_s in (11.0, 12.0)] == ["rate_limited", None]
    once = Contract(calls_per_minute=1)
    economy.called("look", Contract(), 20.0)
    assert mine.judge(guess(once), 20.0).refusal is None
    economy.called("look", once, 90.0)
    assert mine.judge(guess(once), 100.0).refusal == "rate_limited"


# --- chains


@pytest.mark.parametrize(
    ("kind", "told", "guesses"),
    [
        ("claim", "hit", [True]),
        ("claim", "joined", [True]),
        ("discarded", "unclaimed", [False]),
        ("discarded", "broken_link", []),
        ("claim", "mismatch", []),
        ("guess", "run", []),
    ],
)
def test_a_chain_learns_by_how_its_runs_end(kind: Any, told: str, guesses: list[bool]) -> None:
    """A call that was made is right, one that nobody made wrong; a broken link says nothing."""
    economy = shared()
    lesson = ChainLesson(economy)
    for source in (CHAIN, "draft"):
        lesson.on_event(
            Event(kind=kind, at_s=1.0, verdict=told, tool="look", source=source, confidence=0.5)
        )
    odds = economy._economy.odds
    assert odds.guesses(CHAIN, "look") == len(guesses)
    assert odds.hit_rate(CHAIN, "look") == (None if not guesses else float(guesses[0]))
    assert odds.guesses("draft") == 0
