"""How models write calls, and how servers read them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from vllm_spectool._core.params import Call, parse_json

_TOOL_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a turn says."""

    content: str | None
    calls: tuple[Call, ...] | None
    """None where there is a call that cannot be read: then all of it is content."""


def hermes_write(content: str, calls: Sequence[Call]) -> str:
    """Write calls in `<tool_call>` tags after the content, as Hermes and Qwen models do."""
    blocks = [
        f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
        for call in calls
    ]
    return "\n".join([content, *blocks] if content else blocks)


def hermes_read(text: str) -> Parsed:
    """Read calls in `<tool_call>` tags; what stands before the first is the content."""
    before, tag, _ = text.partition("<tool_call>")
    if not tag:
        return Parsed(text or None, ())
    calls = [_call(block, "arguments") for block in _TOOL_CALL.findall(text)]
    read = [call for call in calls if call is not None]
    if not read or len(read) < text.count("<tool_call>"):
        return Parsed(text, None)
    return Parsed(before.removesuffix("\n") or None, tuple(read))


def json_write(content: str, calls: Sequence[Call]) -> str:
    """Write calls, or else the content, as Llama 3 models do."""
    blocks = [f'{{"name": "{call.name}", "parameters": {call.arguments}}}' for call in calls]
    return "; ".join(blocks) or content


def json_read(text: str) -> Parsed:
    """Read a turn that is nothing but calls, separated by `; `."""
    if not text.startswith('{"name"'):
        return Parsed(text or None, ())
    calls = [_call(block, "parameters") for block in _objects(text)]
    read = tuple(call for call in calls if call is not None)
    return Parsed(None, read) if calls and len(read) == len(calls) else Parsed(text, None)


def _objects(text: str) -> list[str]:
    """Split at `; ` outside of the objects; the rest of a text that is none comes last."""
    found: list[str] = []
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        try:
            end = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            return [*found, text[at:]]
        found.append(text[at:end])
        at = end + 2 if text.startswith("; ", end) else end
    return found


def _call(block: str, arguments: str) -> Call | None:
    try:
        fields = parse_json(block)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    read = cast("dict[str, Any]", fields)
    name, params = read.get("name"), read.get(arguments, {})
    return Call(name=name, params=params) if isinstance(name, str) and _is_object(params) else None


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
