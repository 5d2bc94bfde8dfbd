"""One suite for both drivers: what a job may rely on, whoever runs it."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from langchain_spectool._runtime.driver import AsyncDriver, Driver, Job, ThreadDriver, Ticket
from langchain_spectool._runtime.landing import Landing
from langchain_spectool._runtime.pool import DaemonPool
from langchain_spectool.testing import VirtualTimeLoop

DRIVERS = ("async", "async_blocking", "thread")
"""Tasks of a loop, blocking jobs handed on by a loop, and threads without a loop."""
PATIENCE_S = 5.0

tenant = contextvars.ContextVar("tenant", default="nobody")
started = pytest.mark.parametrize("kind", DRIVERS)


@dataclass
class Bench:
    """A driver, its pool, and what its jobs reported."""

    driver: Driver
    pool: DaemonPool
    blocking: bool
    results: list[Any] = field(default_factory=list[Any])
    expired: int = 0
    home: Landing[Any] = field(default_factory=Landing[Any])

    def job(
        self,
        run: Callable[[], Any],
        arun: Callable[[], Coroutine[Any, Any, Any]],
        *,
        timeout_s: float = 60.0,
    ) -> Job:
        return Job(
            name="spectool:look",
            timeout_s=timeout_s,
            run=run,
            arun=None if self.blocking else arun,
            done=self._done,
            expired=self._expired,
        )

    def start(self, body: Callable[[], Any], **options: Any) -> Ticket | None:
        """Start `body`, a plain function, in the form that the driver takes."""

        async def arun() -> Any:
            return body()

        return self.driver.start(self.job(body, arun, **options), contextvars.copy_context())

    async def settled(self) -> Any:
        """Wait for one job; return its result."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with loop.outside_work() if self.blocking else nullcontext():
            return await self.home.arrival()

    def _done(self, result: Any) -> None:
        self.results.append(result)
        self.home.land(result)

    def _expired(self) -> None:
        self.expired += 1


def bench(kind: str, size: int = 2) -> Bench:
    """Return a bench; an async one belongs to the loop that runs now."""
    pool = DaemonPool(size, name="bench")
    if kind == "thread":
        return Bench(ThreadDriver(pool), pool, blocking=True)
    driver = AsyncDriver(asyncio.get_running_loop(), pool)
    return Bench(driver, pool, blocking=kind == "async_blocking")


@contextmanager
def held() -> Iterator[threading.Event]:
    """An event that is set at the end of the block, so that no body outlives its test."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


async def until(holds: Callable[[], bool]) -> None:
    """Let threads and tasks go on until `holds`, in real time."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        await asyncio.sleep(0)


@started
async def test_result_is_told_once(kind: str) -> None:
    """`done` gets what the body returned, once."""
    here = bench(kind)
    assert here.start(lambda: "found") is not None
    assert await here.settled() == "found"
    await until(lambda: here.pool.busy == 0)
    assert here.results == ["found"]
    assert here.expired == 0


@started
async def test_runs_in_the_given_context(kind: str) -> None:
    """A body sees the variables of its own context, and what it sets stays there."""
    here = bench(kind)
    context = contextvars.copy_context()
    context.run(tenant.set, "acme")

    def body() -> str:
        seen = tenant.get()
        tenant.set("changed")
        return seen

    async def arun() -> str:
        return body()

    assert here.driver.start(here.job(body, arun), context) is not None
    assert await here.settled() == "acme"
    assert tenant.get() == "nobody"
    assert context[tenant] == "changed"


@started
async def test_body_never_runs_inside_the_start(kind: str) -> None:
    """Starting a guess costs the model's call nothing of the body's own time."""
    here = bench(kind)
    with held() as gate:
        ran: list[int] = []

        def body() -> None:
            if here.blocking:
                gate.wait(PATIENCE_S)
            ran.append(1)

        here.start(body)
        assert not ran
        gate.set()
        await here.settled()


@started
@pytest.mark.parametrize("error", [ValueError("no"), SystemError("no"), asyncio.CancelledError()])
async def test_what_a_body_raises_is_no_result(kind: str, error: BaseException) -> None:
    """A body that breaks its promise is a job without a result, and nothing more."""
    here = bench(kind)

    def body() -> None:
        raise error

    here.start(body)
    assert await here.settled() is None
    await until(lambda: here.pool.busy == 0)
    assert here.results == [None]


async def test_thread_survives_what_a_body_raises() -> None:
    """SystemExit in a thread ends neither the pool's thread nor the count of it."""
    here = bench("thread", size=1)

    def leave() -> None:
        raise SystemExit(3)

    here.start(leave)
    assert await here.settled() is None
    await until(lambda: here.pool.busy == 0)
    here.home = Landing()
    assert here.start(lambda: "next") is not None
    assert await here.settled() == "next"


@started
async def test_a_job_has_a_name(kind: str) -> None:
    """Tasks carry the job's name, threads that of their pool."""
    here = bench(kind)

    def name() -> str:
        if here.blocking:
            return threading.current_thread().name
        task = asyncio.current_task()
        return "" if task is None else task.get_name()

    here.start(name)
    assert (await here.settled()).startswith("bench-" if here.blocking else "spectool:look")


async def test_cancelled_task_sees_it_and_has_no_result() -> None:
    """Cancelling a task raises CancelledError in its body and reports None."""
    here = bench("async")
    saw: list[str] = []

    async def arun() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            saw.append("cancelled")
            raise

    ticket = here.driver.start(here.job(lambda: None, arun), contextvars.copy_context())
    assert ticket is not None
    await asyncio.sleep(1)
    ticket.cancel()
    ticket.cancel()
    assert await here.settled() is None
    assert saw == ["cancelled"]
    ticket.cancel()
    assert here.results == [None]
    assert asyncio.get_running_loop().time() == 1


async def test_task_is_cancelled_from_another_thread() -> None:
    """A ticket may be cancelled by any thread; the body still ends on its own loop."""
    here = bench("async")

    async def arun() -> None:
        await asyncio.sleep(100)

    ticket = here.driver.start(here.job(lambda: None, arun), contextvars.copy_context())
    assert ticket is not None
    await asyncio.sleep(1)
    thread = threading.Thread(target=ticket.cancel)
    thread.start()
    await asyncio.sleep(0)
    thread.join()
    assert await here.settled() is None
    assert asyncio.get_running_loop().time() == 1


@pytest.mark.parametrize("kind", ["async_blocking", "thread"])
async def test_cancelled_thread_is_abandoned(kind: str) -> None:
    """A thread goes on after `cancel`, keeps its slot, and reports when it comes home."""
    here = bench(kind, size=1)
    with held() as gate:
        ticket = here.start(lambda: gate.wait(PATIENCE_S))
        assert ticket is not None
        ticket.cancel()
        assert not ticket.lost
        assert not here.results
        assert here.pool.busy == 1
        assert here.start(lambda: None) is None
    assert await here.settled() is True


@pytest.mark.parametrize("kind", ["async", "async_blocking"])
async def test_deadline_is_told_and_nothing_else_happens(kind: str) -> None:
    """At its deadline a job is reported late, once; whether it ends is its owner's choice."""
    here = bench(kind)
    loop = asyncio.get_running_loop()
    with held() as gate:

        async def arun() -> str:
            await asyncio.sleep(50)
            return "late"

        job = here.job(lambda: gate.wait(PATIENCE_S) and "late", arun, timeout_s=10)
        assert here.driver.start(job, contextvars.copy_context()) is not None
        loop._jumping._hung = here.pool.running  # type: ignore[attr-defined] # time passes all the same
        await asyncio.sleep(9.5)
        assert here.expired == 0
        await asyncio.sleep(1)
        assert here.expired == 1
        assert not here.results
        gate.set()
    await asyncio.sleep(45)
    assert await here.settled() == "late"
    assert here.expired == 1


async def test_deadline_without_an_owner_cancels_the_task() -> None:
    """Where nobody asks to be told, a late task is cancelled."""
    here = bench("async")
    job = Job(
        name="spectool:draft",
        timeout_s=10,
        run=None,
        arun=lambda: asyncio.sleep(100),
        done=here._done,
    )
    assert here.driver.start(job, contextvars.copy_context()) is not None
    assert await here.settled() is None
    assert asyncio.get_running_loop().time() == 10


@pytest.mark.parametrize("kind", ["async", "async_blocking"])
async def test_finished_job_leaves_no_deadline(kind: str) -> None:
    """The deadline of a job that is done is never told."""
    here = bench(kind)
    here.start(lambda: "found", timeout_s=10)
    await here.settled()
    await asyncio.sleep(100)
    assert here.expired == 0


@pytest.mark.parametrize("kind", ["async_blocking", "thread"])
async def test_no_free_thread_is_no_room(kind: str) -> None:
    """A blocking job without a free thread does not start, and is never queued."""
    here = bench(kind, size=1)
    with held() as gate:
        assert here.start(lambda: gate.wait(PATIENCE_S)) is not None
        assert here.start(lambda: "second", timeout_s=1) is None
        loop = asyncio.get_running_loop()
        loop._jumping._hung = here.pool.running  # type: ignore[attr-defined]
        await asyncio.sleep(2)
        assert here.expired == 0
    assert await here.settled() is True
    assert here.results == [True]


async def test_no_form_that_fits_is_no_room() -> None:
    """A job for event loops does not start in a thread."""
    here = bench("thread")

    async def arun() -> None:
        raise AssertionError

    job = Job(name="spectool:x", timeout_s=1, run=None, arun=arun, done=here._done)
    assert here.driver.start(job, contextvars.copy_context()) is None
    assert not here.results


@pytest.mark.parametrize("kind", ["async", "async_blocking"])
async def test_start_off_the_loop_is_no_room(kind: str) -> None:
    """From another thread, and so without the loop running there, nothing starts."""
    here = bench(kind)
    tickets: list[object] = []
    thread = threading.Thread(target=lambda: tickets.append(here.start(lambda: "never")))
    thread.start()
    thread.join()
    assert tickets == [None]
    assert here.pool.busy == 0
    assert not here.results


async def test_start_on_another_loop_is_no_room() -> None:
    """A driver of one loop starts nothing on the next one of the same thread."""
    other = asyncio.SelectorEventLoop()
    driver = AsyncDriver(other)
    other.close()

    async def arun() -> None:
        raise AssertionError

    job = Job(name="spectool:x", timeout_s=1, run=None, arun=arun, done=lambda _: None)
    assert driver.start(job, contextvars.copy_context()) is None


@started
async def test_clock_is_the_one_deadlines_are_counted_on(kind: str) -> None:
    """Async jobs live on the loop's clock, threads on the monotonic one."""
    here = bench(kind)
    if kind == "thread":
        assert here.driver.clock is time.monotonic
    else:
        await asyncio.sleep(3)
        assert here.driver.clock() == 3


async def test_eager_task_factory_is_passed_by() -> None:
    """A loop whose factory starts tasks at once does not run the body inside the start."""
    here = bench("async")
    loop = asyncio.get_running_loop()

    def factory(_: object, coroutine: Any, **options: Any) -> Any:
        raise AssertionError

    loop.set_task_factory(factory)
    try:
        assert here.start(lambda: "found") is not None
    finally:
        loop.set_task_factory(None)
    assert await here.settled() == "found"


def _on_a_loop_of_its_own(
    arun: Callable[[], Coroutine[Any, Any, Any]], results: list[Any], *, steps: int
) -> Ticket:
    """Start a task on a new loop, let it take `steps` steps, and close the loop by hand."""
    loop = asyncio.SelectorEventLoop()
    tickets: list[Ticket | None] = []

    def begin() -> None:
        job = Job(name="spectool:x", timeout_s=9, run=None, arun=arun, done=results.append)
        tickets.append(AsyncDriver(loop).start(job, contextvars.copy_context()))
        loop.stop()

    loop.call_soon(begin)
    loop.run_forever()
    for _ in range(steps):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    ticket = tickets.pop()
    assert ticket is not None
    return ticket


@pytest.mark.parametrize("steps", [0, 2])
def test_loop_closed_by_hand_loses_its_tasks(
    steps: int, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """A closed loop takes its tasks along, begun or not, without a word from asyncio."""
    results: list[Any] = []
    ticket = _on_a_loop_of_its_own(lambda: asyncio.sleep(5), results, steps=steps)
    assert ticket.lost
    ticket.cancel()
    ticket.cancel()
    del ticket
    assert results == [None]  # told once that nothing comes
    assert not caplog.records
    assert not recwarn.list


def test_task_that_ended_in_time_is_not_lost() -> None:
    """A task that was done before its loop closed is not lost."""
    results: list[Any] = []
    ticket = _on_a_loop_of_its_own(lambda: asyncio.sleep(0, "found"), results, steps=5)
    assert not ticket.lost
    assert results == ["found"]


# --- calls


@started
async def test_call_at_home_is_made_at_once(kind: str) -> None:
    """Where a driver starts jobs, it need not wait to be called."""
    called: list[int] = []
    bench(kind).driver.call(lambda: called.append(1))
    assert called == [1]


@pytest.mark.parametrize("kind", ["async", "async_blocking"])
async def test_call_from_a_thread_is_made_on_the_loop(kind: str) -> None:
    """Soon, once, in the loop's own thread, and in nobody's context: there jobs may start."""
    here, called = bench(kind), Landing[tuple[int, str, Ticket | None]]()

    def function() -> None:
        ticket = here.start(lambda: "found")
        called.land((threading.get_ident(), tenant.get(), ticket))

    context = contextvars.copy_context()
    context.run(tenant.set, "acme")
    thread = threading.Thread(target=context.run, args=(here.driver.call, function))
    thread.start()
    thread.join()
    assert not called.done
    where, whose, ticket = await called.arrival()
    assert (where, whose) == (threading.get_ident(), "nobody")
    assert ticket is not None
    assert await here.settled() == "found"


async def test_call_from_another_loop_is_made_on_its_own() -> None:
    """A loop in another thread is not home either."""
    here, called = bench("async"), Landing[int]()

    async def elsewhere() -> None:
        here.driver.call(lambda: called.land(threading.get_ident()))

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    thread.join()
    assert not called.done
    assert await called.arrival() == threading.get_ident()


def test_call_on_a_closed_loop_is_not_made() -> None:
    """Nobody is left to make it, and nobody hears of that."""
    loop = asyncio.new_event_loop()
    driver = AsyncDriver(loop, DaemonPool(1, name="bench"))
    loop.close()
    called: list[int] = []
    driver.call(lambda: called.append(1))
    assert called == []


def test_thread_driver_calls_in_any_thread() -> None:
    """The thread that brings a result goes on itself."""
    driver, called = ThreadDriver(DaemonPool(1, name="bench")), list[int]()

    def work() -> None:
        driver.call(lambda: called.append(threading.get_ident()))
        called.append(threading.get_ident())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    first, second = called
    assert first == second != threading.get_ident()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_call_raises_is_its_callers(kind: str) -> None:
    """At home a call is a plain call."""

    def fail() -> None:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        bench(kind).driver.call(fail)
