"""What every speculator promises, as a check to run on your own.

def test_my_speculator() -> None:
    check_speculator(MySpeculator(), TurnRequest(messages=[HumanMessage("hi")], tools=[search]))
"""

import asyncio
import copy
import math
import re
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._core.ports import Speculator, StreamSpeculator
from langchain_spectool._runtime.driver import AsyncDriver, Job
from langchain_spectool._runtime.landing import Landing

CANCEL_S = 1.0
"""Seconds a cancelled sample may take to end."""
_LABEL = re.compile(r"[a-z][a-z0-9_]*")

Result = TypeVar("Result")


def check_speculator(
    speculator: Speculator | StreamSpeculator, request: TurnRequest
) -> list[Guess]:
    """Run every sample of `speculator`, in both forms, as an agent would.

    Call it where no event loop runs. What a sample raises is raised here.

    Returns:
        The guesses of the blocking form, sample by sample.

    Raises:
        AssertionError: A promise is broken; the message says which and how to keep it.
    """
    _expect(
        _is_label(speculator.name),
        f"`name` is a label such as 'my_rules': lower case, digits and _; got {speculator.name!r}",
    )
    samples, listens = isinstance(speculator, Speculator), isinstance(speculator, StreamSpeculator)
    _expect(
        samples or listens,
        f"{speculator!r} has neither `samples`, `timeout_s`, `guess` and `aguess` "
        "nor `force` and `listen`",
    )
    if isinstance(speculator, StreamSpeculator):
        _check_listening(speculator, request)
    return _check_sampling(speculator, request) if isinstance(speculator, Speculator) else []


def _check_listening(speculator: StreamSpeculator, request: TurnRequest) -> None:
    _expect(_is_a(bool, speculator.force), f"`force` is True or False, got {speculator.force!r}")
    first, second = speculator.listen(request), speculator.listen(request)
    for assembler in (first, second):
        _expect(
            callable(getattr(assembler, "feed", None)),
            f"`listen` returns a `CallAssembler` or what stands for one, got {assembler!r}",
        )
    _expect(first is not second, "`listen` returns a fresh assembler for every attempt")
    _expect(first.feed([]) == [], "a fresh assembler knows of no call yet")


def _check_sampling(speculator: Speculator, request: TurnRequest) -> list[Guess]:
    _expect(
        _is_a(int, speculator.samples) and speculator.samples >= 0,
        f"`samples` is a whole number of 0 or more, got {speculator.samples!r}",
    )
    _expect(
        _is_a((int, float), speculator.timeout_s) and 0 < speculator.timeout_s < math.inf,
        f"`timeout_s` is a number of seconds above 0, got {speculator.timeout_s!r}",
    )
    messages, tools = copy.deepcopy([*request.messages]), [*request.tools]
    guesses = [g for n in range(speculator.samples) for g in speculator.guess(request, n)]
    _expect_guesses(guesses, "guess")
    _expect_guesses(_on_a_loop(_at_once(speculator, request)), "aguess")
    for number in range(speculator.samples):
        ended = _on_a_loop(_ends_when_cancelled(speculator, request, number))
        _expect(ended, f"sample {number} of `aguess` goes on after it was cancelled")
    _expect(
        [*request.messages] == messages and _same(request.tools, tools),
        "the request is shared by all samples: it must not be changed",
    )
    return guesses


def _expect(holds: bool, message: str) -> None:  # noqa: FBT001 - as in an assert
    if not holds:
        raise AssertionError(message)


def _is_label(name: object) -> bool:
    return isinstance(name, str) and _LABEL.fullmatch(name) is not None


def _is_a(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _expect_guesses(guesses: Iterable[object], form: str) -> None:
    for guess in guesses:
        _expect(isinstance(guess, Guess), f"`{form}` yields `Guess` objects, got {guess!r}")


def _same(tools: Sequence[object], were: Sequence[object]) -> bool:
    return len(tools) == len(were) and all(a is b for a, b in zip(tools, were, strict=True))


def _on_a_loop(work: Coroutine[Any, Any, Result]) -> Result:
    # `asyncio.run` would wait for ever for a sample that cannot be cancelled.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def _at_once(speculator: Speculator, request: TurnRequest) -> list[Guess]:
    samples = (_sample(speculator, request, number) for number in range(speculator.samples))
    return [guess for guesses in await asyncio.gather(*samples) for guess in guesses]


async def _sample(speculator: Speculator, request: TurnRequest, number: int) -> list[Guess]:
    return [guess async for guess in speculator.aguess(request, number)]


async def _ends_when_cancelled(speculator: Speculator, request: TurnRequest, number: int) -> bool:
    end: Landing[object] = Landing()
    job = Job(
        name=f"spectool:{speculator.name}",
        timeout_s=speculator.timeout_s,
        run=None,
        arun=lambda: _sample(speculator, request, number),
        done=end.land,
    )
    ticket = AsyncDriver(asyncio.get_running_loop()).start(job, copy_context())
    await asyncio.sleep(0)
    if ticket is not None:  # pragma: no branch - its loop runs here
        ticket.cancel()
    try:
        await asyncio.wait_for(end.arrival(), CANCEL_S)
    except TimeoutError:
        return False
    return True
