"""A session leaves nothing behind, whenever it is left."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spectool.plugin.kv_room import KvRoom

sys.path.append(str(Path(__file__).parent))
from fake_vllm import STOP, Engine, RequestOutputKind, in_a_loop, installed

PROMPT = [1, 2]
TURNS = [[[3], [4, STOP]], [[7], [STOP]]]
RENDERED = [*PROMPT, 3, 4, STOP, 5, 6]
"""What the round trip would send for the second turn."""


@pytest.fixture
def module() -> Iterator[Any]:
    """The session's module, on a fake vLLM."""
    with installed("vllm_spectool.plugin.session") as made:
        yield made


class Started:
    """A session, and what it runs on."""

    def __init__(self, module: Any, **fields: Any) -> None:
        self.room = KvRoom(1024, 16)
        self.engine = Engine(turns=TURNS, **fields)
        self.session = module.Session(self.engine, None, self.room)

    def begin(self, rendered: list[int], kind: RequestOutputKind = RequestOutputKind.DELTA) -> Any:
        """Begin a turn whose round trip would send `rendered`."""
        params = SimpleNamespace(output_kind=kind)
        prompt = {"type": "token", "prompt_token_ids": rendered, "prompt": "as text"}
        return self.session.begin(prompt, params, "id", {})

    async def read(self, rendered: list[int]) -> list[Any]:
        """Begin a turn and read all of it."""
        return [each async for each in self.begin(rendered)]

    @property
    def left(self) -> tuple[int, int]:
        """Blocks that are held, and sessions that the engine was left with."""
        return self.room.held, self.engine.open


def appends(*token_ids: int) -> Callable[[Any], tuple[int, ...]]:
    """Return a judge that lets the response go on with `token_ids`."""
    return lambda _: token_ids


@in_a_loop
async def test_a_turn_reads_as_a_request_of_its_own(module: Any) -> None:
    """Its prompt is the round trip's; the engine is handed what it lacks, with the stop token."""
    started = Started(module)
    first = await started.read(list(PROMPT))
    assert [each.finished for each in first] == [False, True]
    assert started.session.stopped
    assert started.session.resident == [*PROMPT, 3, 4, STOP]
    started.session.judge = appends(5, 6)
    second = await started.read(list(RENDERED))
    assert started.engine.inputs == [PROMPT, [STOP, 5, 6]]
    assert {tuple(each.prompt_token_ids) for each in second} == {tuple(RENDERED)}
    assert "".join(each.outputs[0].text for each in second) == "7"
    assert started.session.resident == [*RENDERED, 7, STOP]
    await started.session.close()
    assert started.left == (0, 0)
    assert started.engine.ended == 1


@in_a_loop
async def test_where_the_rendering_drifts_the_engine_keeps_its_own_tokens(module: Any) -> None:
    """The client reads the round trip's prompt, and later turns go on from what stands."""
    started = Started(module)
    await started.read(list(PROMPT))
    started.session.judge = appends(5, 6)
    (*_, last) = await started.read([9, 9, STOP, 5, 6])
    assert last.prompt_token_ids == [9, 9, STOP, 5, 6]
    assert started.session.resident == [*RENDERED, 7, STOP]


@in_a_loop
async def test_a_turn_that_does_not_stream_comes_in_one_piece(module: Any) -> None:
    """The session streams all the same: vLLM takes no other."""
    started = Started(module)
    turn = started.begin(list(PROMPT), RequestOutputKind.FINAL_ONLY)
    (output,) = [each async for each in turn]
    assert output.outputs[0].token_ids == [3, 4, STOP]
    assert output.finished


@in_a_loop
async def test_a_declined_turn_hands_nothing_on(module: Any) -> None:
    """And the session ends as one that is idle."""
    started = Started(module)
    await started.read(list(PROMPT))
    started.session.judge = lambda _: "template_drift"
    with pytest.raises(module.DeclinedError):
        started.begin(list(RENDERED))
    assert started.session.resident == [*PROMPT, 3, 4, STOP]
    await started.session.close()
    assert started.engine.inputs == [PROMPT]
    assert started.left == (0, 0)


@pytest.mark.parametrize(("lost", "preempted"), [({0}, True), ({1}, False), (set(), False)])
@in_a_loop
async def test_a_turn_that_lost_its_blocks_is_told(
    module: Any, lost: set[int], preempted: bool
) -> None:
    """The first turn's loss is not the second's."""
    started = Started(module, preempted=lost)
    await started.read(list(PROMPT))
    assert started.session.preempted == preempted
    started.session.judge = appends(5, 6)
    await started.read(list(RENDERED))
    assert started.session.preempted == (1 in lost)
    await started.session.close()


@in_a_loop
async def test_left_before_its_first_turn_is_read(module: Any) -> None:
    """The engine was told nothing, and nothing is held."""
    started = Started(module)
    started.begin(list(PROMPT))
    await started.session.close()
    await started.session.close()
    assert started.engine.inputs == []
    assert started.left == (0, 0)


@pytest.mark.parametrize("handed_over", [False, True])
@in_a_loop
async def test_left_between_two_turns(module: Any, handed_over: bool) -> None:
    """Also with the next one handed over and not yet read."""
    started = Started(module)
    await started.read(list(PROMPT))
    if handed_over:
        started.session.judge = appends(5, 6)
        started.begin(list(RENDERED))
    assert started.room.held
    await started.session.close()
    assert started.left == (0, 0)
    assert (started.engine.ended, started.engine.aborted) == (int(not handed_over), handed_over)


@in_a_loop
async def test_left_in_the_middle_of_a_turn(module: Any) -> None:
    """The engine aborts what it was at."""
    started = Started(module)
    turn = started.begin(list(PROMPT))
    await anext(turn)
    await started.session.close()
    assert started.left == (0, 0)
    assert started.engine.aborted == 1


@in_a_loop
async def test_left_while_it_waits_for_the_engine(module: Any) -> None:
    """By a cancellation that arrives in the engine's own code."""
    started = Started(module, stalled={0})
    started.engine.turns = [[[3]]]

    async def response() -> None:
        try:
            await started.read(list(PROMPT))
        finally:
            await started.session.close()

    reading = asyncio.ensure_future(response())
    for _ in range(5):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert started.left == (0, 0)


@in_a_loop
async def test_a_cancelled_end_frees_all_the_same(module: Any) -> None:
    """The session was being closed when its task was cancelled."""
    started = Started(module, stalled={0})
    turn = started.begin(list(PROMPT))
    async for output in turn:
        if output.finished:
            break
    closing = asyncio.ensure_future(started.session.close())
    for _ in range(3):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert started.left == (0, 0)


@in_a_loop
async def test_a_dead_engine_does_not_keep_it(module: Any) -> None:
    """The response's turns so far are valid, whatever the engine says to its end."""
    started = Started(module)
    await started.read(list(PROMPT))
    started.engine.dead = True
    await started.session.close()
    assert started.left == (0, 0)
