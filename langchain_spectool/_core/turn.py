"""One turn: its flights, and the plan made when the model's answer commits."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.verdicts import ClaimVerdict, DiscardReason

Phase = Literal["open", "committed", "closed"]
Fit: TypeAlias = tuple[int, bool]
"""How far a request's arguments are from a position's, and whether that one was asked for
before; lower fits better."""


class Discard(NamedTuple):
    """An action for the driver: stop this flight if it still runs, and count it as wasted."""

    flight: Flight
    reason: DiscardReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedCall:
    """A call of the model's answer."""

    position: int
    tool: str
    id: str | None
    args: Mapping[str, Any]
    key: str | None
    """The predicted call key; None when the tool may not run early or cannot be keyed."""
    contract: Contract | None
    """None for a tool nobody declared: it may change the world."""
    registered: bool = True
    """Whether a tool of that name was bound; else a model made the name up."""

    @property
    def named(self) -> str:
        """What events call its tool."""
        return self.tool if self.registered else "other"


@dataclass(slots=True, kw_only=True, eq=False)
class Booking:
    """A position of the plan: which flight answers the call there, if any."""

    call: CommittedCall
    flight: Flight | None = None
    verdict: ClaimVerdict = "no_guess"
    """Why there is no flight, while there is none."""
    epoch: int = 0
    """The epoch up to which the flight is good here: writes of the same turn, which come after
    it in the model's order, carry it along."""
    requested: bool = False
    """Whether a request for this position was seen."""
    claimed: bool = False
    """Whether its body asked for the flight: who asks again is a retry."""
    began_s: float | None = None
    ended_s: float | None = None
    body_s: float | None = None
    """Seconds the body took, wherever it ran; None until it has."""

    def book(self, flight: Flight) -> None:
        """Let `flight` answer this position."""
        self.flight, self.epoch = flight, flight.epoch

    def choose(self, available: list[Flight]) -> None:
        """Take the first equal flight; only a deterministic one is left for others too."""
        flight = next((flight for flight in available if flight.key == self.call.key), None)
        if flight is None:
            return
        if not flight.contract.deterministic:
            available.remove(flight)
        if flight.shadow:
            self.verdict = "shadow_hit"
            flight.answers += 1
        else:
            self.book(flight)

    def fit(self, args: Any) -> Fit:  # noqa: ANN401 - whatever the request holds
        """Say how well a request with `args` fits.

        The very same object tells even equal calls apart, and a retry from the next equal call.
        """
        distance = 0 if self.call.args is args else 1 if self.call.args == args else 2
        return distance, self.requested


@dataclass(slots=True, kw_only=True, eq=False)
class Turn:
    """One model call with the calls it commits."""

    number: int
    scope: Hashable
    step: int | None
    started_s: float
    namespace: str = ""
    """Where in the run's nested graphs it happens, as LangGraph writes it."""
    tenant: str | None = None
    shadow: bool = False
    """Guesses are only scored: every call runs for real."""
    phase: Phase = "open"
    committed_s: float | None = None
    flights: list[Flight] = field(default_factory=list[Flight])
    """While open, those of its guesses; once committed, those of its plan."""
    bookings: list[Booking] = field(default_factory=list[Booking])
    guesses: int = 0

    def plan(
        self, calls: Sequence[CommittedCall], available: list[Flight], now_s: float
    ) -> list[Flight]:
        """Commit `calls`, give them flights in position order; return the flights left over.

        Calls after the first undeclared one are fenced: they may see what it changed.
        """
        self.phase, self.committed_s = "committed", now_s
        self.bookings = [Booking(call=call) for call in calls]
        fenced = False
        for booking in self.bookings:
            if fenced:
                booking.verdict = "fenced"
            elif booking.call.contract is None:
                fenced = True
            else:
                booking.choose(available)
        planned = dict.fromkeys(b.flight for b in self.bookings if b.flight is not None)
        left = [flight for flight in self.flights if flight not in planned]
        self.flights = [*planned]
        return left

    def follow(self, epoch: int) -> frozenset[Flight]:
        """Carry the plan into `epoch`, raised by a call of this very turn; return what stays.

        All that is planned comes before that call in the model's order.
        """
        current = [booking for booking in self.bookings if booking.epoch == epoch - 1]
        for booking in current:
            booking.epoch = epoch
        return frozenset(booking.flight for booking in current if booking.flight is not None)

    def find(self, tool: str, call_id: str | None, args: Any) -> tuple[Fit, Booking] | None:  # noqa: ANN401 - whatever the request holds
        """Return the booking a request stands for, with how well it fits.

        Ids are chosen by models and repeat, so the arguments decide between equal ones; a call
        whose arguments a middleware edited is known by its id.
        """
        fits = [
            (booking.fit(args), booking)
            for booking in self.bookings
            if booking.call.tool == tool and booking.call.id == call_id
        ]
        return min(fits, key=itemgetter(0), default=None)

    @property
    def over(self) -> bool:
        """Whether every committed call has ended."""
        return self.phase == "closed" or (
            self.phase == "committed" and all(b.ended_s is not None for b in self.bookings)
        )

    @property
    def wrote_unseen(self) -> bool:
        """Whether it committed an undeclared call that was never requested from us."""
        return any(b.call.contract is None and not b.requested for b in self.bookings)

    def precedes(self, later: "Turn") -> bool:
        """Whether this turn is over once `later` begins.

        Branches of one superstep share scope and step and go on side by side. Where a step is
        unknown, only a turn whose model still writes goes on.
        """
        if self.scope != later.scope or self.phase == "open":
            return False
        return self.step is None or later.step is None or self.step < later.step

    def saved_s(self) -> float:
        """Return by how many seconds the tool phase was shorter than without speculation.

        The counterfactual lets every body start when its committed call began and take as long
        as it took early; parallel calls overlap in both.
        """
        spans = [
            (b.began_s, b.ended_s, b.body_s)
            for b in self.bookings
            if b.began_s is not None and b.ended_s is not None
        ]
        if not spans:
            return 0.0
        actual = max(ended for _, ended, _ in spans)
        serial = max(max(ended, began + (body or 0.0)) for began, ended, body in spans)
        return serial - actual
