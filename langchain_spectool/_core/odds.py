"""How much a source's word is worth: stated confidences, corrected by what came true."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_EDGE: Final = 1e-3
"""Shares are kept this far from 0 and 1, where odds have no end."""


@dataclass(slots=True)
class _Record:
    """What one source, with one tool or with all, has said so far; the newest counts most."""

    prior: float
    """What its word alone still weighs, in guesses."""
    weight: float = 0.0
    hits: float = 0.0
    stated: float = 0.0
    guesses: int = 0

    def add(self, stated: float, hit: float, keep: float) -> None:
        self.prior *= keep
        self.weight = self.weight * keep + 1.0
        self.hits = self.hits * keep + hit
        self.stated = self.stated * keep + stated
        self.guesses += 1

    def corrected(self, stated: float, expected: float) -> float:
        """Correct `stated`, of which `expected` is thought before this record is looked at.

        Who states c on average and is right r of the time has the odds of every statement
        multiplied by odds(r) / odds(c). This rises with `stated` whatever was seen: the prior
        adds as much to c as it does to r.
        """
        mass = self.prior + self.weight
        right = _inside((self.prior * expected + self.hits) / mass)
        claimed = _inside((self.prior * stated + self.stated) / mass)
        true = stated * right * (1.0 - claimed)
        return true / (true + (1.0 - stated) * (1.0 - right) * claimed)


class Odds:
    """Learns online what share of the guesses of a (source, tool) came true.

    A source is taken at its word at first, a tool that is new to a source like its others. The
    caller locks.

    Args:
        prior: How many guesses a source's own word weighs; more than 0. It fades as they are seen.
        half_life: Guesses of a (source, tool) after which one counts half; more than 0.
        most: Most records kept; those not seen for longest go first. Each pair has one, and each
            source.

    Raises:
        ValueError: A value is outside the range above.
    """

    def __init__(self, *, prior: float = 4.0, half_life: float = 50.0, most: int = 1024) -> None:
        """Start with every source at its word."""
        for name, value in (("prior", prior), ("half_life", half_life), ("most", most)):
            if not value > 0:
                msg = f"`{name}` must be more than 0, got {value!r}"
                raise ValueError(msg)
        self._prior = prior
        self._keep = 0.5 ** (1.0 / half_life)
        self._most = most
        self._records: OrderedDict[tuple[str, str | None], _Record] = OrderedDict()

    def estimate(self, source: str, tool: str, stated: float) -> float:
        """Return the chance, from 0 to 1, that a guess stated at `stated` comes true."""
        records = self._records
        whole = records.get((source, None))
        if whole is None:
            return stated
        inside = _inside(stated)
        expected = whole.corrected(inside, inside)
        own = records.get((source, tool))
        return expected if own is None else own.corrected(inside, expected)

    def seen(self, source: str, tool: str, stated: float, came_true: bool) -> None:  # noqa: FBT001 - what happened
        """Take note of what became of a guess."""
        inside, hit = _inside(stated), float(came_true)
        for key in ((source, tool), (source, None)):
            record = self._records.get(key)
            if record is None:
                record = self._records[key] = _Record(self._prior)
            else:
                self._records.move_to_end(key)
            record.add(inside, hit, self._keep)
        while len(self._records) > self._most:
            self._records.popitem(last=False)

    def guesses(self, source: str, tool: str | None = None) -> int:
        """Return how many guesses were seen of a tool, or of all tools of a source."""
        record = self._records.get((source, tool))
        return 0 if record is None else record.guesses

    def hit_rate(self, source: str, tool: str | None = None) -> float | None:
        """Return the share that came true, the newest counting most; None if none was seen."""
        record = self._records.get((source, tool))
        return None if record is None else record.hits / record.weight


def _inside(share: float) -> float:
    return min(max(share, _EDGE), 1.0 - _EDGE)
