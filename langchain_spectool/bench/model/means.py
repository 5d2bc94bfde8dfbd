"""G, T, g and alpha of recorded turns, at their means: what equation (2) is taken at."""

from collections.abc import Sequence
from statistics import fmean

from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.model.turn_model import Turn, first_hit


def hits_s(turns: Sequence[Turn]) -> list[float]:
    """Return when each hit was guessed, from the start of its turn; 0 if that was before it."""
    firsts = [first_hit(turn, call) for turn in turns for call in turn.calls]
    return [max(0.0, first) for first in firsts if first is not None]


def early_share(turns: Sequence[Turn]) -> float:
    """Return the share of the calls that may run early."""
    early = [call.may_run_early for turn in turns for call in turn.calls]
    return fmean(early) if early else 0.0


def hit_share(turns: Sequence[Turn]) -> float:
    """Return alpha: of the calls that may run early, those that were guessed right in time."""
    early = sum(call.may_run_early for turn in turns for call in turn.calls)
    return len(hits_s(turns)) / early if early else 0.0


def hit_s(turns: Sequence[Turn]) -> float:
    """Return g: the mean of `hits_s`; 0 without a hit."""
    found = hits_s(turns)
    return fmean(found) if found else 0.0


def at_the_means(
    turns: Sequence[Turn],
    *,
    alpha: float | None = None,
    guess_s: float | None = None,
    cost_s: float = 0.0,
) -> Client | None:
    """Return equation (2) at the means of the calls; None where one of them is 0.

    Args:
        turns: Those without a call do not count.
        alpha: Of the calls that may run early; None: that of the turns' own hits.
        guess_s: g; None: that of the turns' own hits.
        cost_s: Seconds that guessing adds to each turn.
    """
    times = [(turn.generation_s, call.tool_s) for turn in turns for call in turn.calls]
    means = [fmean(time[part] for time in times) if times else 0.0 for part in (0, 1)]
    if not all(means):
        return None
    return Client(
        generation_s=means[0],
        tool_s=means[1],
        guess_s=hit_s(turns) if guess_s is None else guess_s,
        alpha=(hit_share(turns) if alpha is None else alpha) * early_share(turns),
        cost_s=cost_s,
    )
