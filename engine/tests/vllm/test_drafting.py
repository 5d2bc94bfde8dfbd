"""Posted calls become drafts, in the background: nothing fails with them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import pytest

from vllm_spectool._core.counters import DRAFTED, DRAFTS, Tally
from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool._core.entries import Entry, EntryLimits, parse_entries
from vllm_spectool.plugin.cache import PluginCache
from vllm_spectool.plugin.drafting import MOST_CHARACTERS, MOST_ENTRIES, MOST_ORDERS, Drafting

STOP = ord("$")
OWNER = ("chatcmpl-a", "digest")


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **fields: Any) -> None:
        async def case() -> None:
            await test(*args, **fields)

        asyncio.run(case())

    return run


def entries(*calls: tuple[str, Mapping[str, Any]], **fields: Any) -> tuple[Entry, ...]:
    """Return what was posted for calls."""
    posted = [{"name": name, "params": dict(params), "output": "x"} for name, params in calls]
    return parse_entries(
        json.dumps([{**each, **fields} for each in posted]).encode(), EntryLimits()
    )


class Server:
    """Writes a token for each character, and remembers what the engine core was sent."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.told: dict[str, int] = {}
        self.refuses = False
        self.open = asyncio.Event()
        self.open.set()
        self.tally = Tally()
        self.drafting = Drafting(self.render, self.send, {STOP}, self.tally)

    async def render(self, messages: Sequence[Mapping[str, Any]], opened: bool) -> Sequence[int]:
        if self.refuses:
            raise ValueError("only users may speak")
        await self.open.wait()
        text = "".join(map(self.written, messages))
        return [ord(each) for each in text + "<assistant>" * opened]

    async def send(self, orders: list[Any]) -> Mapping[str, int]:
        self.orders += orders
        return self.told

    @staticmethod
    def written(message: Mapping[str, Any]) -> str:
        calls = message.get("tool_calls") or ()
        made = "".join(
            f"[{call['function']['name']}({call['function']['arguments']})]" for call in calls
        )
        return f"<{message['role']}>{message['content'] or ''}{made}$"

    def drafts(self) -> list[tuple[str, str]]:
        """Return the anchors and the rest of what was sent last."""
        return [
            ("".join(map(chr, ids[:anchor])), "".join(map(chr, ids[anchor:])))
            for anchor, ids, _ in self.orders[-1][1]
        ]


@in_a_loop
async def test_a_call_is_written_as_the_server_writes_it() -> None:
    """From its name to the token that ends the turn; calls without arguments as well."""
    server = Server()
    server.drafting.post("key", entries(("find", {"q": "é"}), ("xlist", {}), keep_alive=7))
    await server.drafting.settle()
    assert server.drafts() == [("[find({", '"q": "é"})]$'), ("[xlist({", "})]$")]
    assert [each[2] for each in server.orders[0][1]] == [7, 7]
    assert server.orders[0][0] == "key"
    assert server.tally.of(DRAFTS, "made") == 2


@in_a_loop
async def test_a_template_that_refuses_makes_no_draft() -> None:
    """Nor does a call that is too long; both are counted, and the engine is told the rest."""
    server = Server()
    server.refuses = True
    server.drafting.post("key", entries(("find", {})))
    await server.drafting.settle()
    server.refuses = False
    server.drafting.post("key", entries(("find", {"q": "x" * MOST_CHARACTERS}), ("find", {"q": 1})))
    await server.drafting.settle()
    assert [len(order[1]) for order in server.orders] == [0, 1]
    assert server.tally.of(DRAFTS, "undraftable") == 2


@in_a_loop
async def test_of_many_entries_the_last_are_drafted() -> None:
    """One post does not keep the server from its work."""
    server = Server()
    server.drafting.post("key", entries(*(("find", {"q": at}) for at in range(MOST_ENTRIES + 3))))
    await server.drafting.settle()
    assert len(server.drafts()) == MOST_ENTRIES
    assert server.drafts()[-1][1] == f'"q": {MOST_ENTRIES + 2}}})]$'
    assert server.tally.of(DRAFTS, "undraftable") == 3


@in_a_loop
async def test_the_order_is_kept() -> None:
    """What is forgotten while its drafts are being written does not come after."""
    server = Server()
    server.open.clear()
    server.drafting.post("key", entries(("find", {"q": 1})))
    await asyncio.sleep(0)
    server.drafting.forget("key")
    server.open.set()
    await server.drafting.settle()
    assert [order[1] is None for order in server.orders] == [False, True]


@in_a_loop
async def test_an_engine_that_fails_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next post goes out as ever."""
    server = Server()

    async def fail(orders: list[Any]) -> Mapping[str, int]:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(server.drafting, "_send", fail)
        server.drafting.post("key", entries(("find", {"q": 1})))
        await server.drafting.settle()
    server.drafting.post("key", entries(("find", {"q": 1})))
    await server.drafting.settle()
    assert server.tally.of(DRAFTS, "lost") == 1
    assert len(server.orders) == 1


@in_a_loop
async def test_no_more_waits_than_there_is_room_for() -> None:
    """An engine that does not answer does not fill the memory."""
    server = Server()
    server.open.clear()
    for _ in range(MOST_ORDERS + 5):
        server.drafting.post("key", entries(("find", {"q": 1})))
    server.open.set()
    await server.drafting.settle()
    assert len(server.orders) == MOST_ORDERS
    assert server.tally.of(DRAFTS, "lost") == 5


@in_a_loop
async def test_what_the_engine_has_offered_is_shown() -> None:
    """It tells totals; the counters grow by the differences."""
    server = Server()
    for told in (
        {"requests": 1, "steps": 2, "tokens": 9},
        {"requests": 1, "steps": 3, "tokens": 12},
    ):
        server.told = told
        server.drafting.refresh()
        await server.drafting.settle()
    assert [server.tally.of(DRAFTED, what) for what in DRAFTED.values] == [1, 3, 12]
    assert server.orders == []


@in_a_loop
async def test_the_cache_hands_on_what_it_keeps() -> None:
    """And what it deletes; a post that is not kept is not drafted."""
    server = Server()
    cache = PluginCache(limits=ContinuationLimits())
    assert cache.status()["on"] == ["o3"]
    cache.drafting = server.drafting
    assert cache.status()["on"] == ["o3", "o2"]
    posted = entries(("find", {"q": 1}))
    assert await cache.put(OWNER, posted) == 1
    assert await cache.delete(OWNER) == 1
    assert await cache.put(OWNER, posted) == 0
    await server.drafting.settle()
    assert [(key, drafts is None) for key, drafts in server.orders] == [
        ("digest", False),
        ("digest", True),
    ]
