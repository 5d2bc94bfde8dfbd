"""One call of the main model that an engine serves, and the outputs on their way to it."""

import functools
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from langchain_spectool._core.verdicts import EngineVerdict
from langchain_spectool._runtime.driver import Driver, Job
from langchain_spectool._runtime.driver import Ticket as Work
from langchain_spectool.engines.client import EngineReply, ToolCacheClient
from langchain_spectool.engines.entries import Entry
from langchain_spectool.engines.parked import Parked
from langchain_spectool.engines.seats import Seat

_VERDICTS: dict[EngineReply, EngineVerdict] = {
    "ok": "posted",
    "unkept": "late",
    "refused": "refused",
    "rejected": "rejected",
    "failed": "failed",
    "resting": "resting",
}


class Scope(Protocol):
    """What one graph of one run has with an engine."""

    @property
    def client(self) -> ToolCacheClient:
        """Speaks to the engine."""
        ...

    @property
    def lock(self) -> threading.RLock:
        """Around what all its calls share."""
        ...

    @property
    def over(self) -> bool:
        """Whether the graph has ended."""
        ...

    def seat(self, request_id: str | None = None) -> Seat:
        """Return a new name for a response; or the caller's own."""
        ...

    def report(self, verdict: EngineVerdict, batch: list[Entry]) -> None:
        """Report what became of each of `batch`."""
        ...

    def say(self, verdict: EngineVerdict, *, tool: str = "", detail: str = "") -> None:
        """Emit one event."""
        ...

    def connection(self) -> AbstractContextManager[httpx.Client]:
        """Lend the connection for blocking requests."""
        ...

    def aconnection(self) -> httpx.AsyncClient:
        """Return the connection for awaited requests."""
        ...

    def claim(
        self, call: "ModelCall", request: bytes, target: tuple[str | None, ...]
    ) -> Parked | None:
        """Take what a request with that body may go on from; give up what it makes useless."""
        ...

    def park(self, parked: Parked, call: "ModelCall") -> None:
        """Keep what may follow the answer of `call` until the next one, but not for long."""
        ...

    def abandon(self, call: "ModelCall") -> None:
        """Have the engine forget what it was told for a response that failed."""
        ...

    def ended(self, call: "ModelCall") -> None:
        """Note that a model call has its answer, or failed."""
        ...

    def current(self, call: "ModelCall", tool: str) -> "ModelCall | None":
        """Return the call to tell an output for: `call`, or the latest if its response is over."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class ModelCall:
    """One call of the main model that is served by an engine."""

    scope: Scope
    driver: Driver
    seat: Seat
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the main model's own client shows the engine."""
    step: int | None = None
    """Superstep of its graph, where that is known."""
    asked: bool = False
    """Whether its request was sent, or answered from what was parked."""
    entries: list[Entry] = field(default_factory=list[Entry])
    """All that was to be told for it."""
    _waiting: list[Entry] = field(default_factory=list[Entry])
    _sending: Work | None = None
    _busy: bool = False

    def post(self, entry: Entry) -> None:
        """Tell the engine an output, in the background; callable from any thread."""
        with self.scope.lock:
            self.entries.append(entry)
            self._waiting.append(entry)
        self.driver.call(self._send)

    def take(self, seat: Seat) -> None:
        """Be answered from what was parked for `seat`."""
        self.seat, self.asked = seat, True

    def reseat(self, request_id: str | None = None) -> Seat:
        """Go on under another name, and tell again what was told."""
        with self.scope.lock:
            seat = self.seat = self.scope.seat(request_id)
            self._waiting = [*self.entries]
        self.driver.call(self._send)
        return seat

    def outdate(self) -> None:
        """Tell nothing of what is known so far, under whatever name."""
        with self.scope.lock:
            self.entries.clear()
            self._waiting.clear()

    def stop(self) -> None:
        """Tell no more; what is on its way is cancelled."""
        with self.scope.lock:
            self._waiting.clear()
            work, self._sending = self._sending, None
        if work is not None:
            work.cancel()

    def _send(self) -> None:
        """Start to tell what waits, unless something is on its way: one request at a time."""
        with self.scope.lock:
            if self._busy or not self._waiting:
                return
            batch, self._waiting = self._waiting, []
            seat, scope = self.seat, self.scope
            if not seat.open and not self.asked:
                return  # told again if its request has to be sent
            if not seat.open or scope.over or scope.client.resting:
                late = not seat.open or scope.over
                scope.report("late" if late else "resting", batch)
                return
            self._busy = seat.told = True
            self._sending = self.driver.start(self._job(seat, batch), Context())
            if self._sending is None:
                self._busy = False
                scope.report("failed", batch)

    def _job(self, seat: Seat, batch: list[Entry]) -> Job:
        client, scope = self.scope.client, self.scope
        options: dict[str, Any] = {"key": seat.key, "headers": self.headers}

        def run() -> EngineReply:
            with scope.connection() as over:
                return client.put(seat.response_id, batch, over=over, **options)

        async def arun() -> EngineReply:
            over = scope.aconnection()
            return await client.aput(seat.response_id, batch, over=over, **options)

        return Job(
            name="spectool:engine-post",
            timeout_s=client.timeout_s,
            run=run,
            arun=arun,
            done=functools.partial(self._sent, batch),
        )

    def _sent(self, batch: list[Entry], reply: EngineReply | None) -> None:
        with self.scope.lock:
            self._busy, self._sending = False, None
            over = self.scope.over
        if over and reply in (None, "failed"):
            self.scope.report("late", batch)  # the end of the run has cut it short
        elif reply is None:
            self.scope.client.gave_up()
            self.scope.report("failed", batch)
        else:
            self.scope.report(_VERDICTS[reply], batch)
        if not over:
            self.driver.call(self._send)


CURRENT: ContextVar[ModelCall | None] = ContextVar("spectool_model_call", default=None)
"""The model call that an HTTP request of this context belongs to."""
