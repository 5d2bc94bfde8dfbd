"""What the machine is told of the room in the air, and what it answers a committed call."""

from dataclasses import dataclass
from typing import Literal

from langchain_spectool._core.flight import Flight
from langchain_spectool._core.turn import Booking, Discard
from langchain_spectool._core.verdicts import ClaimVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """How many early runs are in the air, those of other runs and abandoned ones included."""

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
    booking: Booking | None = None
    """The position that waits."""
