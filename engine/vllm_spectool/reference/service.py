"""The reference engine as a service: what a server offers, without the HTTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from vllm_spectool._core.counters import HELD_BYTES, HELD_ENTRIES, TURNS
from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool._core.entries import Entry, EntryLimits
from vllm_spectool._core.protocol import status
from vllm_spectool._core.store import Owner, Store, StoreLimits
from vllm_spectool.reference.blocks import BlockPool
from vllm_spectool.reference.engine import Engine
from vllm_spectool.reference.model import Model, laptop_model
from vllm_spectool.reference.reading import read_chat
from vllm_spectool.reference.request import Output, Running
from vllm_spectool.reference.response import Response
from vllm_spectool.reference.styles import CHATML, Style


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """How a reference engine is set up."""

    model_name: str = "reference"
    api_keys: tuple[str, ...] = ()
    """Any of them opens the guarded routes; none leaves the server open."""
    continuations: bool = True
    """Whether the tool cache is on; without it, its routes answer 404."""
    unable: str | None = None
    """Why the tool cache is on but cannot work: its routes answer 501."""
    token_s: float = 0.0
    """Seconds that a step takes."""
    block_tokens: int = 16
    blocks: int = 4096
    continuation_limits: ContinuationLimits = field(default_factory=ContinuationLimits)
    entry_limits: EntryLimits = field(default_factory=EntryLimits)
    store_limits: StoreLimits = field(default_factory=StoreLimits)


class Reference:
    """A tiny engine with the semantics of vLLM under the plugin.

    Use one from one event loop. A background task steps while there are requests, and ends with
    the last of them.
    """

    def __init__(
        self,
        model: Model = laptop_model,
        *,
        style: Style = CHATML,
        settings: ReferenceSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings or ReferenceSettings()
        self.store = Store(self.settings.store_limits)
        self.engine = Engine(
            model=model,
            style=style,
            store=self.store,
            pool=BlockPool(self.settings.blocks, self.settings.block_tokens),
            limits=self.settings.continuation_limits,
        )
        self.requests = 0
        """Chat requests taken so far."""
        self._clock = clock
        self._sleep = sleep
        self._unread: dict[Running, asyncio.Queue[Output]] = {}
        self._stepping: asyncio.Task[None] | None = None

    def chat(self, body: bytes, headers: Mapping[str, str]) -> Response:
        """Take a chat request. Close what is returned, however far it was read.

        Args:
            body: JSON, as sent to `/v1/chat/completions`.
            headers: Names in lower case.

        Raises:
            MalformedError: The request is refused; `body` is the answer.
        """
        request, malformed_key = read_chat(body, headers, engine=self.engine)
        if malformed_key:
            self.store.tally.add(TURNS, "malformed_key")
        if not self.settings.continuations or self.settings.unable is not None:
            request = replace(request, owner=None)
        self.requests += 1
        running = self.engine.add(request)
        self._unread[running] = asyncio.Queue()
        self._start()
        return Response(
            engine=self.engine,
            running=running,
            outputs=self._unread[running],
            forget=self._forget,
            model=self.settings.model_name,
            created=int(datetime.now(UTC).timestamp()),
        )

    async def put(self, owner: Owner, entries: Sequence[Entry]) -> int:
        """Keep outputs; return how many were kept."""
        return self.store.put(owner, entries, self._clock())

    async def delete(self, owner: Owner) -> int:
        """Drop what a response has, for good; return how many were dropped."""
        return self.store.delete(owner, self._clock())

    @property
    def unable(self) -> str | None:
        """Why the tool cache cannot work here."""
        return self.settings.unable

    def status(self) -> Mapping[str, Any]:
        """Say what is on."""
        turns = self.settings.continuation_limits.turns
        return status(
            on=[] if self.unable else ["o3"],
            reason=self.unable,
            limits=self.settings.entry_limits.on_the_wire(turns),
        )

    def left(self) -> dict[str, int]:
        """Return all that is 0 once every client has gone. Reads only: any thread may ask."""
        return {
            "running": len(self.engine.running),
            "waiting": len(self.engine.waiting),
            "resident": self.engine.resident,
            "unread": len(self._unread),
            "blocks": self.engine.pool.used,
            "entries": self.store.entries,
            "bytes": self.store.bytes,
            "responses": self.store.responses,
        }

    def metrics(self) -> str:
        """Return counters and gauges as Prometheus text."""
        self.store.expire(self._clock())
        left, work = self.left(), self.engine.work
        gauges = {
            HELD_ENTRIES.name: left["entries"],
            HELD_BYTES.name: left["bytes"],
            "requests_running": left["running"],
            "requests_waiting": left["waiting"],
            "requests_resident": left["resident"],
            "blocks_used": left["blocks"],
            "steps": work.steps,
            "prefill_tokens": work.prefill_tokens,
            "decoded_tokens": work.decoded_tokens,
            "preemptions": work.preemptions,
        }
        return self.store.tally.exposition(gauges)

    def _forget(self, running: Running) -> None:
        self._unread.pop(running, None)
        self.engine.abort(running, self._clock())

    def _start(self) -> None:
        if self._stepping is None or self._stepping.done():
            # Ends by itself with the last request; a server's loop outlives its requests.
            self._stepping = asyncio.create_task(self._step(), name="reference engine")  # noqa: TID251

    async def _step(self) -> None:
        while self.engine.running or self.engine.waiting:
            await self._sleep(self.settings.token_s)
            for output in self._outputs(self._clock()):
                queue = self._unread.get(output.running)
                if queue is not None:
                    queue.put_nowait(output)

    def _outputs(self, now_s: float) -> list[Output]:
        try:
            return self.engine.step(now_s)
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and the next are served
            return self.engine.fail(error, now_s)
