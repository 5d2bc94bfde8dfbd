"""The real package in real time, with all times a tenth and the arms in turns."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from langchain_spectool.bench.paper.actors import ARMS
from langchain_spectool.bench.paper.cells import Job, Played, Setup, Stage, play
from langchain_spectool.bench.paper.draft import Draft
from langchain_spectool.bench.paper.figures import mean_interval, saved_percent

VOID_ABOVE: Final = 0.5
"""Share of a core above which a cell measures this machine and not the package."""
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RealPlan:
    """What is played."""

    seed: int
    generation_s: float
    draft: Draft
    agents: int = 8
    tasks: int = 4
    repeats: int = 2
    scale: float = 0.1
    latencies_s: Sequence[float] = (1.0, 2.0, 3.0)

    @property
    def steps(self) -> int:
        """How often `measure` calls `advance`."""
        return len(self.latencies_s) * len(ARMS) * self.repeats

    def setup(self, scale: float) -> Setup:
        """Return what all arms share."""
        return Setup(
            agents=self.agents,
            tasks=self.tasks,
            seed=self.seed,
            generation_s=self.generation_s,
            scale=scale,
        )


@dataclass(slots=True)
class _Cell:
    """All repeats of an arm at a latency."""

    repeats: list[Played] = field(default_factory=list[Played])

    @property
    def agents_s(self) -> list[float]:
        return [sum(times) for times in zip(*(each.agents_s for each in self.repeats), strict=True)]

    @property
    def cpu_share(self) -> float:
        return max(each.cpu_share for each in self.repeats)


def measure(plan: RealPlan, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Play everything; return the JSON's `real`."""
    setup = plan.setup(plan.scale)
    stages = {
        arm: Stage(setup, Job(arm=arm, latencies_s=plan.latencies_s, draft=plan.draft))
        for arm in ARMS
    }
    cells = {(arm, latency_s): _Cell() for arm in ARMS for latency_s in plan.latencies_s}
    order = [*ARMS]
    shuffle = random.Random(plan.seed).shuffle  # noqa: S311 - a fair order, no secret
    with asyncio.Runner() as runner:
        for _ in range(plan.repeats):
            for latency_s in plan.latencies_s:
                shuffle(order)
                for arm in order:
                    cells[arm, latency_s].repeats.append(runner.run(stages[arm].played(latency_s)))
                    advance()
    return {
        "scale": plan.scale,
        "agents": plan.agents,
        "tasks": plan.tasks,
        "repeats": plan.repeats,
        "rows": _rows(plan, cells),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRow:
    """One arm at one latency; see docs/benchmarks.md."""

    latency_s: float
    arm: str
    saved: float
    low: float
    high: float
    virtual_saved: float
    cpu_share: float
    void: bool


def _rows(plan: RealPlan, cells: dict[tuple[str, float], _Cell]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    virtual = {arm: _virtual_s(plan, arm) for arm in ARMS}
    for (arm, latency_s), cell in cells.items():
        if arm == "plain":
            continue
        plain = cells["plain", latency_s]
        found = mean_interval(saved_percent(plain.agents_s, cell.agents_s))
        expected = saved_percent(virtual["plain"][latency_s], virtual[arm][latency_s])
        cpu_share = max(plain.cpu_share, cell.cpu_share)
        row = RealRow(
            latency_s=latency_s,
            arm=arm,
            saved=round(found.value, _DIGITS),
            low=round(found.low, _DIGITS),
            high=round(found.high, _DIGITS),
            virtual_saved=round(sum(expected) / len(expected), _DIGITS),
            cpu_share=round(cpu_share, _DIGITS),
            void=cpu_share > VOID_ABOVE,
        )
        rows.append(asdict(row))
    return rows


def _virtual_s(plan: RealPlan, arm: str) -> dict[float, Sequence[float]]:
    job = Job(arm=arm, latencies_s=plan.latencies_s, draft=plan.draft)
    return {each.latency_s: each.agents_s for each in play(plan.setup(1.0), job)}
