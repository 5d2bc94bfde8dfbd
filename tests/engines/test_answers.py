"""A request goes on from an answer only if nothing but the known outputs is new."""

import json
from typing import Any

import pytest

from langchain_spectool.engines.answers import (
    Answer,
    answer_in_response,
    answer_in_stream,
    goes_on,
    is_about,
    marker_in,
    may_go_on,
    resolved_in,
    same_json,
    sha256_of,
)
from langchain_spectool.engines.sse import EventSplitter
from tests.engines.wire import (
    ASKED,
    CALL,
    OUTPUT,
    Json,
    assistant,
    calling,
    chunk,
    event,
    marker,
    next_request,
    record,
    saying,
    tool_message,
)

SECOND = ("c2", "weather", {"city": "Oslo", "days": 1})


def _answer(body: bytes) -> Answer:
    answer = answer_in_stream(EventSplitter().feed(body))
    assert answer is not None
    return answer


def _goes_on(
    request: Json, *, records: list[Json] | None = None, body: bytes | None = None
) -> bool:
    resolved = resolved_in({"version": 1, "resolved": records or [record()]})
    assert resolved is not None
    asked, sent = (json.dumps(each).encode() for each in (ASKED, request))
    return goes_on(asked, _answer(body or calling()), resolved, sent)


def test_the_same_conversation_goes_on() -> None:
    """The assistant's message and the output the engine knows: nothing else is new."""
    assert _goes_on(next_request())
    assert may_go_on(
        json.dumps(ASKED).encode(), _answer(calling()), json.dumps(next_request()).encode()
    )


def test_how_it_is_written_does_not_matter() -> None:
    """Spaces in arguments, the order of keys and an absent content are no difference."""
    message = assistant()
    message["tool_calls"][0]["function"]["arguments"] = '{ "city":"Rome" }'
    del message["content"]
    shuffled = dict(reversed(next_request(ASKED, message, tool_message()).items()))
    assert _goes_on(shuffled)


def test_parallel_calls_go_on_in_their_order() -> None:
    """All outputs, each for its call, in the order of the calls."""
    calls = (CALL, SECOND)
    body = calling("chatcmpl-a", *calls)
    records = [record(), record(SECOND, "2C")]
    outputs = [tool_message(), tool_message("c2", "2C")]
    assert _goes_on(next_request(ASKED, assistant(*calls), *outputs), records=records, body=body)
    swapped = next_request(ASKED, assistant(*calls), *reversed(outputs))
    assert not _goes_on(swapped, records=records, body=body)
    assert not _goes_on(
        next_request(ASKED, assistant(*calls), outputs[0]), records=records, body=body
    )
    assert not _goes_on(
        next_request(ASKED, assistant(*calls), *outputs), records=records[:1], body=body
    )


def _message(**fields: Any) -> Json:
    return {**assistant(), **fields}


def _with_call(**fields: Any) -> Json:
    message = assistant()
    message["tool_calls"][0] |= fields
    return message


@pytest.mark.parametrize(
    "request_",
    [
        next_request(temperature=0.5),
        next_request(ASKED, assistant(), tool_message(content="19C")),
        next_request(ASKED, assistant(), tool_message(content=[{"type": "text", "text": OUTPUT}])),
        next_request(ASKED, assistant(), tool_message("c9")),
        next_request(ASKED, assistant(), {**tool_message(), "name": "weather"}),
        next_request(ASKED, assistant(), tool_message(), {"role": "user", "content": "and?"}),
        next_request(ASKED, assistant()),
        next_request(ASKED, tool_message(), assistant()),
        next_request(ASKED, _message(content="Let me see."), tool_message()),
        next_request(ASKED, _message(name="agent"), tool_message()),
        next_request(ASKED, _message(tool_calls=[]), tool_message()),
        next_request(ASKED, _with_call(id="c9"), tool_message()),
        next_request(
            ASKED,
            _with_call(function={"name": "weather", "arguments": '{"city": "Oslo"}'}),
            tool_message(),
        ),
        next_request(
            ASKED, _with_call(function={"name": "weather", "arguments": "{"}), tool_message()
        ),
        {
            **next_request(),
            "messages": [{"role": "user", "content": "ho"}, *next_request()["messages"][1:]],
        },
        {**next_request(), "stream": 1},
        {"model": "m", "stream": True, "messages": "none"},
    ],
)
def test_anything_else_does_not(request_: Json) -> None:
    """Whatever is edited, added, left out or set otherwise: the engine is asked anew."""
    assert not _goes_on(request_)


@pytest.mark.parametrize(
    "other",
    [
        record(output="19C"),
        record(("c1", "weather", {"city": "Oslo"})),
        record(("c1", "forecast", {"city": "Rome"})),
        record(("c9", "weather", {"city": "Rome"})),
    ],
)
def test_the_engine_must_have_resolved_this_very_call(other: Json) -> None:
    """Its record names call, arguments and output; each must be the one at hand."""
    assert not _goes_on(next_request(), records=[other])


def test_numbers_and_truth_are_told_apart() -> None:
    """1, 1.0 and true are three values."""
    assert not same_json({"a": 1}, {"a": 1.0})
    assert not same_json({"a": 1}, {"a": True})
    assert same_json({"a": 1, "b": [None]}, {"b": [None], "a": 1})


def test_a_later_request_of_the_conversation_is_told() -> None:
    """It begins with the messages of the request before, whatever else it holds."""
    asked = json.dumps(ASKED).encode()
    assert is_about(asked, json.dumps(next_request(temperature=0.1)).encode())
    assert not is_about(asked, asked)
    assert not is_about(asked, b"[]")


def test_what_was_said_is_put_together() -> None:
    """Text and the halves of arguments come together; a comment says nothing."""
    body = b": hello\n\n" + calling()
    answer = _answer(body)
    assert answer.content == ""
    assert [(c.id, c.name, c.params) for c in answer.calls] == [CALL]
    assert _answer(saying()) == Answer(content="sunny", calls=())


@pytest.mark.parametrize(
    "body",
    [
        event("not json"),
        event({**chunk("a", {"content": "x"}), "choices": [{"index": 1, "delta": {}}]}),
        calling("a", ("c1", "weather", {}))[:-1].replace(b'\\"', b"") + b"\n",
    ],
)
def test_odd_answers_are_not_understood(body: bytes) -> None:
    """Several choices, broken JSON: such an answer is never gone on from."""
    events = EventSplitter().feed(body)
    assert events
    found = answer_in_stream(events)
    assert found is None or not found.calls or found.calls[0].params == {}


def test_whole_responses_are_read_alike() -> None:
    """An answer in one piece is the same answer."""
    message = {**assistant(), "content": None}
    said = {"choices": [{"index": 0, "message": message}]}
    answer = answer_in_response(said)
    assert answer is not None
    assert [(c.id, c.name, c.params) for c in answer.calls] == [CALL]
    assert answer_in_response({"choices": []}) is None
    assert answer_in_response({}) is None


def test_the_marker_names_what_was_resolved() -> None:
    """Only the event that announces another answer is one, and only in our version."""
    found = marker_in(marker())
    assert found is not None
    assert [(r.tool_call_id, r.output_sha256) for r in found] == [("c1", sha256_of(OUTPUT))]
    assert marker_in(saying()) is None
    assert marker_in(event({"choices": [{"delta": {"content": "spectool.continuation"}}]})) is None
    assert marker_in(event("spectool.continuation")) is None
    assert resolved_in({"version": 2, "resolved": [record()]}) is None
    assert resolved_in({"version": 1, "resolved": []}) is None
    assert resolved_in({"version": 1, "resolved": [{"tool_call_id": 1}]}) is None
    assert resolved_in(None) is None
