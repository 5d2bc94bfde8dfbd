"""The tool cache's routes, for vLLM's app and for the reference engine's alike. Needs starlette."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from secrets import compare_digest
from typing import Any, Protocol
from weakref import WeakValueDictionary

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from vllm_spectool._core.entries import Entry, EntryLimits, parse_entries
from vllm_spectool._core.protocol import KEY_HEADER, PATHS, STATUS_PATH
from vllm_spectool._core.store import Owner
from vllm_spectool._core.terms import key_digest
from vllm_spectool.errors import (
    MalformedError,
    RejectedError,
    TooLargeError,
    UnableError,
    UnauthorizedError,
)

LONGEST_ID = 256
PARSED_IN_PLACE = 16 * 1024
"""Bytes of the largest body that is parsed on the event loop, in a few milliseconds at most."""
_GONE = 499
"""Status, which nobody reads, for a client that went in the middle of its request."""


class ToolCache(Protocol):
    """What the routes act on."""

    @property
    def unable(self) -> str | None:
        """Why nothing can be cached here; None where it can."""
        ...

    async def put(self, owner: Owner, entries: Sequence[Entry]) -> int:
        """Keep `entries`; return how many were kept."""
        ...

    async def delete(self, owner: Owner) -> int:
        """Drop what `owner` has, for good; return how many were dropped."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Return what `protocol.status` makes."""
        ...


def routes(
    cache: ToolCache, *, limits: EntryLimits, api_keys: Sequence[str] = ()
) -> list[BaseRoute]:
    """Return the routes of the tool cache, on both paths.

    Args:
        cache: What to act on.
        limits: What one POST may hold.
        api_keys: The server's keys. The paper's path lies outside what vLLM guards, so each
            route asks for one of them itself; empty for a server without keys.
    """
    handler = _Handler(cache, limits, api_keys)
    made: list[BaseRoute] = [
        Route(f"{path}/{{response_id:path}}", handler.checked(act), methods=[method])
        for path in PATHS
        for method, act in (("POST", handler.put), ("DELETE", handler.delete))
    ]
    return [*made, Route(STATUS_PATH, handler.checked(handler.status), methods=["GET"])]


def is_authorized(authorization: str | None, api_keys: Sequence[str]) -> bool:
    """Say whether a request's `Authorization` header carries one of `api_keys`."""
    if not api_keys:
        return True
    scheme, _, sent = (authorization or "").partition(" ")
    digest = sha256(sent.encode()).digest()
    # Every key is compared, whichever fits: the time taken tells nothing.
    fits = [compare_digest(digest, sha256(key.encode()).digest()) for key in api_keys]
    return scheme.lower() == "bearer" and any(fits)


class _Handler:
    def __init__(self, cache: ToolCache, limits: EntryLimits, api_keys: Sequence[str]) -> None:
        self._cache = cache
        self._limits = limits
        self._api_keys = api_keys
        self._orders: WeakValueDictionary[Owner, asyncio.Lock] = WeakValueDictionary()
        """One for each response that somebody posts for now; a lock lets in by order of asking."""

    def checked(
        self, act: Callable[[Request], Awaitable[Mapping[str, Any]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Turn what `act` returns or refuses into a response, after asking for a key."""

        async def answer(request: Request) -> Response:
            try:
                if not is_authorized(request.headers.get("Authorization"), self._api_keys):
                    msg = "Unauthorized"
                    raise UnauthorizedError(msg)
                return JSONResponse(dict(await act(request)))
            except RejectedError as error:
                return JSONResponse(error.body, status_code=error.status)
            except ClientDisconnect:
                return Response(status_code=_GONE)

        return answer

    async def put(self, request: Request) -> Mapping[str, Any]:
        owner = self._owner(request)
        body = await self._body(request)
        async with self._order(owner):
            entries = await self._parsed(body)
            return {"cached": await self._cache.put(owner, entries)}

    async def delete(self, request: Request) -> Mapping[str, Any]:
        owner = self._owner(request)
        async with self._order(owner):
            return {"deleted": await self._cache.delete(owner)}

    def _order(self, owner: Owner) -> asyncio.Lock:
        """Return what keeps a small post from overtaking a large one of the same response."""
        return self._orders.setdefault(owner, asyncio.Lock())

    async def _parsed(self, body: bytes) -> Sequence[Entry]:
        if len(body) <= PARSED_IN_PLACE:
            return parse_entries(body, self._limits)
        return await asyncio.to_thread(parse_entries, body, self._limits)

    async def status(self, _: Request) -> Mapping[str, Any]:
        return self._cache.status()

    def _owner(self, request: Request) -> Owner:
        if self._cache.unable is not None:
            raise UnableError(self._cache.unable)
        digest = key_digest(request.headers.get(KEY_HEADER))
        if digest is None:
            msg = f"`{KEY_HEADER}` is required: 22 to 256 printable ASCII characters"
            raise MalformedError(msg, field=KEY_HEADER)
        response_id: str = request.path_params["response_id"]
        if not 0 < len(response_id) <= LONGEST_ID:
            msg = f"`response_id` has {len(response_id)} characters; 1 to {LONGEST_ID} are taken"
            raise MalformedError(msg, field="response_id")
        return response_id, digest

    async def _body(self, request: Request) -> bytes:
        """Read the body, and no more of it than is allowed."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._limits.body_bytes:
                msg = f"the body is larger than the {self._limits.body_bytes} bytes taken here"
                raise TooLargeError(msg, field="body")
        return bytes(body)
