"""Plays every arm through the cells, in turns, on one server."""

import asyncio
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import httpx

from langchain_spectool.bench.engine.agents import ARMS, ROUND_TRIP, Agent, Arm, Asked
from langchain_spectool.bench.engine.meters import Meter, Work
from langchain_spectool.bench.engine.workload import CITIES, Tool
from langchain_spectool.bench.paper.figures import mean_interval, saved_percent
from langchain_spectool.errors import SpectoolError

_DIGITS: Final = 3
_MOST_NOTES: Final = 32
"""Some 128 tokens: a block of vLLM's on a CPU."""
_MORE_NOTES: Final = 12
_STRIDE: Final = 13
"""Spreads the lengths of successive tasks evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load."""

    agents: int
    """How many ask at the same time."""
    tool_s: float
    tasks: int = 1
    """Of each agent, one after another."""
    pressure: bool = False
    """Whether it belongs on the server that has too few blocks."""

    @property
    def name(self) -> str:
        """How it is called in tables."""
        return f"{'pressure ' if self.pressure else ''}M {self.agents}, T {self.tool_s:g}"


@dataclass(slots=True, kw_only=True)
class Played:
    """What an arm came to in a cell, over all repeats."""

    asked: list[Asked] = field(default_factory=list[Asked])
    spans_s: list[float] = field(default_factory=list[float])
    """Seconds of each repeat, from the first question to the last answer."""
    work: list[Work] = field(default_factory=list[Work])
    shown: list[Work] = field(default_factory=list[Work])
    """The same by /metrics alone."""
    doubles: int = 0
    executions: int = 0
    wasted: int = 0

    @property
    def prefill_tokens(self) -> float:
        """Tokens computed otherwise than one at a time."""
        return sum(each.prefill_tokens for each in self.work)

    @property
    def steps(self) -> float:
        """Steps of the engine."""
        return sum(each.steps for each in self.work)

    @property
    def outcomes(self) -> Counter[str]:
        """How turns of opted-in requests ended."""
        return sum((Counter(each.outcomes) for each in self.work), Counter[str]())


@dataclass(slots=True)
class Results:
    """All arms of a cell."""

    cell: Cell
    arms: dict[str, Played]

    def divergent(self, arm: str) -> int:
        """How many tasks went otherwise than in the round trip."""
        base = self.arms[ROUND_TRIP.name].asked
        return sum(
            mine.said != theirs.said
            for mine, theirs in zip(self.arms[arm].asked, base, strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.cell.name,
            **asdict(self.cell),
            "arms": {name: self._row(name) for name in self.arms},
        }

    def _row(self, name: str) -> dict[str, Any]:
        played, base = self.arms[name], self.arms[ROUND_TRIP.name]
        seconds = [each.seconds for each in played.asked]
        saved = mean_interval(saved_percent([each.seconds for each in base.asked], seconds))
        return {
            "tasks_done": len(seconds),
            "median_s": round(statistics.median(seconds), _DIGITS),
            "span_s": round(statistics.median(played.spans_s), _DIGITS),
            "saved_percent": round(saved.value, 1),
            "low": round(saved.low, 1),
            "high": round(saved.high, 1),
            "prefill_tokens": played.prefill_tokens,
            "prefill_vs_round_trip": _ratio(played.prefill_tokens, base.prefill_tokens),
            "steps": played.steps,
            "steps_vs_round_trip": _ratio(played.steps, base.steps),
            "shown_prefill_tokens": sum(each.prefill_tokens for each in played.shown),
            "shown_steps": sum(each.steps for each in played.shown),
            "decoded_tokens": sum(each.decoded_tokens for each in played.work),
            "preemptions": sum(each.preemptions for each in played.work),
            "calls": sum(each.calls for each in played.asked),
            "guessed": sum(each.guessed for each in played.asked),
            "resolved": sum(each.resolved for each in played.asked),
            "outcomes": dict(played.outcomes),
            "executions": played.executions,
            "doubles": played.doubles,
            "wasted": played.wasted,
            "divergent": self.divergent(name),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A server, and how to ask it."""

    client: httpx.AsyncClient
    model: str
    meter: Meter
    run: str
    """Told apart from every other run of the benchmark on the same server."""
    seed: int = 0

    async def play(
        self, cells: Sequence[Cell], repeats: int, advance: Callable[[], None]
    ) -> list[Results]:
        """Play all arms of each cell `repeats` times, in a new order each time.

        One question per arm comes before, so that none pays for what a server does only once.

        Raises:
            SpectoolError: The server does not count what it computes.
        """
        warm = Played()
        for arm in ARMS:
            await self._once(Cell(agents=1, tool_s=0.0), arm, -1, warm)
        if not (warm.prefill_tokens and warm.steps):
            msg = f"the server counted nothing, by {self.meter.source}"
            raise SpectoolError(msg)
        dice = random.Random(self.seed)  # noqa: S311 - a fair order, no secret
        results = [Results(cell, {arm.name: Played() for arm in ARMS}) for cell in cells]
        for repeat in range(repeats):
            for each in results:
                for arm in dice.sample(ARMS, len(ARMS)):
                    await self._once(each.cell, arm, repeat, each.arms[arm.name])
                    advance()
        return results

    async def _once(self, cell: Cell, arm: Arm, repeat: int, played: Played) -> None:
        tool = Tool(seconds=cell.tool_s)
        agent = Agent(client=self.client, model=self.model, arm=arm, tool=tool)
        before = await self.meter.read()
        clock = asyncio.get_running_loop().time
        began_s = clock()
        asked = await asyncio.gather(
            *(self._tasks(agent, cell, repeat, number) for number in range(cell.agents))
        )
        played.spans_s.append(clock() - began_s)
        after = await self.meter.read()
        played.asked += [each for tasks in asked for each in tasks]
        played.work.append(after[0].since(before[0]))
        played.shown.append(after[1].since(before[1]))
        played.doubles += tool.doubles
        played.executions += tool.executions.total()
        played.wasted += tool.wasted

    async def _tasks(self, agent: Agent, cell: Cell, repeat: int, number: int) -> list[Asked]:
        done: list[Asked] = []
        for task in range(cell.tasks):
            place = (repeat * cell.agents + number) * cell.tasks + task
            salt = f"{self.run} {cell.name} {agent.arm.name} {repeat} {number} {task}"
            notes = place * _STRIDE % _MOST_NOTES + (_MORE_NOTES if cell.pressure else 0)
            done.append(await agent.ask(CITIES[place % len(CITIES)], notes, salt))
        return done


def ratios(results: Sequence[Results], arm: str) -> Mapping[str, float]:
    """Compare all cells' sums with the round trip's."""
    ours = [each.arms[arm] for each in results]
    base = [each.arms[ROUND_TRIP.name] for each in results]
    return {
        "prefill": _ratio(
            sum(each.prefill_tokens for each in ours), sum(each.prefill_tokens for each in base)
        ),
        "steps": _ratio(sum(each.steps for each in ours), sum(each.steps for each in base)),
    }


def _ratio(ours: float, theirs: float) -> float:
    return round(ours / theirs, _DIGITS) if theirs else float("inf")
