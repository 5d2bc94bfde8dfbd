"""What is looked at after tests that leave runs in the middle."""

import gc
import logging
from collections.abc import Iterator

import pytest

from langchain_spectool._runtime import runs
from langchain_spectool._runtime.pool import POOL
from tests.graph.leftovers import until


@pytest.fixture(scope="module")
def quick_collector() -> Iterator[None]:
    """The collector need not look at all that was imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test ends with a word from asyncio, a run in the registry or a thread at work."""
    caplog.set_level(logging.DEBUG, logger="asyncio")
    yield
    left = runs._all()
    for run in left:
        run.end()
    assert not left
    words = [r for r in caplog.records if r.name == "asyncio" and r.levelno > logging.DEBUG]
    assert not words
    until(lambda: POOL.busy == 0)
