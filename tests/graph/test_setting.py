"""Who asks is part of what is asked: results never cross from one setting to another."""

import asyncio
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, wrap_model_call, wrap_tool_call
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, tool

from langchain_spectool import Guess, Rules, SpeculationMiddleware, speculatable
from langchain_spectool.testing import ScriptedModel, calls, text

USER: ContextVar[str] = ContextVar("user", default="nobody")


@dataclass
class Tenant:
    """A run's context."""

    name: str


def _contents(state: dict[str, Any]) -> list[str]:
    return [message.content for message in state["messages"] if message.type == "tool"]


def _agent(
    target: BaseTool, *around: AgentMiddleware[Any, Any, Any], **options: Any
) -> tuple[Any, SpeculationMiddleware]:
    def rule(messages: Sequence[Any]) -> Iterator[Guess]:
        if len(messages) == 1:
            yield Guess(tool=target.name, args={"q": "x"})

    ours = SpeculationMiddleware(speculators=[Rules(rule)])
    model = ScriptedModel(turns=[calls((target.name, {"q": "x"})), text("ok")], generation_s=1.0)
    return create_agent(model, [target], middleware=[*around, ours], **options), ours


def _reader() -> BaseTool:
    @speculatable
    @tool
    async def whoami(q: str) -> str:
        """Say who asks."""
        return f"{USER.get()}:{q}"

    return whoami


async def test_same_setting_hits() -> None:
    """A variable that the application set before the run is the same early and late."""
    USER.set("alice")
    agent, ours = _agent(_reader())
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["alice:x"]
    assert ours.speculation.report().hits == 1


async def test_variable_set_around_the_call_is_a_miss() -> None:
    """A tool wrapper impersonates: the early run did not."""

    @wrap_tool_call
    async def impersonate(request: Any, handler: Any) -> Any:
        token = USER.set("bob")
        try:
            return await handler(request)
        finally:
            USER.reset(token)

    agent, ours = _agent(_reader(), impersonate)
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["bob:x"]
    assert ours.speculation.report().claims == {"mismatch": 1}


async def test_variable_set_around_the_model_is_a_miss() -> None:
    """What only the model's wrapper may do must not reach a tool."""

    @wrap_model_call
    async def privileged(request: Any, handler: Any) -> Any:
        token = USER.set("admin")
        try:
            return await handler(request)
        finally:
            USER.reset(token)

    agent, ours = _agent(_reader(), privileged)
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["nobody:x"]
    assert ours.speculation.report().hits == 0


async def test_deterministic_results_stay_with_their_asker() -> None:
    """Users who share one run share no results."""
    ran: list[str] = []

    @speculatable(deterministic=True)
    @tool
    async def inbox(q: str) -> str:
        """Read the inbox."""
        ran.append(USER.get())
        return f"{USER.get()}:{q}"

    @wrap_tool_call
    async def impersonate(request: Any, handler: Any) -> Any:
        USER.set(request.tool_call["id"])
        return await handler(request)

    model = ScriptedModel(turns=[calls(("inbox", {"q": "x"}), ("inbox", {"q": "x"})), text("ok")])
    agent = create_agent(model, [inbox], middleware=[impersonate, SpeculationMiddleware()])
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["c0:x", "c1:x"]
    assert sorted(ran) == ["c0", "c1"]


@pytest.mark.parametrize("same", [True, False])
async def test_context_of_the_runtime_counts(same: bool) -> None:
    """A tool that reads `runtime.context` hits, unless a wrapper hands it another one."""

    @speculatable
    @tool
    async def tenant(q: str, runtime: ToolRuntime[Tenant, Any]) -> str:
        """Say whose data it is."""
        return f"{runtime.context.name}:{q}"

    @wrap_tool_call
    async def other(request: Any, handler: Any) -> Any:
        if not same:
            request.runtime.context = Tenant("bob")
        return await handler(request)

    agent, ours = _agent(tenant, other, context_schema=Tenant)
    state = await agent.ainvoke({"messages": [("user", "hi")]}, context=Tenant("alice"))
    assert _contents(state) == ["alice:x" if same else "bob:x"]
    assert ours.speculation.report().hits == same


async def test_false_switches_a_run_off() -> None:
    """Nobody who writes False means on."""
    agent, ours = _agent(_reader())
    await agent.ainvoke({"messages": [("user", "hi")]}, {"configurable": {"speculation": False}})
    assert ours.speculation.report().idle == {"off": 2}


async def test_endless_speculator_ends_with_its_turn() -> None:
    """A source that yields for ever neither holds the loop nor outlives the model's answer."""

    def endless(_: Sequence[Any]) -> Iterator[Guess]:
        number = 0
        while True:
            number += 1
            yield Guess(tool="whoami", args={"q": str(number)})

    ours = SpeculationMiddleware(speculators=[Rules(endless)])
    model = ScriptedModel(turns=[calls(("whoami", {"q": "x"})), text("ok")], generation_s=1.0)
    agent = create_agent(model, [_reader()], middleware=[ours])
    state = await asyncio.wait_for(agent.ainvoke({"messages": [("user", "hi")]}), 10)
    assert _contents(state) == ["nobody:x"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_early_body_cannot_end_the_process(error: type[BaseException]) -> None:
    """A body that the model never called must not take the run with it."""

    @speculatable
    @tool
    async def leave(q: str) -> str:
        """Exit."""
        raise error

    @tool
    async def stay(q: str) -> str:
        """Stay."""
        return q

    ours = SpeculationMiddleware(
        speculators=[Rules(lambda _: [Guess(tool="leave", args={"q": "x"})])]
    )
    model = ScriptedModel(turns=[calls(("stay", {"q": "x"})), text("ok")], generation_s=1.0)
    agent = create_agent(model, [leave, stay], middleware=[ours])
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["x"]
    assert ours.speculation.report().discards == {"failed": 2}


async def test_too_much_to_search_for_gates_runs_nothing_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gates that may have been missed are gates: nothing runs early, the run goes on."""
    monkeypatch.setattr("langchain_spectool.graph.gates._MOST_OBJECTS", 1)
    agent, ours = _agent(_reader())
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["nobody:x"]
    assert ours.speculation.report().guesses == 0
    assert ours.speculation.report().errors > 0


async def test_write_behind_our_back_ends_what_was_kept() -> None:
    """A middleware outside ours runs the write itself: later reads are not answered from before."""
    world = {"v": 1}

    @speculatable(deterministic=True)
    @tool
    async def read(q: str) -> str:
        """Read."""
        return f"v={world['v']}"

    @tool
    async def write(q: str) -> str:
        """Write."""
        raise NotImplementedError

    @wrap_tool_call
    async def elsewhere(request: Any, handler: Any) -> Any:
        if request.tool_call["name"] != "write":
            return await handler(request)
        world["v"] = 2
        answer = request.override(tool_call={**request.tool_call, "name": "read"}, tool=read)
        return await answer.tool.ainvoke({**request.tool_call, "type": "tool_call"})

    turns = [
        calls(("read", {"q": "x"}), prefix="a"),
        calls(("write", {"q": "x"}), prefix="b"),
        calls(("read", {"q": "x"}), prefix="c"),
        text("ok"),
    ]
    agent = create_agent(
        ScriptedModel(turns=turns),
        [read, write],
        middleware=[elsewhere, SpeculationMiddleware()],
    )
    state = await agent.ainvoke({"messages": [("user", "hi")]})
    assert _contents(state) == ["v=1", "v=2", "v=2"]
