"""A chat request, and what becomes of it in the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from vllm_spectool._core.decide import Continuation
from vllm_spectool._core.messages import Message
from vllm_spectool._core.outcomes import Decline
from vllm_spectool._core.store import Owner
from vllm_spectool.reference.template import ChatTemplate

FinishReason = Literal["stop", "length"]
End = Literal["open", "continued", "finished"]
"""Of a turn: still going on, followed by another one, or the response's last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asks for, checked."""

    id: str
    """Id of the response."""
    prompt_ids: tuple[int, ...]
    messages: tuple[Message, ...]
    template: ChatTemplate
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools the model may call; empty where calls are not read out of its text."""
    owner: Owner | None = None
    """None for a request that is not opted in."""
    bar: Decline | None = None
    stream: bool = False
    include_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """What is known of a turn when it starts."""

    at: int
    """How many tokens stand before its first one."""
    prompt_tokens: int
    """As a round trip would count them; the same, unless the template drifts."""
    continuation: Continuation | None = None
    """What was resolved just before it; None for the first."""


@dataclass(slots=True, kw_only=True, eq=False)
class Running:
    """A request in the engine."""

    request: ChatRequest
    token_ids: list[int]
    """The prompt and all that follows, injected tokens included."""
    left: int
    """Tokens the turn may still have."""
    messages: tuple[Message, ...]
    """What a round trip would send by now."""
    rendered: int = 0
    """How many tokens the newest turn's successor would have as a prompt of its own."""
    computed: int = 0
    """How many of `token_ids` have their keys and values."""
    turns: list[TurnStart] = field(default_factory=list[TurnStart])
    to_say: list[int] | None = None
    """Tokens of the turn that are still to come, last first; None until the model was asked."""

    @property
    def turn(self) -> int:
        """Number of the turn, from 0."""
        return len(self.turns) - 1

    @property
    def said(self) -> Sequence[int]:
        """Tokens of the turn so far."""
        return self.token_ids[self.turns[-1].at :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step brought for one request."""

    running: Running
    turn: int
    """The turn that it belongs to, from 0."""
    token_ids: tuple[int, ...]
    end: End = "open"
    finish_reason: FinishReason = "stop"
    """Of the turn, where it has ended."""
    error: Exception | None = None
    """What was raised for it; the request has ended."""


def call_id(response_id: str, turn: int, index: int) -> str:
    """Return the id of a turn's call: the same wherever it is asked for."""
    digest = sha256(f"{response_id}/{turn}/{index}".encode()).hexdigest()
    return f"chatcmpl-tool-{digest[:16]}"
