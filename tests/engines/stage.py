"""A scope of a run, and clients of both libraries and both kinds that belong to it."""

import asyncio
import contextlib
import importlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from langchain_spectool._core.events import Event
from langchain_spectool._runtime.driver import AsyncDriver, Driver, ThreadDriver
from langchain_spectool._runtime.landing import running_loop
from langchain_spectool.engines import ToolCacheClient, ToolCacheTransport
from langchain_spectool.engines.model_call import CURRENT, ModelCall
from langchain_spectool.engines.scope import EngineScope
from tests.engines.wire import ASKED, URL, Json, Network, Play, saying

LIBRARIES = pytest.mark.parametrize("library", ["httpx", "httpx2"])
THREADS_S = 2.0
"""Real seconds that a thread has for what it does at once."""


class Posts(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """The engine's ear: notes what it is told, and answers with `status`."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.told: list[tuple[str, str, Any]] = []
        """Method, path and body of each request."""
        self.keys: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.told.append((request.method, request.url.path, body))
        self.keys.append(request.headers["X-Spectool-Key"])
        return httpx.Response(self.status, json={"cached": 1})

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


@dataclass
class Stage:
    """One run: its scope, its network, and the engine's ear."""

    network: Network
    posts: Posts = field(default_factory=Posts)
    library: str = "httpx2"
    parked_for_s: float = 30.0
    step: int | None = None
    events: list[Event] = field(default_factory=list[Event])

    def __post_init__(self) -> None:
        self.client = ToolCacheClient(
            "http://engine/v1",
            transport=self.posts,
            async_transport=self.posts,
            parked_for_s=self.parked_for_s,
        )
        loop = running_loop()
        driver: Driver = ThreadDriver() if loop is None else AsyncDriver(loop)
        self.driver = driver
        self.scope = EngineScope(self.client, self.events.append, driver.clock)
        self.module: Any = importlib.import_module(self.library)

    def begin(self) -> ModelCall:
        return self.scope.begin(self.driver, {}, self.step)

    @property
    def verdicts(self) -> list[str]:
        return [event.verdict for event in self.events]

    def ask(self, body: Json, **headers: str) -> bytes:
        """Make one model call, by blocking."""
        with self.asking(body, **headers) as response:
            return bytes(response.read())

    @contextlib.contextmanager
    def asking(self, body: Json, **headers: str) -> Iterator[Any]:
        call = self.begin()
        token = CURRENT.set(call)
        try:
            with (
                self.module.Client(transport=ToolCacheTransport(self.network)) as client,
                client.stream("POST", URL, json=body, headers=headers) as response,
            ):
                yield response
        finally:
            CURRENT.reset(token)
            self.scope.ended(call)

    async def aask(self, body: Json, *, url: str = URL, **headers: str) -> bytes:
        """Make one model call, awaiting."""
        async with self.aasking(body, url=url, **headers) as response:
            return bytes(await response.aread())

    @contextlib.asynccontextmanager
    async def aasking(self, body: Json, *, url: str = URL, **headers: str) -> AsyncIterator[Any]:
        call = self.begin()
        token = CURRENT.set(call)
        try:
            async with (
                self.module.AsyncClient(transport=ToolCacheTransport(self.network)) as client,
                client.stream("POST", url, json=body, headers=headers) as response,
            ):
                yield response
        finally:
            CURRENT.reset(token)
            self.scope.ended(call)


def settle(stage: Stage) -> None:
    """Wait in real time until the thread that looks for more has looked."""
    for parked in [*stage.scope.parked]:
        assert parked.decided.within(THREADS_S)


async def look() -> None:
    """Let the task that looks for more look."""
    await asyncio.sleep(0.01)


async def untouched(stage: Stage) -> Json:
    """Make one more call; return what was sent."""
    stage.network.plays.append(Play([saying()]))
    await stage.aask(ASKED)
    return stage.network.bodies[-1]
