"""Where values land: whoever waits, on whichever thread or loop, gets them and owns nothing."""

import asyncio
import threading
import weakref
from collections.abc import Callable

import pytest

from langchain_spectool._runtime.landing import Landing, call_on, running_loop

PATIENCE_S = 5.0


class Value:
    """Something that can be referenced weakly."""


async def test_value_is_awaited_before_and_after_it_lands() -> None:
    """Waiters of before and askers of after get the same object."""
    landing: Landing[Value] = Landing()
    before = asyncio.create_task(landing.arrival())
    await asyncio.sleep(1)
    assert not landing.done
    value = Value()
    landing.land(value)
    assert landing.done
    assert await before is value
    assert await landing.arrival() is value
    assert landing.wait() is value


async def test_first_value_stays() -> None:
    """What comes second is ignored."""
    landing: Landing[int] = Landing()
    landing.land(1)
    landing.land(2)
    assert await landing.arrival() == 1


async def test_cancelled_waiter_takes_nothing_along() -> None:
    """One waiter is cancelled, then the value lands: the other gets it (B37)."""
    landing: Landing[str] = Landing()
    first = asyncio.create_task(landing.arrival())
    second = asyncio.create_task(landing.arrival())
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(1)
    landing.land("v")
    assert await second == "v"
    assert first.cancelled()


def test_thread_blocks_until_the_value_is_there() -> None:
    """A thread that waits first gets what another thread lands."""
    landing: Landing[str] = Landing()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(landing.wait()))
    thread.start()
    assert not got
    landing.land("v")
    thread.join(PATIENCE_S)
    assert got == ["v"]


async def test_value_from_another_thread_wakes_the_loop() -> None:
    """The loop learns of a value that a thread lands."""
    landing: Landing[str] = Landing()
    waiting = asyncio.create_task(landing.arrival())
    await asyncio.sleep(0)
    thread = threading.Thread(target=landing.land, args=["v"])
    thread.start()
    thread.join()
    assert await waiting == "v"


def test_value_between_the_look_and_the_wait_is_not_missed() -> None:
    """The value lands after the waiter looked and before it registered: it wakes all the same."""
    landing: Landing[str] = Landing()
    landing.land("v")
    woken: list[int] = []
    landing._wake_by(lambda: woken.append(1))
    assert woken == [1]


def test_loop_closed_under_a_waiter(caplog: pytest.LogCaptureFixture) -> None:
    """A value for a loop that was closed meanwhile goes nowhere, without a word."""
    landing: Landing[str] = Landing()
    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(landing.arrival())
    loop.call_soon(loop.stop)
    loop.run_forever()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    landing.land("v")
    assert landing.wait() == "v"
    assert not caplog.records


def test_only_a_closed_loop_excuses_silence() -> None:
    """Another RuntimeError of an open loop is not swallowed."""

    class Refusing(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *_: object, **__: object) -> asyncio.Handle:
            raise RuntimeError("no")

    loop = Refusing()
    try:
        with pytest.raises(RuntimeError, match="no"):
            call_on(loop, print)
    finally:
        loop.close()
    call_on(loop, print)


async def test_waiting_keeps_no_context_alive() -> None:
    """The handle that wakes a waiter holds no copy of its context."""
    landing: Landing[None] = Landing()
    made: list[Callable[[], object]] = []
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        value = Value()
        made.append(weakref.ref(value))
        _variable.set(value)
        await landing.arrival()

    import contextvars  # noqa: PLC0415 - used in this test only

    _variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")
    task = loop.create_task(wait())
    await asyncio.sleep(0)
    landing.land(None)
    await task
    del task
    await asyncio.sleep(0)
    assert made[0]() is None


async def test_running_loop() -> None:
    """The loop of this thread is known, and that another thread has none."""
    assert running_loop() is asyncio.get_running_loop()
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(running_loop()))
    thread.start()
    thread.join()
    assert found == [None]
