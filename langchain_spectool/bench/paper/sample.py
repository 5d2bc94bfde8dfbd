"""A few tasks told event by event, for the timeline of the report; nothing is measured on them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from langchain_spectool._core.events import Event, EventKind
from langchain_spectool.bench.paper.actors import World, agent_of, asked, speculation_of
from langchain_spectool.bench.paper.package_slice import Plan
from langchain_spectool.bench.paper.workload import PaperTask
from langchain_spectool.telemetry.event_log import line_of
from langchain_spectool.telemetry.placing import placed
from langchain_spectool.testing import VirtualTimeLoop

ARMS: Final = ("client_side", "early_dispatch", "chain")
LATENCY_S: Final = 1.0
EACH: Final = 2
"""Tasks with two turns of calls, which a chain needs, and with several calls at once, which early
dispatch needs."""
_SETTLE_S: Final = 10.0
_DIGITS: Final = 4
_KINDS: Final = get_args(EventKind)


def recorded(plan: Plan, generation_s: float) -> dict[str, Any]:
    """Return the JSON's `sample`: the first tasks in which each arm has something to do."""
    dealt = [task for tasks in plan.setup(generation_s, plan.tasks).dealt() for task in tasks]
    chained = [task for task in dealt if len(task.batches) > 1][:EACH]
    batched = [task for task in dealt if max(map(len, task.batches), default=0) > 1]
    tasks = [*chained, *[task for task in batched if task not in chained][:EACH]]
    world = World(seed=plan.seed, generation_s=generation_s, latency_s=LATENCY_S)
    return {
        "latency_s": LATENCY_S,
        "tasks": len(tasks),
        "arms": {arm: _told(plan, arm, tasks, world) for arm in ARMS},
    }


def _told(
    plan: Plan, arm: str, tasks: Sequence[PaperTask], world: World
) -> Sequence[Mapping[str, Any]]:
    heard = _Heard()
    known = {task.task_id: task for task in tasks}
    speculation = speculation_of(arm, plan.draft(), known, observers=[heard])
    played = [
        (agent_of(task, world, [speculation.middleware()], declared=True), task) for task in tasks
    ]

    async def play() -> None:
        for agent, task in played:
            await asked(agent, task)
        await asyncio.sleep(_SETTLE_S)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(play())
    return [line_of(event) for event in _anonymous(sorted(placed(heard.events), key=_order))]


class _Heard:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        """Keep one event."""
        self.events.append(event)


def _order(event: Event) -> tuple[float, int, int, int]:
    """Order what happens at one moment: calls side by side end in any order."""
    position = -1 if event.position is None else event.position
    return round(event.at_s, _DIGITS), _KINDS.index(event.kind), event.turn, position


def _anonymous(events: Sequence[Event]) -> Sequence[Event]:
    """Number runs, turns and calls as they come, and round: the same draws give the same text."""
    runs, turns, keys = ({"": ""}, {0: 0}, {"": ""})
    for event in events:
        runs.setdefault(event.run, str(len(runs)))
        turns.setdefault(event.turn, len(turns))
        keys.setdefault(event.key_hash, str(len(keys)))
    return [
        replace(
            event,
            run=runs[event.run],
            turn=turns[event.turn],
            key_hash=keys[event.key_hash],
            detail="",
            at_s=round(event.at_s, _DIGITS),
            started_s=None if event.started_s is None else round(event.started_s, _DIGITS),
            spent_s=round(event.spent_s, _DIGITS),
            waited_s=round(event.waited_s, _DIGITS),
            hidden_s=round(event.hidden_s, _DIGITS),
        )
        for event in events
    ]
