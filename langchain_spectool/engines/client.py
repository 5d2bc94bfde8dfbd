"""`ToolCacheClient`: tells an engine the outputs of early runs, and never gets in the way."""

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import quote, urlsplit

import httpx

from langchain_spectool._core.contracts import Audience
from langchain_spectool._core.encoding import attempt
from langchain_spectool._runtime.landing import running_loop
from langchain_spectool._runtime.timers import later
from langchain_spectool.engines.breaker import Breaker
from langchain_spectool.engines.entries import Entry

PATH = "/cache-tool-output"
KEY_HEADER = "X-Spectool-Key"

EngineReply = Literal["ok", "unkept", "refused", "rejected", "failed", "resting"]
"""How the engine took a request: `unkept` says that it has no use or no room for the outputs, as
after the end of a response, `refused` that it cannot or may not do this at all (401, 403, 404,
405, 501), `rejected` that it will not have this one (other 4xx), `failed` that it gave no good
answer in time, `resting` that it was not asked, because it lately failed or refused."""

_OK = 200
_REFUSALS = frozenset({401, 403, 404, 405, 501})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ToolCacheClient:
    """Speaks the tool-cache API of one engine, by blocking or by awaiting.

    No method raises: what goes wrong is in the reply. After `Breaker.patience` failures in a row,
    or one refusal, the engine is left alone for a while, and so are its model's requests.

    Args:
        base_url: Where the engine serves its models, such as `http://gpu-1:8000/v1`.
        api_key: The engine's key. None: the main model's own, where it is served there.
        audience: Who reads what the engine is told: `internal` for one the operator runs,
            `external` for one that others run, `local` for one in this very process.
        timeout_s: Seconds, above 0, that one request may take.
        parked_for_s: Seconds, above 0, that the rest of an answer waits for the next model call.
        headers: Sent along with every request, as a gateway may want.
        transport: Carries blocking requests, as in `httpx.Client`. None: the network.
        async_transport: Carries awaited ones. None: the network.
        breaker: When the engine is left alone.

    Raises:
        ValueError: `base_url` is no HTTP URL, or another value is outside its range.
    """

    def __init__(  # noqa: PLR0913 - every part but the place has a default
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        audience: Audience = "internal",
        timeout_s: float = 1.0,
        parked_for_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        async_transport: httpx.AsyncBaseTransport | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        """Ask nothing yet."""
        self.origin = origin_of(base_url)
        if audience not in get_args(Audience):
            msg = f"`audience` must be one of {', '.join(get_args(Audience))}; got {audience!r}"
            raise ValueError(msg)
        for name, seconds in (("timeout_s", timeout_s), ("parked_for_s", parked_for_s)):
            if not seconds > 0:
                msg = f"`{name}` must be seconds above 0, got {seconds!r}"
                raise ValueError(msg)
        self.base_url = base_url.rstrip("/")
        self.audience: Audience = audience
        self.timeout_s = timeout_s
        self.parked_for_s = parked_for_s
        self.headers = dict(headers or {})
        if api_key is not None:
            self.headers["Authorization"] = f"Bearer {api_key}"
        self._transports = transport, async_transport
        self._verify: ssl.SSLContext | bool = self.origin[0] == "https"
        self._breaker = breaker or Breaker()
        self.refusal = ""
        """How the engine last refused a request, in a few words."""

    # --- whether to ask

    @property
    def resting(self) -> bool:
        """Whether the engine is left alone now."""
        return self._breaker.resting(_now_s())

    @property
    def proven(self) -> bool:
        """Whether the engine has ever taken an output."""
        return self._breaker.proven

    def refused(self) -> None:
        """Note that the engine will not even have a request that opts in."""
        self._breaker.refused(_now_s())

    # --- what to ask

    def put(
        self,
        response_id: str,
        entries: Sequence[Entry],
        *,
        key: str,
        over: httpx.Client | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> EngineReply:
        """Tell the engine outputs for calls of the response of that id; `over` a connection."""
        body = [entry.fields() for entry in entries]
        return self._ask(over, "POST", response_id, key, headers, body)

    async def aput(
        self,
        response_id: str,
        entries: Sequence[Entry],
        *,
        key: str,
        over: httpx.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> EngineReply:
        """Do as `put`, awaiting."""
        body = [entry.fields() for entry in entries]
        return await self._aask(over, "POST", response_id, key, headers, body)

    def delete(
        self,
        response_id: str,
        *,
        key: str,
        over: httpx.Client | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> EngineReply:
        """Have the engine forget what it was told for the response of that id."""
        return self._ask(over, "DELETE", response_id, key, headers)

    async def adelete(
        self,
        response_id: str,
        *,
        key: str,
        over: httpx.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> EngineReply:
        """Do as `delete`, awaiting."""
        return await self._aask(over, "DELETE", response_id, key, headers)

    # --- connections

    def connection(self) -> httpx.Client:
        """Return a connection of its own, for several requests; close it after the last."""
        options = self._options()
        transport = self._transports[0]
        given = None if transport is None else _Shared(transport)
        return httpx.Client(transport=given, **options)

    def aconnection(self) -> httpx.AsyncClient:
        """Do as `connection`, awaiting."""
        options = self._options()
        transport = self._transports[1]
        given = None if transport is None else _AsyncShared(transport)
        return httpx.AsyncClient(transport=given, **options)

    def _options(self) -> dict[str, Any]:
        if self._verify is True:  # read once: the certificates take their time
            self._verify = ssl.create_default_context()
        return {"timeout": self.timeout_s, "headers": self.headers, "verify": self._verify}

    def _ask(self, over: httpx.Client | None, *asked: Any) -> EngineReply:
        if not self._breaker.passes(_now_s()):
            return "resting"
        request = self._request(*asked)
        try:
            if over is not None:
                return self._answered(over, request)
            with self.connection() as connection:
                return self._answered(connection, request)
        except Exception:  # noqa: BLE001 - whatever it is, the engine did not answer
            return self._failed()

    def _answered(self, connection: httpx.Client, request: dict[str, Any]) -> EngineReply:
        # The timeout of httpx begins anew with every byte: an engine could go on for ever.
        in_time = later(self.timeout_s, connection.close)
        try:
            return self._reply(connection.request(**request))
        finally:
            in_time()

    async def _aask(self, over: httpx.AsyncClient | None, *asked: Any) -> EngineReply:
        if not self._breaker.passes(_now_s()):
            return "resting"
        request = self._request(*asked)
        reply: EngineReply | None = None
        try:
            async with asyncio.timeout(self.timeout_s):
                if over is not None:
                    reply = self._reply(await over.request(**request))
                else:
                    async with self.aconnection() as connection:
                        reply = self._reply(await connection.request(**request))
        except Exception:  # noqa: BLE001 - whatever it is, the engine did not answer
            return self._lost(over)
        return reply

    def _request(
        self,
        method: str,
        response_id: str,
        key: str,
        headers: Mapping[str, str] | None,
        body: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        given = {name.lower() for name in self.headers}
        shown = (headers or {}).items()
        own = {name: value for name, value in shown if name.lower() not in given}
        return {
            "method": method,
            "url": f"{self.base_url}{PATH}/{quote(response_id, safe='')}",
            "headers": {**own, KEY_HEADER: key},
            **({} if body is None else {"json": body}),
        }

    def _reply(self, response: httpx.Response) -> EngineReply:
        status = response.status_code
        if status == _OK:
            self._breaker.succeeded()
            return "unkept" if attempt(response.json) == {"cached": 0} else "ok"
        if status in _REFUSALS:
            self.refusal = f"the engine answered {status}"
            self._breaker.refused(_now_s())
            return "refused"
        return "rejected" if response.is_client_error else self._failed()

    def _lost(self, over: httpx.AsyncClient | None) -> EngineReply:
        # Who closed the connection under a request does not care for the engine's answer.
        return "failed" if over is not None and over.is_closed else self._failed()

    def _failed(self) -> EngineReply:
        self._breaker.failed(_now_s())
        return "failed"

    def gave_up(self) -> None:
        """Note that a request was cancelled at its deadline."""
        self._failed()


class _Shared(httpx.BaseTransport):
    """Somebody else's transport: it is used, and not closed."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self.handle_request = inner.handle_request


class _AsyncShared(httpx.AsyncBaseTransport):
    """The same, awaited."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.handle_async_request = inner.handle_async_request


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of `url`; all names of this very machine are one.

    Raises:
        ValueError: It has none, as what is no HTTP URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        msg = f"an engine is at an HTTP URL such as 'http://localhost:8000/v1', got {url!r}"
        raise ValueError(msg)
    host = "localhost" if parts.hostname in _LOOPBACK else parts.hostname
    return parts.scheme, host, parts.port or _DEFAULT_PORTS[parts.scheme]


def _now_s() -> float:
    loop = running_loop()
    return time.monotonic() if loop is None else loop.time()
