"""What a wrapped node answers: the model's message is found in any shape, or nothing is lost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.graph import MessagesState
from langgraph.types import Command
from pydantic import BaseModel

from langchain_spectool.graph.answers import answer_in
from langchain_spectool.testing import ScriptedModel, text
from tests.graph.node_scene import FIRST, LAST, MAIN_S, Scene, ask

# --- what a node answers


@dataclass
class Update:
    """A node's update as a dataclass."""

    messages: list[Any]
    note: str = ""


class ModelUpdate(BaseModel):
    """The same in pydantic."""

    messages: list[Any]
    note: str = ""


ANSWERS: dict[str, Callable[[AIMessage], Any]] = {
    "dict": lambda m: {"messages": [m]},
    "bare message": lambda m: {"messages": m},
    "command": lambda m: Command(update={"messages": [m]}),
    "command of pairs": lambda m: Command(update=[("messages", [m])]),
    "list of commands": lambda m: [Command(update={"messages": [m]}), Command(update={})],
    "dataclass": lambda m: Update([m]),
    "pydantic": lambda m: ModelUpdate(messages=[m]),
}


@pytest.mark.parametrize("shape", ANSWERS)
async def test_answers_of_any_shape(shape: str) -> None:
    """The plan is made from the message a node writes, whatever it is wrapped in."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])

    async def call(state: MessagesState) -> Any:
        return ANSWERS[shape](await bound.ainvoke(state["messages"]))

    class Noted(MessagesState):
        note: str

    scene.assert_hit(
        await scene.graph(scene.spec.model_node(call), Noted).ainvoke({**ask(), "note": ""})
    )


async def test_message_that_the_node_changed_is_what_counts() -> None:
    """A node that edits its model's answer is planned for by the edit."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])

    async def call(state: MessagesState) -> Any:
        message = await bound.ainvoke(state["messages"])
        for asked in message.tool_calls:
            asked["args"] = {"q": "bees"}
        return {"messages": [message]}

    state = await scene.graph(scene.spec.model_node(call)).ainvoke(ask())
    assert [m.content for m in state["messages"]][2] == "found bees"
    assert scene.ran == ["ants", "bees"]
    assert (scene.spec.report().hits, scene.spec.report().wasted) == (0, 1)


async def test_node_that_keeps_its_answer() -> None:
    """A node may write nothing: what its model said then counts, and is left unclaimed."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])

    async def call(state: MessagesState) -> Any:
        await bound.ainvoke(state["messages"])

    state = await scene.graph(scene.spec.model_node(call)).ainvoke(ask())
    assert [m.content for m in state["messages"]] == ["hi"]
    report = scene.spec.report()
    assert (report.guesses, report.hits, report.wasted) == (1, 0, 1)


@pytest.mark.parametrize("kind", ["function", "async function", "runnable", "streamed"])
async def test_node_that_never_calls_its_model(kind: str) -> None:
    """No call of a model is no turn: nothing is counted, nothing is left."""
    scene = Scene()

    def canned(state: MessagesState) -> Any:
        return {"messages": [text("done")]}

    async def acanned(state: MessagesState) -> Any:
        return canned(state)

    node = {"function": canned, "async function": acanned}.get(kind, RunnableLambda(canned))
    graph = scene.graph(scene.spec.model_node(node))
    if kind == "streamed":
        assert [event async for event in graph.astream_events(ask(), version="v2")]
    else:
        state = await graph.ainvoke(ask())
        assert [m.content for m in state["messages"]] == ["hi", "done"]
    report = scene.spec.report()
    assert (report.turns, report.guesses, report.errors) == (0, 0, 0)
    assert scene.observed.events == []


async def test_model_without_our_tools_is_no_turn_of_ours() -> None:
    """A node may ask another model first: only one that has our tools is guessed for."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])
    other = ScriptedModel(script=lambda _: text("a title"), generation_s=MAIN_S)

    async def call(state: MessagesState) -> Any:
        await other.ainvoke("Name this conversation.")
        return {"messages": [await bound.ainvoke(state["messages"])]}

    scene.assert_hit(await scene.graph(scene.spec.model_node(call)).ainvoke(ask()))


async def test_node_without_our_tools_is_idle() -> None:
    """A model with none of our tools bound is heard, and left alone."""
    scene = Scene()
    bare = ScriptedModel(script=lambda _: text("done"))

    async def call(state: MessagesState) -> Any:
        return {"messages": [await bare.ainvoke(state["messages"])]}

    await scene.graph(scene.spec.model_node(call)).ainvoke(ask())
    assert scene.spec.report().turns == 0
    assert scene.observed.events == []


async def test_error_of_a_node_is_its_own() -> None:
    """A node that raises after its model answered leaves nothing in the air."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])

    async def call(state: MessagesState) -> Any:
        await bound.ainvoke(state["messages"])
        raise LookupError("theirs")

    with pytest.raises(LookupError, match="theirs"):
        await scene.graph(scene.spec.model_node(call)).ainvoke(ask())
    kinds = [(e.kind, e.verdict) for e in scene.observed.events]
    assert ("discarded", "turn_failed") in kinds
    assert ("turn_ended", "failed") in kinds


class Hostile(BaseModel):
    """An output that cannot be read."""

    messages: list[Any]

    def __iter__(self) -> Any:
        raise ZeroDivisionError("not to be looked at")


async def test_unreadable_output_is_a_miss_at_most() -> None:
    """What a node answers may not be readable for us: the model's own words then count."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])

    async def call(state: MessagesState) -> Any:
        return Hostile(messages=[await bound.ainvoke(state["messages"])])

    await scene.spec.model_node(RunnableLambda(call)).ainvoke({"messages": [HumanMessage("hi")]})
    assert scene.spec.report().errors == 0  # nobody speculates outside a graph

    def finish(output: Hostile) -> Any:
        return {"messages": output.messages}

    chain = RunnableLambda(call) | finish
    state = await scene.graph(scene.spec.model_node(chain)).ainvoke(ask())
    assert [m.content for m in state["messages"]][2:] == ["found ants", "done"]
    assert {e.verdict for e in scene.observed.events if e.kind == "error"} == {"ZeroDivisionError"}


# --- the answer in an output


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (None, None),
        ("text", None),
        (b"bytes", None),
        (7, None),
        (HumanMessage("hi"), None),
        (LAST, LAST),
        ([FIRST, LAST, HumanMessage("hi")], LAST),
        ((FIRST, LAST), LAST),
        ({"messages": [FIRST, LAST]}, LAST),
        ({"a": [FIRST], "b": [LAST]}, LAST),
        ({"messages": [], "n": 1, "text": "x"}, None),
        (Command(), None),
        (Command(update={"messages": [LAST]}), LAST),
        (Command(update=[("messages", [LAST])]), LAST),
        ([{"messages": [FIRST]}, Command(update={"messages": [LAST]})], LAST),
        (Update([FIRST, LAST]), LAST),
        (Update([], "note"), None),
        (ModelUpdate(messages=[FIRST, LAST]), LAST),
        (ModelUpdate(messages=[]), None),
        (Update, None),
    ],
)
def test_answer_in(output: Any, found: AIMessage | None) -> None:
    """The last AI message of an output, and none from values that hold no messages."""
    answer = answer_in(output)
    assert answer is found or answer == found


@dataclass
class Wraps(AgentMiddleware):
    """Answers a model call in a shape of its own."""

    shape: Callable[[ModelResponse[Any]], Any]

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self.shape(await handler(request))


SHAPES: dict[str, Callable[[ModelResponse[Any]], Any]] = {
    "response": lambda response: response,
    "message": lambda response: response.result[0],
    "extended": lambda response: ExtendedModelResponse(model_response=response),
    "with a command": lambda response: ExtendedModelResponse(
        model_response=response, command=Command(update={})
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_answers_of_middleware(shape: str) -> None:
    """Middleware inside ours may answer in every shape that `create_agent` takes."""
    scene = Scene()
    inner = Wraps(SHAPES[shape])
    agent = create_agent(scene.model(), [scene.look], middleware=[scene.spec.middleware(), inner])
    scene.assert_hit(await agent.ainvoke(ask()))
