"""Counts that forget: each table fades by its own use, so old habits give way to new ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

KEEP = 0.99
"""What a count keeps at each further observation of its table: a memory of some 100."""
_LEAST = 0.02
TOTAL = ""
"""The key of a table's number of observations."""

Tally = dict[str, float]
"""Faded counts of outcomes, and under `TOTAL` of observations."""


def observe(tally: Tally, outcomes: Iterable[str], keep: float = KEEP) -> None:
    """Count one observation that had these outcomes, and fade the earlier ones."""
    for key in tally:
        tally[key] *= keep
    tally[TOTAL] = tally.get(TOTAL, 0.0) + 1
    for outcome in outcomes:
        tally[outcome] = tally.get(outcome, 0.0) + 1
    if len(tally) > 8:  # noqa: PLR2004 - short tables need no tidying
        for key in [key for key, count in tally.items() if count < _LEAST]:
            del tally[key]


Key = TypeVar("Key")
Cell = TypeVar("Cell")


Cells = dict[str, list[float]]
"""Faded hits and tries by name."""


def count(cells: Cells, name: str, hit: bool) -> None:  # noqa: FBT001 - an outcome
    """Count one try, and fade the earlier ones."""
    cell = cells.get(name)
    if cell is None:
        cells[name] = [float(hit), 1.0]
    else:
        cell[0] = cell[0] * KEEP + hit
        cell[1] = cell[1] * KEEP + 1


def rate(cell: Sequence[float] | None, prior: float, strength: float) -> float:
    """Return hits per try, drawn towards `prior` as by `strength` tries."""
    return prior if cell is None else (cell[0] + strength * prior) / (cell[1] + strength)


def fading_out(cells: dict[Key, Cell], limit: int, weight: Callable[[Cell], float]) -> None:
    """Drop the lightest cells until three quarters of `limit` are left."""
    order = sorted(cells, key=lambda key: weight(cells[key]))
    for key in order[: len(order) - limit * 3 // 4]:
        del cells[key]


def share(tally: Mapping[str, float], outcome: str) -> float:
    """Return the share of observations that had `outcome`; 0 of none."""
    total = tally.get(TOTAL, 0.0)
    return tally.get(outcome, 0.0) / total if total else 0.0
