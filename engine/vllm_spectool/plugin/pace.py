"""Lets a response be written at its own pace, however slowly its client reads."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

T = TypeVar("T")
_WRITERS: set[asyncio.Task[None]] = set()
"""Those at work: an event loop alone does not keep a task alive."""


async def unhurried(written: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield what `written` yields, which goes on while this is not read.

    Closing this cancels `written` where it is, in a task of its own: what it does in its end is not
    disturbed by what made the reader go. Nothing is begun before this is first read.

    Raises:
        Exception: What `written` raised, after all that it yielded before.
    """
    unread: asyncio.Queue[tuple[T] | None] = asyncio.Queue()
    writer = asyncio.get_running_loop().create_task(
        _write(written, unread), name="spectool:response"
    )
    _WRITERS.add(writer)
    writer.add_done_callback(_WRITERS.discard)
    try:
        while (each := await unread.get()) is not None:
            yield each[0]
        await writer
    finally:
        writer.cancel()


async def _write(written: AsyncGenerator[T], unread: asyncio.Queue[tuple[T] | None]) -> None:
    try:
        async for each in written:
            unread.put_nowait((each,))
    finally:
        unread.put_nowait(None)
