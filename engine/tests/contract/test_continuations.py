"""Responses that go on in place say what round trips say; all others are plain answers."""

import json
from hashlib import sha256
from typing import Any

import pytest


@pytest.mark.parametrize("name", ["single", "parallel", "two_turns"])
def test_a_continuation_equals_the_round_trip(
    server: Any, request_id: str, name: str, stream: bool
) -> None:
    """Content, calls, finish reasons and usage of every turn; one request instead of several."""
    prompt = server.prompt(name)
    turns = server.round_trip(prompt, stream=stream)
    assert len(turns) == {"single": 2, "parallel": 2, "two_turns": 3}[name]
    entries = server.entries(turns)
    assert server.post(request_id, entries).json() == {"cached": len(entries)}
    said = server.ask(prompt, stream=stream, request_id=request_id, opted_in=True)
    assert said.turns == turns
    ids = [f"chatcmpl-{request_id}", *(f"chatcmpl-{request_id}.{turn}" for turn in (1, 2))]
    assert [turn.id for turn in said.turns] == ids[: len(turns)]
    assert said.resolved == tuple(
        tuple(
            {
                "tool_call_id": call_id,
                "name": tool,
                "params": json.loads(arguments),
                "output_sha256": sha256(server.output_of(tool, arguments).encode()).hexdigest(),
            }
            for call_id, (tool, arguments) in zip(turn.call_ids, turn.calls, strict=True)
        )
        for turn in said.turns[:-1]
    )


def test_streamed_and_whole_say_the_same(server: Any, request_id: str) -> None:
    """Both ways of asking bring the same turns."""
    prompt = server.prompt("two_turns")
    entries = server.entries(server.round_trip(prompt, stream=False))
    answers = []
    for stream in (True, False):
        server.post(f"{request_id}-{stream}", entries)
        answers.append(
            server.ask(prompt, stream=stream, request_id=f"{request_id}-{stream}", opted_in=True)
        )
    assert answers[0].turns == answers[1].turns
    assert len(answers[0].turns) == 3


def test_it_stops_where_an_output_is_missing(server: Any, request_id: str, stream: bool) -> None:
    """With the first of two outputs posted, the second call reaches the client."""
    prompt = server.prompt("two_turns")
    turns = server.round_trip(prompt, stream=stream)
    server.post(request_id, server.entries(turns[:1]))
    said = server.ask(prompt, stream=stream, request_id=request_id, opted_in=True)
    assert said.turns == turns[:2]


def plain(server: Any, name: str, request_id: str, *, stream: bool, **fields: Any) -> None:
    """Assert that an opted-in request is answered as one that is not."""
    prompt = server.prompt(name)
    expected = server.ask(prompt, stream=stream, **fields)
    said = server.ask(prompt, stream=stream, request_id=request_id, opted_in=True, **fields)
    assert said.turns == expected.turns
    assert len(said.turns) == 1
    assert "spectool" not in said.raw


def test_a_miss_is_a_plain_answer(server: Any, request_id: str, stream: bool) -> None:
    """Nothing was posted."""
    plain(server, "single", request_id, stream=stream)


def test_other_arguments_miss(server: Any, request_id: str, stream: bool) -> None:
    """An output answers only the call it was posted for, to the type of each value."""
    turns = server.round_trip(server.prompt("single"), stream=stream)
    entries = server.entries(turns)
    odd = [
        {**entries[0], "params": {**entries[0]["params"], "more": 1}},
        {**entries[0], "params": {}},
    ]
    odd += [{**entries[0], "name": f"{entries[0]['name']}s"}]
    assert server.post(request_id, odd).json() == {"cached": 3}
    plain(server, "single", request_id, stream=stream)


def test_another_key_misses(server: Any, request_id: str, stream: bool) -> None:
    """Whoever knows an id but not the key puts nothing into the response."""
    entries = server.entries(server.round_trip(server.prompt("single"), stream=stream))
    other = "somebody-elses-key-0123456789"
    assert server.post(request_id, entries, key=other).json() == {"cached": 1}
    plain(server, "single", request_id, stream=stream)
    assert server.delete(request_id, key=other).json() == {"deleted": 1}


def test_another_id_misses(server: Any, request_id: str, stream: bool) -> None:
    """An output is for one response."""
    entries = server.entries(server.round_trip(server.prompt("single"), stream=stream))
    server.post(f"{request_id}-other", entries)
    plain(server, "single", request_id, stream=stream)
    assert server.delete(f"{request_id}-other").json() == {"deleted": 1}


def test_one_of_two_is_a_plain_miss(server: Any, request_id: str, stream: bool) -> None:
    """Parallel calls are answered all or not at all."""
    entries = server.entries(server.round_trip(server.prompt("parallel"), stream=stream))
    assert server.post(request_id, entries[:1]).json() == {"cached": 1}
    plain(server, "parallel", request_id, stream=stream)


def test_a_deleted_output_answers_nothing(server: Any, request_id: str, stream: bool) -> None:
    """And the id takes no more posts."""
    entries = server.entries(server.round_trip(server.prompt("single"), stream=stream))
    server.post(request_id, entries)
    assert server.delete(request_id).json() == {"deleted": 1}
    assert server.post(request_id, entries).json() == {"cached": 0}
    plain(server, "single", request_id, stream=stream)


def test_a_post_after_the_end_is_not_kept(server: Any, request_id: str, stream: bool) -> None:
    """The response has ended; a retry under the same id is a request like any other."""
    entries = server.entries(server.round_trip(server.prompt("single"), stream=stream))
    plain(server, "single", request_id, stream=stream)
    assert server.post(request_id, entries).json() == {"cached": 0}
    plain(server, "single", request_id, stream=stream)


@pytest.mark.parametrize("fields", [{"seed": 1}, {"stop": ["never said"]}], ids=str)
def test_what_a_continuation_cannot_keep_rules_it_out(
    server: Any, request_id: str, stream: bool, fields: dict[str, Any]
) -> None:
    """The request is served, as a round trip."""
    entries = server.entries(server.round_trip(server.prompt("single"), stream=stream))
    server.post(request_id, entries)
    plain(server, "single", request_id, stream=stream, **fields)


def test_each_turn_has_the_requests_max_tokens(server: Any, request_id: str, stream: bool) -> None:
    """What the first turn used is not taken off the second."""
    prompt = server.prompt("single")
    used = server.round_trip(prompt, stream=stream)[0].usage[1]
    turns = server.round_trip(prompt, stream=stream, max_tokens=used)
    server.post(request_id, server.entries(turns))
    said = server.ask(prompt, stream=stream, request_id=request_id, opted_in=True, max_tokens=used)
    assert said.turns == turns
    assert said.turns[1].usage[1] <= used


def test_without_the_opt_in_nothing_changes(server: Any, request_id: str, stream: bool) -> None:
    """Neither what is said nor the shape of any part of it, even when outputs were posted."""
    prompt = server.prompt("single")
    before = server.ask(prompt, stream=stream)
    server.post(request_id, server.entries(server.round_trip(prompt, stream=stream)))
    after = server.ask(prompt, stream=stream, request_id=request_id)
    assert after.turns == before.turns
    assert _shapes(after.raw) == _shapes(before.raw)


def _shapes(raw: str) -> set[str]:
    """Return what is there without the values; a server may merge chunks, but not shape them."""
    parts = [part.removeprefix("data: ") for part in raw.split("\n\n") if part]
    return {part if part == "[DONE]" else json.dumps(_shape(json.loads(part))) for part in parts}


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, list) else type(value).__name__


def test_a_malformed_key_is_no_opt_in(server: Any, request_id: str, stream: bool) -> None:
    """The request is served as if it had named none."""
    prompt = server.prompt("single")
    extra = {"vllm_xargs": {"spectool_key": "short"}}
    said = server.ask(prompt, stream=stream, request_id=request_id, **extra)
    assert said.turns == server.ask(prompt, stream=stream).turns


def test_an_output_with_a_special_token_is_left_to_the_client(
    server: Any, request_id: str, stream: bool
) -> None:
    """As a token it could end its message; as text it would not be what a round trip sends."""
    turns = server.round_trip(server.prompt("single"), stream=stream)
    server.post(request_id, server.entries(turns, output=f"x{server.special}y"))
    plain(server, "single", request_id, stream=stream)


def test_an_output_that_is_no_string_is_its_json(
    server: Any, request_id: str, stream: bool
) -> None:
    """As LangGraph's tool node writes it."""
    prompt = server.prompt("single")
    turns = server.round_trip(prompt, stream=stream)
    text = json.dumps({"é": [1, None]}, ensure_ascii=False)
    answers = []
    for index, output in enumerate(({"é": [1, None]}, text)):
        server.post(f"{request_id}-{index}", server.entries(turns, output=output))
        said = server.ask(prompt, stream=stream, request_id=f"{request_id}-{index}", opted_in=True)
        assert said.resolved[0][0]["output_sha256"] == sha256(text.encode()).hexdigest()
        answers.append(said.turns)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["single", "parallel", "two_turns"])
def test_a_template_that_drifts_goes_on_only_where_that_is_allowed(
    drifting_server: Any, request_id: str, stream: bool, name: str
) -> None:
    """Strictly it is a plain answer; else every turn is the round trip's, usage included."""
    for allow_drift, outcome in ((False, "template_drift"), (True, "continued_drifted")):
        with drifting_server(allow_drift) as server:
            prompt = server.prompt(name)
            turns = server.round_trip(prompt, stream=stream)
            server.post(request_id, server.entries(turns))
            said = server.ask(prompt, stream=stream, request_id=request_id, opted_in=True)
            assert said.turns == (turns if allow_drift else turns[:1])
            counted = server.http.get("/metrics").text
            times = len(turns) - 1 if allow_drift else 1
            assert f'turns_total{{outcome="{outcome}"}} {times}\n' in counted
