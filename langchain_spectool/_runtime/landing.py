"""A value that comes once: blocked on from any thread, or awaited on any event loop."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def call_on(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: object) -> None:
    """Call back on `loop` from any thread; a loop that was closed has nobody left to tell."""
    try:
        # A handle keeps the context it was made in, and with it the whole run.
        loop.call_soon_threadsafe(callback, *args, context=Context())
    except RuntimeError:
        if not loop.is_closed():
            raise


class Landing(Generic[Value]):
    """Where one value lands.

    Who waits never owns it: a cancelled waiter leaves the value, and the other waiters, alone.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._wakes: tuple[Callable[[], None], ...] = ()
        self.done = False
        """Whether the value is there."""

    def land(self, value: Value) -> None:
        """Give the value; a second one is ignored."""
        with self._lock:
            if self.done:
                return
            self._value = value
            self.done = True
            wakes, self._wakes = self._wakes, ()
        for wake in wakes:
            wake()

    def wait(self) -> Value:
        """Block until the value is there."""
        if not self.done:
            landed = threading.Event()
            self._wake_by(landed.set)
            landed.wait()
        return self._value

    def within(self, timeout_s: float) -> bool:
        """Block until the value is there, `timeout_s` seconds at most; say whether it is."""
        if not self.done:
            landed = threading.Event()
            self._wake_by(landed.set)
            landed.wait(timeout_s)
        return self.done

    async def arrival(self) -> Value:
        """Await the value on the running loop."""
        if not self.done:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._wake_by(lambda: call_on(loop, _wake, waiter))
            await waiter
        return self._value

    def _wake_by(self, wake: Callable[[], None]) -> None:
        with self._lock:
            if not self.done:
                self._wakes = (*self._wakes, wake)
                return
        wake()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
