"""The machine of one graph run: facts in, actions out. The rules exist here and only here.

A driver tells it what happened (a guess arrived, a flight landed, a call committed, a write
began) and does what it answers (start, stop, serve, wait, run for real). It has no clock, no
tasks and no lock of its own.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn, outlives_turn
from langchain_spectool._core.verdicts import ClaimVerdict, DiscardReason, GuessVerdict

KEPT_PER_SCOPE = 64
"""Most flights a scope keeps beyond their turn; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """How many early runs are in the air outside this run's own books."""

    process: int = 0
    tool: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The answer to a committed call that asks for its flight.

    `serve` the flight's value; `wait` for it to land, then settle; `run` the body for real;
    `lead`: run it, and let later equal calls share what it returns.
    """

    action: Literal["serve", "wait", "run", "lead"]
    verdict: ClaimVerdict
    flight: Flight | None = None
    discard: Discard | None = None


class RunMachine:
    """Decides for one graph run."""

    def __init__(self) -> None:
        """Start at epoch 0 with nothing in the air."""
        self.epoch = 0
        self.writing = 0
        self.turns: list[Turn] = []
        self.kept: dict[Hashable, list[Flight]] = {}

    # --- the turn

    def open(self, turn: Turn) -> list[Discard]:
        """Begin `turn`; earlier turns of its scope are over.

        Branches of one superstep share a scope, so only turns of an earlier step end here.
        """
        over = [
            other
            for other in self.turns
            if other.scope == turn.scope
            and other.phase != "open"
            and (turn.step is None or other.step is None or other.step < turn.step)
        ]
        discards = [discard for other in over for discard in self.close(other, "unclaimed")]
        self.turns.append(turn)
        return discards

    def admit(
        self, turn: Turn, candidate: Candidate, *, policy: Policy, in_flight: InFlight, now_s: float
    ) -> tuple[GuessVerdict, Flight | None]:
        """Judge a guess: safety first, then odds, then room."""
        if turn.phase != "open":
            return "late", None
        if candidate.refusal is not None and candidate.refusal != "shadow":
            return candidate.refusal, None
        if candidate.confidence < policy.min_confidence:
            return "unsure", None
        if candidate.key is None:
            return "unkeyable", None
        if self._known(turn, candidate):
            return "duplicate", None
        if turn.guesses >= policy.guesses_per_turn:
            return "turn_limit", None
        shadow = candidate.refusal == "shadow"
        if not shadow and (refusal := self._crowded(candidate, policy, in_flight)):
            return refusal, None
        turn.guesses += 1
        timeout_s = candidate.contract.timeout_s or policy.timeout_s
        flight = Flight(
            tool=candidate.tool,
            source=candidate.source,
            contract=candidate.contract,
            key=candidate.key,
            ordinal=candidate.ordinal,
            confidence=candidate.confidence,
            epoch=self.epoch,
            started_s=now_s,
            deadline_s=now_s + timeout_s,
            shadow=shadow,
        )
        turn.flights.append(flight)
        return ("shadow" if shadow else "run"), flight

    def commit(
        self, turn: Turn, calls: Sequence[CommittedCall], *, truncated: bool, now_s: float
    ) -> list[Discard]:
        """Make the plan for the model's answer; a truncated answer has none."""
        if truncated:
            discards = [Discard(flight, "truncated") for flight in turn.flights]
            turn.flights = []
            turn.plan(calls, (), now_s)
        else:
            keep = [flight for flight in turn.flights if outlives_turn(flight)]
            discards = turn.plan(calls, self.kept.get(turn.scope, ()), now_s)
            self._keep(turn.scope, keep)
        if not calls:
            discards += self.close(turn, "unclaimed")
        return self._dropped(discards)

    def close(self, turn: Turn, reason: DiscardReason) -> list[Discard]:
        """End `turn` and drop what nobody claimed; flights kept for the run stay."""
        turn.phase = "closed"
        if turn in self.turns:
            self.turns.remove(turn)
        kept = self.kept.get(turn.scope, ())
        return self._dropped(
            [Discard(flight, reason) for flight in turn.flights if flight not in kept]
        )

    def end(self) -> list[Discard]:
        """End the run: nothing is served any more."""
        discards = [d for turn in [*self.turns] for d in self.close(turn, "run_ended")]
        discards += [Discard(flight, "run_ended") for flight in self._kept()]
        self.kept.clear()
        return self._dropped(discards)

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to remember."""
        return not self.turns and not self.writing and not any(self.kept.values())

    # --- flights

    def landed(self, flight: Flight, outcome: Outcome, now_s: float) -> Discard | None:
        """Note what an early run brought back; nobody hears of a failure."""
        flight.outcome, flight.landed_s = outcome, now_s
        if flight.state != "running":
            return None
        flight.state = outcome.state
        flight.body_key = outcome.body_key
        if outcome.state == "failed":
            return Discard(flight, "failed")
        return Discard(flight, "tainted") if outcome.state == "tainted" else None

    def void(self, flight: Flight) -> list[Discard]:
        """Drop a flight whose guess was taken back."""
        return self._dropped([] if flight.claimed else [Discard(flight, "voided")])

    def expire(self, flight: Flight) -> list[Discard]:
        """Drop a flight at its deadline, unless a call already waits for it."""
        late = flight.state == "running" and not flight.claimed
        return self._dropped([Discard(flight, "expired")] if late else [])

    # --- claims

    def booking(
        self, scope: Hashable, tool: str, call_id: str | None, args: object
    ) -> tuple[Turn, Booking] | None:
        """Find the plan's position for a request that is about to run."""
        found: tuple[int, Turn, Booking] | None = None
        for turn in reversed(self.turns):
            if turn.scope == scope and (match := turn.find(tool, call_id, args)):
                fit, booking = match
                if found is None or fit < found[0]:
                    found = (fit, turn, booking)
        return None if found is None else (found[1], found[2])

    def claim(self, turn: Turn, booking: Booking, body_key: str | None, now_s: float) -> Claim:
        """Answer a committed call, on the exact values its body has just received."""
        flight, contract = booking.flight, booking.call.contract
        if (
            flight is None
            and contract is not None
            and contract.deterministic
            and booking.verdict != "fenced"
            and body_key is not None
        ):
            flight = next(
                (f for f in self.kept.get(turn.scope, ()) if f.body_key == body_key and f.live),
                None,
            )
            if flight is None:
                return self._lead(turn, booking, contract, body_key, now_s)
        if flight is None:
            return Claim(action="run", verdict=booking.verdict)
        if refusal := self._refusal(flight, body_key, now_s):
            return self._refused(flight, refusal)
        shared = flight.claimed
        flight.claimed = True
        if flight.contract.deterministic:
            self._keep(turn.scope, [flight])
        if flight.state == "running":
            flight.waiters += 1
            return Claim(action="wait", verdict="shared" if shared else "joined", flight=flight)
        return Claim(action="serve", verdict="shared" if shared else "hit", flight=flight)

    def settle(self, claim: Claim, body_key: str | None, now_s: float) -> Claim:
        """Answer again after the wait: the flight has landed, or never will."""
        flight = claim.flight
        if flight is None:
            return Claim(action="run", verdict=claim.verdict)
        flight.waiters -= 1
        if refusal := self._refusal(flight, body_key, now_s, waited=True):
            return self._refused(flight, refusal)
        return Claim(action="serve", verdict=claim.verdict, flight=flight)

    def forsake(self, flight: Flight) -> list[Discard]:
        """A waiting call was cancelled; the flight goes on only while others wait for it."""
        flight.waiters -= 1
        gone = flight.waiters <= 0 and flight.state == "running"
        return self._dropped([Discard(flight, "cancelled")] if gone else [])

    def ended(self, turn: Turn, booking: Booking, now_s: float) -> list[Discard]:
        """A committed call is over; so is its turn once all are."""
        booking.ended_s = now_s
        return self.close(turn, "unclaimed") if turn.over else []

    # --- the world changes

    def write_began(self, turn: Turn | None) -> list[Discard]:
        """An undeclared call starts: whatever was read before may be out of date."""
        self.writing += 1
        return self._raise_epoch(turn)

    def write_ended(self, turn: Turn | None) -> list[Discard]:
        """It ended, whatever its outcome: what was read meanwhile may be too."""
        self.writing = max(0, self.writing - 1)
        return self._raise_epoch(turn)

    def invalidate(self, tags: Collection[str] | None) -> list[Discard]:
        """Drop every flight that read one of `tags`; None drops all."""
        hit = [f for f in self._all() if tags is None or not f.contract.tags.isdisjoint(tags)]
        for flight in hit:
            flight.epoch = -1
        return self._dropped([Discard(f, "invalidated") for f in hit if not f.claimed])

    # --- the rules in detail

    def _known(self, turn: Turn, candidate: Candidate) -> bool:
        rivals = (*turn.flights, *self.kept.get(turn.scope, ()))
        return any(
            flight.key == candidate.key
            and (flight.ordinal == candidate.ordinal or candidate.contract.deterministic)
            and flight.epoch == self.epoch
            and flight.state != "cancelled"
            and (flight.live or flight in turn.flights)
            for flight in rivals
        )

    def _crowded(
        self, candidate: Candidate, policy: Policy, in_flight: InFlight
    ) -> GuessVerdict | None:
        if self.writing:
            return "writing"
        limit = candidate.contract.max_concurrency
        running = sum(flight.state == "running" and not flight.shadow for flight in self._all())
        if (
            running >= policy.in_flight_per_run
            or in_flight.process >= policy.in_flight
            or (limit is not None and in_flight.tool >= limit)
        ):
            return "no_room"
        return None

    def _refusal(
        self, flight: Flight, body_key: str | None, now_s: float, *, waited: bool = False
    ) -> ClaimVerdict | None:
        if flight.state in ("failed", "tainted", "cancelled"):
            return flight.state
        if flight.claimed and not waited and not flight.contract.deterministic:
            return "no_guess"
        if body_key is None or (flight.body_key is not None and flight.body_key != body_key):
            return "mismatch"
        if flight.epoch != self.epoch:
            return "other_epoch"
        fresh_for_s = flight.contract.fresh_for_s
        if fresh_for_s is not None and now_s - flight.started_s > fresh_for_s:
            return "stale"
        if flight.state == "running" and now_s >= flight.deadline_s:
            return "expired"
        return None

    def _refused(self, flight: Flight, verdict: ClaimVerdict) -> Claim:
        reasons: dict[ClaimVerdict, DiscardReason] = {
            "mismatch": "mismatch",
            "other_epoch": "other_epoch",
            "stale": "stale",
            "expired": "expired",
        }
        discard = None
        if verdict in reasons and flight.waiters <= 0 and flight.live:
            discard = next(iter(self._dropped([Discard(flight, reasons[verdict])])), None)
        return Claim(action="run", verdict=verdict, flight=flight, discard=discard)

    def _lead(
        self, turn: Turn, booking: Booking, contract: Contract, body_key: str, now_s: float
    ) -> Claim:
        flight = Flight(
            tool=booking.call.tool,
            source="committed",
            contract=contract,
            key=booking.call.key or body_key,
            ordinal=0,
            epoch=self.epoch,
            started_s=now_s,
            deadline_s=float("inf"),
            body_key=body_key,
            claimed=True,
            waiters=1,
        )
        self._keep(turn.scope, [flight])
        return Claim(action="lead", verdict=booking.verdict, flight=flight)

    def _keep(self, scope: Hashable, flights: Sequence[Flight]) -> None:
        kept = self.kept.setdefault(scope, [])
        kept.extend(flight for flight in flights if flight not in kept)
        del kept[:-KEPT_PER_SCOPE]
        if not kept:
            del self.kept[scope]

    def _raise_epoch(self, writer: Turn | None) -> list[Discard]:
        self.epoch += 1
        planned = [] if writer is None else [b.flight for b in writer.bookings if b.flight]
        for flight in planned:
            flight.epoch = self.epoch if flight.epoch == self.epoch - 1 else flight.epoch
        return self._dropped(
            [
                Discard(flight, "other_epoch")
                for flight in self._all()
                if flight.epoch != self.epoch and not (flight.claimed and flight.waiters)
            ]
        )

    def _dropped(self, discards: Sequence[Discard]) -> list[Discard]:
        """Mark the flights of `discards`; those that were dead already are no news."""
        news: list[Discard] = []
        for discard in discards:
            flight = discard.flight
            if flight.state in ("running", "landed") and not (
                flight.claimed and flight.state == "landed"
            ):
                flight.state = "cancelled"
                news.append(discard)
            kept = [scope for scope, flights in self.kept.items() if flight in flights]
            for scope in kept:
                self.kept[scope].remove(flight)
                if not self.kept[scope]:
                    del self.kept[scope]
        return news

    def _kept(self) -> Iterator[Flight]:
        for flights in [*self.kept.values()]:
            yield from [*flights]

    def _all(self) -> list[Flight]:
        flights = [flight for turn in self.turns for flight in turn.flights]
        flights += [flight for flight in self._kept() if flight not in flights]
        return flights
