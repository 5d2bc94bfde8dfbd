"""The turns of an event log: when the model wrote, what it called, and what ran early."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from langchain_spectool._core.events import Event
from langchain_spectool._core.verdicts import SERVED


@dataclass(slots=True, kw_only=True)
class LoggedCall:
    """A committed call. Times are seconds on the turn's clock."""

    tool: str = ""
    verdict: str = ""
    """How it was answered; empty where nothing was planned in its turn."""
    began_s: float | None = None
    ended_s: float | None = None
    claimed_s: float | None = None
    key_hash: str = ""
    early: "EarlyRun | None" = None
    """The early run that answered it, or was refused."""
    waited_s: float = 0.0
    hidden_s: float = 0.0

    @property
    def served(self) -> bool:
        """Whether it did not have to run."""
        return self.verdict in SERVED

    @property
    def guessed(self) -> bool:
        """Whether it was guessed to the letter in time, run early or not."""
        return self.served or self.verdict == "shadow_hit"


@dataclass(slots=True, kw_only=True)
class EarlyRun:
    """A run that began before anybody had asked for it."""

    tool: str
    source: str
    began_s: float
    ended_s: float
    wasted: str = ""
    """Why it answered nothing; empty if it did."""


@dataclass(slots=True, kw_only=True)
class LoggedTurn:
    """One answer of the model."""

    number: int
    began_s: float
    run: str = ""
    """Its graph run; empty where the log does not say."""
    answered_s: float | None = None
    """When the answer came; None if the model failed, or the log ends before."""
    ended_s: float | None = None
    """When its last call had ended; None where the log does not say of all of them."""
    asked: int = 0
    """Calls in the answer."""
    hidden_s: float = 0.0
    calls: list[LoggedCall] = field(default_factory=list[LoggedCall])
    """Those the log names: all of them, unless it is of an early version."""
    early: list[EarlyRun] = field(default_factory=list[EarlyRun])
    ranked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Tool and digest of each different guess, the most confident first."""

    @property
    def over_s(self) -> float:
        """When all that is known of it had happened; early runs may go on."""
        calls = [call.ended_s for call in self.calls if call.ended_s is not None]
        known = [self.began_s, self.answered_s, self.ended_s, *calls]
        return max(moment for moment in known if moment is not None)

    @property
    def writing_s(self) -> float | None:
        """Seconds the model took."""
        return None if self.answered_s is None else self.answered_s - self.began_s

    @property
    def calling_s(self) -> float | None:
        """Seconds from the answer to the end of its last call; None where that is not known."""
        if self.answered_s is None or self.ended_s is None:
            return None
        return self.ended_s - self.answered_s


def turns_of(events: Iterable[Event]) -> list[LoggedTurn]:
    """Return the turns of a log in the order in which they come up there."""
    by_number: dict[int, list[Event]] = {}
    for event in events:
        if event.turn > 0:
            by_number.setdefault(event.turn, []).append(event)
    return [_turn(number, told) for number, told in by_number.items()]


def _named(told: Iterable[Event]) -> dict[int, LoggedCall]:
    """Return the calls that the answer names, and nothing else of them."""
    tools = [event.tools for event in told if event.kind == "turn_committed"]
    return {place: LoggedCall(tool=tool) for place, tool in enumerate(tools[-1] if tools else ())}


def _end(turn: LoggedTurn) -> None:
    """Say when the turn was over, where the log has the ends of all its calls."""
    ends = [call.ended_s for call in turn.calls if call.ended_s is not None]
    if turn.answered_s is not None and len(ends) == len(turn.calls) == turn.asked:
        turn.ended_s = max([turn.answered_s, *ends])


def _key(turn: LoggedTurn, told: Iterable[Event]) -> None:
    """Give calls without a plan, whose key nobody said, the right guesses that did not run."""
    known = {(call.tool, call.key_hash) for call in turn.calls}
    right = dict.fromkeys(
        (event.tool, event.key_hash)
        for event in told
        if event.kind == "scored" and event.verdict == "right"
    )
    left = [pair for pair in right if pair not in known]
    for call in turn.calls:
        fitting = [pair for pair in left if not call.key_hash and pair[0] == call.tool]
        if fitting:
            call.key_hash = fitting[0][1]
            left.remove(fitting[0])


def _turn(number: int, told: Sequence[Event]) -> LoggedTurn:
    turn = LoggedTurn(number=number, began_s=_began(told), ranked=_ranked(told))
    calls = _named(told)
    for event in told:
        if event.position is not None and event.kind in ("claim", "call_ended"):
            _add_to_call(calls.setdefault(event.position, LoggedCall(tool=event.tool)), event)
        elif handle := _HANDLERS.get(event.kind):
            handle(turn, event)
    turn.calls = [calls[position] for position in sorted(calls)]
    _end(turn)
    _key(turn, told)
    served = [call.early for call in turn.calls if call.served and call.early is not None]
    turn.early += _different(served)
    return turn


def _began(told: Sequence[Event]) -> float:
    """Return when the model began, or the first that is known of the turn."""
    own = [
        event.started_s
        for event in told
        if event.kind in ("turn_committed", "turn_ended") and event.started_s is not None
    ]
    return min(own or [event.at_s for event in told])


def _committed(turn: LoggedTurn, event: Event) -> None:
    turn.answered_s, turn.asked, turn.run = event.at_s, max(0, event.position or 0), event.run


def _ended(turn: LoggedTurn, event: Event) -> None:
    if event.verdict == "done":
        turn.ended_s, turn.hidden_s = event.at_s, event.hidden_s
    elif event.run:  # the model failed: no answer says whose turn it was
        turn.run = event.run


def _discarded(turn: LoggedTurn, event: Event) -> None:
    if event.started_s is not None and event.spent_s > 0:
        turn.early.append(_early(event, wasted=event.verdict or "discarded"))


_HANDLERS: dict[str, Callable[[LoggedTurn, Event], None]] = {
    "turn_committed": _committed,
    "turn_ended": _ended,
    "discarded": _discarded,
}


def _add_to_call(call: LoggedCall, event: Event) -> None:
    if event.kind == "call_ended":
        call.began_s, call.ended_s = event.started_s, event.at_s
        return
    call.verdict, call.claimed_s, call.key_hash = event.verdict, event.at_s, event.key_hash
    call.waited_s, call.hidden_s = event.waited_s, event.hidden_s
    if event.started_s is not None and event.verdict in SERVED:
        call.early = _early(event)


def _early(event: Event, *, wasted: str = "") -> EarlyRun:
    began_s = event.at_s if event.started_s is None else event.started_s
    return EarlyRun(
        tool=event.tool,
        source=event.source,
        began_s=began_s,
        ended_s=began_s + max(0.0, event.spent_s),
        wasted=wasted,
    )


def _different(runs: Iterable[EarlyRun]) -> list[EarlyRun]:
    """Leave out what answered an earlier call of the turn already."""
    return [*{(run.tool, run.began_s, run.ended_s): run for run in runs}.values()]


def _ranked(told: Iterable[Event]) -> list[tuple[str, str]]:
    scored = [event for event in told if event.kind == "scored" and event.key_hash]
    scored.sort(key=lambda event: -(event.confidence or 0.0))
    return [*dict.fromkeys((event.tool, event.key_hash) for event in scored)]
