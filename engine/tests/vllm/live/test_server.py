"""What a real server holds, refuses and forgets."""

import asyncio
import random
import time
from collections.abc import Sequence
from uuid import uuid4

import httpx
from live_client import Client, defaults, streamed
from live_prompts import CITIES, TOOLS, WEATHER, single

SETTLE_S = 1.0
ENTRY = {"name": "get_weather", "params": {"city": "Paris"}, "output": WEATHER["Paris"]}


def test_both_paths_ask_for_the_servers_key(client: Client, url: str) -> None:
    """The paper's too: vLLM itself guards only what begins with /v1."""
    with httpx.Client(base_url=url, trust_env=False) as stranger:
        for path in ("/cache-tool-output/chatcmpl-a", "/v1/cache-tool-output/chatcmpl-b"):
            headers = {"X-Spectool-Key": "k" * 32}
            assert stranger.post(path, json=[ENTRY], headers=headers).status_code == 401
            assert client.http.post(path, json=[ENTRY], headers=headers).json() == {"cached": 1}
            assert client.http.delete(path, headers=headers).json() == {"deleted": 1}
        assert stranger.get("/v1/cache-tool-output").status_code == 401


def test_it_says_what_is_on(client: Client) -> None:
    """`--max-resident-turns` has reached the plugin."""
    status = client.http.get("/v1/cache-tool-output").json()
    assert (status["version"], status["on"], status["reason"]) == (1, ["o3"], None)
    assert status["limits"]["turns"] == 3


def test_a_post_while_the_response_is_written(client: Client) -> None:
    """An output that lands before the call is complete is in time."""
    request_id, key = uuid4().hex, uuid4().hex
    body = {**defaults(single("Paris"), stream=True), "tools": TOOLS}
    body["vllm_xargs"] = {"spectool_key": key}
    text = ""
    with client.http.stream(
        "POST", "/v1/chat/completions", json=body, headers={"X-Request-Id": request_id}
    ) as answer:
        for index, chunk in enumerate(answer.iter_text()):
            text += chunk
            if index == 0:
                assert client.post(request_id, key, {("get_weather", '{"city": "Paris"}'): "1 C"})
    assert len(streamed(text)) == 2


def test_forty_random_requests_leave_nothing(client: Client) -> None:
    """Hits, misses, late posts and hung-up clients, eight at a time."""
    dice = random.Random(20)  # noqa: S311
    before = client.metric("vllm:spectool_turns_total", outcome="continued")
    kinds = [dice.choice(["hit", "miss", "late", "gone", "plain"]) for _ in range(40)]
    turns = asyncio.run(_all(client.http, dice, kinds))
    for kind, said in zip(kinds, turns, strict=True):
        assert said == {"hit": 2, "miss": 1, "plain": 1}.get(kind, said), kind
    after = client.metric("vllm:spectool_turns_total", outcome="continued")
    assert after - before >= kinds.count("hit")
    _nothing_left(client)


async def _all(client: httpx.Client, dice: random.Random, kinds: Sequence[str]) -> list[int]:
    room = asyncio.Semaphore(8)
    async with httpx.AsyncClient(
        base_url=client.base_url, headers=client.headers, timeout=120, trust_env=False
    ) as http:
        requests = [
            _one(http, room, kind, dice.choice(CITIES), stream=dice.random() < 0.5)
            for kind in kinds
        ]
        return await asyncio.gather(*requests)


async def _one(
    http: httpx.AsyncClient, room: asyncio.Semaphore, kind: str, city: str, *, stream: bool
) -> int:
    """Send one request; return how many turns it brought, 0 for one that was hung up."""
    request_id, key = uuid4().hex, uuid4().hex
    stream = stream or kind == "gone"
    body = {**defaults(single(city), stream=stream), "tools": TOOLS, "max_tokens": 60}
    if kind != "plain":
        body["vllm_xargs"] = {"spectool_key": key}
    path, post = f"/v1/cache-tool-output/chatcmpl-{request_id}", {"X-Spectool-Key": key}
    entry = {**ENTRY, "params": {"city": city}, "keep_alive": 30}

    async def late() -> None:
        await asyncio.sleep(0.2)
        await http.post(path, json=[entry], headers=post)

    async with room:
        if kind in {"hit", "gone"}:
            assert (await http.post(path, json=[entry], headers=post)).json() == {"cached": 1}
        posting = asyncio.ensure_future(late()) if kind == "late" else None
        headers = {"X-Request-Id": request_id}
        async with http.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers
        ) as answer:
            text = ""
            async for chunk in answer.aiter_text():
                text += chunk
                if kind == "gone" and len(text) > 4000:
                    return 0
        if posting is not None:
            await posting
    if stream:
        return len(streamed(text))
    return 1 + len(answer_continuations(text))


def answer_continuations(text: str) -> list[object]:
    """Return what follows the first turn of an answer that was not streamed."""
    return httpx.Response(200, text=text).json().get("spectool", {}).get("continuations", [])


def _nothing_left(client: Client) -> None:
    """Within a second: no running request, no used block, no entry."""
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    end = time.monotonic() + SETTLE_S
    while True:
        # vLLM's gauges move with its steps: an idle engine takes none, so ask it for one.
        client.http.post(
            "/v1/completions", json={"model": "smollm2", "prompt": "a", "max_tokens": 1}
        )
        left = {name: client.metric(f"vllm:{name}") for name in names}
        left["entries"] = client.metric("vllm:spectool_held_entries")
        if not any(left.values()) or time.monotonic() > end:
            break
    assert not any(left.values()), left
