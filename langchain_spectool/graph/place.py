"""Where in which graph run something happens."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, cast

from langchain_core.runnables.config import var_child_runnable_config

from langchain_spectool._runtime.turn_scope import Place
from langchain_spectool.graph.isolation import RUNTIME


def current_config() -> Mapping[str, Any]:
    """Return the config of the node that is running; empty outside a graph."""
    return cast("Mapping[str, Any]", var_child_runnable_config.get() or {})


def place_in(config: Mapping[str, Any], owner: object) -> Place | None:
    """Return the place of a node's config; None where the run cannot be told from others.

    Nodes of one graph share the parent part of their checkpoint namespace, and parallel
    subgraphs differ in it; runs that were given one control differ in their loops. Without a
    `RunControl` (outside a graph, `RemoteGraph`, older versions) there is no place, and nothing
    is speculated.
    """
    configurable = cast("Mapping[str, Any]", config.get("configurable") or {})
    control = getattr(configurable.get(RUNTIME), "control", None)
    if control is None:
        return None
    namespace = str(configurable.get("checkpoint_ns") or "")
    parent = namespace.rpartition("|")[0]
    step = cast("Mapping[str, Any]", config.get("metadata") or {}).get("langgraph_step")
    stack = _exit_stack(configurable)
    outermost = _outermost_stack(configurable)
    return Place(
        control=control,
        scope=(id(owner), parent, id(stack)),
        step=step if isinstance(step, int) else None,
        namespace=parent,
        at_end=None if stack is None else stack.callback,
        on_exit=None if outermost is None else outermost.push,
        at_aend=getattr(stack, "push_async_callback", None),
    )


_Stack = ExitStack[Any] | AsyncExitStack[Any]


def _outermost_stack(configurable: Mapping[str, Any]) -> _Stack | None:
    """Return what unwinds when the whole run ends: a nested graph's loop knows its caller."""
    found: _Stack | None = None
    while (stack := _exit_stack(configurable)) is not None and stack is not found:
        found, config = stack, getattr(_loop(configurable), "config", None)
        configurable = cast("Mapping[str, Any]", (config or {}).get("configurable") or {})
    return found


def _exit_stack(configurable: Mapping[str, Any]) -> _Stack | None:
    """Return what unwinds when this node's graph ends, whichever way; None if it is not found.

    LangGraph tells no node that its run is over. Its loop leaves an exit stack then, and what
    schedules a node's own calls leads to the loop. A test pins this for the supported version;
    without it, an entry is ended by the janitor.
    """
    stack = getattr(_loop(configurable), "stack", None)
    return cast("_Stack", stack) if isinstance(stack, (ExitStack, AsyncExitStack)) else None


def _loop(configurable: Mapping[str, Any]) -> object:
    call = configurable.get("__pregel_call")
    schedule = cast("Mapping[str, Any]", getattr(call, "keywords", {})).get("schedule_task")
    return getattr(schedule, "__self__", None)
