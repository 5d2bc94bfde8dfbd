"""A sample of a source of guesses, as a job for either driver."""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._core.ports import Clock, Forker, Speculator
from langchain_spectool._runtime.driver import Job
from langchain_spectool.graph.isolation import silence

MOST_GUESSES = 256
"""Most guesses taken from one sample; a source that never ends is cut off there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample, in both forms."""

    source: str
    request: TurnRequest
    """What it is asked; a chain's goes further than the main model's."""
    timeout_s: float
    guesses: Callable[[], Iterable[Guess]]
    aguesses: Callable[[], AsyncIterable[Guess]]

    def job(
        self,
        take: Callable[[Guess], object],
        *,
        is_open: Callable[[], bool],
        failed: Callable[[str, BaseException], None],
        clock: Clock,
    ) -> Job:
        """Return the job that hands every guess to `take` while the turn `is_open`."""
        deadline_s = clock() + self.timeout_s

        def closed() -> bool:
            return not is_open() or clock() >= deadline_s

        def run() -> None:
            try:
                silence()
                for guess in islice(self.guesses(), MOST_GUESSES):
                    if closed():  # a thread cannot be cancelled
                        return
                    take(guess)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a speculator's failure is a miss
                failed(self.source, error)

        async def arun() -> None:
            try:
                silence()
                await self._taken(take, closed)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a speculator's failure is a miss
                failed(self.source, error)

        return Job(
            name=f"spectool:{self.source}",
            timeout_s=self.timeout_s,
            run=run,
            arun=arun,
            done=_nothing,
        )

    async def _taken(self, take: Callable[[Guess], object], closed: Callable[[], bool]) -> None:
        left, close = MOST_GUESSES, None
        guesses = self.aguesses()
        try:
            close = getattr(guesses, "aclose", None)
            async for guess in guesses:
                if left == 0 or closed():
                    return
                left -= 1
                take(guess)
                await asyncio.sleep(0)  # a source that never waits must not hold the loop
        except GeneratorExit:
            close = None  # collected with its loop: there is nothing left to await on
            raise
        finally:
            if close is not None:  # else its request ends when the collector finds it
                await close()


def _nothing(*_: object) -> None:
    """Samples end by themselves; their guesses are all that counts."""


def sample_of(speculator: Speculator, request: TurnRequest, number: int) -> Sample:
    """Return sample `number` of what `speculator` guesses for `request`."""
    return Sample(
        source=speculator.name,
        request=request,
        timeout_s=speculator.timeout_s,
        guesses=lambda: speculator.guess(request, number),
        aguesses=lambda: speculator.aguess(request, number),
    )


def fork_of(forker: Forker, request: TurnRequest, partial: str, number: int) -> Sample:
    """Return sample `number` of what it guesses once the model has written `partial`."""
    return Sample(
        source=forker.name,
        request=request,
        timeout_s=forker.timeout_s,
        guesses=lambda: forker.fork(request, partial, number),
        aguesses=lambda: forker.afork(request, partial, number),
    )
