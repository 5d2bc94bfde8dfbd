"""What is read from recordings: one recorded run of an agent, or the reason it cannot be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One recorded run of an agent, from its first message to its last."""

    messages: tuple[BaseMessage, ...]
    tools: tuple[BaseTool, ...]
    """The tools the agent had; they can be bound and compared, and never run."""
    read_only: frozenset[str]
    """Names of the tools among them that only read."""
    run: str
    """Tells this run from others; equal only where the recording itself repeats its ids."""
    task: str
    """What the run was to do; several runs may have done one task."""
    tenant: str | None = None
    """Whose run it was; None if the recording does not say."""
    dataset: str = ""
    """Where it comes from: the recording's own word, or the name of its file."""
    tools_are_listed: bool = True
    """False where nobody listed the tools: then they are the names that were called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A trajectory before its tools are known."""

    messages: tuple[BaseMessage, ...]
    run: str
    task: str
    tenant: str | None = None
    dataset: str = ""
    tools: Sequence[object] = ()
    """The tools that the recording itself lists, in OpenAI's form."""
    tools_ref: object = None
    """The name of a file that lists them, as the recording gives it: not to be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A part of a file that was skipped."""

    path: Path
    line: int | None
    """Counted from 1; None where lines mean nothing, as in a database."""
    reason: str

    def __str__(self) -> str:
        """Name place and reason in one line that is safe to print."""
        place = self.path.name if self.line is None else f"{self.path.name}:{self.line}"
        return printable(f"{place}: {self.reason}")


class UnreadableError(ValueError):
    """A record is no part of a trace; the message says why. It never leaves the readers."""


def printable(text: str) -> str:
    """Escape what could move a terminal's cursor or hide text in it."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Say whether `value` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Say whether `value` is a JSON array."""
    return isinstance(value, list)
