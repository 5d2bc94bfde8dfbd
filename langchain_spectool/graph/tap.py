"""Sees the main model's calls and chunks through a callback, without owning the stream."""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables.config import RunnableConfig, var_child_runnable_config
from langchain_core.tracers._streaming import (
    _StreamingCallbackHandler,
    _V2StreamingCallbackHandler,
)

from langchain_spectool.graph.deltas import StreamStep, step_of_chunk, step_of_event
from langchain_spectool.graph.isolation import with_handler


class CallWatch(Protocol):
    """Told that the model under it is called. None of its methods raise."""

    def model_started(
        self, run_id: UUID, messages: Sequence[BaseMessage], parameters: Mapping[str, Any], /
    ) -> None:
        """A chat model was called with these messages and bound parameters."""
        ...


class Watch(CallWatch, Protocol):
    """Told what the model run under it does. None of its methods raise."""

    def streamed(self, run_id: UUID, step: StreamStep) -> None:
        """It wrote a little more."""
        ...

    def model_ended(self, run_id: UUID, message: AIMessage | None) -> None:
        """It answered."""
        ...

    def model_failed(self, run_id: UUID) -> None:
        """It raised."""
        ...


class Witness(BaseCallbackHandler):
    """Passes on that a model is called, and hears nothing of what it says."""

    run_inline = True
    """On the loop or thread of the model's own run, so that early runs start there."""

    def __init__(self, watch: CallWatch) -> None:
        """Report to `watch`."""
        self._calls = watch

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - the interface
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """See a chat model start."""
        if "lc_source" in (kwargs.get("metadata") or {}):
            return
        self._expect(run_id)
        parameters = cast("Mapping[str, Any]", kwargs.get("invocation_params") or {})
        self._calls.model_started(run_id, messages[0] if messages else (), parameters)

    def _expect(self, run_id: UUID) -> None:
        """Get ready to hear what it says."""


class Tap(Witness):
    """Passes on what it hears; hears chunks only when somebody else asked for streaming."""

    def __init__(self, watch: Watch) -> None:
        """Report to `watch`."""
        super().__init__(watch)
        self._watch = watch
        self._spoken: dict[UUID, str] = {}

    def _expect(self, run_id: UUID) -> None:
        self._spoken[run_id] = ""

    def on_llm_new_token(
        self,
        token: Any,  # noqa: ANN401, ARG002 - the interface
        *,
        chunk: Any = None,  # noqa: ANN401 - the interface
        run_id: UUID,
        **_: Any,
    ) -> None:
        """See a chunk."""
        if self._speaks(run_id, "chunks"):
            self._watch.streamed(run_id, step_of_chunk(chunk))

    def on_stream_event(self, event: Any, *, run_id: UUID, **_: Any) -> Any:  # noqa: ANN401 - the interface
        """See an event of the content-block protocol."""
        if self._speaks(run_id, "events"):
            self._watch.streamed(run_id, step_of_event(event))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """See the answer."""
        if self._spoken.pop(run_id, None) is not None:
            self._watch.model_ended(run_id, _answer(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - the interface
        """See it fail."""
        if self._spoken.pop(run_id, None) is not None:
            self._watch.model_failed(run_id)

    def _speaks(self, run_id: UUID, way: str) -> bool:
        # A model that streams both ways tells everything twice.
        first = self._spoken.get(run_id)
        if first == "":
            self._spoken[run_id] = first = way
        return first == way


class ForcingTap(Tap, _StreamingCallbackHandler[Any]):
    """A tap whose presence switches streaming on."""

    def tap_output_aiter(self, run_id: UUID, output: Any) -> Any:  # noqa: ANN401, ARG002 - the interface
        """Pass the stream on as it is."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Any) -> Any:  # noqa: ANN401, ARG002 - the interface
        """Pass the stream on as it is."""
        return output


@contextlib.contextmanager
def tapped(tap: Witness) -> Generator[None]:
    """Add `tap` to the callbacks that runs started in this block inherit."""
    token = var_child_runnable_config.set(tapping(var_child_runnable_config.get() or {}, tap))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # closed with its loop, outside of its context
            var_child_runnable_config.reset(token)


def tapping(config: RunnableConfig, tap: Witness) -> RunnableConfig:
    """Return `config` with `tap` among the callbacks that its runs inherit."""
    return {**config, "callbacks": with_handler(config.get("callbacks"), tap)}


def caller_streams(model: object) -> bool:
    """Say whether the main model's run will stream, as far as that can be known before it."""
    if getattr(model, "streaming", None) is True:
        return True
    config = var_child_runnable_config.get() or {}
    callbacks = config.get("callbacks")
    handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks
    return any(
        isinstance(handler, (_StreamingCallbackHandler, _V2StreamingCallbackHandler))
        for handler in handlers or ()
    )


_NESTED = ("function", "function_declarations", "functionDeclarations", "toolSpec")


def bound_names(parameters: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the tools in a model run's parameters, in any provider's format."""
    names: set[str] = set()
    pending: list[Any] = [parameters.get("tools"), parameters.get("functions")]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            fields = cast("Mapping[str, Any]", item)
            if isinstance(name := fields.get("name"), str):
                names.add(name)
            pending += [fields.get(key) for key in _NESTED]
        elif isinstance(item, (list, tuple)):
            pending += cast("Sequence[Any]", item)
        elif isinstance(getattr(item, "name", None), str):
            names.add(item.name)
    return frozenset(names)


def _answer(response: LLMResult) -> AIMessage | None:
    for generation in response.generations[0] if response.generations else ():
        if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
            return generation.message
    return None
