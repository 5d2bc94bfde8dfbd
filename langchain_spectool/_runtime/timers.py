"""Calls something later: on the event loop that runs here, or in a daemon thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context

from langchain_spectool._runtime.landing import call_on, running_loop


def later(delay_s: float, function: Callable[[], None]) -> Callable[[], None]:
    """Have `function` called in `delay_s` seconds; return what takes that back, from any thread."""
    loop = running_loop()
    if loop is not None:
        return _on_loop(loop, delay_s, function)
    timer = threading.Timer(delay_s, function)
    timer.name, timer.daemon = "spectool-timer", True
    timer.start()
    return timer.cancel


def _on_loop(
    loop: asyncio.AbstractEventLoop, delay_s: float, function: Callable[[], None]
) -> Callable[[], None]:
    # A handle keeps the context it was made in, and with it the whole run.
    handle = loop.call_later(delay_s, function, context=Context())

    def cancel() -> None:
        if running_loop() is loop:
            handle.cancel()
        else:
            call_on(loop, handle.cancel)

    return cancel
