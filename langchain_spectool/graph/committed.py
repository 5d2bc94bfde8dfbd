"""A committed call on its way through stock code: the plan's side of `wrap_tool_call`."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.events import Event
from langchain_spectool._core.ports import Clock
from langchain_spectool._core.turn import Turn
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.claims import BookedCall, Received
from langchain_spectool._runtime.meter import Meter
from langchain_spectool._runtime.runs import Run
from langchain_spectool.graph.early import body_key, unrepeatable
from langchain_spectool.graph.isolation import Taint, watching
from langchain_spectool.graph.proxy import proxy
from langchain_spectool.graph.setting import current_setting
from langchain_spectool.graph.structure import takes_handles


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """Tells of a committed call that no plan names: in its turn nothing could answer a call."""

    tool: str
    run: str
    clock: Clock
    report: Callable[[Event], None]

    def ended(self, began_s: float) -> None:
        """Say how long it took, whatever its outcome."""
        now_s = self.clock()
        self.report(
            Event(
                kind="call_ended",
                at_s=now_s,
                run=self.run,
                tool=self.tool,
                started_s=began_s,
                spent_s=now_s - began_s,
            )
        )


class CommittedCallScope:
    """Opened before the stock handler runs, closed when it has ended, whatever its outcome."""

    def __init__(  # noqa: PLR0913 - all that is known of a call
        self,
        control: object,
        namespace: str,
        *,
        booked: BookedCall | None = None,
        contract: Contract | None = None,
        meter: Meter | None = None,
        unplanned: Unplanned | None = None,
        on_write: Callable[[], None] | None = None,
    ) -> None:
        """Speak for one committed call; one without a contract may change the world."""
        self._control = control
        self._namespace = namespace
        self._booked = booked
        self._contract = contract
        self._meter = meter
        self._unplanned = unplanned
        self._on_write = on_write
        self._began_s = 0.0
        self._writing: Run | None = None
        """The entry that knows of the write while it goes on."""

    def begin(self, request: ToolCallRequest) -> ToolCallRequest:
        """Return the request to hand on: with a stand-in tool if a flight may answer it."""
        if self._contract is None:
            self._writing = runs.write_began(self._control, self._turn, self._namespace)
            if self._on_write is not None:
                self._on_write()
        if self._booked is None:
            if self._unplanned is not None:
                self._began_s = self._unplanned.clock()
            if self._meter is not None:
                self._began_s = self._meter.clock()
                self._meter.ran()
            return request
        served = self._booked.begin()
        if not served or request.tool is None or self._contract is None:
            return request
        claim = _ClaimingBody(request.tool, self._contract, self._booked)
        return request.override(tool=proxy(request.tool, claim))

    def end(self) -> None:
        """Note that the call is over."""
        if self._booked is not None:
            self._booked.end()
        elif self._meter is not None:
            self._meter.took(self._meter.clock() - self._began_s)
        if self._booked is None and self._unplanned is not None:
            self._unplanned.ended(self._began_s)
        if self._writing is not None:
            runs.write_ended(self._writing, self._control, self._turn, self._namespace)
            if self._on_write is not None:
                self._on_write()

    @property
    def _turn(self) -> Turn | None:
        return None if self._booked is None else self._booked.turn


class _ClaimingBody:
    """Stands where the tool's body stood, and asks for its flight on the values it received."""

    def __init__(self, tool: BaseTool, contract: Contract, booked: BookedCall) -> None:
        self._tool = tool
        self._contract = contract
        self._booked = booked

    def run(
        self, body: Callable[[], Any], values: Mapping[str, Any], handed: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        taint = Taint()

        def watched() -> Any:  # noqa: ANN401
            with watching(taint):
                return body()

        shares = self._contract.deterministic
        return self._booked.answer(
            self._received(values, handed, taint), watched if shares else body
        )

    async def arun(
        self,
        body: Callable[[], Coroutine[Any, Any, Any]],
        values: Mapping[str, Any],
        handed: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401
        taint = Taint()

        async def watched() -> Any:  # noqa: ANN401
            with watching(taint):
                return await body()

        shares = self._contract.deterministic
        received = self._received(values, handed, taint)
        return await self._booked.aanswer(received, watched if shares else body)

    def _received(
        self, values: Mapping[str, Any], handed: Mapping[str, Any], taint: Taint
    ) -> Received:
        setting = None
        try:
            setting = current_setting(handed)
            key = body_key(self._tool, self._contract, values, setting)
        except Exception:  # noqa: BLE001 - the author's `key` may raise: then nothing is equal
            key = None

        def repeatable(value: object) -> bool:
            clean = not taint.reasons and unrepeatable(value) is None
            return clean and not takes_handles(self._tool)

        return Received(key=key, values=values, repeatable=repeatable, holds=setting)
