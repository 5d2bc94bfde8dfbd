"""The pool of daemon threads: bounded, never queued, never in the way of the interpreter's end."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from langchain_spectool._runtime import pool as pool_module
from langchain_spectool._runtime.pool import POOL, DaemonPool

PATIENCE_S = 5.0


@contextmanager
def occupied(pool: DaemonPool, count: int) -> Iterator[threading.Event]:
    """Keep `count` threads busy inside the block, or until the event is set."""
    gate = threading.Event()
    running = threading.Semaphore(0)

    def body() -> None:
        running.release()
        gate.wait(PATIENCE_S)

    for _ in range(count):
        assert pool.submit(body)
    for _ in range(count):
        assert running.acquire(timeout=PATIENCE_S)
    try:
        yield gate
    finally:
        gate.set()


def until(holds: Callable[[], bool]) -> None:
    """Wait for other threads to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)


def threads_of(name: str) -> list[threading.Thread]:
    """Return the pool's living threads."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_has_threads(size: int) -> None:
    """A pool without threads is refused."""
    with pytest.raises(ValueError, match=f"at least 1 thread, got {size}"):
        DaemonPool(size)


def test_full_pool_refuses() -> None:
    """With all threads taken a task is refused, not queued; with one free again it runs."""
    pool = DaemonPool(2)
    ran = threading.Event()
    with occupied(pool, 2) as gate:
        assert pool.busy == 2
        assert not pool.submit(ran.set)
        gate.set()
        until(lambda: pool.busy == 0)
        assert not ran.is_set()
        assert pool.submit(ran.set)
        assert ran.wait(PATIENCE_S)


def test_abandoned_task_keeps_its_thread_until_it_returns() -> None:
    """Nobody waits for a task any more: it still counts, and gives its room back at its end."""
    pool = DaemonPool(1)
    with occupied(pool, 1) as gate:
        assert pool.busy == 1
        assert not pool.submit(lambda: None)
        gate.set()
        until(lambda: pool.busy == 0)
    assert pool.submit(lambda: None)


def test_threads_are_named_daemons() -> None:
    """The interpreter may end while they work, and they can be told from others."""
    pool = DaemonPool(2, name="named")
    with occupied(pool, 2):
        threads = threads_of("named-")
        assert len({thread.name for thread in threads}) == 2
        assert all(thread.daemon for thread in threads)


def test_idle_thread_is_used_again() -> None:
    """One task after the other needs one thread only."""
    pool = DaemonPool(4, name="again")
    seen: list[int] = []
    for _ in range(3):
        assert pool.submit(lambda: seen.append(threading.get_ident()))
        until(lambda: pool.busy == 0)
    assert len(set(seen)) == 1


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has nothing to do for `IDLE_S` ends, and the pool works on after that."""
    monkeypatch.setattr(pool_module, "IDLE_S", 0.01)
    pool = DaemonPool(3, name="idle")
    with occupied(pool, 3):
        assert len(threads_of("idle-")) == 3
    until(lambda: not threads_of("idle-"))
    with occupied(pool, 3):
        assert pool.busy == 3


def test_task_taken_by_a_busy_thread_wakes_nobody_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Idle threads that were woken in vain end as soon as the others."""
    monkeypatch.setattr(pool_module, "IDLE_S", 0.01)
    pool = DaemonPool(8, name="vain")
    for _ in range(20):
        for _ in range(100):
            pool.submit(lambda: None)
        until(lambda: not threads_of("vain-"))


def test_task_that_raises_costs_only_its_thread() -> None:
    """A task that breaks its promise ends its thread; the pool knows, and starts another."""
    pool = DaemonPool(1)
    failures: list[BaseException | None] = []
    hook, threading.excepthook = threading.excepthook, lambda args: failures.append(args.exc_value)
    try:

        def fail() -> None:
            raise ValueError("planted")

        assert pool.submit(fail)
        until(lambda: bool(failures))
        ran = threading.Event()
        until(lambda: pool.submit(ran.set))
        assert ran.wait(PATIENCE_S)
    finally:
        threading.excepthook = hook


def test_no_more_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system starts no thread there is no room, and later there is again."""
    pool = DaemonPool(1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not pool.submit(lambda: None)
    assert pool.busy == 0
    ran = threading.Event()
    assert pool.submit(ran.set)
    assert ran.wait(PATIENCE_S)


def test_many_threads_submit_at_once() -> None:
    """Tasks from many threads all run once, or are refused; none is lost."""
    pool = DaemonPool(8)
    done = threading.Semaphore(0)
    accepted: list[bool] = []
    start = threading.Barrier(16)

    def submitter() -> None:
        start.wait(PATIENCE_S)
        accepted.extend([pool.submit(done.release) for _ in range(50)])

    threads = [threading.Thread(target=submitter) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    until(lambda: pool.busy == 0)
    ran = 0
    while done.acquire(blocking=False):
        ran += 1
    assert len(accepted) == 800
    assert ran == sum(accepted) > 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="this system does not fork")
def test_forked_child_starts_with_no_threads() -> None:
    """A child forked while all threads idle or work has the whole pool, in threads of its own."""
    with occupied(POOL, 2):
        child = multiprocessing.get_context("fork").Process(target=_works_in_a_child)
        child.start()
        child.join(PATIENCE_S)
    assert child.exitcode == 0


def _works_in_a_child() -> None:
    assert POOL.busy == 0
    ran = threading.Event()
    assert POOL.submit(ran.set)
    assert ran.wait(PATIENCE_S)
