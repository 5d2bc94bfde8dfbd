"""What a client would send for a turn."""

import json

from vllm_spectool._core.entries import EntryLimits, parse_entries
from vllm_spectool._core.messages import assistant_message, tool_messages
from vllm_spectool._core.params import Call


def test_a_turn_is_sent_back_as_it_was_read() -> None:
    """Arguments to the letter; no content is None, no calls are no field."""
    call = {"id": "1", "name": "look", "arguments": '{"x":1}'}
    function = {"name": "look", "arguments": '{"x":1}'}
    assert assistant_message("", [call]) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }
    assert assistant_message("Hi.", []) == {"role": "assistant", "content": "Hi."}


def test_each_call_has_a_message() -> None:
    """With the output as a tool message carries it."""
    blocks = [{"type": "text", "text": "x"}]
    body = json.dumps([{"name": "look", "output": each} for each in ({"a": 1}, blocks)]).encode()
    calls = [Call(name="look", id="1"), Call(name="look", id="2")]
    assert tool_messages(calls, parse_entries(body, EntryLimits())) == [
        {"role": "tool", "tool_call_id": "1", "content": '{"a": 1}'},
        {"role": "tool", "tool_call_id": "2", "content": blocks},
    ]
