"""Chains side by side, of runs that are left, and in threads."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_spectool import Guess, Rules, Speculation
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.pool import POOL
from langchain_spectool._runtime.turn_scope import TurnScope
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.testing import ScriptedModel, Turn, calls, text
from tests.graph.chain_scene import (
    DONE,
    FIND,
    GENERATION_S,
    HELLO,
    THREE,
    TWO,
    Scene,
    expected,
    forms,
    route,
    seen,
)
from tests.graph.leftovers import until

pytestmark = pytest.mark.usefixtures("nothing_left")

# --- side by side


class Parts:
    """The parts of a graph of two branches."""

    def __init__(self) -> None:
        self.scene = Scene(seconds={"find": 0.5, "order": 3.0})

    def agent(self, turns: Sequence[AIMessage]) -> Any:
        model = ScriptedModel(turns=turns, generation_s=GENERATION_S)
        return create_agent(model, self.scene.spec.tools, middleware=[self.scene.spec.middleware()])

    async def run(self, **branches: Any) -> dict[str, list[tuple[str, Any, Any]]]:
        """Run the branches as nodes of one superstep; return their messages."""
        found: dict[str, list[tuple[str, Any, Any]]] = {}

        def node(name: str, agent: Any) -> Any:
            async def call(_: MessagesState) -> dict[str, Any]:
                found[name] = seen((await agent.ainvoke(HELLO))["messages"])
                return {}

            return call

        builder = StateGraph(MessagesState)
        for name, agent in branches.items():
            builder.add_node(name, node(name, agent))
            builder.add_edge(START, name)
        graph: Any = builder.compile()
        await graph.ainvoke(HELLO)
        return found


async def test_subgraphs_side_by_side() -> None:
    """Each claims what it guessed itself; the one that stops early ends nothing of the other's."""
    parts = Parts()
    long, short = parts.agent(TWO), parts.agent((calls(FIND), DONE))
    began_s = asyncio.get_running_loop().time()
    await parts.run(long=long, short=short)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3 * GENERATION_S)
    claims = parts.scene.told("claim")
    assert sorted(claims) == [("hit", "find", "rules")] * 2 + [("hit", "order", "chain")]
    assert ("unclaimed", "order", "chain") in parts.scene.told("discarded")
    assert parts.scene.balanced()


async def test_branches_of_one_graph() -> None:
    """Model nodes of one superstep: the branch without calls does not end the other's chain."""
    scene = Scene(seconds={"find": 0.5, "order": 3.0})
    quiet = ScriptedModel(script=lambda _: text("nothing to do"), generation_s=GENERATION_S / 4)
    slow = ScriptedModel(script=lambda _: text("nothing either"), generation_s=GENERATION_S * 2)

    async def main(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await scene.model.ainvoke(state["messages"])]}

    def beside(model: ScriptedModel) -> Any:
        bound = model.bind_tools(scene.spec.tools)

        async def node(state: MessagesState) -> dict[str, Any]:
            await bound.ainvoke([HumanMessage("anything else?")])
            return {}

        return scene.spec.model_node(node)

    bound = scene.model.bind_tools(scene.spec.tools)

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("main", scene.spec.model_node(call))
    builder.add_node("quiet", beside(quiet))
    builder.add_node("slow", beside(slow))
    builder.add_node("tools", scene.spec.tool_node())
    for name in ("main", "quiet", "slow"):
        builder.add_edge(START, name)
        builder.add_edge("tools", name)
    builder.add_conditional_edges("main", route, ["tools", END])
    graph: Any = builder.compile()
    await graph.ainvoke(HELLO)
    claims = scene.told("claim")
    assert ("hit", "order", "chain") in claims
    assert scene.balanced()


# --- leaving


async def _cancelled(scene: Scene, after_s: float) -> None:
    task = asyncio.ensure_future(scene.agent.ainvoke(HELLO))
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@forms
@pytest.mark.parametrize("after_s", [1.0, 2.5, 3.0])
async def test_cancelled_run_leaves_nothing(form: str, after_s: float) -> None:
    """In the first answer, in the tools, and in the second answer, while a chain's run is on."""
    seconds = {"find": 0.6 if after_s != 2.5 else 1.5, "order": 30.0}
    scene = Scene(form, seconds=seconds)
    await _cancelled(scene, after_s)
    await check_left(scene)
    assert "order cancelled" in scene.ends


@forms
@pytest.mark.parametrize("place", [0, 1])
async def test_failed_model_leaves_nothing(form: str, place: int) -> None:
    """The first answer fails, or the second, which the chain's run waits for."""
    turns = [*TWO]
    turns[place] = Turn(error=ValueError("planted"))  # type: ignore[call-overload]
    scene = Scene(form, turns, seconds={"find": 0.5, "order": 30.0})
    with pytest.raises(ValueError, match="planted"):
        await scene.lasts_s()
    await check_left(scene)
    assert "order cancelled" in scene.ends


@forms
async def test_interrupt_leaves_nothing(form: str) -> None:
    """The run ends where a human is asked; resumed, it starts from nothing and ends as stock."""
    scene = Scene(
        form,
        (calls(FIND, ("ask", {"q": "may I?"})), DONE),
        seconds={"find": 0.5, "order": 30.0},
        saver=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    paused = await scene.agent.ainvoke(HELLO, config)
    assert paused["__interrupt__"]
    await check_left(scene)
    assert scene.ends.count("order cancelled") == 1


async def check_left(scene: Scene) -> None:
    """The run is over: in two steps of the loop nothing of ours is left."""
    assert runs.in_progress() == 0
    for _ in range(3):
        await asyncio.sleep(0)
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert [name for name in names if name.startswith("spectool")] == []
    assert scene.balanced()


# --- in threads


@forms
@pytest.mark.parametrize("depth", [2, 3])
def test_threads(form: str, depth: int) -> None:
    """Under `invoke` a chain goes on in the thread that brought the result."""

    def ready(scene: Scene, place: int) -> bool:
        return len(scene.told("landed")) >= min(depth, 3) or place > 0

    scene = Scene(form, THREE, depth=depth, synchronous=True, paced=ready)
    answer = scene.agent.invoke(HELLO)
    until(lambda: POOL.busy == 0)
    sources = [source for _, _, source in scene.told("claim")]
    assert sources[:depth] == ["rules", *["chain"] * (depth - 1)]
    assert seen(answer["messages"]) == seen(
        scene.built(speculative=False).invoke(HELLO)["messages"]
    )
    assert scene.balanced()


async def test_blocking_tools_under_a_loop() -> None:
    """Their threads bring the result back to the loop, where the inner source is asked."""

    def ready(scene: Scene, place: int) -> bool:
        return True

    scene = Scene("create_agent", TWO)
    scene.synchronous = True
    blocking = Scene("create_agent", TWO, synchronous=True)
    model = ScriptedModel(turns=TWO, generation_s=GENERATION_S)
    where: list[str] = []

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        where.append(threading.current_thread().name)
        return expected(messages)

    spec = Speculation(
        blocking.spec.tools, speculators=[Chain(Rules(rule))], observers=[blocking.log]
    )
    agent: Any = create_agent(model, spec.tools, middleware=[spec.middleware()])
    await agent.ainvoke(HELLO)
    assert set(where) == {threading.main_thread().name}
    assert blocking.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]
    assert blocking.balanced()


@pytest.mark.parametrize("form", ["create_agent", "graph"])
def test_result_that_comes_at_once_is_gone_on_from(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body may be back in its thread before who started it can do anything more."""
    offer = TurnScope.offer

    def ready(scene: Scene, place: int) -> bool:
        return len(scene.told("landed")) >= 2 or bool(scene.told("error")) or place > 0

    def slow(turn: TurnScope, *candidate: Any) -> Any:
        flight = offer(turn, *candidate)
        until(lambda: flight is None or flight.landed_s is not None)
        time.sleep(0.005)
        return flight

    monkeypatch.setattr(TurnScope, "offer", slow)
    scene = Scene(form, TWO, synchronous=True, paced=ready)
    scene.agent.invoke(HELLO)
    assert scene.told("error") == []
    assert ("run", "order", "chain") in scene.told("guess")
