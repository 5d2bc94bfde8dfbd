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
    return Place(
        control=control,
        scope=(id(owner), parent, id(stack)),
        step=step if isinstance(step, int) else None,
        namespace=parent,
        at_end=None if stack is None else stack.callback,
    )


def _exit_stack(configurable: Mapping[str, Any]) -> ExitStack[Any] | AsyncExitStack[Any] | None:
    """Return what unwinds when this node's graph ends, whichever way; None if it is not found.

    LangGraph tells no node that its run is over. Its loop leaves an exit stack then, and what
    schedules a node's own calls leads to the loop. A test pins this for the supported version;
    without it, an entry is ended by the janitor.
    """
    call = configurable.get("__pregel_call")
    schedule = cast("Mapping[str, Any]", getattr(call, "keywords", {})).get("schedule_task")
    stack = getattr(getattr(schedule, "__self__", None), "stack", None)
    if isinstance(stack, (ExitStack, AsyncExitStack)):
        return cast("ExitStack[Any] | AsyncExitStack[Any]", stack)
    return None
