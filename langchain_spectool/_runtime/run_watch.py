"""Graph runs from their first turn to their end: who they are, whether held out, what they cost."""

import contextlib
import math
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from cachetools import LRUCache

from langchain_spectool._core.ports import Clock

MOST_RUNS = 4096
"""Most runs watched at once; the oldest is forgotten, uncounted, to make room."""

Kind = type[BaseException] | None
"""What a graph ended by; None if it just ended."""
Exit = Callable[[Kind, BaseException | None, object], bool | None]
OnExit = Callable[[Exit], object]
"""Has a function called when a graph ends, with its exception, as an exit stack's `push` does."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class RunName:
    """What events call a run: the same for every Speculation in its graph."""

    text: str


_names: "weakref.WeakValueDictionary[int, RunName]" = weakref.WeakValueDictionary()
"""By the id of a run's control. Two watches that meet a run at the very same moment may name it
twice; a lock would be more than a name is worth."""


@dataclass(slots=True, kw_only=True, eq=False)
class WatchedRun:
    """A graph run in progress."""

    number: int
    """Its name in the books; never used again."""
    name: RunName
    held_out: bool
    started_s: float
    turns_at_s: list[float] = field(default_factory=list[float])
    """When each turn of the model began."""
    costs_usd: list[float | None] = field(default_factory=list[float | None])
    """Dollars for each part of it; None for one that had no known price."""

    @property
    def cost_usd(self) -> float | None:
        """Dollars so far; None, unknown, once a part of it is."""
        known = [usd for usd in (*self.costs_usd,) if usd is not None]
        return math.fsum(known) if len(known) == len(self.costs_usd) else None

    def cost(self, usd: float | None) -> None:
        """Add `usd`; None, unknown, makes the whole unknown. Any thread may."""
        self.costs_usd.append(usd)

    def turn_s(self, ended_s: float) -> tuple[float, ...]:
        """Return the seconds of each turn, its tools included: up to the next one or the end."""
        return tuple(end - start for start, end in pairwise((*sorted(self.turns_at_s), ended_s)))


class RunWatch:
    """Knows the runs in progress by their `RunControl`, which it does not keep alive."""

    def __init__(
        self,
        hold_out: Callable[[int], bool],
        ended: Callable[[WatchedRun, float, bool], None],
        pauses: tuple[type[BaseException], ...] = (),
        *,
        prefix: str = "",
    ) -> None:
        """Ask `hold_out` about every new run; tell `ended` when it ended, and if it succeeded.

        A run succeeds when nothing was raised out of it, but for `pauses`: then it goes on later.
        Its name is `prefix` and a number, unless another watch has named it before.
        """
        self._hold_out = hold_out
        self._ended = ended
        self._pauses = pauses
        self._prefix = prefix
        self._lock = threading.Lock()
        self._count = 0
        self._runs: LRUCache[int, WatchedRun] = LRUCache(MOST_RUNS)

    def enter(self, control: object, clock: Clock, on_exit: OnExit | None) -> WatchedRun:
        """Return the run of `control`; a new one is watched until its graph exits.

        Without `on_exit` nobody can say when it ends: it is never counted.
        """
        key = id(control)
        with self._lock:
            run = self._runs.get(key)
            if run is not None:
                return run
            self._count += 1
            run = WatchedRun(
                number=self._count,
                name=_names.setdefault(key, RunName(f"{self._prefix}.{self._count}")),
                held_out=self._hold_out(self._count),
                started_s=clock(),
            )
            self._runs[key] = run
        if on_exit is not None:
            on_exit(_Exited(self, key, run, clock))
        return run

    def find(self, control: object) -> WatchedRun | None:
        """Return the run of `control`, if it is going on and has had a turn."""
        with self._lock:
            return self._runs.get(id(control))

    def exited(self, key: int, run: WatchedRun, now_s: float, kind: Kind) -> None:
        """Note that the graph of `run` ended, with an exception of that `kind` if with one."""
        with self._lock:
            if self._runs.get(key) is run:
                del self._runs[key]
        if _names.get(key) is run.name:
            _names.pop(key, None)
        self._ended(run, now_s, kind is None or issubclass(kind, self._pauses))


@dataclass(frozen=True, slots=True)
class _Exited:
    """Called when a graph ends; smaller than a function with all of this in its cells."""

    watch: RunWatch
    key: int
    run: WatchedRun
    clock: Clock

    def __call__(self, kind: Kind, _error: BaseException | None, _trace: object) -> None:
        with contextlib.suppress(Exception):  # a graph unwinds: nothing of ours may reach it
            self.watch.exited(self.key, self.run, self.clock(), kind)
