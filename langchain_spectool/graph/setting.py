"""The setting a body runs in: what the application, not the model, says about this very call.

Two calls with equal arguments may still differ in who asks: by a context variable, by the
run's context, by its `configurable`. A result made in one setting never answers another.
"""

import contextvars
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.prebuilt import ToolRuntime
from langsmith import run_helpers

from langchain_spectool._core.encoding import encode
from langchain_spectool.graph.isolation import (
    RUNTIME,
    hook_variables,
    own_configurable,
    tool_call_writer,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a body could see of its surroundings, as far as they are the application's."""

    text: str
    """Equal texts mean equal settings, while `holds` lives."""
    holds: object
    """The objects that are known by their identity."""


def current_setting(handed: Mapping[str, Any]) -> Setting:
    """Return the setting of the body that is about to run and was handed these arguments."""
    parts = sorted((*_variables(), *_of_the_run(), *_of_the_call(handed)), key=lambda p: p[0])
    text = "".join(f"{name}={_written(value)};" for name, value in parts)
    return Setting(text, [value for _, value in parts])


def _written(value: object) -> str:
    written = encode(value, exact=True)
    return f"@{id(value):x}" if written is None else f"{len(written)}:{written}"


def _variables() -> Iterator[tuple[str, object]]:
    framework = {id(variable) for variable in _framework_variables()}
    for variable, value in contextvars.copy_context().items():
        if id(variable) not in framework:
            yield f"{variable.name}@{id(variable):x}", value


def _framework_variables() -> Iterator[contextvars.ContextVar[Any] | None]:
    """Yield the variables that LangChain and tracers set anew for every call of their own."""
    yield var_child_runnable_config
    yield tool_call_writer()
    yield from hook_variables()
    tracing: Mapping[str, contextvars.ContextVar[Any]] = vars(run_helpers).get("_CONTEXT_KEYS", {})
    yield from tracing.values()
    spans = getattr(sys.modules.get("opentelemetry.context"), "_RUNTIME_CONTEXT", None)
    yield getattr(spans, "_current_context", None)


def _of_the_run() -> Iterator[tuple[str, object]]:
    config = cast("Mapping[str, Any]", var_child_runnable_config.get() or {})
    given = cast("Mapping[str, Any]", config.get("configurable") or {})
    yield "configurable", own_configurable(given)
    yield "context", getattr(given.get(RUNTIME), "context", None)


def _of_the_call(handed: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in handed.items():
        if isinstance(value, ToolRuntime):
            yield f"runtime {name}", cast("ToolRuntime[Any, Any]", value).context
