"""When two calls are the same call."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Never, cast


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
            name twice in one object, a lone surrogate, or a nesting too deep to read.
    """
    try:
        value: object = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None
    return value


def parse_arguments(text: str) -> Mapping[str, Any] | None:
    """Read the arguments of a model's call; None where they are no JSON object."""
    try:
        value = parse_json(text or "{}")
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


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
