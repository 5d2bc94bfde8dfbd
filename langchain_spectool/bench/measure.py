"""Runs the arms of a comparison in turns, in one process, and checks that they agree."""

import asyncio
import gc
import math
import random
import statistics
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_spectool.graph.speculation import Speculation

Comparable = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of an arm."""

    seconds: float
    answers: Sequence[Comparable]
    """The messages of every agent run in it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Arm:
    """One side of a comparison, with what has been measured of it."""

    name: str
    task: str
    """Arms of one task must give equal answers."""
    run: Callable[[asyncio.Runner], Sample]
    speculation: Speculation | None = None
    hits: int = 0
    """How many committed calls of one run have to be answered early."""
    seconds: list[float] = field(default_factory=list[float])

    @property
    def median_s(self) -> float:
        """The median of its seconds."""
        return statistics.median(self.seconds)

    @property
    def p10_s(self) -> float:
        """The value that a tenth of its seconds do not exceed."""
        return sorted(self.seconds)[max(0, math.ceil(len(self.seconds) / 10) - 1)]


def interleave(
    arms: Sequence[Arm],
    repeats: int,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Run every arm once unmeasured, then `repeats` times, in a new order each time.

    No arm pays for another's garbage, nor for the collector's walks through all that is imported.

    Raises:
        RuntimeError: An arm gave other messages than the other arms of its task, or other
            numbers of hits than it must; then its times mean nothing.
    """
    known: dict[str, Comparable] = {}
    order = [*arms]
    shuffle = random.Random(0).shuffle  # noqa: S311 - a fair order, no secret
    with asyncio.Runner(loop_factory=loop_factory) as runner, _frozen_heap():
        for number in range(repeats + 1):
            shuffle(order)
            for arm in order:
                gc.collect()
                sample = arm.run(runner)
                _check_answers(arm, sample, known)
                if number:
                    arm.seconds.append(sample.seconds)
                advance()
    for arm in arms:
        _check_hits(arm, repeats + 1)


@contextmanager
def _frozen_heap() -> Generator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _check_answers(arm: Arm, sample: Sample, known: dict[str, Comparable]) -> None:
    for answer in sample.answers:
        expected = known.setdefault(arm.task, answer)
        if answer != expected:
            msg = f"arm {arm.name!r} gave {answer!r} where its task gives {expected!r}"
            raise RuntimeError(msg)


def _check_hits(arm: Arm, runs: int) -> None:
    if arm.speculation is None:
        return
    found, expected = arm.speculation.report().hits, arm.hits * runs
    if found != expected:
        msg = (
            f"arm {arm.name!r} made {found} hits in {runs} runs, not {expected}: see SPECTOOL_MODE"
        )
        raise RuntimeError(msg)


def comparable(messages: Iterable[BaseMessage]) -> Comparable:
    """Return all that `messages` say, without the random ids that no two runs share."""
    return [message.model_dump(exclude={"id"}) for message in messages]
