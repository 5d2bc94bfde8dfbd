"""Runs gold tasks as real LangGraph agents: scripted model, executing tools, virtual time."""

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from langchain import agents
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from langchain_spectool import testing
from langchain_spectool.bench.gold import GoldTask, GoldTool, message_of
from langchain_spectool.bench.measure import Comparable, comparable
from langchain_spectool.bench.naming import BindsByName
from langchain_spectool.graph.declare import speculatable
from langchain_spectool.graph.speculation import Speculation

_TENTH = -NormalDist().inv_cdf(0.1)
"""How many standard deviations the tenth percentile is from the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds of a model's turns: two halves of log-normals that meet at the median."""

    model: str
    p10_s: float
    p50_s: float
    p90_s: float

    def draw(self, key: str) -> float:
        """Return the seconds of the turn that `key` names: the same at every draw."""
        distance = random.Random(key).gauss(0, 1) / _TENTH  # noqa: S311 - a fair draw, no secret
        ratio = self.p50_s / self.p10_s if distance < 0 else self.p90_s / self.p50_s
        return self.p50_s * math.exp(distance * math.log(ratio))


PACES = {
    pace.model: pace
    for pace in (
        Pace(model="haiku-4.5", p10_s=1.7, p50_s=3.8, p90_s=8.9),
        Pace(model="sonnet", p10_s=3.2, p50_s=5.5, p90_s=12.7),
        Pace(model="gemini-2.5-flash", p10_s=0.8, p50_s=1.5, p90_s=3.7),
    )
}
"""Measured times of whole model turns of tool-calling agents."""


class GoldModel(BindsByName, testing.ScriptedModel):
    """A scripted model that binds tools by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """What a run of one task came to."""

    seconds: float
    """End to end, on the loop's clock, over all questions."""
    tool_runs: int
    """How often a tool's body was started, early or not."""
    said: Comparable
    """Every message of the conversation."""


class Player:
    """Plays tasks, one after another, at one pace and latency."""

    def __init__(self, *, pace: Pace, latency_s: float, seed: int) -> None:
        """Play nothing yet."""
        self.task: GoldTask
        """The task being played."""
        self._pace = pace
        self._latency_s = latency_s
        self._seed = seed
        self._tool_runs = 0

    async def play(self, task: GoldTask, speculation: Speculation) -> TaskRun:
        """Play a task from its first question to its last answer, in a fresh environment."""
        create_agent: Any = agents.create_agent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        self.task = task
        tools = [
            langchain_tool(each, latency_s=self._latency_s, ran=self._ran)
            for each in task.environment().values()
        ]
        agent = create_agent(self._model(task), tools, middleware=[speculation.middleware()])
        before, clock = self._tool_runs, asyncio.get_running_loop().time
        began_s = clock()
        messages: list[BaseMessage] = []
        for question in task.questions:
            messages = await _asked(agent, [*messages, ("user", question.text)])
        return TaskRun(
            seconds=clock() - began_s,
            tool_runs=self._tool_runs - before,
            said=comparable(messages),
        )

    def _model(self, task: GoldTask) -> GoldModel:
        turns = [
            testing.Turn(
                message=message_of(batch, number),
                generation_s=self._pace.draw(f"{self._seed}:{task.task_id}:{number}"),
            )
            for number, batch in enumerate(task.answers)
        ]
        return GoldModel(script=lambda messages: turns[turn_of(messages)])

    def _ran(self) -> None:
        self._tool_runs += 1


def langchain_tool(
    gold: GoldTool, *, latency_s: float, ran: Callable[[], None] = lambda: None
) -> BaseTool:
    """Return a tool of the agent, declared if it is read-only, which takes `latency_s` a run."""

    async def body(**args: Any) -> str:
        ran()
        await asyncio.sleep(latency_s)
        return gold.body(**args)

    tool = StructuredTool(
        name=gold.name, description=gold.description, args_schema=gold.schema, coroutine=body
    )
    return speculatable(tool) if gold.read_only else tool


async def _asked(agent: Any, messages: Sequence[Any]) -> list[BaseMessage]:  # noqa: ANN401 - a compiled graph
    """Return the conversation after the agent's answer, streamed as a user would see it."""
    state: Mapping[str, Any] = {}
    async for mode, part in agent.astream(
        {"messages": messages}, stream_mode=["messages", "values"]
    ):
        state = part if mode == "values" else state
    return state["messages"]


def turn_of(messages: Sequence[BaseMessage]) -> int:
    """Return the number of the turn that answers `messages`, from 0."""
    return sum(isinstance(message, AIMessage) for message in messages)
