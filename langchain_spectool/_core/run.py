"""The machine of one graph run: facts in, actions out. The rules exist here and only here.

A driver tells it what happened (a guess arrived, a flight landed, a call committed, a write
began) and does what it answers (start, stop, serve, wait, run for real). It has no clock, no
tasks and no lock of its own.

A flight is held by the turn that guessed or planned it, or is kept for later turns of its scope.
It ends once: it answers calls, or it is discarded for a reason. Whatever can be claimed saw the
world as it is in the current epoch, but for what a turn planned ahead of its own write.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Literal

from langchain_spectool._core.claim import Claim, InFlight, shared_under, take_off
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Kept, Outcome, unbroken
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn
from langchain_spectool._core.verdicts import ClaimVerdict, DiscardReason, GuessVerdict

_Refusal = Literal["mismatch", "failed", "tainted", "cancelled", "expired", "stale", "other_epoch"]


class RunMachine:
    """Decides for one graph run."""

    def __init__(self) -> None:
        """Start at epoch 0 with nothing in the air."""
        self.epoch = 0
        self.writes: list[str | None] = []
        """Where undeclared calls are going on: the namespaces of their nodes, None if unknown."""
        self.turns: list[Turn] = []
        self.kept = Kept()

    # --- the turn

    def open(self, turn: Turn) -> list[Discard]:
        """Begin `turn`; earlier turns of its scope are over.

        An undeclared call of theirs that nobody asked us about ran elsewhere, or not at all: what
        was read before it may be out of date.
        """
        over = [other for other in self.turns if other.precedes(turn)]
        discards = [discard for other in over for discard in self.close(other, "unclaimed")]
        if any(other.wrote_unseen for other in over):
            discards += self._raise_epoch(None)
        self.turns.append(turn)
        return discards

    def admit(  # noqa: PLR0913 - all that decides
        self,
        turn: Turn,
        candidate: Candidate,
        *,
        policy: Policy,
        in_flight: InFlight,
        now_s: float,
        judge: Callable[[], GuessVerdict | None] | None = None,
    ) -> tuple[GuessVerdict, Flight | None]:
        """Judge a guess: safety first, then odds, then room; at last let `judge` weigh its price.

        `judge` is asked only for what would run, and may reserve what it costs.
        """
        shadow = turn.shadow or candidate.refusal == "shadow"
        equal, parent = self._equal(turn, candidate.key, now_s), candidate.parent
        expected = 0 if candidate.contract.deterministic else candidate.ordinal
        rules: tuple[tuple[GuessVerdict, bool], ...] = (
            ("late", turn.phase != "open" or not (parent is None or parent.available)),
            (candidate.refusal or "run", candidate.refusal not in (None, "shadow")),
            ("unsure", candidate.confidence < policy.min_confidence),
            ("duplicate", len(equal) > expected),
            ("turn_limit", turn.guesses >= policy.guesses_per_turn),
            ("writing", self._written_to(turn)),
            ("no_room", not shadow and in_flight.crowded(candidate, policy, self._all())),
        )
        refusal: GuessVerdict | None = next((name for name, holds in rules if holds), None)
        if refusal == "duplicate" and parent is not None:
            equal[0].expect_after(parent)
        if refusal is None and candidate.key is not None and judge is not None and not shadow:
            refusal = judge()
        if refusal is not None or candidate.key is None:
            return refusal or "unkeyable", None
        flight = take_off(turn, candidate, policy, epoch=self.epoch, now_s=now_s)
        turn.flights.append(flight)
        turn.guesses += 1
        return ("shadow" if flight.shadow else "run"), flight

    def grounded(self, turn: Turn, flight: Flight) -> None:
        """Forget an admitted flight that the driver could not start."""
        turn.flights.remove(flight)
        turn.guesses -= 1
        flight.state = "cancelled"

    def commit(
        self, turn: Turn, calls: Sequence[CommittedCall], *, truncated: bool, now_s: float
    ) -> list[Discard]:
        """Make the plan for the model's answer; a truncated answer has none."""
        if turn not in self.turns:
            return []
        if truncated:
            return self.close(turn, "truncated")
        kept = () if turn.shadow else self.kept.of(turn.scope)
        rivals = (*turn.flights, *kept)
        available = [f for f in rivals if f.available and f.overdue(now_s) is None]
        left = turn.plan(calls, available, now_s)
        # One that answers a single call belongs to the turn that planned it, and to no other.
        self.kept.remove([flight for flight in turn.flights if not flight.contract.deterministic])
        discards = self._sort_out(turn, left)
        return discards if calls else discards + self.close(turn, "unclaimed")

    def _sort_out(self, turn: Turn, left: Sequence[Flight]) -> list[Discard]:
        """Keep for the next turn what is expected after the plan's calls; let the rest go.

        Where turns go on side by side, the last one to commit tells what nobody called.
        """
        beside = [each for each in self.turns if each.scope == turn.scope]
        planned = [
            flight for each in beside if each.phase == "committed" for flight in each.flights
        ]
        waits = turn.shadow or any(each.phase == "open" for each in beside)
        due = [] if waits else self.kept.chained(turn.scope, planned)
        tail = unbroken(planned, (*due, *left))
        self.kept.remove(due)
        lost = [flight for flight in (*due, *left) if flight not in tail]
        broken = [flight for flight in lost if flight.parent in lost]
        discards = self._let_go([each for each in lost if each not in broken], "unclaimed")
        discards += self._let_go(broken, "broken_link")
        return discards + [gone for flight in tail for gone in self._keep(flight)]

    def close(self, turn: Turn, reason: DiscardReason) -> list[Discard]:
        """End `turn`: drop what nobody claimed, or keep it for the run where it may be."""
        turn.phase = "closed"
        self.turns = [other for other in self.turns if other is not turn]
        left, turn.flights = turn.flights, []
        return self._let_go(left, reason)

    def end(self, scope: Hashable | None = None) -> list[Discard]:
        """End the run, or the graph of one scope in it: nothing is served there any more."""
        turns = [turn for turn in self.turns if scope in (None, turn.scope)]
        discards = [gone for turn in turns for gone in self.close(turn, "run_ended")]
        kept = [flight for flight in self.kept if scope in (None, flight.scope)]
        return discards + self._drop(kept, "run_ended")

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to remember."""
        return not (self.turns or self.writes or self.kept)

    # --- flights

    def landed(self, flight: Flight, outcome: Outcome, now_s: float) -> Discard | None:
        """Note what an early run brought back; nobody hears of a failure."""
        if flight.state != "running":
            return None
        flight.outcome, flight.landed_s = outcome, now_s
        flight.state, flight.body_key = outcome.state, outcome.body_key
        flight.waiters -= flight.lead  # its own call is back
        if outcome.state == "landed":
            flight.answers += flight.lead
            return None
        self.kept.remove([flight])
        return Discard(flight, outcome.state)

    def void(self, flight: Flight) -> list[Discard]:
        """Drop a flight whose guess was taken back."""
        return [] if flight.taken else self._drop([flight], "voided")

    def expire(self, flight: Flight) -> list[Discard]:
        """Drop a flight at its deadline, unless a call already waits for it."""
        late = flight.state == "running" and not flight.taken
        return self._drop([flight], "expired") if late else []

    # --- claims

    def booking(
        self, scope: Hashable, tool: str, call_id: str | None, args: object
    ) -> tuple[Turn, Booking] | None:
        """Find the plan's position for a request that is about to run; later turns go first."""
        matches = [
            (*match, turn)
            for turn in reversed(self.turns)
            if turn.scope == scope and (match := turn.find(tool, call_id, args))
        ]
        if not matches:
            return None
        _, booking, turn = min(matches, key=lambda match: match[0])
        booking.requested = True
        return turn, booking

    def claim(self, turn: Turn, booking: Booking, body_key: str | None, now_s: float) -> Claim:
        """Answer a committed call, on the exact values its body has just received.

        A second claim of a position is a retry: somebody wants the body to run.
        """
        if booking.claimed or turn not in self.turns:
            return Claim(action="run", verdict="no_guess")
        booking.claimed = True
        contract = shared_under(turn, booking)
        if contract is not None and body_key is not None:
            equal = self.kept.equal(turn.scope, body_key, now_s)
            if equal is None:
                return self._lead(turn, booking, contract, body_key, now_s)
            booking.book(equal)
            turn.flights.append(equal)
        flight = booking.flight
        if flight is None:
            return Claim(action="run", verdict=booking.verdict)
        if refusal := self._refusal(booking, flight, body_key, now_s):
            return self._refused(flight, refusal, refusal)
        shared = flight.taken
        if flight.state == "landed":
            return self._served(flight, "shared" if shared else "hit")
        flight.waiters += 1
        verdict = "shared" if shared else "joined"
        return Claim(action="wait", verdict=verdict, flight=flight, booking=booking)

    def settle(self, claim: Claim, body_key: str | None, now_s: float) -> Claim:
        """Answer again after the wait: the flight has landed, or never will.

        If it still runs, it could not be waited for.
        """
        flight, booking = claim.flight, claim.booking
        if flight is None or booking is None:
            return Claim(action="run", verdict=claim.verdict)
        flight.waiters -= 1
        if refusal := self._refusal(booking, flight, body_key, now_s):
            return self._refused(flight, refusal, refusal)
        if flight.state == "running":
            return self._refused(flight, "cannot_wait", "cancelled")
        return self._served(flight, claim.verdict)

    def changed(self, flight: Flight) -> Claim:
        """Take back an answer: the contract's `freshness` says that its value is out of date."""
        flight.answers -= 1
        discards = self._drop([flight], "changed")
        return Claim(action="run", verdict="changed", flight=flight, discards=discards)

    def returned(self, flight: Flight) -> list[Discard]:
        """A call was cancelled before it had the value it was served."""
        flight.answers -= 1
        wanted = flight.taken or flight.contract.deterministic
        return [] if wanted else self._drop([flight], "cancelled")

    def forsake(self, flight: Flight) -> list[Discard]:
        """A waiting call was cancelled; the flight goes on only while others want it."""
        flight.waiters -= 1
        return [] if flight.taken else self._drop([flight], "cancelled")

    def ended(self, turn: Turn, booking: Booking, now_s: float) -> list[Discard]:
        """A committed call is over; so is its turn once all are."""
        booking.ended_s = now_s
        return self.close(turn, "unclaimed") if turn.over else []

    # --- the world changes

    def write_began(self, turn: Turn | None, namespace: str | None = None) -> list[Discard]:
        """An undeclared call starts: whatever was read before may be out of date."""
        self.writes.append(namespace)
        return self._raise_epoch(turn)

    def write_ended(self, turn: Turn | None, namespace: str | None = None) -> list[Discard]:
        """It ended, whatever its outcome: what was read meanwhile may be too."""
        if namespace in self.writes:
            self.writes.remove(namespace)
        return self._raise_epoch(turn)

    def invalidate(self, tags: Collection[str] | None) -> list[Discard]:
        """Drop every flight that read one of `tags`; None drops all."""
        hit = [f for f in self._all() if tags is None or not f.contract.tags.isdisjoint(tags)]
        return self._drop(hit, "invalidated")

    def withdraw(self, tool: str | None, tenant: str | None) -> list[Discard]:
        """Drop every flight of `tool`, and every flight for `tenant`; None names nobody."""
        named = [f for f in self._all() if tool == f.tool or (tenant and tenant == f.tenant)]
        return self._drop(named, "switched_off")

    def _raise_epoch(self, writer: Turn | None) -> list[Discard]:
        """Drop all flights but those that the writer's turn planned ahead of the write."""
        self.epoch += 1
        planned = frozenset[Flight]()
        if writer is not None and writer in self.turns:
            planned = writer.follow(self.epoch)
        flights = self._all()
        self.kept.clear()  # no other turn may have what stays
        return self._drop([flight for flight in flights if flight not in planned], "other_epoch")

    # --- the rules in detail

    def _equal(self, turn: Turn, key: str | None, now_s: float) -> list[Flight]:
        """Return the flights that a guess of `turn` would repeat."""
        return [
            flight
            for flight in (*turn.flights, *self.kept.of(turn.scope))
            if flight.key == key and flight.state != "cancelled" and flight.overdue(now_s) is None
        ]

    def _written_to(self, turn: Turn) -> bool:
        """Say whether an undeclared call goes on that `turn` is not itself a part of.

        An agent may be nested in an undeclared tool; that call's end raises the epoch as ever.
        """
        inside = f"{turn.namespace}|"
        return any(write is None or not inside.startswith(f"{write}|") for write in self.writes)

    def _lead(
        self, turn: Turn, booking: Booking, contract: Contract, body_key: str, now_s: float
    ) -> Claim:
        flight = Flight(
            tool=booking.call.tool,
            source="committed",
            contract=contract,
            key=booking.call.key or body_key,
            scope=turn.scope,
            epoch=self.epoch,
            started_s=now_s,
            deadline_s=math.inf,
            body_key=body_key,
            lead=True,
            waiters=1,
        )
        discards = self._keep(flight)
        return Claim(action="lead", verdict=booking.verdict, flight=flight, discards=discards)

    def _refusal(
        self, booking: Booking, flight: Flight, body_key: str | None, now_s: float
    ) -> _Refusal | None:
        if booking.epoch != self.epoch:
            return "other_epoch"
        if flight.state not in ("running", "landed"):
            return flight.state
        return flight.overdue(now_s) if flight.may_equal(body_key) else "mismatch"

    def _refused(self, flight: Flight, verdict: ClaimVerdict, reason: DiscardReason) -> Claim:
        # A deterministic one may still answer others; it goes when its turn does.
        lost = [] if flight.contract.deterministic else self._drop([flight], reason)
        return Claim(action="run", verdict=verdict, flight=flight, discards=lost)

    def _served(self, flight: Flight, verdict: ClaimVerdict) -> Claim:
        flight.answers += 1
        again = flight.contract.deterministic and flight.epoch == self.epoch
        evicted = self._keep(flight) if again else []
        return Claim(action="serve", verdict=verdict, flight=flight, discards=evicted)

    # --- the books

    def _let_go(self, flights: Iterable[Flight], reason: DiscardReason) -> list[Discard]:
        """Keep those of a turn's flights that later turns may claim, drop the others."""
        discards: list[Discard] = []
        for flight in flights:
            stays = reason == "unclaimed" and flight.outlives_turn and flight.epoch == self.epoch
            if stays:
                discards += self._keep(flight)
            elif flight not in self.kept:
                discards += self._drop([flight], reason)
        return discards

    def _keep(self, flight: Flight) -> list[Discard]:
        return self._drop(self.kept.add(flight), "no_room")

    def _drop(self, flights: Iterable[Flight], reason: DiscardReason) -> list[Discard]:
        """Let nobody claim `flights` any more; those that answered no call are wasted.

        What was guessed on the result of a wasted one goes with it.
        """
        flights = [*flights]
        self.kept.remove(flights)
        gone = [flight for flight in flights if flight.state in ("running", "landed")]
        for flight in gone:
            flight.state = "cancelled"
        discards = [Discard(flight, reason) for flight in gone if not flight.answers]
        return discards + (self._drop(self._hanging(), "broken_link") if discards else [])

    def _hanging(self) -> list[Flight]:
        """Return what was guessed only on results that no call will have, and is not wanted."""
        planned = {f for turn in self.turns if turn.phase == "committed" for f in turn.flights}
        return [f for f in self._all() if f.cut_off and not f.taken and f not in planned]

    def _all(self) -> list[Flight]:
        held = (flight for turn in self.turns for flight in turn.flights)
        return [*dict.fromkeys((*held, *self.kept))]
