"""`Rules`: a function of your own guesses."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

from langchain_spectool._core.guess import Guess, TurnRequest

Rule = Callable[[Sequence[Any]], Iterable[Guess]]


class Rules:
    """Guesses by a function from the request's messages to guesses.

    The function runs on the event loop under `ainvoke`, so it must not block, and it must not
    change the messages.
    """

    name = "rules"
    samples = 1

    def __init__(self, fn: Rule, *, timeout_s: float = 30.0) -> None:
        """Guess by `fn`.

        Raises:
            ValueError: `fn` cannot be called, or `timeout_s` is not positive.
        """
        if not callable(fn):
            msg = f"`fn` must be a function from messages to guesses, got {fn!r}"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
        if not timeout_s > 0:
            msg = f"`timeout_s` must be more than 0 seconds, got {timeout_s!r}"
            raise ValueError(msg)
        self._fn = fn
        self.timeout_s = timeout_s

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:  # noqa: ARG002 - the port
        """Yield what the function returns."""
        yield from self._fn(request.messages)

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Yield what the function returns."""
        for guess in self.guess(request, sample):
            yield guess
