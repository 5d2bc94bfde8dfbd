"""The claim: a committed call's body asks for its flight, on the values it has received.

The rules are written once, as a generator that says what it needs done (wait, look, run the
body); `answer` goes through it by blocking, `aanswer` by awaiting.
"""

import contextlib
import copy
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_spectool._core.claim import Claim
from langchain_spectool._core.events import Event, digest
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.run import shared_under
from langchain_spectool._core.turn import Booking, Turn
from langchain_spectool._core.verdicts import SERVED, ClaimVerdict
from langchain_spectool._runtime.landing import Landing
from langchain_spectool._runtime.meter import Meter
from langchain_spectool._runtime.runs import Aloft, Run
from langchain_spectool._runtime.steps import (
    Body,
    Look,
    Raised,
    Step,
    Steps,
    Wait,
    aperform,
    perform,
)

_IMMUTABLE = (str, bytes, int, float, bool, type(None))


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The values a committed body was called with."""

    key: str | None
    """Their exact key; None if they cannot be encoded."""
    values: Mapping[str, Any]
    repeatable: Callable[[object], bool] = _always
    """Whether a value the body has now returned may answer equal calls as well."""
    holds: object = None
    """Whatever `key` knows by its identity alone."""


class BookedCall:
    """A committed call of a plan, from the moment it starts to its end."""

    def __init__(
        self,
        run: Run,
        turn: Turn,
        booking: Booking,
        emit: Callable[[Event], None],
        meter: Meter | None = None,
    ) -> None:
        """Speak for `booking` of `turn` in `run`; `meter` counts what its own body costs."""
        self.run = run
        self.turn = turn
        self.booking = booking
        self.clock = run.clock
        self._emit = emit
        self._meter = meter

    # --- the call around the body

    def begin(self) -> bool:
        """Note that the committed call starts; return whether a flight may answer it."""
        booking = self.booking
        booking.began_s = self.clock()
        if booking.flight is None and shared_under(self.turn, booking) is None:
            self.claimed(booking.verdict)
            return False
        return True

    def end(self) -> None:
        """Note that it ended, whatever its outcome."""
        now_s, booking = self.clock(), self.booking
        with self.run.lock:
            was_over = self.turn.over
            self.run.act(self.run.machine.ended(self.turn, booking, now_s))
            over = self.turn.over and not was_over
        began_s = now_s if booking.began_s is None else booking.began_s
        self.event("call_ended", "", started_s=began_s, spent_s=now_s - began_s)
        if booking.flight is None and self._meter is not None:
            self._meter.took(booking.body_s or now_s - began_s)
        if over:
            self._turn_ended(now_s)

    def _turn_ended(self, now_s: float) -> None:
        committed_s = self.turn.committed_s
        self._emit(
            Event(
                kind="turn_ended",
                at_s=now_s,
                turn=self.turn.number,
                verdict="done",
                started_s=self.turn.started_s,
                spent_s=0.0 if committed_s is None else now_s - committed_s,
                hidden_s=self.turn.saved_s(),
            )
        )

    # --- the body

    def answer(self, received: Received, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - the tool's value
        """Return the flight's value or the body's own, blocking."""
        return perform(_Claiming(self, received).steps(), body)

    async def aanswer(self, received: Received, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the tool's value
        """Return the flight's value or the body's own, awaiting."""
        return await aperform(_Claiming(self, received).steps(), body)

    # --- events

    def claimed(self, verdict: ClaimVerdict, flight: Flight | None = None, **times: float) -> None:
        """Emit how the call was answered; unless it was served, its own body runs now."""
        if self._meter is not None and verdict not in SERVED:
            self._meter.ran()
        key = self.booking.call.key if flight is None else flight.key
        source = "" if flight is None else flight.source
        started_s = None if flight is None else flight.started_s
        self.event(
            "claim",
            verdict,
            source=source,
            confidence=None if flight is None else flight.confidence,
            started_s=started_s,
            key_hash=digest(key),
            **times,
        )

    def event(self, kind: Any, verdict: str, **more: Any) -> None:  # noqa: ANN401 - fields of Event
        """Emit an event about this call."""
        call = self.booking.call
        self._emit(
            Event(
                kind=kind,
                at_s=self.clock(),
                turn=self.turn.number,
                verdict=verdict,
                tool=call.named,
                position=call.position,
                **more,
            )
        )


class _Claiming:
    """One time that a call's body asks; a retry asks anew."""

    def __init__(self, call: BookedCall, received: Received) -> None:
        self._call = call
        self._received = received
        self._run = call.run
        self._clock = call.clock
        self._lead: Flight | None = None
        """The flight that the body's own run is, for later equal calls to share."""
        self._token: object = None

    def steps(self) -> Steps:
        """Say what is to be done, and return the call's answer."""
        try:
            served: tuple[Any] | None = None
            with self._guarded():
                served = yield from self._served()
            if served is not None:
                return served[0]
            began_s = self._clock()
            value = yield Body()
            self._call.booking.body_s = self._clock() - began_s
            if not isinstance(value, Raised):
                with self._guarded():
                    self._share(value)
            return value
        finally:
            self._lead_home(Outcome(state="failed", body_key=self._received.key))

    def _served(self) -> Generator[Step, Any, tuple[Any] | None]:
        began_s = self._clock()
        claim, landing = self._claim()
        flight = claim.flight
        if flight is None or claim.action == "run":
            self._call.claimed(claim.verdict, flight)
            return None
        if claim.action == "lead":
            self._call.claimed(claim.verdict, flight)
            self._token = yield from self._looked(flight)
            return None
        if claim.action == "wait":
            claim = yield from self._waited(claim, flight, landing)
        if claim.action == "serve":
            claim = yield from self._unchanged(claim, flight)
        return self._taken(claim, flight, waited_s=self._clock() - began_s)

    def _claim(self) -> tuple[Claim, Landing[Outcome] | None]:
        run = self._run
        with run.lock:
            claim = run.machine.claim(
                self._call.turn, self._call.booking, self._received.key, self._clock()
            )
            run.act(claim.discards)
            if claim.flight is None:
                return claim, None
            if claim.action == "lead":
                self._lead = claim.flight
                run.aloft[claim.flight] = Aloft(on_discard=_nothing)
            aloft = run.aloft.get(claim.flight)
        return claim, None if aloft is None else aloft.landing

    def _waited(
        self, claim: Claim, flight: Flight, landing: Landing[Outcome] | None
    ) -> Generator[Step, Any, Claim]:
        run = self._run
        try:
            if landing is not None:
                yield Wait(landing)
        except GeneratorExit:
            with run.lock:
                run.act(run.machine.forsake(flight))
            raise
        with run.lock:
            settled = run.machine.settle(claim, self._received.key, self._clock())
            run.act(settled.discards)
        return settled

    def _unchanged(self, claim: Claim, flight: Flight) -> Generator[Step, Any, Claim]:
        outcome = flight.outcome
        if flight.contract.freshness is None or outcome is None:
            return claim
        try:
            token = yield from self._looked(flight)
        except GeneratorExit:
            with self._run.lock:
                self._run.act(self._run.machine.returned(flight))
            raise
        try:
            same = not isinstance(token, Raised) and bool(token == outcome.token)
        except Exception:  # noqa: BLE001 - tokens that cannot be compared are not the same
            same = False
        if same:
            return claim
        with self._run.lock:
            changed = self._run.machine.changed(flight)
            self._run.act(changed.discards)
        return changed

    def _looked(self, flight: Flight) -> Generator[Step, Any, object]:
        freshness = flight.contract.freshness
        if freshness is None:
            return None
        values = self._received.values
        return (yield Look(lambda: freshness(values)))

    def _taken(self, claim: Claim, flight: Flight, *, waited_s: float) -> tuple[Any] | None:
        """Take the flight's value, if this call may have it after all."""
        value, copied = None, True
        if claim.action == "serve" and flight.outcome is not None:
            value = flight.outcome.value
            if flight.contract.deterministic:
                value, copied = _copied(value)
        with self._run.lock:
            if claim.action == "serve" and flight.state != "landed":
                claim = Claim(action="run", verdict="cancelled", flight=flight)
            if claim.action == "serve":
                self._run.aloft.pop(flight, None)
                if not copied:
                    flight.state = "failed"  # this call has the value itself: no other may
                self._run.act(())
        if claim.action != "serve":
            self._call.claimed(claim.verdict, flight)
            return None
        spent_s = flight.spent_s(self._clock())
        hidden_s = max(0.0, spent_s - waited_s)
        self._call.booking.body_s = spent_s
        self._call.claimed(
            claim.verdict, flight, waited_s=waited_s, spent_s=spent_s, hidden_s=hidden_s
        )
        return (value,)

    def _share(self, value: object) -> None:
        """Keep what a leading call's body returned for the equal calls of its turn."""
        if self._lead is None or isinstance(self._token, Raised):
            return
        if not self._received.repeatable(value):
            return
        kept, copied = _copied(value)
        if copied:
            self._lead_home(
                Outcome(
                    state="landed",
                    value=kept,
                    body_key=self._received.key,
                    token=self._token,
                    holds=self._received.holds,
                )
            )

    def _lead_home(self, outcome: Outcome) -> None:
        lead, self._lead = self._lead, None
        if lead is None:
            return
        with self._run.lock:
            if aloft := self._run.aloft.pop(lead, None):
                aloft.landing.land(outcome)
            self._run.machine.landed(lead, outcome, self._clock())
            self._run.act(())

    @contextlib.contextmanager
    def _guarded(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - our failure is a miss, never the user's error
            verdict = type(error).__name__
            self._call.event("error", verdict, source="claim", detail=str(error))


def _nothing(_: object) -> None:
    """A committed call's own run is nobody's waste."""


def _copied(value: Any) -> tuple[Any, bool]:  # noqa: ANN401 - the tool's value
    """Return a copy nobody else holds, and whether there is one."""
    if isinstance(value, _IMMUTABLE):
        return value, True
    try:
        return copy.deepcopy(value), True
    except Exception:  # noqa: BLE001 - a lock, a socket, a user's __deepcopy__
        return value, False
