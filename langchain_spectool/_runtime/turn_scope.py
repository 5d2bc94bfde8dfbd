"""One turn in progress: starts what the machine admits, and commits or abandons it."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.run import InFlight
from langchain_spectool._core.turn import CommittedCall, Discard, Turn
from langchain_spectool._core.verdicts import GuessVerdict
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.driver import Driver, Job, Ticket
from langchain_spectool._runtime.runs import Aloft, Run

_numbers = itertools.count(1)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRun:
    """How to run one candidate early, in both forms."""

    run: Callable[[], Outcome] | None
    arun: Callable[[], Coroutine[Any, Any, Outcome]] | None
    context: Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in which run a turn happens."""

    control: object
    scope: Hashable
    step: int | None


class Airborne:
    """Counts the early runs of one Speculation that have not returned, abandoned ones too."""

    def __init__(self) -> None:
        """Start at none."""
        self._lock = threading.Lock()
        self._tools: Counter[str] = Counter()

    def take_off(self, tool: str) -> None:
        """Count one more run of `tool`."""
        with self._lock:
            self._tools[tool] += 1

    def land(self, tool: str) -> None:
        """Count one less."""
        with self._lock:
            self._tools[tool] -= 1

    def beside(self, tool: str) -> InFlight:
        """Return the counts a guess for `tool` is judged by."""
        with self._lock:
            return InFlight(process=self._tools.total(), tool=self._tools[tool])


class TurnScope:
    """Owns everything one turn starts, from the model's call to its answer.

    Methods may be called from any thread. It leaves no trace in the registry of runs until its
    first flight.
    """

    def __init__(
        self,
        place: Place,
        driver: Driver,
        policy: Policy,
        emit: Emit,
        in_flight: Airborne,
    ) -> None:
        """Open the turn."""
        self.place = place
        self._driver = driver
        self._policy = policy
        self._emit = emit
        self._in_flight = in_flight
        self._samples: list[Ticket] = []
        self._run: Run | None = None
        self.clock = driver.clock
        self.turn = Turn(
            number=next(_numbers), scope=place.scope, step=place.step, started_s=driver.clock()
        )

    # --- guesses

    def sample(self, job: Job, context: Context) -> None:
        """Run a speculator's sample until the model answers."""
        if self.turn.phase == "open" and (ticket := self._driver.start(job, context)):
            self._samples.append(ticket)

    def offer(self, candidate: Candidate, early: Callable[[], EarlyRun]) -> Flight | None:
        """Admit a guess and start it; return its flight if it runs, or is scored in shadow."""
        now_s = self.clock()
        if self.turn.phase != "open" or candidate.refusal not in (None, "shadow"):
            late: GuessVerdict = "late" if candidate.refusal is None else candidate.refusal
            self._report(late, candidate, now_s)
            return None
        run = self._entered()
        with run.lock:
            verdict, flight = run.machine.admit(
                self.turn,
                candidate,
                policy=self._policy,
                in_flight=self._in_flight.beside(candidate.tool),
                now_s=now_s,
            )
            if flight is not None:
                run.aloft[flight] = Aloft(on_discard=self._discarded)
                if verdict == "run" and not self._take_off(run, flight, early()):
                    run.act(run.machine.void(flight))
                    verdict, flight = "no_room", None
            run.act(())
        self._report(verdict, candidate, now_s)
        return flight

    def take_back(self, flight: Flight) -> None:
        """Drop a flight whose call the stream went on writing."""
        if self._run is not None:
            with self._run.lock:
                self._run.act(self._run.machine.void(flight))

    def _take_off(self, run: Run, flight: Flight, early: EarlyRun) -> bool:
        def done(outcome: Outcome | None) -> None:
            self._in_flight.land(flight.tool)
            self._landed(run, flight, outcome or Outcome(state="cancelled"))

        def expired() -> None:
            with run.lock:
                run.act(run.machine.expire(flight))

        job = Job(
            name=f"spectool:{flight.tool}",
            timeout_s=flight.deadline_s - flight.started_s,
            run=early.run,
            arun=early.arun,
            done=done,
            expired=expired,
        )
        self._in_flight.take_off(flight.tool)
        ticket = self._driver.start(job, early.context)
        if ticket is None:
            self._in_flight.land(flight.tool)
            return False
        run.aloft[flight].ticket = ticket
        return True

    def _landed(self, run: Run, flight: Flight, outcome: Outcome) -> None:
        now_s = self.clock()
        with run.lock:
            aloft = run.aloft.get(flight)
            news = flight.state == "running"
            discard = run.machine.landed(flight, outcome, now_s)
            if aloft is not None and not aloft.landing.done():
                aloft.landing.set_result(outcome)
            run.act((discard,))
        if news:
            self.event(
                "landed", flight.state, flight, started_s=flight.started_s, detail=outcome.detail
            )

    # --- the answer

    def commit(self, calls: Sequence[CommittedCall], *, truncated: bool = False) -> None:
        """Make the plan; guesses stop here."""
        now_s = self.clock()
        self._stop_samples()
        shares = any(call.contract is not None and call.contract.deterministic for call in calls)
        if self._run is None and shares and not truncated:
            self._entered()
        self.turn.phase, self.turn.committed_s = "committed", now_s
        if self._run is not None:
            with self._run.lock:
                self._plan(self._run, calls, truncated=truncated, now_s=now_s)
        self._emit(
            Event(
                kind="turn_committed",
                at_s=now_s,
                turn=self.turn.number,
                verdict="truncated" if truncated else "committed",
                started_s=self.turn.started_s,
                position=len(calls),
            )
        )

    def _plan(
        self, run: Run, calls: Sequence[CommittedCall], *, truncated: bool, now_s: float
    ) -> None:
        machine = run.machine
        run.act(machine.commit(self.turn, calls, truncated=truncated, now_s=now_s))
        matters = any(
            booking.flight is not None
            or booking.verdict == "shadow_hit"
            or (booking.call.contract is not None and booking.call.contract.deterministic)
            for booking in self.turn.bookings
        )
        if not matters:
            run.act(machine.close(self.turn, "unclaimed"))

    def abandon(self) -> None:
        """The model failed or was cancelled: nothing of this turn may remain."""
        self._stop_samples()
        if self._run is not None:
            with self._run.lock:
                self._run.act(self._run.machine.close(self.turn, "turn_failed"))
        self.turn.phase = "closed"
        self._emit(
            Event(kind="turn_ended", at_s=self.clock(), turn=self.turn.number, verdict="failed")
        )

    def _stop_samples(self) -> None:
        samples, self._samples = self._samples, []
        for ticket in samples:
            ticket.cancel()

    # --- books

    def _entered(self) -> Run:
        if self._run is None:
            run = runs.enter(self.place.control, self.clock)
            with run.lock:
                run.act(run.machine.open(self.turn))
                self._run = run
        return self._run

    def _discarded(self, discard: Discard) -> None:
        flight = discard.flight
        now_s = self.clock()
        self.event(
            "discarded",
            discard.reason,
            flight,
            started_s=flight.started_s,
            spent_s=0.0 if flight.shadow else flight.spent_s(now_s),
        )

    def _report(self, verdict: GuessVerdict, candidate: Candidate, now_s: float) -> None:
        self._emit(
            Event(
                kind="guess",
                at_s=now_s,
                turn=self.turn.number,
                verdict=verdict,
                tool=candidate.tool,
                source=candidate.source,
                confidence=candidate.confidence,
                detail=candidate.detail,
            )
        )

    def event(self, kind: Any, verdict: str, flight: Flight, **more: Any) -> None:  # noqa: ANN401 - fields of Event
        """Emit an event about a flight of this turn."""
        self._emit(
            Event(
                kind=kind,
                at_s=self.clock(),
                turn=self.turn.number,
                verdict=verdict,
                tool=flight.tool,
                source=flight.source,
                confidence=flight.confidence,
                **more,
            )
        )
