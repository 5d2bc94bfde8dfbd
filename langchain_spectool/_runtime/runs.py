"""The runs in progress: one entry per graph run that has something in the air.

An entry lives exactly as long as there is something to remember: flights, a plan whose calls
have not ended, results kept for the run. It is keyed by the run's `RunControl` object, which
every node, subgraph and nested call of one graph run shares.
"""

import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.ports import Clock
from langchain_spectool._core.run import RunMachine
from langchain_spectool._core.turn import Discard, Turn
from langchain_spectool._runtime.driver import Ticket

SWEEP_S = 0.25
"""Seconds between two looks for runs that ended without a word."""
MAX_RUNS = 4096
"""Most runs remembered at once; the oldest is ended to make room."""
MAX_AGE_S = 3600.0
"""Seconds after its last flight at which a run is ended even if somebody holds its control."""
_OWN_REFERENCES = 2


@dataclass(slots=True, kw_only=True, eq=False)
class Aloft:
    """The runtime's side of a flight."""

    on_discard: Callable[[Discard], None]
    landing: Future[Outcome] = field(default_factory=Future[Outcome])
    ticket: Ticket | None = None


class Run:
    """One graph run: its machine, the lock around it, and its flights' tickets."""

    def __init__(self, control: object, clock: Clock) -> None:
        """Remember `control`, so that its id stays its own."""
        self.control = control
        self.clock = clock
        self.machine = RunMachine()
        self.lock = threading.RLock()
        self.aloft: dict[Flight, Aloft] = {}
        self.last_s = time.monotonic()

    def act(self, discards: Sequence[Discard | None]) -> None:
        """Do what the machine answered: stop flights, wake who waits, tell who watches."""
        for discard in discards:
            aloft = None if discard is None else self.aloft.get(discard.flight)
            if discard is None or aloft is None:
                continue
            if not discard.flight.waiters:
                del self.aloft[discard.flight]
            if aloft.ticket is not None:
                aloft.ticket.cancel()
            if not aloft.landing.done():
                aloft.landing.set_result(Outcome(state="cancelled"))
            aloft.on_discard(discard)
        if self.machine.idle:
            _forget(self)

    def write_began(self, turn: Turn | None) -> None:
        """An undeclared call of `turn` starts."""
        with self.lock:
            self.act(self.machine.write_began(turn))

    def write_ended(self, turn: Turn | None) -> None:
        """It ended, whatever its outcome."""
        with self.lock:
            self.act(self.machine.write_ended(turn))

    def end(self) -> None:
        """End the run for us: cancel what runs, serve nothing more."""
        with self.lock:
            self.act(self.machine.end())
            _forget(self)

    def orphaned(self) -> bool:
        """Whether nobody but this entry holds the control any more: the run is over.

        A graph run keeps its `RunControl` in every task's runtime and lets go of it when it
        ends, whichever way. It cannot be referenced weakly, so its references are counted; on
        an interpreter that does not count, age alone ends an entry.
        """
        count: Callable[[object], int] | None = getattr(sys, "getrefcount", None)
        too_old = time.monotonic() - self.last_s > MAX_AGE_S
        return too_old or (count is not None and count(self.control) <= _OWN_REFERENCES)


_runs: dict[int, Run] = {}
_lock = threading.Lock()
_janitor: threading.Thread | None = None


def find(control: object) -> Run | None:
    """Return the entry of the run that `control` belongs to."""
    run = _runs.get(id(control))
    return run if run is not None and run.control is control else None


def enter(control: object, clock: Clock) -> Run:
    """Return the run's entry, made if there is none, and see that it will be swept."""
    global _janitor  # noqa: PLW0603 - one janitor per process
    with _lock:
        run = _runs.get(id(control))
        if run is None:
            run = _runs[id(control)] = Run(control, clock)
        run.last_s = time.monotonic()
        oldest = next(iter(_runs.values())) if len(_runs) > MAX_RUNS else None
        if _janitor is None:
            _janitor = threading.Thread(target=_sweep, name="spectool-janitor", daemon=True)
            _janitor.start()
    if oldest is not None and oldest is not run:
        oldest.end()
    return run


def in_progress() -> int:
    """Return how many runs have an entry."""
    return len(_runs)


def invalidate(tags: Collection[str] | None) -> None:
    """Drop the flights of every run that read one of `tags`; None drops all."""
    for run in _all():
        with run.lock:
            run.act(run.machine.invalidate(tags))


def _all() -> list[Run]:
    with _lock:
        return [*_runs.values()]


def _forget(run: Run) -> None:
    with _lock:
        if _runs.get(id(run.control)) is run:
            del _runs[id(run.control)]


def _sweep() -> None:
    global _janitor  # noqa: PLW0603 - it takes itself out
    while True:
        time.sleep(SWEEP_S)
        for run in _all():
            if run.orphaned():
                run.end()
        run = None
        with _lock:
            if not _runs:
                _janitor = None
                return
