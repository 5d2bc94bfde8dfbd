"""What speculation would save on given turns, with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Final

from langchain_spectool.bench.model.turn_model import Turn
from langchain_spectool.telemetry.bootstrap import Pair, quantile, ratio_draws

_TAIL: Final = 0.025
_FEWEST: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of all turns, and the share of them that is saved."""

    plain_s: float
    speculative_s: float
    least_s: float
    """Had every call that may run early been guessed as its turn began."""
    low: float | None
    """Ends of the 95 % bootstrap interval of `saving`; None for less than two units."""
    high: float | None
    units: int
    """How many turns or runs were resampled."""

    @property
    def saving(self) -> float:
        """Share of the time saved."""
        return 1 - self.speculative_s / self.plain_s if self.plain_s else 0.0

    @property
    def speedup(self) -> float:
        """How many times as fast."""
        return self.plain_s / self.speculative_s if self.speculative_s else 1.0

    @property
    def bound(self) -> float:
        """The speed-up had all calls been guessed at once."""
        return self.plain_s / self.least_s if self.least_s else 1.0


def estimate(
    units: Sequence[Sequence[Turn]],
    *,
    odds: tuple[float, float] | None = None,
    cost_s: float = 0.0,
    seed: int = 0,
) -> Estimate:
    """Add up what the turn model says.

    Args:
        units: What is resampled: turns, one in each unit, or the turns of each run.
        odds: alpha and g, of every call that may run early; hits are then independent of each
            other and of the times. None: the turns' own guesses count.
        cost_s: Seconds that guessing adds to each turn.
        seed: Of the bootstrap.
    """
    sums: list[tuple[float, float]] = []
    for turns in units:
        plain_s = sum(turn.plain_s for turn in turns)
        spent_s = sum(
            turn.speculative_s if odds is None else expected_s(turn, *odds) for turn in turns
        )
        sums.append((plain_s, spent_s + cost_s * len(turns)))
    low, high = _interval([(plain_s - spent_s, plain_s) for plain_s, spent_s in sums], seed)
    return Estimate(
        plain_s=sum(plain_s for plain_s, _ in sums),
        speculative_s=sum(spent_s for _, spent_s in sums),
        least_s=sum(turn.least_s for turns in units for turn in turns),
        low=low,
        high=high,
        units=len(units),
    )


def expected_s(turn: Turn, alpha: float, guess_s: float) -> float:
    """Return the mean seconds of a turn whose early calls are each hit with the chance `alpha`.

    The longest of independent calls ends by `t` if all do.
    """
    generation_s = turn.generation_s
    ends: list[tuple[float, float, float]] = []
    for call in turn.calls:
        miss_s = generation_s + call.tool_s
        hit_s = max(generation_s, guess_s + call.tool_s) if guess_s < generation_s else miss_s
        ends.append((hit_s, miss_s, alpha if call.may_run_early else 0.0))
    mean_s = before = 0.0
    for by_s in sorted({generation_s, *(each for hit, miss, _ in ends for each in (hit, miss))}):
        chance = prod(p * (hit <= by_s) + (1 - p) * (miss <= by_s) for hit, miss, p in ends)
        mean_s += by_s * (chance - before)
        before = chance
    return mean_s


def _interval(pairs: Sequence[Pair], seed: int) -> tuple[float | None, float | None]:
    if len(pairs) < _FEWEST:
        return None, None
    draws = sorted(ratio_draws(pairs, Random(seed)))  # noqa: S311 - fair draws, no secret
    if not draws:
        return None, None
    return quantile(draws, _TAIL), quantile(draws, 1 - _TAIL)
