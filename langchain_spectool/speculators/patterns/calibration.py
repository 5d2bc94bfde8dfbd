"""From the ranker's chances to confidence: how often guesses of that chance came true."""

from collections.abc import Sequence

from langchain_spectool.speculators.patterns.counts import Cells, count, rate

BINS = 10
_STRENGTH = 12.0
_TOOL_STRENGTH = 10.0
_KEEP = 0.98
_MOST = 0.99
_RANGE = (0.33, 2.0)


class Calibration:
    """Faded hits and tries of the ranker's chances by tenths, and of confidence by tool."""

    def __init__(self) -> None:
        """Trust the ranker until told otherwise."""
        self.bins: Cells = {}
        self.tools: dict[str, list[float]] = {}
        """Hits, and the sum of confidences, of each tool's guesses."""
        self._curve: list[float] | None = None

    def learn(self, tool: str, chance: float, hit: bool) -> None:  # noqa: FBT001 - an outcome
        """Take note of whether a guess of this `chance` came true."""
        expected = self._smoothed(chance)
        cell = self.tools.setdefault(tool, [0.0, 0.0])
        cell[0] = cell[0] * _KEEP + hit
        cell[1] = cell[1] * _KEEP + expected
        count(self.bins, str(min(BINS - 1, int(chance * BINS))), hit)
        self._curve = None

    def confidence(self, tool: str, chance: float) -> float:
        """Return the confidence, from 0 to 1, of a guess of this `chance`."""
        hits, expected = self.tools.get(tool, (0.0, 0.0))
        factor = (hits + _TOOL_STRENGTH) / (expected + _TOOL_STRENGTH)
        return min(_MOST, self._smoothed(chance) * min(max(factor, _RANGE[0]), _RANGE[1]))

    def add(self, other: "Calibration") -> None:
        """Add what another counted."""
        for mine, theirs in ((self.bins, other.bins), (self.tools, other.tools)):
            for name, (hits, tries) in theirs.items():
                cell = mine.setdefault(name, [0.0, 0.0])
                cell[0] += hits
                cell[1] += tries
        self._curve = None

    def _smoothed(self, chance: float) -> float:
        """Read the curve between the middles of two bins."""
        if self._curve is None:
            self._curve = _rising([self._rate(index) for index in range(BINS)])
        at = min(max(chance * BINS - 0.5, 0.0), BINS - 1.0)
        low = min(int(at), BINS - 2)
        curve = self._curve
        value = curve[low] + (at - low) * (curve[low + 1] - curve[low])
        return value * chance * BINS * 2 if chance * BINS < 0.5 else value  # noqa: PLR2004 - half a bin

    def _rate(self, index: int) -> float:
        return rate(self.bins.get(str(index)), (index + 0.5) / BINS, _STRENGTH)


def _rising(values: Sequence[float]) -> list[float]:
    """Return the nearest curve that never falls: neighbours that would are averaged."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            before, count_before = blocks.pop()
            mean = (mean * size + before * count_before) / (size + count_before)
            size += count_before
        blocks.append((mean, size))
    return [mean for mean, size in blocks for _ in range(size)]
