"""The transport, byte by byte: one network request may answer several model calls."""

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_spectool._runtime.pool import POOL
from langchain_spectool.engines import Entry, ToolCacheTransport
from langchain_spectool.engines.libraries import library_of
from langchain_spectool.engines.model_call import CURRENT
from langchain_spectool.engines.seats import Seat
from tests.engines.stage import Posts, Stage
from tests.engines.wire import (
    ASKED,
    CALL,
    URL,
    Json,
    Network,
    Play,
    assistant,
    calling,
    event,
    marker,
    next_request,
    record,
    saying,
    tool_message,
)

LIBRARIES = pytest.mark.parametrize("library", ["httpx", "httpx2"])
BOTH = calling() + marker() + saying()
JSON = {"content-type": "application/json"}
THREADS_S = 2.0


def _settle(stage: Stage) -> None:
    """Wait in real time until the thread that looks for more has looked."""
    for parked in [*stage.scope.parked]:
        assert parked.decided.within(THREADS_S)


async def _look() -> None:
    """Let the task that looks for more look."""
    await asyncio.sleep(0.01)


@LIBRARIES
async def test_one_request_answers_two_calls(library: str) -> None:
    """The first answer ends at its own end; the second is a whole ordinary stream."""
    stage = Stage(Network(Play([BOTH])), library=library)
    assert await stage.aask(ASKED) == calling()
    await _look()
    assert await stage.aask(next_request()) == saying()
    await _look()
    assert len(stage.network.bodies) == 1
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []
    assert stage.verdicts == ["continued"]
    await stage.scope.aend()
    assert stage.posts.told == []


@LIBRARIES
def test_one_request_answers_two_calls_in_threads(library: str) -> None:
    """The same, by blocking."""
    stage = Stage(Network(Play([calling(), marker(), saying()])), library=library)
    assert stage.ask(ASKED) == calling()
    _settle(stage)
    assert stage.ask(next_request()) == saying()
    _settle(stage)
    assert len(stage.network.bodies) == 1
    assert stage.network.plays[0].closed
    stage.scope.end()
    assert stage.scope.parked == []


def _cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    parts = [body[start:end] for start, end in pairwise(edges)]
    return [part for part in parts if part]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    places=st.lists(st.integers(0, 4000), max_size=12),
    comment=st.booleans(),
)
def test_chunks_fall_anywhere(end: str, places: list[int], comment: bool) -> None:
    """Wherever the network cuts the bytes, each call gets its own answer's."""
    aside = f": ping{end}{end}".encode() if comment else b""
    first, second = calling(end=end), saying(end=end)
    body = first + aside + marker(end=end) + aside + second + aside

    async def run() -> None:
        stage = Stage(Network(Play(_cut(body, places))))
        assert await stage.aask(ASKED) == first
        await _look()
        assert await stage.aask(next_request()) == aside + second
        await _look()
        assert len(stage.network.bodies) == 1
        assert stage.network.plays[0].closed

    asyncio.run(run())


async def test_three_turns_in_one_response() -> None:
    """What follows may be followed, too."""
    second = ("c2", "weather", {"city": "Oslo"})
    more = marker(record(second, "2C"), turn=2)
    body = BOTH.replace(saying(), calling("chatcmpl-a.1", second)) + more + saying()
    stage = Stage(Network(Play([body])))
    assert await stage.aask(ASKED) == calling()
    await _look()
    asked = next_request()
    assert await stage.aask(asked) == calling("chatcmpl-a.1", second)
    await _look()
    last = next_request(asked, assistant(second), tool_message("c2", "2C"))
    assert await stage.aask(last) == saying()
    assert len(stage.network.bodies) == 1


async def test_an_answer_without_more_leaves_nothing() -> None:
    """The body ends after the answer: its connection goes back, and the next call asks anew."""
    stage = Stage(Network(Play([calling(), b": bye\n\n"]), Play([saying()])))
    assert await stage.aask(ASKED) == calling()
    await _look()
    assert stage.scope.parked == []
    assert stage.network.plays[0].ended
    assert await stage.aask(next_request()) == saying()
    assert len(stage.network.bodies) == 2
    assert len({headers["x-request-id"] for headers in stage.network.headers}) == 2


@pytest.mark.parametrize(
    "other",
    [
        next_request(temperature=0.7),
        next_request(ASKED, assistant(), tool_message(content="19C")),
        next_request(ASKED, {"role": "user", "content": "another question"}),
    ],
)
async def test_another_request_gives_up_what_is_parked(other: Json) -> None:
    """The server is told by the end of its connection; the request is sent."""
    stage = Stage(Network(Play([BOTH]), Play([saying("else")])))
    await stage.aask(ASKED)
    await _look()
    assert await stage.aask(other) == saying("else")
    await _look()
    assert stage.network.plays[0].closed
    assert not stage.network.plays[0].ended
    assert "dropped" in stage.verdicts
    sent = stage.network.bodies[1]
    assert {k: v for k, v in sent.items() if k != "vllm_xargs"} == other


async def test_parked_for_too_long() -> None:
    """After its time the rest is given up, though the run goes on."""
    stage = Stage(Network(Play([BOTH]), Play([saying("late")])), parked_for_s=5.0)
    await stage.aask(ASKED)
    await asyncio.sleep(4.9)
    assert not stage.network.plays[0].closed
    await asyncio.sleep(0.2)
    assert stage.network.plays[0].closed
    assert await stage.aask(next_request()) == saying("late")
    assert stage.verdicts == ["dropped"]


async def test_the_end_of_the_run_gives_it_up() -> None:
    """Nothing is parked, and no clock runs, once the run has ended."""
    stage = Stage(Network(Play([BOTH])))
    await stage.aask(ASKED)
    await _look()
    await stage.scope.aend()
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []
    assert await _untouched(stage) == ASKED


async def _untouched(stage: Stage) -> Json:
    stage.network.plays.append(Play([saying()]))
    await stage.aask(ASKED)
    return stage.network.bodies[-1]


async def test_the_end_comes_while_it_is_unknown_whether_more_follows() -> None:
    """Who looks for more is stopped, and closes what it read."""
    stage = Stage(Network(Play([calling(), 3.0, marker()])))
    await stage.aask(ASKED)
    await asyncio.sleep(0.1)
    await stage.scope.aend()
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []


async def test_an_engine_that_says_nothing_more_and_does_not_end() -> None:
    """Whether more follows must be known soon; then the connection is closed."""
    stage = Stage(Network(Play([calling(), 60.0, marker()])))
    await stage.aask(ASKED)
    await asyncio.sleep(stage.client.timeout_s + 0.1)
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []


async def test_a_marker_that_is_late_is_waited_for_shortly() -> None:
    """A model call waits a tenth of a second at most, then asks anew."""
    loop = asyncio.get_running_loop()
    stage = Stage(Network(Play([calling(), 0.04, marker(), saying()])))
    await stage.aask(ASKED)
    assert await stage.aask(next_request()) == saying()
    assert loop.time() == pytest.approx(0.04)
    slow = Stage(Network(Play([calling(), 0.5, marker(), saying()]), Play([saying("new")])))
    await slow.aask(ASKED)
    assert await slow.aask(next_request()) == saying("new")
    assert loop.time() == pytest.approx(0.14)
    await _look()
    assert slow.network.plays[0].closed


async def test_the_rest_is_cut_off_before_it_begins() -> None:
    """Nothing of it was handed out yet: the request is sent instead."""
    for rest in ([], [httpx.ReadError("gone")], [event({"error": {"message": "no"}})]):
        stage = Stage(Network(Play([calling() + marker(), *rest]), Play([saying("new")])))
        await stage.aask(ASKED)
        await _look()
        assert await stage.aask(next_request()) == saying("new")
        assert stage.network.plays[0].closed


@LIBRARIES
async def test_the_rest_is_cut_off_in_the_middle(library: str) -> None:
    """Half an answer is not passed off as a whole one: it fails as a broken connection does."""
    half = saying()[:200]
    stage = Stage(Network(Play([calling() + marker() + half])), library=library)
    await stage.aask(ASKED)
    await _look()
    with pytest.raises(stage.module.RemoteProtocolError, match="in the middle of an answer"):
        await stage.aask(next_request())
    assert stage.network.plays[0].closed


async def test_a_truncated_answer_passes_as_it_is() -> None:
    """What stock would have shown of it is shown."""
    body = calling()[:-10]
    stage = Stage(Network(Play([body[:50], body[50:]])))
    assert await stage.aask(ASKED) == body
    assert stage.scope.parked == []


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_error_bodies_pass_untouched(status: int) -> None:
    """An error is the model's own affair."""
    body = b'{"error": {"message": "no", "spectool": 1}}'
    stage = Stage(Network(Play([body], status=status, headers=JSON)))
    async with stage.aasking(ASKED) as response:
        assert response.status_code == status
        assert await response.aread() == body
    assert stage.scope.parked == []


async def test_a_server_that_takes_no_options_is_asked_without() -> None:
    """The request is sent again as the caller wrote it, and the next ones are not touched."""
    refusal = Play([b'{"error": {"message": "extra field"}}'], status=400, headers=JSON)
    stage = Stage(Network(refusal, Play([saying()]), Play([saying()])))
    assert await stage.aask(ASKED) == saying()
    assert stage.network.bodies[1] == ASKED
    assert refusal.closed
    assert await _untouched(stage) == ASKED
    assert "refused" in stage.verdicts


async def test_a_bad_request_of_the_callers_own_stays_one() -> None:
    """It fails with and without our field: that says nothing about the server."""
    refusals = [Play([b'{"error": {"message": "bad"}}'], status=400, headers=JSON) for _ in "ab"]
    stage = Stage(Network(*refusals))
    async with stage.aasking(ASKED) as response:
        assert response.status_code == 400
    assert not stage.client.resting


async def test_compressed_answers_pass_untouched() -> None:
    """Their bytes are not ours to read; the SDK stops at the first answer by itself."""
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    stage = Stage(Network(Play([gzip.compress(BOTH)], headers=headers)))
    assert await stage.aask(ASKED) == BOTH
    assert stage.scope.parked == []


async def test_what_is_no_stream_of_events_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body without events is handed on as it comes."""
    monkeypatch.setattr("langchain_spectool.engines.sse.MOST_BYTES", 20)
    stage = Stage(Network(Play([b"x" * 15, b"y" * 15, b"z"])))
    assert await stage.aask(ASKED) == b"x" * 15 + b"y" * 15 + b"z"


async def test_a_caller_that_stops_reading_closes_the_connection() -> None:
    """Before the answer's end nothing is worth parking."""
    stage = Stage(Network(Play([BOTH[:400], BOTH[400:]])))
    async with stage.aasking(ASKED) as response:
        async for _ in response.aiter_raw():
            break
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []


async def test_reading_again_finds_the_end() -> None:
    """An SDK that drains what it has read gets nothing of the next answer."""
    stage = Stage(Network(Play([BOTH])))
    async with stage.aasking(ASKED) as response:
        assert b"".join([part async for part in response.aiter_raw()]) == calling()
        assert [part async for part in response.stream] == []


# --- what is sent


async def test_the_opt_in_is_all_that_is_added() -> None:
    """Key and id are ours; every other byte of the body is the caller's."""
    stage = Stage(Network(Play([saying()])))
    await stage.aask(ASKED, **{"X-Mine": "1"})
    sent, headers = stage.network.bodies[0], stage.network.headers[0]
    key = sent.pop("vllm_xargs")["spectool_key"]
    assert sent == ASKED
    assert len(key) >= 22
    assert headers["x-mine"] == "1"
    assert headers["content-length"] == str(len(stage.network.contents[0]))
    assert headers["x-request-id"]


async def test_the_callers_options_and_id_are_kept() -> None:
    """Ours are merged into theirs; what the engine is told goes under their id."""
    stage = Stage(Network(Play([saying()])))
    call = stage.begin()
    await stage.aask({**ASKED, "vllm_xargs": {"a": 1}}, **{"X-Request-Id": "mine"})
    options = stage.network.bodies[0]["vllm_xargs"]
    assert options.pop("spectool_key")
    assert options == {"a": 1}
    assert stage.network.headers[0]["x-request-id"] == "mine"
    assert call.seat.request_id != "mine"
    assert any(seat.request_id == "mine" for seat in stage.scope._seats)


@pytest.mark.parametrize(
    "body",
    [
        {**ASKED, "vllm_xargs": {"spectool_key": "theirs"}},
        {**ASKED, "vllm_xargs": "odd"},
        {},
    ],
)
async def test_requests_that_cannot_have_it_go_as_they_are(body: Json) -> None:
    """A caller's own key, or a body that is none."""
    stage = Stage(Network(Play([BOTH])))
    assert await stage.aask(body) == BOTH
    assert stage.network.bodies == [body]


async def test_requests_of_nobody_go_as_they_are() -> None:
    """Without a model call of a Speculation nothing is touched."""
    network = Network(Play([BOTH]))
    async with httpx.AsyncClient(transport=ToolCacheTransport(network)) as client:
        response = await client.post(URL, json=ASKED)
    assert response.content == BOTH
    assert network.bodies == [ASKED]
    assert "x-request-id" not in network.headers[0]


async def test_a_retry_goes_under_the_same_name_unless_that_is_over() -> None:
    """The engine counts requests of one name; it forgets them with the last."""
    error = Play([b"{}"], status=500, headers=JSON)
    stage = Stage(Network(error, Play([BOTH]), Play([saying()])))
    await stage.aask(ASKED)
    assert await stage.aask(ASKED) == calling()
    ids = [headers["x-request-id"] for headers in stage.network.headers]
    assert len(set(ids)) == 2


# --- answers in one piece


def _whole(message: Json, answer_id: str = "chatcmpl-a", **fields: Any) -> Json:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": answer_id, "object": "chat.completion", "choices": [choice], **fields}


PLAIN = {key: value for key, value in ASKED.items() if key != "stream"}
SUNNY = _whole({"role": "assistant", "content": "sunny"}, "chatcmpl-a.1")


def _resident(*continuations: Json, **fields: Any) -> bytes:
    report = {"version": 1, "resolved": [record()], "continuations": [*continuations], **fields}
    return json.dumps(_whole(assistant(), spectool=report)).encode()


@LIBRARIES
async def test_one_body_answers_two_calls(library: str) -> None:
    """Our field is taken out; what followed answers the next call."""
    body = _resident(SUNNY)
    stage = Stage(Network(Play([body[:30], body[30:]], headers=JSON)), library=library)
    async with stage.aasking(PLAIN) as response:
        said = json.loads(await response.aread())
        assert response.headers["content-length"] == str(len(response.content))
    assert said == _whole(assistant())
    assert json.loads(await stage.aask(next_request(PLAIN))) == SUNNY
    assert len(stage.network.bodies) == 1
    assert stage.scope.parked == []


@LIBRARIES
def test_one_body_answers_three_calls_in_threads(library: str) -> None:
    """By blocking, and further: a continuation may be resolved itself."""
    second = ("c2", "weather", {"city": "Oslo"})
    report = {"version": 1, "turn": 2, "resolved": [record(second, "2C")]}
    middle = _whole(assistant(second), "chatcmpl-a.1")
    last = {**SUNNY, "id": "chatcmpl-a.2"}
    body = _resident({**middle, "spectool": report}, last)
    stage = Stage(Network(Play([body], headers=JSON)), library=library)
    assert json.loads(stage.ask(PLAIN)) == _whole(assistant())
    asked = next_request(PLAIN)
    assert json.loads(stage.ask(asked)) == middle
    following = next_request(asked, assistant(second), tool_message("c2", "2C"))
    assert json.loads(stage.ask(following)) == last
    assert len(stage.network.bodies) == 1
    stage.scope.end()


async def test_a_body_without_our_field_keeps_its_bytes() -> None:
    """Not even its spaces change."""
    body = json.dumps(_whole(assistant()), indent=3).encode()
    stage = Stage(Network(Play([body], headers={**JSON, "content-length": str(len(body))})))
    assert await stage.aask(PLAIN) == body


@pytest.mark.parametrize(
    "body",
    [
        _resident(),
        _resident(SUNNY, version=2),
        _resident(SUNNY, resolved=[]),
        json.dumps(_whole(assistant(), spectool="odd")).encode(),
    ],
)
async def test_what_is_not_understood_is_dropped(body: bytes) -> None:
    """The answer is there; what may follow is asked for again."""
    stage = Stage(Network(Play([body], headers=JSON), Play([saying()])))
    assert json.loads(await stage.aask(PLAIN)) == _whole(assistant())
    assert await stage.aask(next_request(PLAIN)) == saying()


async def test_broken_json_passes() -> None:
    """It is for the SDK to complain."""
    stage = Stage(Network(Play([b'{"spectool": '], headers=JSON)))
    assert await stage.aask(PLAIN) == b'{"spectool": '


# --- several at once


async def test_branches_of_one_run_go_on_each_from_its_own() -> None:
    """Two conversations are parked side by side; each next call finds its own."""
    other = {**ASKED, "messages": [{"role": "user", "content": "ho"}]}
    plays = [Play([BOTH]), Play([BOTH.replace(b"sunny", b"rainy")])]
    stage = Stage(Network(*plays), step=1)
    await stage.aask(ASKED)
    await stage.aask(other)
    await _look()
    stage.step = 3
    assert await stage.aask(next_request(other)) == saying("rainy")
    assert await stage.aask(next_request()) == saying()
    assert len(stage.network.bodies) == 2


async def test_only_so_many_are_parked() -> None:
    """The oldest is given up first."""
    plays = [Play([BOTH]) for _ in range(9)]
    stage = Stage(Network(*plays), step=1)
    for number in range(9):
        await stage.aask({**ASKED, "messages": [{"role": "user", "content": str(number)}]})
    await _look()
    assert [play.closed for play in plays] == [True] + [False] * 8
    await stage.scope.aend()
    assert all(play.closed for play in plays)


async def test_a_call_that_is_parked_for_is_told_of_under_its_name() -> None:
    """Posts for the next turn reach the response that may answer it, or the one sent instead."""
    stage = Stage(Network(Play([BOTH]), Play([saying()])), posts=Posts())
    await stage.aask(ASKED)
    await _look()
    resident: Seat = stage.scope.parked[0].seat
    call = stage.begin()
    call.post(Entry(name="weather", params={"city": "Oslo"}, output="2C"))
    await _look()
    assert [path for _, path, _ in stage.posts.told] == [
        f"/v1/cache-tool-output/{resident.response_id}"
    ]
    assert stage.posts.keys == [resident.key]
    assert call.seat is resident
    assert CALL[0] == "c1"


# --- by blocking: the same edges


def test_edges_in_threads() -> None:
    """Errors, refusals, truncated answers and compressed ones pass as they do when awaited."""
    refusal = Play([b'{"error": {"message": "extra field"}}'], status=400, headers=JSON)
    stage = Stage(Network(refusal, Play([saying()])))
    assert stage.ask(ASKED) == saying()
    assert stage.network.bodies[1] == ASKED
    assert stage.client.resting
    cut = Stage(Network(Play([calling()[:-10]])))
    assert cut.ask(ASKED) == calling()[:-10]
    packed = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    assert Stage(Network(Play([gzip.compress(BOTH)], headers=packed))).ask(ASKED) == BOTH
    plain = json.dumps(_whole(assistant())).encode()
    assert Stage(Network(Play([plain], headers=JSON))).ask(PLAIN) == plain
    left = Stage(Network(Play([BOTH[:400], BOTH[400:]])))
    with left.asking(ASKED) as response:
        next(response.iter_raw())
    assert left.network.plays[0].closed


@pytest.mark.parametrize("rest", [[], [httpx.ReadError("gone")], [event({"error": "no"})]])
def test_the_rest_is_cut_off_in_threads(rest: list[Any]) -> None:
    """Before it begins the request is sent; in the middle it fails as a connection does."""
    stage = Stage(Network(Play([calling() + marker(), *rest]), Play([saying("new")])))
    stage.ask(ASKED)
    _settle(stage)
    assert stage.ask(next_request()) == saying("new")
    assert stage.network.plays[0].closed
    half = Stage(Network(Play([calling() + marker() + saying()[:200]])))
    half.ask(ASKED)
    _settle(half)
    with pytest.raises(half.module.RemoteProtocolError):
        half.ask(next_request())
    half.scope.end()


def test_parked_for_too_long_in_threads() -> None:
    """A thread looks after the time."""
    stage = Stage(Network(Play([BOTH])), parked_for_s=0.01)
    stage.ask(ASKED)
    timer = [each for each in threading.enumerate() if each.name == "spectool-timer"]
    for each in timer:
        each.join(THREADS_S)
    _settle(stage)
    _until(lambda: stage.network.plays[0].closed)
    assert stage.scope.parked == []


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + THREADS_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert done()


def test_without_a_thread_nothing_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could find out whether more follows."""
    monkeypatch.setattr(POOL, "submit", lambda _: False)
    stage = Stage(Network(Play([calling(), marker(), saying()])))
    assert stage.ask(ASKED) == calling()
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []


async def test_cancelled_while_it_waits_for_the_rest() -> None:
    """Who claimed it closes it: nobody else knows of it any more."""
    for chunks in ([calling(), 3.0, marker()], [calling() + marker(), 3.0, saying()]):
        stage = Stage(Network(Play(chunks)))
        await stage.aask(ASKED)
        await asyncio.sleep(0)
        task = asyncio.create_task(stage.aask(next_request()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _look()
        assert stage.network.plays[0].closed
        assert stage.scope.parked == []


async def test_an_answer_that_ends_after_its_run() -> None:
    """A run that is over parks nothing more."""
    stage = Stage(Network(Play([BOTH[:400], BOTH[400:]])))
    async with stage.aasking(ASKED) as response:
        parts = response.aiter_raw()
        first = await anext(parts)
        await stage.scope.aend()
        assert first + b"".join([part async for part in parts]) == calling()
    await _look()
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []


async def test_a_run_that_cannot_be_awaited_ends_all_the_same() -> None:
    """What is parked on a loop is closed there, in the background."""
    stage = Stage(Network(Play([BOTH])))
    await stage.aask(ASKED)
    await _look()
    stage.scope.end()
    await _look()
    assert stage.network.plays[0].closed


async def test_our_failure_costs_the_rest_not_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks in parking, the answer is handed out."""

    def broken(*_: object) -> None:
        msg = "planted"
        raise RuntimeError(msg)

    stage = Stage(Network(Play([BOTH]), Play([BOTH])))
    monkeypatch.setattr(stage.scope, "park", broken)
    assert await stage.aask(ASKED) == calling()
    monkeypatch.setattr(stage.scope, "claim", broken)
    assert await stage.aask(ASKED) == calling()


def test_the_transport_inside_is_closed_with_ours() -> None:
    """Who makes one by hand closes one."""
    network = Network()
    with ToolCacheTransport(network):
        pass
    assert network.closed == 1
    with pytest.raises(TypeError, match="a request of httpx or httpx2 is needed"):
        library_of(object())


async def test_other_requests_pass() -> None:
    """Only chat completions are ours."""
    stage = Stage(Network(Play([b"[]"], headers=JSON)))
    call = stage.begin()
    token = CURRENT.set(call)
    async with httpx.AsyncClient(transport=ToolCacheTransport(stage.network)) as client:
        response = await client.post("http://engine/v1/embeddings", json={"input": "x"})
    CURRENT.reset(token)
    assert response.json() == []
    assert stage.network.bodies == [{"input": "x"}]
    assert stage.network.closed == 1
