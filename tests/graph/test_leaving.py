"""Rarer ways to leave a run: pauses, time limits, retries, subgraphs and shared controls."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

import pytest
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError, NodeTimeoutError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command, RetryPolicy, TimeoutPolicy

from langchain_spectool import Guess, Rules, TurnRequest, speculatable
from langchain_spectool.graph.team import team_of
from langchain_spectool.testing import ScriptedModel, Turn, calls, text
from tests.graph.leaving_scene import (
    BOTH,
    HELLO,
    LOOK_S,
    LOOKS,
    THREAD,
    Bodies,
    Scene,
    forms,
    interrupted,
)

pytestmark = pytest.mark.usefixtures("quick_collector", "nothing_left")


@forms
async def test_interrupt_in_a_tool(form: str) -> None:
    """A tool that asks a human ends the run; the flight beside it is served or cancelled."""
    asks = calls(("look", {"q": "a"}), ("ask", {"q": "may I?"}))
    scene = Scene(form, [asks], gated=True)
    if form == "graph":
        # The gate of the graph interrupts first; what follows it is a run of its own.
        await interrupted(scene)
        result = await scene.agent.ainvoke(Command(resume=False), THREAD)
        assert result["__interrupt__"][0].value == "may I?"
    else:
        await interrupted(scene)
    await asyncio.sleep(LOOK_S)
    await scene.check_left()


async def test_node_timeout() -> None:
    """LangGraph cancels a node that takes too long: its guesses go with it."""
    scene = Scene(
        "graph", [text("late")], generation_s=10, node={"timeout": TimeoutPolicy(run_timeout=4)}
    )
    with pytest.raises(NodeTimeoutError):
        await scene.agent.ainvoke(HELLO)
    assert asyncio.get_running_loop().time() == 4
    await scene.check_left()
    assert scene.bodies.ends == ["cancelled"] * 2


class Chatty:
    """A speculator that calls a model again and again."""

    name = "chatty"
    samples = 1
    timeout_s = 60.0

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        raise NotImplementedError

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        draft = ScriptedModel(script=lambda _: text("hm"), generation_s=0.02)
        while True:
            await draft.ainvoke([*request.messages])
            yield Guess(tool="nothing", args={})


@pytest.mark.real_loop
async def test_guesses_are_no_progress_of_the_node() -> None:
    """Models that speculators call do not keep a silent main model alive."""
    idle = TimeoutPolicy(idle_timeout=0.3)
    scene = Scene("graph", [text("late")], generation_s=3, node={"timeout": idle})
    scene.spec._opener.team = team_of([Chatty()])
    with pytest.raises(NodeTimeoutError):
        await scene.agent.ainvoke(HELLO)
    assert scene.verdicts("guess")
    await scene.check_left()


async def test_node_that_is_tried_again() -> None:
    """Each attempt guesses anew, and leaves nothing to the next."""
    answers = iter([Turn(error=ConnectionError("1")), Turn(error=ConnectionError("2")), text("ok")])
    retry = RetryPolicy(initial_interval=1, jitter=False, retry_on=ConnectionError)
    scene = Scene("graph", [text("unused")], node={"retry_policy": retry})
    scene.main.script, scene.main.turns = lambda _: next(answers), ()
    result = await scene.agent.ainvoke(HELLO)
    assert result["messages"][-1].content == "ok"
    await scene.check_left()
    assert scene.verdicts("discarded") == ["turn_failed"] * 4 + ["unclaimed"] * 2


@forms
async def test_recursion_limit(form: str) -> None:
    """A run that takes too many steps ends with planned flights in the air."""
    scene = Scene(form, [LOOKS])
    with pytest.raises(GraphRecursionError):
        await scene.agent.ainvoke(HELLO, {"recursion_limit": 1})
    await scene.check_left()


@forms
async def test_error_that_the_caller_keeps(form: str) -> None:
    """Who keeps the exception keeps the run's frames, and none of our tasks."""
    scene = Scene(form, [BOTH], gated=False)
    try:
        await scene.agent.ainvoke(HELLO)
    except ValueError as error:
        kept = error
    await asyncio.sleep(LOOK_S if form == "graph" else 0)
    await scene.check_left()
    assert kept.__traceback__ is not None


@forms
async def test_subgraph_that_is_left(form: str) -> None:
    """A subgraph whose run is interrupted ends its own flights; the parent goes on to its end."""
    scene = Scene(form, [BOTH], gated=True)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", scene.agent)
    builder.add_edge(START, "agent")
    parent = builder.compile(checkpointer=InMemorySaver())
    assert (await parent.ainvoke(HELLO, THREAD))["__interrupt__"]
    await scene.check_left()


tenant: ContextVar[str] = ContextVar("tenant")


@forms
async def test_runs_that_share_a_control_keep_apart(form: str) -> None:
    """Two users' runs get one control and make the same call: each has its own result.

    Alice's second turn opens while Bob still waits for his first.
    """

    @speculatable
    @tool
    async def look(q: str) -> str:
        """Look something up for who asks."""
        await asyncio.sleep(LOOK_S)
        return tenant.get()

    scene = Scene(form, [LOOKS, text("done")], bodies=SameTool(look))
    control = RunControl()

    async def run(name: str, delay_s: float) -> str:
        tenant.set(name)
        await asyncio.sleep(delay_s)
        state = await scene.agent.ainvoke(HELLO, control=control)
        return str(state["messages"][-2].content)

    assert await asyncio.gather(run("alice", 0), run("bob", 0.5)) == ["alice", "bob"]
    assert scene.verdicts("claim") == ["joined"] * 2


class SameTool(Bodies):
    """Tools of which one is given."""

    def __init__(self, given: BaseTool) -> None:
        super().__init__()
        self._given = given

    def _look(self) -> BaseTool:
        return self._given


@forms
async def test_speculator_that_leaves_the_program(form: str) -> None:
    """`sys.exit()` in a speculator costs its guesses, not the event loop."""

    def leave(_: object) -> list[Guess]:
        sys.exit(3)

    scene = Scene(form, [text("done")])
    scene.spec._opener.team = team_of([Rules(leave)])
    result = await scene.agent.ainvoke(HELLO)
    assert result["messages"][-1].content == "done"
    assert scene.verdicts("error") == ["SystemExit"]
