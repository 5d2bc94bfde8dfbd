"""A streamed response read event by event: it may hold more answers than the one asked for."""

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from langchain_spectool.engines.sse import EventSplitter

_WHOLE_AT_THE_END = (b"\r\r", b"\n\r")
"""Ends of events that might have gone on as long as the body did."""


class _Flow:
    """What both kinds share: whole events out of chunks."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - of httpx or httpx2
        self.response = response
        self.over = False
        """Whether the network has nothing more to say."""
        self.closed = False
        self.tail = b""
        """What came after the last whole event of a body that is over."""
        self._splitter = EventSplitter()
        self._readable = True
        self._pending: list[bytes] = []

    def put_back(self, events: list[bytes]) -> None:
        """Have `events` read again, before anything else."""
        self._pending = [*events, *self._pending]

    def _taken(self) -> list[bytes]:
        taken, self._pending = self._pending, []
        return taken

    def _fed(self, chunk: bytes) -> list[bytes]:
        if not self._readable:
            return [chunk]
        try:
            return self._splitter.feed(chunk)
        except ValueError:  # it is no stream of answers: it passes as it comes
            self._readable = False
            return [self._splitter.rest()]

    def _ended(self) -> list[bytes]:
        self.over = True
        rest = self._splitter.rest()
        if rest.endswith(_WHOLE_AT_THE_END):
            return [rest]
        self.tail = rest
        return []


class SyncFlow(_Flow):
    """Reads by blocking."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - of httpx or httpx2
        """Read the body of `response`."""
        super().__init__(response)
        self._source: Iterator[bytes] = iter(response.stream)

    def read(self) -> list[bytes]:
        """Return the next whole events; none once the body is over."""
        if self._pending:
            return self._taken()
        for chunk in self._source:
            if events := self._fed(chunk):
                return events
        return self._ended()

    def close(self) -> None:
        """Let go of the connection; a server that still writes is told so."""
        if self.closed:
            return
        self.closed = True
        if not self.over:
            _shut(self.response)
        with contextlib.suppress(Exception):
            self.response.stream.close()
        with contextlib.suppress(Exception):  # a thread may be reading: it finds the end
            getattr(self._source, "close", _nothing)()


class AsyncFlow(_Flow):
    """Reads by awaiting."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - of httpx or httpx2
        """Read the body of `response`."""
        super().__init__(response)
        self._source: AsyncIterator[bytes] = aiter(response.stream)

    async def read(self) -> list[bytes]:
        """Return the next whole events; none once the body is over."""
        if self._pending:
            return self._taken()
        async for chunk in self._source:
            if events := self._fed(chunk):
                return events
        return self._ended()

    async def aclose(self) -> None:
        """Let go of the connection; a server that still writes is told so."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(Exception):
            await self.response.stream.aclose()
        with contextlib.suppress(Exception):
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()


def _nothing() -> None:
    """Close what has nothing to close."""


def _shut(response: Any) -> None:  # noqa: ANN401 - of httpx or httpx2
    """Wake a thread that reads from the connection: closing a socket alone does not."""
    with contextlib.suppress(Exception):
        if not response.extensions["http_version"].startswith(b"HTTP/1"):
            return  # others share the connection; this one's stream is closed
        stream = response.extensions["network_stream"]
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


Flow = TypeVar("Flow", SyncFlow, AsyncFlow)
"""Of either kind."""
