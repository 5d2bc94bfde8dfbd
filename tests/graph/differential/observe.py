"""Runs one arm and keeps all that anybody could have seen of it, in a comparable form."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from langgraph.types import Command, Interrupt, StateSnapshot
from pydantic import BaseModel

from langchain_spectool.testing import VirtualTimeLoop
from tests.graph.differential.build import Arm, Built, Tenant, build
from tests.graph.differential.specs import AgentSpec

MODES = ["messages", "updates", "values", "custom", "tools", "tasks", "checkpoints"]
MOST_RESUMES = 6
_DRAIN_S = 1_000.0
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_RECEIVED = re.compile(r"(?<=input_value=).*?(?=, input_type=)")
"""What pydantic shows of a value, which may be the times in an injected runtime."""
_MISSING = "(missing)"


@dataclass(kw_only=True)
class Seen:
    """Everything one arm showed, ids replaced by what they stand for."""

    outcomes: Any = None
    """Per invocation: what it returned, or what it raised."""
    history: Any = None
    """Every checkpoint: values, next tasks, their errors and interrupts, metadata."""
    log: Any = None
    """What the tools wrote."""
    store: Any = None
    streams: Any = None
    """Per stream mode and task: the sequence of events."""
    spans: Any = None
    """Run trees as a tracer gets them."""
    hits: int = 0
    errors: tuple[str, ...] = ()
    """Failures of our own."""


COMPARED = ("outcomes", "log", "store", "history", "streams", "spans")


@dataclass(kw_only=True)
class Raw:
    """What an arm showed, as it came."""

    outcomes: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    history: list[StateSnapshot] = field(default_factory=list)


def observe(spec: AgentSpec, arm: Arm) -> Seen:
    """Run one arm of `spec` from its start to its last resume."""
    built = build(spec, arm)
    tracer = SpanTracer()
    config: dict[str, Any] = {"callbacks": [tracer], "recursion_limit": 40}
    if spec.checkpointer:
        config["configurable"] = {"thread_id": "thread"}
    if spec.clock == "async":
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            # `Runner.run` prints every task when it looks at the signal handler: slow.
            raw = runner.get_loop().run_until_complete(_arun(spec, built, config))
    else:
        raw = _run(spec, built, config)
    return _seen(spec, built, raw, tracer)


# --- running


async def _arun(spec: AgentSpec, built: Built, config: Any) -> Raw:
    raw = Raw()
    given: Any = _inputs(spec)
    for _ in range(MOST_RESUMES):
        raw.events.append([])
        try:
            outcome = await _aplay(spec, built.graph, given, config, raw.events[-1])
        except Exception as error:  # noqa: BLE001 - compared
            outcome = error
        raw.outcomes.append(outcome)
        # What a failed turn left running ends here, in every arm.
        await asyncio.sleep(_DRAIN_S)
        snapshot = await built.graph.aget_state(config) if spec.checkpointer else None
        if isinstance(outcome, Exception) or snapshot is None or not snapshot.next:
            break
        given = _resume(snapshot.interrupts)
    if spec.checkpointer:
        raw.history = [each async for each in built.graph.aget_state_history(config)]
    left = [t for t in asyncio.all_tasks() if t.get_name().startswith("spectool")]
    assert not left, f"left behind: {left}"
    return raw


async def _aplay(
    spec: AgentSpec, graph: Any, given: Any, config: Any, events: list[Any]
) -> Any:
    context = Tenant("acme")
    if spec.around == "batch":
        return await graph.abatch([given, given], config, context=context)
    if spec.entry == "invoke":
        return await graph.ainvoke(given, config, context=context)
    if spec.entry == "events":
        stream: AsyncIterator[Any] = graph.astream_events(
            given, config, version="v2", context=context
        )
    else:
        stream = graph.astream(
            given, config, context=context, stream_mode=MODES, subgraphs=True
        )
    async for event in stream:
        events.append(event)  # noqa: PERF401 - those before an error count
    return None


def _run(spec: AgentSpec, built: Built, config: Any) -> Raw:
    raw = Raw()
    given: Any = _inputs(spec)
    for _ in range(MOST_RESUMES):
        raw.events.append([])
        try:
            outcome = _play(spec, built.graph, given, config, raw.events[-1])
        except Exception as error:  # noqa: BLE001 - compared
            outcome = error
        raw.outcomes.append(outcome)
        snapshot = built.graph.get_state(config) if spec.checkpointer else None
        if isinstance(outcome, Exception) or snapshot is None or not snapshot.next:
            break
        given = _resume(snapshot.interrupts)
    if spec.checkpointer:
        raw.history = [*built.graph.get_state_history(config)]
    return raw


def _play(spec: AgentSpec, graph: Any, given: Any, config: Any, events: list[Any]) -> Any:
    context = Tenant("acme")
    if spec.around == "batch":
        return graph.batch([given, given], config, context=context)
    if spec.entry == "invoke":
        return graph.invoke(given, config, context=context)
    stream = graph.stream(given, config, context=context, stream_mode=MODES, subgraphs=True)
    with closing(stream):
        for event in stream:
            events.append(event)  # noqa: PERF402 - those before an error count
    return None


def _inputs(spec: AgentSpec) -> dict[str, Any]:
    return {spec.messages_key: [("user", "hello, I am ann@x.org")]}


def _resume(interrupts: Sequence[Interrupt]) -> Command[Any] | None:
    if not interrupts:
        return None  # it only stopped before its tools
    return Command(resume={each.id: _reply(each.value) for each in interrupts})


def _reply(asked: Any) -> Any:
    if "action_requests" not in asked:
        return f"yes to {asked['question']}"
    return {"decisions": [_decision(request) for request in asked["action_requests"]]}


def _decision(request: Mapping[str, Any]) -> dict[str, Any]:
    q = request["args"].get("q")
    if q == "a":
        return {"type": "approve"}
    if q == "b":
        edited = {"name": request["name"], "args": {**request["args"], "q": "A"}}
        return {"type": "edit", "edited_action": edited}
    return {"type": "reject", "message": "rather not"}


# --- what a tracer sees


class SpanTracer(BaseTracer):
    """Keeps every finished root run. Runs inline, so that it changes no order."""

    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Run] = []

    def _persist_run(self, run: Run) -> None:
        self.roots.append(run)


def span(run: Run, names: "Names") -> tuple[Any, ...]:
    """Return a run and its children, in an order that does not depend on timing."""
    error = None if run.error is None else run.error.partition("Traceback (most recent call last)")[0]
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


# --- making it comparable


class Names:
    """Gives ids the place of the message they belong to, and everything else a plain form."""

    def __init__(self, history: Iterable[StateSnapshot], finals: Iterable[Any]) -> None:
        self._ids: dict[str, str] = {}
        for values in [*(each.values for each in reversed([*history])), *finals]:
            for message in _messages(values):
                for found in _ID.findall(message.id or ""):
                    self._ids.setdefault(found, f"<id {len(self._ids)}>")

    def plain(self, value: Any) -> Any:
        """Return `value` in builtin types, random parts replaced."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (str, UUID)):
            return self._text(str(value))
        if isinstance(value, BaseMessage):
            return self._message(value)
        if isinstance(value, Interrupt):
            return ("interrupt", self.plain(value.value))
        if isinstance(value, BaseException):
            return (type(value).__name__, self._text(str(value)))
        if isinstance(value, datetime):
            return "<time>"
        if isinstance(value, Mapping):
            return {str(self.plain(key)): self._entry(key, item) for key, item in value.items()}
        if isinstance(value, (set, frozenset)):
            return ordered(self.plain(each) for each in value)
        if isinstance(value, (list, tuple)):
            return [self.plain(each) for each in value]
        return self._object(value)

    def _entry(self, key: Any, value: Any) -> Any:
        if key in ("created_at", "ls_integration"):
            return "<time>"
        if key in ("interrupts", "__interrupt__"):
            return ordered(self.plain(each) for each in value)
        return self.plain(value)

    def _object(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return (type(value).__name__, {k: self.plain(v) for k, v in value})
        if is_dataclass(value) and not isinstance(value, type):
            shown = {f.name: self.plain(getattr(value, f.name, None)) for f in fields(value)}
            return (type(value).__name__, shown)
        return self._text(repr(value))

    def _message(self, message: BaseMessage) -> Any:
        shown = {name: self.plain(item) for name, item in message}
        return (type(message).__name__, shown)

    def _text(self, text: str) -> str:
        known = _ID.sub(lambda found: self._ids.get(found[0], "<id>"), text)
        return _RECEIVED.sub("...", _ADDRESS.sub("0x", known))


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


def _seen(spec: AgentSpec, built: Built, raw: Raw, tracer: SpanTracer) -> Seen:
    names = Names(raw.history, [raw.outcomes])
    report = None if built.speculation is None else built.speculation.report()
    events = built.observer.events
    return Seen(
        outcomes=names.plain(raw.outcomes),
        history=[_checkpoint(each, names) for each in raw.history],
        log=sorted(built.world.log),
        store=ordered((i.namespace, i.key, i.value) for i in built.store.search(())),
        streams=[_streams(spec, part, names) for part in raw.events],
        spans=ordered(span(run, names) for run in tracer.roots),
        hits=0 if report is None else report.hits,
        errors=tuple(f"{e.source}: {e.verdict} {e.detail}" for e in events if e.kind == "error"),
    )


def _checkpoint(snapshot: StateSnapshot, names: Names) -> Any:
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


# --- streams: the sequence within each task or run is compared, not how tasks interleave


def _streams(spec: AgentSpec, events: Sequence[Any], names: Names) -> Any:
    if spec.entry == "events":
        return _run_trees(events, names)
    groups: dict[Any, list[Any]] = {}
    shown: dict[Any, Any] = {}
    for namespace, mode, payload in events:
        plain = names.plain(payload)
        key, label = _task_of(mode, payload, plain)
        group = (namespace, mode, key)
        shown[group] = (names.plain(namespace), mode, label)
        groups.setdefault(group, []).append(plain)
    return ordered((shown[group], _calmed(sequence)) for group, sequence in groups.items())


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


def _run_trees(events: Sequence[Mapping[str, Any]], names: Names) -> Any:
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
        return None if left == right else f"{path}:\n  stock: {left!r}\n  here:  {right!r}"
    found = (difference(one, other, where) for where, one, other in pairs)
    return next((each for each in found if each is not None), None)
