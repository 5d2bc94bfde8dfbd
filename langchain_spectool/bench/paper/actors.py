"""The agents of the experiment: a model that plays a task, its tools, and the arms around them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain import agents
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, StructuredTool

from langchain_spectool._core.guess import Guess
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.ports import Observer
from langchain_spectool.bench.gold import message_of
from langchain_spectool.bench.gold_agent import GoldModel, turn_of
from langchain_spectool.bench.measure import Comparable, comparable
from langchain_spectool.bench.paper.draft import MOST_SAMPLES, Draft
from langchain_spectool.bench.paper.latencies import factor_of
from langchain_spectool.bench.paper.workload import CHARS_PER_TOKEN, PaperTask
from langchain_spectool.graph.declare import speculatable
from langchain_spectool.graph.speculation import Source, Speculation
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.speculators.early_dispatch import EarlyDispatch
from langchain_spectool.speculators.rules import Rules

ARMS: Final[Mapping[str, str]] = {
    "plain": "stock create_agent: calls of a turn run side by side once the model is done",
    "client_side": "the paper's algorithm 2: DraftModel beside the model",
    "early_dispatch": "client_side, and the model's own calls as its stream closes them",
    "chain": "client_side, and guesses on the results of early runs, one turn further",
    "oracle": "all calls of a turn as the turn begins: the bound of a guess about this turn",
}
WRITING_FROM: Final = 0.5
"""Share of a turn that the model reasons; then it writes its calls, each for the same time."""
TOKENS_PER_S: Final = 60.0
"""What the simulated main model generates; for throughput and cost only."""
POLICY: Final = Policy(benefit=None, guesses_per_turn=256, in_flight_per_run=256, in_flight=1 << 20)
"""The paper's algorithm runs every guess. A benefit gate would hold the first ones back to learn
from them, and limits would cut nine samples short: arms would differ by more than their source."""


@dataclass(slots=True, kw_only=True)
class World:
    """How long everything takes. The means may change between runs; the draws do not."""

    seed: int
    generation_s: float
    """Mean seconds of a model turn."""
    latency_s: float
    """Mean seconds of a tool call."""
    scale: float = 1.0
    """What all times are multiplied by."""

    def turn_s(self, task: PaperTask, turn: int) -> float:
        """Return the seconds of a model turn."""
        key = f"turn:{self.seed}:{task.task_id}:{turn}"
        return self.scale * self.generation_s * factor_of(key)

    def call_s(self, task: PaperTask, name: str, args: Mapping[str, Any]) -> float:
        """Return the seconds of a tool call: of equal calls in a task, the same."""
        key = f"call:{self.seed}:{task.task_id}:{name}:{sorted(args.items())}"
        return self.scale * self.latency_s * factor_of(key)


class TaskModel(GoldModel):
    """Plays one task; streams its reasoning first, and then its calls one after another."""

    task: Any
    """The `PaperTask`."""
    world: Any
    """The `World`."""
    script: Callable[[list[BaseMessage]], Any] | None = lambda _: None

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the interface
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 - the interface
        **_: Any,
    ) -> ChatResult:
        turn = turn_of(messages)
        seconds = self.world.turn_s(self.task, turn)
        await asyncio.sleep(seconds)
        message = self.task.answers[turn].model_copy()
        message.usage_metadata = _usage(self.task, turn, self.world.scale, seconds)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the interface
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 - the interface
        **_: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        turn = turn_of(messages)
        seconds = self.world.turn_s(self.task, turn)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        for share, chunk in stream_of(self.task.answers[turn]):
            await asyncio.sleep(began_s + share * seconds - clock())
            if chunk.chunk_position == "last":
                chunk.usage_metadata = _usage(self.task, turn, self.world.scale, seconds)
            yield ChatGenerationChunk(message=chunk)


def stream_of(answer: AIMessage) -> list[tuple[float, AIMessageChunk]]:
    """Return an answer's chunks, and the share of the turn after which each arrives.

    A call's arguments arrive together with the name of the next call, which closes it.
    """
    if not answer.tool_calls:
        return [(1.0, AIMessageChunk(content=answer.content, chunk_position="last"))]
    count = len(answer.tool_calls)
    chunks: list[tuple[float, AIMessageChunk]] = []
    for place in range(count + 1):
        pieces = [
            tool_call_chunk(name=None, args=json.dumps(call["args"]), id=None, index=place - 1)
            for call in answer.tool_calls[max(0, place - 1) : place]
        ] + [
            tool_call_chunk(name=call["name"], args="", id=call["id"], index=place)
            for call in answer.tool_calls[place : place + 1]
        ]
        share = WRITING_FROM + (1 - WRITING_FROM) * place / count
        last = "last" if place == count else None
        chunk = AIMessageChunk(content="", tool_call_chunks=pieces, chunk_position=last)
        chunks.append((share, chunk))
    return chunks


def _usage(task: PaperTask, turn: int, scale: float, seconds: float) -> UsageMetadata:
    asked, said = task.asked_tokens[turn], round(TOKENS_PER_S * seconds / scale)
    return UsageMetadata(input_tokens=asked, output_tokens=said, total_tokens=asked + said)


class DraftPlayer(GoldModel):
    """The simulated draft as a chat model; samples tell themselves apart by their temperature."""

    draft: Any
    """The `Draft`."""
    tasks: Any
    """Tasks by the id of the user's message."""
    scale: float = 1.0
    script: Callable[[list[BaseMessage]], Any] | None = lambda _: None

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the interface
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 - the interface
        temperature: float = 0.0,
        **_: Any,
    ) -> ChatResult:
        task, turn = self.tasks[messages[0].id], turn_of(messages)
        if turn >= task.turns:  # a chain that goes on where the model has stopped
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Done."))])
        batch, seconds = self.draft.says(task, turn, round(temperature * MOST_SAMPLES))
        await asyncio.sleep(self.scale * seconds)
        message = message_of(batch, turn)
        asked, said = task.asked_tokens[turn], len(str(batch)) // CHARS_PER_TOKEN
        message.usage_metadata = UsageMetadata(
            input_tokens=asked, output_tokens=said, total_tokens=asked + said
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def speculation_of(  # noqa: PLR0913 - an arm's whole make-up
    arm: str,
    draft: Draft,
    tasks: Mapping[str, PaperTask],
    *,
    samples: int = 1,
    scale: float = 1.0,
    observers: Sequence[Observer] = (),
) -> Speculation:
    """Return the speculation of an arm that has one."""
    model = DraftPlayer(draft=draft, tasks=tasks, scale=scale, model_name="draft")
    drafting = DraftModel(
        model,
        samples,
        temperatures=[sample / MOST_SAMPLES for sample in range(samples)],
        timeout_s=3600,
    )
    sources: Mapping[str, Sequence[Source]] = {
        "client_side": [drafting],
        "early_dispatch": [drafting, EarlyDispatch()],
        "chain": [Chain(drafting)],
        "oracle": [Rules(lambda messages: _all_calls(tasks, messages))],
    }
    return Speculation(speculators=sources[arm], policy=POLICY, observers=observers)


def _all_calls(tasks: Mapping[str, PaperTask], messages: Sequence[BaseMessage]) -> list[Guess]:
    task, turn = tasks[messages[0].id or ""], turn_of(messages)
    batch = task.batches[turn] if turn < len(task.batches) else ()
    return [Guess(tool=name, args=args) for name, args in batch]


def agent_of(task: PaperTask, world: World, middleware: Sequence[Any], *, declared: bool) -> Any:  # noqa: ANN401 - a compiled graph
    """Return the agent that answers `task`; its tools may run early if `declared`."""
    create_agent: Any = agents.create_agent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    tools = [_tool(task, name, world, declared=declared) for name in task.tools]
    return create_agent(TaskModel(task=task, world=world), tools, middleware=middleware)


def _tool(task: PaperTask, name: str, world: World, *, declared: bool) -> BaseTool:
    spec = task.tools[name]

    async def body(**args: Any) -> str:
        return await output_after(task, world, name, args)

    tool = StructuredTool(
        name=name, description=spec.description, args_schema=spec.schema, coroutine=body
    )
    return speculatable(tool) if declared else tool


async def output_after(task: PaperTask, world: World, name: str, args: Mapping[str, Any]) -> str:
    """Return what a tool says, after the seconds it takes."""
    given = {key: value for key, value in args.items() if value is not None}
    await asyncio.sleep(world.call_s(task, name, given))
    return task.output(name, given)


async def asked(agent: Any, task: PaperTask) -> Comparable:  # noqa: ANN401 - a compiled graph
    """Put the task's question, streamed as a user would see it; return what was said."""
    state: Mapping[str, Any] = {}
    question = {"messages": [HumanMessage(task.text, id=task.task_id)]}
    async for mode, part in agent.astream(question, stream_mode=["messages", "values"]):
        state = part if mode == "values" else state
    return comparable(state["messages"])
