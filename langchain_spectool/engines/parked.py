"""The rest of a response whose first answer the agent has: it may answer the next model call.

An answer is parked as soon as it is whole, before anybody knows whether another follows. What
the network says next decides; it is read in the background, by the driver of the model call.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from langchain_spectool._runtime.driver import Ticket as Work
from langchain_spectool._runtime.landing import Landing
from langchain_spectool.engines.answers import (
    Answer,
    Json,
    ResolvedCall,
    answer_in_response,
    answer_in_stream,
    goes_on,
    marker_in,
    may_go_on,
)
from langchain_spectool.engines.flows import AsyncFlow, Flow, SyncFlow
from langchain_spectool.engines.seats import Seat
from langchain_spectool.engines.sse import data_of


class Parked:
    """One answer that the agent has, and what may follow it."""

    def __init__(self, seat: Seat, asked: bytes) -> None:
        """Park the answer to the request with the body `asked`."""
        self.seat = seat
        self.asked = asked
        self.decided: Landing[tuple[ResolvedCall, ...] | None] = Landing()
        """The calls the engine has resolved; None: no answer follows."""
        self.resolved: tuple[ResolvedCall, ...] | None = None
        self.step: int | None = None
        """Superstep of the model call whose answer it is, where that is known."""
        self.unpark: Callable[[], None] = _nothing
        """Stops the clock that runs while it is parked."""
        self._answer: tuple[Answer | None] | None = None

    def fits(self, request: bytes) -> bool:
        """Say whether a request with that body goes on from here, as far as is known."""
        answer = self.answer
        if answer is None or self.ended:
            return False
        if self.resolved is None:
            return may_go_on(self.asked, answer, request)
        return goes_on(self.asked, answer, self.resolved, request)

    def decide(self, resolved: tuple[ResolvedCall, ...] | None) -> None:
        """Note what is known now."""
        if not self.decided.done:
            self.resolved = resolved
            self.decided.land(resolved)

    @property
    def ended(self) -> bool:
        """Whether it is known that no answer follows."""
        return self.decided.done and self.resolved is None

    @property
    def answer(self) -> Answer | None:
        """The answer the agent has; None if it is not a plain one."""
        if self._answer is None:
            self._answer = (self._read(),)
        return self._answer[0]

    def _read(self) -> Answer | None:
        raise NotImplementedError

    def close(self) -> None:
        """Give it up, by blocking."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Give it up, awaiting."""
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers that have all arrived in one body."""

    said: Json
    """The one that the agent has."""
    resolved: tuple[ResolvedCall, ...]
    rest: list[Json]
    """Those that follow it, at least one."""
    headers: Any
    """Those of the response, of httpx or httpx2, without its length."""


class ParkedBody(Parked):
    """Answers in memory."""

    def __init__(self, seat: Seat, asked: bytes, answers: Answers) -> None:
        """Park what follows the first of `answers`."""
        super().__init__(seat, asked)
        self.answers = answers
        self.decide(answers.resolved)

    def _read(self) -> Answer | None:
        return answer_in_response(self.answers.said)

    def close(self) -> None:
        """There is nothing to let go of."""


class _ParkedFlow(Parked, Generic[Flow]):
    """Answers still to come over a connection."""

    def __init__(self, seat: Seat, asked: bytes, said: Sequence[bytes], flow: Flow) -> None:
        """Park what is left of `flow`."""
        super().__init__(seat, asked)
        self.flow = flow
        self._said = said
        self.work: Work | None = None
        """Whoever reads in the background whether an answer follows."""

    def _read(self) -> Answer | None:
        return answer_in_stream(self._said)

    def _announced(self, events: list[bytes]) -> tuple[tuple[ResolvedCall, ...] | None] | None:
        """Return what the first of `events` that says anything announces; None if none does."""
        for place, event in enumerate(events):
            if data_of(event) is not None:
                self.flow.put_back(events[place + 1 :])
                return (marker_in(event),)
        return None

    def _stop(self) -> None:
        self.unpark()
        self.seat.over = True
        if self.work is not None:
            self.work.cancel()


class SyncParked(_ParkedFlow[SyncFlow]):
    """A connection that is read by blocking."""

    def look(self) -> None:
        """Read until it is known whether an answer follows."""
        found: tuple[ResolvedCall, ...] | None = None
        with contextlib.suppress(Exception):
            found = self._next()
        if found is None:
            self.seat.over = True
            self.flow.close()
        self.decide(found)

    def _next(self) -> tuple[ResolvedCall, ...] | None:
        while events := self.flow.read():
            if (announced := self._announced(events)) is not None:
                return announced[0]
        return None

    def close(self) -> None:
        """Give it up: the server is told by the end of the connection."""
        self._stop()
        self.flow.close()
        self.decide(None)


class AsyncParked(_ParkedFlow[AsyncFlow]):
    """A connection that is read by awaiting."""

    async def look(self) -> None:
        """Read until it is known whether an answer follows."""
        found: tuple[ResolvedCall, ...] | None = None
        try:
            with contextlib.suppress(Exception):
                found = await self._next()
        finally:
            if found is None:
                self.seat.over = True
                await self.flow.aclose()
            self.decide(found)

    async def _next(self) -> tuple[ResolvedCall, ...] | None:
        while events := await self.flow.read():
            if (announced := self._announced(events)) is not None:
                return announced[0]
        return None

    def close(self) -> None:
        """Give it up where nothing can be awaited: what reads it closes it, or its loop's end."""
        self._stop()
        self.decide(None)

    async def aclose(self) -> None:
        """Give it up: the server is told by the end of the connection."""
        looking = self.work is not None and not self.decided.done
        self._stop()
        if looking:
            await self.decided.arrival()
        await self.flow.aclose()
        self.decide(None)


def _nothing() -> None:
    """Nothing runs."""


def says_something(events: Sequence[bytes]) -> bool:
    """Say whether there is more than comments, by which a server keeps its connections."""
    return any(data_of(event) is not None for event in events)


def first_event_is_good(events: Sequence[bytes]) -> bool:
    """Say whether an answer begins with `events`, rather than an error or nothing."""
    said = [data for event in events if (data := data_of(event)) is not None]
    return bool(said) and b'"error"' not in said[0][:64]
