"""Builds of the package that the ecosystem's own tests are run against.

`prefilled` answers every call that is not structurally refused from an early run of its own
arguments, declared or not: what a user would see if every guess were right. `erratic` adds
speculators that raise, and guess nonsense, at random.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langchain_spectool import Guess, Rules, Speculation, SpeculativeToolNode
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.keys import prepared
from langchain_spectool._core.turn import CommittedCall
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.claims import BookedCall
from langchain_spectool._runtime.driver import AsyncDriver, Driver, ThreadDriver
from langchain_spectool._runtime.runs import Run
from langchain_spectool._runtime.turn_scope import Place, TurnScope
from langchain_spectool.graph.committed import CommittedCallScope
from langchain_spectool.graph.early import Surroundings, early_run, tainted_before
from langchain_spectool.graph.gates import gates_around
from langchain_spectool.graph.isolation import RUNTIME, detached_context
from langchain_spectool.graph.middleware import SpeculationMiddleware
from langchain_spectool.graph.structure import structural_reason

CONTRACT = Contract()
COUNTS = {"prefilled": 0, "served": 0}


class PrefillingSpeculation(Speculation):
    """Runs every call early, waits for it, and only then lets stock code run the call."""

    def run_committed(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Pre-fill, then hand on."""
        filled = self._prefill(request, ThreadDriver(), blocking=True)
        if filled is None:
            return handler(request)
        call, landing = filled
        landing.wait()
        try:
            return handler(call.begin(request))
        finally:
            call.end()

    async def arun_committed(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Pre-fill, then hand on."""
        driver = AsyncDriver(asyncio.get_running_loop())
        filled = self._prefill(request, driver, blocking=False)
        if filled is None:
            return await handler(request)
        call, landing = filled
        await landing.arrival()
        try:
            return await handler(call.begin(request))
        finally:
            call.end()

    def _prefill(
        self, request: ToolCallRequest, driver: Driver, *, blocking: bool
    ) -> tuple[CommittedCallScope, Any] | None:
        tool, args = request.tool, request.tool_call["args"]
        if tool is None or tainted_before(tool) or tool.name in self.gated:
            return None
        structure = structural_reason(tool)
        if structure.reason is not None or (blocking and not structure.synchronous):
            return None
        key = prepared(tool).key(args)
        if key is None:
            return None
        control = object()
        scope = TurnScope(
            Place(control=control, scope="all", step=None),
            driver,
            self._opener._common,
        )
        candidate = Candidate(
            tool=tool.name, source="prefill", confidence=1.0, contract=CONTRACT, key=key
        )
        config = getattr(request.runtime, "config", None) or {}
        around = Surroundings(
            config=config,
            runtime=(config.get("configurable") or {}).get(RUNTIME),
            context=detached_context(),
        )
        flight = scope.offer(candidate, lambda: early_run(tool, args, CONTRACT, structure, around))
        run = runs.find(control)
        if flight is None or run is None or flight not in run.aloft:
            return None
        landing = run.aloft[flight].landing
        COUNTS["prefilled"] += 1
        booked = self._booked(request, tool, scope, run, key)
        return CommittedCallScope(control, "", booked=booked, contract=CONTRACT), landing

    def _booked(
        self, request: ToolCallRequest, tool: BaseTool, scope: TurnScope, run: Run, key: str
    ) -> BookedCall:
        call = request.tool_call
        scope.commit(
            [
                CommittedCall(
                    position=0,
                    tool=tool.name,
                    id=call.get("id"),
                    args=call["args"],
                    key=key,
                    contract=CONTRACT,
                )
            ]
        )
        return BookedCall(run, scope.turn, scope.turn.bookings[0], self._count)

    def _count(self, event: Any) -> None:
        COUNTS["served"] += event.kind == "claim" and event.verdict in ("hit", "joined")
        self.events.emit(event)


class PrefilledToolNode(SpeculativeToolNode):
    """A tool node whose every call was run before."""

    def __init__(self, tools: Sequence[Any], **options: Any) -> None:
        """Take what `ToolNode` takes."""
        super().__init__(tools, speculation=PrefillingSpeculation(), **options)


class PrefilledMiddleware(SpeculationMiddleware):
    """A middleware all of whose calls were run before, but for those that need an approval."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Learn the gates around it."""
        self.speculation.gated |= gates_around(handler)
        return super().wrap_model_call(request, handler)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Learn the gates around it."""
        self.speculation.gated |= gates_around(handler)
        return await super().awrap_model_call(request, handler)


def prefilled() -> SpeculationMiddleware:
    """Return a `PrefilledMiddleware`."""
    return PrefilledMiddleware(speculation=PrefillingSpeculation())


def _erratic(_: Sequence[Any]) -> Iterable[Guess]:
    dice = random.random()
    if dice < 0.4:
        raise RuntimeError("a speculator's bad day")
    if dice < 0.6:
        yield Guess(tool="no_such_tool", args={})
        raise KeyError("half way")
    if dice < 0.8:
        yield None  # type: ignore[misc]
    yield Guess(tool="search", args={"query": object()})


def erratic() -> SpeculationMiddleware:
    """Return a middleware whose speculators raise at random."""
    return SpeculationMiddleware(speculators=[Rules(_erratic), Rules(_erratic)])


class ErraticToolNode(SpeculativeToolNode):
    """A tool node whose Speculation fails at random, in the middle of a committed call."""

    def __init__(self, tools: Sequence[Any], **options: Any) -> None:
        """Take what `ToolNode` takes."""
        speculation = Speculation(speculators=[Rules(_erratic)])
        stock = speculation._committed

        def fails(request: ToolCallRequest) -> Any:
            if random.random() < 0.5:
                raise RuntimeError("an internal failure")
            return stock(request)

        speculation._committed = fails
        super().__init__(tools, speculation=speculation, **options)
