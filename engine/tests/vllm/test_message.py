"""A turn read back from what the client was sent."""

import json
from typing import Any

from vllm_spectool._core.params import Call
from vllm_spectool.plugin.message import TurnReader, calls_of, message_of


def event(delta: dict[str, Any] | None = None, **fields: Any) -> str:
    """Write a chunk as vLLM does."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None}]
    chunk = {"created": 7, "model": "m", "choices": choices, **fields}
    return f"data: {json.dumps(chunk)}\n\n"


def part(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    """Write a piece of a call."""
    name = fields.pop("name", None)
    return {"index": index, "function": {"name": name, "arguments": arguments}, **fields}


def wire(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Write a call as clients send it back."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_stream_is_put_together() -> None:
    """Text, and the pieces of two calls, however they arrive."""
    reader = TurnReader()
    for each in (
        event({"role": "assistant", "content": ""}),
        event({"content": "Let me "}),
        event({"content": "look.", "tool_calls": [part(0, "", id="a", name="find")]}),
        event({"tool_calls": [part(0, '{"q": ')]}),
        event({"tool_calls": [part(1, "{}", id="b", name="list"), part(0, '"é"}')]}),
        event(usage={"total_tokens": 3}),
        "data: [DONE]\n\n",
        ": ping\n\n",
    ):
        reader.feed(each)
    assert reader.message == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [wire("a", "find", '{"q": "é"}'), wire("b", "list", "{}")],
    }
    assert (reader.created, reader.model) == (7, "m")


def test_a_stream_with_an_error_has_no_message() -> None:
    """Nobody can go on from what was cut short."""
    reader = TurnReader()
    reader.feed(event({"content": "It is"}))
    reader.feed('data: {"error": {"message": "gone"}}\n\n')
    assert reader.message is None


def test_a_whole_response_is_read() -> None:
    """No text is None, as clients send it back."""
    message = {"content": "", "tool_calls": [wire("a", "find", "{}")]}
    assert message_of({"choices": [{"message": message}]}) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [wire("a", "find", "{}")],
    }


def test_several_choices_are_no_turn() -> None:
    """There is no telling which one the client goes on with."""
    assert message_of({"choices": [{"message": {}}, {"message": {}}]}) is None
    assert message_of({}) is None


def test_calls_are_compared_parsed() -> None:
    """With the ids the client saw; arguments that are no object rule the turn out."""
    good = wire("a", "find", '{"q": 1.0}')
    assert calls_of({"tool_calls": [good]}) == [Call(id="a", name="find", params={"q": 1.0})]
    assert calls_of({"content": "No."}) == []
    assert calls_of({"tool_calls": [good, wire("b", "find", '{"q": ')]}) is None
    assert calls_of({"tool_calls": [wire("b", "find", "[]")]}) is None
