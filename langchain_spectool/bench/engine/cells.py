"""Plays every arm through the cells, in turns, on one server."""

import asyncio
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import httpx

from langchain_spectool.bench.engine.agents import ARMS, DRAFTING, ROUND_TRIP, Agent, Arm, Asked
from langchain_spectool.bench.engine.meters import Meter, Work
from langchain_spectool.bench.engine.workload import CITIES, Tool
from langchain_spectool.bench.paper.figures import mean_interval, saved_percent
from langchain_spectool.errors import SpectoolError

_DIGITS: Final = 3
_MOST_NOTES: Final = 32
"""Some 128 tokens: a block of vLLM's on a CPU."""
_MORE_NOTES: Final = 12
MORE_TOKENS: Final = 5 * _MORE_NOTES
"""By how much, at most, a conversation is longer under pressure."""
_STRIDE: Final = 13
"""Spreads the lengths of successive tasks evenly."""


Where = Literal["roomy", "pressure", "drafts"]
"""The servers: one with room, one with too few blocks, one that also drafts arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load."""

    agents: int
    """How many ask at the same time."""
    tool_s: float
    tasks: int = 1
    """Of each agent, one after another."""
    server: Where = "roomy"

    @property
    def name(self) -> str:
        """How it is called in tables."""
        where = "" if self.server == "roomy" else f"{self.server} "
        return f"{where}M {self.agents}, T {self.tool_s:g}"

    @property
    def ways(self) -> Sequence[Arm]:
        """The arms that are played."""
        return DRAFTING if self.server == "drafts" else ARMS


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

    @property
    def repeats(self) -> int:
        """How often every arm was played."""
        return len(self.arms[ROUND_TRIP.name].spans_s)

    @property
    def longest(self) -> int:
        """Tokens of the longest conversation."""
        asked = self.arms[ROUND_TRIP.name].asked
        return max(sum(turn[-1]) for each in asked for turn in each.said)

    def differs(self, arm: str) -> list[bool]:
        """Whether each task went otherwise than in the round trip."""
        base = self.arms[ROUND_TRIP.name].asked
        return [
            mine.said != theirs.said
            for mine, theirs in zip(self.arms[arm].asked, base, strict=True)
        ]

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
            "divergent": sum(self.differs(name)),
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
    until_s: float = math.inf
    """By `time.monotonic`: no repeat after the first begins that would not be over by then."""

    async def play(
        self, cells: Sequence[Cell], repeats: int, advance: Callable[[], None]
    ) -> list[Results]:
        """Play all arms of each cell `repeats` times, in a new order each time.

        One question per arm comes before, so that none pays for what a server does only once.

        Raises:
            SpectoolError: The server does not count what it computes, or its model calls no tool.
        """
        await self._warm(cells[0].ways)
        dice = random.Random(self.seed)  # noqa: S311 - a fair order, no secret
        results = [Results(cell, {arm.name: Played() for arm in cell.ways}) for cell in cells]
        for repeat in range(repeats):
            began_s = time.monotonic()
            for each in results:
                for arm in dice.sample(each.cell.ways, len(each.cell.ways)):
                    await self._once(each.cell, arm, repeat, each.arms[arm.name])
                    advance()
            now_s = time.monotonic()
            if now_s + (now_s - began_s) > self.until_s:
                break
        return results

    async def _warm(self, arms: Sequence[Arm]) -> None:
        warm = Played()
        for arm in arms:
            await self._once(Cell(agents=1, tool_s=0.0), arm, -1, warm)
        if not (warm.prefill_tokens and warm.steps):
            msg = f"the server counted nothing, by {self.meter.source}"
            raise SpectoolError(msg)
        if not any(each.calls for each in warm.asked):
            msg = (
                f"{self.model} called no tool, it said {warm.asked[0].said[0][0]!r}: take a model, "
                "a --tool-call-parser and a --chat-template that belong together"
            )
            raise SpectoolError(msg)

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
            notes = place * _STRIDE % _MOST_NOTES + (
                _MORE_NOTES if cell.server == "pressure" else 0
            )
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
