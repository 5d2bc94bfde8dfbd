"""What a run may leave behind: tasks, threads, and work that is still to end."""

import asyncio
import threading
import time
from collections.abc import Callable

PATIENCE_S = 5.0


def our_tasks() -> list[str]:
    """Return the names of our tasks on the running loop."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("spectool")]


def our_threads() -> list[str]:
    """Return the names of our threads."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("spectool")]


def until(holds: Callable[[], bool]) -> None:
    """Wait for threads to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)
