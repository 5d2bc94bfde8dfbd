"""The runs in progress: one entry per graph run that has something in the air.

An entry lives exactly as long as there is something to remember: flights, a plan whose calls
have not ended, results kept for the run. It is keyed by the run's `RunControl` object, which
every node, subgraph and nested call of one graph run shares.
"""

import contextlib
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field

from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.ports import Clock
from langchain_spectool._core.run import RunMachine
from langchain_spectool._core.turn import Discard, Turn
from langchain_spectool._runtime.driver import Ticket
from langchain_spectool._runtime.landing import Landing, running_loop

SWEEP_S = 0.25
"""Seconds between two looks for runs that ended without a word."""
MAX_RUNS = 4096
"""Most runs remembered at once; the oldest is ended to make room."""
MAX_AGE_S = 3600.0
"""Seconds after its last flight at which a run is ended even if somebody holds its control."""

AtEnd = Callable[[Callable[[], None]], object]
"""Has a function called, from any thread, when the graph of a node ends, whichever way."""


@dataclass(slots=True, kw_only=True, eq=False)
class Aloft:
    """The runtime's side of a flight, until a call has taken its value or it is discarded."""

    on_discard: Callable[[Discard], None]
    on_landed: Callable[[Flight, Outcome], None] | None = None
    """Told what it brought back, for the turn that it is now expected in to go on from."""
    landing: Landing[Outcome] = field(default_factory=Landing[Outcome])
    ticket: Ticket | None = None


class Run:
    """One graph run: its machine, the lock around it, and its flights' tickets.

    Nothing reachable from here may hold the control: who else does, tells whether it still runs.
    """

    def __init__(self, control: object, clock: Clock) -> None:
        """Remember `control`, so that its id stays its own."""
        self.control: object = control
        self.clock = clock
        self.machine = RunMachine()
        self.lock = threading.RLock()
        self.aloft: dict[Flight, Aloft] = {}
        self.over = False
        """Whether it has left the registry; then nothing new may begin in it."""
        self._watched: tuple[Hashable, ...] = ()
        """The scopes whose graph tells us when it ends."""
        self._finished: tuple[Hashable, ...] = ()
        """Those whose graph has ended while committed calls still wait for flights."""
        self.last_s = time.monotonic()

    def act(self, discards: Sequence[Discard | None]) -> None:
        """Do what the machine answered: stop flights, wake who waits, tell who watches."""
        with self.lock:
            ended = [gone for scope in self._finished for gone in self._end(scope)]
            news = [d for d in (*discards, *ended) if d is not None and d.flight in self.aloft]
            if self.machine.idle and not self.over:
                self._leave()
            told = [(self.aloft.pop(discard.flight), discard) for discard in news]
            for aloft, _ in told:
                if aloft.ticket is not None:
                    aloft.ticket.cancel()
                aloft.landing.land(Outcome(state="cancelled"))
            for aloft, discard in told:
                aloft.on_discard(discard)

    def _end(self, scope: Hashable) -> Sequence[Discard]:
        # Who still waits is about to be cancelled, or cannot be: neither shall run a body instead.
        if any(f.taken and not f.shadow and f.scope == scope for f in self.aloft):
            return ()
        self._finished = _without(self._finished, scope)
        return self.machine.end(scope)

    def write_began(self, turn: Turn | None, namespace: str | None = None) -> None:
        """An undeclared call of `turn` starts."""
        with self.lock:
            self.act(self.machine.write_began(turn, namespace))

    def write_ended(self, turn: Turn | None, namespace: str | None = None) -> None:
        """It ended, whatever its outcome."""
        with self.lock:
            self.act(self.machine.write_ended(turn, namespace))

    def open(self, turn: Turn, at_end: AtEnd | None) -> None:
        """Begin `turn`, and have its scope finished when `at_end` says so."""
        with self.lock:
            self._finished = _without(self._finished, turn.scope)
            self.act(self.machine.open(turn))
            if at_end is not None and turn.scope not in self._watched:
                self._watched = (*self._watched, turn.scope)
                at_end(functools.partial(_finish, weakref.ref(self), turn.scope))

    def expire(self, flight: Flight) -> None:
        """The deadline of `flight` has passed."""
        with self.lock:
            self.act(self.machine.expire(flight))

    def finish(self, scope: Hashable) -> None:
        """The graph of `scope` has ended: drop what no committed call waits for."""
        with self.lock:
            self._watched = _without(self._watched, scope)
            self._finished = (*_without(self._finished, scope), scope)
            self.act(())

    def end(self) -> None:
        """End the run for us: cancel what runs, serve nothing more."""
        with self.lock:
            self.machine.writes.clear()
            self.act(self.machine.end())

    def sweep(self) -> None:
        """End the run if nobody is left to end it, and its flights that are past their deadline."""
        with self.lock:
            aloft = [(flight, each.ticket) for flight, each in self.aloft.items() if each.ticket]
            if self._orphaned() or any(ticket.lost for _, ticket in aloft):
                self.end()
                return
            now_s = self.clock()
            for flight, _ in aloft:
                if now_s >= flight.deadline_s:
                    self.expire(flight)

    def _orphaned(self) -> bool:
        """Whether nobody but this entry holds the control any more: the run is over.

        A graph run keeps its `RunControl` in every task's runtime and lets go of it when it
        ends, whichever way. It cannot be referenced weakly, so its references are counted; on
        an interpreter that does not count, age alone ends an entry.
        """
        too_old = time.monotonic() - self.last_s > MAX_AGE_S
        return too_old or self.references() <= _OWN_REFERENCES < math.inf

    def references(self) -> float:
        """Count the references to the control; without end where they are not counted."""
        count: Callable[[object], int] | None = getattr(sys, "getrefcount", None)
        return math.inf if count is None else count(self.control)

    def _leave(self) -> None:
        with _lock:
            if _runs.get(id(self.control)) is self:
                del _runs[id(self.control)]
        self.over = True
        # An abandoned body may hold this entry for long; the control is not its to hold.
        self.control = None


def _without(scopes: tuple[Hashable, ...], scope: Hashable) -> tuple[Hashable, ...]:
    return tuple(each for each in scopes if each != scope)


_OWN_REFERENCES = Run(object(), time.monotonic).references()
"""Those that only an entry has; how many are counted differs between interpreters."""
_runs: dict[int, Run] = {}
_lock = threading.Lock()
_janitor: threading.Thread | None = None


def find(control: object) -> Run | None:
    """Return the entry of the run that `control` belongs to."""
    run = _runs.get(id(control))
    return run if run is not None and run.control is control else None


def open_turn(control: object, clock: Clock, turn: Turn, at_end: AtEnd | None) -> Run:
    """Open `turn` in the run's entry, made if there is none, and see that it will be swept."""
    while True:
        run = _enter(control, clock, swept=True)
        with run.lock:
            if not run.over:
                run.open(turn, at_end)
                return run


def write_began(control: object, turn: Turn | None, namespace: str | None = None) -> Run:
    """Note in the run's entry, made if there is none, that an undeclared call of `turn` starts.

    Nobody may have guessed in this run yet; what is guessed until the call ends must know of it.
    """
    loop = running_loop()
    while True:
        run = _enter(control, time.monotonic if loop is None else loop.time, swept=False)
        with run.lock:
            if not run.over:
                run.write_began(turn, namespace)
                return run


def write_ended(run: Run, control: object, turn: Turn | None, namespace: str | None = None) -> None:
    """Note that a call ended whose start `run` knows of, whatever its outcome."""
    run.write_ended(turn, namespace)
    later = find(control)
    if later is not None and later is not run:
        later.write_began(turn)
        later.write_ended(turn)


def in_progress() -> int:
    """Return how many runs have an entry."""
    return len(_runs)


def invalidate(tags: Collection[str] | None) -> None:
    """Drop the flights of every run that read one of `tags`; None drops all."""
    for run in _all():
        with run.lock:
            run.act(run.machine.invalidate(tags))


def withdraw(tool: str | None, tenant: str | None) -> None:
    """Drop the flights of every run for a tool that was switched off, or for a tenant."""
    for run in _all():
        with run.lock:
            run.act(run.machine.withdraw(tool, tenant))


def _finish(reference: "weakref.ref[Run]", scope: Hashable) -> None:
    # Called while a graph unwinds: nothing of ours may reach it.
    run = reference()
    if run is not None:
        with contextlib.suppress(Exception):
            run.finish(scope)


def _enter(control: object, clock: Clock, *, swept: bool) -> Run:
    with _lock:
        if swept:
            _start_janitor()
        run = _runs.get(id(control))
        if run is None:
            run = _runs[id(control)] = Run(control, clock)
        run.last_s = time.monotonic()
        oldest = next(iter(_runs.values())) if len(_runs) > MAX_RUNS else run
    if oldest is not run:
        oldest.end()
    return run


def _all() -> list[Run]:
    with _lock:
        return [*_runs.values()]


def _start_janitor() -> None:
    global _janitor  # noqa: PLW0603 - one janitor per process
    if _janitor is None:
        janitor = threading.Thread(target=_clean, name="spectool-janitor", daemon=True)
        janitor.start()
        _janitor = janitor


def _clean() -> None:
    global _janitor  # noqa: PLW0603 - it takes itself out
    while True:
        time.sleep(SWEEP_S)
        for run in _all():
            with contextlib.suppress(Exception):  # one run's loop or clock is not another's
                run.sweep()
        run = None
        with _lock:
            if not _runs:
                _janitor = None
                return


def _forget_all() -> None:
    # A forked child has no janitor, and none of the loops and threads its entries wait for.
    global _lock, _janitor
    _lock, _janitor = threading.Lock(), None
    _runs.clear()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows does not fork
    os.register_at_fork(after_in_child=_forget_all)
