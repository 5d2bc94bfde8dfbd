"""Guesses, and what speculators are shown to make them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.verdicts import GuessVerdict

Origin = Literal["user", "reasoning", "trusted_output", "untrusted_output", "constant"]
"""Where an argument's value was found: the user's text, the model's own words, the output of a
tool whose author vouches for it, the output of any other tool, or nowhere in the conversation."""


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
    origins: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    """Where each argument's value comes from, as far as the source knows it."""
    source: str = ""
    """Who says so, where a speculator speaks for others; empty: the speculator itself."""

    def __post_init__(self) -> None:
        """Check the confidence."""
        if not (isinstance(self.confidence, Real) and 0 <= self.confidence <= 1):
            msg = f"`confidence` must be from 0 to 1, got {self.confidence!r}"
            raise ValueError(msg)


CHAIN = "chain"
"""Label of guesses made on the result of an early run."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
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
    model: object = None
    """The main model of this request, without its tools; None where it cannot be known."""
    tenant: str | None = None
    """Whose conversation it is; None if nobody said. Nothing learned crosses tenants."""
    run: str = ""
    """What tells its thread, or its run without one, from others; empty if that is not known.
    Messages cannot: an agent may trim or summarise them."""
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
    sample: int = 0
    """Which sample of its source says so."""
    warm_up: int = 0
    """How many guesses per tool the source wants scored before any runs."""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments as they were guessed."""
    parent: Flight | None = None
    """The early run on whose result the guess was made; None for a call of this very turn."""
