"""Figures and their intervals."""

from langchain_spectool._core.events import Event
from langchain_spectool.bench.paper.figures import (
    Ledger,
    mean_interval,
    saved_percent,
    usd_per_100_turns,
)


def test_an_interval_holds_its_mean() -> None:
    """And is nothing but the mean where all agents agree."""
    found = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert found.low < found.value == 2.5 < found.high
    assert mean_interval([3.0] * 5) == mean_interval([3.0])


def test_an_interval_reaches_as_far_as_its_farther_end() -> None:
    """Within x means the whole of it."""
    found = mean_interval([-3.0, 1.0, 1.0, 1.0])
    assert found.farthest == max(-found.low, found.high) > abs(found.value)


def test_equally_many_agents_meet_the_same_resamples() -> None:
    """So that a difference of two arms is paired."""
    first = mean_interval([1.0, 5.0, 2.0])
    second = mean_interval([2.0, 6.0, 3.0])
    assert (second.low - first.low, second.high - first.high) == (1.0, 1.0)


def test_time_saved_is_of_the_plain_time() -> None:
    """By agent."""
    assert saved_percent([10.0, 4.0], [8.0, 5.0]) == [20.0, -25.0]


def claim(turn: int, verdict: str, **more: float) -> Event:
    """Return the event of an answered call."""
    return Event(kind="claim", at_s=5.0, turn=turn, verdict=verdict, **more)  # type: ignore[arg-type]


def test_a_ledger_counts_turns_that_were_hit_throughout() -> None:
    """One miss in a batch is enough for none."""
    ledger = Ledger()
    for event in (claim(1, "hit"), claim(1, "mismatch"), claim(2, "joined"), claim(2, "hit")):
        ledger.on_event(event)
    assert (ledger.hits, ledger.fully_hit, len(ledger.calls_of_turn)) == (3, 1, 2)


def test_a_lead_ends_when_the_call_was_committed() -> None:
    """Not when its result was there."""
    ledger = Ledger()
    ledger.on_event(claim(1, "joined", started_s=1.0, waited_s=3.0))
    assert ledger.leads_s == [1.0]


def test_a_ledger_adds_up_waste_and_tokens_and_can_begin_anew() -> None:
    """Every cell has its own."""
    ledger = Ledger()
    for event in (
        Event(kind="guess", at_s=0, verdict="run"),
        Event(kind="guess", at_s=0, verdict="late"),
        Event(kind="discarded", at_s=1, verdict="unclaimed", spent_s=0.5),
        Event(kind="usage", at_s=1, usage=(100, 7)),
        Event(kind="usage", at_s=1, usage=None),
    ):
        ledger.on_event(event)
    assert (ledger.early_runs, ledger.wasted_calls, ledger.wasted_s) == (1, 1, 0.5)
    assert ledger.draft_tokens == [100, 7]
    ledger.clear()
    assert (ledger.early_runs, ledger.wasted_calls, ledger.draft_tokens) == (0, 0, [0, 0])


def test_costs_are_those_of_both_models() -> None:
    """A million tokens each way, at the assumed prices, over 200 turns."""
    million = (1_000_000, 1_000_000)
    assert usd_per_100_turns(million, (0, 0), 200) == (1.25 + 10) / 2
    assert usd_per_100_turns((0, 0), million, 200) == (0.05 + 0.40) / 2
