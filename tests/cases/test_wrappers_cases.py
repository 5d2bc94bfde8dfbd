"""Cases of kind 2: other middleware that approves, edits, retries or blocks (B28, B30)."""

import asyncio
from typing import Any

import pytest
from harness import HELLO, WAYS, Rehearsal, Scene, comparable
from langchain.agents.middleware import (
    AgentMiddleware,
    AutoModeMiddleware,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.decisions.types import NoulAnswer
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_spectool import speculatable
from langchain_spectool.testing import calls, text


class Rewrite(AgentMiddleware[Any, Any, Any]):
    """Turns every city into Bergen."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def _edited(self, request: Any) -> Any:
        self.count += 1
        return request.override(tool_call={**request.tool_call, "args": {"city": "Bergen"}})

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(self._edited(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._edited(request))


def _weather(ran: list[Any]) -> BaseTool:
    @speculatable
    @tool
    def weather(city: str) -> str:
        """Weather."""
        ran.append(city)
        return f"w:{city}"

    return weather


@pytest.mark.parametrize("guessed", ["Oslo", "Bergen"])
@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_b30_edited_arguments(guessed: str, where: str, way: Any, ran: list[Any]) -> None:
    """B30: the arguments that reach the body decide, wherever another middleware edits them."""
    rewrite = Rewrite()
    scene = Scene(
        turns=[calls(("weather", {"city": "Oslo"})), text("done")],
        tools=[_weather(ran)],
        way=way,
    )
    scene.add(rewrite, where)
    played = Rehearsal(scene, [("weather", {"city": guessed})])
    ours = await played.run()
    assert ours.tools == [("c0", "success", "w:Bergen")]
    assert rewrite.count == 1
    assert played.report.hits == 0
    assert ran[-1] == "Bergen"


async def test_b30_edited_arguments_in_a_node(way: Any, ran: list[Any]) -> None:
    """B30: the same with the wrappers of a tool node, which stand outside ours."""
    rewrite = Rewrite()
    scene = Scene(
        turns=[calls(("weather", {"city": "Oslo"})), text("done")],
        tools=[_weather(ran)],
        form="graph",
        way=way,
        node={
            "wrap_tool_call": rewrite.wrap_tool_call,
            "awrap_tool_call": rewrite.awrap_tool_call,
        },
    )
    ours = await Rehearsal(scene, [("weather", {"city": "Oslo"})]).run()
    assert ours.tools == [("c0", "success", "w:Bergen")]
    assert rewrite.count == 1


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_b30_retry_runs_the_tool_again(where: str, way: Any) -> None:
    """B30: a retry by another middleware reaches the body, never a stored failure."""
    attempts = 0

    @speculatable(deterministic=True)
    @tool
    def flaky(x: str) -> str:
        """Fail twice: early, and at the call."""
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise RuntimeError("upstream 503")
        return "ok"

    retry = ToolRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    asked = [("flaky", {"x": "1"})]
    scene = Scene(
        turns=[calls(*asked), text("done")],
        tools=[flaky],
        way=way,
    )
    scene.add(retry, where)
    ours = await Rehearsal(scene, asked).run()
    assert ours.tools == [("c0", "success", "ok")]
    assert attempts == 3


# --- B28: approval


@pytest.fixture(name="tools")
def _tools(ran: list[Any]) -> list[BaseTool]:
    @speculatable
    @tool
    def pay(amount: int) -> str:
        """Pay; declared by mistake, so that only the gate holds it back."""
        ran.append(("pay", amount))
        return f"paid {amount}"

    return [_weather(ran), pay]


THREAD: Any = {"configurable": {"thread_id": "1"}}
TWO = [("weather", {"city": "Oslo"}), ("pay", {"amount": 10})]
DECISIONS: list[Any] = [
    {"type": "approve"},
    {"type": "reject", "message": "no"},
    {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 1}}},
    {"type": "respond", "message": "did it by hand"},
]


async def _decided(agent: Any, way: str, decision: Any, mode: str) -> list[tuple[Any, ...]]:
    """Run until the approval, decide, and run to the end; return the messages."""

    async def go(value: Any) -> Any:
        if way == "invoke":
            return await asyncio.to_thread(agent.invoke, value, THREAD)
        return await agent.ainvoke(value, THREAD)

    paused = await go(HELLO)
    assert len(paused["__interrupt__"]) == 1
    answer = {"decisions": [decision]} if mode == "batched" else decision
    return comparable((await go(Command(resume=answer)))["messages"])


@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("decision", DECISIONS, ids=lambda it: it["type"])
async def test_b28_approval(
    decision: Any, mode: Any, where: str, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B28 S22 S23: what needs an approval never runs early, and after it all is as in stock."""
    for way in WAYS:
        scene = Scene(turns=[calls(*TWO), text("done")], tools=tools, way=way)
        gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True}, interrupt_mode=mode)
        scene.add(gate, where)
        scene.options = {"checkpointer": InMemorySaver()}
        stock = await _decided(scene.agent(), way, decision, mode)
        paid = [each for each in ran if each[0] == "pay"]
        ran.clear()
        scene.options = {"checkpointer": InMemorySaver()}
        played = Rehearsal(scene, TWO)
        assert await _decided(played.agent, way, decision, mode) == stock
        assert [each for each in ran if each[0] == "pay"] == paid
        assert played.verdicts("guess") == ["run", "gated"]
        ran.clear()


async def test_b28_nothing_of_pay_runs_before_the_decision(
    way: Any, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B28: before the decision only the tool that was opted in has run."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    scene = Scene(
        turns=[calls(*TWO), text("done")],
        tools=tools,
        way=way,
        middleware=[gate],
        options={"checkpointer": InMemorySaver()},
    )
    played = Rehearsal(scene, TWO)
    ours = await played.run(THREAD)
    assert "__interrupt__" in ours.state
    assert ran == ["Oslo"]


async def test_b28_edited_call_has_the_key_of_the_edit(
    way: Any, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B28 S23: approval of weather turns Oslo into Bergen, and Bergen is what is looked up."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"weather": True})
    scene = Scene(
        turns=[calls(TWO[0]), text("done")],
        tools=tools,
        way=way,
        middleware=[gate],
        options={"checkpointer": InMemorySaver()},
    )
    played = Rehearsal(scene, [TWO[0], ("weather", {"city": "Bergen"})])
    edit = {"type": "edit", "edited_action": {"name": "weather", "args": {"city": "Bergen"}}}
    messages = await _decided(played.agent, way, edit, "batched")
    assert "w:Bergen" in messages[2][1]
    assert ran == ["Bergen"]
    assert played.report.guesses == 0


class Classifier(BaseDecisionModel):
    """Finds every call risky, or none."""

    model: str = "fake"
    risk: float = 0.0

    @property
    def _provider(self) -> str:
        return "fake"

    def _classify(self, state: Any, questions: Any) -> ClassifierResponse:
        answers: Any = {name: NoulAnswer(type="noul", noul=self.risk) for name in questions}
        return ClassifierResponse(model="fake", answers=answers)


@pytest.mark.parametrize("risk", [0.0, 1.0])
@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_b28_auto_mode(
    risk: float, where: str, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B28: what auto mode judges never runs early, and its verdicts are stock's."""
    scene = Scene(turns=[calls(*TWO), text("done")], tools=tools)
    gate = AutoModeMiddleware(tools=["pay"], classifier=Classifier(risk=risk))
    scene.add(gate, where)
    stock = await scene.stock()
    ran.clear()
    played = Rehearsal(scene, TWO)
    assert (await played.run()).said == stock.said
    assert played.verdicts("guess") == ["run", "gated"]
    assert ran.count(("pay", 10)) == (0 if risk else 1)


@pytest.mark.parametrize("form", ["create_agent", "graph"])
async def test_b28_gates_named_by_hand(
    form: Any, way: Any, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B28: a gate that cannot be found, such as `interrupt_before`, is named in `gated`."""
    scene = Scene(turns=[calls(*TWO), text("done")], tools=tools, form=form, way=way)
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    for gated in (["pay"], [gate]):
        ran.clear()
        played = Rehearsal(scene, TWO, gated=gated)
        assert (await played.run()).said == (await scene.stock()).said
        assert played.verdicts("guess") == ["run", "gated"]


async def test_b28_gate_of_another_agent_holds_nothing_back(
    tools: list[BaseTool], ran: list[Any]
) -> None:
    """B28: gates are looked for in the same agent only."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    gated = Scene(turns=[text("done")], tools=tools, middleware=[gate])
    open_ = Scene(turns=[calls(*TWO), text("done")], tools=tools)
    played = Rehearsal(open_, TWO)
    agents = gated.agent(played.spec), played.agent
    for agent in agents:
        await agent.ainvoke(HELLO)
    assert played.report.hits == 2
