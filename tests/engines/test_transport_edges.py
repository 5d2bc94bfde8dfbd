"""Where answers break off, and the same by blocking."""

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from langchain_spectool._runtime.pool import POOL
from langchain_spectool.engines import ToolCacheTransport
from langchain_spectool.engines.flows import SyncFlow
from langchain_spectool.engines.libraries import library_of
from langchain_spectool.engines.model_call import CURRENT
from tests.engines.stage import THREADS_S, Stage, look, settle
from tests.engines.wire import (
    ASKED,
    BOTH,
    JSON,
    PLAIN,
    URL,
    Network,
    Play,
    assistant,
    calling,
    event,
    marker,
    next_request,
    saying,
    whole,
)


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
    plain = json.dumps(whole(assistant())).encode()
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
    settle(stage)
    assert stage.ask(next_request()) == saying("new")
    assert stage.network.plays[0].closed
    half = Stage(Network(Play([calling() + marker() + saying()[:200]])))
    half.ask(ASKED)
    settle(half)
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
    settle(stage)
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
        await look()
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
    await look()
    assert stage.network.plays[0].closed
    assert stage.scope.parked == []


async def test_a_run_that_cannot_be_awaited_ends_all_the_same() -> None:
    """What is parked on a loop is closed there, in the background."""
    stage = Stage(Network(Play([BOTH])))
    await stage.aask(ASKED)
    await look()
    stage.scope.end()
    await look()
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


@pytest.mark.parametrize(("version", "ends"), [(b"HTTP/1.1", True), (b"HTTP/2", False)])
def test_a_shared_connection_is_not_shut_down(version: bytes, ends: bool) -> None:
    """Under a thread that reads, a connection is shut down, unless others have streams on it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = SimpleNamespace(get_extra_info=lambda _: ours)
        extensions = {"http_version": version, "network_stream": stream}
        flow = SyncFlow(httpx.Response(200, content=b"", extensions=extensions))
        flow.close()
        theirs.settimeout(0.01)
        if ends:
            assert theirs.recv(1) == b""
        else:
            with pytest.raises(TimeoutError):
                theirs.recv(1)


def test_requests_that_are_not_ours_pass_in_threads() -> None:
    """Those of nobody, those that cannot have our field, and those of no model's kind."""
    network = Network(*(Play([BOTH]) for _ in range(3)))
    with httpx.Client(transport=ToolCacheTransport(network)) as client:
        assert client.post(URL, json=ASKED).content == BOTH
    stage = Stage(network)
    own = {**ASKED, "vllm_xargs": {"spectool_key": "theirs"}}
    assert stage.ask(own) == BOTH
    token = CURRENT.set(stage.begin())
    with httpx.Client(transport=ToolCacheTransport(network)) as client:
        assert client.put(URL, json=ASKED).content == BOTH
    CURRENT.reset(token)
    assert network.bodies == [ASKED, own, ASKED]
    stage.scope.end()
