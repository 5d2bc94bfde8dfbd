"""Whether to ask the engine at all: after failures it is left alone, and tried again later."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Opens after failures in a row; then one try passes after each rest."""

    patience: int = 3
    """Failures in a row, from 1, after which it opens."""
    rest_s: float = 1.0
    """Seconds of the first rest; each further one is twice as long."""
    rest_at_most_s: float = 60.0
    """Seconds of the longest rest, and of the rest of an engine that said it cannot."""
    proven: bool = False
    """Whether the engine has ever answered as it should."""
    _failures: int = 0
    _rest_s: float = 0.0
    _until_s: float | None = None
    """End of the rest; None while it is closed."""

    def resting(self, now_s: float) -> bool:
        """Say whether the engine is left alone now."""
        return self._until_s is not None and now_s < self._until_s

    def passes(self, now_s: float) -> bool:
        """Say whether a request may go out now; of those after a rest, only the first may."""
        if self._until_s is None:
            return True
        if now_s < self._until_s:
            return False
        self._until_s = now_s + self._rest_s
        return True

    def succeeded(self) -> None:
        """The engine answered as it should."""
        self.proven = True
        self._failures, self._rest_s, self._until_s = 0, 0.0, None

    def failed(self, now_s: float) -> None:
        """The engine did not answer in time, or with an error of its own."""
        self._failures += 1
        if self._failures >= self.patience:
            self._rest(now_s, min(2 * self._rest_s or self.rest_s, self.rest_at_most_s))

    def refused(self, now_s: float) -> None:
        """The engine says that it cannot, or may not, do this for us."""
        self._rest(now_s, self.rest_at_most_s)

    def _rest(self, now_s: float, seconds: float) -> None:
        self._rest_s, self._until_s = seconds, now_s + seconds
