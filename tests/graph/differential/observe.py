"""Runs one arm and keeps all that anybody could have seen of it, in a comparable form."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from langgraph.types import Command, Interrupt, StateSnapshot

from langchain_spectool.testing import VirtualTimeLoop
from tests.graph.differential.build import Arm, Built, Tenant, build
from tests.graph.differential.plain import (
    Names,
    checkpoint,
    ordered,
    run_trees,
    span,
    streams,
)
from tests.graph.differential.specs import AgentSpec

MODES = ["messages", "updates", "values", "custom", "tools", "tasks", "checkpoints"]
MOST_RESUMES = 6
_DRAIN_S = 1_000.0


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


async def _aplay(spec: AgentSpec, graph: Any, given: Any, config: Any, events: list[Any]) -> Any:
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
        stream = graph.astream(given, config, context=context, stream_mode=MODES, subgraphs=True)
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


# --- making it comparable


def _seen(spec: AgentSpec, built: Built, raw: Raw, tracer: SpanTracer) -> Seen:
    sort_out = run_trees if spec.entry == "events" else streams
    names = Names(raw.history, [raw.outcomes])
    report = None if built.speculation is None else built.speculation.report()
    events = built.observer.events
    return Seen(
        outcomes=names.plain(raw.outcomes),
        history=[checkpoint(each, names) for each in raw.history],
        log=sorted(built.world.log),
        store=ordered((i.namespace, i.key, i.value) for i in built.store.search(())),
        streams=[sort_out(part, names) for part in raw.events],
        spans=ordered(span(run, names) for run in tracer.roots),
        hits=0 if report is None else report.hits,
        errors=tuple(f"{e.source}: {e.verdict} {e.detail}" for e in events if e.kind == "error"),
    )
