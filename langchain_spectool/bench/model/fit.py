"""Reads turns from an event log: G, T, g and which calls were guessed right, turn by turn.

In shadow mode every call runs for real and is only compared with the guesses, so that the turns
are those of the agent without speculation. Where it was on, a hit's T is that of its early run.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from langchain_spectool._core.events import Event
from langchain_spectool.bench.model.early_calls import EarlyCalls, early_calls
from langchain_spectool.bench.model.turn_model import Call, Turn
from langchain_spectool.errors import SpectoolError

_FROM_EARLY_RUNS: Final = ("hit", "joined")
_RIGHT: Final = (*_FROM_EARLY_RUNS, "shadow_hit")
_COUNTED: Final = ("run", "shadow", "")
"""Verdicts of guesses that could answer a call, beside those that repeat one; a log that was
made by hand may not say."""
_FEWEST_RUNS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The turns of an event log, as the turn model takes them."""

    turns: tuple[Turn, ...]
    runs: tuple[str, ...]
    """The run of each turn; empty where the log does not say."""
    scored: int
    """Guesses that were compared with the answer of their turn."""
    imputed: int
    """Calls whose seconds are not in the log, and were drawn from those that are."""
    wasted: int
    """Guesses that were wrong."""
    as_on: tuple[Turn, ...] | None
    """The same turns with those guesses alone that would have run, had speculation been on; None
    where the log does not say of all that were right. Of live turns they are the same."""
    early_known: bool
    """Whether the log says of all calls whether they may run early; else some more may not."""

    @property
    def calls(self) -> int:
        """Calls of all turns."""
        return sum(len(turn.calls) for turn in self.turns)

    @property
    def by_run(self) -> bool:
        """Whether the log tells enough runs apart to resample them."""
        return by_run([self])

    @property
    def units(self) -> list[list[Turn]]:
        """What an interval resamples: runs, or turns where fewer than two runs are known."""
        return units_of([self])


def as_if_on(fits: Sequence[Fitted]) -> list[Fitted] | None:
    """Return the fits with the guesses alone that would have run; None where one cannot tell."""
    told = [(fit, fit.as_on) for fit in fits]
    known = [replace(fit, turns=turns) for fit, turns in told if turns is not None]
    return known if len(known) == len(fits) else None


def by_run(fits: Sequence[Fitted]) -> bool:
    """Say whether logs tell enough runs apart to resample them; no run is in two logs."""
    return sum(len({*fit.runs} - {""}) for fit in fits) >= _FEWEST_RUNS


def units_of(fits: Sequence[Fitted]) -> list[list[Turn]]:
    """Return what an interval over several logs resamples; see `Fitted.units`."""
    if not by_run(fits):
        return [[turn] for fit in fits for turn in fit.turns]
    units: dict[object, list[Turn]] = {}
    for log, fit in enumerate(fits):
        for place, (run, turn) in enumerate(zip(fit.runs, fit.turns, strict=True)):
            units.setdefault((log, run or place), []).append(turn)
    return [*units.values()]


def fit_events(events: Iterable[Event], seed: int = 0) -> Fitted:
    """Read the turns that were committed.

    Calls that the log has no time of (they ended elsewhere, or never) are misses; their seconds
    are drawn from the calls that have some.

    Raises:
        SpectoolError: The log lacks what a fit needs; the message says what and how to get it.
    """
    events = [*events]
    early = early_calls(events)
    heard: defaultdict[int, _Heard] = defaultdict(_Heard)
    for event in events:
        heard[event.turn].take(event)
    committed = [turn for turn in heard.values() if turn.generation_s is not None]
    scored = [right for turn in committed for right in turn.scored]
    timed = [seconds for turn in committed for seconds in turn.tools_s()]
    _check(committed, scored, timed)
    dice = Random(seed)  # noqa: S311 - fair draws, no secret
    turns = [turn.as_turn(timed, dice, early) for turn in committed]
    return Fitted(
        turns=tuple(turns),
        runs=tuple(turn.run for turn in committed),
        scored=len(scored),
        imputed=sum(turn.count for turn in committed) - len(timed),
        wasted=scored.count(False),
        as_on=_as_on(committed, turns),
        early_known=early.known,
    )


def _as_on(heard: Sequence["_Heard"], turns: Sequence[Turn]) -> tuple[Turn, ...] | None:
    """Return the turns with the guesses that would have run; None where that is not known."""
    found: list[Turn] = []
    for told, turn in zip(heard, turns, strict=True):
        left = [told.as_on(position, call) for position, call in enumerate(turn.calls)]
        calls = [call for call in left if call is not None]
        if len(calls) < len(left):
            return None
        found.append(replace(turn, calls=tuple(calls)))
    return tuple(found)


def _check(committed: Sequence["_Heard"], scored: Sequence[bool], timed: Sequence[float]) -> None:
    if not committed:
        msg = "the event log holds no turn that was committed: G cannot be fitted"
        raise SpectoolError(msg)
    if not scored:
        msg = (
            "no guess was compared with what the model called: alpha and g cannot be fitted. "
            "Record the log with `Policy(mode='shadow')` and a speculator that guesses"
        )
        raise SpectoolError(msg)
    if not timed:
        msg = (
            "no tool call in the event log has a time: T cannot be fitted. Let the calls go "
            "through the middleware or `tool_node()`, or give --T, --G, --g and --alpha instead"
        )
        raise SpectoolError(msg)


@dataclass(slots=True)
class _Heard:
    """What the log says about one turn."""

    run: str = ""
    number: int = 0
    started_s: float = 0.0
    generation_s: float | None = None
    """None until it was committed."""
    count: int = 0
    guesses: list[Event] = field(default_factory=list[Event])
    right: list[Event] = field(default_factory=list[Event])
    scored: list[bool] = field(default_factory=list[bool])
    claims: dict[int, Event] = field(default_factory=dict[int, Event])
    """The last one of each position: whoever asks again is a retry."""
    ended: dict[int, Event] = field(default_factory=dict[int, Event])

    def take(self, event: Event) -> None:
        match event.kind:
            case "turn_committed" if event.started_s is not None:
                self.started_s, self.count = event.started_s, max(0, event.position or 0)
                self.generation_s = max(0.0, event.at_s - event.started_s)
                self.run, self.number = event.run, event.turn
            case "guess":
                self.guesses.append(event)
            case "scored":
                self.scored.append(event.verdict == "right")
                if event.verdict == "right":
                    self.right.append(event)
            case "claim" if event.position is not None:
                self.claims[event.position] = event
            case "call_ended" if event.position is not None:
                self.ended[event.position] = event
            case _:
                pass

    def tools_s(self) -> list[float]:
        """Return the seconds of the calls that have some."""
        found = (self._tool_s(position) for position in range(self.count))
        return [seconds for seconds in found if seconds is not None]

    def as_turn(self, timed: Sequence[float], dice: Random, early: EarlyCalls) -> Turn:
        calls: list[Call] = []
        for position in range(self.count):
            tool_s = self._tool_s(position)
            guesses_s = () if tool_s is None else self._guesses_s(position)
            drawn_s = dice.choice(timed) if tool_s is None else tool_s
            may = bool(guesses_s) or (self.number, position) not in early.barred
            calls.append(Call(tool_s=drawn_s, guesses_s=guesses_s, may_run_early=may))
        return Turn(generation_s=self.generation_s or 0.0, calls=tuple(calls))

    def as_on(self, position: int, call: Call) -> Call | None:
        """Return the call with the guesses that would have run; None where one cannot tell."""
        claim = self.claims.get(position)
        if not call.guesses_s or claim is None or claim.verdict != "shadow_hit":
            return call
        same = [guess for guess in self.guesses if guess.key_hash == claim.key_hash]
        weighed = [guess for guess in same if guess.weighed]
        if not weighed:
            return None
        runs = [guess.at_s - self.started_s for guess in weighed if guess.weighed == "run"]
        return replace(call, guesses_s=(min(runs),) if runs else ())

    def _tool_s(self, position: int) -> float | None:
        claim, ended = self.claims.get(position), self.ended.get(position)
        if claim is not None and claim.verdict in _FROM_EARLY_RUNS:
            return max(0.0, claim.spent_s)
        return None if ended is None else max(0.0, ended.spent_s)

    def _guesses_s(self, position: int) -> tuple[float, ...]:
        """Return when the right guesses of a call came, from the start of the turn."""
        claim = self.claims.get(position)
        if claim is None or claim.verdict not in _RIGHT:
            return ()
        if claim.started_s is not None:
            return (claim.started_s - self.started_s,)
        same = [right for right in self.right if right.key_hash == claim.key_hash]
        return tuple(at_s for right in same for at_s in self._guessed_s(right))

    def _guessed_s(self, right: Event) -> list[float]:
        """Return when a right guess was made: the first time that its source said this call.

        Where the log does not say which call a guess was, those of the source count that name the
        tool with the same confidence; of several the last one.
        """
        own = [
            guess
            for guess in self.guesses
            if guess.source == right.source and guess.verdict in (*_COUNTED, "duplicate")
        ]
        exact = [guess for guess in own if guess.key_hash and guess.key_hash == right.key_hash]
        if exact:
            return [min(guess.at_s for guess in exact) - self.started_s]
        what = (right.tool, right.confidence)
        made = [
            guess.at_s - self.started_s
            for guess in own
            if not guess.key_hash and (guess.tool, guess.confidence) == what
        ]
        return [max(made)] if made else []
