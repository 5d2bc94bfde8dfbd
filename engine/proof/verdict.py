"""Judges whether drafts leave the distribution of what is sampled as it is. Pure."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from distribution import distance, holm, permuted, shares, smallest, spread, toward

SIGNIFICANT = 0.05
TIMES = 9999
DEGENERATE = 0.95
"""Share of one token from which on a position says nothing of a distribution."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What one arm sampled."""

    arm: str
    tokens: Sequence[Sequence[Hashable]]
    """For each request, its token at each position."""
    draft: Sequence[Hashable] = ()
    """The token that was drafted at each position."""

    def at(self, position: int) -> Sequence[Hashable]:
        """Return the tokens of all requests at a position."""
        return [each[position] for each in self.tokens]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An arm beside the one without drafts, at one position."""

    arm: str
    position: int
    distance: float
    """Total variation."""
    p: float
    p_holm: float
    """Corrected for all comparisons made together."""

    @property
    def differs(self) -> bool:
        """Whether that is more than chance."""
        return self.p_holm < SIGNIFICANT


@dataclass(frozen=True, kw_only=True)
class Sight:
    """How small a difference a comparison would have found, with a power of 80 percent."""

    arm: str
    position: int
    tokens: int
    """Different ones that the arm without drafts has there."""
    top_share: float
    """That of the most frequent one."""
    draft_share: float
    """That of the drafted one."""
    toward_draft: float | None
    """Total variation, where drafts are accepted too readily."""
    spread: float | None
    """The same, where every second token gives to the others."""

    @property
    def blind(self) -> bool:
        """Whether the position cannot show a difference that matters."""
        return self.top_share >= DEGENERATE or None in (self.toward_draft, self.spread)


def compared(base: Drawn, others: Sequence[Drawn], random: Random) -> list[Comparison]:
    """Compare arms with `base` at each position, by permutation tests of total variation."""
    places = list(_places(base, others))
    ps = [permuted(other.at(at), base.at(at), random, times=TIMES) for other, at in places]
    return [
        Comparison(
            arm=other.arm,
            position=at,
            distance=round(distance(other.at(at), base.at(at)), 4),
            p=round(p, 4),
            p_holm=round(adjusted, 4),
        )
        for (other, at), p, adjusted in zip(places, ps, holm(ps), strict=True)
    ]


def sights(base: Drawn, others: Sequence[Drawn], random: Random) -> list[Sight]:
    """Say of each of those comparisons what it would have found.

    At the level that Holm's method begins with, so none of them finds less.
    """
    places = list(_places(base, others))
    terms = {"size": len(base.tokens), "level": SIGNIFICANT / len(places)}
    spreads = [smallest(shares(base.at(at)), spread, random, **terms) for at in _positions(base)]
    return [
        Sight(
            arm=other.arm,
            position=at,
            tokens=len(there),
            top_share=round(max(there.values()), 4),
            draft_share=round(there.get(other.draft[at], 0.0), 4),
            toward_draft=smallest(there, toward(other.draft[at]), random, **terms),
            spread=spreads[at],
        )
        for other, at in places
        for there in [shares(base.at(at))]
    ]


def _places(base: Drawn, others: Sequence[Drawn]) -> Iterator[tuple[Drawn, int]]:
    return ((other, at) for other in others for at in _positions(base))


def _positions(base: Drawn) -> range:
    return range(len(base.tokens[0]))
