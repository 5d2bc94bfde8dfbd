"""A world in which the machine's rules are told: a machine, a clock and short ways to speak."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_spectool._core.claim import Claim, InFlight
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Landing, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.run import RunMachine
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn
from langchain_spectool._core.verdicts import DiscardReason, GuessVerdict

READ = Contract()
PURE = Contract(deterministic=True)
RUN_LONG = Contract(reuse="run")
WRITE = "write"
"""A committed call of a tool nobody declared."""


@dataclass
class World:
    """A machine, a clock, and short ways to say what happens.

    A call is named by its key; its body receives values of that same key.
    """

    machine: RunMachine = field(default_factory=RunMachine)
    policy: Policy = field(default_factory=Policy)
    now_s: float = 0.0
    discards: list[Discard] = field(default_factory=list[Discard])

    def turn(self, step: int | None = 1, scope: str = "main", **fields: Any) -> Turn:
        turn = Turn(number=1, scope=scope, step=step, started_s=self.now_s, **fields)
        self.discards += self.machine.open(turn)
        return turn

    def offer(
        self, turn: Turn, key: str | None = "a", contract: Contract = READ, **fields: Any
    ) -> tuple[GuessVerdict, Flight | None]:
        in_flight, judge = fields.pop("in_flight", InFlight()), fields.pop("judge", None)
        candidate = Candidate(
            tool="look",
            source="draft",
            confidence=fields.pop("confidence", 1.0),
            contract=contract,
            key=key,
            **fields,
        )
        return self.machine.admit(
            turn,
            candidate,
            policy=self.policy,
            in_flight=in_flight,
            now_s=self.now_s,
            judge=judge,
        )

    def guess(self, turn: Turn, key: str = "a", contract: Contract = READ, **fields: Any) -> Flight:
        verdict, flight = self.offer(turn, key, contract, **fields)
        assert flight is not None, verdict
        return flight

    def land(self, flight: Flight, state: Landing = "landed", body_key: str | None = "") -> None:
        key = flight.key if body_key == "" else body_key
        discard = self.machine.landed(
            flight, Outcome(state=state, value=object(), body_key=key), self.now_s
        )
        self.discards += [] if discard is None else [discard]

    def commit(
        self,
        turn: Turn,
        *keys: str,
        contract: Contract = READ,
        truncated: bool = False,
    ) -> Sequence[Booking]:
        calls = [
            CommittedCall(
                position=place,
                tool="look",
                id=str(place),
                args={"query": key},
                key=None if key == WRITE else key,
                contract=None if key == WRITE else contract,
            )
            for place, key in enumerate(keys)
        ]
        self.discards += self.machine.commit(turn, calls, truncated=truncated, now_s=self.now_s)
        return turn.bookings

    def claim(self, turn: Turn, booking: Booking, body_key: str | None = "") -> Claim:
        key = booking.call.key if body_key == "" else body_key
        claim = self.machine.claim(turn, booking, key, self.now_s)
        self.discards += claim.discards
        return claim

    def settle(self, claim: Claim, body_key: str | None = "a") -> Claim:
        settled = self.machine.settle(claim, body_key, self.now_s)
        self.discards += settled.discards
        return settled

    def end(self, turn: Turn, *bookings: Booking) -> None:
        for booking in bookings:
            self.discards += self.machine.ended(turn, booking, self.now_s)

    def write(self, turn: Turn | None = None) -> None:
        self.discards += self.machine.write_began(turn)
        self.discards += self.machine.write_ended(turn)

    def planned(
        self, *keys: str, contract: Contract = READ, step: int = 1
    ) -> tuple[Turn, Sequence[Booking]]:
        """Let a turn guess `keys`, land them all, and commit the same calls."""
        turn = self.turn(step)
        for key in dict.fromkeys(keys):
            if key != WRITE:
                self.land(self.guess(turn, key, contract))
        return turn, self.commit(turn, *keys, contract=contract)

    def reasons(self) -> list[DiscardReason]:
        return [discard.reason for discard in self.discards]
