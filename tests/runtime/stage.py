"""A stage for turns and claims: real machine, real drivers, and bodies that play by the clock."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.prices import Prices
from langchain_spectool._core.turn import CommittedCall
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.airborne import Airborne
from langchain_spectool._runtime.claims import BookedCall, Received
from langchain_spectool._runtime.driver import AsyncDriver, Driver, ThreadDriver
from langchain_spectool._runtime.landing import running_loop
from langchain_spectool._runtime.pool import DaemonPool
from langchain_spectool._runtime.shared_economy import SharedEconomy
from langchain_spectool._runtime.turn_scope import Common, EarlyRun, Place, TurnScope

PATIENCE_S = 5.0
READ = Contract()
PURE = Contract(deterministic=True)


class Control:
    """Stands for a graph's RunControl."""


@dataclass
class Body:
    """An early body: takes `delay_s`, or as long as its gate is shut, and then returns."""

    value: Any = "early"
    delay_s: float = 0.0
    state: Any = "landed"
    key: str | None = "a"
    token: Any = None
    gate: threading.Event | None = None
    ends: list[str] = field(default_factory=list[str])

    def prepared(self) -> EarlyRun:
        return EarlyRun(run=self._run, arun=self._arun, context=contextvars.copy_context())

    def _outcome(self) -> Outcome:
        self.ends.append("returned")
        value = self.value if self.state == "landed" else None
        return Outcome(state=self.state, value=value, body_key=self.key, token=self.token)

    def _run(self) -> Outcome:
        if self.gate is not None:
            self.gate.wait(PATIENCE_S)
        return self._outcome()

    async def _arun(self) -> Outcome:
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        return self._outcome()


@dataclass
class Stage:
    """One graph run with its turns; on a loop its flights are tasks, else threads."""

    control: object = field(default_factory=Control)
    policy: Policy = field(default_factory=Policy)
    pool: DaemonPool = field(default_factory=lambda: DaemonPool(8, name="stage"))
    airborne: Airborne = field(default_factory=Airborne)
    events: list[Event] = field(default_factory=list[Event])
    ends: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    @cached_property
    def common(self) -> Common:
        """What the turns share, as things are when the first one begins."""
        return Common(
            policy=self.policy,
            economy=SharedEconomy(self.policy, Prices({})),
            emit=self.events.append,
            in_flight=self.airborne,
        )

    @property
    def driver(self) -> Driver:
        """The driver that fits where this is called."""
        loop = running_loop()
        return ThreadDriver(self.pool) if loop is None else AsyncDriver(loop, self.pool)

    def turn(
        self, *, step: int = 1, shadow: bool = False, driver: Driver | None = None
    ) -> TurnScope:
        """Begin a model's turn."""
        place = Place(control=self.control, scope="main", step=step, at_end=self.ends.append)
        return TurnScope(
            place,
            driver or self.driver,
            self.common,
            shadow=shadow,
        )

    def guess(
        self,
        turn: TurnScope,
        body: Body | None = None,
        *,
        key: str | None = "a",
        contract: Contract = READ,
        **fields: Any,
    ) -> Flight | None:
        """Offer a guess whose early run is `body`."""
        return turn.offer(candidate(key, contract, **fields), (body or Body()).prepared)

    def commit(
        self, turn: TurnScope, *keys: str | None, contract: Contract | None = READ, **options: Any
    ) -> list[BookedCall]:
        """Commit one call per key; return them as the calls that will run."""
        calls = [committed(place, key, contract) for place, key in enumerate(keys)]
        turn.commit(calls, **options)
        return [booked for call in calls if (booked := self.booked(call))]

    def booked(self, call: CommittedCall) -> BookedCall | None:
        """Return the position of the plan that `call` stands for."""
        run = runs.find(self.control)
        found = run and run.machine.booking("main", call.tool, call.id, call.args)
        return BookedCall(run, *found, self.events.append) if run and found else None

    def told(self, *kinds: str) -> list[tuple[str, str]]:
        """Return the kinds and verdicts of the events so far, of `kinds` only if given."""
        return [(e.kind, e.verdict) for e in self.events if not kinds or e.kind in kinds]

    def end(self) -> None:
        """End the run, as the janitor would."""
        if run := runs.find(self.control):
            run.end()


def candidate(key: str | None, contract: Contract = READ, **fields: Any) -> Candidate:
    """Return a guess ready for admission."""
    made = Candidate(tool="look", source="draft", confidence=1.0, contract=contract, key=key)
    return replace(made, **fields)


def committed(place: int, key: str | None, contract: Contract | None = READ) -> CommittedCall:
    """Return a call of the model's answer."""
    args = {"q": key}
    return CommittedCall(
        position=place, tool="look", id=f"c{place}", args=args, key=key, contract=contract
    )


def received(key: str | None = "a", **values: Any) -> Received:
    """Return what a committed body was called with."""
    return Received(key=key, values=values)


def real(value: Any = "real", ran: list[int] | None = None) -> Callable[[], Any]:
    """Return a committed call's own body, for `aanswer`; it takes a second."""

    async def body() -> Any:
        if ran is not None:
            ran.append(1)
        await asyncio.sleep(1)
        return value

    return body


def until(holds: Callable[[], bool]) -> None:
    """Wait for threads to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)
