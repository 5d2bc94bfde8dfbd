"""Guesses, and what speculators are shown to make them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.verdicts import GuessVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A call a speculator expects.

    Raises:
        ValueError: `confidence` is not from 0 to 1.
    """

    tool: str
    """Name of the tool, exactly as the model would write it."""
    args: Mapping[str, Any]
    """Arguments as a model would write them; the tool's schema coerces and defaults them."""
    confidence: float = 1.0
    """Estimated chance, from 0 to 1, that the model commits an equal call this turn."""

    def __post_init__(self) -> None:
        """Check the confidence."""
        if not (isinstance(self.confidence, Real) and 0 <= self.confidence <= 1):
            msg = f"`confidence` must be from 0 to 1, got {self.confidence!r}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What the main model was asked this turn, for a speculator to guess from."""

    messages: Sequence[Any]
    """LangChain messages of the request, the system message included. Not to be changed."""
    tools: Sequence[Any]
    """The tools bound to this very request, those that cannot run early included."""
    declared: Sequence[Any] = field(default=())
    """The tools among them that may run early."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The request's model settings (temperature and the like), as the caller gave them."""
    on_usage: Callable[[str, tuple[int, int] | None], None] | None = None
    """Told a source's name and the input and output tokens of each of its model calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A guess after the tool's schema and contract have spoken, ready for admission."""

    tool: str
    source: str
    confidence: float
    contract: Contract
    key: str | None
    """The predicted call key; None when the values cannot be encoded exactly."""
    ordinal: int = 0
    """How many equal calls the same sample had guessed before this one: samples merge,
    while one sample that expects two equal calls gets two flights."""
    refusal: GuessVerdict | None = None
    """A reason, known before admission, not to run it."""
    detail: str = ""
    """What the refusal says in words."""
