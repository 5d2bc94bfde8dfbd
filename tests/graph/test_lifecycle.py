"""Leaving a run: whichever way it ends, nothing of ours goes on, and nobody hears of it."""

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.runtime import RunControl

from langchain_spectool._runtime import runs
from langchain_spectool._runtime.turn_scope import Place, TurnScope
from langchain_spectool.graph import place
from langchain_spectool.testing import Turn, text
from tests.graph.leaving_scene import (
    BOTH,
    GENERATION_S,
    HELLO,
    LOOK_S,
    LOOKS,
    Scene,
    forms,
    interrupted,
)
from tests.graph.leftovers import our_threads, until

pytestmark = pytest.mark.usefixtures("quick_collector", "nothing_left")


async def _success(scene: Scene) -> None:
    await scene.agent.ainvoke(**scene.asked)


async def _fails(scene: Scene) -> None:
    with pytest.raises(ValueError, match="planted"):
        await scene.agent.ainvoke(**scene.asked)


async def _one_of_two_fails(scene: Scene) -> None:
    await _fails(scene)
    # A graph's ToolNode leaves the other calls running, with speculation and without.
    await asyncio.sleep(LOOK_S)


async def _cancelled(scene: Scene, after_s: float) -> None:
    task = asyncio.create_task(scene.agent.ainvoke(**scene.asked))
    await asyncio.sleep(after_s)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def _cancelled_in_the_model(scene: Scene) -> None:
    await _cancelled(scene, GENERATION_S / 2)


async def _cancelled_in_the_tools(scene: Scene) -> None:
    await _cancelled(scene, GENERATION_S * 2)


async def _out_of_time(scene: Scene) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.agent.ainvoke(**scene.asked), GENERATION_S * 2)


async def _left_after_one_chunk(scene: Scene, mode: str) -> None:
    stream: AsyncIterator[Any] = scene.agent.astream(**scene.asked, stream_mode=mode)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]


async def _disconnected_in_the_model(scene: Scene) -> None:
    await _left_after_one_chunk(scene, "messages")


async def _disconnected_after_the_model(scene: Scene) -> None:
    await _left_after_one_chunk(scene, "updates")


SPOKEN = Turn(chunks=[(n / 5, AIMessageChunk(content=f"{n} ")) for n in range(1, 11)])
Way = Callable[[Scene], Awaitable[None]]
WAYS: dict[str, tuple[Way, list[Turn | AIMessage], bool]] = {
    "success": (_success, [text("done")], False),
    "success after a hit": (_success, [LOOKS, text("done")], False),
    "model error": (_fails, [Turn(error=ValueError("planted"))], False),
    "tool error": (_one_of_two_fails, [BOTH], False),
    "approval": (interrupted, [BOTH], True),
    "cancelled in the model": (_cancelled_in_the_model, [text("done")], False),
    "cancelled in the tools": (_cancelled_in_the_tools, [LOOKS], False),
    "out of time": (_out_of_time, [LOOKS], False),
    "disconnected in the model": (_disconnected_in_the_model, [SPOKEN], False),
    "disconnected after the model": (_disconnected_after_the_model, [LOOKS], False),
}
ways = pytest.mark.parametrize("way", WAYS)


def arranged(form: str, way: str) -> tuple[Scene, Way]:
    """Return the scene in which `way` can happen."""
    leave, turns, gated = WAYS[way]
    return Scene(form, turns, gated=gated), leave


@forms
@ways
async def test_run_leaves_nothing(form: str, way: str) -> None:
    """When the run is over, so are our tasks; wasted bodies were cancelled, each told of once."""
    scene, leave = arranged(form, way)
    await leave(scene)
    await scene.check_left()
    assert scene.verdicts("guess")[:2] == (["run"] * 2 if scene.bodies.ends else [])


class Control(RunControl):
    """A control whose end can be seen."""


def _gone_soon(gone: "weakref.ref[Control]") -> bool:
    """A thread on its way out may hold it for a moment; nothing collects garbage meanwhile."""
    for _ in range(100):
        if gone() is None:
            return True
        time.sleep(0.01)
    return False


async def _freed(scene: Scene, leave: Way) -> bool:
    """Leave a run of `scene`; say whether nobody holds its control then."""
    scene.control = Control()
    gone = weakref.ref(scene.control)
    gc.disable()
    try:
        await leave(scene)
        scene.control = None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return _gone_soon(gone)
    finally:
        gc.enable()


@forms
@ways
async def test_run_is_freed_when_stock_code_frees_it(form: str, way: str) -> None:
    """Counting references, nothing of ours holds a run for longer than LangGraph does itself."""
    scene, leave = arranged(form, way)
    stock, _ = arranged(form, way)
    stock = replace(stock, speculative=False)
    assert await _freed(scene, leave) or not await _freed(stock, leave)


@forms
@ways
async def test_janitor_ends_what_no_graph_told_of(
    form: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the end of a graph cannot be seen, an entry goes with the references to its run."""
    monkeypatch.setattr(place, "_exit_stack", lambda _: None)
    monkeypatch.setattr(runs, "SWEEP_S", 0.002)
    until(lambda: "spectool-janitor" not in our_threads())
    scene, leave = arranged(form, way)
    await leave(scene)
    gc.collect()
    until(lambda: runs.in_progress() == 0 and scene.balanced())
    await asyncio.sleep(0)
    await scene.check_left()


@forms
async def test_end_of_a_graph_is_seen(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pins, for the installed LangGraph, the way by which a node learns that its graph ends."""
    places: list[Place] = []
    opened = TurnScope.__init__

    def noting(self: TurnScope, where: Place, *args: Any, **options: Any) -> None:
        places.append(where)
        opened(self, where, *args, **options)

    monkeypatch.setattr(TurnScope, "__init__", noting)
    await Scene(form, [LOOKS, text("done")]).agent.ainvoke(HELLO)
    blocking = Scene(form, [LOOKS, text("done")], generation_s=0.01, synchronous=True)
    blocking.bodies.gate.set()
    blocking.agent.invoke(HELLO)
    assert len(places) == 4
    assert all(where.at_end is not None for where in places)
