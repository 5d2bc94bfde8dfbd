"""What the machine is told of the room in the air, and what it answers guesses and calls."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.turn import Booking, Discard, Turn
from langchain_spectool._core.verdicts import ClaimVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """How many early runs are in the air, those of other runs and abandoned ones included."""

    process: int = 0
    tool: int = 0

    def crowded(self, candidate: Candidate, policy: Policy, of_run: Iterable[Flight]) -> bool:
        """Say whether there is no room for `candidate` beside the flights of its run."""
        limit = candidate.contract.max_concurrency
        running = sum(f.state == "running" and not (f.shadow or f.lead) for f in of_run)
        return (
            running >= policy.in_flight_per_run
            or self.process >= policy.in_flight
            or (limit is not None and self.tool >= limit)
        )


def take_off(
    turn: Turn, candidate: Candidate, policy: Policy, *, epoch: int, now_s: float
) -> Flight:
    """Return the flight of an admitted guess; one that is only scored has no deadline."""
    shadow = turn.shadow or candidate.refusal == "shadow"
    timeout_s = math.inf if shadow else candidate.contract.timeout_s or policy.timeout_s
    return Flight(
        tool=candidate.tool,
        source=candidate.source,
        contract=candidate.contract,
        key=candidate.key or "",
        scope=turn.scope,
        confidence=candidate.confidence,
        epoch=epoch,
        started_s=now_s,
        deadline_s=now_s + timeout_s,
        shadow=shadow,
        tenant=turn.tenant,
        parent=candidate.parent,
        args=candidate.args,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The answer to a committed call that asks for its flight.

    `serve` the flight's value; `wait` for it to land, then settle; `run` the body for real;
    `lead`: run it, and let later equal calls share what it returns.
    """

    action: Literal["serve", "wait", "run", "lead"]
    verdict: ClaimVerdict
    flight: Flight | None = None
    discards: Sequence[Discard] = ()
    booking: Booking | None = None
    """The position that waits."""


def shared_under(turn: Turn, booking: Booking) -> Contract | None:
    """Return the contract by which an unplanned position may share an equal call's result."""
    contract = booking.call.contract
    unplanned = booking.flight is None and booking.verdict != "fenced" and not turn.shadow
    if contract is None or booking.call.key is None or not unplanned:
        return None
    return contract if contract.deterministic else None
