"""Many agents in one process: what they save, what they cost, and what a turn in progress holds.

Every agent makes one call; model and tool take four seconds each, the draft is right after 0.4.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from langchain import agents
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool, StructuredTool

from langchain_spectool.bench.agents import NoopMiddleware
from langchain_spectool.bench.paced import PacedModel, look_up_tool, look_ups
from langchain_spectool.bench.paper.actors import POLICY
from langchain_spectool.bench.paper.figures import mean_interval, saved_percent
from langchain_spectool.graph.declare import speculatable
from langchain_spectool.graph.speculation import Speculation
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.testing import VirtualTimeLoop

GENERATION_S: Final = 4.0
TOOL_S: Final = 4.0
DRAFT_S: Final = 0.4
PLAIN_SHARE: Final = 0.2
"""Of a core, what plain is staggered to use; the limit is 0.3."""
SATURATED: Final = 0.9
"""Share of a core above which times say nothing about the package."""
_INPUT: Final = {"messages": [("user", "look it up")]}
_DIGITS: Final = 3
_PROBES: Final = 100
_PROBE_TIMES: Final = 0.05
_PROBE_INTERVAL_S: Final = 0.01
_HELD: Final = ("noop", "silent", "landed", "flying")
"""Nothing of ours; nothing guessed; an early run that is over; one in the air."""
_QUIET: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """What is measured."""

    real: Sequence[int] = (1, 10, 100, 1000)
    virtual: Sequence[int] = (10_000,)
    held: int = 256
    times: float = 1.0
    """What model, draft and tool take, over the times above."""

    @property
    def steps(self) -> int:
        """How often `measure` calls `advance`."""
        return 1 + 2 * len(self.real) + 2 * len(self.virtual)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crowd:
    """What the agents of one arm came to."""

    agents_s: Sequence[float]
    took_s: float
    cpu_s: float
    most_at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow:
    """A number of agents; see docs/benchmarks.md."""

    agents: int
    clock: str
    interval_s: float
    plain_s: float
    client_side_s: float
    saved: float
    low: float
    high: float
    plain_cpu_share: float | None
    client_side_cpu_share: float | None
    cpu_ratio: float
    tasks_per_s: dict[str, float] | None
    most_at_once: int
    saturated: bool


def measure(plan: ScalePlan, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Measure everything; return the JSON's `scale`."""
    gc.collect()
    gc.freeze()  # what is imported is not walked through again at every collection
    try:
        return _measured(plan, advance)
    finally:
        gc.unfreeze()


def _measured(plan: ScalePlan, advance: Callable[[], None]) -> dict[str, Any]:
    memory = _memory(plan.held)
    advance()
    interval_s = _interval_s()
    rows = [_row(plan, n, interval_s, None, advance) for n in plan.real]
    rows += [_row(plan, n, interval_s, VirtualTimeLoop, advance) for n in plan.virtual]
    return {"rows": [asdict(row) for row in rows], "memory": memory}


def _interval_s() -> float:
    """Return how far apart plain's agents may begin to use `PLAIN_SHARE` of a core.

    Measured on a real loop: a virtual clock spares the waking up.
    """
    plain = _agent("plain", _PROBE_TIMES)
    _crowd(plain, _PROBES, _PROBE_INTERVAL_S, None)
    return _crowd(plain, _PROBES, _PROBE_INTERVAL_S, None).cpu_s / _PROBES / PLAIN_SHARE


def _agent(arm: str, times: float) -> Any:  # noqa: ANN401 - a compiled graph
    answer = look_ups(times * TOOL_S)
    model = PacedModel(answer=answer, generation_s=times * GENERATION_S)
    create_agent: Any = agents.create_agent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if arm == "plain":
        return create_agent(model, [look_up_tool()])
    draft = DraftModel(PacedModel(answer=answer, generation_s=times * DRAFT_S))
    speculation = Speculation(speculators=[draft], policy=POLICY)
    return create_agent(
        model, [speculatable(look_up_tool())], middleware=[speculation.middleware()]
    )


def _crowd(
    agent: Any,  # noqa: ANN401 - a compiled graph
    count: int,
    interval_s: float,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> _Crowd:
    """Let `count` agents begin one after another, and wait for all of them."""
    now = most = 0

    async def one(number: int) -> float:
        nonlocal now, most
        await asyncio.sleep(number * interval_s)
        clock = asyncio.get_running_loop().time
        began_s, now = clock(), now + 1
        most = max(most, now)
        await agent.ainvoke(_INPUT)
        now -= 1
        return clock() - began_s

    async def everyone() -> tuple[list[float], float]:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        return await asyncio.gather(*map(one, range(count))), clock() - began_s

    gc.collect()
    cpu_s = time.process_time()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        agents_s, took_s = runner.run(everyone())
    return _Crowd(
        agents_s=agents_s,
        took_s=took_s,
        cpu_s=time.process_time() - cpu_s,
        most_at_once=most,
    )


def _row(
    plan: ScalePlan,
    count: int,
    interval_s: float,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
    advance: Callable[[], None],
) -> ScaleRow:
    crowds: list[_Crowd] = []
    for arm in ("plain", "client_side"):
        crowds.append(_crowd(_agent(arm, plan.times), count, interval_s, loop_factory))
        advance()
    plain, ours = crowds
    found = mean_interval(saved_percent(plain.agents_s, ours.agents_s))
    arriving_s = max(count * interval_s, plan.times * GENERATION_S)
    shares = [each.cpu_s / min(each.took_s, arriving_s) for each in crowds]
    return ScaleRow(
        agents=count,
        clock="virtual" if loop_factory else "real",
        interval_s=round(interval_s, 5),
        plain_s=_mean(plain.agents_s),
        client_side_s=_mean(ours.agents_s),
        saved=round(found.value, _DIGITS),
        low=round(found.low, _DIGITS),
        high=round(found.high, _DIGITS),
        plain_cpu_share=None if loop_factory else round(shares[0], _DIGITS),
        client_side_cpu_share=None if loop_factory else round(shares[1], _DIGITS),
        cpu_ratio=round(ours.cpu_s / plain.cpu_s, _DIGITS),
        tasks_per_s=None
        if loop_factory
        else {
            "plain": round(count / plain.took_s, _DIGITS),
            "client_side": round(count / ours.took_s, _DIGITS),
        },
        most_at_once=plain.most_at_once,
        saturated=loop_factory is None and max(shares) > SATURATED,
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), _DIGITS)


class _HeldModel(PacedModel):
    """Waits for `until` before it says what it is asked; answers a tool's result at once."""

    until: Any = None
    held: Any = None
    """A list that gets an entry for each turn that waits."""

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if not isinstance(messages[-1], ToolMessage):
            self.held.append(None)
            await self.until.wait()
        return await super()._agenerate(messages, stop, run_manager, **kwargs)


def _memory(turns: int) -> dict[str, float]:
    """Return what a turn in progress holds beyond one with a middleware that does nothing."""
    held = {arm: asyncio.run(_held(turns, arm)) / turns / 1024 for arm in _HELD}
    return {
        "turns": turns,
        "kb_per_turn": round(held["flying"] - held["noop"], 2),
        "kb_per_turn_landed": round(held["landed"] - held["noop"], 2),
        "kb_per_turn_without_guess": round(held["silent"] - held["noop"], 2),
        "kb_of_noop_turn": round(held["noop"], 2),
    }


async def _held(turns: int, arm: str) -> int:
    """Return the bytes that `turns` turns hold while model, and early run, are at work."""
    await _hold(2, arm)  # what is kept once per process
    return await _hold(turns, arm)


async def _hold(turns: int, arm: str) -> int:
    until = asyncio.Event()
    models, tools = list[None](), list[None]()
    agent = _held_agent(arm, until, models, tools)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    async with asyncio.TaskGroup() as group:
        for _ in range(turns):
            group.create_task(agent.ainvoke(_INPUT))
        wanted = turns if arm in ("flying", "landed") else 0
        while len(models) < turns or len(tools) < wanted:  # noqa: ASYNC110 - two lists, of which threads know nothing
            await asyncio.sleep(0.01)
        await _settled()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        until.set()
    tracemalloc.stop()
    return held


async def _settled() -> None:
    """Wait until no task has come or gone for a while."""
    before, quiet = 0, 0
    while quiet < _QUIET:
        await asyncio.sleep(0.02)
        now = len(asyncio.all_tasks())
        before, quiet = now, quiet + 1 if now == before else 0


def _held_agent(arm: str, until: asyncio.Event, models: list[None], tools: list[None]) -> Any:  # noqa: ANN401 - a compiled graph
    model = _HeldModel(answer=look_ups(0.0), until=until, held=models)
    create_agent: Any = agents.create_agent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    tool = _held_tool(until if arm == "flying" else None, tools)
    if arm == "noop":
        return create_agent(model, [tool], middleware=[NoopMiddleware()])
    answer = look_ups() if arm == "silent" else look_ups(0.0)
    speculation = Speculation(speculators=[DraftModel(PacedModel(answer=answer))], policy=POLICY)
    return create_agent(model, [speculatable(tool)], middleware=[speculation.middleware()])


def _held_tool(until: asyncio.Event | None, tools: list[None]) -> BaseTool:
    async def look_up(what: str, seconds: float) -> str:
        tools.append(None)
        if until is not None:
            await until.wait()
        return f"{what}: {seconds}"

    return StructuredTool.from_function(
        coroutine=look_up, name="look_up", description="Look something up."
    )
