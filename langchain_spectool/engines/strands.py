"""One answer of a streamed response on its way to the SDK, which sees nothing of the next one."""

from collections.abc import Callable

from langchain_spectool.engines.flows import AsyncFlow, SyncFlow
from langchain_spectool.engines.libraries import AsyncSource, SyncSource
from langchain_spectool.engines.parked import AsyncParked, Parked, SyncParked
from langchain_spectool.engines.seats import Seat
from langchain_spectool.engines.sse import is_done

Park = Callable[[Parked], None]


class _Strand:
    """What both kinds share: where the answer ends."""

    def __init__(
        self, seat: Seat, asked: bytes, park: Park, cut_off: type[Exception] | None
    ) -> None:
        """Read the answer to the request with the body `asked`, then `park` what follows.

        With `cut_off`, that is raised where the body ends before the answer does.
        """
        self.seat = seat
        self.asked = asked
        self.park = park
        self.said: list[bytes] = []
        self.whole = False
        self.ended = False
        self._cut_off = cut_off

    def taken(self, events: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Return what of `events` belongs to the answer, and what comes after it."""
        last = next((place for place, event in enumerate(events) if is_done(event)), None)
        own = events if last is None else events[: last + 1]
        self.said += own
        self.whole = self.ended = last is not None
        return b"".join(own), events[len(own) :]

    def over(self, tail: bytes) -> bytes | None:
        """Return what is left to read of a body that has ended; None if there is nothing."""
        self.ended = self.seat.over = True
        if self._cut_off is not None:
            msg = "the engine ended its response in the middle of an answer"
            raise self._cut_off(msg)
        return tail or None


class SyncStrand(_Strand, SyncSource):
    """Reads by blocking."""

    def __init__(
        self,
        flow: SyncFlow,
        seat: Seat,
        asked: bytes,
        park: Park,
        cut_off: type[Exception] | None = None,
    ) -> None:
        """Read from `flow`."""
        super().__init__(seat, asked, park, cut_off)
        self.flow = flow

    def __next__(self) -> bytes:
        if self.ended:
            raise StopIteration
        events = self.flow.read()
        if not events:
            if (tail := self.over(self.flow.tail)) is None:
                raise StopIteration
            return tail
        own, rest = self.taken(events)
        if self.whole:
            self.flow.put_back(rest)
            self.park(SyncParked(self.seat, self.asked, self.said, self.flow))
        return own

    def close(self) -> None:
        """Close the connection, unless what follows is parked."""
        if not self.whole:
            self.ended = self.seat.over = True
            self.flow.close()


class AsyncStrand(_Strand, AsyncSource):
    """Reads by awaiting."""

    def __init__(
        self,
        flow: AsyncFlow,
        seat: Seat,
        asked: bytes,
        park: Park,
        cut_off: type[Exception] | None = None,
    ) -> None:
        """Read from `flow`."""
        super().__init__(seat, asked, park, cut_off)
        self.flow = flow

    async def __anext__(self) -> bytes:
        if self.ended:
            raise StopAsyncIteration
        events = await self.flow.read()
        if not events:
            if (tail := self.over(self.flow.tail)) is None:
                raise StopAsyncIteration
            return tail
        own, rest = self.taken(events)
        if self.whole:
            self.flow.put_back(rest)
            self.park(AsyncParked(self.seat, self.asked, self.said, self.flow))
        return own

    async def aclose(self) -> None:
        """Close the connection, unless what follows is parked."""
        if not self.whole:
            self.ended = self.seat.over = True
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
