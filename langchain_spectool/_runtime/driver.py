"""The two thin drivers of the one machine: asyncio tasks for `ainvoke`, threads for `invoke`.

This module alone starts tasks. Every job has an owner, a name and a deadline.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

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
    expired: Callable[[], None]
    """Told that the deadline has passed while the job still runs."""


class Ticket(Protocol):
    """A job on its way."""

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


class AsyncDriver:
    """Runs jobs as tasks of the running loop, and blocking ones in the pool's threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: DaemonPool = POOL) -> None:
        """Drive on `loop`, which must be the running one."""
        self._loop = loop
        self._pool = pool
        self._thread = threading.get_ident()
        self.clock: Callable[[], float] = loop.time

    def start(self, job: Job, context: Context) -> Ticket | None:
        """Start `job`; see `Driver.start`. From another thread there is no room on this loop."""
        if threading.get_ident() != self._thread:
            return None
        if job.arun is None:
            return _start_thread(self._pool, job, context, self._loop)
        task = self._loop.create_task(job.arun(), name=job.name, context=context)
        timer = self._loop.call_later(job.timeout_s, job.expired)
        ticket = _TaskTicket(self._loop, task)

        def finish(task: asyncio.Task[Any]) -> None:
            timer.cancel()
            failed = task.cancelled() or task.exception() is not None
            job.done(None if failed else task.result())

        task.add_done_callback(finish)
        return ticket


class ThreadDriver:
    """Runs jobs in the pool's daemon threads."""

    def __init__(self, pool: DaemonPool = POOL) -> None:
        """Drive in the threads of `pool`."""
        self._pool = pool
        self.clock: Callable[[], float] = time.monotonic

    def start(self, job: Job, context: Context) -> Ticket | None:
        """Start `job`; see `Driver.start`. Deadlines are looked at by whoever claims."""
        return _start_thread(self._pool, job, context, None)


class _TaskTicket:
    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._task: asyncio.Task[Any] = task

    def cancel(self) -> None:
        if self._task.done():
            return
        if threading.get_ident() == self._thread:
            self._task.cancel()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)


class _ThreadTicket:
    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop | None) -> None:
        self._job = job
        self._loop = loop
        self._timer = None if loop is None else loop.call_later(job.timeout_s, job.expired)

    def finish(self, result: object) -> None:
        self.forget_deadline()
        self._job.done(result)

    def forget_deadline(self) -> None:
        if self._timer is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._timer.cancel)

    def cancel(self) -> None:
        """Abandon it: a thread cannot be stopped."""


def _start_thread(
    pool: DaemonPool, job: Job, context: Context, loop: asyncio.AbstractEventLoop | None
) -> Ticket | None:
    if job.run is None:
        return None
    run, ticket = job.run, _ThreadTicket(job, loop)

    def work() -> None:
        result = None
        try:
            result = context.run(run)
        finally:
            ticket.finish(result)

    if not pool.submit(work):
        ticket.forget_deadline()
        return None
    return ticket
