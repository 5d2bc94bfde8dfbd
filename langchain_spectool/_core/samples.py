"""Lambda: how many samples of a source a turn is worth (arXiv 2512.15834, section on lambda)."""

from dataclasses import dataclass

FORGETS = 0.1
"""Share of the marginal hit rate that one more turn replaces."""
ENOUGH = 8
"""Turns at one number of samples before it may change."""
TOO_LITTLE = 0.04
"""Marginal hit rate below which the last sample is not asked for any more."""
PROBE_EVERY = 16
"""Turns below the maximum after which one more sample is tried; doubled when it added nothing, and
as few as at first once one did."""
PROBE_AT_MOST = 256


@dataclass(slots=True)
class SampleCount:
    """How many of a source's samples are asked for, between 1 and its maximum.

    The last sample earns its place by right guesses that no earlier sample made. Starts at the
    maximum; nothing in it is random.
    """

    most: int
    asked: int = 0
    """The current number."""
    marginal: float = 0.0
    """Share of turns, older ones fading, to which only the last sample brought a right guess."""
    turns: int = 0
    """Turns since the number changed."""
    probe_every: int = PROBE_EVERY
    probing: bool = False
    """Whether the last sample is one more than before, and has yet to earn its place."""

    def __post_init__(self) -> None:
        """Start at the maximum."""
        self.asked = self.asked or self.most

    def seen(self, *, last_alone: bool) -> None:
        """Note a turn: whether only the last sample had a call that was committed."""
        self.turns += 1
        weight = max(FORGETS, 1 / self.turns)
        self.marginal += (last_alone - self.marginal) * weight
        if self.turns < ENOUGH:
            return
        if self.asked > 1 and self.marginal < TOO_LITTLE:
            self.probe_every = min(2 * self.probe_every, PROBE_AT_MOST)
            self._ask(self.asked - 1, probing=False)
            return
        if self.probing:
            self.probe_every, self.probing = PROBE_EVERY, False
        if self.asked < self.most and self.turns >= self.probe_every:
            self._ask(self.asked + 1, probing=True)

    def _ask(self, asked: int, *, probing: bool) -> None:
        self.asked, self.probing = asked, probing
        self.turns, self.marginal = 0, 0.0
