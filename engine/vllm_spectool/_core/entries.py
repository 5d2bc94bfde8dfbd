"""What is posted to the tool cache, and what is kept of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from vllm_spectool._core.params import call_key, parse_json
from vllm_spectool.errors import MalformedError, TooLargeError

FIELDS = frozenset({"name", "params", "output", "keep_alive", "uses"})
_BODY = "body"
_UNKNOWN = f"is unknown; known are {', '.join(sorted(FIELDS))}"
BLOCK_TYPES = frozenset(
    {
        "custom_tool_call_output",
        "document",
        "file",
        "image",
        "image_url",
        "json",
        "search_result",
        "text",
    }
)
"""Content blocks that LangGraph's tool node leaves as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLimits:
    """What one POST may hold."""

    body_bytes: int = 4 * 2**20
    """Most bytes of a body."""
    entry_bytes: int = 2**20
    """Most bytes of one entry: its output as text, and its call."""
    entries: int = 64
    """Most entries of a body."""
    keep_alive_s: float = 600.0
    """Longest time to live in seconds; a longer one is cut to it."""
    default_keep_alive_s: float = 60.0
    """Time to live in seconds of an entry that names none."""

    def on_the_wire(self, turns: int) -> dict[str, float]:
        """Return the limits that a server's status names; `turns` is the most of one response."""
        return {
            "entries": self.entries,
            "body_bytes": self.body_bytes,
            "entry_bytes": self.entry_bytes,
            "keep_alive_s": self.keep_alive_s,
            "turns": turns,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One posted output."""

    name: str
    params: Mapping[str, Any]
    key: str
    """What only an equal call has."""
    content: str
    """The output as text: itself if it is a string, else its JSON text."""
    message_content: object
    """`content` of the tool message a round trip would send: `content`, or a list of blocks."""
    keep_alive_s: float
    uses: int | None = None
    """How many calls it may answer; None for any number."""

    @property
    def output_sha256(self) -> str:
        """What a client compares its own output with."""
        return sha256(self.content.encode()).hexdigest()

    @property
    def texts(self) -> tuple[str, ...]:
        """The text that a chat template writes; none where a block is no text."""
        if isinstance(self.message_content, str):
            return (self.message_content,)
        blocks = cast("list[dict[str, object]]", self.message_content)
        texts = tuple(block.get("text") for block in blocks if block["type"] == "text")
        read = tuple(text for text in texts if isinstance(text, str))
        return (read or ("",)) if len(read) == len(blocks) else ()

    @property
    def size_bytes(self) -> int:
        """How much of the store's room it takes."""
        return len(self.content.encode()) + len(self.key)


def parse_entries(body: bytes, limits: EntryLimits) -> tuple[Entry, ...]:
    """Read the body of a POST.

    Raises:
        MalformedError: It is no array of entries; `field` names what is wrong, such as `[1].uses`.
        TooLargeError: It holds more than `limits` allow.
    """
    if len(body) > limits.body_bytes:
        msg = f"the body has {len(body)} bytes; this server takes {limits.body_bytes}"
        raise TooLargeError(msg)
    try:
        items = parse_json(body)
    except ValueError as error:
        raise _malformed(_BODY, "", f"must be JSON: {error}") from error
    if not isinstance(items, list):
        raise _malformed(_BODY, "", "must be an array of objects")
    items = cast("list[object]", items)
    if len(items) > limits.entries:
        msg = f"the body has {len(items)} entries; this server takes {limits.entries}"
        raise TooLargeError(msg, field="body")
    return tuple(_entry(item, f"[{index}]", limits) for index, item in enumerate(items))


def _entry(item: object, where: str, limits: EntryLimits) -> Entry:
    if not isinstance(item, dict):
        raise _malformed(where, "", "must be an object")
    fields = cast("dict[str, Any]", item)
    for unknown in sorted(fields.keys() - FIELDS):
        raise _malformed(where, f".{unknown}", _UNKNOWN)
    if "output" not in fields:
        raise _malformed(where, ".output", "is required")
    name, params = _name(fields, where), _params(fields, where)
    content = _text(fields["output"])
    entry = Entry(
        name=name,
        params=params,
        key=call_key(name, params),
        content=content,
        message_content=fields["output"] if _is_blocks(fields["output"]) else content,
        keep_alive_s=_keep_alive_s(fields, where, limits),
        uses=_uses(fields, where),
    )
    if entry.size_bytes > limits.entry_bytes:
        msg = f"`{where}` has {entry.size_bytes} bytes; this server takes {limits.entry_bytes}"
        raise TooLargeError(msg, field=where)
    return entry


def _name(fields: Mapping[str, Any], where: str) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise _malformed(where, ".name", "is required, a string that is not empty")
    return name


def _params(fields: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    params = fields.get("params", {})
    if not isinstance(params, dict):
        raise _malformed(where, ".params", "must be an object; leave it out for no arguments")
    return cast("dict[str, Any]", params)


def _keep_alive_s(fields: Mapping[str, Any], where: str, limits: EntryLimits) -> float:
    seconds = fields.get("keep_alive", limits.default_keep_alive_s)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise _malformed(where, ".keep_alive", "must be a number of seconds above 0")
    return min(seconds, limits.keep_alive_s)


def _uses(fields: Mapping[str, Any], where: str) -> int | None:
    uses = fields.get("uses")
    if "uses" in fields and (isinstance(uses, bool) or not isinstance(uses, int) or uses < 1):
        raise _malformed(where, ".uses", "must be a whole number of 1 or more")
    return uses


def _text(output: object) -> str:
    # The text LangGraph's tool node makes of an output that is no string.
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _is_blocks(output: object) -> bool:
    """Say whether LangGraph's tool node makes the list itself the message's content."""
    if not isinstance(output, list):
        return False
    items = cast("list[object]", output)
    return all(_block_type(item) in BLOCK_TYPES for item in items)


def _block_type(item: object) -> object:
    return cast("dict[str, object]", item).get("type") if isinstance(item, dict) else None


def _malformed(where: str, field: str, what: str) -> MalformedError:
    return MalformedError(f"`{where}{field}` {what}", field=where + field)
