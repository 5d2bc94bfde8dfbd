"""One transport for `httpx` and for `httpx2`: the same interface, under two names."""

import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any


class SyncBody:
    """A response's body that is read once: who reads again, as an SDK that drains, finds the end.

    Closing it says that no more will be read.
    """

    def __init__(self, source: "SyncSource") -> None:
        """Read from `source`."""
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        return self._source

    def close(self) -> None:
        """Read no more."""
        self._source.close()


class AsyncBody:
    """The same, awaited."""

    def __init__(self, source: "AsyncSource") -> None:
        """Read from `source`."""
        self._source = source

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._source

    async def aclose(self) -> None:
        """Read no more."""
        await self._source.aclose()


class SyncSource(Iterator[bytes]):
    """Parts of a body, as they come."""

    @abstractmethod
    def close(self) -> None:
        """Let go of where they come from, unless it has been handed on."""


class AsyncSource(AsyncIterator[bytes]):
    """The same, awaited. No generator: a loop would have to finish one that is left half read."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of where they come from, unless it has been handed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What a transport needs of the library its client is of."""

    request: Any
    response: Any
    accepts: str
    """`Accept-Encoding` of a client whose user has not set one."""
    cut_off: type[Exception]
    """Raised where a body ends before its answer does."""
    sync_body: type[SyncBody]
    async_body: type[AsyncBody]


def library_of(request: object) -> Library:
    """Return the library that made `request`.

    Raises:
        TypeError: Neither `httpx` nor `httpx2` did.
    """
    roots = {kind.__module__.partition(".")[0] for kind in type(request).__mro__}
    name = next((name for name in ("httpx", "httpx2") if name in roots), None)
    if name is None:
        msg = f"a request of httpx or httpx2 is needed, got {request!r}"
        raise TypeError(msg)
    return _library(name)


@cache
def _library(name: str) -> Library:
    module: Any = sys.modules[name]
    bare = module.Client(transport=module.BaseTransport(), trust_env=False)
    return Library(
        request=module.Request,
        response=module.Response,
        accepts=bare.headers["Accept-Encoding"],
        cut_off=module.RemoteProtocolError,
        sync_body=type("SyncBody", (SyncBody, module.SyncByteStream), {}),
        async_body=type("AsyncBody", (AsyncBody, module.AsyncByteStream), {}),
    )
