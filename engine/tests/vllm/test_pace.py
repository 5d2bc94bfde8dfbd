"""A response is written at its own pace, however slowly its client reads."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from vllm_spectool.plugin.pace import unhurried

sys.path.append(str(Path(__file__).parent))
from fake_vllm import in_a_loop


class Written:
    """What is written, and how far it came."""

    def __init__(self, *, fails: bool = False, waits: bool = False) -> None:
        self.fails = fails
        self.waits = waits
        self.done: list[str] = []

    async def events(self) -> AsyncGenerator[int]:
        """Yield 0 to 2, with a step of the loop before each."""
        self.done.append("began")
        try:
            for number in range(3):
                await asyncio.sleep(0)
                yield number
            if self.waits:
                await asyncio.Event().wait()
            if self.fails:
                raise LookupError("gone")
            self.done.append("all")
        finally:
            # What an end has to wait for, as vLLM's abort does.
            await asyncio.sleep(0)
            self.done.append("left")


async def settle() -> None:
    """Let everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@in_a_loop
async def test_it_is_written_while_nobody_reads() -> None:
    """To its end, after one event was read; then all of it is there."""
    written = Written()
    read = unhurried(written.events())
    assert await anext(read) == 0
    await settle()
    assert written.done == ["began", "all", "left"]
    assert [each async for each in read] == [1, 2]


@in_a_loop
async def test_nothing_begins_before_it_is_read() -> None:
    """A client that has gone by then leaves nothing behind."""
    written = Written()
    read = unhurried(written.events())
    await settle()
    await read.aclose()
    assert written.done == []


@in_a_loop
async def test_a_reader_that_goes_ends_it_where_it_is() -> None:
    """By closing, with what was written unread."""
    written = Written(waits=True)
    read = unhurried(written.events())
    assert await anext(read) == 0
    await settle()
    await read.aclose()
    await settle()
    assert written.done == ["began", "left"]


@in_a_loop
async def test_an_end_is_not_disturbed_by_what_made_the_reader_go() -> None:
    """A server that cancels the reader again and again, as Starlette's does."""
    written = Written(waits=True)
    read = unhurried(written.events())

    async def client() -> None:
        async for _ in read:
            pass

    reader = asyncio.ensure_future(client())
    await settle()
    while not reader.done():
        reader.cancel()
        await asyncio.sleep(0)
    await settle()
    assert written.done == ["began", "left"]


@in_a_loop
async def test_what_was_written_before_a_failure_is_read() -> None:
    """Then the failure is the reader's."""
    read = unhurried(Written(fails=True).events())
    assert [await anext(read) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LookupError, match="gone"):
        await anext(read)
