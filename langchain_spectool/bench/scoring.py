"""What guesses were worth, in figures: the same for every speculator."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

DEPTHS = (1, 3, 9)
"""How many guesses a turn may take to be right."""
GATES = tuple(tenth / 10 for tenth in range(1, 10))
"""Confidences below which nothing would be run."""
_BINS = 10

Figures: TypeAlias = dict[str, float | int | None]
"""Figures by name; None where there was nothing to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the first guess that was right stood among the guesses of a turn."""

    place: int | None
    """Counted from 0; None if no guess was right."""
    named: bool
    """Whether the first guess named a tool that the turn called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScore:
    """How one assistant turn was guessed."""

    confidences: tuple[float, ...]
    """Of the guesses of read-only calls, in their order."""
    right: bool
    """Whether the first of these is among the turn's calls."""
    read_only: Standing | None
    """Of these guesses; None if the turn has no read-only call."""
    every: Standing | None
    """Of the guesses asked for with every tool allowed; None if the turn has no call."""


def hits(standings: Iterable[Standing | None]) -> Figures:
    """Return the shares of turns that were guessed at each depth, and their number `n`."""
    known = [standing for standing in standings if standing is not None]
    places = [math.inf if each.place is None else each.place for each in known]
    shares: Figures = {
        f"hit@{depth}": _mean([place < depth for place in places]) for depth in DEPTHS
    }
    return {**shares, "name@1": _mean([each.named for each in known]), "n": len(known)}


def gates(turns: Sequence[TurnScore]) -> list[Figures]:
    """Return what passes each gate: share of the turns, precision, and guesses a turn."""
    return [_gate(turns, gate) for gate in GATES]


def _gate(turns: Sequence[TurnScore], gate: float) -> Figures:
    passed = [turn for turn in turns if turn.confidences and turn.confidences[0] >= gate]
    guesses = [sum(value >= gate for value in turn.confidences) for turn in turns]
    return {
        "gate": gate,
        "turns_pct": 100 * len(passed) / len(turns) if turns else None,
        "precision": _mean([turn.right for turn in passed]),
        "guesses_per_turn": _mean(guesses),
    }


def calibration_error(turns: Iterable[TurnScore]) -> float | None:
    """Return the expected calibration error of first guesses, over ten bins of equal width."""
    bins: dict[int, list[TurnScore]] = {}
    for turn in turns:
        if turn.confidences:
            bins.setdefault(min(int(turn.confidences[0] * _BINS), _BINS - 1), []).append(turn)
    count = sum(map(len, bins.values()))
    if not count:
        return None
    gaps = (
        abs(sum(turn.right for turn in each) - sum(turn.confidences[0] for turn in each))
        for each in bins.values()
    )
    return sum(gaps) / count


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest of `values` that at least `share` of them do not exceed."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
