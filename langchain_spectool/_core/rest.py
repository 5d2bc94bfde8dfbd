"""Switched off by a low hit rate, and tried again now and then."""

from dataclasses import dataclass

FORGETS = 0.05
"""Share of the hit rate that one more guess replaces, once there are twenty."""
PROBE_AFTER = 4
"""Turns a resting source is left out before it is asked again; doubled after every probe, and as
few as at first after one that was right."""
PROBE_AT_MOST = 64


@dataclass(slots=True, kw_only=True)
class Rest:
    """Whether a source, or a source on one tool, is right too seldom to go on.

    It rests once the share of right guesses is below `min_hit_rate`, m, and until that is
    m x (2 - m): twice m where m is small, and never more than can be reached.
    """

    min_hit_rate: float
    patience: int
    guesses: int = 0
    hit_rate: float = 1.0
    """Share of right guesses, older ones fading."""
    resting: bool = False
    _left_out: int = 0
    _probe_after: int = PROBE_AFTER

    def seen(self, *, came_true: bool) -> None:
        """Note a guess whose turn has committed."""
        self.guesses += 1
        self.hit_rate += (came_true - self.hit_rate) * max(FORGETS, 1 / self.guesses)
        if self.resting:
            self.resting = self.hit_rate < self.min_hit_rate * (2 - self.min_hit_rate)
        else:
            self.resting = self.guesses >= self.patience and self.hit_rate < self.min_hit_rate
        if came_true or not self.resting:
            self._left_out, self._probe_after = 0, PROBE_AFTER

    def skips(self) -> bool:
        """Say, once per turn or per guess that might run, whether the source is left out."""
        if not self.resting:
            return False
        self._left_out += 1
        if self._left_out <= self._probe_after:
            return True
        self._left_out, self._probe_after = 0, min(2 * self._probe_after, PROBE_AT_MOST)
        return False
