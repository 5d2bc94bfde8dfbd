"""A network that fails as drawn, and knows what is open on it."""

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

Fault = Literal["none", "refused", "status", "cut", "between"]
"""`refused`: the connection cannot be made; `status`: 503; `cut`: reset in the middle of the body;
`between`: reset between two turns of one response."""


@dataclass
class Line:
    """What one client's requests go over."""

    fault: Fault = "none"
    nth: int = 0
    """Which request fails, from 0."""
    after: int = 0
    """Bytes after which `cut` resets."""
    asked: int = 0
    """Requests so far."""
    failed: int = 0
    ids: list[str] = field(default_factory=list[str])
    """`X-Request-Id` of each."""
    opened: int = 0
    """Responses whose body is not closed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fate(self, request: httpx2.Request) -> Fault:
        """Take a request; return what becomes of it."""
        self.ids.append(request.headers.get("x-request-id", ""))
        hit = self.asked == self.nth
        self.asked += 1
        return self.fault if hit else "none"

    def count(self, by: int) -> None:
        """Note a body that is opened or closed."""
        with self._lock:
            self.opened += by

    def passed(self, fault: Fault, seen: int, part: bytes) -> bytes:
        """Return what of `part` still arrives."""
        if fault == "between":
            head, done, _ = part.partition(b"data: [DONE]\n\n")
            return head + done
        return part[: max(0, self.after - seen)] if fault == "cut" else part


class _Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that may be cut off, and says when it is closed."""

    def __init__(self, line: Line, inside: Any, fault: Fault) -> None:
        self._line, self._inside, self._fault = line, inside, fault
        self._closed = False
        line.count(1)

    def _cut(self, seen: int, part: bytes) -> tuple[bytes, bool]:
        left = self._line.passed(self._fault, seen, part)
        whole = len(left) == len(part) and not (
            self._fault == "between" and left.endswith(b"data: [DONE]\n\n")
        )
        self._line.failed += not whole
        return left, whole

    def __iter__(self) -> Iterator[bytes]:
        seen = 0
        for part in self._inside:
            left, whole = self._cut(seen, part)
            seen += len(left)
            yield left
            if not whole:
                raise httpx2.ReadError("reset")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for part in self._inside:
            left, whole = self._cut(seen, part)
            seen += len(left)
            yield left
            if not whole:
                raise httpx2.ReadError("reset")

    def _ended(self) -> None:
        if not self._closed:
            self._closed = True
            self._line.count(-1)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # a thread may be reading: the end comes to it
            self._inside.close()
        self._ended()

    async def aclose(self) -> None:
        await self._inside.aclose()
        self._ended()


class Faulty(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Fails as its line says."""

    def __init__(self, line: Line, inside: Any) -> None:
        self.line, self._inside = line, inside

    def _refused(self, request: httpx2.Request, fault: Fault) -> httpx2.Response | None:
        if fault == "refused":
            self.line.failed += 1
            raise httpx2.ConnectError("refused", request=request)
        if fault == "status":
            self.line.failed += 1
            headers = {"retry-after-ms": "1"}
            return httpx2.Response(503, json={"error": {"message": "busy"}}, headers=headers)
        return None

    def _wrapped(self, answer: httpx2.Response, fault: Fault) -> httpx2.Response:
        answer.stream = _Body(self.line, answer.stream, fault)
        return answer

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        fault = self.line.fate(request)
        refused = self._refused(request, fault)
        return refused or self._wrapped(self._inside.handle_request(request), fault)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        fault = self.line.fate(request)
        refused = self._refused(request, fault)
        return refused or self._wrapped(await self._inside.handle_async_request(request), fault)

    def close(self) -> None:
        self._inside.close()

    async def aclose(self) -> None:
        await self._inside.aclose()
