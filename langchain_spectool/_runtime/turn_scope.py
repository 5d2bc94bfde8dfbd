"""One turn in progress: starts what the machine admits, and commits or abandons it."""

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Coroutine, Hashable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from langchain_spectool._core.economy import Judgement
from langchain_spectool._core.events import Event, digest
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.run import shared_under
from langchain_spectool._core.turn import CommittedCall, Discard, Phase, Turn
from langchain_spectool._core.verdicts import GuessVerdict
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.airborne import Airborne
from langchain_spectool._runtime.driver import Driver, Job, Ticket
from langchain_spectool._runtime.run_watch import OnExit, WatchedRun
from langchain_spectool._runtime.runs import Aloft, Run
from langchain_spectool._runtime.shared_economy import Purse, SharedEconomy, payers_of
from langchain_spectool._runtime.telling import barred, weighed

turn_numbers = itertools.count(1)
"""The numbers of turns, in the order they begin."""

Emit = Callable[[Event], None]
_OUTDATED = frozenset({"other_epoch", "invalidated", "switched_off"})


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
    namespace: str = ""
    """Its checkpoint namespace without the node's own part."""
    at_end: runs.AtEnd | None = None
    """Tells when the graph of the turn's node ends; None where that cannot be known."""
    on_exit: OnExit | None = None
    """The same, with the exception it ended by."""
    at_aend: Callable[[Callable[[], Coroutine[Any, Any, None]]], object] | None = None
    """Has something awaited when the graph of the turn's node ends; None where it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all turns of one Speculation share."""

    policy: Policy
    economy: SharedEconomy
    emit: Emit
    in_flight: Airborne = field(default_factory=Airborne)


class TurnScope:
    """Owns everything one turn starts, from the model's call to its answer.

    Methods may be called from any thread. It leaves no trace in the registry of runs until its
    first guess.
    """

    def __init__(  # noqa: PLR0913 - all it decides by
        self,
        place: Place,
        driver: Driver,
        common: Common,
        *,
        watched: WatchedRun | None = None,
        tenant: str | None = None,
        shadow: bool = False,
        run: str = "",
    ) -> None:
        """Open the turn; with `shadow`, guesses are only scored. `run` names its run in events."""
        self._lock = threading.Lock()
        self._place: Place | None = place
        self._driver = driver
        self._policy = common.policy
        self._emit = common.emit
        self._in_flight = common.in_flight
        self._samples: list[Ticket] = []
        self._run: Run | None = None
        self._run_name = run
        self.clock = driver.clock
        self.turn = Turn(
            number=next(turn_numbers),
            scope=place.scope,
            step=place.step,
            namespace=place.namespace,
            started_s=driver.clock(),
            tenant=tenant,
            shadow=shadow,
        )
        payers = payers_of(
            common.economy.budgets,
            turn=self.turn.number,
            run=0 if watched is None else watched.number,
            tenant=tenant,
        )
        self.purse = Purse(common.economy, payers, tenant, self.turn.started_s, watched)
        self.on_return: Callable[[Flight, Outcome], None] | None = None
        """Told, wherever it lands, of every early run of this turn's guesses that may be used."""
        self.on_outdated: Callable[[], None] | None = None
        """Told when one of them is dropped because the world may have changed."""
        self.on_landed: Callable[[Flight, Outcome], None] | None = None
        """Told, where the turn's samples run, of every early run that landed while it is open:
        of its own guesses, and of those that earlier turns have chained."""

    # --- guesses

    def sample(self, job: Job, context: Context) -> None:
        """Run a speculator's sample until the model answers."""
        with self._lock:
            if self.turn.phase == "open" and (ticket := self._driver.start(job, context)):
                self._samples.append(ticket)

    def go_on(self) -> None:
        """Hear of what earlier turns have chained to this one: what is there, what comes yet."""
        run = self._entered() if self._follows() else None
        if run is None:
            return
        with run.lock:
            due = [flight for flight in run.machine.kept.of(self.turn.scope) if flight.parent]
            for flight in due:
                if aloft := run.aloft.get(flight):
                    aloft.on_landed = self._brought
        for flight in due:
            if flight.state == "landed" and flight.outcome is not None:
                self._brought(flight, flight.outcome)

    def offer(self, candidate: Candidate, early: Callable[[], EarlyRun]) -> Flight | None:
        """Admit a guess and start it; return its flight if it runs, or is scored in shadow."""
        now_s = self.clock()
        run = self._entered() if candidate.refusal in (None, "shadow") else None
        if run is None:
            self._report(candidate.refusal or "late", candidate, now_s)
            return None
        self.purse.heard(candidate)
        judged = Judgement()

        def judge() -> GuessVerdict | None:
            nonlocal judged
            judged = self.purse.judge(candidate, now_s)
            return judged.refusal

        with run.lock:
            verdict, flight = run.machine.admit(
                self.turn,
                candidate,
                policy=self._policy,
                in_flight=self._in_flight.beside(candidate.tool),
                now_s=now_s,
                judge=judge,
            )
            if flight is not None and judged.reservation is not None:
                self.purse.took_off(flight, judged.reservation)
            if verdict == "run" and flight is not None and not self._take_off(run, flight, early):
                verdict, flight = "no_room", None
            elif flight is not None and flight.shadow:
                run.aloft[flight] = Aloft(on_discard=self._discarded)
            self._report(verdict, candidate, now_s)
        return flight

    def take_back(self, flight: Flight) -> None:
        """Drop a flight whose call the stream went on writing."""
        if self._run is not None:
            with self._run.lock:
                self._run.act(self._run.machine.void(flight))

    def _take_off(self, run: Run, flight: Flight, early: Callable[[], EarlyRun]) -> bool:
        """Start the flight; a guess that did not start leaves nothing to discard."""
        self._in_flight.take_off(flight.tool)
        aloft: Aloft | None = None
        try:
            prepared = early()
            job = self._job(run, flight, prepared)
            if ticket := self._driver.start(job, prepared.context):
                aloft = run.aloft[flight] = Aloft(
                    on_discard=self._discarded, on_landed=self._brought, ticket=ticket
                )
        finally:
            if aloft is None:
                self._in_flight.land(flight.tool)
                self.purse.grounded(flight)
                run.machine.grounded(self.turn, flight)
        return aloft is not None

    def _job(self, run: Run, flight: Flight, early: EarlyRun) -> Job:
        return Job(
            name=f"spectool:{flight.tool}",
            timeout_s=flight.deadline_s - flight.started_s,
            run=early.run,
            arun=early.arun,
            done=functools.partial(self._returned, run, flight),
            expired=functools.partial(run.expire, flight),
        )

    def _returned(self, run: Run, flight: Flight, outcome: Outcome | None) -> None:
        self._in_flight.land(flight.tool)
        outcome = outcome or Outcome(state="cancelled")
        measured = outcome.state != "cancelled"
        self.purse.returned(flight, self.clock(), measured=measured)
        self._landed(run, flight, outcome)

    def _landed(self, run: Run, flight: Flight, outcome: Outcome) -> None:
        now_s = self.clock()
        if outcome.retry_after_s is not None:
            self.purse.economy.limited(flight.tool, now_s + outcome.retry_after_s)
        with run.lock:
            aloft = run.aloft.get(flight)
            if aloft is not None:
                aloft.landing.land(outcome)
            news = flight.state == "running" and outcome.state != "cancelled"
            discard = run.machine.landed(flight, outcome, now_s)
            if news:
                started_s, detail = flight.started_s, outcome.detail
                self._event("landed", flight.state, flight, started_s=started_s, detail=detail)
            run.act((discard,))
            told = aloft.on_landed if aloft is not None and flight.state == "landed" else None
        if told is not None:
            told(flight, outcome)
        if self.on_return is not None and flight.state == "landed":
            self.on_return(flight, outcome)

    def _brought(self, flight: Flight, outcome: Outcome) -> None:
        told = self.on_landed
        if told is not None and self.turn.phase == "open":
            self._driver.call(functools.partial(told, flight, outcome))

    # --- the answer

    def commit(self, calls: Sequence[CommittedCall], *, truncated: bool = False) -> None:
        """Make the plan; guesses stop here."""
        shares = self._shares(calls) and not truncated
        run = self._entered() if shares or self._follows() else self._run
        now_s = self.clock()
        self._close("committed", now_s)
        run = self._run if run is None else run
        if run is not None:
            with run.lock:
                if not run.over:
                    self._plan(run, calls, truncated=truncated, now_s=now_s)
        if not truncated:  # nobody knows what the model would have called
            self._learn([call.key for call in calls if call.key is not None], now_s)
        self._emit(
            Event(
                kind="turn_committed",
                at_s=now_s,
                turn=self.turn.number,
                verdict="truncated" if truncated else "committed",
                started_s=self.turn.started_s,
                position=len(calls),
                run=self._run_name,
                arm="shadow" if self.turn.shadow else "",
                tools=tuple(call.named for call in calls),
                barred=barred(calls),
            )
        )

    def _learn(self, keys: Collection[str], now_s: float) -> None:
        """Say which guesses were right, whether they ran or not."""
        for said, came_true in self.purse.committed(keys, now_s):
            self._emit(
                Event(
                    kind="scored",
                    at_s=now_s,
                    turn=self.turn.number,
                    verdict="right" if came_true else "wrong",
                    tool=said.tool,
                    source=said.source,
                    confidence=said.confidence,
                    key_hash=digest(said.key),
                )
            )

    def _shares(self, calls: Sequence[CommittedCall]) -> bool:
        """Say whether one of `calls` may answer later equal ones."""
        contracts = [call.contract for call in calls if call.contract is not None]
        return not self.turn.shadow and any(contract.deterministic for contract in contracts)

    def _follows(self) -> bool:
        """Say whether the run has a past: earlier turns to end, or flights kept for later ones."""
        place = self._place
        return place is not None and runs.find(place.control) is not None

    def _plan(
        self, run: Run, calls: Sequence[CommittedCall], *, truncated: bool, now_s: float
    ) -> None:
        machine = run.machine
        run.act(machine.commit(self.turn, calls, truncated=truncated, now_s=now_s))
        matters = any(
            booking.flight is not None
            or booking.verdict in ("shadow_hit", "fenced")
            or shared_under(self.turn, booking) is not None
            or (booking.call.contract is None and machine.kept)
            for booking in self.turn.bookings
        )
        if not matters:
            run.act(machine.close(self.turn, "unclaimed"))

    def abandon(self) -> None:
        """The model failed or was cancelled: nothing of this turn may remain."""
        self._close("closed", self.clock())
        if self._run is not None:
            with self._run.lock:
                self._run.act(self._run.machine.close(self.turn, "turn_failed"))
        self._emit(
            Event(
                kind="turn_ended",
                at_s=self.clock(),
                turn=self.turn.number,
                verdict="failed",
                started_s=self.turn.started_s,
                run=self._run_name,
            )
        )

    def _close(self, phase: Phase, now_s: float) -> None:
        """Take no more guesses, and stop who makes them."""
        with self._lock:
            samples, self._samples = self._samples, []
            self.turn.phase, self.turn.committed_s = phase, now_s
            self._place = None
        for ticket in samples:
            ticket.cancel()
        self.purse.close()
        self.on_landed = None

    # --- books

    def _entered(self) -> Run | None:
        """Return the run's entry, with this turn open in it; None once the turn is not open."""
        with self._lock:
            if self.turn.phase != "open":
                return None
            if (place := self._place) is not None:
                self._run = runs.open_turn(place.control, self.clock, self.turn, place.at_end)
                # What flies holds this scope: from here on only the entry knows the control.
                self._place = None
            return self._run

    def _discarded(self, discard: Discard) -> None:
        flight = discard.flight
        if flight.shadow:  # nothing ran that could be wasted; whether it was right is scored
            return
        if self.on_outdated is not None and discard.reason in _OUTDATED:
            self.on_outdated()
        now_s = self.clock()
        self._event(
            "discarded",
            discard.reason,
            flight,
            started_s=flight.started_s,
            spent_s=flight.spent_s(now_s),
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
                key_hash=digest(candidate.key),
                detail=candidate.detail,
                weighed=weighed(self.purse, verdict, candidate, now_s),
            )
        )

    def _event(self, kind: Any, verdict: str, flight: Flight, **more: Any) -> None:  # noqa: ANN401 - fields of Event
        self._emit(
            Event(
                kind=kind,
                at_s=self.clock(),
                turn=self.turn.number,
                verdict=verdict,
                tool=flight.tool,
                source=flight.source,
                confidence=flight.confidence,
                key_hash=digest(flight.key),
                **more,
            )
        )
