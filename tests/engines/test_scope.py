"""What a run has with an engine: told in the background, in time, and nothing after its end."""

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest

from langchain_spectool._runtime.driver import AsyncDriver, ThreadDriver
from langchain_spectool._runtime.pool import POOL
from langchain_spectool._runtime.timers import later
from langchain_spectool.engines import Breaker, Entry, ToolCacheClient
from langchain_spectool.engines.scope import EngineScope
from tests.engines.stage import Posts, Stage
from tests.engines.wire import ASKED, Network, Play, saying

SOON_S = 2.0


def _entry(city: str = "Rome") -> Entry:
    return Entry(name="weather", params={"city": city}, output=f"18C in {city}")


class _Slow(Posts):
    """Takes its time."""

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self.wait_s = wait_s
        self.cancelled = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            await asyncio.sleep(self.wait_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.handle_request(request)


def _scope(posts: httpx.AsyncBaseTransport, **options: Any) -> tuple[EngineScope, list[str]]:
    client = ToolCacheClient("http://engine/v1", async_transport=posts, **options)
    said: list[str] = []
    loop = asyncio.get_running_loop()
    scope = EngineScope(client, lambda event: said.append(event.verdict), loop.time)
    return scope, said


async def test_what_waits_goes_together() -> None:
    """One request at a time: what lands meanwhile is told in the next."""
    posts = _Slow(0.1)
    scope, said = _scope(posts)
    call = scope.begin(AsyncDriver(asyncio.get_running_loop()), {})
    call.post(_entry("Rome"))
    await asyncio.sleep(0.05)
    call.post(_entry("Oslo"))
    call.post(_entry("Bern"))
    await asyncio.sleep(1.0)
    cities = [[each["params"]["city"] for each in body] for _, _, body in posts.told]
    assert cities == [["Rome"], ["Oslo", "Bern"]]
    assert said == ["posted"] * 3
    await scope.aend()


async def test_nobody_waits_for_a_slow_engine() -> None:
    """A post takes no time of its caller's; at its deadline it is given up, and counts."""
    loop = asyncio.get_running_loop()
    posts = _Slow(60.0)
    scope, said = _scope(posts, timeout_s=0.5, breaker=Breaker(patience=2))
    call = scope.begin(AsyncDriver(loop), {})
    call.post(_entry())
    assert loop.time() == 0.0
    await asyncio.sleep(0.6)
    assert said == ["failed"]
    call.post(_entry())
    await asyncio.sleep(0.6)
    call.post(_entry())
    await asyncio.sleep(0.0)
    assert said == ["failed", "failed", "resting"]
    assert posts.cancelled == 2
    await scope.aend()


async def test_no_post_outlives_its_run() -> None:
    """What is on its way when the run ends is cancelled, and says nothing about the engine."""
    posts = _Slow(0.5)
    scope, said = _scope(posts, breaker=Breaker(patience=1))
    call = scope.begin(AsyncDriver(asyncio.get_running_loop()), {})
    call.post(_entry())
    await asyncio.sleep(0.1)
    await scope.aend()
    await asyncio.sleep(0.0)
    assert posts.cancelled == 1
    assert not scope.client.resting
    call.post(_entry())
    await asyncio.sleep(1.0)
    # The engine may have taken the cancelled one: it is asked to forget, and told nothing else.
    assert [method for method, _, _ in posts.told] == ["DELETE"]
    assert said == ["late"]


async def test_a_changed_world_is_forgotten() -> None:
    """The engine is told once, and takes no more for that response."""
    stage = Stage(Network(Play([saying()])))
    call = stage.begin()
    call.post(_entry())
    await asyncio.sleep(0.1)
    stage.scope.forget()
    stage.scope.forget()
    call.post(_entry("Oslo"))
    await asyncio.sleep(0.1)
    assert [method for method, _, _ in stage.posts.told] == ["POST", "DELETE"]
    assert len(set(stage.posts.keys)) == 1
    await stage.aask(ASKED)
    await stage.scope.aend()


async def test_what_was_told_for_a_request_that_never_came_is_forgotten() -> None:
    """The end of the run says so; responses that came are forgotten by the engine itself."""
    stage = Stage(Network(Play([saying()])))
    call = stage.begin()
    call.post(_entry())
    await asyncio.sleep(0.1)
    await stage.scope.aend()
    await asyncio.sleep(0.1)
    assert [method for method, _, _ in stage.posts.told] == ["POST", "DELETE"]


async def test_a_caller_with_an_id_of_his_own_has_it_told_again() -> None:
    """What was told under our name is told under theirs."""
    stage = Stage(Network(Play([saying()])))
    call = stage.begin()
    call.post(_entry())
    await asyncio.sleep(0.1)
    call.reseat("mine")
    await asyncio.sleep(0.1)
    paths = [path for _, path, _ in stage.posts.told]
    assert paths[1] == "/v1/cache-tool-output/chatcmpl-mine"
    assert len(set(paths)) == 2
    await stage.scope.aend()


async def test_what_lands_late_goes_to_the_next_call() -> None:
    """The response it was guessed for is over; the next one may still use it."""
    stage = Stage(Network(Play([saying()])))
    first = stage.begin()
    first.seat.over = first.asked = True
    second = stage.begin()
    assert stage.scope.current(first, "weather") is second
    second.seat.over = second.asked = True
    assert stage.scope.current(first, "weather") is None
    assert stage.verdicts[-1] == "late"
    first.post(_entry())
    assert stage.verdicts[-1] == "late"
    await stage.scope.aend()
    assert stage.posts.told == []


def test_in_threads() -> None:
    """By blocking: told in a thread of the pool, forgotten in another."""
    told = threading.Event()

    class _Telling(Posts):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            told.set()
            return response

    stage = Stage(Network(), posts=_Telling())
    call = stage.begin()
    assert isinstance(stage.driver, ThreadDriver)
    call.post(_entry())
    assert told.wait(SOON_S)
    told.clear()
    stage.scope.end()
    assert told.wait(SOON_S)
    assert [method for method, _, _ in stage.posts.told] == ["POST", "DELETE"]


def test_a_connection_is_closed_after_its_last_use() -> None:
    """Not under the thread that posts over it when the run ends: that could leave it open."""
    entered, go, closed = threading.Event(), threading.Event(), threading.Event()

    class _Held(Posts):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            entered.set()
            assert go.wait(SOON_S)
            return super().handle_request(request)

    stage = Stage(Network(), posts=_Held())
    stage.begin().post(_entry())
    assert entered.wait(SOON_S)
    connection = stage.scope._connection
    assert connection is not None
    own = connection.close
    connection.close = lambda: (own(), closed.set())[0]  # type: ignore[method-assign]
    stage.scope.end()
    assert not connection.is_closed
    go.set()
    assert closed.wait(SOON_S)
    assert stage.scope._connection is None


def test_a_full_pool_costs_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread is free, nothing is told."""
    monkeypatch.setattr(POOL, "submit", lambda _: False)
    stage = Stage(Network())
    stage.begin().post(_entry())
    assert stage.verdicts == ["failed"]
    assert stage.posts.told == []
    stage.scope.end()


def test_bodies_are_json() -> None:
    """What is told is what an entry says."""
    assert json.loads(json.dumps(_entry().fields()))["uses"] == 1


async def test_later_on_a_loop() -> None:
    """It is called on the loop, unless that is taken back."""
    called: list[str] = []
    later(1.0, lambda: called.append("a"))
    later(1.0, lambda: called.append("b"))()
    await asyncio.sleep(0.9)
    assert called == []
    cancel = later(1.0, lambda: called.append("c"))
    await asyncio.to_thread(cancel)
    await asyncio.sleep(2.0)
    assert called == ["a"]


def test_later_in_a_thread() -> None:
    """Without a loop a daemon thread waits, and goes when that is taken back."""
    called = threading.Event()
    later(0.001, called.set)
    assert called.wait(SOON_S)
    cancel = later(60.0, called.clear)
    (timer,) = [each for each in threading.enumerate() if each.name == "spectool-timer"]
    cancel()
    timer.join(SOON_S)
    assert not timer.is_alive()
    assert called.is_set()


async def test_a_retry_is_told_nothing_from_before_the_change() -> None:
    """Its response gets a new name, and only what has landed since."""
    stage = Stage(Network(Play([saying()])))
    call = stage.begin()
    call.post(_entry())
    await asyncio.sleep(0.1)
    stage.scope.forget()
    call.post(_entry("Oslo"))
    await asyncio.sleep(0.1)
    call.reseat()
    await asyncio.sleep(0.1)
    told = [(method, body and body[0]["params"]["city"]) for method, _, body in stage.posts.told]
    assert told == [("POST", "Rome"), ("DELETE", None), ("POST", "Oslo")]
    stage.scope.end()
