"""Tables of the report, and how their values are written."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | int | float | None
"""A value as it was measured; None where there is none."""

_LONGEST = 80
_LONG_S = 10.0
"""From here on one digit after the point is enough."""
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Categories of characters that are not seen, or turn around what is."""


_NOTHING = "\u2013"
_SPACE = "\u00a0"
"""Holds a number and its unit on one line."""
_NUMBER = re.compile(rf"{_NOTHING}|-?[\d,.]+({_SPACE}(%|s|ms))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one meaning; the first column says what a row is about."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    longest: int = _LONGEST
    """Characters of a cell that are shown."""

    @property
    def written(self) -> list[list[tuple[str, bool]]]:
        """Return the cells as text, and whether each reads as a number."""
        texts = [[self._written(cell) for cell in row] for row in self.rows]
        return [[(text, _NUMBER.fullmatch(text) is not None) for text in row] for row in texts]

    @property
    def numeric(self) -> list[bool]:
        """Return whether each column holds numbers, and nothing else."""
        return [
            all(is_number for _, is_number in cells) for cells in zip(*self.written, strict=True)
        ]

    def _written(self, cell: Cell) -> str:
        match cell:
            case None:
                return _NOTHING
            case int():
                return f"{cell:,}"
            case float():
                return f"{cell:,.3f}".rstrip("0").rstrip(".") if cell else "0"
            case str():
                return shown(cell, self.longest)


def shown(text: str, longest: int = _LONGEST) -> str:
    """Return a foreign text no longer than `longest`, without what the eye cannot see."""
    seen = "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character) in _UNSEEN else character
        for character in text[: longest + 1]
    )
    return seen if len(seen) <= longest else f"{seen[: longest - 1]}…"


def seconds(value: float | None) -> str:
    """Write a time so that three digits of it are seen."""
    if value is None:
        return _NOTHING
    if abs(value) < 1:
        return f"{1000 * value:.0f}{_SPACE}ms"
    return f"{value:.2f}{_SPACE}s" if abs(value) < _LONG_S else f"{value:,.1f}{_SPACE}s"


def per_cent(share: float | None) -> str:
    """Write a share of one."""
    return _NOTHING if share is None else f"{100 * share:.1f}{_SPACE}%"


def interval(low: float, high: float) -> str:
    """Write the ends of an interval, in per cent or points."""
    return f"{low:.1f} to {high:.1f}".replace(" ", _SPACE)


def counted(number: int, what: str) -> str:
    """Write a number of things; their plural has an s."""
    return f"{number:,}{_SPACE}{what}" + ("" if number == 1 else "s")


def ratio(part: float, whole: float) -> float | None:
    """Return a share, or None where there is nothing to have a share of."""
    return part / whole if whole > 0 else None
