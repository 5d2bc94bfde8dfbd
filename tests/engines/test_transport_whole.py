"""Answers in one piece: one body may answer several model calls."""

import json
from typing import Any

import pytest

from tests.engines.stage import LIBRARIES, Stage
from tests.engines.wire import (
    JSON,
    PLAIN,
    Json,
    Network,
    Play,
    assistant,
    next_request,
    record,
    saying,
    tool_message,
    whole,
)

SUNNY = whole({"role": "assistant", "content": "sunny"}, "chatcmpl-a.1")


def _resident(*continuations: Json, **fields: Any) -> bytes:
    report = {"version": 1, "resolved": [record()], "continuations": [*continuations], **fields}
    return json.dumps(whole(assistant(), spectool=report)).encode()


@LIBRARIES
async def test_one_body_answers_two_calls(library: str) -> None:
    """Our field is taken out; what followed answers the next call."""
    body = _resident(SUNNY)
    stage = Stage(Network(Play([body[:30], body[30:]], headers=JSON)), library=library)
    async with stage.aasking(PLAIN) as response:
        said = json.loads(await response.aread())
        assert response.headers["content-length"] == str(len(response.content))
    assert said == whole(assistant())
    assert json.loads(await stage.aask(next_request(PLAIN))) == SUNNY
    assert len(stage.network.bodies) == 1
    assert stage.scope.parked == []


@LIBRARIES
def test_one_body_answers_three_calls_in_threads(library: str) -> None:
    """By blocking, and further: a continuation may be resolved itself."""
    second = ("c2", "weather", {"city": "Oslo"})
    report = {"version": 1, "turn": 2, "resolved": [record(second, "2C")]}
    middle = whole(assistant(second), "chatcmpl-a.1")
    last = {**SUNNY, "id": "chatcmpl-a.2"}
    body = _resident({**middle, "spectool": report}, last)
    stage = Stage(Network(Play([body], headers=JSON)), library=library)
    assert json.loads(stage.ask(PLAIN)) == whole(assistant())
    asked = next_request(PLAIN)
    assert json.loads(stage.ask(asked)) == middle
    following = next_request(asked, assistant(second), tool_message("c2", "2C"))
    assert json.loads(stage.ask(following)) == last
    assert len(stage.network.bodies) == 1
    stage.scope.end()


async def test_a_body_without_our_field_keeps_its_bytes() -> None:
    """Not even its spaces change."""
    body = json.dumps(whole(assistant()), indent=3).encode()
    stage = Stage(Network(Play([body], headers={**JSON, "content-length": str(len(body))})))
    assert await stage.aask(PLAIN) == body


@pytest.mark.parametrize(
    "body",
    [
        _resident(),
        _resident(SUNNY, version=2),
        _resident(SUNNY, resolved=[]),
        json.dumps(whole(assistant(), spectool="odd")).encode(),
    ],
)
async def test_what_is_not_understood_is_dropped(body: bytes) -> None:
    """The answer is there; what may follow is asked for again."""
    stage = Stage(Network(Play([body], headers=JSON), Play([saying()])))
    assert json.loads(await stage.aask(PLAIN)) == whole(assistant())
    assert await stage.aask(next_request(PLAIN)) == saying()


async def test_broken_json_passes() -> None:
    """It is for the SDK to complain."""
    stage = Stage(Network(Play([b'{"spectool": '], headers=JSON)))
    assert await stage.aask(PLAIN) == b'{"spectool": '


@pytest.mark.parametrize("odd", [5, "x", None, {}, {"error": {"message": "busy"}}, {"choices": []}])
async def test_a_continuation_that_is_no_answer_is_asked_for_again(odd: Any) -> None:
    """As a stream that breaks before it begins."""
    stage = Stage(Network(Play([_resident(odd)], headers=JSON), Play([saying()])))
    assert json.loads(await stage.aask(PLAIN)) == whole(assistant())
    assert await stage.aask(next_request(PLAIN)) == saying()


async def test_whatever_json_can_escape_passes() -> None:
    """Half a pair of surrogates, which UTF-8 cannot hold."""
    said = whole({"role": "assistant", "content": "\ud83d"})
    body = json.dumps({**said, "spectool": {"version": 1}}).encode()
    stage = Stage(Network(Play([body], headers=JSON)))
    assert json.loads(await stage.aask(PLAIN)) == said
