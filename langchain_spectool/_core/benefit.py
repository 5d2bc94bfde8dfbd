"""When a guess pays: what a hit spares against what a miss costs."""

import math
from dataclasses import dataclass, fields
from typing import cast


@dataclass(frozen=True, slots=True, kw_only=True)
class BenefitGate:
    """How the worth of a guess is reckoned; the defaults suit tools that cost next to nothing.

    A guess runs when what it can be expected to spare is at least what it can be expected to
    waste: p(hit) x hideable seconds x `usd_per_s`, against (1 - p(hit)) x the price of one run.
    Both sides are learned from what was measured.

    Raises:
        ValueError: A value is outside the range its field states.
    """

    usd_per_s: float = 0.01
    """Dollars, above 0, that one second less of waiting is worth: 36 dollars an hour."""
    usd_per_tool_s: float = 0.001
    """Dollars that one second of wasted tool work costs. At a tenth of `usd_per_s` a fully hidden
    run pays from a chance of 9 in a hundred."""
    free_s: float = 0.05
    """Seconds of tool work per run that are not worth counting."""
    warm_up: int | None = None
    """Guesses per source that are only scored before any runs. None: what the source itself asks
    for, none if it does not say."""
    min_hit_rate: float = 0.05
    """Share of right guesses, from 0 to 1, below which a source rests on that tool: its guesses
    are only scored until about twice the share came true (see `Rest`). Wrong guesses that claimed
    less do not count."""
    patience: int = 20
    """Guesses per source and tool, from 1, before a hit rate counts."""
    adapt_samples: bool = True
    """Whether sources that sample are asked for fewer samples while the last one adds nothing."""

    def __post_init__(self) -> None:
        """Check every field once."""
        for each in fields(self):
            value = cast("object", getattr(self, each.name))
            if not _fits(each.name, value):
                msg = f"`{each.name}` of the benefit gate is out of range: {value!r}"
                raise ValueError(msg)

    def pays(self, odds: float, hideable_s: float, run_usd: float, run_s: float) -> bool:
        """Say whether a guess that comes true with a chance of `odds` is worth one run."""
        wasted_usd = run_usd + max(0.0, run_s - self.free_s) * self.usd_per_tool_s
        return odds * hideable_s * self.usd_per_s >= (1 - odds) * wasted_usd


def _fits(name: str, value: object) -> bool:
    if name == "adapt_samples":
        return isinstance(value, bool)
    if name == "warm_up" and value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    least, most = {
        "usd_per_s": (5e-324, math.inf),
        "min_hit_rate": (0, 1),
        "patience": (1, math.inf),
    }.get(name, (0, math.inf))
    whole = name in ("warm_up", "patience")
    return least <= value <= most and (isinstance(value, int) or not whole)
