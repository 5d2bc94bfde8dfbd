"""Plays one arm of the real package through its cells, in virtual or in real time."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from langchain_spectool.bench.measure import Comparable
from langchain_spectool.bench.paper.actors import (
    TOKENS_PER_S,
    World,
    agent_of,
    asked,
    speculation_of,
)
from langchain_spectool.bench.paper.draft import Draft
from langchain_spectool.bench.paper.figures import Ledger
from langchain_spectool.bench.paper.peers import PEERS
from langchain_spectool.bench.paper.workload import PaperTask, deal, load_tasks
from langchain_spectool.testing import VirtualTimeLoop

_SETTLE_S: Final = 10.0
"""Seconds after the last answer in which early runs that nobody wants come to their end."""
_SAID: Final = ("type", "content", "tool_calls", "tool_call_id", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all arms of a comparison have in common."""

    agents: int
    tasks: int
    """Of each agent, one after another."""
    seed: int
    generation_s: float
    scale: float = 1.0

    def dealt(self) -> list[list[PaperTask]]:
        """Return every agent's tasks."""
        return deal(_tasks(), agents=self.agents, each=self.tasks, seed=self.seed)


@cache
def _tasks() -> list[PaperTask]:
    return load_tasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One arm with one draft, at some latencies."""

    arm: str
    latencies_s: Sequence[float]
    draft: Draft
    samples: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one arm came to at one latency."""

    arm: str
    latency_s: float
    samples: int
    accuracy: float
    agents_s: Sequence[float]
    """Seconds of each agent, over all its tasks."""
    tasks_s: Sequence[float]
    turns: int
    calls: int
    main_tokens: tuple[int, int]
    draft_tokens: tuple[int, int]
    hits: int
    fully_hit: int
    asking: int
    """Turns with calls."""
    lead_s: float | None
    early_runs: int
    wasted_calls: int
    wasted_s: float
    said: str
    """A digest of all that was said, which no arm may change."""
    cpu_share: float
    """Processor time over the loop's time."""


def play(setup: Setup, job: Job) -> list[Played]:
    """Play an arm at every latency, in virtual time."""
    stage = Stage(setup, job)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return [runner.run(stage.played(latency_s)) for latency_s in job.latencies_s]


class Stage:
    """An arm's agents, built once."""

    def __init__(self, setup: Setup, job: Job) -> None:
        """Build them."""
        self._job = job
        self._dealt = setup.dealt()
        self._ledger = Ledger()
        self._world = World(
            seed=setup.seed, generation_s=setup.generation_s, latency_s=0.0, scale=setup.scale
        )
        make = self._maker(setup)
        self._agents = [[make(task) for task in tasks] for tasks in self._dealt]

    def _maker(self, setup: Setup) -> Callable[[PaperTask], Any]:
        arm, world = self._job.arm, self._world
        if arm == "plain":
            return lambda task: agent_of(task, world, [], declared=False)
        if arm in PEERS:
            return lambda task: PEERS[arm].agent(task, world)
        speculation = speculation_of(
            arm,
            self._job.draft,
            {task.task_id: task for tasks in self._dealt for task in tasks},
            samples=self._job.samples,
            scale=setup.scale,
            observers=[self._ledger],
        )
        return lambda task: agent_of(task, world, [speculation.middleware()], declared=True)

    async def played(self, latency_s: float) -> Played:
        """Let every agent do its tasks, all agents side by side."""
        self._world.latency_s = latency_s
        self._ledger.clear()
        began_s, cpu_s = asyncio.get_running_loop().time(), time.process_time()
        done = await asyncio.gather(*map(_worked, self._agents, self._dealt))
        took_s = asyncio.get_running_loop().time() - began_s
        cpu_share = (time.process_time() - cpu_s) / took_s
        await asyncio.sleep(_SETTLE_S * self._world.scale)
        return self._summed(latency_s, done, cpu_share)

    def _summed(
        self, latency_s: float, done: Sequence[tuple[list[float], list[Comparable]]], share: float
    ) -> Played:
        ledger, job = self._ledger, self._job
        tasks = [task for tasks in self._dealt for task in tasks]
        batches = [batch for task in tasks for batch in task.batches]
        leads = ledger.leads_s
        return Played(
            arm=job.arm,
            latency_s=latency_s,
            samples=job.samples,
            accuracy=job.draft.accuracy,
            agents_s=[sum(times) for times, _ in done],
            tasks_s=[seconds for times, _ in done for seconds in times],
            turns=sum(task.turns for task in tasks),
            calls=sum(map(len, batches)),
            main_tokens=self._main_tokens(tasks),
            draft_tokens=(ledger.draft_tokens[0], ledger.draft_tokens[1]),
            hits=ledger.hits,
            fully_hit=ledger.fully_hit,
            asking=len(batches),
            lead_s=sum(leads) / len(leads) if leads else None,
            early_runs=ledger.early_runs,
            wasted_calls=ledger.wasted_calls,
            wasted_s=ledger.wasted_s / self._world.scale,
            said=_digest([said for _, answers in done for said in answers]),
            cpu_share=share,
        )

    def _main_tokens(self, tasks: Sequence[PaperTask]) -> tuple[int, int]:
        asked_tokens = sum(sum(task.asked_tokens) for task in tasks)
        written_s = sum(
            self._world.turn_s(task, turn) / self._world.scale
            for task in tasks
            for turn in range(task.turns)
        )
        return asked_tokens, round(written_s * TOKENS_PER_S)


async def _worked(
    agents: Sequence[Any], tasks: Sequence[PaperTask]
) -> tuple[list[float], list[Comparable]]:
    clock = asyncio.get_running_loop().time
    times_s: list[float] = []
    answers: list[Comparable] = []
    for agent, task in zip(agents, tasks, strict=True):
        began_s = clock()
        answers.append(await asked(agent, task))
        times_s.append(clock() - began_s)
    return times_s, answers


def _digest(answers: Sequence[Comparable]) -> str:
    said = [
        [[_bare(message.get(key)) for key in _SAID] for message in messages] for messages in answers
    ]
    return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()


def _bare(value: object) -> object:
    """Return tool calls without what only their stream knows."""
    if not isinstance(value, list):
        return value
    calls: list[Mapping[str, Any]] = value  # pyright: ignore[reportUnknownVariableType]
    return [(call["name"], call["args"], call["id"]) for call in calls]
