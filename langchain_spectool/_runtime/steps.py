"""Two ways to go through one generator of steps: by blocking, and by awaiting."""

import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, NoReturn

from langchain_spectool._core.flight import Outcome
from langchain_spectool._runtime.landing import Landing, running_loop
from langchain_spectool._runtime.pool import POOL


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a flight to land, where waiting is possible; answered nothing."""

    landing: Landing[Outcome]


@dataclass(frozen=True, slots=True)
class Look:
    """Call a user's function that may block; answered its result, or `Raised`."""

    function: Callable[[], Any]


class Body:
    """Run the tool's own body; answered its return value, or `Raised`."""


class Raised:
    """What a body raised, carried as a value so that it leaves bare."""

    def __init__(self, error: BaseException) -> None:
        """Hold `error`."""
        self._error: BaseException | None = error

    def again(self) -> NoReturn:
        """Raise the error, and let go of it.

        Frames that hold this object are part of the error's traceback: if it still held the
        error, only the garbage collector could free them, and the graph run with them.
        """
        error, self._error = self._error, None
        if error is None:
            msg = "an error is raised again only once"
            raise RuntimeError(msg)
        try:
            raise error
        finally:
            del error


Step = Wait | Look | Body
Steps = Generator[Step, Any, Any]


@dataclass(frozen=True, slots=True)
class _Answer:
    value: Any


def perform(steps: Steps, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - the tool's value
    """Go through `steps` by blocking; return their answer, or raise what it holds."""
    with contextlib.closing(steps):
        step = _next(steps, None)
        while not isinstance(step, _Answer):
            step = _next(steps, _done(step, body))
    return _given(step.value)


async def aperform(steps: Steps, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the tool's value
    """Go through `steps` by awaiting; return their answer, or raise what it holds."""
    with contextlib.closing(steps):
        step = _next(steps, None)
        while not isinstance(step, _Answer):
            step = _next(steps, await _adone(step, body))
    return _given(step.value)


def _next(steps: Steps, result: object) -> Step | _Answer:
    try:
        return steps.send(result)
    except StopIteration as stop:
        return _Answer(stop.value)


def _done(step: Step, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - the tool's value
    if isinstance(step, Wait):
        # Blocking the thread of a loop would stop the very loop that flies it.
        if running_loop() is None:
            step.landing.wait()
        return None
    if isinstance(step, Look):
        try:
            return step.function()
        except Exception as error:  # noqa: BLE001 - for the steps to judge
            return Raised(error)
    try:
        return body()
    except BaseException as error:  # noqa: BLE001 - raised again, bare, by `_given`
        return Raised(error)


async def _adone(step: Step, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the tool's value
    if isinstance(step, Wait):
        await step.landing.arrival()
        return None
    if isinstance(step, Look):
        try:
            return await off_the_loop(step.function)
        except Exception as error:  # noqa: BLE001 - for the steps to judge
            return Raised(error)
    try:
        return await body()
    except BaseException as error:  # noqa: BLE001 - raised again, bare, by `_given`
        return Raised(error)


async def off_the_loop(function: Callable[[], Any]) -> Any:  # noqa: ANN401 - the user's value
    """Call `function` in a thread of our pool, in a copy of this context.

    Raises:
        RuntimeError: No thread is free, or the function raised something that is no Exception.
    """
    answer: Landing[Any] = Landing()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            answer.land(context.run(function))
        except Exception as error:  # noqa: BLE001 - handed to the waiter
            answer.land(Raised(error))
        except BaseException as error:  # noqa: BLE001 - it may not end the loop
            answer.land(Raised(RuntimeError(f"{function!r} raised {error!r}")))

    if not POOL.submit(call):
        msg = "no thread is free to call a function that may block"
        raise RuntimeError(msg)
    return _given(await answer.arrival())


def _given(value: Any) -> Any:  # noqa: ANN401 - the tool's value
    if isinstance(value, Raised):
        value.again()
    return value
