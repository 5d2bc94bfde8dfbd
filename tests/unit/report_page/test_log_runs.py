"""Runs of a log: how long they took, and how those that were held out compare."""

from dataclasses import replace

from page_data import closing, of_run, turn

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page.log_runs import run_table
from langchain_spectool.bench.report_page.scorecard import facts_of


def told(count: int, arm: str = "", *, hit: bool = True, first: int = 1) -> list[Event]:
    """Return the events of runs of one turn each."""
    runs = (of_run(turn(n, hit=hit), str(n)) for n in range(first, first + count))
    return [
        replace(event, arm=arm) if event.kind == "run_ended" else event
        for run in runs
        for event in run
    ]


def test_runs_take_from_start_to_end() -> None:
    """A hit of 2.25 s in a run that begins at the guess less 0.25 s and ends 0.5 s later."""
    facts = facts_of([*told(3), *closing(9)])
    assert [run.name for run in facts.runs] == ["1", "2", "3"]
    ((name, count, p50, p95, per_turn, usd),) = run_table(facts.runs).rows
    assert (name, count, usd) == ("all", 3, None)
    assert p50 == p95 == per_turn == "2.75\u00a0s"


def test_the_holdout_is_compared() -> None:
    """0.75 s less in every run, with an interval; too few runs for the 95th percentile."""
    facts = facts_of([*told(25, "treated"), *told(25, "holdout", hit=False, first=101)])
    ours, theirs, difference = run_table(facts.runs).rows
    assert (ours[:3], theirs[:3]) == (
        ["with speculation", 25, "2.75\u00a0s"],
        ["held out", 25, "3.50\u00a0s"],
    )
    assert difference[2:4] == ["-0.75 (-0.75 to -0.75)", "too few runs"]


def test_costs_per_success() -> None:
    """A failed run costs as well: three runs of 2 cents, of which two succeed."""
    events = [
        replace(event, cost_usd=0.02, verdict="failed" if event.run == "1" else "done")
        if event.kind == "run_ended"
        else event
        for event in told(3)
    ]
    assert run_table(facts_of(events).runs).rows[0][-1] == "0.03"


def joined(*arms: str) -> list[Event]:
    """Return the events of one run in which each of several Speculations had a turn."""
    return [
        replace(event, arm=arm, cost_usd=0.01) if event.kind == "run_ended" else event
        for number, arm in enumerate(arms, 1)
        for event in of_run(turn(number), "1")
    ]


def test_two_speculations_in_one_graph_have_one_run() -> None:
    """It lasts from the first one's start to the last one's end, and costs what both say."""
    (run,) = facts_of(joined("treated", "")).runs
    assert [turn.number for turn in run.turns] == [1, 2]
    assert run.took_s == 102.75
    assert run.sample is not None
    assert (run.sample.arm, run.sample.cost_usd) == ("treated", 0.02)


def test_a_run_held_out_by_one_speculation_only_is_in_neither_arm() -> None:
    """It is drawn, and compared with nothing."""
    (run,) = facts_of(joined("treated", "holdout")).runs
    assert run.took_s == 102.75
    assert run.sample is None


def test_a_run_that_goes_on_counts_in_no_time() -> None:
    """Nobody told its end; and the end of a run without a turn is no run."""
    events = [event for event in told(1) if event.kind != "run_ended"]
    facts = facts_of([*events, Event(kind="run_ended", at_s=1.0, run="x", started_s=0.0)])
    assert [run.took_s for run in facts.runs] == [None]
    assert run_table(facts.runs).rows == []
