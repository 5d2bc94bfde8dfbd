"""A draft model of stated accuracy and time, simulated from the calls that the model will make.

No model is asked. Each turn has a difficulty that all samples of it share: the chance that a
sample gets one call right is drawn from a Beta distribution whose mean is the stated accuracy.
Its concentration of 2 makes nine samples find 57 % more than one at an accuracy of 0.6, where the
paper reports about 60 % for its smallest draft.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from langchain_spectool.bench.gold import Batch, Call
from langchain_spectool.bench.paper.latencies import factor
from langchain_spectool.bench.paper.workload import VARIANT, PaperTask

CONCENTRATION: Final = 2.0
MOST_SAMPLES: Final = 9
DRAFT_S: Final[Mapping[float, float]] = {0.6: 0.15, 0.7: 0.3, 0.8: 0.5}
"""Mean seconds of one sample, by accuracy: a better draft is a larger one, and takes longer."""


@dataclass(frozen=True, slots=True)
class SampleDraw:
    """What one sample will do in one turn."""

    time_factor: float
    """Its seconds over the mean."""
    right: Sequence[bool]
    """Whether it guesses each call of the turn; for a closing turn, whether it stays silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft model."""

    accuracy: float
    """Mean chance that one sample guesses a given call exactly."""
    mean_s: float
    """Mean seconds of a sample."""
    seed: int

    def samples(self, task: PaperTask, turn: int) -> Sequence[SampleDraw]:
        """Return what up to nine samples do in a turn: the same whoever asks."""
        calls = len(task.batches[turn]) if turn < len(task.batches) else 1
        return _draws(f"draft:{self.seed}:{task.task_id}:{turn}", self.accuracy, calls)

    def says(self, task: PaperTask, turn: int, sample: int) -> tuple[Batch, float]:
        """Return the calls of one sample, and its seconds."""
        draw = self.samples(task, turn)[sample]
        if turn >= len(task.batches):
            wrong = _wrong(task.batches[-1][0], sample)
            return (() if draw.right[0] else (wrong,)), self.mean_s * draw.time_factor
        said = tuple(
            call if right else _wrong(call, sample)
            for call, right in zip(task.batches[turn], draw.right, strict=True)
        )
        return said, self.mean_s * draw.time_factor


def _wrong(call: Call, sample: int) -> Call:
    """Return a call of the same tool that the model will not make."""
    name, args = call
    return name, {**args, VARIANT: sample}


@lru_cache(maxsize=1 << 16)
def _draws(key: str, accuracy: float, calls: int) -> Sequence[SampleDraw]:
    dice = random.Random(key)  # noqa: S311 - a fair draw, no secret
    return draw_samples(dice, accuracy, calls)


def draw_samples(dice: random.Random, accuracy: float, calls: int) -> list[SampleDraw]:
    """Draw a turn's difficulty, and from it what each of nine samples gets right."""
    chance = dice.betavariate(CONCENTRATION * accuracy, CONCENTRATION * (1 - accuracy))
    return [
        SampleDraw(factor(dice.random()), [dice.random() < chance for _ in range(calls)])
        for _ in range(MOST_SAMPLES)
    ]
