"""Values that do not come from the conversation, and the user's words that speak for them."""

import math
from collections.abc import Iterable, Mapping, Sequence

from langchain_spectool.speculators.patterns.counts import TOTAL, Tally, fading_out, observe
from langchain_spectool.speculators.patterns.schema import ArgSchema
from langchain_spectool.speculators.patterns.values import text_of

_LEAST = 0.015
"""Share of an argument's values that a constant must reach to be thought of."""
_MOST = 32
_LIKELY = 8
_MAX_WORDS = 400
_TOP_WORDS = 3


class Constants:
    """The public values of one argument."""

    __slots__ = ("_common", "named", "tally", "votes")

    def __init__(self) -> None:
        """Know none."""
        self.tally: Tally = {}
        self.votes: dict[str, Tally] = {}
        self.named: set[str] = set()
        """Those that the tool's own schema names."""
        self._common: list[tuple[str, float]] | None = None

    def learn(self, values: Sequence[str], words: Iterable[str]) -> None:
        """Count the public ones among the values of a turn, whose user used `words`."""
        observe(self.tally, values)
        self.refresh()
        if not values:
            return
        for word in words:
            observe(self.votes.setdefault(word, {}), values)
        if len(self.votes) > _MAX_WORDS:
            fading_out(self.votes, _MAX_WORDS, lambda tally: tally[TOTAL])

    def refresh(self) -> None:
        """Drop what was worked out from the counts."""
        self._common = None

    def likely(
        self, schema: ArgSchema | None, words: Sequence[str]
    ) -> list[tuple[str, object, float]]:
        """Return the likeliest constants, those named by the schema included, with chances."""
        named = {text_of(value): value for value in schema.constants} if schema else {}
        base = self._base(named)
        if not base:
            return []
        votes = self._votes(base, words)
        scores = [(chance * math.exp(votes.get(text, 0.0)), text) for text, chance in base]
        scale = min(1.0, sum(chance for _, chance in base)) / sum(score for score, _ in scores)
        scores.sort(key=lambda entry: (-entry[0], entry[1]))
        return [(text, named.get(text, text), score * scale) for score, text in scores[:_LIKELY]]

    def _base(self, named: Mapping[str, object]) -> list[tuple[str, float]]:
        if self._common is None:
            total = self.tally.get(TOTAL, 0.0) + 2
            texts = {**dict.fromkeys(self.tally), **named}
            part = 2 / len(named) if named else 0.0
            base = {
                text: (self.tally.get(text, 0.0) + (part if text in named else 0)) / total
                for text in texts
                if text
            }
            order = sorted(base.items(), key=lambda item: (-item[1], item[0]))
            self._common = [item for item in order[:_MOST] if item[1] >= _LEAST]
        return self._common

    def _votes(self, base: Sequence[tuple[str, float]], words: Sequence[str]) -> dict[str, float]:
        """Return what the user's words add to the log of each constant's chance."""
        chances = dict(base)
        lifts: dict[str, list[float]] = {}
        for word in words:
            tally = self.votes.get(word)
            if tally is None:
                continue
            total = tally[TOTAL] + 1
            for text in tally.keys() & chances.keys():
                chance = chances[text]
                lift = (tally[text] + chance) / (total * chance)
                if lift > 1:
                    lifts.setdefault(text, []).append(math.log(lift))
        return {text: sum(sorted(found)[-_TOP_WORDS:]) for text, found in lifts.items()}
