"""Plays a run out event by event, without a formula: what the turn model is checked against."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count

from langchain_spectool.bench.model.turn_model import Call, Turn

Place = tuple[int, int]
"""The number of a turn and the position of a call in it."""


def simulate_s(turns: Sequence[Turn], depth: int = 1, cost_s: float = 0.0) -> float:
    """Return the seconds at which the last call of the run has ended.

    Args:
        turns: What the model writes and calls, and which guesses are right when; none of them
            comes from an earlier turn than its own, unless a chain brings it.
        depth: As of `run_s`.
        cost_s: Seconds by which guessing delays each answer of the model.
    """
    return _Agent(turns, depth, cost_s).run()


class _Agent:
    """The model, its tools, the sources of guesses, and one clock."""

    def __init__(self, turns: Sequence[Turn], depth: int, cost_s: float) -> None:
        self._turns = turns
        self._depth = depth
        self._cost_s = cost_s
        self._now_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._turn = -1
        self._writing = False
        self._flying: set[Place] = set()
        self._landed: set[Place] = set()
        self._open: set[Place] = set()
        """Committed calls that have not ended."""

    def run(self) -> float:
        self._next_turn()
        while self._agenda:
            self._now_s, _, happens = heapq.heappop(self._agenda)
            happens()
        return self._now_s if self._turn >= len(self._turns) else float("nan")

    def _in(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self._now_s + seconds, next(self._order), happens))

    def _next_turn(self) -> None:
        self._turn += 1
        if self._turn >= len(self._turns):
            self._agenda.clear()
            return
        turn = self._turns[self._turn]
        self._writing = True
        self._in(turn.generation_s + self._cost_s, self._commit)
        for position, call in enumerate(turn.calls):
            place = (self._turn, position)
            for at_s in call.guesses_s:
                self._in(at_s, lambda place=place: self._guessed(place, self._turn))
        for place in [place for place in self._landed if place[0] >= self._turn]:
            self._follow(place)

    def _guessed(self, place: Place, during: int) -> None:
        call = self._call(place)
        if self._writing and self._turn == during <= place[0] and call.may_run_early:
            self._take_off(place)

    def _take_off(self, place: Place) -> None:
        if place not in self._flying | self._landed:
            self._flying.add(place)
            self._in(self._call(place).tool_s, lambda: self._land(place))

    def _land(self, place: Place) -> None:
        self._flying.discard(place)
        self._landed.add(place)
        if place in self._open:
            self._ended(place)
        elif self._writing:
            self._follow(place)

    def _follow(self, place: Place) -> None:
        """Ask what comes after the call of `place`, if the chain may be one longer."""
        after = place[0] + 1
        if after - self._turn >= self._depth or after >= len(self._turns):
            return
        calls = self._turns[after].calls
        if len(calls) != 1 or len(self._turns[place[0]].calls) != 1 or calls[0].chained_s is None:
            return
        during = self._turn
        self._in(calls[0].chained_s, lambda: self._guessed((after, 0), during))

    def _commit(self) -> None:
        self._writing = False
        calls = self._turns[self._turn].calls
        self._open = {(self._turn, position) for position in range(len(calls))} - self._landed
        if not self._open:
            self._next_turn()
            return
        for place in self._open - self._flying:
            self._in(self._call(place).tool_s, lambda place=place: self._ended(place))

    def _ended(self, place: Place) -> None:
        self._open.discard(place)
        if not self._open and not self._writing:
            self._next_turn()

    def _call(self, place: Place) -> Call:
        return self._turns[place[0]].calls[place[1]]
