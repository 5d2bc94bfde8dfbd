"""An opted-in request leaves nothing behind, whenever its client goes and whatever happens."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

import pytest

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool._core.entries import EntryLimits, parse_entries
from vllm_spectool._core.terms import key_digest
from vllm_spectool.plugin.kv_room import KvRoom

sys.path.append(str(Path(__file__).parent))
from fake_vllm import (
    STOP,
    Engine,
    OpenAIServingChat,
    RawRequest,
    chat_request,
    in_a_loop,
    installed,
)

KEY = "k" * 32
ENTRY = [{"name": "look", "output": "x", "uses": 1}]
TURNS = [[[3], [4, STOP]], [[7], [STOP]]]
STEPS = 60
"""More steps of the loop than any request here takes."""


@pytest.fixture
def module() -> Iterator[Any]:
    """The chat handler's module, on a fake vLLM."""
    with installed("vllm_spectool.plugin.serving") as made:
        yield made


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client streams."""
    return request.param


class Served:
    """A chat handler with the tool cache, and the engine below it."""

    def __init__(self, module: Any, **fields: Any) -> None:
        self.module = module
        self.engine = Engine(turns=TURNS, **fields)
        self.cache = import_module("vllm_spectool.plugin.cache").PluginCache()
        self.cache.turn_on(ContinuationLimits(), ["<end>"], KvRoom(1024, 16))
        self.chat = module.ResidentServingChat.adopt(OpenAIServingChat(self.engine), self.cache)

    async def post(self, request_id: str) -> int:
        """Post the output of the call that the model makes."""
        entries = parse_entries(json.dumps(ENTRY).encode(), EntryLimits())
        return await self.cache.put((f"chatcmpl-{request_id}", key_digest(KEY)), entries)

    async def ask(self, request_id: str = "id", *, stream: bool) -> list[str]:
        """Send an opted-in request; return the ids of the turns it brings."""
        body = {
            "messages": [{"role": "user", "content": "?"}],
            "stream": stream,
            "vllm_xargs": {"spectool_key": KEY},
        }
        raw = RawRequest(request_id, body)
        answer = await self.chat.create_chat_completion(chat_request(**body), raw)
        if not isinstance(answer, AsyncGenerator):
            rest = (answer.spectool or {}).get("continuations", ())
            return [answer.id, *(each["id"] for each in rest)]
        chunks = [json.loads(each[6:]) async for each in answer if "[DONE]" not in each]
        return list(dict.fromkeys(chunk["id"] for chunk in chunks if chunk["object"] == "chunk"))

    @property
    def left(self) -> tuple[int, int, int]:
        """Blocks, sessions, and responses that outlive their entries."""
        self.cache.store.expire(inf)
        return self.cache.room.held, self.engine.open, self.cache.store.responses

    @property
    def counted(self) -> dict[str, int]:
        """How turns ended."""
        return {
            name.removeprefix("turns."): count
            for name, count in self.cache.tally.snapshot().items()
            if name.startswith("turns.")
        }


async def steps(count: int) -> None:
    """Let the loop take some steps."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_response_goes_on_in_place(module: Any, stream: bool) -> None:
    """With an id for each turn, and one session for both."""
    served = Served(module)

    @in_a_loop
    async def case() -> None:
        await served.post("id")
        assert await served.ask(stream=stream) == ["chatcmpl-id", "chatcmpl-id.1"]
        await steps(STEPS)

    case()
    assert served.counted == {"answered": 1, "continued": 1}
    assert served.engine.begun == 1
    assert served.left == (0, 0, 0)


def each_step(
    module: Any, happens: Callable[[Served, "asyncio.Future[list[str]]"], object], *, stream: bool
) -> set[int]:
    """Have something happen at each step of a request; return how many turns it brought."""
    brought: set[int] = set()

    async def case(step: int) -> None:
        served = Served(module)
        await served.post("id")
        asking = asyncio.ensure_future(served.ask(stream=stream))
        await steps(step)
        happens(served, asking)
        await steps(STEPS)
        assert asking.done()
        failed = asking.cancelled() or asking.exception() is not None
        brought.add(0 if failed else len(asking.result()))
        assert served.left == (0, 0, 0), step

    for step in range(STEPS):
        asyncio.run(case(step))
    return brought


def test_a_client_may_go_at_any_time(module: Any, stream: bool) -> None:
    """While a turn is decoded, between two, while the next one is rendered."""
    assert each_step(module, lambda _, asking: asking.cancel(), stream=stream) == {0, 2}


def test_the_engine_may_die_at_any_time(module: Any, stream: bool) -> None:
    """What was said by then is the client's, as far as vLLM gives it out."""

    def die(served: Served, _: object) -> None:
        served.engine.dead = True

    brought = each_step(module, die, stream=stream)
    assert 2 in brought
    assert len(brought) > 1


def test_outputs_may_be_withdrawn_at_any_time(module: Any, stream: bool) -> None:
    """Until the response goes on; then they are spent."""

    def withdraw(served: Served, _: object) -> None:
        served.cache.store.delete(("chatcmpl-id", key_digest(KEY)), 0)

    assert each_step(module, withdraw, stream=stream) == {1, 2}


def test_two_requests_with_one_id_share_what_was_posted(module: Any, stream: bool) -> None:
    """As when a client tries again too early: an output for one call answers one."""
    served = Served(module)

    @in_a_loop
    async def case() -> None:
        await served.post("id")
        turns = await asyncio.gather(*(served.ask(stream=stream) for _ in range(2)))
        assert sorted(map(len, turns)) == [1, 2]
        await steps(STEPS)

    case()
    assert served.left == (0, 0, 0)


def test_an_id_may_be_used_again(module: Any, stream: bool) -> None:
    """With its own posts, while it runs; between the two, none is kept."""
    served = Served(module)

    @in_a_loop
    async def case() -> None:
        assert len(await served.ask(stream=stream)) == 1
        await steps(STEPS)
        assert await served.post("id") == 0
        asking = asyncio.ensure_future(served.ask(stream=stream))
        while not await served.post("id"):
            await steps(1)
        assert len(await asking) == 2
        await steps(STEPS)

    case()
    assert served.left == (0, 0, 0)


def test_requests_do_not_mix(module: Any) -> None:
    """Each goes on with its own session, however their steps interleave."""
    served = Served(module)

    @in_a_loop
    async def case() -> None:
        names = [f"r{index}" for index in range(8)]
        for name in names[::2]:
            await served.post(name)
        asked = [served.ask(name, stream=index % 4 < 2) for index, name in enumerate(names)]
        turns = await asyncio.gather(*asked)
        assert [each[0] for each in turns] == [f"chatcmpl-{name}" for name in names]
        assert [len(each) for each in turns] == [2, 1] * 4
        await steps(STEPS)

    case()
    assert served.left == (0, 0, 0)


def test_what_vllm_starts_on_the_way_knows_of_no_request(module: Any, stream: bool) -> None:
    """Its output handler begins with the first request, and lives as long as the server."""
    served = Served(module)
    seen: list[Any] = []
    tasks: list[asyncio.Future[None]] = []

    async def look() -> None:
        seen.append(module._CURRENT.get())

    class Starting(Engine):
        def generate(self, *args: Any, **options: Any) -> Any:
            tasks.append(asyncio.ensure_future(look()))
            return super().generate(*args, **options)

    served.engine.__class__ = Starting

    @in_a_loop
    async def case() -> None:
        await served.ask(stream=stream)
        assert module._CURRENT.get() is None
        await steps(STEPS)

    case()
    assert seen == [None]


@in_a_loop
async def test_a_slow_reader_holds_nothing_up(module: Any) -> None:
    """The response goes on, ends, and gives back its blocks while one event of it was read."""
    served = Served(module)
    await served.post("id")
    body = {
        "messages": [{"role": "user", "content": "?"}],
        "stream": True,
        "vllm_xargs": {"spectool_key": KEY},
    }
    answer = await served.chat.create_chat_completion(chat_request(**body), RawRequest("id", body))
    await anext(answer)
    await steps(STEPS)
    assert served.counted == {"answered": 1, "continued": 1}
    assert served.left == (0, 0, 0)
    events = [each async for each in answer]
    assert sum("[DONE]" in each for each in events) == 2


def test_where_the_kv_cache_is_full_a_response_ends(module: Any, stream: bool) -> None:
    """Its outputs are kept from the next turn; the client makes the round trip."""
    served = Served(module)
    served.cache.turn_on(ContinuationLimits(), [], KvRoom(16, 4))
    served.cache.room.hold("another", 9)
    _stops_after_one_turn(served, stream=stream)
    assert served.counted == {"kv_full": 1}


def test_a_preempted_turn_is_the_last(module: Any, stream: bool) -> None:
    """VLLM may have nothing to go on from."""
    served = Served(module, preempted={0})
    _stops_after_one_turn(served, stream=stream)
    assert served.counted == {"preempted": 1}


@in_a_loop
async def _stops_after_one_turn(served: Served, *, stream: bool) -> None:
    await served.post("id")
    assert len(await served.ask(stream=stream)) == 1
    await steps(STEPS)
