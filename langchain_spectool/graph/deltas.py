"""What one step of a LangChain model stream says about the tool calls being written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_spectool._core.assembly import CallDelta

_CALL_BLOCKS = frozenset(
    {
        "custom_tool_call",
        "function_call",
        "input_json_delta",
        "invalid_tool_call",
        "tool_call",
        "tool_call_chunk",
        "tool_use",
    }
)
"""Content blocks that repeat a client-side call which `tool_call_chunks` carries as well."""

_FOREIGN_CALLS = frozenset(
    {"invalid_tool_call", "server_tool_call", "server_tool_call_chunk", "tool_call"}
)
"""Blocks whose deltas, if any, are arguments but not of a call we could assemble."""

_REASON_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")

_CUT_OFF = (
    "abort",
    "content_filter",
    "incomplete",
    "length",
    "max_output_tokens",
    "max_tokens",
    "model_context_window_exceeded",
    "model_length",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """One step of a model's stream; the first three fields are the arguments of `feed`."""

    deltas: tuple[CallDelta, ...] = ()
    later_content: bool = False
    ended: tuple[int | str, ...] = ()
    finish_reason: str | None = None
    """Why the provider stopped, in its own words; None before it has said so."""
    text: str = ""
    """What of it is text for the user."""


_NOTHING = StreamStep()


def step_of_chunk(chunk: object) -> StreamStep:
    """Read an `AIMessageChunk`, or the chunk of a generation that holds one.

    Anything else is an empty step; nothing raises.
    """
    message, info = chunk, None
    if isinstance(chunk, ChatGenerationChunk):
        message, info = chunk.message, chunk.generation_info
    if not isinstance(message, AIMessageChunk):
        return _NOTHING
    deltas = tuple(_delta(part, part.get("index")) for part in _mappings(message.tool_call_chunks))
    return StreamStep(
        deltas=deltas,
        later_content=_content_follows(message.content, has_deltas=bool(deltas)),
        finish_reason=_finish_reason(message.response_metadata) or _finish_reason(info),
        text=_plain(message.content),
    )


def step_of_event(event: object) -> StreamStep:
    """Read an event of the content-block protocol, as `on_stream_event` receives it.

    Anything else is an empty step; nothing raises.
    """
    data = _mapping(event)
    match data.get("event"):
        case "content-block-start":
            return _step_of_start(data)
        case "content-block-delta":
            return _step_of_delta(data)
        case "content-block-finish":
            return _step_of_finish(data)
        case "message-finish":
            return StreamStep(finish_reason=_finish_reason(data.get("metadata")))
        case _:
            return _NOTHING


def truncated(finish_reason: str | None) -> bool:
    """Say whether the provider cut the answer off, so that its last call may be half a call.

    LangChain joins a reason that was sent twice ("lengthlength"), hence the prefix match.
    """
    return finish_reason is not None and finish_reason.lower().startswith(_CUT_OFF)


def truncated_message(message: object) -> bool:
    """Say whether a finished message was cut off; False for what is not an `AIMessage`."""
    return isinstance(message, AIMessage) and truncated(_finish_reason(message.response_metadata))


def _step_of_start(event: Mapping[object, object]) -> StreamStep:
    block = _mapping(event.get("content"))
    kind = block.get("type")
    if kind == "tool_call_chunk":
        return StreamStep(deltas=(_delta(block, event.get("index")),))
    if kind in _FOREIGN_CALLS:
        # A call without a name is never reported, and it takes the deltas of this block.
        head = CallDelta(_index(event.get("index")), _text(block.get("id")) or "?", None, None)
        return StreamStep(deltas=(head,), later_content=True)
    return StreamStep(later_content=_is_content(block))


def _step_of_delta(event: Mapping[object, object]) -> StreamStep:
    delta = _mapping(event.get("delta"))
    if delta.get("type") == "block-delta":
        delta = _mapping(delta.get("fields"))
    match delta.get("type"):
        case "text-delta":
            text = _text(delta.get("text")) or ""
            return StreamStep(later_content=bool(text), text=text)
        case "reasoning-delta":
            return StreamStep(later_content=bool(delta.get("reasoning")))
        case "tool-call-delta" | "tool_call_chunk":
            return StreamStep(deltas=(_delta(delta, event.get("index")),))
        case _:
            return _NOTHING


def _step_of_finish(event: Mapping[object, object]) -> StreamStep:
    block = _mapping(event.get("content"))
    index = _index(event.get("index"))
    if block.get("type") != "tool_call" or index is None:
        return _NOTHING
    # The deltas of the protocol carry no id: a second one shows up only here.
    same_id = CallDelta(index, _text(block.get("id")), None, None)
    return StreamStep(deltas=(same_id,), ended=(index,))


def _delta(part: Mapping[object, object], index: object) -> CallDelta:
    return CallDelta(
        _index(index), _text(part.get("id")), _text(part.get("name")), _text(part.get("args"))
    )


def _content_follows(content: object, *, has_deltas: bool) -> bool:
    """Say whether a chunk's content comes after its call deltas.

    Beside deltas, only a list that shows the call blocks gives the order; else assume before.
    """
    blocks: Sequence[object] = [content]
    if isinstance(content, list):
        blocks = cast("list[object]", content)
    if has_deltas:
        calls = [i for i, block in enumerate(blocks) if _mapping(block).get("type") in _CALL_BLOCKS]
        blocks = blocks[calls[-1] :] if calls else []
    return any(map(_is_content, blocks))


def _is_content(block: object) -> bool:
    """Say whether a block is the message's own content: no call, and no text still empty."""
    if isinstance(block, str):
        return bool(block)
    fields = _mapping(block)
    kind = fields.get("type")
    if kind == "text":
        return bool(fields.get("text"))
    return isinstance(kind, str) and kind not in _CALL_BLOCKS


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(_text(block.get("text")) or "" for block in _mappings(content))


def _finish_reason(metadata: object) -> str | None:
    if not (found := _mapping(metadata)):
        return None
    return next((text for key in _REASON_KEYS if (text := _text(found.get(key)))), None)


def _mapping(value: object) -> Mapping[object, object]:
    return cast("Mapping[object, object]", value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[object, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [_mapping(item) for item in items]


def _index(value: object) -> int | str | None:
    return value if isinstance(value, int | str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
