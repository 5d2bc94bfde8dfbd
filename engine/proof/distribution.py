"""Whether two samples of tokens come from one distribution, and what difference would be seen.

Pure: a random generator is an argument. Distances are total variation, from 0 to 1.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from math import ceil
from random import Random

Shares = Mapping[Hashable, float]
"""Tokens and their shares, which add up to 1."""
Shift = Callable[[Shares, float], Shares]
"""Makes of shares others at about a given distance; nearer ones where that cannot be had."""

NULLS = 1000
TRIALS = 200
MOST_PERCENT = 50
WANTED = 0.8
"""Power with which a difference counts as one that is found."""


def distance(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> float:
    """Return the total variation between two samples."""
    counts, others = Counter(ours), Counter(theirs)
    return apart(
        {token: count / len(ours) for token, count in counts.items()},
        {token: count / len(theirs) for token, count in others.items()},
    )


def apart(ours: Shares, theirs: Shares) -> float:
    """Return the total variation between two distributions."""
    tokens = dict.fromkeys((*ours, *theirs))
    return sum(abs(ours.get(token, 0.0) - theirs.get(token, 0.0)) for token in tokens) / 2


def permuted(
    ours: Sequence[Hashable], theirs: Sequence[Hashable], random: Random, *, times: int
) -> float:
    """Return the permutation test's p value: how often a random split is as far apart.

    Both have to be of the same size.
    """
    pool = [*ours, *theirs]
    masks = dict.fromkeys(pool, 0)
    for index, token in enumerate(pool):
        masks[token] |= 1 << index
    seen = _split(masks, (1 << len(ours)) - 1)
    halves = islice(_halves(len(ours), random), times)
    return (sum(_split(masks, half) >= seen for half in halves) + 1) / (times + 1)


def _split(masks: Mapping[Hashable, int], half: int) -> int:
    """Return how far a half is from the rest, in tokens."""
    return sum(abs(2 * (mask & half).bit_count() - mask.bit_count()) for mask in masks.values())


def _halves(size: int, random: Random) -> Iterator[int]:
    """Yield random halves of twice `size` things, as the bits of numbers."""
    while True:
        half = random.getrandbits(2 * size)
        if half.bit_count() == size:
            yield half


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values corrected by Holm's method, in the order given."""
    corrected, least = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, ps[index] * (len(ps) - rank)))
        corrected[index] = least
    return corrected


def shares(sample: Sequence[Hashable]) -> dict[Hashable, float]:
    """Return the shares of a sample, the largest first."""
    return {token: count / len(sample) for token, count in Counter(sample).most_common()}


def toward(token: Hashable) -> Shift:
    """Return what too ready an acceptance of a drafted token would do."""

    def shift(base: Shares, by: float) -> Shares:
        room = 1 - base.get(token, 0.0)
        weight = min(1.0, by / room) if room else 0.0
        moved = {each: share * (1 - weight) for each, share in base.items()}
        moved[token] = moved.get(token, 0.0) + weight
        return moved

    return shift


def spread(base: Shares, by: float) -> Shares:
    """Take from every second token, the most frequent first, and give to the others."""
    ranked = sorted(base, key=base.__getitem__, reverse=True)
    losers, winners = ranked[::2], ranked[1::2]
    lose, win = (sum(base[token] for token in each) for each in (losers, winners))
    by = min(by, lose) if winners else 0.0
    return {
        **{token: base[token] * (1 - by / lose) for token in losers},
        **{token: base[token] * (1 + by / win) for token in winners},
    }


def power(base: Shares, other: Shares, random: Random, *, size: int, level: float) -> float:
    """Return how often two samples of `size` are told apart at a significance level.

    The permutation test's critical value is that of two samples of the mixture.
    """
    tokens = dict.fromkeys((*base, *other))
    mixture = {each: (base.get(each, 0.0) + other.get(each, 0.0)) / 2 for each in tokens}
    ours, theirs, mixed = (_sampler(each, random, size) for each in (base, other, mixture))
    nulls = sorted(distance(mixed(), mixed()) for _ in range(NULLS))
    # Strictly above all but `level` of them: as cautious as the permutation test.
    critical = nulls[min(NULLS - 1, int(NULLS * (1 - level)))]
    return sum(distance(ours(), theirs()) > critical for _ in range(TRIALS)) / TRIALS


def smallest(
    base: Shares, shift: Shift, random: Random, *, size: int, level: float
) -> float | None:
    """Return the least distance that is found with `WANTED` power; None if none is.

    Rounded up to whole percents, and looked for up to `MOST_PERCENT`.
    """
    percents = range(1, MOST_PERCENT + 1)

    def found(percent: int) -> bool:
        other = shift(base, percent / 100)
        return power(base, other, random, size=size, level=level) >= WANTED

    first = bisect_right(percents, 0, key=found)
    if first == len(percents):
        return None
    return ceil(100 * apart(base, shift(base, percents[first] / 100)) - 1e-9) / 100


def _sampler(base: Shares, random: Random, size: int) -> Callable[[], list[Hashable]]:
    tokens, sums = list(base), list(accumulate(base.values()))
    return lambda: random.choices(tokens, cum_weights=sums, k=size)
