"""Cases of kind 2: the tool node behaves as stock's, whatever was guessed."""

import asyncio
import inspect
import traceback
from typing import Any

import pytest
from harness import HELLO, Form, Rehearsal, Scene, Shape, comparable, outcome
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.prebuilt import ToolNode

from langchain_spectool import SpeculativeToolNode, explain, speculatable
from langchain_spectool.errors import ContractError
from langchain_spectool.testing import calls, text


@tool
async def aecho(x: str) -> str:
    """Echo, later."""
    await asyncio.sleep(0.01)
    return f"aecho:{x}"


speculatable(aecho)


def _echo(ran: list[Any]) -> BaseTool:
    @speculatable
    @tool
    def echo(x: str) -> str:
        """Echo."""
        ran.append(x)
        return f"echo:{x}"

    return echo


# --- B16: cancellation


async def test_b16_tool_that_cancels_itself(form: Form) -> None:
    """B16: a body that raises CancelledError at its call ends the run as in stock."""

    @speculatable
    @tool
    async def self_cancel(x: str) -> str:
        """Raise what a cancelled inner request raises."""
        raise asyncio.CancelledError

    asked = [("self_cancel", {"x": "1"}), ("aecho", {"x": "2"})]
    node = {"handle_tool_errors": True} if form == "graph" else {}
    scene = Scene(
        turns=[calls(*asked), text("done")], tools=[self_cancel, aecho], form=form, node=node
    )
    stock = await scene.stock()
    ours = await Rehearsal(scene, asked).run()
    assert stock.error is not None
    assert ours.said == stock.said


async def test_b16_cancelled_early_run_stays_out_of_the_way(form: Form) -> None:
    """B16: an early run that was cancelled from inside leaves its call and the sibling alone."""
    attempts = 0

    @speculatable
    @tool
    async def flaky(x: str) -> str:
        """Be cancelled once."""
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise asyncio.CancelledError
        return f"flaky:{x}"

    asked = [("flaky", {"x": "1"}), ("aecho", {"x": "2"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[flaky, aecho], form=form)
    played = Rehearsal(scene, asked)
    ours = await played.run()
    assert [content for _, _, content in ours.tools] == ["flaky:1", "aecho:2"]
    assert attempts == 2
    assert played.verdicts("discarded") == ["failed"]
    assert played.report.hits == 1


async def test_b16_outer_cancellation_passes(form: Form) -> None:
    """B16: cancelling the run while a call waits for its early run ends both at once."""
    seen: list[str] = []

    @speculatable
    @tool
    async def slow(x: str) -> str:
        """Take long."""
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return x

    asked = [("slow", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[slow], form=form)
    played = Rehearsal(scene, asked)
    running = asyncio.create_task(played.agent.ainvoke(HELLO))
    await asyncio.sleep(5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(1)
    assert seen == ["cancelled"]
    assert played.report.guesses == 1
    assert played.report.wasted == 1


# --- B17: names and forgery


async def test_b17_two_tools_of_one_name(shape: Shape) -> None:
    """B17: of two tools with one name neither runs early, and stock's winner answers."""
    bodies: list[str] = []

    @tool("act")
    def safe(x: str) -> str:
        """Read."""
        bodies.append("safe")
        return "safe"

    @tool("act")
    def danger(x: str) -> str:
        """Write."""
        bodies.append("danger")
        return "danger"

    asked = [("act", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[speculatable(safe), danger], **shape)
    stock = await scene.stock()
    bodies.clear()
    played = Rehearsal(scene, asked)
    assert (await played.run()).said == stock.said
    assert bodies == ["danger"]
    assert played.report.guesses == 0
    assert {it.early for it in explain([safe, danger])} == {False}


@pytest.mark.parametrize("told", [True, False])
async def test_b17_forged_sibling_id(told: bool, shape: Shape, ran: list[Any]) -> None:
    """B17: a message bound to a sibling's id is never taken from an early run."""

    def forge(x: str) -> Any:
        """Answer for another call."""
        ran.append(("forge", x))
        return ToolMessage("forged", tool_call_id="c1", name="echo")

    forge.__annotations__["return"] = ToolMessage if told else Any
    forger = tool(forge)
    if told:
        with pytest.raises(ContractError, match="Command or ToolMessage"):
            speculatable(forger)
    else:
        speculatable(forger)
    asked = [("forge", {"x": "1"}), ("echo", {"x": "2"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[forger, _echo(ran)], **shape)
    stock = await scene.stock()
    ran.clear()
    played = Rehearsal(scene, asked)
    assert (await played.run()).said == stock.said
    assert ran.count(("forge", "1")) == (1 if told else 2)
    assert played.verdicts("discarded").count("tainted") == (0 if told else 1)
    assert played.report.hits <= 1


async def test_b17_parameter_called_runtime(shape: Shape) -> None:
    """B17: a plain parameter with the name `runtime` is overwritten as in stock."""

    @speculatable
    @tool
    def schedule(task: str, runtime: str) -> str:
        """Take the runtime for a string."""
        return f"{task}@{runtime}"

    asked = [("schedule", {"task": "t", "runtime": "noon"})]
    node = {"handle_tool_errors": True} if shape["form"] == "graph" else {}
    scene = Scene(turns=[calls(*asked), text("done")], tools=[schedule], node=node, **shape)
    stock = await scene.stock()
    ours = await Rehearsal(scene, asked).run()
    if stock.error is not None:
        assert ours.error is not None
        assert ours.error[0] is stock.error[0]
    else:
        assert [m[:1] + m[3:] for m in ours.messages] == [m[:1] + m[3:] for m in stock.messages]


# --- B19: asynchronous tools in blocking runs


@pytest.mark.parametrize("handled", [True, False])
async def test_b19_async_tool_in_a_blocking_run(handled: bool, form: Form) -> None:
    """B19: an async-only tool under `invoke` is skipped by name and fails as in stock."""
    asked = [("aecho", {"x": "1"})]
    node = {"handle_tool_errors": True} if handled and form == "graph" else {}
    scene = Scene(
        turns=[calls(*asked), text("done")], tools=[aecho], form=form, way="invoke", node=node
    )
    stock = await scene.stock()
    played = Rehearsal(scene, asked)
    assert (await played.run()).said == stock.said
    assert played.verdicts("guess") == ["not_sync"]


@pytest.mark.real_loop
async def test_b19_blocking_run_inside_a_loop(form: Form, ran: list[Any]) -> None:
    """B19: `invoke` inside a coroutine works, early run included, as in a notebook."""
    asked = [("echo", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[_echo(ran)], form=form, way="invoke")
    played = Rehearsal(scene, asked)
    state = played.agent.invoke(HELLO)
    assert comparable(state["messages"])[2][1] == "echo:1"
    assert ran[0] == "1"
    assert played.report.guesses == 1
    assert played.report.errors == 0


# --- B21: errors


@pytest.mark.parametrize("handled", [None, True, False])
@pytest.mark.parametrize("guessed", [True, False])
async def test_b21_raising_tool_beside_another(
    handled: bool | None, guessed: bool, way: Any, ran: list[Any]
) -> None:
    """B21: the policy for errors, their type and their message are stock's."""

    @speculatable
    @tool
    def boom(x: str) -> str:
        """Raise."""
        raise RuntimeError("upstream 503")

    asked = [("boom", {"x": "1"}), ("echo", {"x": "2"})]
    scene = Scene(
        turns=[calls(*asked), text("done")],
        tools=[boom, _echo(ran)],
        form="graph",
        way=way,
        node={} if handled is None else {"handle_tool_errors": handled},
    )
    stock = await scene.stock()
    ours = await Rehearsal(scene, asked if guessed else []).run()
    assert ours.said == stock.said
    assert (ours.error is None) == (handled is True)


async def test_b21_traceback_leads_to_the_body(shape: Shape) -> None:
    """B21: the error of a committed call carries the body's own frame, and no cause of ours."""

    @speculatable
    @tool
    def boom(x: str) -> str:
        """Raise."""
        raise RuntimeError("upstream 503")

    asked = [("boom", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[boom], **shape)
    stock = await scene.stock()
    ours = await Rehearsal(scene, asked).run()
    assert ours.raised is not None
    assert stock.raised is not None
    assert traceback.extract_tb(ours.raised.__traceback__)[-1].name == "boom"
    assert ours.raised.__cause__ is stock.raised.__cause__ is None


async def test_b21_early_failure_is_invisible(shape: Shape) -> None:
    """B21 S5: a failed early run is a miss, and the call runs for real."""
    attempts = 0

    @speculatable
    @tool
    def once(x: str) -> str:
        """Fail once."""
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("upstream 503")
        return "ok"

    asked = [("once", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[once], **shape)
    played = Rehearsal(scene, asked)
    ours = await played.run()
    assert ours.tools == [("c0", "success", "ok")]
    assert attempts == 2
    assert played.verdicts("discarded") == ["failed"]


# --- B71: only public seams


def test_b71_no_private_method_is_overridden() -> None:
    """B71: nothing of ToolNode's that starts with an underscore is replaced."""
    own = {name for name, value in vars(SpeculativeToolNode).items() if inspect.isfunction(value)}
    assert {name for name in own if hasattr(ToolNode, name)} == {"__init__", "invoke", "ainvoke"}


async def test_b71_outside_a_graph(way: Any, ran: list[Any]) -> None:
    """B71: called outside a graph the node does what stock does there."""
    message = {"messages": [calls(("echo", {"x": "1"}))]}
    stock = await outcome(ToolNode([_echo(ran)]), message, way=way)
    ours = await outcome(SpeculativeToolNode([_echo(ran)]), message, way=way)
    assert ours.said == stock.said
