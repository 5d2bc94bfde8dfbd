"""`SpeculativeModelNode`: the model's side of a hand-built graph."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar, cast
from uuid import UUID

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence, ensure_config
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import set_config_context

from langchain_spectool._runtime.landing import running_loop
from langchain_spectool.graph.deltas import StreamStep
from langchain_spectool.graph.isolation import with_handler
from langchain_spectool.graph.model_turn import ModelTurn
from langchain_spectool.graph.quiet_turn import QuietTurn
from langchain_spectool.graph.speculation import Speculation
from langchain_spectool.graph.tap import Tap, Witness, tapped, tapping

Node = Callable[..., Any]

ChatRunnable = TypeVar("ChatRunnable", bound=Runnable[Any, AIMessage])
"""A chat model, bare or with arguments bound to it."""


def model_node(
    speculation: Speculation, node: Node | Runnable[Any, Any], *, messages_key: str = "messages"
) -> Any:  # noqa: ANN401 - a function for a function, a runnable for a runnable
    """Wrap `node`; a function stays a function with the same signature and hints.

    A chat model gets the Speculation's tools bound, unless it comes with what `bind_tools`, `bind`
    or `with_config` has put around it; it reads the messages of the state at `messages_key`, and
    writes its answer there.

    Raises:
        TypeError: `node` is neither a function, a runnable nor a chat model.
    """
    model = _chat_model_in(node)
    if model is not None:
        inner = _rebound(node, functools.partial(_served, speculation))
        if isinstance(inner, BaseChatModel):
            inner = inner.bind_tools(speculation.tools)
        return SpeculativeModelNode(speculation, inner, messages_key=messages_key, model=model)
    if isinstance(node, RunnableSequence):
        return _wrapped_steps(speculation, cast("RunnableSequence[Any, Any]", node))
    if isinstance(node, Runnable):
        return SpeculativeModelNode(speculation, cast("Runnable[Any, Any]", node))
    if inspect.iscoroutinefunction(node) or inspect.iscoroutinefunction(
        getattr(node, "__call__", None)  # noqa: B004 - its kind is asked, not whether it can
    ):
        return _wrapped_async(speculation, node)
    if callable(node):
        return _wrapped(speculation, node)
    msg = f"a model node is a function, a runnable or a chat model, got {node!r}"
    raise TypeError(msg)


def _chat_model_in(node: object) -> BaseChatModel | None:
    """Return the chat model that `node` is, with bound arguments or without."""
    while isinstance(node, RunnableBindingBase):
        node = cast("RunnableBindingBase[Any, Any]", node).bound
    return node if isinstance(node, BaseChatModel) else None


def _rebound(node: Any, change: Callable[[BaseChatModel], BaseChatModel]) -> Any:  # noqa: ANN401 - as it is given
    """Return a copy of `node` with its chat model changed, and what is bound to it kept."""
    if isinstance(node, RunnableBindingBase):
        binding = cast("RunnableBindingBase[Any, Any]", node)
        return binding.model_copy(update={"bound": _rebound(binding.bound, change)})
    return change(node)


def _served(speculation: Speculation, model: BaseChatModel) -> BaseChatModel:
    return model if speculation.engine is None else speculation.engine.served(model)


def _wrapped(speculation: Speculation, node: Node) -> Node:
    @functools.wraps(node)
    def wrapped(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the node's own
        with _Watched(speculation, loop=None) as watched:
            return watched.answered(node(*args, **kwargs))

    return wrapped


def _wrapped_async(speculation: Speculation, node: Node) -> Node:
    @functools.wraps(node)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the node's own
        with _Watched(speculation, loop=asyncio.get_running_loop()) as watched:
            return watched.answered(await node(*args, **kwargs))

    return wrapped


def _wrapped_steps(
    speculation: Speculation, sequence: RunnableSequence[Any, Any]
) -> RunnableSequence[Any, Any]:
    # LangGraph takes a sequence apart and runs its steps as the node's own: ours stays one.
    steps = (SpeculativeModelNode(speculation, step) for step in sequence.steps)
    return RunnableSequence(*steps, name=sequence.name)


class SpeculativeModelNode(Runnable[Any, Any]):
    """Runs an inner runnable, and speculates while its model writes.

    It leaves no run of its own in traces. With a `messages_key`, the inner runnable takes and
    answers messages, and the node reads and writes them in the graph's state.
    """

    def __init__(
        self,
        speculation: Speculation,
        inner: Runnable[Any, Any],
        *,
        messages_key: str | None = None,
        model: BaseChatModel | None = None,
    ) -> None:
        """Wrap `inner`, which calls `model` if that is known."""
        self.speculation = speculation
        self.inner = inner
        self.messages_key = messages_key
        self.model = model
        self.name = inner.get_name()

    # The inner runnable gets its config as an argument alone, as it would from LangGraph: the
    # context variable is left as it is, here and in the generators below.

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002, ANN401 - Runnable's
        """Run the inner runnable."""
        watched, config = self._opened(ensure_config(config), loop=None)
        with watched:
            answer = self.inner.invoke(self._asked(input), config, **kwargs)
            return self._update(watched.answered(answer))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002, ANN401 - Runnable's
        """Await the inner runnable."""
        loop = asyncio.get_running_loop()
        watched, config = self._opened(ensure_config(config), loop=loop)
        with watched:
            answer = await self.inner.ainvoke(self._asked(input), config, **kwargs)
            return self._update(watched.answered(answer))

    # In `astream_events` LangGraph streams through the steps of a node.

    def transform(
        self,
        input: Iterator[Any],  # noqa: A002 - Runnable's
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Stream through the inner runnable."""
        if self.messages_key is not None:
            yield from super().transform(input, config, **kwargs)
            return
        watched, config = self._opened(ensure_config(config), loop=None)
        with watched:
            for part in self.inner.transform(input, config, **kwargs):
                yield watched.heard(part)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002, ANN401 - Runnable's
        """Stream from the inner runnable."""
        if self.messages_key is None:
            return self.transform(iter([input]), config, **kwargs)
        return super().stream(input, config, **kwargs)

    async def atransform(
        self,
        input: AsyncIterator[Any],  # noqa: A002 - Runnable's
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Stream through the inner runnable, awaiting."""
        if self.messages_key is not None:
            async for part in super().atransform(input, config, **kwargs):
                yield part
            return
        loop = asyncio.get_running_loop()
        watched, config = self._opened(ensure_config(config), loop=loop)
        with watched:
            async for part in self.inner.atransform(input, config, **kwargs):
                yield watched.heard(part)

    def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002, ANN401 - Runnable's
        """Stream from the inner runnable, awaiting."""
        if self.messages_key is None:
            return self.atransform(_once(input), config, **kwargs)
        return super().astream(input, config, **kwargs)

    def _opened(
        self, config: RunnableConfig, *, loop: asyncio.AbstractEventLoop | None
    ) -> tuple["_Watched", RunnableConfig]:
        with set_config_context(config) as context:
            watched = context.run(
                _Watched, self.speculation, loop=loop, config=config, model=self.model
            )
        return watched, watched.config or config

    def _asked(self, state: Any) -> Any:  # noqa: ANN401 - any state
        if self.messages_key is None or isinstance(state, list):
            return cast("list[Any]", state)
        if isinstance(state, Mapping):
            return cast("Mapping[str, Any]", state)[self.messages_key]
        return getattr(state, self.messages_key)

    def _update(self, answer: Any) -> Any:  # noqa: ANN401 - the inner runnable's own
        return answer if self.messages_key is None else {self.messages_key: [answer]}


async def _once(value: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - Runnable's
    yield value


def watched_model(speculation: Speculation, model: ChatRunnable) -> ChatRunnable:
    """Return a copy of `model` with a callback that speculates wherever it is called.

    Raises:
        TypeError: There is no chat model in it, bare or with bound arguments.
    """
    if _chat_model_in(model) is None:
        msg = f"a chat model is wanted, as it is or with arguments bound to it, got {model!r}"
        raise TypeError(msg)
    return _rebound(model, functools.partial(_watched, speculation))


def _watched(speculation: Speculation, model: BaseChatModel) -> BaseChatModel:
    tap = Tap(_ModelWatch(speculation, model))
    model = _served(speculation, model)
    return model.model_copy(update={"callbacks": with_handler(model.callbacks, tap)})


class _ModelWatch:
    """Makes each call of a model a turn, for graphs whose nodes are not ours to wrap."""

    def __init__(self, speculation: Speculation, model: BaseChatModel) -> None:
        self._speculation = speculation
        self._model = model
        self._turns: dict[UUID, ModelTurn | QuietTurn] = {}
        self._calls: dict[UUID, AbstractContextManager[object]] = {}

    def model_started(
        self, run_id: UUID, messages: Sequence[BaseMessage], parameters: Mapping[str, Any]
    ) -> None:
        turn = self._speculation.begin_turn(None, loop=running_loop())
        if turn is not None:
            self._turns[run_id] = turn
            turn.model_started(run_id, messages, parameters)
            # What the callback sets holds for the model's own request: it runs in its context.
            self._calls[run_id] = calling = self._speculation.calling(turn, self._model)
            calling.__enter__()

    def streamed(self, run_id: UUID, step: StreamStep) -> None:
        if isinstance(turn := self._turns.get(run_id), ModelTurn):
            turn.streamed(run_id, step)

    def model_ended(self, run_id: UUID, message: AIMessage | None) -> None:
        self._called(run_id)
        if turn := self._turns.pop(run_id, None):
            self._speculation.end_turn(turn, message)

    def model_failed(self, run_id: UUID) -> None:
        self._called(run_id)
        if turn := self._turns.pop(run_id, None):
            turn.abandon()

    def _called(self, run_id: UUID) -> None:
        if calling := self._calls.pop(run_id, None):
            calling.__exit__(None, None, None)


class _Watched:
    """A turn around a node: opened at its model's call, planned with what the node returns."""

    def __init__(
        self,
        speculation: Speculation,
        *,
        loop: asyncio.AbstractEventLoop | None,
        config: RunnableConfig | None = None,
        model: BaseChatModel | None = None,
    ) -> None:
        self._speculation = speculation
        self._turn = speculation.begin_turn(None, loop=loop)
        self._calling: AbstractContextManager[object] | None = None
        if model is not None and self._turn is not None:
            self._calling = speculation.calling(self._turn, model)
        self._tap = _tap_of(speculation, self._turn)
        self._tapped: AbstractContextManager[None] | None = None
        self._answer: AIMessage | None = None
        self.config = config if config is None or self._tap is None else tapping(config, self._tap)
        """The given config with the tap in it, which then listens nowhere else."""

    def __enter__(self) -> Self:
        if self._tap is not None and self.config is None:
            self._tapped = tapped(self._tap)
            self._tapped.__enter__()
        if self._calling is not None:
            self._calling.__enter__()
        return self

    def heard(self, part: Any) -> Any:  # noqa: ANN401 - the node's own
        """Take a part of what the node streams."""
        whole = None if isinstance(part, AIMessageChunk) else self._speculation.answer_of(part)
        self._answer = whole or self._answer
        return part

    def answered(self, output: Any) -> Any:  # noqa: ANN401 - the node's own
        if self._turn is not None:
            self._answer = self._speculation.answer_of(output)
        return output

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._calling is not None:
            self._calling.__exit__(None, None, None)
        if self._tapped is not None:
            self._tapped.__exit__(None, None, None)
        turn = self._turn
        # A step of a sequence, or a node that had nothing to ask, is no turn.
        if turn is None or not turn.called:
            return
        engine = self._speculation.engine
        if engine is not None and self._calling is None:
            engine.unseen(turn)
        if kind is not None:
            turn.abandon()
        elif isinstance(turn, QuietTurn):
            self._speculation.end_turn(turn, self._answer)
        else:
            self._speculation.end_turn(turn, self._answer or turn.answer)


def _tap_of(speculation: Speculation, turn: ModelTurn | QuietTurn | None) -> Witness | None:
    """Return what hears the model of a turn; of one held out, only that it is called.

    Nothing of ours may make such a model stream.
    """
    if isinstance(turn, QuietTurn):
        return Witness(turn)
    return None if turn is None else speculation.node_tap(turn)
