"""Where in which graph run something happens."""

from collections.abc import Mapping
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
    )
