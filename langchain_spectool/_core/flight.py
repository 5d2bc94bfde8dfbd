"""One early execution, from take-off to the claim."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_spectool._core.contracts import Contract

Landing = Literal["landed", "failed", "tainted", "cancelled"]
"""How an early run came back."""
FlightState = Literal["running", Landing]
KEPT_PER_SCOPE = 64
"""Most flights a scope keeps beyond their turn; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an early run brought back."""

    state: Landing
    value: Any = None
    """The raw return value of the tool's body; None unless `state` is `landed`."""
    body_key: str | None = None
    """Exact key of the values the body received; None if it was never reached."""
    token: Any = None
    """What the contract's `freshness` said before the run."""
    holds: object = None
    """Whatever `body_key` knows by its identity alone: it must outlive the key."""
    detail: str = ""
    retry_after_s: float | None = None
    """Seconds for which the service behind the tool asked to be left alone; None if it did not."""


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """One early execution in progress or finished, not yet claimed."""

    tool: str
    source: str
    contract: Contract
    key: str
    """The predicted call key: calls that have it are planned onto this flight."""
    scope: Hashable
    """Where it may be claimed: calls of other scopes never see it."""
    epoch: int
    """The state of the world it saw, or may have seen."""
    started_s: float
    deadline_s: float
    confidence: float = 1.0
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments as they were guessed; empty for a committed call's own run."""
    shadow: bool = False
    """Only scored: nothing runs."""
    tenant: str | None = None
    parent: "Flight | None" = None
    """The early run on whose result this call was guessed: it is expected one turn later."""
    expected_after: "set[Flight]" = field(default_factory=set["Flight"])
    """The early runs after whose calls it is expected: its parent, and the results on which an
    equal call was guessed again. Empty where it is expected in its own turn only."""
    lead: bool = False
    """A committed call's own run, whose result later equal calls may share."""
    state: FlightState = "running"
    """`cancelled` is also what it becomes once nobody may claim it any more."""
    landed_s: float | None = None
    outcome: Outcome | None = None
    body_key: str | None = None
    """Exact key of the values the body received; None until that is known."""
    waiters: int = 0
    """Committed calls that wait for it to land; the call that leads is one of them."""
    answers: int = 0
    """Committed calls it has answered."""

    def __post_init__(self) -> None:
        """Hang it on its parent."""
        if self.parent is not None:
            self.expected_after.add(self.parent)

    @property
    def links(self) -> int:
        """How many calls, not made yet, are expected before it."""
        made = self.parent is None or self.parent.answers
        return 0 if self.parent is None or made else self.parent.links + 1

    @property
    def taken(self) -> bool:
        """Whether a committed call waits for it or has its value."""
        return self.waiters > 0 or self.answers > 0

    @property
    def available(self) -> bool:
        """Whether it may answer one more call: the first one, or any if deterministic."""
        return self.state in ("running", "landed") and (
            self.contract.deterministic or not self.taken
        )

    def hangs_on(self, other: "Flight") -> bool:
        """Say whether it is `other`, or expected after it, however many links later."""
        return self is other or any(link.hangs_on(other) for link in self.expected_after)

    def expect_after(self, link: "Flight") -> None:
        """Expect it after `link` as well; not where `link` itself comes after it."""
        if not link.hangs_on(self):
            self.expected_after.add(link)

    @property
    def fallen(self) -> bool:
        """Whether it has ended without an answer to any call."""
        return self.state not in ("running", "landed") and not self.answers

    @property
    def cut_off(self) -> bool:
        """Whether it was guessed on results alone that no call will have."""
        return self.parent is not None and all(link.fallen for link in self.expected_after)

    @property
    def outlives_turn(self) -> bool:
        """Whether it stays for later turns when its own is over."""
        unwanted = self.taken or self.shadow or self.cut_off
        return self.contract.reuse == "run" and self.available and not unwanted

    def overdue(self, now_s: float) -> Literal["stale", "expired"] | None:
        """Say whether its value is too old, counted from its start, or too long in coming."""
        fresh_for_s = self.contract.fresh_for_s
        if fresh_for_s is not None and now_s - self.started_s > fresh_for_s:
            return "stale"
        return "expired" if self.state == "running" and now_s >= self.deadline_s else None

    def may_equal(self, body_key: str | None) -> bool:
        """Say whether its body received the values of `body_key`, as far as is known yet."""
        unknown = self.state == "running" and self.body_key is None
        return body_key is not None and (unknown or self.body_key == body_key)

    def spent_s(self, now_s: float) -> float:
        """Return the seconds the body took, or has taken up to `now_s`."""
        return max(0.0, (self.landed_s if self.landed_s is not None else now_s) - self.started_s)


def unbroken(planned: Collection[Flight], others: Iterable[Flight]) -> list[Flight]:
    """Return those of `others` that are expected after one of `planned`, link by link.

    `others` come in the order they were guessed, so a link comes before what hangs on it.
    """
    whole = set(planned)
    tail: list[Flight] = []
    for flight in others:
        expected = flight.available and not flight.shadow
        if expected and not flight.expected_after.isdisjoint(whole):
            whole.add(flight)
            tail.append(flight)
    return tail


class Kept:
    """Flights kept beyond their turn, by scope; all of them can still be claimed."""

    def __init__(self) -> None:
        self._by_scope: dict[Hashable, list[Flight]] = {}

    def __iter__(self) -> Iterator[Flight]:
        return (flight for flights in self._by_scope.values() for flight in flights)

    def __bool__(self) -> bool:
        return bool(self._by_scope)

    def __contains__(self, flight: Flight) -> bool:
        return flight in self.of(flight.scope)

    def of(self, scope: Hashable) -> Sequence[Flight]:
        """Return the flights of `scope`, the oldest first."""
        return self._by_scope.get(scope, ())

    def chained(self, scope: Hashable, planned: Collection[Flight]) -> list[Flight]:
        """Return those of `scope` that wait for a call guessed ahead which nobody has planned."""
        return [
            flight
            for flight in self.of(scope)
            if flight.expected_after and not flight.taken and flight not in planned
        ]

    def equal(self, scope: Hashable, body_key: str, now_s: float) -> Flight | None:
        """Find a deterministic result, or one on its way, for the same values."""
        equal = (
            flight
            for flight in self.of(scope)
            if flight.body_key == body_key
            and flight.contract.deterministic
            and flight.available
            and flight.overdue(now_s) is None
        )
        return next(equal, None)

    def add(self, flight: Flight) -> Sequence[Flight]:
        """Keep `flight`; return those there is no room for any more."""
        flights = self._by_scope.setdefault(flight.scope, [])
        if flight not in flights:
            flights.append(flight)
        return flights[:-KEPT_PER_SCOPE]

    def remove(self, gone: Collection[Flight]) -> None:
        """Keep none of `gone`."""
        left = {s: [f for f in flights if f not in gone] for s, flights in self._by_scope.items()}
        self._by_scope = {scope: flights for scope, flights in left.items() if flights}

    def clear(self) -> None:
        """Keep nothing."""
        self._by_scope.clear()
