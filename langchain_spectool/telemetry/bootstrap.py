"""Percentile bootstrap intervals for the difference of two samples, in plain Python."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import sub
from random import Random
from typing import Final

RESAMPLES: Final = 1_000
_MOST_GROUPS: Final = 500
_TAIL: Final = 0.025

Pair = tuple[float, float]
"""What one run adds to the numerator and to the denominator of a ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Treated less holdout, with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Say it in a few signs."""
        return f"{self.value:+.4g} [{self.low:+.4g}, {self.high:+.4g}]"


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value of `ordered` that at least `share` of its values do not exceed."""
    return ordered[_rank(len(ordered), share) - 1]


def _rank(n: int, share: float) -> int:
    return max(1, math.ceil(n * share - 1e-9))  # 0.95 x 20 is 19, whatever the floats say


def ratio(pairs: Sequence[Pair]) -> float | None:
    """Return the sum of the numerators over that of the denominators; None over nothing."""
    under = math.fsum(pair[1] for pair in pairs)
    return math.fsum(pair[0] for pair in pairs) / under if under else None


def quantile_difference(
    ours: Sequence[float], theirs: Sequence[float], share: float, dice: Random
) -> Difference:
    """Compare the quantiles of two samples, both in order and neither empty."""
    return _difference(
        quantile(ours, share) - quantile(theirs, share),
        quantile_draws(ours, share, dice),
        quantile_draws(theirs, share, dice),
    )


def ratio_difference(ours: Sequence[Pair], theirs: Sequence[Pair], dice: Random) -> Difference:
    """Compare the ratios of two samples, neither of which sums up to a denominator of 0."""
    return _difference(
        (ratio(ours) or 0.0) - (ratio(theirs) or 0.0),
        ratio_draws(ours, dice),
        ratio_draws(theirs, dice),
    )


def quantile_draws(ordered: Sequence[float], share: float, dice: Random) -> list[float]:
    """Draw from the bootstrap distribution of a quantile without resampling.

    A resample of n values picks n uniform places of `ordered`, so its k-th smallest value lies at
    the place of the k-th smallest of n uniform numbers, which is Beta(k, n - k + 1) distributed.
    """
    n = len(ordered)
    k = _rank(n, share)
    places = (int(n * dice.betavariate(k, n - k + 1)) for _ in range(RESAMPLES))
    return [ordered[min(place, n - 1)] for place in places]


def ratio_draws(pairs: Sequence[Pair], dice: Random) -> list[float]:
    """Draw from the bootstrap distribution of a ratio, less the draws without a denominator.

    Above 500 runs, random groups of equal size are resampled in place of single runs: their sums
    spread as much, and the work stays the same however many runs there are.
    """
    groups = _groups(pairs, dice)
    draws = (ratio_of_sums(dice.choices(groups, k=len(groups))) for _ in range(RESAMPLES))
    return [draw for draw in draws if draw is not None]


def ratio_of_sums(pairs: Iterable[Pair]) -> float | None:
    """Do as `ratio`, faster and with a rounding that no interval shows."""
    over, under = map(sum, zip(*pairs, strict=True))
    return over / under if under else None


def _groups(pairs: Sequence[Pair], dice: Random) -> list[Pair]:
    if len(pairs) <= _MOST_GROUPS:
        return [*pairs]
    # Shuffled: what lies evenly spread in an ordered sample would differ too little.
    mixed = dice.sample(pairs, len(pairs))
    slices = (mixed[start::_MOST_GROUPS] for start in range(_MOST_GROUPS))
    return [(sum(p[0] for p in group), sum(p[1] for p in group)) for group in slices]


def _difference(value: float, ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    draws = sorted(map(sub, ours, theirs))
    cut = int(len(draws) * _TAIL)
    return Difference(value=value, low=draws[cut], high=draws[-1 - cut])
