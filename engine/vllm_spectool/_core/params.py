"""When two calls are the same call."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Never, cast

MOST_LEVELS = 200
"""Deepest nesting that is read: whatever else writes or copies it later has room to."""
_TOO_DEEP = f"nested more than {MOST_LEVELS} levels deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call of the model."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments, parsed."""
    id: str = ""
    """The `tool_call_id` the client sees; no part of the key."""

    @property
    def arguments(self) -> str:
        """The arguments as JSON text, as a client sends them back."""
        return json.dumps(self.params, ensure_ascii=False)


def call_key(name: str, params: Mapping[str, Any]) -> str:
    """Write a call as text that only equal calls have.

    Equal in value and JSON type: 1, 1.0, "1" and true differ, the order of keys does not count.

    Raises:
        ValueError: `params` has no exact text: NaN, infinity, lone surrogates, a foreign type,
            or a nesting too deep to write.
    """
    try:
        text = json.dumps(
            [name, params],
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
            ensure_ascii=False,
        )
        text.encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return text


def parse_json(text: str | bytes) -> object:
    """Read strict JSON.

    Raises:
        ValueError: It is no JSON text, or holds NaN, infinity, a number too large for a float, a
            name twice in one object, a lone surrogate, or a nesting of more than `MOST_LEVELS`.
    """
    try:
        value: object = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deeper(value, MOST_LEVELS):
        raise ValueError(_TOO_DEEP)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def parse_arguments(text: str) -> Mapping[str, Any] | None:
    """Read the arguments of a model's call; None where they are no JSON object."""
    try:
        value = parse_json(text or "{}")
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_deeper(value: object, most: int) -> bool:
    """Say whether lists and objects are nested more than `most` levels."""
    level: list[object] = [value]
    for _ in range(most + 1):
        level = [item for each in level for item in _items(each)]
        if not level:
            return False
    return True


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _refuse_constant(name: str) -> Never:
    msg = f"{name} is no JSON value"
    raise ValueError(msg)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        msg = f"{text[:40]} is too large for a float"
        raise ValueError(msg)
    return number


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        msg = "a name occurs twice in one object"
        raise ValueError(msg)
    return made
