"""The client of an engine: what it says, and that nobody ever waits for it or hears it fail."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from langchain_spectool._core.contracts import Contract
from langchain_spectool.engines import Breaker, Entry, ToolCacheClient
from langchain_spectool.engines.client import origin_of
from langchain_spectool.engines.entries import MOST_CHARACTERS, entry_for, may_tell

ENTRY = Entry(name="weather", params={"city": "Rome"}, output="18C", keep_alive_s=2.5)


class _Engine(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers as `answer` says, after `wait_s` seconds where it is awaited."""

    def __init__(self, answer: Callable[[], httpx.Response], wait_s: float = 0.0) -> None:
        self.answer = answer
        self.wait_s = wait_s
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        await asyncio.sleep(self.wait_s)
        return self.answer()


def _client(engine: _Engine, **options: Any) -> ToolCacheClient:
    url = options.pop("base_url", "http://engine:8000/v1/")
    return ToolCacheClient(url, transport=engine, async_transport=engine, **options)


def _status(status: int) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, json={"cached": 1})


def _raising(error: Exception) -> Callable[[], httpx.Response]:
    def answer() -> httpx.Response:
        raise error

    return answer


def test_what_goes_over_the_wire() -> None:
    """An array of entries, under the response's id, with its key."""
    engine = _Engine(_status(200))
    client = _client(engine, api_key="secret", headers={"X-Team": "a"})
    assert client.put("chatcmpl-a/b", [ENTRY], key="k", headers={"Authorization": "no"}) == "ok"
    (request,) = engine.requests
    assert str(request.url) == "http://engine:8000/v1/cache-tool-output/chatcmpl-a%2Fb"
    assert request.headers["X-Spectool-Key"] == "k"
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["X-Team"] == "a"
    assert request.content == (
        b'[{"name":"weather","params":{"city":"Rome"},"output":"18C","uses":1,"keep_alive":2.5}]'
    )
    assert client.proven


async def test_deleting() -> None:
    """It has no body, and the same key."""
    engine = _Engine(_status(200))
    client = _client(engine)
    assert await client.adelete("chatcmpl-a", key="k", headers={"Authorization": "yes"}) == "ok"
    assert client.delete("chatcmpl-a", key="k") == "ok"
    assert [request.method for request in engine.requests] == ["DELETE", "DELETE"]
    assert engine.requests[0].headers["Authorization"] == "yes"


@pytest.mark.parametrize(
    ("status", "reply", "rests"),
    [
        (200, "ok", False),
        (400, "rejected", False),
        (413, "rejected", False),
        (401, "refused", True),
        (404, "refused", True),
        (405, "refused", True),
        (501, "refused", True),
        (500, "failed", False),
        (302, "failed", False),
    ],
)
async def test_what_a_status_means(status: int, reply: str, rests: bool) -> None:
    """Who cannot or may not is left alone at once; who fails has a few tries."""
    client = _client(_Engine(_status(status)))
    assert await client.aput("a", [ENTRY], key="k") == reply
    assert client.resting is rests
    other = _client(_Engine(_status(status)))
    assert other.put("a", [ENTRY], key="k") == reply
    assert other.resting is rests


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("no"), httpx.ReadTimeout("slow"), OSError("odd"), ValueError("x")]
)
async def test_nothing_is_raised(error: Exception) -> None:
    """Whatever goes wrong is in the reply."""
    client = _client(_Engine(_raising(error)))
    assert await client.aput("a", [ENTRY], key="k") == "failed"
    assert client.put("a", [ENTRY], key="k") == "failed"
    assert client.delete("a", key="k") == "failed"
    assert client.put("a", [ENTRY], key="k") == "resting"


async def test_after_failures_it_rests_and_tries_again() -> None:
    """Each rest is twice as long; one good answer ends them."""
    loop = asyncio.get_running_loop()
    engine = _Engine(_status(503))
    client = _client(engine, breaker=Breaker(patience=2, rest_s=1.0, rest_at_most_s=3.0))
    replies = []
    for _ in range(32):
        replies.append((loop.time(), await client.aput("a", [ENTRY], key="k")))
        await asyncio.sleep(0.25)
    tried = [at_s for at_s, reply in replies if reply == "failed"]
    assert tried == [0.0, 0.25, 1.25, 3.25, 6.25]
    engine.answer = _status(200)
    await asyncio.sleep(3.0)
    assert await client.aput("a", [ENTRY], key="k") == "ok"
    assert await client.aput("a", [ENTRY], key="k") == "ok"


async def test_what_the_engine_did_not_keep() -> None:
    """The response has ended, or there is no room: nothing is wrong with the engine."""
    engine = _Engine(lambda: httpx.Response(200, json={"cached": 0}))
    client = _client(engine)
    assert await client.aput("a", [ENTRY], key="k") == "unkept"
    assert client.proven
    engine.answer = lambda: httpx.Response(200, content=b"fine")
    assert client.put("a", [ENTRY], key="k") == "ok"


@pytest.mark.parametrize("status", [401, 403, 404, 405, 501])
async def test_an_engine_without_the_cache_is_asked_once_a_minute(status: int) -> None:
    """A post finds out as well as a question would; whoever posts meanwhile is not heard."""
    engine = _Engine(_status(status))
    client = _client(engine)
    for _ in range(230):
        await asyncio.gather(*(client.aput("a", [ENTRY], key="k") for _ in range(5)))
        await client.adelete("a", key="k")
        await asyncio.sleep(0.5)
    # Five go out at once before the first is answered; then one after each minute.
    assert len(engine.requests) == 5 + 1
    assert client.resting


def test_only_one_tries_after_a_rest() -> None:
    """The others wait for what becomes of it."""
    breaker = Breaker(patience=1, rest_s=1.0)
    breaker.failed(0.0)
    assert not breaker.passes(0.5)
    assert breaker.passes(1.0)
    assert not breaker.passes(1.0)
    assert breaker.resting(1.5)
    breaker.succeeded()
    assert breaker.passes(1.5)
    assert breaker.passes(1.5)


async def test_a_connection_closed_under_a_request_is_no_failure() -> None:
    """The run has ended: that says nothing about the engine."""
    client = _client(_Engine(_raising(RuntimeError("closed"))), breaker=Breaker(patience=1))
    connection = client.aconnection()
    await connection.aclose()
    assert await client.aput("a", [ENTRY], key="k", over=connection) == "failed"
    assert not client.resting


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "engine:8000"}, "an engine is at an HTTP URL"),
        ({"base_url": "ftp://engine"}, "an engine is at an HTTP URL"),
        ({"timeout_s": 0}, "`timeout_s` must be seconds above 0, got 0"),
        ({"parked_for_s": -1}, "`parked_for_s` must be seconds above 0, got -1"),
        ({"audience": "all"}, "`audience` must be one of local, internal, external; got 'all'"),
    ],
)
def test_values_out_of_range(options: dict[str, Any], message: str) -> None:
    """A client that cannot work says so when it is made."""
    with pytest.raises(ValueError, match=message):
        _client(_Engine(_status(200)), **options)


def test_origins() -> None:
    """A port that goes without saying is the same port."""
    assert origin_of("http://a/v1") == origin_of("http://a:80")
    assert origin_of("https://a") != origin_of("http://a")
    assert origin_of("https://a:8443/v1") == ("https", "a", 8443)


def test_the_names_of_this_machine_are_one_place() -> None:
    """On one port."""
    here = origin_of("http://localhost:8000/v1")
    assert origin_of("http://127.0.0.1:8000") == origin_of("http://[::1]:8000/v1") == here
    assert origin_of("http://127.0.0.1:8001") != here
    assert origin_of("http://0.0.0.0:8000") != here


def test_secure_engines_share_their_certificates() -> None:
    """They are read once, not for every run."""
    client = ToolCacheClient("https://engine/v1")
    with client.connection(), client.connection():
        pass
    assert client._verify is not True


# --- what is told


@pytest.mark.parametrize(
    ("engine", "contract", "told"),
    [
        ("internal", "local", False),
        ("internal", "internal", True),
        ("internal", "external", True),
        ("external", "internal", False),
        ("external", "external", True),
        ("local", "local", True),
    ],
)
def test_audiences(engine: Any, contract: Any, told: bool) -> None:
    """A guess goes no further than its contract says."""
    assert may_tell(engine, Contract(audience=contract)) is told


def test_entries_of_contracts() -> None:
    """One use, unless equal calls may share; no longer than the result is fresh."""
    entry = entry_for("t", {"a": 1}, "x", Contract(), 0.5)
    assert entry == Entry(name="t", params={"a": 1}, output="x")
    shared = entry_for("t", {}, "x", Contract(deterministic=True, fresh_for_s=2.0), 0.5)
    assert shared is not None
    assert shared.fields() == {"name": "t", "params": {}, "output": "x", "keep_alive": 1.5}
    assert entry_for("t", {}, "x", Contract(fresh_for_s=2.0), 2.0) is None


@pytest.mark.parametrize(
    "output", [None, ["block"], {"a": 1}, "x" * (MOST_CHARACTERS + 1), "\ud800"]
)
def test_outputs_that_are_not_told(output: object) -> None:
    """Only what a tool message holds as plain text, and not too much of it."""
    assert entry_for("t", {}, output, Contract(), 0.0) is None


@pytest.mark.parametrize(
    "args", [{"a": float("nan")}, {"a": object()}, {"a": (1, 2)}, {"a": "\ud800"}]
)
def test_arguments_that_are_not_told(args: dict[str, Any]) -> None:
    """What JSON cannot hold as it is cannot be compared."""
    assert entry_for("t", args, "x", Contract(), 0.0) is None


def test_the_clients_own_headers_win_however_they_are_spelled() -> None:
    """A gateway's key is not replaced by the model's."""
    engine = _Engine(_status(200))
    client = _client(engine, headers={"authorization": "Bearer gateway"})
    client.put("chatcmpl-a", [ENTRY], key="k", headers={"Authorization": "Bearer model"})
    assert engine.requests[0].headers.get_list("Authorization") == ["Bearer gateway"]


@contextlib.contextmanager
def _trickling() -> Iterator[str]:
    """Serve an answer whose first line never ends, byte by byte, until its reader goes."""
    gone = threading.Event()

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 ")
            while not gone.wait(0.002):
                connection.sendall(b"O")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        gone.set()
        server.join()


def test_an_engine_that_trickles_is_given_up() -> None:
    """The time is that of the whole request: each byte may come soon, and the last one never."""
    with _trickling() as url:
        client = ToolCacheClient(url, timeout_s=0.05)
        assert client.put("chatcmpl-a", [ENTRY], key="k") == "failed"


def test_an_engine_that_trickles_is_given_up_when_awaited() -> None:
    """The same on a loop."""
    with _trickling() as url:
        client = ToolCacheClient(url, timeout_s=0.05)
        assert asyncio.run(client.aput("chatcmpl-a", [ENTRY], key="k")) == "failed"
