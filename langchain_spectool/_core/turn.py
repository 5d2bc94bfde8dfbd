"""One turn: its flights, and the plan made when the model's answer commits."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.verdicts import ClaimVerdict, DiscardReason

Phase = Literal["open", "committed", "closed"]


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


@dataclass(slots=True, kw_only=True, eq=False)
class Booking:
    """A position of the plan: which flight answers the call there, if any."""

    call: CommittedCall
    flight: Flight | None = None
    verdict: ClaimVerdict = "no_guess"
    """Why there is no flight, while there is none."""
    began_s: float | None = None
    ended_s: float | None = None
    body_s: float | None = None
    """Seconds the body took, wherever it ran; None until it has."""


@dataclass(slots=True, kw_only=True, eq=False)
class Turn:
    """One model call with the calls it commits."""

    number: int
    scope: Hashable
    step: int | None
    started_s: float
    phase: Phase = "open"
    committed_s: float | None = None
    flights: list[Flight] = field(default_factory=list[Flight])
    bookings: list[Booking] = field(default_factory=list[Booking])
    guesses: int = 0

    def plan(
        self, calls: Sequence[CommittedCall], kept: Iterable[Flight], now_s: float
    ) -> list[Discard]:
        """Commit `calls`: give equal calls flights in position order, drop the other flights.

        Calls after the first undeclared one are fenced: they may see what it changed. Flights
        whose `reuse` outlives the turn are neither planned away nor dropped.
        """
        self.phase, self.committed_s = "committed", now_s
        available = [flight for flight in (*self.flights, *kept) if flight.live]
        fenced = False
        for call in calls:
            booking = Booking(call=call)
            self.bookings.append(booking)
            if fenced:
                booking.verdict = "fenced"
            elif call.contract is None:
                fenced = True
            elif call.key is not None:
                _book(booking, available)
        planned = {id(booking.flight) for booking in self.bookings}
        dropped = [f for f in self.flights if id(f) not in planned and not outlives_turn(f)]
        self.flights = [f for f in self.flights if id(f) in planned]
        return [Discard(flight, "unclaimed") for flight in dropped]

    def find(self, tool: str, call_id: str | None, args: Any) -> tuple[int, Booking] | None:  # noqa: ANN401 - whatever the request holds
        """Return the booking a request stands for, with how well it fits (lower is better).

        Ids are chosen by models and repeat, so an equal call counts first; a call whose
        arguments a middleware edited is known by its id.
        """
        best: tuple[int, Booking] | None = None
        for booking in self.bookings:
            call = booking.call
            if call.tool != tool or call.id != call_id:
                continue
            fit = (0 if call.args is args or call.args == args else 2) + (
                booking.began_s is not None
            )
            if best is None or fit < best[0]:
                best = (fit, booking)
        return best

    @property
    def over(self) -> bool:
        """Whether every committed call has ended."""
        return self.phase == "closed" or (
            self.phase == "committed" and all(b.ended_s is not None for b in self.bookings)
        )

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


def outlives_turn(flight: Flight) -> bool:
    """Say whether an unclaimed flight stays when its turn is over."""
    return flight.contract.reuse != "turn" and flight.live and not flight.shadow


def _book(booking: Booking, available: list[Flight]) -> None:
    for flight in available:
        if flight.key == booking.call.key:
            if flight.shadow:
                booking.verdict = "shadow_hit"
            else:
                booking.flight = flight
            if not flight.contract.deterministic:
                available.remove(flight)
            return
