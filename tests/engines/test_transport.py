"""The transport, byte by byte: one network request may answer several model calls."""

import asyncio
import gzip
from itertools import pairwise

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_spectool.engines import Entry
from langchain_spectool.engines.seats import Seat
from tests.engines.stage import LIBRARIES, Posts, Stage, look, settle, untouched
from tests.engines.wire import (
    ASKED,
    BOTH,
    CALL,
    JSON,
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


@LIBRARIES
async def test_one_request_answers_two_calls(library: str) -> None:
    """The first answer ends at its own end; the second is a whole ordinary stream."""
    stage = Stage(Network(Play([BOTH])), library=library)
    assert await stage.aask(ASKED) == calling()
    await look()
    assert await stage.aask(next_request()) == saying()
    await look()
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
    settle(stage)
    assert stage.ask(next_request()) == saying()
    settle(stage)
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
        await look()
        assert await stage.aask(next_request()) == aside + second
        await look()
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
    await look()
    asked = next_request()
    assert await stage.aask(asked) == calling("chatcmpl-a.1", second)
    await look()
    last = next_request(asked, assistant(second), tool_message("c2", "2C"))
    assert await stage.aask(last) == saying()
    assert len(stage.network.bodies) == 1


async def test_an_answer_without_more_leaves_nothing() -> None:
    """The body ends after the answer: its connection goes back, and the next call asks anew."""
    stage = Stage(Network(Play([calling(), b": bye\n\n"]), Play([saying()])))
    assert await stage.aask(ASKED) == calling()
    await look()
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
    await look()
    assert await stage.aask(other) == saying("else")
    await look()
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
    await look()
    await stage.scope.aend()
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []
    assert await untouched(stage) == ASKED


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
    await look()
    assert slow.network.plays[0].closed
    assert slow.verdicts == ["dropped"]


@pytest.mark.parametrize("waits_s", [0.0, 0.04])
async def test_an_answer_that_was_the_last_drops_nothing(waits_s: float) -> None:
    """However late its body ends: it is an ordinary round trip."""
    stage = Stage(Network(Play([calling(), waits_s]), Play([saying("new")])))
    await stage.aask(ASKED)
    assert await stage.aask(next_request()) == saying("new")
    assert stage.verdicts == []
    assert stage.network.plays[0].closed


async def test_the_rest_is_cut_off_before_it_begins() -> None:
    """Nothing of it was handed out yet: the request is sent instead."""
    ping, error = b": ping\n\n", event({"error": {"message": "no"}})
    for rest in ([], [ping], [httpx.ReadError("gone")], [error], [ping, error]):
        stage = Stage(Network(Play([calling() + marker(), *rest]), Play([saying("new")])))
        await stage.aask(ASKED)
        await look()
        assert await stage.aask(next_request()) == saying("new")
        assert stage.network.plays[0].closed


@LIBRARIES
async def test_the_rest_is_cut_off_in_the_middle(library: str) -> None:
    """Half an answer is not passed off as a whole one: it fails as a broken connection does."""
    half = saying()[:200]
    stage = Stage(Network(Play([calling() + marker() + half])), library=library)
    await stage.aask(ASKED)
    await look()
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
    assert await untouched(stage) == ASKED
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


async def test_branches_of_one_run_go_on_each_from_its_own() -> None:
    """Two conversations are parked side by side; each next call finds its own."""
    other = {**ASKED, "messages": [{"role": "user", "content": "ho"}]}
    plays = [Play([BOTH]), Play([BOTH.replace(b"sunny", b"rainy")])]
    stage = Stage(Network(*plays), step=1)
    await stage.aask(ASKED)
    await stage.aask(other)
    await look()
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
    await look()
    assert [play.closed for play in plays] == [True] + [False] * 8
    await stage.scope.aend()
    assert all(play.closed for play in plays)


async def test_a_call_that_is_parked_for_is_told_of_under_its_name() -> None:
    """Posts for the next turn reach the response that may answer it, or the one sent instead."""
    stage = Stage(Network(Play([BOTH]), Play([saying()])), posts=Posts())
    await stage.aask(ASKED)
    await look()
    resident: Seat = stage.scope.parked[0].seat
    call = stage.begin()
    call.post(Entry(name="weather", params={"city": "Oslo"}, output="2C"))
    await look()
    assert [path for _, path, _ in stage.posts.told] == [
        f"/v1/cache-tool-output/{resident.response_id}"
    ]
    assert stage.posts.keys == [resident.key]
    assert call.seat is resident
    assert CALL[0] == "c1"


@pytest.mark.parametrize(
    ("url", "key"), [(f"{URL}?version=2", "one"), (URL.replace("v1", "v2"), "one"), (URL, "two")]
)
async def test_a_request_that_goes_elsewhere_is_sent(url: str, key: str) -> None:
    """To another address, or with another key: whoever is asked there has not answered yet."""
    stage = Stage(Network(Play([BOTH]), Play([saying("anew")])))
    await stage.aask(ASKED, authorization="one")
    await look()
    body = next_request()
    assert await stage.aask(body, url=url, authorization=key) == saying("anew")
    assert stage.verdicts == ["dropped"]
    await stage.scope.aend()
