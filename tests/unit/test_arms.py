"""The holdout comparison: its draws, its intervals, and what it keeps."""

import math
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool.telemetry.arms import (
    MIN_RUNS,
    MIN_RUNS_P95,
    MIN_SUCCESSES,
    Arm,
    Arms,
    Comparison,
    RunSample,
    held_out,
)
from langchain_spectool.telemetry.bootstrap import (
    RESAMPLES,
    quantile,
    quantile_draws,
    ratio,
    ratio_difference,
    ratio_draws,
)

ARMS: tuple[Arm, Arm] = ("treated", "holdout")
FIGURES = ("p50_s", "p95_s", "turn_s", "cost_per_success_usd")


def _dice(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - no secret


def _run(arm: Arm, took_s: float, **more: Any) -> RunSample:
    return RunSample(arm=arm, took_s=took_s, turns=1, **{"turn_s": (took_s,), **more})


def _drawn(arm: Arm, dice: Random, *, slower: float = 1.0) -> RunSample:
    """Return a run of a known distribution: its medians, means and costs scale with `slower`."""
    turn_s = tuple(slower * dice.expovariate(1) for _ in range(dice.randint(1, 5)))
    return RunSample(
        arm=arm,
        took_s=slower * dice.expovariate(1),
        turns=len(turn_s),
        turn_s=turn_s,
        cost_usd=slower * dice.uniform(0, 2),
        success=dice.random() < 0.5,
    )


def _filled(seed: int, runs: int, slower: float = 1.0, **options: Any) -> Arms:
    dice = _dice(seed)
    arms = Arms(seed, **options)
    for _ in range(runs):
        arms.add(_drawn("treated", dice))
        arms.add(_drawn("holdout", dice, slower=slower))
    return arms


# --- the draws


@pytest.mark.parametrize(("n", "share"), [(5, 0.5), (8, 0.5), (40, 0.95), (20, 0.95), (3, 0.95)])
def test_quantile_draws_are_those_of_resampling(n: int, share: float) -> None:
    """Drawing the place of an order statistic gives the distribution that resampling gives."""
    values = [float(value) for value in range(n)]
    dice = _dice(1)
    brute = Counter(quantile(sorted(dice.choices(values, k=n)), share) for _ in range(20_000))
    ours = Counter(draw for _ in range(20) for draw in quantile_draws(values, share, dice))
    for value in values:
        assert ours[value] / 20_000 == pytest.approx(brute[value] / 20_000, abs=0.015)


def test_grouped_draws_spread_as_single_ones() -> None:
    """Resampling groups of many runs spreads as the theory of a mean says."""
    dice = _dice(2)
    pairs = sorted((dice.expovariate(1), 1.0) for _ in range(5_000))
    draws = ratio_draws(pairs, dice)
    mean = ratio(pairs)
    assert mean is not None
    variance = sum((draw - mean) ** 2 for draw in draws) / len(draws)
    assert math.sqrt(5_000 * variance) == pytest.approx(1.0, rel=0.15)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantile_is_the_least_that_enough_values_do_not_exceed(
    values: list[float], share: float
) -> None:
    """At least `share` of the values do not exceed it, and fewer do not exceed any lesser one."""
    found = quantile(sorted(values), share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < max(share * len(values), 1)


def test_ratio_of_nothing_is_unknown() -> None:
    """Costs without a success have no cost per success."""
    assert ratio([]) is None
    assert ratio([(3.0, 0.0)]) is None
    assert ratio([(3.0, 0.0), (1.0, 2.0)]) == 2


def test_draws_without_a_denominator_are_left_out() -> None:
    """A resample in which no run succeeded says nothing about the cost of a success."""
    pairs = [(1.0, 0.0), (1.0, 1.0)]
    draws = ratio_draws(pairs, _dice(3))
    assert 0 < len(draws) < RESAMPLES
    assert set(draws) == {1.0, 2.0}
    assert ratio_difference(pairs, pairs, _dice(3)).value == 0


# --- the intervals


@cache
def _simulated(slower: float) -> list[Comparison]:
    return [_filled(seed, MIN_RUNS_P95, slower).compare() for seed in range(100)]


@pytest.mark.parametrize("slower", [1.0, 1.5])
@pytest.mark.parametrize(
    ("figure", "figure_of_one"),
    [
        ("p50_s", math.log(2)),
        ("p95_s", math.log(20)),
        ("turn_s", 1.0),
        ("cost_per_success_usd", 2.0),
    ],
)
def test_intervals_hold_the_truth_about_95_times_in_100(
    figure: str, figure_of_one: float, slower: float
) -> None:
    """Over simulated comparisons with a known difference, none included, about 95 % hold it."""
    truth = figure_of_one * (1 - slower)
    differences = [getattr(comparison, figure) for comparison in _simulated(slower)]
    assert 88 <= sum(each.low <= truth <= each.high for each in differences) <= 99


def test_a_clear_difference_is_told_from_none() -> None:
    """Enough runs with half the time and half the cost leave no doubt."""
    comparison = _filled(7, 600, slower=2.0).compare()
    for figure in FIGURES:
        assert getattr(comparison, figure).high < 0
        assert getattr(comparison.treated, figure) < getattr(comparison.holdout, figure)


def test_time_per_turn_resamples_runs() -> None:
    """Turns of one run are alike: many turns in few runs must not narrow the interval."""
    dice = _dice(5)
    many, few = Arms(1), Arms(1)
    for _ in range(MIN_RUNS):
        for arm in ARMS:
            turn_s = dice.expovariate(1)
            few.add(_run(arm, 1.0, turn_s=(turn_s,)))
            many.add(RunSample(arm=arm, took_s=1.0, turns=50, turn_s=(turn_s,) * 50))
    one, fifty = few.compare().turn_s, many.compare().turn_s
    assert one is not None
    assert fifty is not None
    assert fifty.high - fifty.low == pytest.approx(one.high - one.low)


# --- too few runs


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        (0, set[str]()),
        (MIN_RUNS - 1, set[str]()),
        (MIN_RUNS, {"p50_s", "turn_s", "cost_per_success_usd"}),
        (MIN_RUNS_P95 - 1, {"p50_s", "turn_s", "cost_per_success_usd"}),
        (MIN_RUNS_P95, set(FIGURES)),
    ],
)
@pytest.mark.parametrize("small", ARMS)
def test_too_few_runs_in_either_arm_give_no_interval(
    runs: int, known: set[str], small: Arm
) -> None:
    """Below its minimum in one arm a difference is None; the arm's own figures stay."""
    arms = Arms(1)
    for arm in ARMS:
        for _ in range(runs if arm == small else 200):
            arms.add(_run(arm, 2.0, cost_usd=3.0, success=True))
    comparison = arms.compare()
    assert {figure for figure in FIGURES if getattr(comparison, figure) is not None} == known
    figures = getattr(comparison, small)
    assert figures.n == runs
    assert [getattr(figures, name) for name in FIGURES] == ([2, 2, 2, 3] if runs else [None] * 4)


@pytest.mark.parametrize("successes", [0, MIN_SUCCESSES - 1, MIN_SUCCESSES])
def test_cost_per_success_needs_successes(successes: int) -> None:
    """Failed runs are paid for by the successful ones, of which there must be enough."""
    arms = Arms(1)
    for arm in ARMS:
        for number in range(40):
            arms.add(_run(arm, 1.0, cost_usd=1.0, success=number < successes))
    comparison = arms.compare()
    assert (comparison.cost_per_success_usd is not None) == (successes >= MIN_SUCCESSES)
    expected = 40 / successes if successes else None
    assert comparison.treated.cost_per_success_usd == expected


def test_unknown_costs_and_outcomes_do_not_count() -> None:
    """A run whose cost or outcome nobody knows is neither free nor a failure."""
    arms = Arms(1)
    for more in ({"cost_usd": 4.0}, {"success": True}, {"cost_usd": 1.0, "success": True}):
        arms.add(_run("treated", 1.0, **more))
    assert arms.compare().treated.cost_per_success_usd == 1


def test_comparison_reads_as_text() -> None:
    """Both the intervals and the lack of one are said in words."""
    assert str(Arms(1).compare()).splitlines() == [
        "0 treated runs, 0 held out",
        "  p50 end to end, s: unknown against unknown, too few runs for an interval",
        "  p95 end to end, s: unknown against unknown, too few runs for an interval",
        "  per turn, s: unknown against unknown, too few runs for an interval",
        "  per success, $: unknown against unknown, too few runs for an interval",
    ]
    arms = Arms(1)
    for _ in range(MIN_RUNS):
        arms.add(_run("treated", 2.0))
        arms.add(_run("holdout", 3.0))
    lines = str(arms.compare()).splitlines()
    assert lines[1] == "  p50 end to end, s: 2 against 3, -1 [-1, -1]"


# --- what is kept


def test_same_seed_same_figures_in_any_order() -> None:
    """Neither asking twice nor the order in which runs ended changes anything."""
    dice = _dice(11)
    runs = [_drawn(arm, dice) for arm in ARMS for _ in range(100)]
    first, second = Arms(4), Arms(4)
    for run in runs:
        first.add(run)
    for run in reversed(runs):
        second.add(run)
    assert first.compare() == first.compare() == second.compare()
    assert _filled(3, 200, most=50).compare() == _filled(3, 200, most=50).compare()
    assert _filled(3, 200, most=50).compare() != _filled(4, 200, most=50).compare()


def test_every_run_is_as_likely_to_be_kept() -> None:
    """The sample is bounded, and early and late runs have the same chance to be in it."""
    kept = Counter[float]()
    for seed in range(400):
        arms = Arms(seed, most=10)
        for number in range(40):
            arms.add(_run("treated", float(number)))
        runs = arms._kept["treated"]
        assert len(runs) == 10
        assert arms.compare().treated.n == 40
        kept.update(run.took_s for run in runs)
    assert sum(kept.values()) == 4_000
    assert all(60 <= kept[float(number)] <= 140 for number in range(40))


def test_threads_may_add_at_once() -> None:
    """No run is lost when many threads add and one compares."""
    arms = Arms(1, most=100)
    start = threading.Barrier(5)

    def add(arm: Arm) -> None:
        start.wait()
        for _ in range(500):
            arms.add(_run(arm, 1.0))

    threads = [threading.Thread(target=add, args=(arm,)) for arm in (*ARMS, *ARMS)]
    for thread in threads:
        thread.start()
    start.wait()
    arms.compare()
    for thread in threads:
        thread.join()
    comparison = arms.compare()
    assert (comparison.treated.n, comparison.holdout.n) == (1_000, 1_000)
    assert [len(runs) for runs in arms._kept.values()] == [100, 100]


# --- bad values


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"arm": "control"}, "arm"),
        ({"took_s": -1.0}, "took_s"),
        ({"took_s": math.nan}, "took_s"),
        ({"took_s": math.inf}, "took_s"),
        ({"turns": 1}, "turns"),
        ({"turn_s": (1.0, -1.0)}, "turn_s"),
        ({"cost_usd": math.nan}, "cost_usd"),
    ],
)
def test_bad_run_is_refused(fields: dict[str, Any], name: str) -> None:
    """The error names the field: one bad number would spoil a mean for good."""
    good: dict[str, Any] = {"arm": "treated", "took_s": 1.0, "turns": 2, "turn_s": (1.0, 2.0)}
    with pytest.raises(ValueError, match=f"`{name}`"):
        RunSample(**{**good, **fields})


def test_a_store_keeps_at_least_one_run() -> None:
    """A bound of 0 is a mistake."""
    with pytest.raises(ValueError, match="`most`"):
        Arms(1, most=0)


# --- who is held out


@given(st.integers(), st.text() | st.integers(), st.floats(0, 1), st.floats(0, 1))
def test_a_key_always_falls_the_same_way(
    seed: int, key: str | int, share: float, other: float
) -> None:
    """The same key falls the same way, and a larger share holds out whom a smaller one does."""
    low, high = sorted((share, other))
    assert held_out(seed, key, low) == held_out(seed, key, low)
    assert held_out(seed, key, low) <= held_out(seed, key, high)
    assert not held_out(seed, key, 0)
    assert held_out(seed, key, 1)


@pytest.mark.parametrize("key", [str, int], ids=["text", "number"])
def test_the_share_is_kept(key: Callable[[int], str | int]) -> None:
    """Of many keys about the share falls into the holdout, and each seed draws others."""
    first = {number for number in range(10_000) if held_out(1, key(number), 0.1)}
    second = {number for number in range(10_000) if held_out(2, key(number), 0.1)}
    assert 900 <= len(first) <= 1_100
    assert 900 <= len(second) <= 1_100
    assert 50 <= len(first & second) <= 150


def test_a_number_is_not_its_text() -> None:
    """1 and "1" are keys of their own, and no text is too odd to be one."""
    assert any(held_out(1, n, 0.5) != held_out(1, str(n), 0.5) for n in range(50))
    assert held_out(1, "\ud83d", 1)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, None, "0.5"])
def test_bad_share_is_refused(share: Any) -> None:
    """A share is from 0 to 1."""
    with pytest.raises(ValueError, match="`share`"):
        held_out(1, "run", share)
