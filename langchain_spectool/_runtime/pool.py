"""Daemon threads for early runs: bounded, never queued, never waited for at exit."""

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable

Task = Callable[[], None]

IDLE_S = 0.5
"""Seconds an idle thread waits for more work before it ends."""


class DaemonPool:
    """Runs tasks in at most `size` daemon threads, and refuses what has no thread free.

    A `ThreadPoolExecutor` would join its threads at interpreter exit and so hold it for as long
    as an abandoned body runs. Here an abandoned body keeps its thread, and is counted, until it
    returns; the interpreter may exit meanwhile.
    """

    def __init__(self, size: int, *, name: str = "spectool") -> None:
        """Start no thread yet.

        Raises:
            ValueError: `size` is not positive.
        """
        if size < 1:
            msg = f"a pool needs at least 1 thread, got {size!r}"
            raise ValueError(msg)
        self._size = size
        self._name = name
        self._numbers = itertools.count(1)
        self._tickets = itertools.count(1)
        self._reset()

    def _reset(self) -> None:
        # A forked child has none of its parent's threads, and may have copied a taken lock.
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._tasks: deque[tuple[int, Task]] = deque()
        self._threads = 0
        self._running: set[int] = set()

    @property
    def busy(self) -> int:
        """How many tasks have not returned, abandoned ones included."""
        return len(self._running)

    @property
    def running(self) -> frozenset[int]:
        """The numbers of those tasks, counted up from the first."""
        with self._lock:
            return frozenset(self._running)

    def submit(self, task: Task) -> bool:
        """Run `task`, which must not raise, or return False when every thread is taken."""
        with self._lock:
            if len(self._running) >= self._size:
                return False
            if len(self._running) >= self._threads and not self._start_thread():
                return False
            number = next(self._tickets)
            self._running.add(number)
            self._tasks.append((number, task))
            self._news.notify()
        return True

    def _start_thread(self) -> bool:
        name = f"{self._name}-{next(self._numbers)}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError:  # the system gives no more, or the interpreter is ending
            return False
        self._threads += 1
        return True

    def _next(self) -> tuple[int, Task] | None:
        with self._lock:
            while not self._tasks:
                if not self._news.wait(IDLE_S) and not self._tasks:
                    self._threads -= 1
                    return None
            return self._tasks.popleft()

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            number, task = taken
            try:
                task()
            except BaseException:
                with self._lock:
                    self._threads -= 1
                raise
            finally:
                del task, taken
                with self._lock:
                    self._running.discard(number)


POOL = DaemonPool(64)
"""The process's pool for early runs and sync speculators."""

if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows does not fork
    os.register_at_fork(after_in_child=POOL._reset)  # pyright: ignore[reportPrivateUsage] # noqa: SLF001
