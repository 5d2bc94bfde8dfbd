"""Cases of kind 2: what is injected into a tool, and whose it is (B18, S24)."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from harness import HELLO, Rehearsal, Scene, Shape, comparable
from langchain.agents.middleware.types import AgentState
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, ToolRuntime

from langchain_spectool import speculatable
from langchain_spectool.errors import ContractError
from langchain_spectool.testing import calls, text


class UserState(AgentState[Any]):
    user_id: str


class UserMessages(TypedDict):
    messages: Annotated[list[Any], add_messages]
    user_id: str


@tool
def my_orders(q: str, user_id: Annotated[str, InjectedState("user_id")]) -> str:
    """List the orders of the current user."""
    return f"{user_id}:{q}"


@pytest.mark.parametrize("args", [{"q": "x"}, {"q": "x", "user_id": "alice"}])
async def test_b18_injected_state(args: dict[str, Any], shape: Shape) -> None:
    """B18 S24: a tool that reads state runs at its call only, and forged values are ignored."""
    with pytest.raises(ContractError, match="graph's state"):
        speculatable(my_orders)
    scene = Scene(turns=[calls(("my_orders", args)), text("done")], tools=[my_orders], **shape)
    if scene.form == "graph":
        scene.schema = UserMessages
    else:
        scene.options = {"state_schema": UserState}
    played = Rehearsal(scene, [("my_orders", args)])
    for user in ("alice", "bob"):
        ours = await played.run(user_id=user)
        assert ours.said == (await scene.stock(user_id=user)).said
        assert ours.tools[0][2] == f"{user}:x"
    assert set(played.verdicts("guess")) <= {"structure"}
    assert played.report.guesses == 0


@dataclass
class User:
    name: str


@pytest.mark.parametrize("reuse", ["turn", "run"])
async def test_b18_context_of_another_run(reuse: Any, shape: Shape) -> None:
    """B18 S24: alice's early run never answers bob's equal call, not even at the same time."""

    @speculatable(reuse=reuse, deterministic=True)
    @tool
    def whose(q: str, runtime: ToolRuntime[User]) -> str:
        """Tell whose run this is."""
        return f"{runtime.context.name}:{q}"

    asked = [("whose", {"q": "x"})]
    key = "context_schema"
    scene = Scene(turns=[calls(*asked), text("done")], tools=[whose], **shape)
    if scene.form == "create_agent":
        scene.options = {key: User}
    played = Rehearsal(scene, asked)

    async def run(user: str) -> str:
        if scene.way == "invoke":
            state = await asyncio.to_thread(played.agent.invoke, HELLO, context=User(user))
        else:
            state = await played.agent.ainvoke(HELLO, context=User(user))
        return str(comparable(state["messages"])[2][1])

    answers = await asyncio.gather(*map(run, ("alice", "bob", "alice")))
    assert answers == ["alice:x", "bob:x", "alice:x"]
    # Blocking models that run at once share one cue, so only the first is sure to wait for it.
    assert played.report.hits >= (3 if scene.way == "ainvoke" else 1)


@pytest.mark.parametrize("field", ["tool_call_id", "state"])
async def test_b18_runtime_of_the_call(field: str, shape: Shape) -> None:
    """B18: what a body reads off the runtime is that of its own call, as in stock."""

    @speculatable
    @tool
    def show(q: str, runtime: ToolRuntime) -> str:
        """Show a field of the runtime."""
        value = getattr(runtime, field)
        return str(value) if isinstance(value, str) else str(sorted(value))

    asked = [("show", {"q": "x"}), ("show", {"q": "x"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[show], **shape)
    played = Rehearsal(scene, asked)
    assert (await played.run()).said == (await scene.stock()).said
    assert set(played.verdicts("discarded")) == {"tainted"}
    assert played.report.hits == 0


async def test_b18_thread_id_is_readable_early(shape: Shape) -> None:
    """B18: the caller's own configurable values, such as the thread, are the same early."""

    @speculatable
    @tool
    def thread(q: str, runtime: ToolRuntime) -> str:
        """Show the thread."""
        return str(runtime.config["configurable"].get("thread_id"))

    asked = [("thread", {"q": "x"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[thread], **shape)
    played = Rehearsal(scene, asked)
    ours = await played.run({"configurable": {"thread_id": "T"}})
    assert ours.tools == [("c0", "success", "T")]
    assert played.report.hits == 1


async def test_b18_tool_call_id(shape: Shape) -> None:
    """B18: a tool that asks for its call's id is never run early, and gets each its own."""

    @tool
    def tid(q: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Build the message itself."""
        return ToolMessage(f"for {tool_call_id}", tool_call_id=tool_call_id)

    with pytest.raises(ContractError, match="id of the model's call"):
        speculatable(tid)
    asked = [("tid", {"q": "x"}), ("tid", {"q": "x"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[tid], **shape)
    played = Rehearsal(scene, asked)
    ours = await played.run()
    assert ours.said == (await scene.stock()).said
    assert [content for _, _, content in ours.tools] == ["for c0", "for c1"]
    assert played.report.guesses == 0
