"""Virtual time for every async test, and a look at what each test leaves behind."""

import asyncio
import os
from collections.abc import Callable, Generator
from functools import partial

import pytest
from hypothesis import settings

from langchain_spectool.testing import VirtualTimeLoop

SETTLE_S = 1.0
"""How long after its run a task of ours may live, in seconds of the loop's clock."""
PATIENCE_S = 10.0
"""Real seconds a thread may be silent: a busy machine is slow, not hung."""

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# What a developer has set for their own agents must not decide how the tests run.
os.environ.pop("SPECTOOL_MODE", None)
os.environ["LANGSMITH_TRACING"] = "false"

_loops: list[asyncio.AbstractEventLoop] = []


def _kept(factory: Callable[[], asyncio.AbstractEventLoop]) -> asyncio.AbstractEventLoop:
    loop = factory()
    _loops.append(loop)
    return loop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give each async test a virtual clock, or a real loop where it is marked `real_loop`."""
    if item.get_closest_marker("real_loop"):
        return {"real": lambda: _kept(asyncio.SelectorEventLoop)}
    return {"virtual": lambda: _kept(partial(VirtualTimeLoop, patience_s=PATIENCE_S))}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves a task of ours running, while its loop is still open."""
    try:
        result = yield
        names = [name for loop in _loops if not loop.is_closed() for name in _left_behind(loop)]
    finally:
        _loops.clear()
    assert not names, f"tasks left behind: {names}"
    return result


def _left_behind(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the names of our tasks that still run in `loop` after it had time to settle."""
    ours = [task for task in asyncio.all_tasks(loop) if task.get_name().startswith("spectool")]
    if not ours:
        return []
    _, running = loop.run_until_complete(asyncio.wait(ours, timeout=SETTLE_S))
    return sorted(task.get_name() for task in running)
