"""The detached config, runtime and context an early run gets: it sees the run, nobody sees it."""

import contextlib
import contextvars
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import fields
from typing import Any, NoReturn, cast

from langchain_core.callbacks import (
    BaseCallbackHandler,
    BaseCallbackManager,
    Callbacks,
    UsageMetadataCallbackHandler,
)
from langchain_core.runnables.config import RunnableConfig, var_child_runnable_config
from langgraph.prebuilt import ToolRuntime
from langgraph.runtime import Runtime
from langsmith import run_helpers

from langchain_spectool.errors import TaintedError

RUNTIME = "__pregel_runtime"
_PREGEL = "__pregel_"
_TAINTING_KEYS = ("__pregel_scratchpad", "__pregel_send", "__pregel_call", "__pregel_read")
_METADATA = {"lc_source": "speculation"}


class Taint:
    """Notes what an early run did that cannot be replayed."""

    __slots__ = ("in_body", "reasons")

    def __init__(self) -> None:
        """Start clean."""
        self.reasons: list[str] = []
        self.in_body = False
        """Whether the tool's body has begun: before it LangChain itself reads every field of a
        `ToolRuntime`, when it validates the arguments."""

    def mark(self, reason: str) -> None:
        """Note `reason`; the run may go on, its result is dropped."""
        self.reasons.append(reason)

    def stop(self, reason: str) -> NoReturn:
        """Note `reason` and end the run here.

        Raises:
            TaintedError: Always.
        """
        self.mark(reason)
        msg = f"this early run {reason}; the call runs for real"
        raise TaintedError(msg)

    def write(self, _: object) -> NoReturn:
        """Stand where the writer of the tool's output stream stood."""
        self.stop("wrote to the tool's output stream")


class _Untouchable:
    """Stands where a live handle of the run stood; any use of it taints."""

    __slots__ = ("_taint", "_what")

    def __init__(self, taint: Taint, what: str) -> None:
        object.__setattr__(self, "_taint", taint)
        object.__setattr__(self, "_what", what)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._stop()

    def __call__(self, *_: object, **__: object) -> object:
        return self._stop()

    def _stop(self) -> NoReturn:
        taint = cast("Taint", object.__getattribute__(self, "_taint"))
        taint.stop(f"touched {object.__getattribute__(self, '_what')}")


_OPEN = frozenset({"context", "control"})
_OPEN_TO_TOOLS = frozenset({"context", "config"})


class _EarlyRuntime(Runtime[Any]):
    """A runtime of which only the context may be touched."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any field
        return _touched(self, name, _OPEN)


class _EarlyToolRuntime(ToolRuntime[Any, Any]):
    """A tool runtime of which only the context and the config may be touched."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any field
        return _touched(self, name, _OPEN_TO_TOOLS)


def _touched(runtime: object, name: str, may_be: frozenset[str]) -> Any:  # noqa: ANN401 - any field
    if not name.startswith("_") and name not in may_be:
        taint = cast("Taint", object.__getattribute__(runtime, "_spectool_taint"))
        if taint.in_body:
            taint.stop(f"touched `runtime.{name}`")
    return object.__getattribute__(runtime, name)


def early_runtime(runtime: object, taint: Taint) -> Runtime[Any]:
    """Return a runtime with the run's context and nothing else to use."""
    context = getattr(runtime, "context", None)
    early = object.__new__(_EarlyRuntime)
    for field in fields(Runtime):
        object.__setattr__(early, field.name, None)
    object.__setattr__(early, "context", context)
    object.__setattr__(early, "_spectool_taint", taint)
    return early


def early_tool_runtime(runtime: object, config: RunnableConfig, taint: Taint) -> object:
    """Return what a tool that asks for a `ToolRuntime` gets early."""
    early: ToolRuntime[Any, Any] = object.__new__(_EarlyToolRuntime)
    early.state, early.tools = {}, []
    early.context, early.config = getattr(runtime, "context", None), config
    early.stream_writer = _no_writer
    early.tool_call_id = early.store = early.execution_info = early.server_info = None
    object.__setattr__(early, "_spectool_taint", taint)
    return early


def _no_writer(_: object) -> None:
    """Fill a field; the body that looks at it is stopped."""


class _ChildRuns(BaseCallbackHandler):
    """Notices that the body started runs of its own: a replay would not show them."""

    run_inline = True

    def __init__(self, taint: Taint) -> None:
        self._taint = taint

    def _child(self, *_: Any, parent_run_id: object = None, **__: Any) -> None:
        if parent_run_id is not None:
            self._taint.mark("started a run of its own")

    on_chain_start = on_tool_start = on_retriever_start = _child
    on_llm_start = on_chat_model_start = _child

    def on_custom_event(self, *_: Any, **__: Any) -> None:
        self._taint.mark("sent a custom event")


@contextlib.contextmanager
def watching(taint: Taint) -> Generator[None]:
    """Let a committed body do all it does, and note what a shared result would not repeat."""
    config = var_child_runnable_config.get()
    found: Any = (config or {}).get("configurable", {}).get(RUNTIME)
    if config is None or not isinstance(found, Runtime):
        yield
        return
    runtime = cast("Runtime[Any]", found)
    write = runtime.stream_writer

    def noted(chunk: Any) -> None:  # noqa: ANN401 - any chunk
        taint.mark("wrote to the stream")
        write(chunk)

    changed = config.copy()
    changed["configurable"] = config.get("configurable", {}) | {
        RUNTIME: runtime.override(stream_writer=noted)
    }
    changed["callbacks"] = with_handler(config.get("callbacks"), _ChildRuns(taint))
    token = var_child_runnable_config.set(changed)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def with_handler(callbacks: Callbacks, handler: BaseCallbackHandler) -> Callbacks:
    """Return `callbacks` with one more handler, which child runs inherit."""
    if isinstance(callbacks, BaseCallbackManager):
        manager = callbacks.copy()
        manager.add_handler(handler, inherit=True)
        return manager
    return [*(callbacks or ()), handler]


def own_configurable(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the application put into a `configurable`, without the framework's handles."""
    return {
        key: value
        for key, value in given.items()
        if not key.startswith((_PREGEL, "checkpoint")) and key != "speculation"
    }


def early_config(
    config: Mapping[str, Any], runtime: object, taint: Taint, *, probe: bool
) -> RunnableConfig:
    """Return the config of an early tool run: no callbacks of the caller, no live handles."""
    given = cast("Mapping[str, Any]", config.get("configurable") or {})
    configurable = own_configurable(given)
    untouchable = _Untouchable(taint, "an interrupt or a graph's own channels")
    configurable.update(dict.fromkeys(_TAINTING_KEYS, untouchable))
    configurable[RUNTIME] = early_runtime(runtime, taint)
    return RunnableConfig(
        callbacks=[_ChildRuns(taint)] if probe else [],
        tags=[],
        metadata={**cast("Mapping[str, Any]", config.get("metadata") or {}), **_METADATA},
        configurable=configurable,
        recursion_limit=config.get("recursion_limit", 25),
    )


def _untraced() -> Mapping[contextvars.ContextVar[Any], Any]:
    """Return the variables by which LangSmith knows that it shall trace nothing."""
    tracing: Callable[..., contextlib.AbstractContextManager[None]]
    tracing = vars(run_helpers)["tracing_context"]
    with tracing(parent=False, enabled=False):
        return dict(contextvars.copy_context().items())


_UNTRACED = contextvars.Context().run(_untraced)


def detached_context() -> contextvars.Context:
    """Copy the caller's context (its tenant and auth variables too) without the run's config.

    LangSmith traces nothing in it.
    """
    context = contextvars.copy_context()
    for variable, value in ((var_child_runnable_config, None), *_UNTRACED.items()):
        context.run(variable.set, value)
    return context


def silence(taint: Taint | None = None) -> None:
    """Cut the current, own context off from handlers that register by context variable.

    A tool's early run must not be seen by cost trackers and tracers; a draft model's run keeps
    its trackers (no `taint`), so that its tokens are counted, once, under its own name.
    """
    var_child_runnable_config.set(None)
    _leave_span()
    for variable in hook_variables():
        handler = variable.get()
        if handler is not None and not (
            taint is None and isinstance(handler, UsageMetadataCallbackHandler)
        ):
            variable.set(None)
    if taint is None:
        return
    writer = tool_call_writer()
    if writer is not None:
        writer.set(taint.write)


def hook_variables() -> list[contextvars.ContextVar[Any]]:
    """Return the variables by which handlers register themselves for every run."""
    context = sys.modules.get("langchain_core.tracers.context")
    hooks = cast("list[tuple[Any, ...]]", getattr(context, "_configure_hooks", []))
    return [hook[0] for hook in hooks]


def tool_call_writer() -> contextvars.ContextVar[Callable[[Any], None] | None] | None:
    """Return the variable that holds the writer of the running tool's output stream."""
    return getattr(sys.modules.get("langgraph.pregel._tools"), "_tool_call_writer", None)


def _leave_span() -> None:
    api = sys.modules.get("opentelemetry.trace")
    context = sys.modules.get("opentelemetry.context")
    if api is not None and context is not None:
        context.attach(api.set_span_in_context(api.INVALID_SPAN))
