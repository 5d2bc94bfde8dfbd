"""The reference engine over HTTP, on loopback; the contract suite has the tool cache itself."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from vllm_spectool.reference import (
    Prompt,
    Reference,
    ReferenceSettings,
    call,
    laptop_model,
    scripted,
    serving,
)
from vllm_spectool.reference.app import build_app
from vllm_spectool.web import PARSED_IN_PLACE

HI = {"messages": [{"role": "user", "content": "hi"}]}


def client(url: str) -> httpx.Client:
    """Return a client that no proxy stands before."""
    return httpx.Client(base_url=url, timeout=30, trust_env=False)


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread brings about; fail after ten seconds."""
    for _ in range(2000):
        if true():
            return
        time.sleep(0.005)
    pytest.fail("it never came about")


def test_models_health_and_metrics() -> None:
    """What a load balancer and a dashboard ask for."""
    service = Reference(scripted("Done."))
    with serving(service) as url, client(url) as http:
        assert http.get("/health").status_code == 200
        (card,) = http.get("/v1/models").json()["data"]
        assert (card["id"], card["max_model_len"]) == ("reference", 8192)
        extra = {"vllm_xargs": {"spectool_key": "k" * 22}}
        http.post("/v1/chat/completions", json={**HI, **extra})
        text = http.get("/metrics").text
        assert 'vllm:spectool_turns_total{outcome="answered"} 1\n' in text
        assert "vllm:spectool_blocks_used 0\n" in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_frees_everything(nothing_left: dict[str, int], stream: bool) -> None:
    """Within a response that would go on for a very long time."""
    service = Reference(
        lambda _: "a" * 100_000,
        settings=ReferenceSettings(token_s=0.001),
    )
    with serving(service) as url:
        host, port = re.findall(r"//(.*):(\d+)", url)[0]
        with socket.create_connection((host, int(port))) as raw:
            body = json.dumps({**HI, "stream": stream, "max_tokens": 8000})
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
            raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: service.engine.work.decoded_tokens > 3)
            assert service.left()["blocks"] > 0
        until(lambda: service.left() == nothing_left)
    assert service.engine.work.decoded_tokens < 8000


def test_leaving_ends_what_is_open(nothing_left: dict[str, int]) -> None:
    """The server's thread, its connections and its requests."""
    service = Reference(lambda _: "a" * 100_000, settings=ReferenceSettings(token_s=0.001))
    threads = threading.active_count()
    with serving(service) as url, client(url) as http:
        asked = {**HI, "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=asked) as response:
            assert next(response.iter_text())
    assert threading.active_count() == threads
    assert service.left() == nothing_left


def test_without_the_cache_its_routes_are_not_there() -> None:
    """404 says that it is off; the rest works, and a key changes nothing."""
    service = Reference(scripted("Done."), settings=ReferenceSettings(continuations=False))
    with serving(service) as url, client(url) as http:
        assert http.get("/v1/cache-tool-output").status_code == 404
        assert http.post("/cache-tool-output/chatcmpl-1", json=[]).status_code == 404
        extra = {"vllm_xargs": {"spectool_key": "k" * 22}}
        assert http.post("/v1/chat/completions", json={**HI, **extra}).status_code == 200
    assert service.store.tally.snapshot() == {}


def test_a_cache_that_cannot_work_says_why() -> None:
    """501 on the routes that would act; the status has the reason, too."""
    service = Reference(
        scripted("Done."), settings=ReferenceSettings(unable="vLLM 0.31 is too old")
    )
    with serving(service) as url, client(url) as http:
        headers = {"X-Spectool-Key": "k" * 22}
        for refused in (
            http.post("/cache-tool-output/chatcmpl-1", json=[], headers=headers),
            http.delete("/v1/cache-tool-output/chatcmpl-1", headers=headers),
        ):
            assert refused.status_code == 501
            assert refused.json()["error"]["message"] == "vLLM 0.31 is too old"
        status = http.get("/v1/cache-tool-output").json()
        assert (status["on"], status["reason"]) == ([], "vLLM 0.31 is too old")


def test_every_route_below_v1_asks_for_a_key() -> None:
    """And the others do not, as in vLLM."""
    service = Reference(scripted("Done."), settings=ReferenceSettings(api_keys=("one", "two")))
    with serving(service) as url, client(url) as http:
        for path in ("/v1/models", "/v1/cache-tool-output", "/v1/nothing"):
            assert http.get(path).status_code == 401
            assert http.get(path).json() == {"error": "Unauthorized"}
        assert http.post("/v1/chat/completions", json=HI).status_code == 401
        headers = {"Authorization": "Bearer two"}
        assert http.post("/v1/chat/completions", json=HI, headers=headers).status_code == 200
        assert http.get("/health").status_code == 200
        assert http.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("{", "body"),
        ("[]", "body"),
        ("{}", "messages"),
        ('{"messages": 1}', "messages"),
        ('{"messages": ["x"]}', "messages"),
        ('{"messages": [{"role": "robot"}]}', "messages[0].role"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "messages"),
        ('{"messages": [{"role": "user", "content": 1}]}', "messages"),
        ('{"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}', "messages"),
        ('{"messages": [{"role": "assistant", "tool_calls": [1]}]}', "messages"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": {}, "n": 2}', "n"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": {"a": 1}}', "tools"),
        ('{"messages": [{"role": []}]}', "messages[0].role"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}', "tools[0].function"),
        ('{"tools": [{"function": {"name": 1}}]}', "tools[0].function"),
        ('{"messages": [{"role": "user", "content": "x"}], "stop": 5}', "stop"),
        ('{"messages": [{"role": "user", "content": "x"}], "stop": ["a", 1]}', "stop"),
        (
            '{"messages": [{"role": "user", "content": "x"}], "stream_options": "x"}',
            "stream_options",
        ),
        ('{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens"),
        ('{"messages": [{"role": "user", "content": "x"}], "max_tokens": 9000}', "max_tokens"),
    ],
)
def test_a_wrong_chat_request_is_a_400(body: str, field: str) -> None:
    """With the field named; nothing runs for it."""
    service = Reference(scripted("Done."))
    with serving(service) as url, client(url) as http:
        refused = http.post("/v1/chat/completions", content=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
    assert service.requests == 0


def test_a_model_that_raises_is_a_500() -> None:
    """For its request alone."""

    def model(prompt: Prompt) -> str:
        if prompt.last.text == "hi":
            raise RuntimeError("no")
        return "Done."

    with serving(Reference(model)) as url, client(url) as http:
        refused = http.post("/v1/chat/completions", json=HI)
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, 500)
        good = {"messages": [{"role": "user", "content": "ho"}]}
        assert http.post("/v1/chat/completions", json=good).status_code == 200


def test_shapes_are_vllms() -> None:
    """Names and their order in each chunk, as vLLM 0.32.0 writes them."""
    with serving(Reference(scripted(call("look", x=1)))) as url, client(url) as http:
        tools = [{"type": "function", "function": {"name": "look"}}]
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        text = http.post("/v1/chat/completions", json={**HI, **usage, "tools": tools}).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n")[:-1]]
    first, named, *_, last, total, done = events
    assert list(json.loads(first)) == ["id", "object", "created", "model", "choices"]
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    assert json.loads(first)["choices"] == [{**choice, "logprobs": None, "finish_reason": None}]
    (delta,) = json.loads(named)["choices"][0]["delta"]["tool_calls"]
    assert delta == {
        "index": 0,
        "id": delta["id"],
        "type": "function",
        "function": {"name": "look", "arguments": ""},
    }
    assert json.loads(last)["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(total)["choices"] == []
    assert json.loads(total)["usage"]["completion_tokens"] > 0
    assert done == "[DONE]"


def test_usage_comes_only_when_asked_for() -> None:
    """As in stock streams."""
    with serving(Reference(scripted("Done."))) as url, client(url) as http:
        text = http.post("/v1/chat/completions", json={**HI, "stream": True}).text
    assert "usage" not in text


def test_the_laptop_model_calls_and_answers() -> None:
    """The tool that a user names, with what the message holds; then it says what came of it."""
    properties = {name: {"type": kind} for name, kind in (("city", "string"), ("days", "integer"))}
    parameters = {"type": "object", "properties": properties, "required": ["city", "days"]}
    names = ("search", "weather")
    tools = [{"type": "function", "function": {"name": n, "parameters": parameters}} for n in names]
    messages: list[Any] = [{"role": "user", "content": 'weather for 3 days in "New York"'}]
    with serving(Reference(laptop_model)) as url, client(url) as http:
        path = "/v1/chat/completions"
        said = http.post(path, json={"messages": messages, "tools": tools}).json()
        message = said["choices"][0]["message"]
        assert message["tool_calls"][0]["function"] == {
            "name": "weather",
            "arguments": '{"city": "New York", "days": 3}',
        }
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun"}
        messages += [message, result]
        said = http.post(path, json={"messages": messages, "tools": tools}).json()
        assert said["choices"][0]["message"]["content"] == "The answer is: sun"
        said = http.post(path, json=HI).json()
        assert said["choices"][0]["message"]["content"] == "You said: hi"


def test_it_starts_from_the_shell() -> None:
    """On a port of one's choice, with its key; it says where, and ends when told to."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm_spectool.reference", "--port", str(port)]
    command += ["--api-key", "sk-1", "--token-s", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == f"serving at http://127.0.0.1:{port}/v1\n"
            with client(f"http://127.0.0.1:{port}") as http:
                assert http.get("/health").status_code == 200
                assert http.get("/v1/models").status_code == 401
        finally:
            process.terminate()
    assert process.returncode in {0, -15}


def test_a_slow_engine_takes_its_time() -> None:
    """One `token_s` for each step, on whatever sleep it was given."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def case() -> None:
        service = Reference(scripted("abc"), settings=ReferenceSettings(token_s=0.5), sleep=sleep)
        await service.chat(json.dumps(HI).encode(), {}).whole()

    asyncio.run(case())
    assert slept == [0.5] * 4


def _entry(output: str, keys: int = 1) -> dict[str, Any]:
    many = {f"key {number}": [number, None] for number in range(keys)}
    return {"name": "look", "output": {"said": output, **many}}


def test_a_large_post_is_not_overtaken() -> None:
    """It is parsed in a thread, and later posts and deletions of its response wait for it."""

    async def case() -> tuple[list[Any], list[str]]:
        service = Reference(scripted("Done."))
        kept: list[str] = []
        own = service.put

        async def put(owner: Any, entries: Any) -> int:
            kept.append(f"{threading.current_thread().name}: {entries[0].content[:12]}")
            return await own(owner, entries)

        service.put = put  # type: ignore[method-assign]
        transport = httpx.ASGITransport(build_app(service))
        path, headers = "/cache-tool-output/chatcmpl-1", {"X-Spectool-Key": "k" * 22}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            posts = [[_entry("first", 20_000)], [_entry("second")]]
            assert len(json.dumps(posts[0])) > 10 * PARSED_IN_PLACE
            answers = await asyncio.gather(
                *(http.post(path, json=body, headers=headers) for body in posts),
                http.delete(path, headers=headers),
                http.post(path.replace("-1", "-2"), json=posts[1], headers=headers),
            )
        return [answer.json() for answer in answers], kept

    answers, kept = asyncio.run(case())
    assert answers == [{"cached": 1}, {"cached": 1}, {"deleted": 1}, {"cached": 1}]
    # Another response's post does not wait.
    assert kept == [f'MainThread: {{"said": "{text}'[:24] for text in ("second", "first", "second")]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/cache-tool-output/chatcmpl-1"])
def test_a_client_that_goes_in_the_middle_of_its_request(
    path: str, nothing_left: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing begins, nothing is logged, and the next client is served."""
    service = Reference(scripted("Done."))
    with serving(service) as url, client(url) as http:
        host, port = re.findall(r"//(.*):(\d+)", url)[0]
        with socket.create_connection((host, int(port))) as raw:
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nX-Spectool-Key: {'k' * 22}\r\n"
            raw.sendall(f"{head}Content-Length: 100\r\n\r\n[".encode())
            time.sleep(0.01)
        assert http.post("/v1/chat/completions", json=HI).status_code == 200
        until(lambda: service.left() == nothing_left)
    assert capsys.readouterr().err == ""
    assert service.requests == 1
