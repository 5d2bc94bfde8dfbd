"""Who said what in a conversation."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_spectool._core.guess import Origin
from langchain_spectool.graph.wording import Text, leaves, read


def sayings(messages: Sequence[Any], trusted: Collection[str]) -> Iterator[tuple[Origin, Text]]:
    """Yield what was said, in order, and in whose name.

    System messages are left out. What looks like a message of the user or of the model, but only
    passes on the words of others, counts as theirs.
    """
    called: dict[str | None, str] = {}
    for message in messages:
        for origin, parts in _said(message, trusted, called):
            raw = "\n".join(parts)
            if raw:
                yield origin, read(raw)


def _said(
    message: BaseMessage, trusted: Collection[str], called: dict[str | None, str]
) -> Iterator[tuple[Origin, Iterable[str]]]:
    """Yield what a message says, and in whose name; note in `called` which tool a call is of."""
    match message:
        case SystemMessage():
            return
        case HumanMessage() if "lc_source" not in message.additional_kwargs:
            yield "user", _texts_in(message.content)
        case AIMessage():
            # What a provider's own tools returned is in the same message, as are its citations.
            yield "untrusted_output", _foreign(message.content)
            calls = message.tool_calls
            called.update((call["id"], call["name"]) for call in calls)
            words = (text for call in calls for text, _ in leaves(call["args"]))
            yield "reasoning", [*_texts_in(message.content), *words]
        case ToolMessage():
            name = message.name or called.get(message.tool_call_id)
            origin: Origin = "trusted_output" if name in trusted else "untrusted_output"
            artifact = (text for text, _ in leaves(message.artifact))
            yield origin, [*_outputs(message.content), *artifact]
        case _:
            # A summary that a middleware wrote in the user's name is among these.
            yield "untrusted_output", _outputs(message.content)


_OWN: Final = {"text": "text", "reasoning": "reasoning", "thinking": "thinking"}
"""Blocks of a model's own words: their type, and the key of the words."""
_CALLS: Final = frozenset(
    {"tool_use", "tool_call", "function_call", "input_json_delta", "server_tool_use"}
    | {"server_tool_call", "web_search_call"}
)
_CITED: Final = frozenset({"annotations", "citations"})
_MEDIA: Final = frozenset({"image", "image_url", "audio", "input_audio", "video", "file"})


def _blocks(content: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the parts of a message's content by type; a plain text is one too."""
    for block in cast("list[object]", content if isinstance(content, list) else [content]):
        if isinstance(block, Mapping):
            fields = cast("Mapping[str, object]", block)
            yield str(fields.get("type")), fields
        else:
            yield "text", {"text": block}


def _texts_in(content: object) -> list[str]:
    """Return the words of a message, without anything that its author only passed on."""
    found = [fields.get(_OWN[kind]) for kind, fields in _blocks(content) if kind in _OWN]
    return [text for text in found if isinstance(text, str)]


def _foreign(content: object) -> list[str]:
    """Return what a model's message holds besides its own words and calls."""
    found: list[str] = []
    for kind, fields in _blocks(content):
        if kind in _OWN:
            found += _outputs([{key: fields[key] for key in _CITED & fields.keys()}])
        elif kind not in _CALLS:
            found += _outputs([fields])
    return found


def _outputs(content: object) -> list[str]:
    """Return every text and number in the content of a message but pictures and sounds."""
    return [
        text
        for kind, fields in _blocks(content)
        for key, value in fields.items()
        if key != "type"
        for text, _ in leaves(value)
        if kind not in _MEDIA or not (key in {"data", "base64"} or text.startswith("data:"))
    ]
