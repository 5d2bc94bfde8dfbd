"""Where in which graph run something happens."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, cast

from langchain_core.runnables.config import var_child_runnable_config

from langchain_spectool._runtime.runs import AtEnd
from langchain_spectool._runtime.turn_scope import Place
from langchain_spectool.graph.isolation import RUNTIME


def current_config() -> Mapping[str, Any]:
    """Return the config of the node that is running; empty outside a graph."""
    return cast("Mapping[str, Any]", var_child_runnable_config.get() or {})


def place_in(config: Mapping[str, Any], owner: object) -> Place | None:
    """Return the place of a node's config; None where the run cannot be told from others.

    Nodes of one graph share the parent part of their checkpoint namespace, and parallel
    subgraphs differ in it. Without a `RunControl` (outside a graph, `RemoteGraph`, older
    versions) there is no place, and nothing is speculated.
    """
    configurable = cast("Mapping[str, Any]", config.get("configurable") or {})
    control = getattr(configurable.get(RUNTIME), "control", None)
    if control is None:
        return None
    namespace = str(configurable.get("checkpoint_ns") or "")
    parent = namespace.rpartition("|")[0]
    step = cast("Mapping[str, Any]", config.get("metadata") or {}).get("langgraph_step")
    return Place(
        control=control,
        scope=(id(owner), parent),
        step=step if isinstance(step, int) else None,
        at_end=_at_end(configurable),
    )


def _at_end(configurable: Mapping[str, Any]) -> AtEnd | None:
    """Return how to be told that this node's graph ends, whichever way; None if there is none.

    LangGraph tells no node of it. Its loop unwinds an exit stack then, and what schedules a
    node's own calls leads to the loop. A test pins this for the supported version; without it,
    an entry is ended by the janitor.
    """
    call = configurable.get("__pregel_call")
    schedule = cast("Mapping[str, Any]", getattr(call, "keywords", {})).get("schedule_task")
    stack = getattr(getattr(schedule, "__self__", None), "stack", None)
    return stack.callback if isinstance(stack, (ExitStack, AsyncExitStack)) else None
