"""How many early runs are in the air, whichever turn they belong to."""

import threading
from collections import Counter

from langchain_spectool._core.claim import InFlight


class Airborne:
    """Counts the early runs of one Speculation that have not returned, abandoned ones too."""

    def __init__(self) -> None:
        """Start at none."""
        self._lock = threading.Lock()
        self._tools: Counter[str] = Counter()

    def take_off(self, tool: str) -> None:
        """Count one more run of `tool`."""
        with self._lock:
            self._tools[tool] += 1

    def land(self, tool: str) -> None:
        """Count one less."""
        with self._lock:
            self._tools[tool] -= 1

    def beside(self, tool: str) -> InFlight:
        """Return the counts a guess for `tool` is judged by."""
        with self._lock:
            return InFlight(process=self._tools.total(), tool=self._tools[tool])
