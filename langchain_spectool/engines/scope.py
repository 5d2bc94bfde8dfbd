"""What one graph run has with an engine: outputs on their way to it, and answers parked for it.

A scope belongs to one graph of one run and ends with it: then nothing is posted any more, parked
answers are given up, and the engine is asked to forget what it still holds.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Mapping
from contextvars import Context

import httpx

from langchain_spectool._core.events import Event
from langchain_spectool._core.verdicts import EngineVerdict
from langchain_spectool._runtime.driver import Driver, Job
from langchain_spectool._runtime.timers import later
from langchain_spectool.engines.answers import is_about
from langchain_spectool.engines.client import ToolCacheClient
from langchain_spectool.engines.entries import Entry
from langchain_spectool.engines.model_call import ModelCall
from langchain_spectool.engines.parked import AsyncParked, Parked, SyncParked
from langchain_spectool.engines.seats import Seat

Emit = Callable[[Event], None]

MOST_PARKED = 8
"""Most answers of one scope that are parked at once; the oldest are given up first."""


class EngineScope:
    """What one graph of one run has with an engine. Methods may be called from any thread."""

    def __init__(self, client: ToolCacheClient, emit: Emit, clock: Callable[[], float]) -> None:
        """Hold nothing yet."""
        self.client = client
        self.lock = threading.RLock()
        self.over = False
        self.parked: list[Parked] = []
        self._emit = emit
        self._clock = clock
        self._calls: list[ModelCall] = []
        self._seats: list[Seat] = []
        self._connection: httpx.Client | None = None
        self._lent = 0
        """Threads that use the connection."""
        self._aconnection: httpx.AsyncClient | None = None

    # --- model calls

    def begin(
        self, driver: Driver, headers: Mapping[str, str], step: int | None = None
    ) -> ModelCall:
        """Begin a model call; outputs are told for the response that may answer it."""
        with self.lock:
            before = self._line(step)
            seat = self.seat() if before is None else before.seat
            call = ModelCall(scope=self, driver=driver, seat=seat, headers=headers, step=step)
            self._calls.append(call)
            return call

    def ended(self, call: ModelCall) -> None:
        """Note that a model call has its answer, or failed; what it parked may still use more."""
        with self.lock:
            call.entries.clear()
            self._calls = [each for each in self._calls if each.seat.open or each is call]

    def seat(self, request_id: str | None = None) -> Seat:
        """Return a new name for a response; or the caller's own."""
        seat = Seat() if request_id is None else Seat(request_id=request_id)
        with self.lock:
            self._seats = [*(each for each in self._seats if each.open), seat]
        return seat

    def current(self, call: ModelCall, tool: str) -> ModelCall | None:
        """Return the call to tell an output for: `call`, or the latest if its response is over."""
        with self.lock:
            latest = self._calls[-1] if self._calls else call
            found = call if call.seat.open else latest
        if found.seat.open or not found.asked:
            return found
        self.say("late", tool=tool)
        return None

    def report(self, verdict: EngineVerdict, batch: list[Entry]) -> None:
        """Report what became of each of `batch`."""
        detail = self.client.refusal if verdict == "refused" else ""
        for entry in batch:
            self.say(verdict, tool=entry.name, detail=detail)

    def say(self, verdict: EngineVerdict, *, tool: str = "", detail: str = "") -> None:
        """Emit one event."""
        now_s = self._clock()
        self._emit(Event(kind="engine", at_s=now_s, verdict=verdict, tool=tool, detail=detail))

    # --- parked answers

    def park(self, parked: Parked, call: ModelCall) -> None:
        """Keep what may follow the answer of `call` until the next one, but not for long."""
        driver, parked.step = call.driver, call.step
        with self.lock:
            if self.over:
                return self._give_up(parked, driver)
            self.parked.append(parked)
            too_many = self.parked[:-MOST_PARKED]
            self.parked = self.parked[-MOST_PARKED:]
        for each in too_many:
            self._give_up(each, driver)
        if parked.decided.done:
            self._wind_up(parked, driver)
        else:
            self._look(parked, driver)
        return None

    def _wind_up(self, parked: Parked, driver: Driver) -> None:
        """Start the clock of what is parked for sure."""
        with self.lock:
            if parked in self.parked:
                expired = functools.partial(self._expired, parked, driver)
                parked.unpark = later(self.client.parked_for_s, expired)

    def _look(self, parked: Parked, driver: Driver) -> None:
        if not isinstance(parked, (SyncParked, AsyncParked)):
            return
        job = Job(
            name="spectool:engine-look",
            timeout_s=self.client.timeout_s,
            run=parked.look if isinstance(parked, SyncParked) else None,
            arun=None if isinstance(parked, SyncParked) else parked.look,
            done=lambda _: self._looked(parked, driver),
        )
        parked.work = driver.start(job, Context())
        if parked.work is None:
            self._drop([parked])
            parked.decide(None)
            self._give_up(parked, driver)

    def _looked(self, parked: Parked, driver: Driver) -> None:
        if not parked.decided.done:  # it was cancelled, maybe before it began
            parked.decide(None)
            if not self.over:
                self._give_up(parked, driver)
        if parked.resolved is None:
            self._drop([parked])
        else:
            self._wind_up(parked, driver)

    def _drop(self, gone: list[Parked]) -> None:
        with self.lock:
            self.parked = [parked for parked in self.parked if parked not in gone]

    def _expired(self, parked: Parked, driver: Driver) -> None:
        with self.lock:
            if parked not in self.parked:
                return
            self.parked.remove(parked)
        self._give_up(parked, driver)
        self.say("dropped", detail="parked for too long")

    def _give_up(self, parked: Parked, driver: Driver) -> None:
        """Close it in the background, where closing needs the loop."""
        parked.seat.over = True
        if not isinstance(parked, AsyncParked):
            parked.close()
            return
        job = Job(
            name="spectool:engine-close",
            timeout_s=self.client.timeout_s,
            run=None,
            arun=parked.aclose,
            done=_nothing,
        )
        driver.call(lambda: _ignore(driver.start(job, Context())))

    def _line(self, step: int | None) -> Parked | None:
        """Return the one answer parked, if a call in `step` comes after it.

        Calls of one step belong to branches that go on side by side.
        """
        alone = self.parked[0] if len(self.parked) == 1 else None
        if alone is None or step is None or alone.step is None or step > alone.step:
            return alone
        return None

    def claim(
        self, call: ModelCall, request: bytes, target: tuple[str | None, ...]
    ) -> Parked | None:
        """Take what a request with that body may go on from; give up what it makes useless.

        What was asked elsewhere, or with another key, is no answer to it.
        """
        with self.lock:
            alike = [each for each in self.parked if each.seat.target == target]
            match = next((each for each in alike if each.fits(request)), None)
            useless: list[Parked | None] = []
            if match is None:
                about = [each for each in self.parked if is_about(each.asked, request)]
                useless = [*about] or [self._line(call.step)]
            gone = [each for each in (match, *useless) if each is not None]
            self._drop(gone)
        for each in gone:
            each.unpark()
            if each is not match:
                self._give_up(each, call.driver)
                self.say("dropped", detail="the next request was another one")
        return match

    # --- the engine's memory

    @contextlib.contextmanager
    def connection(self) -> Generator[httpx.Client]:
        """Lend the connection for blocking requests of this scope."""
        with self.lock:
            if self._connection is None or self._connection.is_closed:
                self._connection = self.client.connection()
            self._lent += 1
            connection = self._connection
        try:
            yield connection
        finally:
            with self.lock:
                self._lent -= 1
            self._close_unused()

    def _close_unused(self) -> None:
        """Close the connection once the graph has ended, but not under a thread that uses it.

        Closed while it is being made, it would stay open.
        """
        with self.lock:
            if not self.over or self._lent:
                return
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def aconnection(self) -> httpx.AsyncClient:
        """Return the connection for awaited requests of this scope."""
        with self.lock:
            if self._aconnection is None:
                self._aconnection = self.client.aconnection()
            return self._aconnection

    def forget(self) -> None:
        """Have the engine forget all it was told: the world may have changed."""
        with self.lock:
            driver = self._calls[-1].driver if self._calls else None
            for call in self._calls:
                call.outdate()
            told = self._close_seats()
        if driver is not None and told:
            driver.call(functools.partial(self._forget, driver, told))

    def abandon(self, call: ModelCall) -> None:
        """Have the engine forget a response that failed: maybe it has never seen the request."""
        with self.lock:
            seat = call.seat
            told, seat.closed = seat.open and seat.told, True
        if told:
            call.driver.call(functools.partial(self._forget, call.driver, [(seat, call.headers)]))

    def _close_seats(self) -> list[tuple[Seat, Mapping[str, str]]]:
        """Tell nothing more for any response; return those the engine may hold outputs for."""
        headers: Mapping[str, str] = self._calls[-1].headers if self._calls else {}
        told = [(seat, headers) for seat in self._seats if seat.open and seat.told]
        for seat, _ in told:
            seat.closed = True
        return told

    def _forget(self, driver: Driver, told: list[tuple[Seat, Mapping[str, str]]]) -> None:
        for seat, headers in told:
            ask = {"key": seat.key, "headers": headers}
            job = Job(
                name="spectool:engine-delete",
                timeout_s=self.client.timeout_s,
                run=functools.partial(self.client.delete, seat.response_id, **ask),
                arun=functools.partial(self.client.adelete, seat.response_id, **ask),
                done=_nothing,
            )
            driver.start(job, Context())

    # --- the end

    def end(self) -> None:
        """The graph has ended: leave nothing behind."""
        parked, driver = self._stop()
        for each in parked:
            if driver is None or not isinstance(each, AsyncParked):
                each.close()
            else:
                self._give_up(each, driver)
        self._close_unused()

    async def aend(self) -> None:
        """Do as `end` where it can be awaited: then the connections are closed, too."""
        parked, _ = self._stop()
        for each in parked:
            with contextlib.suppress(Exception):  # a graph waits: not for long
                async with asyncio.timeout(self.client.timeout_s):
                    await each.aclose()
        self._close_unused()
        if self._aconnection is not None:
            with contextlib.suppress(Exception):
                await self._aconnection.aclose()

    def _stop(self) -> tuple[list[Parked], Driver | None]:
        with self.lock:
            self.over = True
            calls, parked, self.parked = self._calls, self.parked, []
            driver = calls[-1].driver if calls else None
            for each in parked:
                each.seat.over = True  # the engine sees the connection end
            told = self._close_seats()
        for call in calls:
            call.stop()
        for each in parked:
            each.unpark()
        if driver is not None and told:
            driver.call(functools.partial(self._forget, driver, told))
        return parked, driver


def _nothing(_: object) -> None:
    """Nobody waits for this."""


def _ignore(_: object) -> None:
    """Whether it was started or not: the connection ends with its loop at the latest."""
