"""Under which name, and by which key, an engine is told the outputs for one response."""

import secrets
from dataclasses import dataclass, field

_KEY_BYTES = 24
"""192 bits: an entry is found by whoever knows the key, and by nobody else."""


def _key() -> str:
    return secrets.token_urlsafe(_KEY_BYTES)


@dataclass(slots=True, kw_only=True, eq=False)
class Seat:
    """One response of the engine, before, while and after it is written."""

    request_id: str = field(default_factory=lambda: secrets.token_hex(16))
    """Sent as `X-Request-Id`."""
    key: str = field(default_factory=_key, repr=False)
    target: tuple[str | None, ...] = field(default=(), repr=False)
    """Where its request was sent, and who for: the address and the keys."""
    told: bool = False
    """Whether the engine may hold outputs for it."""
    over: bool = False
    """Whether the engine forgets them by itself: the response has ended, or was given up."""
    closed: bool = False
    """Whether the engine was told to forget them: it takes no more."""

    @property
    def response_id(self) -> str:
        """The id that the engine gives the response."""
        return f"chatcmpl-{self.request_id}"

    @property
    def open(self) -> bool:
        """Whether outputs may still be of use."""
        return not (self.over or self.closed)
