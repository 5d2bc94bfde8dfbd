"""The messages that a client would send for a turn that was answered in place."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_spectool._core.entries import Entry
from vllm_spectool._core.params import Call

Message = Mapping[str, Any]
"""A message as a client sends it to `/v1/chat/completions`."""


def assistant_message(content: str | None, calls: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Write a turn as clients send it back.

    Args:
        content: Empty and None are the same to a client.
        calls: `id`, `name` and `arguments` of each, the arguments as the client received them.
    """
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ]
    return message


def tool_messages(calls: Sequence[Call], outputs: Sequence[Entry]) -> list[dict[str, Any]]:
    """Write one message for each call, with its output."""
    return [
        {"role": "tool", "tool_call_id": call.id, "content": output.message_content}
        for call, output in zip(calls, outputs, strict=True)
    ]
