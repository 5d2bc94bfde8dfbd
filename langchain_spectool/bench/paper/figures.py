"""Figures of a comparison, with intervals: bootstrap over agents, paired by seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from langchain_spectool._core.events import Event
from langchain_spectool._core.prices import Price, Prices
from langchain_spectool._core.verdicts import SERVED

RESAMPLES: Final = 2_000
_TAIL: Final = 0.025
PRICES: Final = {
    "main": Price(input_usd_per_million=1.25, output_usd_per_million=10.0),
    "draft": Price(input_usd_per_million=0.05, output_usd_per_million=0.40),
}
"""Assumed prices; what a comparison costs depends on the reader's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def farthest(self) -> float:
        """How far from 0 the interval reaches: it lies within x if this is at most x."""
        return max(abs(self.low), abs(self.high))


def mean_interval(values: Sequence[float]) -> Interval:
    """Resample `values`, one per agent; equally many values meet the same resamples."""
    count = len(values)
    mean = sum(values) / count
    if count == 1:
        return Interval(value=mean, low=mean, high=mean)
    means = sorted(sum(pick(values)) / count for pick in _resamples(count))
    cut = int(RESAMPLES * _TAIL)
    return Interval(value=mean, low=means[cut], high=means[-1 - cut])


@lru_cache(maxsize=4)
def _resamples(count: int) -> list[Any]:
    dice = random.Random(f"resample:{count}")  # noqa: S311 - a fair draw, no secret
    return [itemgetter(*dice.choices(range(count), k=count)) for _ in range(RESAMPLES)]


def saved_percent(plain_s: Sequence[float], ours_s: Sequence[float]) -> list[float]:
    """Return each agent's time saved, in per cent of its plain time."""
    return [100 * (plain - ours) / plain for plain, ours in zip(plain_s, ours_s, strict=True)]


class Ledger:
    """An observer that adds up what the report of a Speculation does not."""

    def __init__(self) -> None:
        """Start at zero."""
        self.clear()

    def clear(self) -> None:
        """Start anew."""
        self.early_runs = self.wasted_calls = 0
        self.wasted_s = 0.0
        self.leads_s: list[float] = []
        self.hits_of_turn: dict[int, int] = {}
        """By turn, how many of its calls were hits."""
        self.calls_of_turn: dict[int, int] = {}
        self.draft_tokens = [0, 0]

    def on_event(self, event: Event) -> None:
        """Add one event."""
        match event.kind:
            case "guess" if event.verdict == "run":
                self.early_runs += 1
            case "claim":
                self._claim(event)
            case "discarded":
                self.wasted_calls += 1
                self.wasted_s += event.spent_s
            case "usage" if event.usage is not None:
                for place, tokens in enumerate(event.usage):
                    self.draft_tokens[place] += tokens
            case _:
                pass

    def _claim(self, event: Event) -> None:
        calls, hits = self.calls_of_turn, self.hits_of_turn
        calls[event.turn] = calls.get(event.turn, 0) + 1
        if event.verdict in SERVED:
            hits[event.turn] = hits.get(event.turn, 0) + 1
            if event.started_s is not None:
                self.leads_s.append(event.at_s - event.waited_s - event.started_s)

    @property
    def hits(self) -> int:
        """Committed calls that an early run answered."""
        return sum(self.hits_of_turn.values())

    @property
    def fully_hit(self) -> int:
        """Turns all of whose calls were hits."""
        return sum(self.hits_of_turn.get(turn) == n for turn, n in self.calls_of_turn.items())


def usd_per_100_turns(main: Sequence[int], draft: Sequence[int], turns: int) -> float:
    """Return the dollars for tokens read and written by the two models, per 100 turns."""
    prices = Prices(PRICES)
    usd = sum(
        prices.cost_usd(name, (tokens[0], tokens[1])) or 0.0
        for name, tokens in (("main", main), ("draft", draft))
    )
    return 100 * usd / turns
