"""One answer of a streamed response on its way to the SDK, which sees nothing of the next one."""

from collections.abc import Callable
from typing import Generic

from langchain_spectool.engines.flows import AsyncFlow, Flow, SyncFlow
from langchain_spectool.engines.libraries import AsyncSource, SyncSource
from langchain_spectool.engines.parked import AsyncParked, Parked, SyncParked
from langchain_spectool.engines.seats import Seat
from langchain_spectool.engines.sse import is_done

Park = Callable[[Parked], None]


class _Strand(Generic[Flow]):
    """What both kinds share: all but the waiting."""

    def __init__(
        self,
        flow: Flow,
        seat: Seat,
        asked: bytes,
        park: Park,
        cut_off: type[Exception] | None = None,
    ) -> None:
        """Read the answer to the request with the body `asked`, then `park` what follows.

        With `cut_off`, that is raised where the body ends before the answer does.
        """
        self.flow = flow
        self.seat = seat
        self.asked = asked
        self.said: list[bytes] = []
        self.ended = False
        self._whole = False
        self._park = park
        self._cut_off = cut_off

    def part(self, events: list[bytes]) -> bytes | None:
        """Return what of `events` belongs to the answer; None where the body ended before it."""
        if not events:
            return self._over()
        last = next((place for place, event in enumerate(events) if is_done(event)), None)
        own = events if last is None else events[: last + 1]
        self.said += own
        self._whole = self.ended = last is not None
        if self._whole:
            self.flow.put_back(events[len(own) :])
            self._park(self.parked())
        return b"".join(own)

    def _over(self) -> bytes | None:
        self.ended = self.seat.over = True
        if self._cut_off is not None:
            msg = "the engine ended its response in the middle of an answer"
            raise self._cut_off(msg)
        return self.flow.tail or None

    def parked(self) -> Parked:
        """Return what is left of the flow, to be parked."""
        raise NotImplementedError

    def left(self) -> bool:
        """Read no more; say whether the connection is to be closed, since nothing is parked."""
        if not self._whole:
            self.ended = self.seat.over = True
        return not self._whole


class SyncStrand(_Strand[SyncFlow], SyncSource):
    """Reads by blocking."""

    def __next__(self) -> bytes:
        part = None if self.ended else self.part(self.flow.read())
        if part is None:
            raise StopIteration
        return part

    def parked(self) -> Parked:
        """Return what is left of the flow, to be parked."""
        return SyncParked(self.seat, self.asked, self.said, self.flow)

    def close(self) -> None:
        """Close the connection, unless what follows is parked."""
        if self.left():
            self.flow.close()


class AsyncStrand(_Strand[AsyncFlow], AsyncSource):
    """Reads by awaiting."""

    async def __anext__(self) -> bytes:
        part = None if self.ended else self.part(await self.flow.read())
        if part is None:
            raise StopAsyncIteration
        return part

    def parked(self) -> Parked:
        """Return what is left of the flow, to be parked."""
        return AsyncParked(self.seat, self.asked, self.said, self.flow)

    async def aclose(self) -> None:
        """Close the connection, unless what follows is parked."""
        if self.left():
            await self.flow.aclose()


class SyncWhole(SyncSource):
    """A body that has arrived."""

    def __init__(self, body: bytes) -> None:
        """Hold it."""
        self._parts = [body]

    def __next__(self) -> bytes:
        if not self._parts:
            raise StopIteration
        return self._parts.pop()

    def close(self) -> None:
        """There is nothing to let go of."""


class AsyncWhole(AsyncSource):
    """The same, awaited."""

    def __init__(self, body: bytes) -> None:
        """Hold it."""
        self._parts = [body]

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()

    async def aclose(self) -> None:
        """There is nothing to let go of."""
