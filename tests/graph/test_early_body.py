"""Where the body of an early run runs: after the call that prepared it, or inside."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langgraph.config import get_stream_writer

from langchain_spectool import Guess, Rules, SpeculationMiddleware, speculatable
from langchain_spectool.telemetry.report import Report
from langchain_spectool.testing import ScriptedModel, calls, text


async def _report(target: BaseTool) -> Report:
    """Run an agent that guesses its one call right."""

    def rule(messages: Sequence[Any]) -> Iterator[Guess]:
        if len(messages) == 1:
            yield Guess(tool=target.name, args={"q": "x"})

    ours = SpeculationMiddleware(speculators=[Rules(rule)])
    model = ScriptedModel(turns=[calls((target.name, {"q": "x"})), text("ok")], generation_s=1.0)
    agent: Any = create_agent(model, [target], middleware=[ours])
    await agent.ainvoke({"messages": [("user", "hi")]})
    return ours.speculation.report()


def _task_name() -> str:
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


@pytest.mark.parametrize("form", ["content", "content_and_artifact"])
async def test_body_has_the_task_to_itself(form: Any) -> None:
    """What LangChain holds for a call is gone while the body of an early run goes on."""
    names: list[str] = []

    @speculatable
    @tool(response_format=form)
    async def search(q: str) -> Any:
        """Search."""
        names.append(_task_name())
        return q if form == "content" else (q, {"found": q})

    assert (await _report(search)).hits == 1
    assert names == ["spectool:search"]


async def test_body_sees_the_config_of_its_call() -> None:
    """The body runs in the context in which LangChain would have run it."""
    seen: list[Any] = []

    @speculatable
    @tool
    async def search(q: str) -> str:
        """Search."""
        config = var_child_runnable_config.get() or {}
        seen.append((config.get("metadata", {}).get("lc_source"), bool(config.get("callbacks"))))
        return q

    assert (await _report(search)).hits == 1
    assert seen == [("speculation", True)]


class _Locked(StructuredTool):
    """A tool of which one call at a time may run."""

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """Hold the lock for the whole call."""
        async with _LOCK:
            return await super().arun(*args, **kwargs)


_LOCK = asyncio.Lock()


async def test_what_a_class_does_around_its_calls_it_does_early() -> None:
    """A class that wraps its calls wraps the body of an early run as well."""
    held: list[bool] = []

    async def search(q: str) -> str:
        held.append(_LOCK.locked())
        return q

    target = _Locked.from_function(coroutine=search, name="search", description="Search.")
    assert (await _report(speculatable(target))).hits == 1
    assert held == [True]


async def test_body_whose_task_group_fails_has_failed() -> None:
    """A task group cancels its own task when it fails; nobody cancelled the early run."""

    @speculatable
    @tool
    async def search(q: str) -> str:
        """Search."""
        with contextlib.suppress(ValueError):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_refused(q))
            except* ValueError as found:
                raise found.exceptions[0] from None
        msg = "nothing was found"
        raise ToolException(msg)

    search.handle_tool_error = True
    assert (await _report(search)).discards == {"failed": 1}


async def _refused(q: str) -> str:
    raise ValueError(q)


class _Large:
    """Something that a body holds while it runs."""


@pytest.mark.parametrize("ends", ["tainted", "cancelled"])
async def test_nothing_of_a_run_that_ended_badly_waits_for_the_collector(ends: str) -> None:
    """What a body held is free once its early run is dropped."""
    held: list[weakref.ref[_Large]] = []

    @speculatable
    @tool
    async def search(q: str) -> str:
        """Search."""
        large = _Large()
        held.append(weakref.ref(large))
        if ends == "tainted":
            get_stream_writer()(q)
        await asyncio.Event().wait()
        return q

    def rule(messages: Sequence[Any]) -> Iterator[Guess]:
        if len(messages) == 1:
            yield Guess(tool="search", args={"q": "x"})

    ours = SpeculationMiddleware(speculators=[Rules(rule)])
    model = ScriptedModel(turns=[text("ok")], generation_s=1.0)
    agent: Any = create_agent(model, [search], middleware=[ours])
    gc.collect()
    gc.disable()
    try:
        await agent.ainvoke({"messages": [("user", "hi")]})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [reference() for reference in held] == [None]
    finally:
        gc.enable()
