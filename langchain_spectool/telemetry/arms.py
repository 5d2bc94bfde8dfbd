"""Compares runs with speculation to a random holdout without it."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Real
from random import Random
from typing import Final, Literal, get_args

from langchain_spectool.telemetry.bootstrap import (
    Difference,
    Pair,
    quantile,
    quantile_difference,
    ratio,
    ratio_difference,
)

Arm = Literal["treated", "holdout"]
"""Runs that may speculate, and those held out to compare with."""

MIN_RUNS: Final = 20
"""Fewest runs in each arm for an interval around a median, a mean or a cost."""
MIN_RUNS_P95: Final = 60
"""Fewest runs in each arm for an interval around the 95th percentile: with fewer, all of them lie
below the true one more often than once in twenty."""
MIN_SUCCESSES: Final = 10
"""Fewest successful runs in each arm for an interval around the cost per success."""


def held_out(seed: int, run_key: str | int, share: float) -> bool:
    """Say whether a run belongs to the holdout: the same key always falls the same way.

    Args:
        seed: Another seed draws another holdout.
        run_key: What names the run or the thread.
        share: Share of keys held out, from 0 to 1; a larger share keeps those of a smaller one.

    Raises:
        ValueError: `share` is not from 0 to 1.
    """
    if not (isinstance(share, Real) and 0 <= share <= 1):
        msg = f"`share` must be from 0 to 1, got {share!r}"
        raise ValueError(msg)
    text = f"{seed}:{type(run_key).__name__}:{run_key}"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """One finished graph run.

    Raises:
        ValueError: A value is outside the range its field states.
    """

    arm: Arm
    took_s: float
    """Seconds from the run's start to its end."""
    turns: int
    """Turns of the main model."""
    turn_s: tuple[float, ...] = ()
    """Seconds of each turn, generation and tool calls, as far as they were measured."""
    cost_usd: float | None = None
    """What the run cost, speculation included. None: unknown, which is not 0."""
    success: bool | None = None
    """Whether it did its job. None: nobody said."""

    def __post_init__(self) -> None:
        """Check every field once."""
        if self.arm not in get_args(Arm):
            msg = f"`arm` must be one of {', '.join(get_args(Arm))}; got {self.arm!r}"
            raise ValueError(msg)
        if self.turns < len(self.turn_s):
            msg = f"`turns` must be at least the {len(self.turn_s)} measured, got {self.turns!r}"
            raise ValueError(msg)
        amounts = {"took_s": [self.took_s], "turn_s": self.turn_s, "cost_usd": [self.cost_usd]}
        for name, values in amounts.items():
            for value in values:
                if value is not None and not 0 <= value < math.inf:
                    msg = f"`{name}` must be 0 or more and finite, got {value!r}"
                    raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReport:
    """The figures of one arm; None where it has no run that tells."""

    n: int
    """Runs told of."""
    p50_s: float | None
    """Median seconds end to end."""
    p95_s: float | None
    """95th percentile of the seconds end to end."""
    turn_s: float | None
    """Mean seconds per turn."""
    cost_per_success_usd: float | None
    """Dollars of all runs whose cost and outcome are known, over the successes among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both arms and their differences; below 0 speaks for speculation.

    A difference is None where an arm has fewer than `MIN_RUNS` runs that tell (`MIN_RUNS_P95` for
    the 95th percentile; for costs also fewer than `MIN_SUCCESSES` successes).
    """

    treated: ArmReport
    holdout: ArmReport
    p50_s: Difference | None
    p95_s: Difference | None
    turn_s: Difference | None
    cost_per_success_usd: Difference | None

    def __str__(self) -> str:
        """Say it in a few lines."""
        lines = [f"{self.treated.n} treated runs, {self.holdout.n} held out"]
        for name, label in _LABELS.items():
            ours, theirs = getattr(self.treated, name), getattr(self.holdout, name)
            difference = getattr(self, name) or "too few runs for an interval"
            lines.append(f"  {label}: {_short(ours)} against {_short(theirs)}, {difference}")
        return "\n".join(lines)


_LABELS: Final = {
    "p50_s": "p50 end to end, s",
    "p95_s": "p95 end to end, s",
    "turn_s": "per turn, s",
    "cost_per_success_usd": "per success, $",
}


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


class Arms:
    """Keeps a fair sample of the runs of each arm. Any thread may add and compare."""

    def __init__(self, seed: int, most: int = 10_000) -> None:
        """Start empty.

        Args:
            seed: Decides which runs are kept and how they are resampled.
            most: Most runs kept of each arm, from 1; every run is as likely to be kept.

        Raises:
            ValueError: `most` is below 1.
        """
        if most < 1:
            msg = f"`most` must be a whole number of 1 or more, got {most!r}"
            raise ValueError(msg)
        self._seed = seed
        self._most = most
        self._lock = threading.Lock()
        self._told: dict[Arm, int] = dict.fromkeys(get_args(Arm), 0)
        self._kept: dict[Arm, list[RunSample]] = {arm: [] for arm in self._told}
        self._dice = {arm: Random(f"{seed}:{arm}") for arm in self._told}  # noqa: S311 - no secret

    def add(self, sample: RunSample) -> None:
        """Take note of a finished run."""
        with self._lock:
            told, kept = self._told[sample.arm], self._kept[sample.arm]
            self._told[sample.arm] = told + 1
            if told < self._most:
                kept.append(sample)
                return
            place = self._dice[sample.arm].randrange(told + 1)
            if place < self._most:
                kept[place] = sample

    @property
    def runs(self) -> int:
        """How many runs have ended, of both arms."""
        return sum(self._told.values())

    def compare(self) -> Comparison:
        """Compare the arms so far; the same runs in any order give the same figures."""
        with self._lock:
            arms = [(self._told[arm], [*self._kept[arm]]) for arm in get_args(Arm)]
        treated, holdout = (_Figures(told, kept) for told, kept in arms)
        return _compare(treated, holdout, Random(self._seed))  # noqa: S311 - no secret


class _Figures:
    """What one arm's runs say. Sorted, so that the order in which they ended does not count."""

    def __init__(self, n: int, runs: Sequence[RunSample]) -> None:
        self.n = n
        self.took_s = sorted(run.took_s for run in runs)
        self.turn_pairs = sorted(
            (math.fsum(run.turn_s), float(len(run.turn_s))) for run in runs if run.turn_s
        )
        self.cost_pairs = sorted(
            (run.cost_usd, float(run.success))
            for run in runs
            if run.cost_usd is not None and run.success is not None
        )

    def report(self) -> ArmReport:
        """Return the figures themselves."""
        return ArmReport(
            n=self.n,
            p50_s=quantile(self.took_s, 0.5) if self.took_s else None,
            p95_s=quantile(self.took_s, 0.95) if self.took_s else None,
            turn_s=ratio(self.turn_pairs),
            cost_per_success_usd=ratio(self.cost_pairs),
        )


def _compare(treated: _Figures, holdout: _Figures, dice: Random) -> Comparison:
    def quantiles(share: float, fewest: int) -> Difference | None:
        ours, theirs = treated.took_s, holdout.took_s
        enough = min(len(ours), len(theirs)) >= fewest
        return quantile_difference(ours, theirs, share, dice) if enough else None

    def ratios(ours: Sequence[Pair], theirs: Sequence[Pair], least: float) -> Difference | None:
        enough = all(
            len(pairs) >= MIN_RUNS and sum(pair[1] for pair in pairs) >= least
            for pairs in (ours, theirs)
        )
        return ratio_difference(ours, theirs, dice) if enough else None

    return Comparison(
        treated=treated.report(),
        holdout=holdout.report(),
        p50_s=quantiles(0.5, MIN_RUNS),
        p95_s=quantiles(0.95, MIN_RUNS_P95),
        turn_s=ratios(treated.turn_pairs, holdout.turn_pairs, MIN_RUNS),
        cost_per_success_usd=ratios(treated.cost_pairs, holdout.cost_pairs, MIN_SUCCESSES),
    )
