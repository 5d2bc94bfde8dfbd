"""Argument values: one text for equal values, and one type for one argument."""

import json
import math
from collections.abc import Mapping
from typing import Any, cast

MAX_TEXT = 400
"""Longest text, in characters, that is looked for or predicted as a value."""


def text_of(value: object) -> str:
    """Return the text by which values of any type are compared across sources."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))


def key_of(tool: str, args: Mapping[str, Any]) -> str:
    """Return one text for equal calls: values differ where their JSON differs."""
    parts = [tool]
    for name in sorted(args):
        value = args[name]
        parts += (name, f"'{value}" if isinstance(value, str) else text_of(value))
    return "\x1f".join(parts)


def type_name(value: object) -> str:
    """Return the JSON type of `value`, as a tool's schema names it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"


def only(value: object) -> object:
    """Return the element of a list of one: it comes from where a plain value would."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return items[0] if len(items) == 1 else items
    return value


def coerced(value: object, kind: str) -> object | None:
    """Return `value` as JSON type `kind`; None where it cannot be one."""
    if kind == "string":
        return value if isinstance(value, str) else _scalar_text(value)
    if kind == "integer":
        return _whole(value)
    if kind == "number":
        return _number(value)
    if kind == "array":
        return cast("object", value) if isinstance(value, list) else cast("object", [value])
    if kind in {"boolean", "object"}:
        return value if type_name(value) == kind else None
    return value


def _scalar_text(value: object) -> str | None:
    return text_of(value) if isinstance(value, bool | int | float) else None


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    if isinstance(value, str) and len(value) <= 18 and value.lstrip("-").isdecimal():  # noqa: PLR2004 - a machine word
        return int(value) if value.isascii() and value.count("-") <= 1 else None
    return None


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > 30:  # noqa: PLR2004 - no number is longer
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
