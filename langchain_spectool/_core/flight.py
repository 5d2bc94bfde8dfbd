"""One early execution, from take-off to the claim."""

from dataclasses import dataclass
from typing import Any, Literal

from langchain_spectool._core.contracts import Contract

FlightState = Literal["running", "landed", "failed", "tainted", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an early run brought back."""

    state: FlightState
    value: Any = None
    """The raw return value of the tool's body; None unless `state` is `landed`."""
    body_key: str | None = None
    """Exact key of the values the body received; None if it was never reached."""
    token: Any = None
    """What the contract's `freshness` said before the run."""
    detail: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """One early execution in progress or finished, not yet claimed."""

    tool: str
    source: str
    contract: Contract
    key: str
    ordinal: int
    epoch: int
    started_s: float
    deadline_s: float
    confidence: float = 1.0
    state: FlightState = "running"
    landed_s: float | None = None
    outcome: Outcome | None = None
    body_key: str | None = None
    claimed: bool = False
    waiters: int = 0
    shadow: bool = False
    """Only scored: nothing runs."""

    @property
    def live(self) -> bool:
        """Whether it may still answer a call."""
        return self.state in ("running", "landed") and not (
            self.claimed and not self.contract.deterministic
        )

    def spent_s(self, now_s: float) -> float:
        """Return the seconds the body took, or has taken up to `now_s`."""
        return max(0.0, (self.landed_s if self.landed_s is not None else now_s) - self.started_s)
