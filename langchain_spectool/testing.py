"""Fakes for tests of agents: a clock that jumps, a model that plays a script, an observer.

Under `VirtualTimeLoop` the seconds that a `ScriptedModel` states pass at once, and exactly:

    model = ScriptedModel(turns=[calls(("search", {"query": "ants"})), text("Six legs.")])
    agent = create_agent(model, [search], middleware=[SpeculationMiddleware()])
"""

import asyncio
import json
import re
import selectors
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar, TypeVarTuple

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
    message_chunk_to_message,
)
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, model_validator

from langchain_spectool._core.events import Event
from langchain_spectool._runtime.pool import POOL

__all__ = ["RecordingObserver", "ScriptedModel", "Turn", "VirtualTimeLoop", "calls", "text"]

_POLL_S = 0.001
"""Real seconds between two looks at whether threads are still at work."""

_Result = TypeVar("_Result")
_Args = TypeVarTuple("_Args")


class _JumpingSelector(selectors.DefaultSelector):
    """Moves its clock on instead of waiting, unless threads still owe the loop an answer."""

    def __init__(self, patience_s: float) -> None:
        super().__init__()
        self.now_s = 0.0
        self.owed: set[object] = set()
        self._patience_s = patience_s
        self._first_threads = set(threading.enumerate())
        self._hung = POOL.running
        """Tasks of before, or that took too long: nothing waits for them."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        limit_s = time.monotonic() + self._patience_s
        while self._threads_work() or (timeout is None and self._has_new_threads()):
            if events := super().select(_POLL_S):
                return events
            if time.monotonic() > limit_s:
                self._give_up()
                break
        # A thread that has just come to its end may have called the loop before that.
        if events := super().select(0):
            return events
        if timeout is None:
            msg = "deadlock: every task waits, and no timer or thread is left to wake one"
            raise RuntimeError(msg)
        self.now_s += timeout
        return events

    def _threads_work(self) -> bool:
        return bool(self.owed) or not POOL.running <= self._hung

    def _has_new_threads(self) -> bool:
        return not self._first_threads.issuperset(threading.enumerate())

    def _give_up(self) -> None:
        """Take what works now for hung, and do not wait for it again."""
        self.owed.clear()
        self._hung = POOL.running


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 s and jumps from timer to timer.

    Work in threads takes no virtual time: the clock stands, and the loop waits in real time, while
    anything given to `run_in_executor`, or an early run in a thread, is unfinished. Threads that
    reach the loop another way are waited for inside `outside_work`.

    Raises:
        RuntimeError: Every task waits and nothing is left to wake one.
    """

    def __init__(self, *, patience_s: float = 2.0) -> None:
        """Start the clock; a thread silent for `patience_s` real seconds no longer holds it."""
        self._jumping = _JumpingSelector(patience_s)
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._jumping.now_s

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*_Args], _Result],
        *args: *_Args,
    ) -> asyncio.Future[_Result]:
        """Run `func` in a thread, as any loop does, and hold the clock until it is done."""
        work = super().run_in_executor(executor, func, *args)
        self._jumping.owed.add(work)
        work.add_done_callback(self._jumping.owed.discard)
        return work

    @contextmanager
    def outside_work(self) -> Generator[None, None, None]:
        """Hold the clock inside the block, for threads that the loop cannot see."""
        token = object()
        self._jumping.owed.add(token)
        try:
            yield
        finally:
            self._jumping.owed.discard(token)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Join the executor's threads, however long that takes: `timeout` would be virtual."""
        with self.outside_work():
            await super().shutdown_default_executor()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of a `ScriptedModel`: a message, or the chunks of one, or an error.

    Raises:
        ValueError: Both or neither of `message` and `chunks` are given (neither is fine with an
            `error`), or a time is negative or out of order.
    """

    message: AIMessage | None = None
    """The whole answer; a stream splits it into words and halves of arguments, evenly spread."""
    chunks: Sequence[tuple[float, AIMessageChunk]] = ()
    """The answer as streamed: seconds from the start of the turn, and what arrives then."""
    generation_s: float | None = None
    """Seconds the turn takes; None for the time of the last chunk, or the model's own setting."""
    error: Exception | None = None
    """Raised at the end of the turn, after what was streamed."""

    def __post_init__(self) -> None:
        """Check that there is one answer and that its times are in order."""
        answers = (self.message is not None) + bool(self.chunks)
        if answers > 1 or not (answers or self.error):
            msg = f"give one of `message` and `chunks`, or an `error`, got {self!r}"
            raise ValueError(msg)
        times = [0.0, *(at_s for at_s, _ in self.chunks)]
        if self.generation_s is not None:
            times.append(self.generation_s)
        if times != sorted(times):
            msg = f"times must rise from 0 and end with `generation_s`, got {times!r}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class _Performance:
    """A turn made ready to play: what arrives when, and how it ends."""

    chunks: list[tuple[float, AIMessageChunk]]
    end_s: float
    error: Exception | None

    def result(self) -> ChatResult:
        """Return the sum of the chunks, or raise the turn's error."""
        if self.error is not None:
            raise self.error
        first, *rest = (chunk for _, chunk in self.chunks)
        message = message_chunk_to_message(add_ai_message_chunks(first, *rest))
        return ChatResult(generations=[ChatGeneration(message=message)])


class ScriptedModel(BaseChatModel):
    """A chat model that plays `turns`, or what `script` makes of the messages, at a stated pace.

    It keeps no position: the n-th of `turns` answers a conversation with n AI messages since the
    last human one, so that retries, concurrent runs and new questions each find their place. It
    sleeps on the event loop's clock when called asynchronously, in real time otherwise.

    Raises:
        ValueError: Not exactly one of `turns` and `script` is given.
        IndexError: The conversation, when called, is past the last of `turns`.
    """

    turns: Sequence[Turn | AIMessage] = ()
    script: Callable[[list[BaseMessage]], Turn | AIMessage] | None = None
    generation_s: float = Field(default=0.0, ge=0)
    """Seconds a turn takes that does not say it itself."""
    model_name: str = "scripted"
    usage_metadata: UsageMetadata | None = None
    """Token counts of every turn whose message has none of its own."""
    seen: list[list[BaseMessage]] = Field(default_factory=list[list[BaseMessage]])
    """The messages of every call so far, in the order of the calls."""

    @model_validator(mode="after")
    def _check_script(self) -> Self:
        if bool(self.turns) == (self.script is not None):
            msg = "give either `turns`, at least one, or `script`"
            raise ValueError(msg)
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"model_name": self.model_name}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind `tools` in OpenAI's format, where callbacks see them."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        performance = self._perform(messages)
        _sleep_until(time.monotonic() + performance.end_s)
        return performance.result()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        performance = self._perform(messages)
        await _asleep_until(asyncio.get_running_loop().time() + performance.end_s)
        return performance.result()

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        performance, start_s = self._perform(messages), time.monotonic()
        for at_s, chunk in performance.chunks:
            _sleep_until(start_s + at_s)
            yield ChatGenerationChunk(message=chunk)
        _sleep_until(start_s + performance.end_s)
        if performance.error is not None:
            raise performance.error

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        performance, start_s = self._perform(messages), asyncio.get_running_loop().time()
        for at_s, chunk in performance.chunks:
            await _asleep_until(start_s + at_s)
            yield ChatGenerationChunk(message=chunk)
        await _asleep_until(start_s + performance.end_s)
        if performance.error is not None:
            raise performance.error

    def _perform(self, messages: list[BaseMessage]) -> _Performance:
        """Note the messages and make the turn that answers them ready."""
        self.seen.append(list(messages))
        turn = self.script(messages) if self.script else self._turn_after(messages)
        if isinstance(turn, AIMessage):
            turn = Turn(message=turn)
        if turn.message is None:
            # LangChain writes an id into the chunks it is given: the script keeps its own.
            chunks = [(at_s, chunk.model_copy(deep=True)) for at_s, chunk in turn.chunks]
            last_s = chunks[-1][0] if chunks else self.generation_s
            end_s = last_s if turn.generation_s is None else turn.generation_s
        else:
            end_s = self.generation_s if turn.generation_s is None else turn.generation_s
            pieces = list(self._split(turn.message))
            chunks = [(end_s * n / len(pieces), piece) for n, piece in enumerate(pieces, start=1)]
        return _Performance(chunks, end_s, turn.error)

    def _turn_after(self, messages: list[BaseMessage]) -> Turn | AIMessage:
        position = 0
        for message in messages:
            if isinstance(message, HumanMessage):
                position = 0
            elif isinstance(message, AIMessage):
                position += 1
        if position >= len(self.turns):
            msg = f"the script has {len(self.turns)} turns and was asked for turn {position + 1}"
            raise IndexError(msg)
        return self.turns[position]

    def _split(self, message: AIMessage) -> Iterator[AIMessageChunk]:
        """Yield `message` as a provider streams it: text, tool calls, then how it ended."""
        whole = message.content
        if isinstance(whole, str):
            for word in re.split(r"(?<=\s)(?=\S)", whole) if whole else ():
                yield AIMessageChunk(content=word, id=message.id)
        else:
            yield AIMessageChunk(content=whole, id=message.id).model_copy(deep=True)
        fragments = list(_call_fragments(message))
        for fragment in fragments:
            yield AIMessageChunk(content="", tool_call_chunks=[fragment], id=message.id)
        yield AIMessageChunk(
            content="",
            id=message.id,
            additional_kwargs=dict(message.additional_kwargs),
            response_metadata={
                "finish_reason": "tool_calls" if fragments else "stop",
                "model_name": self.model_name,
                **message.response_metadata,
            },
            usage_metadata=message.usage_metadata or self.usage_metadata,
            chunk_position="last",
        )


class RecordingObserver:
    """An observer that keeps every event, in the order it came, in `events`."""

    def __init__(self) -> None:
        """Start with no events."""
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        """Keep `event`."""
        self.events.append(event)


def calls(
    *requests: tuple[str, Mapping[str, Any]], content: str = "", prefix: str = "c"
) -> AIMessage:
    """Return a message that calls tools, each given by name and arguments, with ids c0, c1, ..."""
    return AIMessage(
        content=content,
        tool_calls=[
            tool_call(name=name, args=dict(args), id=f"{prefix}{position}")
            for position, (name, args) in enumerate(requests)
        ],
    )


def text(content: str) -> AIMessage:
    """Return a message that calls no tool."""
    return AIMessage(content=content)


def _call_fragments(message: AIMessage) -> Iterator[ToolCallChunk]:
    """Yield each tool call of `message`, invalid ones last, in two pieces of its raw arguments."""
    raw = [(call["name"], json.dumps(call["args"]), call["id"]) for call in message.tool_calls]
    raw += [(bad["name"], bad["args"] or "", bad["id"]) for bad in message.invalid_tool_calls]
    for index, (name, args, call_id) in enumerate(raw):
        half = len(args) // 2
        yield tool_call_chunk(name=name, args=args[:half], id=call_id, index=index)
        yield tool_call_chunk(args=args[half:], index=index)


def _sleep_until(moment_s: float) -> None:
    """Sleep until `time.monotonic()` says `moment_s`; not at all when that has passed."""
    left_s = moment_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)


async def _asleep_until(moment_s: float) -> None:
    """Sleep until the running loop's clock says `moment_s`; not at all when that has passed."""
    left_s = moment_s - asyncio.get_running_loop().time()
    if left_s > 0:
        await asyncio.sleep(left_s)
