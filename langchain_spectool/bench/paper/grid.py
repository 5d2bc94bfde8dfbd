"""The paper's full grid in a discrete-event model, with one server that all agents share.

The server carries `CAPACITY` generations at full speed. A sample of the draft loads it with
`DRAFT_LOAD` of a generation. While more runs than it carries, everything on it slows down alike:
processor sharing. Tools run elsewhere and are never slowed.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final

from langchain_spectool.bench.paper.actors import TOKENS_PER_S
from langchain_spectool.bench.paper.draft import DRAFT_S, draw_samples
from langchain_spectool.bench.paper.figures import mean_interval, saved_percent
from langchain_spectool.bench.paper.latencies import LATENCIES_S, factor

CAPACITY: Final = 24.0
DRAFT_LOAD: Final = 0.05
AGENTS: Final = (1, 8, 32)
SAMPLES: Final = (1, 3, 5, 7, 9)
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What is simulated."""

    generation_s: float
    """Mean seconds of a model turn that has the server for itself."""
    shapes: tuple[tuple[int, ...], ...]
    """Tasks to draw from: how many calls each turn makes, the closing turn's 0 included."""
    seed: int
    tasks: int = 32
    repeats: int = 5
    agents: tuple[int, ...] = AGENTS
    latencies_s: tuple[float, ...] = LATENCIES_S
    samples: tuple[int, ...] = SAMPLES
    accuracies: tuple[float, ...] = tuple(DRAFT_S)


@dataclass(frozen=True, slots=True)
class GridTurn:
    """What was drawn for a turn; seconds are those with the server alone."""

    generation_s: float
    calls: Sequence[float]
    """Seconds of each call over the mean latency."""
    drafts_s: Mapping[float, Sequence[float]]
    """By accuracy, the seconds of each sample."""
    guessed_s: Mapping[tuple[float, int], Sequence[float]]
    """By accuracy and number of samples, when each call is first guessed; infinite if never."""


@dataclass(slots=True)
class Outcome:
    """What a run of all agents came to."""

    agents_s: list[float]
    calls: int = 0
    hits: int = 0
    asking: int = 0
    fully_hit: int = 0
    generating_s: float = 0.0
    """Seconds that generations took."""
    alone_s: float = 0.0
    """Seconds that they would have taken alone."""

    def turn_done(self, calls: int, hits: int) -> None:
        """Count the hits of a turn."""
        self.calls += calls
        self.hits += hits
        self.asking += calls > 0
        self.fully_hit += 0 < calls == hits


Agent = Sequence[GridTurn]
Speculating = tuple[float, int] | None
"""Accuracy of the draft and number of its samples; None: nothing is guessed."""


@lru_cache(maxsize=1024)
def draw_agent(grid: Grid, repeat: int, agent: int) -> Agent:
    """Draw an agent's turns: the same at every latency, number of samples and accuracy."""
    dice = random.Random(f"grid:{grid.seed}:{repeat}:{agent}")  # noqa: S311 - a fair draw, no secret
    shapes = (dice.choice(grid.shapes) for _ in range(grid.tasks))
    return [_draw_turn(grid, dice, calls) for shape in shapes for calls in shape]


def _draw_turn(grid: Grid, dice: random.Random, calls: int) -> GridTurn:
    drafts_s: dict[float, list[float]] = {}
    guessed_s: dict[tuple[float, int], list[float]] = {}
    for accuracy in grid.accuracies:
        samples = draw_samples(dice, accuracy, calls)
        times_s = [each.time_factor * DRAFT_S[accuracy] for each in samples]
        drafts_s[accuracy] = times_s
        for count in grid.samples:
            guessed_s[accuracy, count] = [
                min(
                    (
                        at
                        for at, each in zip(times_s[:count], samples, strict=False)
                        if each.right[call]
                    ),
                    default=math.inf,
                )
                for call in range(calls)
            ]
    return GridTurn(
        grid.generation_s * factor(dice.random()),
        [factor(dice.random()) for _ in range(calls)],
        drafts_s,
        guessed_s,
    )


def alone(agents: Sequence[Agent], latency_s: float, how: Speculating) -> Outcome:
    """Run agents whose server is never full."""
    outcome = Outcome([])
    for turns in agents:
        took_s = 0.0
        for turn in turns:
            model_s = turn.generation_s
            end_s, hits = model_s, 0
            guessed = turn.guessed_s[how] if how else [math.inf] * len(turn.calls)
            for factor_, guessed_s in zip(turn.calls, guessed, strict=True):
                start_s = model_s
                if guessed_s < model_s:
                    start_s, hits = guessed_s, hits + 1
                end_s = max(end_s, start_s + factor_ * latency_s)
            took_s += end_s
            outcome.alone_s += model_s
            outcome.turn_done(len(turn.calls), hits)
        outcome.agents_s.append(took_s)
    outcome.generating_s = outcome.alone_s
    return outcome


class Server:
    """Processor sharing: work is counted in seconds alone, and all of it runs at one rate."""

    def __init__(self) -> None:
        """Stand idle at 0 s."""
        self.now_s = self.work_s = 0.0
        self._load = 0.0
        self._rate = 1.0
        self._jobs: list[tuple[float, int, int, int]] = []
        """When it ends, by the work done until then; agent, its turn, and what it is."""

    def add(self, work_s: float, agent: int, turn: int, what: int) -> None:
        """Begin a job; `change` follows."""
        heappush(self._jobs, (self.work_s + work_s, agent, turn, what))

    def change(self, load: float) -> None:
        """Take on more, or less."""
        self._load += load
        self._rate = 1.0 if self._load <= CAPACITY else CAPACITY / self._load

    def next_s(self) -> float:
        """Return when the next job ends, if nothing changes before."""
        if not self._jobs:
            return math.inf
        return self.now_s + (self._jobs[0][0] - self.work_s) / self._rate

    def pass_to(self, now_s: float) -> None:
        """Work on until then."""
        self.work_s += (now_s - self.now_s) * self._rate
        self.now_s = now_s

    def ended(self, now_s: float) -> tuple[float, int, int, int]:
        """Return the job that ends now."""
        job = heappop(self._jobs)
        self.work_s, self.now_s = job[0], now_s
        return job


_MODEL: Final = 0
_DRAFT: Final = 1


def shared(agents: Sequence[Agent], latency_s: float, how: Speculating) -> Outcome:
    """Run agents that share the server."""
    return _Shared(agents, latency_s, how).run()


class _Shared:
    def __init__(self, agents: Sequence[Agent], latency_s: float, how: Speculating) -> None:
        self._agents = agents
        self._latency_s = latency_s
        self._how = how
        self._server = Server()
        count = len(agents)
        self._turn = [-1] * count
        self._began = [(0.0, 0.0)] * count
        self._drafts = [0] * count
        """Samples that still run."""
        self._marks: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        """Work and seconds when samples of the turn ended."""
        self._ready = [(0.0, agent) for agent in range(count)]
        self._outcome = Outcome([0.0] * count)

    def run(self) -> Outcome:
        server, ready = self._server, self._ready
        while True:
            job_s = server.next_s()
            if ready and ready[0][0] <= job_s:
                at_s, agent = heappop(ready)
                server.pass_to(at_s)
                self._begin(agent)
            elif job_s < math.inf:
                work_s, agent, turn, what = server.ended(job_s)
                if what == _MODEL:
                    self._end(agent)
                elif turn == self._turn[agent]:
                    self._drafts[agent] -= 1
                    self._marks[agent].append((work_s, job_s))
                    server.change(-DRAFT_LOAD)
            else:
                return self._outcome

    def _begin(self, agent: int) -> None:
        server = self._server
        self._turn[agent] += 1
        number = self._turn[agent]
        if number == len(self._agents[agent]):
            self._outcome.agents_s[agent] = server.now_s
            return
        turn = self._agents[agent][number]
        self._began[agent] = (server.work_s, server.now_s)
        server.add(turn.generation_s, agent, number, _MODEL)
        self._marks[agent].clear()
        if self._how:
            accuracy, count = self._how
            for seconds in turn.drafts_s[accuracy][:count]:
                server.add(seconds, agent, number, _DRAFT)
            self._drafts[agent] = count
            server.change(1 + DRAFT_LOAD * count)
        else:
            server.change(1)

    def _end(self, agent: int) -> None:
        server, outcome = self._server, self._outcome
        now_s = server.now_s
        turn = self._agents[agent][self._turn[agent]]
        server.change(-1 - DRAFT_LOAD * self._drafts[agent])  # what is still guessing is cancelled
        self._drafts[agent] = 0
        began_work_s, began_s = self._began[agent]
        end_s, hits = now_s, 0
        guessed = turn.guessed_s[self._how] if self._how else [math.inf] * len(turn.calls)
        for factor_, guessed_s in zip(turn.calls, guessed, strict=True):
            start_s = now_s
            if guessed_s < turn.generation_s:
                start_s = self._when(agent, began_work_s + guessed_s)
                hits += 1
            end_s = max(end_s, start_s + factor_ * self._latency_s)
        outcome.alone_s += turn.generation_s
        outcome.generating_s += now_s - began_s
        outcome.turn_done(len(turn.calls), hits)
        heappush(self._ready, (end_s, agent))

    def _when(self, agent: int, work_s: float) -> float:
        """Return the second at which a sample of the turn ended."""
        return min(self._marks[agent], key=lambda mark: abs(mark[0] - work_s))[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One cell of the grid; see docs/benchmarks.md."""

    agents: int
    latency_s: float
    samples: int
    accuracy: float
    saved: float
    low: float
    high: float
    model_saved: float
    hit_share: float
    turns_fully_hit: float
    tokens_per_s: float
    plain_tokens_per_s: float
    stretch: float


def grid_rows(grid: Grid, agents: int, latency_s: float) -> list[GridRow]:
    """Return the cells of a number of agents and a latency."""
    plain, rows = _runs(grid, agents, latency_s, None), list[GridRow]()
    unshared = _runs(grid, agents, latency_s, None, full=False)
    for accuracy in grid.accuracies:
        for count in grid.samples:
            ours = _runs(grid, agents, latency_s, (accuracy, count))
            free = _runs(grid, agents, latency_s, (accuracy, count), full=False)
            rows.append(_row((agents, latency_s, count, accuracy), plain, ours, (unshared, free)))
    return rows


def _runs(
    grid: Grid, agents: int, latency_s: float, how: Speculating, *, full: bool = True
) -> list[Outcome]:
    """Run every repeat; where all that can run at once fits on the server, nothing is shared."""
    load = agents * (1 + DRAFT_LOAD * (how[1] if how else 0))
    run = shared if full and load > CAPACITY else alone
    return [
        run([draw_agent(grid, repeat, agent) for agent in range(agents)], latency_s, how)
        for repeat in range(grid.repeats)
    ]


def _row(
    cell: tuple[int, float, int, float],
    plain: Sequence[Outcome],
    ours: Sequence[Outcome],
    unshared: tuple[Sequence[Outcome], Sequence[Outcome]],
) -> GridRow:
    saved = mean_interval(saved_percent(_agents_s(plain), _agents_s(ours)))
    model = saved_percent(*map(_agents_s, unshared))
    agents, latency_s, count, accuracy = cell
    return GridRow(
        agents=agents,
        latency_s=latency_s,
        samples=count,
        accuracy=accuracy,
        saved=round(saved.value, _DIGITS),
        low=round(saved.low, _DIGITS),
        high=round(saved.high, _DIGITS),
        model_saved=round(sum(model) / len(model), _DIGITS),
        hit_share=_share(ours, "hits", "calls"),
        turns_fully_hit=_share(ours, "fully_hit", "asking"),
        tokens_per_s=_tokens_per_s(ours),
        plain_tokens_per_s=_tokens_per_s(plain),
        stretch=_share(ours, "generating_s", "alone_s"),
    )


def _agents_s(outcomes: Sequence[Outcome]) -> list[float]:
    return [seconds for each in outcomes for seconds in each.agents_s]


def _share(outcomes: Sequence[Outcome], part: str, whole: str) -> float:
    parts, wholes = (sum(getattr(each, name) for each in outcomes) for name in (part, whole))
    return round(parts / wholes, _DIGITS)


def _tokens_per_s(outcomes: Sequence[Outcome]) -> float:
    written = TOKENS_PER_S * sum(each.alone_s for each in outcomes)
    return round(written / sum(_agents_s(outcomes)), _DIGITS)
