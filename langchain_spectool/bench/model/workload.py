"""Draws runs for the turn model, where no recorded ones are at hand."""

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from langchain_spectool.bench.model.turn_model import Call, Turn, plain_s, run_s
from langchain_spectool.errors import SpectoolError

RECORDED_SPREAD: Final = math.log(8.9 / 1.7) / (2 * 1.2816)
"""Of the logarithm of G: measured turns of an agent took 1.7/3.8/8.9 s at p10/p50/p90."""
_ALIKE: Final = 0.999_999
"""Likeness from which samples count as the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What runs are drawn from.

    Raises:
        SpectoolError: A value is outside the range its field states.
    """

    generation_s: float
    """Mean of G, log-normal."""
    tool_s: float
    """Mean of T, normal, drawn anew below 0."""
    guess_s: float
    """g of every sample, constant."""
    accuracy: float
    """Chance that a sample guesses a call right, from 0 to 1."""
    generation_spread: float = RECORDED_SPREAD
    """Standard deviation of the logarithm of G; 0 for a constant."""
    tool_spread: float = 0.25
    """Standard deviation of T, as a share of its mean, from 0 to 1."""
    samples: int = 1
    """lambda: samples of each turn."""
    likeness: float = 1.0
    """How alike samples are in what they get right: 1 all the same, 0 independent."""
    calls: int = 1
    """Calls of each turn, guessed independently."""
    closed_at: tuple[float, ...] = ()
    """Where in the stream each call closes, from 0 to 1; empty where nobody listens to it."""
    turns: int = 1
    """Turns with calls in each run."""
    closing: bool = False
    """Whether a turn without calls closes the run."""
    depth: int = 1
    """Calls guessed ahead, as of `Chain`."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, least in (("samples", 1), ("calls", 1), ("turns", 1), ("depth", 1)):
            if getattr(self, name) < least:
                msg = f"{name} must be {least} or more, got {getattr(self, name)!r}"
                raise SpectoolError(msg)
        for name in ("likeness", "tool_spread"):
            if not 0 <= getattr(self, name) <= 1:
                msg = f"{name} must be from 0 to 1, got {getattr(self, name)!r}"
                raise SpectoolError(msg)
        if not 0 <= self.generation_spread <= 3:  # noqa: PLR2004 - said in the message
            msg = f"the spread of G must be from 0 to 3, got {self.generation_spread!r}"
            raise SpectoolError(msg)
        if self.closed_at and len(self.closed_at) != self.calls:
            msg = f"{self.calls} calls close in {self.calls} places, got {self.closed_at!r}"
            raise SpectoolError(msg)
        if not all(0 <= share <= 1 for share in self.closed_at):
            msg = f"calls close at shares of the stream from 0 to 1, got {self.closed_at!r}"
            raise SpectoolError(msg)

    def draw(self, dice: Random) -> list[Turn]:
        """Draw one run."""
        turns = [self._turn(dice) for _ in range(self.turns)]
        return [*turns, Turn(generation_s=self._generation_s(dice))] if self.closing else turns

    def _turn(self, dice: Random) -> Turn:
        generation_s = self._generation_s(dice)
        closed_s = [(share * generation_s,) for share in self.closed_at] or [()] * self.calls
        return Turn(
            generation_s=generation_s, calls=tuple(self._call(at_s, dice) for at_s in closed_s)
        )

    def _call(self, closed_s: tuple[float, ...], dice: Random) -> Call:
        hit = dice.random() < hit_rate(self.accuracy, self.samples, self.likeness)
        chained = dice.random() < self.accuracy
        return Call(
            tool_s=self._tool_s(dice),
            guesses_s=(*((self.guess_s,) if hit else ()), *closed_s),
            chained_s=self.guess_s if chained else None,
        )

    def _generation_s(self, dice: Random) -> float:
        spread = self.generation_spread
        return self.generation_s * math.exp(spread * dice.gauss(0, 1) - spread * spread / 2)

    def _tool_s(self, dice: Random) -> float:
        while (seconds := dice.gauss(self.tool_s, self.tool_spread * self.tool_s)) < 0:
            pass
        return seconds


def hit_rate(accuracy: float, samples: int, likeness: float) -> float:
    """Return alpha: the chance that one of `samples` guesses a call right.

    Calls differ in how easy they are to guess: the chance is Beta distributed over calls, with
    the mean `accuracy` and the correlation `likeness` between two samples of one call.
    """
    if likeness > _ALIKE or not 0 < accuracy < 1:
        return accuracy
    if likeness < 1 - _ALIKE:
        return 1 - (1 - accuracy) ** samples
    total = 1 / likeness - 1
    wrong = total * (1 - accuracy)
    return 1 - math.prod((wrong + drawn) / (total + drawn) for drawn in range(samples))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Mean seconds of the runs of a workload."""

    plain_s: float
    speculative_s: float
    error: float
    """Standard error of `saving`, from the number of draws."""

    @property
    def saving(self) -> float:
        """Share of the time saved."""
        return 1 - self.speculative_s / self.plain_s


def mean_of(workload: Workload, runs: int, seed: int = 0) -> Mean:
    """Draw runs and return their means; the same for the same seed."""
    dice = Random(seed)  # noqa: S311 - fair draws, no secret
    pairs: list[tuple[float, float]] = []
    for _ in range(runs):
        turns = workload.draw(dice)
        pairs.append((plain_s(turns), run_s(turns, workload.depth)))
    plain, speculative = (math.fsum(pair[arm] for pair in pairs) for arm in (0, 1))
    share = speculative / plain
    squares = math.fsum((ours - share * theirs) ** 2 for theirs, ours in pairs)
    return Mean(
        plain_s=plain / runs, speculative_s=speculative / runs, error=math.sqrt(squares) / plain
    )
