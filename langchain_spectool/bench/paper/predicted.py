"""What the turn-by-turn model says of every arm, on the very times and hits that were drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from langchain_spectool.bench.model.turn_model import Call, Turn, plain_s, run_s
from langchain_spectool.bench.paper.actors import WRITING_FROM, World
from langchain_spectool.bench.paper.draft import Draft, SampleDraw
from langchain_spectool.bench.paper.workload import PaperTask

PAPER_8B: Final = {0.5: 6.0, 1.0: 12.0, 1.5: 16.0, 2.0: 19.0, 2.5: 21.0}
"""Per cent saved in the paper with 32 agents, xLAM-2 8B and one sample, by tool latency."""
CHAIN_DEPTH: Final = 2
_FIT_BETWEEN_S: Final = (0.5, 30.0)
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """All that was drawn for a call."""

    time_factor: float
    """Its seconds over the mean latency."""
    guesses_s: tuple[float, ...]
    """When each right sample names it."""
    closed_at: float | None
    """The share of the turn after which the stream closes it; None: the end of the turn does."""


@dataclass(frozen=True, slots=True)
class DrawnTurn:
    """All that was drawn for a turn."""

    time_factor: float
    """The model's seconds over their mean."""
    calls: Sequence[DrawnCall]


DrawnTask = Sequence[DrawnTurn]
Drawn = Sequence[Sequence[DrawnTask]]
"""By agent and task."""


def drawn(dealt: Sequence[Sequence[PaperTask]], draft: Draft, samples: int) -> Drawn:
    """Return what is drawn for every agent's tasks."""
    unit = World(seed=draft.seed, generation_s=1.0, latency_s=1.0)
    return [[_drawn_task(task, unit, draft, samples) for task in tasks] for tasks in dealt]


def _drawn_task(task: PaperTask, unit: World, draft: Draft, samples: int) -> DrawnTask:
    turns: list[DrawnTurn] = []
    for number in range(task.turns):
        batch = task.batches[number] if number < len(task.batches) else ()
        said = draft.samples(task, number)[:samples]
        calls = [
            DrawnCall(
                unit.call_s(task, name, args),
                _guesses_s(said, place, draft.mean_s),
                _closed_at(place, len(batch)),
            )
            for place, (name, args) in enumerate(batch)
        ]
        turns.append(DrawnTurn(unit.turn_s(task, number), calls))
    return turns


def _guesses_s(said: Sequence[SampleDraw], place: int, mean_s: float) -> tuple[float, ...]:
    return tuple(each.time_factor * mean_s for each in said if each.right[place])


def _closed_at(place: int, count: int) -> float | None:
    """Return where the next call begins, which closes the one at `place`."""
    last = place == count - 1
    return None if last else WRITING_FROM + (1 - WRITING_FROM) * (place + 1) / count


def _turn(turn: DrawnTurn, arm: str, generation_s: float, latency_s: float) -> Turn:
    model_s = turn.time_factor * generation_s

    def call(each: DrawnCall) -> Call:
        guesses_s = (0.0,) if arm == "oracle" else each.guesses_s
        if arm == "early_dispatch" and each.closed_at is not None:
            guesses_s = (*guesses_s, each.closed_at * model_s)
        chained_s = min(each.guesses_s, default=None) if arm == "chain" else None
        return Call(tool_s=each.time_factor * latency_s, guesses_s=guesses_s, chained_s=chained_s)

    return Turn(generation_s=model_s, calls=tuple(call(each) for each in turn.calls))


def saved(
    drawn_tasks: Drawn, generation_s: float, latency_s: float, arm: str = "client_side"
) -> list[float]:
    """Return the per cent of its plain time that each agent saves."""
    depth = CHAIN_DEPTH if arm == "chain" else 1
    percent: list[float] = []
    for tasks in drawn_tasks:
        runs = [[_turn(turn, arm, generation_s, latency_s) for turn in task] for task in tasks]
        before_s = sum(map(plain_s, runs))
        percent.append(100 * (before_s - sum(run_s(run, depth) for run in runs)) / before_s)
    return percent


def fitted_generation_s(drawn_tasks: Drawn) -> float:
    """Return the mean generation time that fits the paper's 8B column best, by least squares."""

    def misfit(generation_s: float) -> float:
        return sum(
            (_mean(saved(drawn_tasks, generation_s, latency_s)) - percent) ** 2
            for latency_s, percent in PAPER_8B.items()
        )

    low, high = _FIT_BETWEEN_S
    while high - low > 1e-2:  # noqa: PLR2004 - a hundredth of a second
        step = _GOLDEN * (high - low)
        if misfit(high - step) < misfit(low + step):
            high = low + step
        else:
            low = high - step
    return round((low + high) / 2, 2)


def model_s_per_tool_turn(drawn_tasks: Drawn, generation_s: float) -> float:
    """Return all of the model's seconds, closing turns included, over the turns with calls."""
    turns = [turn for tasks in drawn_tasks for task in tasks for turn in task]
    asking = sum(bool(turn.calls) for turn in turns)
    return generation_s * sum(turn.time_factor for turn in turns) / asking


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
