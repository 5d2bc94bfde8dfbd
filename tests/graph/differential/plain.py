"""Puts what an arm showed into a form that can be compared: no ids, no times, no interleaving."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import singledispatchmethod
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.tracers.schemas import Run
from langgraph.types import Interrupt, StateSnapshot
from pydantic import BaseModel

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_COUNT = re.compile(r"\|\d+(?=\||$)")
"""Which of the graphs that one task runs at once began first, in a namespace."""
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_RECEIVED = re.compile(r"(?<=input_value=).*?(?=, input_type=)")
"""What pydantic shows of a value, which may be the times in an injected runtime."""
_MISSING = "(missing)"


class Names:
    """Gives ids the place of the message they belong to, and everything else a plain form."""

    def __init__(self, history: Iterable[StateSnapshot], finals: Iterable[Any]) -> None:
        self._ids: dict[str, str] = {}
        for values in [*(each.values for each in reversed([*history])), *finals]:
            for message in _messages(values):
                for found in _ID.findall(message.id or ""):
                    self._ids.setdefault(found, f"<id {len(self._ids)}>")

    @singledispatchmethod
    def plain(self, value: Any) -> Any:
        """Return `value` in builtin types, random parts replaced."""
        if isinstance(value, type) or not is_dataclass(value):
            return self._text(repr(value))
        shown = {each.name: self.plain(getattr(value, each.name, None)) for each in fields(value)}
        return (type(value).__name__, shown)

    @plain.register
    def _(self, value: bool | float | None) -> Any:
        return value

    @plain.register
    def _(self, value: str | UUID) -> Any:
        return self._text(str(value))

    @plain.register
    def _(self, value: BaseModel) -> Any:
        return (type(value).__name__, {name: self.plain(item) for name, item in value})

    @plain.register
    def _(self, value: Interrupt) -> Any:
        return ("interrupt", self.plain(value.value))

    @plain.register
    def _(self, value: BaseException) -> Any:
        return (type(value).__name__, self._text(str(value)))

    @plain.register
    def _(self, value: datetime) -> Any:
        return "<time>"

    @plain.register
    def _(self, value: list | tuple) -> Any:
        return [self.plain(each) for each in value]

    @plain.register
    def _(self, value: set | frozenset) -> Any:
        return ordered(self.plain(each) for each in value)

    @plain.register
    def _(self, value: Mapping) -> Any:
        return {str(self.plain(key)): self._entry(key, item) for key, item in value.items()}

    def _entry(self, key: Any, value: Any) -> Any:
        if key == "created_at":
            return "<time>"
        if key in ("interrupts", "__interrupt__"):
            return ordered(self.plain(each) for each in value)
        return self.plain(value)

    def _text(self, text: str) -> str:
        known = _ID.sub(lambda found: self._ids.get(found[0], "<id>"), text)
        return _COUNT.sub("", _RECEIVED.sub("...", _ADDRESS.sub("0x", known)))


def _messages(value: Any) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _messages(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _messages(each)


def ordered(values: Iterable[Any]) -> list[Any]:
    """Sort values of any kind."""
    return sorted(values, key=repr)


# --- checkpoints and runs


def checkpoint(snapshot: StateSnapshot, names: Names) -> Any:
    """Return everything a checkpoint holds but its ids and times."""
    tasks = [
        (
            task.name,
            names.plain(task.path),
            names.plain(task.error),
            _without_ids(names.plain(task.result)),
        )
        for task in snapshot.tasks
    ]
    asked = [ordered(names.plain(each) for each in task.interrupts) for task in snapshot.tasks]
    return {
        "values": names.plain(snapshot.values),
        "next": snapshot.next,
        "tasks": tasks,
        "interrupts": asked,
        "metadata": names.plain(snapshot.metadata),
    }


def _without_ids(plain: Any) -> Any:
    """Drop message ids: the last task of a step may be stored before or after it has got one."""
    if isinstance(plain, dict):
        return {key: _without_ids(value) for key, value in plain.items() if key != "id"}
    return [_without_ids(each) for each in plain] if isinstance(plain, (list, tuple)) else plain


def span(run: Run, names: Names) -> tuple[Any, ...]:
    """Return a run and its children, in an order that does not depend on timing."""
    error = (
        None if run.error is None else run.error.partition("Traceback (most recent call last)")[0]
    )
    happened = [(event["name"], names.plain(event.get("kwargs"))) for event in run.events]
    return (
        run.name,
        run.run_type,
        names.plain(run.inputs),
        names.plain(run.outputs),
        names.plain(error),
        names.plain(sorted(run.tags or ())),
        names.plain(run.metadata),
        happened,
        ordered(span(child, names) for child in run.child_runs),
    )


# --- streams: the sequence within each task or run is compared, not how tasks interleave


def streams(events: Sequence[Any], names: Names) -> Any:
    """Return the events of a stream, in one sequence for each mode and task."""
    groups: dict[Any, list[Any]] = {}
    shown: dict[Any, Any] = {}
    for namespace, mode, payload in events:
        plain = names.plain(payload)
        key, label = _task_of(mode, payload, plain)
        group = (namespace, mode, key)
        shown[group] = (names.plain("|".join(namespace)), mode, label)
        groups.setdefault(group, []).append(plain)
    for (_, mode, _), sequence in groups.items():
        if mode == "updates":
            sequence[:] = _calmed(sequence)
    return ordered((shown[group], sequence) for group, sequence in groups.items())


def _calmed(sequence: list[Any]) -> list[Any]:
    """Order the updates of one step, whose tasks run at once, in a way that is not timing."""
    runs = [[*run] for _, run in itertools.groupby(sequence, _updated)]
    return [each for run in runs for each in (ordered(run) if _updated(run[0]) else run)]


def _updated(event: Any) -> str:
    """Return the node that an event updates, or nothing if it is another kind of event."""
    chunk = event
    if isinstance(event, tuple) and event[0] == "on_chain_stream":
        chunk = event[-1].get("chunk")
    node = next(iter(chunk)) if isinstance(chunk, dict) and len(chunk) == 1 else ""
    return "agents" if node in ("left", "right") else node


def _task_of(mode: str, payload: Any, plain: Any) -> tuple[Any, Any]:
    """Return what tells an event's task from others, and how to show that."""
    if mode == "messages":
        message, metadata = payload
        where = [metadata.get(key) for key in ("langgraph_step", "langgraph_node")]
        return (metadata.get("langgraph_checkpoint_ns"), message.id), where
    if mode == "tasks":
        return payload["id"], payload["name"]
    if mode == "tools":
        return payload["tool_call_id"], payload["tool_call_id"]
    if mode == "custom":
        return repr(plain), None
    return None, None


def run_trees(events: Sequence[Mapping[str, Any]], names: Names) -> Any:
    """Return what `astream_events` told, as one tree of runs with their events."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        runs.setdefault(event["run_id"], []).append(event)
    children: dict[str | None, list[str]] = {}
    for run_id, own in runs.items():
        parents = own[0]["parent_ids"]
        children.setdefault(parents[-1] if parents else None, []).append(run_id)

    def tree(run_id: str) -> Any:
        own = [
            (e["event"], e["name"], e["tags"], names.plain(e["metadata"]), names.plain(e["data"]))
            for e in runs[run_id]
        ]
        return (_calmed(own), ordered(tree(child) for child in children.get(run_id, ())))

    roots = children.get(None, [])
    lost = [key for key in children if key is not None and key not in runs]
    return {"roots": ordered(tree(root) for root in roots), "orphans": len(lost)}


# --- telling apart


def difference(left: Any, right: Any, path: str = "") -> str | None:
    """Return the first place where two plain values differ, in words."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys: Iterable[Any] = dict.fromkeys([*left, *right])
        pairs = [(f"{path}.{k}", left.get(k, _MISSING), right.get(k, _MISSING)) for k in keys]
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        longest = max(len(left), len(right))
        pairs = [
            (f"{path}[{n}]", *(side[n] if n < len(side) else _MISSING for side in (left, right)))
            for n in range(longest)
        ]
    else:
        same = type(left) is type(right) and left == right
        return None if same else f"{path}:\n  stock: {left!r}\n  here:  {right!r}"
    found = (difference(one, other, where) for where, one, other in pairs)
    return next((each for each in found if each is not None), None)
