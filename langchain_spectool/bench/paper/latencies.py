"""Seconds that are drawn: truncated normals, the same for every arm that asks by the same key."""

import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Final

RELATIVE_SD: Final = 0.25
"""Standard deviation over mean of every time that is drawn."""
TRUNCATED_AT: Final = 1 / RELATIVE_SD
"""Standard deviations from the mean beyond which nothing is drawn: times lie in [0, 2 x mean]."""
SHORT_S: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Mean tool latencies of the paper's short range, in seconds."""
LONG_S: Final = (0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
"""Mean tool latencies of the paper's long range, in seconds; 0 and 0.5 are in the short one."""
LATENCIES_S: Final = SHORT_S + LONG_S

_NORMAL = NormalDist()
_OUTSIDE = _NORMAL.cdf(-TRUNCATED_AT)


def factor(uniform: float) -> float:
    """Turn a uniform number into a draw from a truncated normal of mean 1."""
    inside = _OUTSIDE + uniform * (1 - 2 * _OUTSIDE)
    return 1 + RELATIVE_SD * _NORMAL.inv_cdf(min(max(inside, 1e-12), 1 - 1e-12))


@lru_cache(maxsize=1 << 18)
def factor_of(key: str) -> float:
    """Return the draw that `key` names: times are this, times their mean."""
    return factor(random.Random(key).random())  # noqa: S311 - a fair draw, no secret


def spread(values_s: Sequence[float], count: int) -> tuple[float, ...]:
    """Return `count` of `values_s`, evenly spread, the last one among them."""
    step = len(values_s) / count
    return tuple(values_s[round((place + 1) * step) - 1] for place in range(count))
