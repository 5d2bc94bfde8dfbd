"""The claim: a committed call's body asks for its flight, on the values it has received.

The rules are written once, as a generator that says what it needs done (wait, look, run the
body); `answer` does it by blocking, `aanswer` by awaiting.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.run import Claim
from langchain_spectool._core.turn import Booking, Turn
from langchain_spectool._core.verdicts import ClaimVerdict
from langchain_spectool._runtime.pool import POOL
from langchain_spectool._runtime.runs import Aloft, Run

_IMMUTABLE = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The values a committed body was called with."""

    key: str | None
    """Their exact key; None if they cannot be encoded."""
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a flight to land; answered whether that was possible."""

    landing: Future[Outcome]


@dataclass(frozen=True, slots=True)
class Look:
    """Call a user's function that may block; answered its result."""

    function: Callable[[], Any]


class Body:
    """Run the tool's own body; answered its return value, or `Raised`."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What the body raised, carried as a value so that it leaves bare."""

    error: BaseException


Steps = Generator[Wait | Look | Body, Any, Any]


class BookedCall:
    """A committed call of a plan, from the moment it starts to its end."""

    def __init__(
        self, run: Run, turn: Turn, booking: Booking, emit: Callable[[Event], None]
    ) -> None:
        """Speak for `booking` of `turn` in `run`."""
        self.turn = turn
        self._run = run
        self._booking = booking
        self._clock = run.clock
        self._emit = emit

    # --- the call around the body

    def begin(self) -> bool:
        """Note that the committed call starts; return whether a flight may answer it."""
        booking = self._booking
        booking.began_s = self._clock()
        contract = booking.call.contract
        shares = contract is not None and contract.deterministic and booking.verdict != "fenced"
        if booking.flight is None and not shares:
            self._claimed(booking.verdict)
            return False
        return True

    def end(self) -> None:
        """Note that it ended, whatever its outcome."""
        now_s, booking = self._clock(), self._booking
        with self._run.lock:
            was_over = self.turn.over
            self._run.act(self._run.machine.ended(self.turn, booking, now_s))
            over = self.turn.over and not was_over
        began_s = now_s if booking.began_s is None else booking.began_s
        self._event("call_ended", "", started_s=began_s, spent_s=now_s - began_s)
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
        steps, result = self._steps(received), None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return _given(stop.value)
            if isinstance(step, Body):
                try:
                    result = body()
                except BaseException as error:  # noqa: BLE001 - raised again, bare, below
                    result = Raised(error)
            elif isinstance(step, Wait):
                result = wait(step.landing)
            else:
                result = step.function()

    async def aanswer(self, received: Received, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the tool's value
        """Return the flight's value or the body's own, awaiting."""
        steps, result = self._steps(received), None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return _given(stop.value)
            if isinstance(step, Body):
                try:
                    result = await body()
                except BaseException as error:  # noqa: BLE001 - raised again, bare, below
                    result = Raised(error)
            elif isinstance(step, Wait):
                try:
                    result = await landed(step.landing)
                except BaseException:
                    steps.close()
                    raise
            else:
                result = await off_the_loop(step.function)

    def _steps(self, received: Received) -> Steps:
        lead: Flight | None = None
        try:
            claim = yield from self._decide(received)
            if claim.action == "serve":
                return _value(claim)
            lead = claim.flight if claim.action == "lead" else None
        except Exception as error:  # noqa: BLE001 - our failure is a miss, never the user's error
            self._event("error", "claim", detail=repr(error))
        began_s = self._clock()
        value = yield Body()
        self._booking.body_s = self._clock() - began_s
        if lead is not None:
            self._share(lead, value, received)
        return value

    def _decide(self, received: Received) -> Generator[Wait | Look | Body, Any, Claim]:
        machine, now_s = self._run.machine, self._clock()
        with self._run.lock:
            claim = machine.claim(self.turn, self._booking, received.key, now_s)
            self._run.act((claim.discard,))
            flight = claim.flight
            if claim.action == "lead" and flight is not None:
                self._run.aloft[flight] = Aloft(on_discard=_nothing)
            aloft = None if flight is None else self._run.aloft.get(flight)
        if claim.action == "wait" and flight is not None:
            can_wait = False
            try:
                can_wait = aloft is not None and (yield Wait(aloft.landing))
            except GeneratorExit:
                with self._run.lock:
                    self._run.act(machine.forsake(flight))
                raise
            with self._run.lock:
                claim = machine.settle(claim, received.key, self._clock())
                self._run.act((claim.discard,))
            if claim.action == "serve" and not can_wait:
                claim = Claim(action="run", verdict="cannot_wait", flight=flight)
        if claim.action == "serve" and flight is not None:
            claim = yield from self._unchanged(claim, flight, received)
        self._settled(claim, waited_s=self._clock() - now_s)
        return claim

    def _unchanged(
        self, claim: Claim, flight: Flight, received: Received
    ) -> Generator[Wait | Look | Body, Any, Claim]:
        freshness = flight.contract.freshness
        if freshness is None or flight.source == "committed":
            return claim
        try:
            token = yield Look(lambda: freshness(received.values))
            same = flight.outcome is not None and bool(token == flight.outcome.token)
        except Exception:  # noqa: BLE001 - a token that cannot be had or compared is a miss
            same = False
        return claim if same else Claim(action="run", verdict="changed", flight=flight)

    def _settled(self, claim: Claim, *, waited_s: float) -> None:
        flight = claim.flight
        if claim.action != "serve" or flight is None:
            self._claimed(claim.verdict, flight)
            return
        spent_s = flight.spent_s(self._clock())
        self._booking.body_s = spent_s
        with self._run.lock:
            if not flight.contract.deterministic:
                self._run.aloft.pop(flight, None)
        self._claimed(
            claim.verdict,
            flight,
            waited_s=waited_s,
            spent_s=spent_s,
            hidden_s=max(0.0, spent_s - waited_s),
        )

    def _share(self, flight: Flight, value: object, received: Received) -> None:
        outcome = Outcome(state="failed", body_key=received.key)
        if not isinstance(value, Raised):
            kept, copied = _copied(value)
            if copied:
                outcome = Outcome(state="landed", value=kept, body_key=received.key)
        with self._run.lock:
            flight.waiters = max(0, flight.waiters - 1)
            self._run.machine.landed(flight, outcome, self._clock())
            if aloft := self._run.aloft.get(flight):
                aloft.landing.set_result(outcome)

    # --- events

    def _claimed(self, verdict: ClaimVerdict, flight: Flight | None = None, **times: float) -> None:
        source = "" if flight is None else flight.source
        started_s = None if flight is None else flight.started_s
        self._event("claim", verdict, source=source, started_s=started_s, **times)

    def _event(self, kind: Any, verdict: str, **more: Any) -> None:  # noqa: ANN401 - fields of Event
        call = self._booking.call
        self._emit(
            Event(
                kind=kind,
                at_s=self._clock(),
                turn=self.turn.number,
                verdict=verdict,
                tool=call.tool,
                position=call.position,
                **more,
            )
        )


def wait(landing: Future[Outcome]) -> bool:
    """Block until the flight lands; False where blocking would stop the loop that flies it."""
    if landing.done():
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        landing.result()
        return True
    return False


async def landed(landing: Future[Outcome]) -> bool:
    """Wait until the flight lands. Cancelling the caller leaves the flight alone."""
    if not landing.done():
        await asyncio.wait({asyncio.wrap_future(landing)})
    return True


async def off_the_loop(function: Callable[[], Any]) -> Any:  # noqa: ANN401 - the user's value
    """Call `function` in a thread of our pool, or here when none is free."""
    loop = asyncio.get_running_loop()
    answer: Future[Any] = Future()

    def call() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001 - handed to the waiter
            answer.set_exception(error)

    if not POOL.submit(call):
        call()
    return await asyncio.wrap_future(answer, loop=loop)


def _nothing(_: object) -> None:
    """A committed call's own run is nobody's waste."""


def _given(value: Any) -> Any:  # noqa: ANN401 - the tool's value
    if isinstance(value, Raised):
        raise value.error
    return value


def _value(claim: Claim) -> Any:  # noqa: ANN401 - the tool's value
    flight = claim.flight
    if flight is None or flight.outcome is None:
        msg = "a served claim has a landed flight"
        raise RuntimeError(msg)
    value = flight.outcome.value
    return _copied(value)[0] if flight.contract.deterministic else value


def _copied(value: Any) -> tuple[Any, bool]:  # noqa: ANN401 - the tool's value
    """Return a copy nobody else holds, and whether there is one."""
    if isinstance(value, _IMMUTABLE):
        return value, True
    try:
        return copy.deepcopy(value), True
    except Exception:  # noqa: BLE001 - a lock, a socket, a user's __deepcopy__
        return value, False
