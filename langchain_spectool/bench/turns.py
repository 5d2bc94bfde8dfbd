"""How long a turn takes when the model and its tools take their time.

A run is one agent invocation: the model writes for `generation_s` and asks for its calls, the
tools run side by side, and the model closes at once, so that the last word costs no time in
either arm. Ratios are those of medians.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

from langchain_spectool import testing
from langchain_spectool.bench.agents import Form, build
from langchain_spectool.bench.measure import Arm, Comparable, Sample, comparable, interleave
from langchain_spectool.bench.paced import PacedModel, look_ups
from langchain_spectool.bench.report import Bar, options, progress, publish
from langchain_spectool.graph.speculation import Source
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.speculators.early_dispatch import EarlyDispatch

FEWEST = 1
_OURS: Form = "ours"
_INPUT = {"messages": [("user", "look it up")]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One comparison: an agent of ours against a stock one, on the same turn."""

    name: str
    limit: float
    """The most its ratio may be."""
    generation_s: float
    tools_s: tuple[float, ...]
    """Seconds of each tool call the model asks for."""
    draft_s: float = 0.1
    """Seconds the draft model takes."""
    guessed: Literal["all", "none", "streamed"] = "all"
    """Whether the draft model is right throughout or throughout wrong, or there is no draft model
    and calls start when the stream closes them."""
    closed_at: tuple[float, ...] = ()
    """Where in the stream, from 0 to 1, each call is complete; not streamed when empty."""
    blocking: bool = False
    """Through `invoke`."""
    at_once: int = 1
    """How many turns are taken at the same time."""
    against: Form = "plain"

    @property
    def answer(self) -> AIMessage:
        """What the model asks for."""
        return look_ups(*self.tools_s)


WORKLOADS = (
    Workload(name="hit", limit=0.62, generation_s=0.5, tools_s=(0.5,)),
    Workload(name="miss_short", limit=1.02, generation_s=0.5, tools_s=(0.5,), guessed="none"),
    Workload(name="miss_long", limit=1.02, generation_s=0.5, tools_s=(1.0,), guessed="none"),
    Workload(
        name="spread_hit",
        limit=0.65,
        generation_s=0.8,
        tools_s=(0.5,) * 4,
        closed_at=(0.25, 0.5, 0.75, 1.0),
    ),
    Workload(name="long_first_hit", limit=0.58, generation_s=0.8, tools_s=(0.8, 0.1, 0.1, 0.1)),
    Workload(
        name="early_dispatch",
        limit=0.75,
        generation_s=0.8,
        tools_s=(0.5,),
        guessed="streamed",
        closed_at=(0.25,),
    ),
    Workload(name="sync_hit", limit=0.63, generation_s=0.5, tools_s=(0.5,), blocking=True),
    Workload(name="concurrent_16_hit", limit=0.67, generation_s=0.5, tools_s=(0.5,), at_once=16),
    Workload(
        name="concurrent_256_vs_noop",
        limit=1.02,
        generation_s=0.5,
        tools_s=(0.5,),
        at_once=256,
        against="noop",
    ),
)


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status."""
    given = options(
        argv,
        name="turns",
        about="Measures how much of a turn's time early tool runs save.",
        repeats=7,
        fewest=FEWEST,
    )
    arms = turn_arms(WORKLOADS)
    with progress("turns", len(arms) * (given.repeats + 1)) as advance:
        interleave(arms, given.repeats, advance=advance)
    return publish(
        turn_bars(WORKLOADS, arms), arms, name="turns", repeats=given.repeats, as_json=given.json
    )


def turn_arms(workloads: Sequence[Workload]) -> list[Arm]:
    """Return the stock arm and ours of every workload."""
    return [_arm(each, form) for each in workloads for form in (each.against, _OURS)]


def turn_bars(workloads: Sequence[Workload], arms: Sequence[Arm]) -> list[Bar]:
    """Compare the arms of `turn_arms`."""
    median_s = {arm.name: arm.median_s for arm in arms}
    return [
        Bar(
            name=each.name,
            value=round(
                median_s[f"{each.name}:{_OURS}"] / median_s[f"{each.name}:{each.against}"], 4
            ),
            limit=each.limit,
        )
        for each in workloads
    ]


def _arm(workload: Workload, form: Form) -> Arm:
    agent, speculation = build(form, _model(workload), _speculators(workload))
    runs = _blocking if workload.blocking else _awaiting
    return Arm(
        name=f"{workload.name}:{form}",
        task=workload.name,
        run=runs(agent, workload),
        speculation=speculation,
        hits=0 if workload.guessed == "none" else len(workload.tools_s) * workload.at_once,
    )


def _model(workload: Workload) -> BaseChatModel:
    if not workload.closed_at:
        return PacedModel(answer=workload.answer, generation_s=workload.generation_s)
    first = testing.Turn(chunks=_stream(workload), generation_s=workload.generation_s)
    return testing.ScriptedModel(turns=[first, testing.text("done")])


def _stream(workload: Workload) -> list[tuple[float, AIMessageChunk]]:
    """Write each call just before it is complete, and text after it, to the end of the turn."""
    chunks: list[tuple[float, AIMessageChunk]] = []
    for index, (call, share) in enumerate(
        zip(workload.answer.tool_calls, workload.closed_at, strict=True)
    ):
        at_s = share * workload.generation_s
        piece = tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index
        )
        chunks += [
            (at_s, AIMessageChunk(content="", tool_call_chunks=[piece])),
            (at_s, AIMessageChunk(content="so ")),
        ]
    return [
        *chunks,
        (workload.generation_s, AIMessageChunk(content="it is", chunk_position="last")),
    ]


def _speculators(workload: Workload) -> list[Source]:
    if workload.guessed == "streamed":
        return [EarlyDispatch()]
    right = workload.guessed == "all"
    guess = look_ups(*workload.tools_s, word="item" if right else "other")
    return [DraftModel(PacedModel(answer=guess, generation_s=workload.draft_s))]


def _awaiting(agent: Any, workload: Workload) -> Callable[[asyncio.Runner], Sample]:  # noqa: ANN401 - a compiled graph
    async def turn() -> Comparable:
        if not workload.closed_at:
            return comparable((await agent.ainvoke(_INPUT))["messages"])
        state: dict[str, Any] = {}
        async for mode, part in agent.astream(_INPUT, stream_mode=["messages", "values"]):
            state = part if mode == "values" else state
        return comparable(state["messages"])

    async def turns() -> Sample:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        answers = await asyncio.gather(*(turn() for _ in range(workload.at_once)))
        return Sample(seconds=clock() - began_s, answers=answers)

    return lambda runner: runner.run(turns())


def _blocking(agent: Any, _: Workload) -> Callable[[asyncio.Runner], Sample]:  # noqa: ANN401 - a compiled graph
    def turn(_: asyncio.Runner) -> Sample:
        began_s = time.perf_counter()
        state = agent.invoke(_INPUT)
        return Sample(
            seconds=time.perf_counter() - began_s, answers=[comparable(state["messages"])]
        )

    return turn
