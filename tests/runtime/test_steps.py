"""Going through steps: by blocking and by awaiting, with the same answers and the same errors."""

import asyncio
import contextvars
import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from langchain_spectool._core.flight import Outcome
from langchain_spectool._runtime import steps as steps_module
from langchain_spectool._runtime.landing import Landing
from langchain_spectool._runtime.pool import DaemonPool
from langchain_spectool._runtime.steps import (
    Body,
    Look,
    Raised,
    Steps,
    Wait,
    aperform,
    off_the_loop,
    perform,
)

PATIENCE_S = 5.0
WAYS = ("perform", "aperform")
both = pytest.mark.parametrize("way", WAYS)

tenant = contextvars.ContextVar("tenant", default="nobody")


class PlantedError(ValueError):
    """An error that can be referenced weakly."""


async def go(way: str, steps: Steps, body: Callable[[], Any]) -> Any:
    """Go through `steps` the way it says."""
    if way == "perform":
        return perform(steps, body)

    async def abody() -> Any:
        return body()

    return await aperform(steps, abody)


def never() -> None:
    """A body that must not run."""
    raise AssertionError


def body_only() -> Steps:
    """Run the body, and answer what it gives."""
    return (yield Body())


def landed(state: Any = "landed") -> Landing[Outcome]:
    """Return a landing whose flight is home."""
    landing: Landing[Outcome] = Landing()
    landing.land(Outcome(state=state))
    return landing


def until(holds: Callable[[], bool]) -> None:
    """Wait for a thread to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)


@contextmanager
def no_cycles() -> Iterator[None]:
    """Only reference counts free things inside the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@both
async def test_answer_without_a_step(way: str) -> None:
    """Steps that need nothing done give their answer, and no body runs."""

    def steps() -> Steps:
        return "served"
        yield Body()

    assert await go(way, steps(), never) == "served"


@both
async def test_body_runs_once(way: str) -> None:
    """The body's value is the step's result."""
    ran: list[int] = []

    def body() -> str:
        ran.append(1)
        return "real"

    assert await go(way, body_only(), body) == "real"
    assert ran == [1]


@both
@pytest.mark.parametrize(
    "kind", [PlantedError, SystemExit, KeyboardInterrupt, asyncio.CancelledError]
)
async def test_error_of_the_body_leaves_bare(way: str, kind: type[BaseException]) -> None:
    """Type, message, cause and the body's own frames stay; nothing of ours is its context."""
    cause = KeyError("why")

    def body() -> None:
        raise kind("no") from cause

    with pytest.raises(kind, match="no") as caught:
        await go(way, body_only(), body)
    assert caught.value.__cause__ is cause
    assert caught.value.__context__ is None
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "body"


@both
async def test_error_of_the_body_keeps_its_context(way: str) -> None:
    """An error raised while another was handled still says so."""

    def body() -> None:
        try:
            {}["first"]
        except KeyError:
            raise PlantedError("second")  # noqa: B904 - its context is the point

    with pytest.raises(PlantedError) as caught:
        await go(way, body_only(), body)
    assert isinstance(caught.value.__context__, KeyError)


@both
async def test_error_of_the_body_is_freed_without_the_collector(way: str) -> None:
    """No frame of ours holds the error that it is part of."""
    gone: list[weakref.ref[PlantedError]] = []

    def body() -> None:
        error = PlantedError("no")
        gone.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async def run() -> None:
        try:
            await go(way, body_only(), body)
        except PlantedError:
            return

    with no_cycles():
        await run()
        assert gone[0]() is None


def test_error_is_raised_again_only_once() -> None:
    """What was let go of is not there any more."""
    raised = Raised(PlantedError("no"))
    with pytest.raises(PlantedError):
        raised.again()
    with pytest.raises(RuntimeError, match="only once"):
        raised.again()


@both
async def test_look_is_answered(way: str) -> None:
    """A user's function is called for the steps, in the context of the call."""
    seen: list[Any] = []

    def steps() -> Steps:
        seen.append((yield Look(tenant.get)))
        return "done"

    token = tenant.set("acme")
    try:
        assert await go(way, steps(), never) == "done"
    finally:
        tenant.reset(token)
    assert seen == ["acme"]


@both
async def test_error_of_a_look_is_for_the_steps(way: str) -> None:
    """A function that raises ends nothing: the steps get `Raised`."""
    seen: list[Any] = []

    def fail() -> None:
        raise PlantedError("no")

    def steps() -> Steps:
        seen.append((yield Look(fail)))
        return (yield Body())

    assert await go(way, steps(), lambda: "real") == "real"
    assert isinstance(seen[0], Raised)


@both
async def test_wait_for_what_has_landed(way: str) -> None:
    """A landed flight is not waited for."""

    def steps() -> Steps:
        yield Wait(landed())
        return "done"

    assert await go(way, steps(), never) == "done"


def test_wait_blocks_a_plain_thread() -> None:
    """Without a loop, waiting blocks until the flight lands."""
    landing: Landing[Outcome] = Landing()
    got: list[str] = []

    def steps() -> Steps:
        yield Wait(landing)
        got.append("landed")
        return "done"

    thread = threading.Thread(target=lambda: got.append(perform(steps(), never)))
    thread.start()
    assert not got
    landing.land(Outcome(state="landed"))
    thread.join(PATIENCE_S)
    assert got == ["landed", "done"]


async def test_wait_never_blocks_a_loop() -> None:
    """On a loop's own thread a blocking call does not wait: the loop may fly the flight."""
    landing: Landing[Outcome] = Landing()
    seen: list[bool] = []

    def steps() -> Steps:
        yield Wait(landing)
        seen.append(landing.done)
        return (yield Body())

    assert perform(steps(), lambda: "real") == "real"
    assert seen == [False]


async def test_awaited_wait_takes_as_long_as_the_flight() -> None:
    """The loop goes on meanwhile."""
    landing: Landing[Outcome] = Landing()
    loop = asyncio.get_running_loop()
    loop.call_later(3, landing.land, Outcome(state="landed"))

    def steps() -> Steps:
        yield Wait(landing)
        return loop.time()

    assert await go("aperform", steps(), never) == 3


@pytest.mark.parametrize("step", [Wait(Landing()), Body()], ids=["wait", "body"])
async def test_cancelled_caller_closes_the_steps(step: Wait | Body) -> None:
    """Cancelled in a wait, steps end there; in the body, they learn of it."""
    ends: list[str] = []

    def steps() -> Steps:
        try:
            value = yield step
        except GeneratorExit:
            ends.append("closed")
            raise
        ends.append(type(value).__name__)
        return value

    task = asyncio.create_task(aperform(steps(), lambda: asyncio.sleep(100)))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["closed" if isinstance(step, Wait) else "Raised"]


async def test_cancelled_caller_leaves_a_look_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function goes on in its thread, which stays usable; the steps are closed."""
    pool = DaemonPool(1)
    monkeypatch.setattr(steps_module, "POOL", pool)
    gate = threading.Event()
    ends: list[str] = []

    def steps() -> Steps:
        try:
            yield Look(lambda: gate.wait(PATIENCE_S))
        finally:
            ends.append("closed")

    task = asyncio.create_task(aperform(steps(), lambda: asyncio.sleep(0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["closed"]
    assert pool.busy == 1
    gate.set()
    until(lambda: pool.busy == 0)
    assert await off_the_loop(lambda: "next") == "next"


@both
async def test_failing_steps_leave_as_they_are(way: str) -> None:
    """An error in the steps themselves is nobody else's."""

    def steps() -> Steps:
        yield Body()
        raise PlantedError("steps")

    with pytest.raises(PlantedError, match="steps"):
        await go(way, steps(), lambda: "real")


# --- off the loop


async def test_off_the_loop_runs_in_another_thread() -> None:
    """A function that may block never runs on the loop's thread."""
    assert await off_the_loop(threading.get_ident) != threading.get_ident()


async def test_off_the_loop_has_a_context_of_its_own() -> None:
    """It sees the caller's variables and changes none of them."""
    token = tenant.set("acme")

    def look() -> str:
        seen = tenant.get()
        tenant.set("changed")
        return seen

    try:
        assert await off_the_loop(look) == "acme"
        assert tenant.get() == "acme"
    finally:
        tenant.reset(token)


async def test_off_the_loop_raises_what_the_function_raised() -> None:
    """An Exception is the caller's, as it is."""

    def fail() -> None:
        raise PlantedError("no")

    with pytest.raises(PlantedError, match="no"):
        await off_the_loop(fail)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_off_the_loop_ends_no_loop(kind: type[BaseException]) -> None:
    """What would end the loop, or look like a cancellation, becomes an Exception."""

    def fail() -> None:
        raise kind("no")

    with pytest.raises(RuntimeError, match=f"raised {kind.__name__}"):
        await off_the_loop(fail)


async def test_off_the_loop_without_a_free_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no thread free it fails at once, rather than block the loop."""
    pool = DaemonPool(1)
    monkeypatch.setattr(steps_module, "POOL", pool)
    gate = threading.Event()
    assert pool.submit(lambda: gate.wait(PATIENCE_S) and None)  # type: ignore[arg-type,func-returns-value]
    try:
        with pytest.raises(RuntimeError, match="no thread is free"):
            await off_the_loop(never)
    finally:
        gate.set()
