"""Which tools come next: counts after the last events, after the tools used, and by words."""

import math
from collections.abc import Iterable, Mapping, Sequence

from langchain_spectool.speculators.patterns.counts import (
    TOTAL,
    Tally,
    fading_out,
    observe,
)
from langchain_spectool.speculators.patterns.history import History

NONE = "-"
"""The outcome of a turn without calls."""
WORD = "~"
"""What the key of a word's table starts with."""
ORDER = 4
"""Most events that a context holds."""
_WORD_WEIGHT = 3.0
_TOP_WORDS = 3


class Contexts:
    """Faded counts of what each turn called, by what came before it."""

    def __init__(self, limit: int = 8_000) -> None:
        """Keep at most `limit` contexts; the least used go first."""
        self._limit = limit
        self.tallies: dict[str, Tally] = {}

    def learn(self, history: History, tools: Iterable[str], words: Iterable[str]) -> None:
        """Count a turn that called `tools`, after a user who used `words`."""
        outcomes = set(tools) or {NONE}
        keys = [*_chains(history), _used(history), *map(_word, words)]
        for key in keys:
            observe(self.tallies.setdefault(key, {}), outcomes)
        if len(self.tallies) > self._limit:
            fading_out(self.tallies, self._limit, lambda tally: tally[TOTAL])
            for tally in self.tallies.values():
                for key in tally:
                    tally[key] *= 0.5

    def chances(self, history: History, tools: Sequence[str]) -> dict[str, float]:
        """Return each tool's chance to be called this turn, and that of no call at all."""
        outcomes = [*tools, NONE]
        chances = dict.fromkeys(outcomes, 0.5 / max(len(tools), 1))
        chances[NONE] = 0.4
        strength = 2.0
        for key in _chains(history):
            tally = self.tallies.get(key)
            if tally is None:
                break
            _blend(chances, tally, strength)
            strength = 1.0
        return chances

    def by_tools_used(self, history: History, chances: Mapping[str, float]) -> dict[str, float]:
        """Return the chances given which tools were used, in whatever order."""
        blended = dict(chances)
        tally = self.tallies.get(_used(history))
        if tally is not None:
            _blend(blended, tally, 2.0)
        return blended

    def by_words(self, words: Iterable[str], chances: Mapping[str, float]) -> dict[str, float]:
        """Return what the user's words add to the log of each chance: 0 for nothing known."""
        tallies = [tally for tally in map(self.tallies.get, map(_word, words)) if tally]
        votes: dict[str, float] = {}
        for outcome, chance in chances.items():
            base = max(chance, 0.01)
            lifts = sorted(_lift(tally, outcome, base) for tally in tallies)
            votes[outcome] = sum(x for x in lifts[-_TOP_WORDS:] if x > 0) + sum(
                x for x in lifts[:_TOP_WORDS] if x < 0
            )
        return votes


def _lift(tally: Tally, outcome: str, base: float) -> float:
    count = tally.get(outcome, 0.0) + _WORD_WEIGHT * base
    return math.log(count / ((tally[TOTAL] + _WORD_WEIGHT) * base))


def _blend(chances: dict[str, float], tally: Tally, strength: float) -> None:
    strength *= 0.5 + 0.5 * len(tally)
    total = tally[TOTAL] + strength
    for outcome, chance in chances.items():
        chances[outcome] = (tally.get(outcome, 0.0) + strength * chance) / total


def _chains(history: History) -> list[str]:
    """Return the last events, from none to `ORDER` of them."""
    events = history.events
    return [">".join(events[len(events) - size :]) for size in range(min(ORDER, len(events)) + 1)]


def _used(history: History) -> str:
    return f"{{{','.join(sorted(history.tools_called))}}}{history.last_event}"


def _word(word: str) -> str:
    return f"{WORD}{word}"


def names_in(key: str) -> list[str]:
    """Return the events and tools that the key of a context names."""
    if key.startswith("{"):
        tools, _, event = key[1:].partition("}")
        return [*(name for name in tools.split(",") if name), event]
    return [event for event in key.split(">") if event]
