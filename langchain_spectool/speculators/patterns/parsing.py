"""Messages as this predictor sees them; whatever odd thing they hold, parsing never raises."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from cachetools import LRUCache
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_spectool.speculators.patterns.paths import Flat, Leaf, flat, parsed
from langchain_spectool.speculators.patterns.shapes import Text

Kind = Literal["user", "model", "tool", "other"]
Fingerprint = tuple[object, ...]
MAX_PARSED = 2_000_000
"""Most characters of messages that are held parsed."""
_SHORT = 80
_OVERHEAD = 200
"""Characters that a message counts for on top of its own."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A call the model made."""

    tool: str
    args: Mapping[str, Any]
    id: str | None


@dataclass(slots=True, kw_only=True)
class Parsed:
    """One message, parsed once."""

    kind: Kind
    text: Text
    calls: Sequence[Call] = ()
    call_id: str | None = None
    name: str | None = None
    error: bool = False
    flat: Flat | None = None
    raw: str = ""
    """An output as it came."""
    index: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Paths under which a value is found, by the value's text."""


class ParseCache:
    """The messages parsed last, by content."""

    def __init__(self, size: int = MAX_PARSED) -> None:
        """Keep messages of `size` characters in all."""
        self._size = size
        self._parsed: LRUCache[Hashable, tuple[Parsed, int]] = LRUCache(size, lambda held: held[1])

    def get(self, owner: Hashable, fingerprint: Fingerprint, message: object) -> Parsed:
        """Return `message` of `owner` parsed; `fingerprint` is its own."""
        key = owner, fingerprint
        held = self._parsed.get(key)
        if held is not None:
            return held[0]
        found, size = parse(message), size_of(fingerprint)
        if size <= self._size:
            self._parsed[key] = found, size
        return found


def size_of(fingerprint: Fingerprint) -> int:
    """Return how many characters a message counts for."""
    return _OVERHEAD + sum(len(part) for part in fingerprint[1:] if isinstance(part, str))


def fingerprint(message: object) -> Fingerprint:
    """Return what tells the content of messages apart, cheaply."""
    content: object = getattr(message, "content", None)
    text = content if isinstance(content, str) else repr(content)
    if isinstance(message, AIMessage):
        return ("model", text, repr(message.tool_calls))
    if isinstance(message, ToolMessage):
        return ("tool", text, message.tool_call_id, message.name, message.status)
    return ("user" if isinstance(message, HumanMessage) else "other", text)


def parse(message: object) -> Parsed:
    """Return what can be learned from one message."""
    raw = content_text(getattr(message, "content", None))
    if isinstance(message, ToolMessage):
        return _parse_output(message, raw)
    if isinstance(message, AIMessage):
        calls = [
            Call(tool=call["name"], args=call["args"], id=call.get("id"))
            for call in message.tool_calls
            if call["name"]
        ]
        return Parsed(kind="model", text=Text(raw), calls=calls)
    return Parsed(kind="user" if isinstance(message, HumanMessage) else "other", text=Text(raw))


def content_text(content: object) -> str:
    """Return the text of a message's content: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[str] = []
    for block in cast("list[object]", content):
        text = cast("Mapping[str, object]", block).get("text") if isinstance(block, dict) else block
        if isinstance(text, str):
            texts.append(text)
    return "\n".join(texts)


def _parse_output(message: ToolMessage, raw: str) -> Parsed:
    value = parsed(raw)
    found = flat(value) if value is not None else _single(raw)
    output = Parsed(
        kind="tool",
        text=Text("" if value is not None else raw),
        raw=raw,
        call_id=message.tool_call_id,
        name=message.name,
        error=message.status == "error" or _reads_as_error(raw, value),
        flat=found,
    )
    for path, leaves in found.leaves.items():
        for leaf in leaves:
            output.index.setdefault(leaf.text, set()).add(path)
    return output


def _single(raw: str) -> Flat:
    found = Flat()
    text = raw.strip()
    if 0 < len(text) <= _SHORT and "\n" not in text:
        found.leaves["$"] = [Leaf(text, text, 0)]
    return found


def _reads_as_error(raw: str, value: object) -> bool:
    if isinstance(value, dict):
        keys = cast("dict[str, object]", value)
        return bool(keys.get("error")) or keys.get("status") == "error"
    head = raw[:_SHORT].lower()
    return value is None and (
        head.startswith(("error", "traceback", "exception")) or "not found" in head
    )
