"""How long tools and the model's turns take, measured as they go."""

from dataclasses import dataclass

from cachetools import LRUCache

MOST_TOOLS = 1024
"""Most tools whose times are remembered."""
FORGETS = 0.1
"""Share of the mean that one new measurement replaces, once there are ten."""
USUAL_TOOL_S = 1.0
"""Seconds a tool is taken to need before it was measured."""
USUAL_TURN_S = 3.0
"""Seconds a model's turn is taken to need before one was measured: the median of mid-sized
models on tool turns lies between 1.5 and 5.5 s."""
AT_LEAST_LEFT = 0.25
"""Share of the usual turn still expected of one that is already late: most are late at the end."""


@dataclass(slots=True)
class _Mean:
    value: float
    count: int = 0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.value += (seconds - self.value) * max(FORGETS, 1 / self.count)


class Pace:
    """Means that forget: the first measurements count in full, later ones replace old habits."""

    def __init__(self) -> None:
        """Start with what is usual."""
        self._turn = _Mean(USUAL_TURN_S)
        self._tools: LRUCache[str, _Mean] = LRUCache(MOST_TOOLS)

    def turn_took(self, seconds: float) -> None:
        """Note the seconds from a turn's start to the model's answer."""
        self._turn.add(seconds)

    def tool_took(self, tool: str, seconds: float) -> None:
        """Note the seconds one run of `tool` took."""
        mean = self._tools.get(tool)
        if mean is None:
            mean = self._tools[tool] = _Mean(USUAL_TOOL_S)
        mean.add(seconds)

    def tool_s(self, tool: str) -> float:
        """Return the seconds a run of `tool` is expected to take."""
        mean = self._tools.get(tool)
        return USUAL_TOOL_S if mean is None else mean.value

    @property
    def turn_s(self) -> float:
        """The seconds a turn is expected to take."""
        return self._turn.value

    def hideable_s(self, tool: str, elapsed_s: float, turns_ahead: int = 0) -> float:
        """Return the seconds of a run of `tool`, started now, that the model's writing hides.

        `elapsed_s` of the turn have passed; a call of a later turn has all of that turn as well.
        """
        left_s = max(self.turn_s - elapsed_s, AT_LEAST_LEFT * self.turn_s)
        return min(self.tool_s(tool), left_s + turns_ahead * self.turn_s)
