"""The two thin drivers of the one machine: asyncio tasks for `ainvoke`, threads for `invoke`.

This module alone starts tasks. Every job has an owner, a name and a deadline.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_spectool._runtime.landing import call_on, running_loop
from langchain_spectool._runtime.pool import POOL, DaemonPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work for a driver. Neither `run` nor `arun` lets an Exception out."""

    name: str
    timeout_s: float
    run: Callable[[], Any] | None
    """Blocking form; None if there is none."""
    arun: Callable[[], Coroutine[Any, Any, Any]] | None
    """Form for the event loop; None for work that would block it."""
    done: Callable[[Any], None]
    """Told the result, or None if the job was cancelled; called once, from any thread."""
    expired: Callable[[], None] | None = None
    """Told by an event loop that the deadline has passed while the job still runs. None: the
    job is cancelled then, if it can be."""


class Ticket(Protocol):
    """A job on its way."""

    @property
    def lost(self) -> bool:
        """Whether its event loop was closed under it, so that it will never be done."""
        ...

    def cancel(self) -> None:
        """Stop it if it can be stopped; else abandon it. Callable from any thread."""
        ...


class Driver(Protocol):
    """Starts jobs."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds, on the clock that this driver's deadlines are counted on."""
        ...

    def start(self, job: Job, context: Context) -> Ticket | None:
        """Start `job` in `context`; None if there is no room, or no form of it that fits."""
        ...

    def call(self, function: Callable[[], None]) -> None:
        """Have `function` called where this driver starts jobs: at once, or soon on its loop."""
        ...


class AsyncDriver:
    """Runs jobs as tasks of the running loop, and blocking ones in the pool's threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: DaemonPool = POOL) -> None:
        """Drive on `loop`."""
        self._loop = loop
        self._pool = pool
        self.clock: Callable[[], float] = loop.time

    def start(self, job: Job, context: Context) -> Ticket | None:
        """Start `job`; see `Driver.start`. There is room on this loop only while it runs here."""
        if running_loop() is not self._loop:
            return None
        if job.arun is not None:
            return _TaskTicket(self._loop, job, job.arun(), context)
        return _start_thread(self._pool, job, context, self._loop)

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on the loop; not at all once that is closed."""
        if running_loop() is self._loop:
            function()
        else:
            call_on(self._loop, function)


class ThreadDriver:
    """Runs jobs in the pool's daemon threads."""

    def __init__(self, pool: DaemonPool = POOL) -> None:
        """Drive in the threads of `pool`."""
        self._pool = pool
        self.clock: Callable[[], float] = time.monotonic

    def start(self, job: Job, context: Context) -> Ticket | None:
        """Start `job`; see `Driver.start`. Deadlines are looked after by the runs' janitor."""
        return _start_thread(self._pool, job, context, None)

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` here: any thread will do."""
        function()


class _TaskTicket:
    """A job that runs as a task. Once it is over, nothing of it is kept."""

    __slots__ = ("_done", "_task", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        job: Job,
        coroutine: Coroutine[Any, Any, Any],
        context: Context,
    ) -> None:
        self._done: Callable[[Any], None] | None = job.done
        """None once somebody was told: the loop, or who found that it was closed."""
        # Not by way of a task factory: an eager one would run the body inside the model's call.
        task = asyncio.Task(coroutine, loop=loop, name=job.name, context=context)
        # A loop closed by hand takes it along, which is no news to anybody.
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] # noqa: SLF001
        expired = task.cancel if job.expired is None else job.expired
        self._timer = loop.call_later(job.timeout_s, expired, context=Context())
        self._task: asyncio.Task[Any] | None = task
        """None once it is over."""
        task.add_done_callback(self._finish, context=context)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._timer.cancel()
        self._task = None
        failed = task.cancelled() or task.exception() is not None
        self._tell(None if failed else task.result())

    def _tell(self, result: object) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)

    @property
    def lost(self) -> bool:
        task = self._task
        return task is not None and task.get_loop().is_closed() and not task.done()

    def cancel(self) -> None:
        task = self._task
        if task is None:
            return
        loop = task.get_loop()
        if loop.is_closed():
            coroutine = task.get_coro()
            if inspect.iscoroutine(coroutine) and (
                inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
            ):
                coroutine.close()
            self._tell(None)
        elif running_loop() is loop:
            task.cancel()
        else:
            call_on(loop, task.cancel)


class _ThreadTicket:
    lost = False

    def cancel(self) -> None:
        """Abandon it: a thread cannot be stopped."""


def _start_thread(
    pool: DaemonPool, job: Job, context: Context, loop: asyncio.AbstractEventLoop | None
) -> Ticket | None:
    run = job.run
    if run is None:
        return None
    timer = None
    if loop is not None and job.expired is not None:
        timer = loop.call_later(job.timeout_s, job.expired, context=Context())

    def work() -> None:
        result = None
        try:
            result = context.run(run)
        except BaseException:  # noqa: BLE001 - the pool's thread has nobody to raise it to
            result = None
        if timer is not None and loop is not None:
            call_on(loop, timer.cancel)
        job.done(result)

    if not pool.submit(work):
        if timer is not None:
            timer.cancel()
        return None
    return _ThreadTicket()
