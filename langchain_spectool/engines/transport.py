"""`ToolCacheTransport`: one network request may answer several model calls."""

from typing import Any

import httpx

from langchain_spectool._core.encoding import attempt
from langchain_spectool.engines.exchange import Exchange
from langchain_spectool.engines.libraries import library_of
from langchain_spectool.engines.model_call import CURRENT

_PATH = "/chat/completions"


class ToolCacheTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Asks an engine to go on with early results, and hands out one answer per model call.

    Stands around the transport of an `httpx` or `httpx2` client, blocking or not. A request that
    belongs to no model call of a `Speculation` with an engine passes untouched.
    """

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - a transport of either library
        """Send through `inner`."""
        self.inner = inner

    def handle_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Answer from what is parked, or send."""
        exchange = _exchange(request)
        if exchange is None:
            return self.inner.handle_request(request)
        parked = attempt(exchange.claim)
        if parked is not None and (resumed := exchange.resumed(parked)) is not None:
            return resumed
        sent = attempt(exchange.opted_in)
        if sent is None:
            return self.inner.handle_request(request)
        response = self.inner.handle_request(sent)
        if exchange.turned_away(response):
            response.close()
            return exchange.checked(self.inner.handle_request(request))
        return exchange.answered(response)

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Answer from what is parked, or send."""
        exchange = _exchange(request)
        if exchange is None:
            return await self.inner.handle_async_request(request)
        parked = attempt(exchange.claim)
        if parked is not None and (resumed := await exchange.aresumed(parked)) is not None:
            return resumed
        sent = attempt(exchange.opted_in)
        if sent is None:
            return await self.inner.handle_async_request(request)
        response = await self.inner.handle_async_request(sent)
        if exchange.turned_away(response):
            await response.aclose()
            return exchange.checked(await self.inner.handle_async_request(request))
        return await exchange.aanswered(response)

    def close(self) -> None:
        """Close the transport inside."""
        self.inner.close()

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self.inner.aclose()


def _exchange(request: Any) -> Exchange | None:  # noqa: ANN401 - of either library
    """Return what is to be done about a request; None: nothing. Never raises."""
    call = CURRENT.get()
    if call is None or call.scope.over or request.method != "POST":
        return None
    if not str(request.url.path).endswith(_PATH):
        return None
    content = attempt(lambda: bytes(request.content))
    library = attempt(library_of, request)
    if content is None or library is None:
        return None
    return Exchange(call, request, content, library)
