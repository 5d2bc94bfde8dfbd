"""What is told to an engine: the output of an early run, for the call that may ask for it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_spectool._core.contracts import Audience, Contract
from langchain_spectool._core.encoding import attempt

_CIRCLES: dict[Audience, int] = {"local": 0, "internal": 1, "external": 2}

MOST_CHARACTERS = 64 * 1024
"""Longest output that is posted; a longer one is read by the model in its own time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An output, and the call it answers."""

    name: str
    params: Mapping[str, Any]
    output: str
    """Exactly what the tool message would hold."""
    uses: int | None = 1
    """How many calls it may answer; None for any number."""
    keep_alive_s: float | None = None
    """Seconds above 0 after which the engine forgets it; None for the engine's own limit."""

    def fields(self) -> dict[str, Any]:
        """Return what goes over the wire."""
        fields: dict[str, Any] = {
            "name": self.name,
            "params": dict(self.params),
            "output": self.output,
            "uses": self.uses,
            "keep_alive": self.keep_alive_s,
        }
        return {name: value for name, value in fields.items() if value is not None}


def may_tell(engine: Audience, contract: Contract) -> bool:
    """Say whether an engine that is an `engine` audience may know of a guess under `contract`.

    The main model's conversation goes to the engine anyway, but a guess that no call takes is
    news to it: the arguments may go as far as the contract lets them, and no further.
    """
    return _CIRCLES[engine] <= _CIRCLES[contract.audience]


def entry_for(
    tool: str, args: Mapping[str, Any], output: object, contract: Contract, age_s: float
) -> Entry | None:
    """Return the entry for an early run's output; None if it cannot, or need not, be told."""
    if not isinstance(output, str) or len(output) > MOST_CHARACTERS:
        return None
    if attempt(_exact, args) is None or attempt(output.encode) is None:
        return None
    left_s = None if contract.fresh_for_s is None else contract.fresh_for_s - age_s
    if left_s is not None and left_s <= 0:
        return None
    return Entry(
        name=tool,
        params=args,
        output=output,
        uses=None if contract.deterministic else 1,
        keep_alive_s=left_s,
    )


def _exact(args: Mapping[str, Any]) -> bool:
    """Raise what JSON raises for arguments that it cannot hold as they are."""
    text = json.dumps(dict(args), allow_nan=False, ensure_ascii=False)
    text.encode()
    if json.loads(text) != dict(args):
        raise ValueError(text)
    return True
