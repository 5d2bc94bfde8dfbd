"""How long turns and runs take, turn by turn: the model that holds for real workloads.

It assumes, and `simulate` plays out:

1. The calls of a turn run side by side, and the next turn begins when the last of them has ended.
2. A guess starts its tool at once. Guessing slows down neither the model nor the tools, and a
   wrong guess costs no time.
3. Of several right guesses of a call, samples and sources alike, the first one counts.
4. Guesses end when the model answers: one that comes later is a miss.
5. A call closed in the stream (`EarlyDispatch`) is a right guess at the moment it is closed.
6. A chain goes on from an early run that has landed while the model still writes, over turns of a
   single call, at most `depth` calls ahead; what it starts is there for its turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A committed call."""

    tool_s: float
    """T_i: seconds its tool takes, 0 or more."""
    guesses_s: tuple[float, ...] = ()
    """When each right guess came, in seconds from the start of the turn: a sample's g, or where
    the stream closed the call. A negative one was made in an earlier turn."""
    chained_s: float | None = None
    """Seconds to guess it on the result of the turn before; None if that guess is wrong."""
    may_run_early: bool = True
    """Whether its tool may run early at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of the main model; without calls it closes the run."""

    generation_s: float
    """G: seconds the model writes."""
    calls: tuple[Call, ...] = ()

    @property
    def plain_s(self) -> float:
        """Seconds without speculation: G + max T_i."""
        return self.generation_s + max((call.tool_s for call in self.calls), default=0.0)

    @property
    def speculative_s(self) -> float:
        """Seconds with speculation: max of max(G, g + T_i) for hits and of G + T_i for misses."""
        return self.took_s(first_hit(self, call) for call in self.calls)

    @property
    def least_s(self) -> float:
        """Seconds had all calls that may run early been guessed as the turn began."""
        return self.took_s(0.0 if call.may_run_early else None for call in self.calls)

    def took_s(self, starts_s: Iterable[float | None]) -> float:
        """Return its seconds if the calls' early runs start then; None: only once committed."""
        ends = [
            self.generation_s + call.tool_s if at is None else at + call.tool_s
            for call, at in zip(self.calls, starts_s, strict=True)
        ]
        return max([self.generation_s, *ends])


def first_hit(turn: Turn, call: Call) -> float | None:
    """Return when the first right guess of `call` came; None if it is a miss."""
    in_time = [at for at in call.guesses_s if at < turn.generation_s and call.may_run_early]
    return min(in_time, default=None)


def plain_s(turns: Iterable[Turn]) -> float:
    """Return the seconds of a run without speculation."""
    return sum(turn.plain_s for turn in turns)


def run_s(turns: Sequence[Turn], depth: int = 1) -> float:
    """Return the seconds of a run with speculation.

    Args:
        turns: The turns of the run, in order.
        depth: Calls guessed ahead; the one of the turn itself counts as the first, so 1 is no
            chain.
    """
    now_s = 0.0
    ahead: dict[int, float] = {}
    for place, turn in enumerate(turns):
        starts = [first_hit(turn, call) for call in turn.calls]
        if (waiting_s := ahead.pop(place, None)) is not None:
            own_s = starts[0]
            starts = [waiting_s - now_s if own_s is None else min(own_s, waiting_s - now_s)]
        if len(starts) == 1 and starts[0] is not None:
            _go_on(turns, place, (now_s, now_s + starts[0]), ahead, depth)
        now_s += turn.took_s(starts)
    return now_s


def _go_on(
    turns: Sequence[Turn],
    place: int,
    moments: tuple[float, float],
    ahead: dict[int, float],
    depth: int,
) -> None:
    """Note in `ahead` when the early runs start that are chained to the one of `place`."""
    began_s, started_s = moments
    commits_s = began_s + turns[place].generation_s
    for link in range(place + 1, min(place + depth, len(turns))):
        landed_s = max(began_s, started_s + turns[link - 1].calls[0].tool_s)
        if link not in ahead:
            call = _single(turns[link])
            if call is None or call.chained_s is None or landed_s >= commits_s:
                return
            if landed_s + call.chained_s >= commits_s:
                return
            ahead[link] = landed_s + call.chained_s
        started_s = ahead[link]


def _single(turn: Turn) -> Call | None:
    return turn.calls[0] if len(turn.calls) == 1 and turn.calls[0].may_run_early else None
