"""One message from any of the forms that recordings hold.

Nothing is looked up or built by a name that a recording gives: kinds and fields are listed here.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

from langchain_spectool.traces.trajectory import UnreadableError, is_list, is_mapping

_KINDS: Final = {
    "system": "system",
    "developer": "system",
    "human": "human",
    "user": "human",
    "ai": "ai",
    "assistant": "ai",
    "tool": "tool",
    "function": "tool",
}
"""Roles of OpenAI's form, and LangChain's types and class names without their ends."""


def messages_from(values: Iterable[object]) -> tuple[BaseMessage, ...]:
    """Return all messages in `values`.

    Raises:
        UnreadableError: One of them is no message, or there is none.
    """
    messages: list[BaseMessage] = []
    for number, value in enumerate(values, 1):
        try:
            messages.append(message_from(value))
        except UnreadableError as error:
            msg = f"message {number}: {error}"
            raise UnreadableError(msg) from error
    if not messages:
        msg = "it has no messages"
        raise UnreadableError(msg)
    return tuple(messages)


def message_from(value: object) -> BaseMessage:
    """Return the message that `value` is or spells, without its metadata.

    Args:
        value: A message, or a dict in OpenAI's form (`role`), in that of `messages_to_dict`
            (`type` and `data`), of `model_dump` (`type` and `content`) or of a serialized
            constructor (`lc`, `id` and `kwargs`).

    Raises:
        UnreadableError: It is none of these.
    """
    name, fields = _parts(value)
    kind = _kind(name)
    if kind is None:
        msg = f"{name!r:.60} is no kind of message"
        raise UnreadableError(msg)
    try:
        return _BUILD[kind](fields)
    except UnreadableError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        msg = f"it is no message of kind {kind!r}: {type(error).__name__}"
        raise UnreadableError(msg) from error


def is_message(value: object) -> bool:
    """Say whether `value` looks like a message, sound or not."""
    try:
        return _kind(_parts(value)[0]) is not None
    except UnreadableError:
        return False


def _parts(value: object) -> tuple[object, Mapping[str, Any]]:
    """Return the name of the kind and the fields."""
    if isinstance(value, BaseMessage):
        return value.type, vars(value)  # not to be trusted: damaged ones are built unchecked
    if not is_mapping(value):
        msg = f"a message is a JSON object, got {type(value).__name__}"
        raise UnreadableError(msg)
    if value.get("type") == "constructor" and is_mapping(value.get("kwargs")):
        path = value.get("id")
        return path[-1] if is_list(path) and path else None, value["kwargs"]
    if is_mapping(value.get("data")):
        return value.get("type"), value["data"]
    return value.get("role", value.get("type")), value


def _kind(name: object) -> str | None:
    if not isinstance(name, str):
        return None
    return _KINDS.get(name.lower().removesuffix("chunk").removesuffix("message"))


def _system(fields: Mapping[str, Any]) -> SystemMessage:
    return SystemMessage(content=_content(fields), id=_text(fields, "id"))


def _human(fields: Mapping[str, Any]) -> HumanMessage:
    return HumanMessage(content=_content(fields), id=_text(fields, "id"))


def _ai(fields: Mapping[str, Any]) -> AIMessage:
    calls, broken = _calls(fields)
    return AIMessage(
        content=_content(fields),
        id=_text(fields, "id"),
        tool_calls=calls,
        invalid_tool_calls=broken,
    )


def _tool(fields: Mapping[str, Any]) -> ToolMessage:
    return ToolMessage(
        content=_content(fields),
        id=_text(fields, "id"),
        name=_text(fields, "name"),
        tool_call_id=_text(fields, "tool_call_id") or "",
        status="error" if fields.get("status") == "error" else "success",
    )


_BUILD: Final = {"system": _system, "human": _human, "ai": _ai, "tool": _tool}


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else str(value)


def _content(fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - text or blocks, as LangChain has it
    value = fields.get("content")
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if is_list(value) and all(isinstance(part, str | dict) for part in value):
        return value
    msg = f"`content` is text or a list of blocks, got {type(value).__name__}"
    raise UnreadableError(msg)


def _calls(fields: Mapping[str, Any]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    more = fields.get("additional_kwargs")
    found = fields.get("tool_calls") or (is_mapping(more) and more.get("tool_calls")) or []
    if not is_list(found):
        msg = f"`tool_calls` is a list, got {type(found).__name__}"
        raise UnreadableError(msg)
    calls: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    for call in found:
        name, written, call_id = _call(call)
        args = _arguments(written)
        if args is None:
            text = written if isinstance(written, str) else json.dumps(written)
            broken.append(invalid_tool_call(name=name, args=text, id=call_id, error=None))
        else:
            calls.append(tool_call(name=name, args=args, id=call_id))
    return calls, broken


def _call(call: object) -> tuple[str, object, str | None]:
    if not is_mapping(call):
        msg = f"a tool call is a JSON object, got {type(call).__name__}"
        raise UnreadableError(msg)
    function = call.get("function")
    inner = function if is_mapping(function) else call
    name = inner.get("name")
    if not isinstance(name, str):
        msg = "a tool call has no name"
        raise UnreadableError(msg)
    return name, inner.get("arguments", inner.get("args")), _text(call, "id")


def _arguments(written: object) -> dict[str, Any] | None:
    """Return the arguments; None for what a model wrote in vain."""
    if written in (None, ""):
        return {}
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except (ValueError, RecursionError):
            return None
    return {**written} if is_mapping(written) else None
