"""Cases of kind 4: what is left when a run ends, however it ends."""

import asyncio
import contextvars
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

import pytest
from harness import HELLO, Form, Rehearsal, Scene, Shape, streamed
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool

from langchain_spectool import Policy, speculatable
from langchain_spectool._runtime import runs
from langchain_spectool.testing import Turn, calls, text

SETTLE_S = 1.0


@pytest.fixture(name="slow")
def _slow(ran: list[Any]) -> BaseTool:
    @speculatable
    @tool
    async def slow(x: str) -> str:
        """Take long."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ran.append("cancelled")
            raise
        ran.append("finished")
        return f"s:{x}"

    return slow


def _ours() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("spectool")]


async def _disconnect(agent: Any) -> None:
    """Take one chunk and leave."""
    stream = agent.astream(HELLO, stream_mode="messages")
    await anext(stream)
    await stream.aclose()


async def _cancel(agent: Any) -> None:
    """Cancel the run from outside."""
    running = asyncio.create_task(agent.ainvoke(HELLO))
    await asyncio.sleep(0.5)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def _run_out_of_time(agent: Any) -> None:
    """Give the run less time than it needs."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await agent.ainvoke(HELLO)


async def _finish(agent: Any) -> None:
    """Run to the end."""
    await agent.ainvoke(HELLO)


async def _fail(agent: Any) -> None:
    """Run into the model's error."""
    with suppress(ConnectionError):
        await agent.ainvoke(HELLO)


WRITING = streamed(*[[]] * 8, finish="stop", after="done")
ENDS: dict[str, tuple[Any, Callable[[Any], Awaitable[None]]]] = {
    "disconnected": (WRITING, _disconnect),
    "cancelled": (text("done"), _cancel),
    "out-of-time": (text("done"), _run_out_of_time),
    "no-call": (text("done"), _finish),
    "model-failed": (Turn(error=ConnectionError("gone"), generation_s=0.5), _fail),
}


@pytest.mark.parametrize("end", ENDS)
async def test_b35_nothing_outlives_the_run(
    end: str, form: Form, slow: BaseTool, ran: list[Any]
) -> None:
    """B35 S10: however a run ends, its early run is cancelled within a second and wasted once."""
    turn, leave = ENDS[end]
    scene = Scene(turns=[turn], tools=[slow], form=form)
    played = Rehearsal(scene, [("slow", {"x": "spec"})])
    await leave(played.agent)
    await asyncio.sleep(SETTLE_S)
    assert _ours() == []
    assert ran == ["cancelled"]
    assert (played.report.guesses, played.report.wasted) == (1, 1)
    assert runs.in_progress() == 0


@pytest.mark.parametrize("leave", [_cancel, _disconnect, _run_out_of_time])
async def test_b35_call_that_waits_is_left(
    leave: Callable[[Any], Awaitable[None]], form: Form, slow: BaseTool, ran: list[Any]
) -> None:
    """B35: the same while a committed call waits for its early run."""
    turn = Turn(message=calls(("slow", {"x": "spec"})), generation_s=0.1)
    scene = Scene(turns=[turn, text("done")], tools=[slow], form=form)
    played = Rehearsal(scene, [("slow", {"x": "spec"})])
    await leave(played.agent)
    await asyncio.sleep(SETTLE_S)
    assert _ours() == []
    assert ran == ["cancelled"]
    assert played.report.wasted == 1


@pytest.mark.parametrize("reuse", ["turn", "run"])
@pytest.mark.parametrize("make", [asyncio.new_event_loop, None], ids=["own-loop", "asyncio.run"])
def test_b35_loop_that_ends_with_the_run(
    make: Callable[[], asyncio.AbstractEventLoop] | None,
    reuse: Any,
    ran: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B35: a loop closed right after the run has nothing of ours left to complain about."""

    @speculatable(reuse=reuse)
    @tool
    async def slow(x: str) -> str:
        """Take long."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ran.append("cancelled")
            raise
        return x

    scene = Scene(turns=[Turn(message=text("done"), generation_s=0.005)], tools=[slow])
    played = Rehearsal(scene, [("slow", {"x": "spec"})])
    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        if make is None:
            asyncio.run(played.agent.ainvoke(HELLO))
        else:
            loop = make()
            loop.run_until_complete(played.agent.ainvoke(HELLO))
            loop.close()
        gc.collect()
    assert ran == ["cancelled"]
    assert [record.message for record in caplog.records if "pending" in record.message] == []


async def test_b35_blocking_stream_is_left(form: Form, ran: list[Any]) -> None:
    """B35: a blocking run that its caller leaves counts its early run as wasted once."""

    @speculatable
    @tool
    def look(x: str) -> str:
        """Look."""
        ran.append(x)
        return x

    quick = streamed(*[[]] * 8, finish="stop", after="done", every_s=0.005)
    scene = Scene(turns=[quick], tools=[look], form=form, way="invoke")
    played = Rehearsal(scene, [("look", {"x": "spec"})])

    def leave() -> None:
        stream = played.agent.stream(HELLO, stream_mode="messages")
        next(stream)
        stream.close()
        limit_s = time.monotonic() + SETTLE_S
        while not played.report.wasted and time.monotonic() < limit_s:
            time.sleep(0.005)

    await asyncio.to_thread(leave)
    assert ran == ["spec"]
    assert played.report.wasted == 1


class Impatient(AgentMiddleware[Any, Any, Any]):
    """Gives the calls in `ids` half a second."""

    def __init__(self, *ids: str) -> None:
        super().__init__()
        self._ids = ids

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        call_id = request.tool_call["id"]
        if call_id not in self._ids:
            return await handler(request)
        try:
            return await asyncio.wait_for(handler(request), 0.5)
        except TimeoutError:
            return ToolMessage("gave up", tool_call_id=call_id)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


@pytest.mark.parametrize("guessed", [True, False])
@pytest.mark.parametrize("impatient", [("c0",), ("c1",), ("c0", "c1")], ids=repr)
async def test_b37_one_of_two_waiters_is_cancelled(
    impatient: tuple[str, ...], guessed: bool, ran: list[Any]
) -> None:
    """B37: who is cancelled gets nothing, who waits gets the value, and nobody takes it along."""

    @speculatable(deterministic=True)
    @tool
    async def fetch(k: str) -> str:
        """Fetch."""
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            ran.append("cancelled")
            raise
        ran.append("finished")
        return f"v:{k}"

    asked = [("fetch", {"k": "k"}), ("fetch", {"k": "k"})]
    scene = Scene(
        turns=[calls(*asked), text("done")], tools=[fetch], middleware=[Impatient(*impatient)]
    )
    played = Rehearsal(scene, asked[:1] if guessed else [])
    ours = await played.run()
    expected = {"c0": "v:k", "c1": "v:k", **dict.fromkeys(impatient, "gave up")}
    assert {call_id: content for call_id, _, content in ours.tools} == expected
    if guessed:
        assert ran == (["cancelled"] if len(impatient) == 2 else ["finished"])


TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="UNSET")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_b38_context_variables(kind: str, shape: Shape) -> None:
    """B38: an early run sees the caller's context variables, and keeps its changes to itself."""

    @tool
    def who() -> str:
        """Read and overwrite the tenant."""
        tenant = TENANT.get()
        TENANT.set("changed inside")
        return tenant

    async def awho() -> str:
        return str(who.func())

    if kind == "async":
        who.coroutine = awho
    speculatable(who)
    asked = [("who", {})]
    scene = Scene(turns=[calls(*asked), calls(*asked, prefix="d"), text("x")], tools=[who], **shape)
    played = Rehearsal(scene, asked, asked)
    token = TENANT.set("acme")
    try:
        ours = await played.run()
        assert TENANT.get() == "acme"
    finally:
        TENANT.reset(token)
    assert [content for _, _, content in ours.tools] == ["acme", "acme"]
    assert played.report.hits == 2


class Session:
    """A session that must be closed by the task that opened it, as anyio's scopes must."""

    def __init__(self, log: list[Any]) -> None:
        self._log = log

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._log.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.1)
        same = asyncio.current_task() is self._task
        self._log.append("closed" if same else "closed in another task")


FATES = {"hit": "right", "unclaimed": "wrong"}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("takes_s", [0.2, 5.0], ids=["landed", "running"])
async def test_b73_session_of_an_early_run(
    fate: str, takes_s: float, form: Form, ran: list[Any]
) -> None:
    """B73: an early run opens and closes what it uses in its own task, cancelled or not."""

    @speculatable
    @tool
    async def query(q: str) -> str:
        """Ask over a session."""
        async with Session(ran):
            await asyncio.sleep(takes_s)
        return f"answer to {q}"

    scene = Scene(turns=[calls(("query", {"q": "right"})), text("done")], tools=[query], form=form)
    played = Rehearsal(scene, [("query", {"q": FATES[fate]})])
    ours = await played.run()
    await asyncio.sleep(SETTLE_S)
    assert ours.tools == [("c0", "success", "answer to right")]
    assert ran.count("opened") == ran.count("closed") == (1 if fate == "hit" else 2)
    assert len(ran) == 2 * ran.count("opened")


async def test_b73_deadline_closes_the_session(form: Form, ran: list[Any]) -> None:
    """B73: so does one that reached its deadline before the model answered."""

    @speculatable
    @tool
    async def query(q: str) -> str:
        """Ask over a session."""
        async with Session(ran):
            await asyncio.sleep(60)
        return q

    scene = Scene(turns=[text("done")], tools=[query], form=form)
    played = Rehearsal(scene, [("query", {"q": "x"})], policy=Policy(timeout_s=0.5))
    await played.run()
    assert ran == ["opened", "closed"]
    assert played.verdicts("discarded") == ["expired"]
