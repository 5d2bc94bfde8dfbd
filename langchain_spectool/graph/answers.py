"""Finds the model's answer in what a node returned, whatever its shape."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.types import Command
from pydantic import BaseModel


def answer_in(output: object) -> AIMessage | None:
    """Return the last AI message of `output`; None if there is none."""
    if isinstance(output, AIMessage):
        return output
    if isinstance(output, BaseMessage) or output is None or isinstance(output, (str, bytes)):
        return None
    for part in reversed([*_parts(output)]):
        if (found := answer_in(part)) is not None:
            return found
    return None


def _parts(output: object) -> Iterator[object]:
    if isinstance(output, Command):
        yield cast("Command[Any]", output).update
    elif isinstance(output, Mapping):
        yield from (v for v in cast("Mapping[object, object]", output).values() if _may_hold(v))
    elif isinstance(output, (list, tuple)):
        yield from cast("Sequence[object]", output)
    elif isinstance(output, BaseModel):
        yield from (v for _, v in output if _may_hold(v))
    elif is_dataclass(output):
        values = (getattr(output, item.name, None) for item in fields(output))
        yield from (v for v in values if _may_hold(v))


def _may_hold(value: object) -> bool:
    if isinstance(value, BaseMessage):
        return True
    return isinstance(value, (list, tuple)) and any(
        isinstance(item, BaseMessage) for item in cast("Iterable[object]", value)
    )
