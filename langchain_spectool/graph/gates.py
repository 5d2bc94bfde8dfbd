"""Finds human-in-the-loop and auto-mode gates in the same agent, best effort.

`create_agent` shows a middleware neither its neighbours nor its graph. They are reachable
through the closures of the `handler` it passes: from there to the agent's tool node, whose
wrappers are bound methods of the other middleware. A test pins this for the supported version;
gates that cannot be found this way (`interrupt_before`, one's own nodes) are named by hand.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.prebuilt import ToolNode

_MODEL_CALLS = ("_execute_model_sync", "_execute_model_async")
_MOST_OBJECTS = 20_000
_PLAIN = (str, bytes, int, float, complex, type(None))
_WRAPPERS = ("_wrap_tool_call", "_awrap_tool_call")


def gated_names(gates: Sequence[object]) -> frozenset[str]:
    """Return the names of the tools that `gates`, names or gate middleware, hold back.

    Raises:
        ValueError: One of them is neither a name nor a known kind of gate.
    """
    names: set[str] = set()
    for gate in gates:
        found = frozenset((gate,)) if isinstance(gate, str) else _held_back(gate)
        if found is None:
            msg = (
                f"`gated` takes tool names and approval middleware, got {gate!r}: "
                "list the names of the tools it holds back"
            )
            raise ValueError(msg)
        names |= found
    return frozenset(names)


def gates_around(handler: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the tools held back by other middleware of `handler`'s agent.

    Raises:
        RuntimeError: There is too much to search; then nothing may run early.
    """
    innermost = _innermost(handler)
    if innermost is None:
        return frozenset()
    gates = _found.get(innermost)
    if gates is None:
        found = [item for item in reachable(innermost) if _held_back(item) is not None]
        gates = _found[innermost] = found
    return frozenset(name for gate in gates for name in _held_back(gate) or ())


_found: "WeakKeyDictionary[Callable[..., Any], list[object]]" = WeakKeyDictionary()


def _innermost(handler: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the agent's own model call, the one function that all its handlers share."""
    if getattr(handler, "__name__", "") in _MODEL_CALLS:
        return handler
    for item in reachable(handler):
        if getattr(item, "__name__", "") in _MODEL_CALLS:
            return cast("Callable[..., Any]", item)
    return None


def _held_back(gate: object) -> frozenset[str] | None:
    if isinstance(gate, HumanInTheLoopMiddleware):
        return frozenset(cast("dict[str, Any]", gate.interrupt_on))
    tools = getattr(getattr(gate, "config", None), "tools", None)
    if tools and any(kind.__name__ == "AutoModeMiddleware" for kind in type(gate).__mro__):
        return frozenset(str(getattr(tool, "name", tool)).strip() for tool in tools)
    return None


def reachable(start: object) -> Iterator[object]:
    """Yield what closures, bound methods and tool nodes lead to, each object once."""
    pending, seen = deque([start]), {id(start)}
    while pending:
        item = pending.popleft()
        yield item
        for child in _children(item):
            if id(child) not in seen and not isinstance(child, _PLAIN):
                seen.add(id(child))
                pending.append(child)
        if len(seen) > _MOST_OBJECTS:
            msg = f"an agent with over {_MOST_OBJECTS} objects: name its gates in `gated`"
            raise RuntimeError(msg)


def _children(item: object) -> list[object]:
    children: list[object] = []
    for cell in getattr(item, "__closure__", None) or ():
        try:
            children.append(cell.cell_contents)
        except ValueError:  # a cell that is not filled yet
            continue
    children += [
        child
        for name in ("__self__", "__wrapped__", "__func__")
        if (child := getattr(item, name, None)) is not None and not isinstance(child, type)
    ]
    if isinstance(item, ToolNode):
        children += [getattr(item, name, None) for name in _WRAPPERS]
    elif isinstance(item, functools.partial):
        children += [item.func, *item.args]
    elif isinstance(item, (list, tuple)):
        children += cast("Sequence[object]", item)
    return [child for child in children if child is not None]
