"""`SpeculativeModelNode`: every kind of node, and what wrapping leaves as it is."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict, get_type_hints

import pytest
from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableSequence
from langgraph.graph import MessagesState
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel

from langchain_spectool import (
    EarlyDispatch,
    Speculation,
    SpeculativeModelNode,
)
from tests.graph.node_scene import Scene, ask, awaiting

# --- kinds of nodes


def _function(bound: Any) -> Any:
    def call(state: MessagesState) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    return call


class Caller:
    """A node that is an object."""

    def __init__(self, bound: Any) -> None:
        self.bound = bound

    def __call__(self, state: MessagesState) -> Any:
        return {"messages": [self.bound.invoke(state["messages"])]}

    def method(self, state: MessagesState) -> Any:
        return self(state)


class ACaller(Caller):
    """The same, awaited."""

    async def __call__(self, state: MessagesState) -> Any:
        return {"messages": [await self.bound.ainvoke(state["messages"])]}


def _prompt_chain(bound: Any) -> Any:
    prompt = ChatPromptTemplate([("system", "Be brief."), MessagesPlaceholder("messages")])
    return prompt | bound | (lambda message: {"messages": [message]})


def _read(state: MessagesState) -> list[Any]:
    return state["messages"]


def _write(message: BaseMessage) -> Any:
    return {"messages": [message]}


NODES: dict[str, Callable[[Any], Any]] = {
    "function": _function,
    "object": Caller,
    "method": lambda bound: Caller(bound).method,
    "prompt and model": _prompt_chain,
    "chain": lambda bound: RunnableLambda(_read) | bound | RunnableLambda(_write),
    "lambda": lambda bound: RunnableLambda(_function(bound), awaiting(bound)),
    "runnable with config": lambda bound: RunnableLambda(
        _function(bound), awaiting(bound)
    ).with_config(tags=["mine"]),
}
ASYNC_NODES = {
    **{name: node for name, node in NODES.items() if name not in ("function", "object", "method")},
    "async function": awaiting,
    "async object": ACaller,
}


@pytest.mark.parametrize("kind", ASYNC_NODES)
async def test_awaited_nodes(kind: str) -> None:
    """Whatever a node is, its model's call starts the guesses and its answer the plan."""
    scene = Scene()
    node = scene.spec.model_node(ASYNC_NODES[kind](scene.model().bind_tools([scene.look])))
    state = await scene.graph(node).ainvoke(ask())
    scene.assert_hit(state)


@pytest.mark.parametrize("kind", NODES)
def test_blocking_nodes(kind: str) -> None:
    """The same for `invoke`."""
    scene = Scene()
    bound = scene.model(blocking=True).bind_tools([scene.look])
    state = scene.graph(scene.spec.model_node(NODES[kind](bound))).invoke(ask())
    scene.assert_hit(state)


@pytest.mark.parametrize("kind", NODES)
def test_blocking_streams(kind: str) -> None:
    """The same for `stream`, whose chunks early dispatch hears."""
    scene = Scene(EarlyDispatch())
    bound = scene.model().model_copy(update={"generation_s": 0.002}).bind_tools([scene.look])
    graph = scene.graph(scene.spec.model_node(NODES[kind](bound)))
    parts = [*graph.stream(ask(), stream_mode=["messages", "values"])]
    [*_, last] = [part for mode, part in parts if mode == "values"]
    assert [m.content for m in last["messages"]] == ["hi", "Let me see.", "found ants", "done"]
    assert scene.spec.report().errors == 0


@pytest.mark.parametrize("kind", ["async function", "prompt and model", "lambda", "model"])
async def test_events(kind: str) -> None:
    """`astream_events` goes through a node's steps: the guess is claimed, the events are stock."""

    async def told(scene: Scene, wrap: Callable[[Any], Any]) -> list[Any]:
        model = scene.model()
        if kind == "model":
            node = wrap(model)
        else:
            node = wrap(ASYNC_NODES[kind](model.bind_tools([scene.look])))
        graph = scene.graph(node)
        return [
            (event["event"], event["name"], [*event["tags"]])
            async for event in graph.astream_events(ask(), version="v2")
        ]

    ours, stock = Scene(), Scene()
    events = await told(ours, ours.spec.model_node)
    if kind != "model":  # stock has no node for a bare model
        assert events == await told(stock, lambda node: node)
    assert ours.ran == ["ants"]
    assert ours.spec.report().hits == 1
    assert stock.spec.report().hits == 0


@pytest.mark.parametrize("way", ["astream", "atransform", "stream", "transform"])
async def test_streaming_from_a_wrapped_runnable(way: str) -> None:
    """Outside a graph a wrapped runnable streams as the inner one."""
    scene = Scene()
    inner = RunnableLambda(_read) | scene.model().bind_tools([scene.look])
    node = SpeculativeModelNode(scene.spec, inner)
    state = ask()

    async def once() -> Any:
        yield state

    def play(it: Runnable[Any, Any]) -> Any:
        if way == "astream":
            return it.astream(state)
        if way == "atransform":
            return it.atransform(once())
        return it.stream(state) if way == "stream" else it.transform(iter([state]))

    async def contents(it: Runnable[Any, Any]) -> list[Any]:
        if way.startswith("a"):
            return [part.content async for part in play(it)]
        return [part.content for part in play(it)]

    scene.model().generation_s = 0.0
    assert await contents(node) == await contents(inner)


@pytest.mark.parametrize("way", ["astream", "atransform", "stream", "transform"])
async def test_streaming_from_a_wrapped_model(way: str) -> None:
    """A node that reads and writes state streams one update."""
    scene = Scene()
    node = scene.spec.model_node(scene.model().model_copy(update={"generation_s": 0.0}))
    state = {"messages": [HumanMessage("hi")]}

    async def once() -> Any:
        yield state

    if way == "astream":
        parts = [part async for part in node.astream(state)]
    elif way == "atransform":
        parts = [part async for part in node.atransform(once())]
    else:
        parts = [*(node.stream(state) if way == "stream" else node.transform(iter([state])))]
    assert [part["messages"][0].content for part in parts] == ["Let me see."]


# --- chat models


class TypedChat(TypedDict):
    chat: Annotated[list[Any], add_messages]


class ModelChat(BaseModel):
    chat: Annotated[list[Any], add_messages]


@dataclass
class DataChat:
    chat: Annotated[list[Any], add_messages] = field(default_factory=list)


@pytest.mark.parametrize("schema", [TypedChat, ModelChat, DataChat])
async def test_chat_model_reads_any_state(schema: Any) -> None:
    """A chat model is given the Speculation's tools and the state's messages, under any key."""
    scene = Scene()
    node = scene.spec.model_node(scene.model(), messages_key="chat")
    state = await scene.graph(node, schema, "chat").ainvoke(ask("chat"))
    scene.assert_hit(state, "chat")


async def test_chat_model_reads_a_list() -> None:
    """A state that is the list of messages itself."""
    scene = Scene()
    node = scene.spec.model_node(scene.model())
    answer = await node.ainvoke([HumanMessage("hi")])
    assert [m.content for m in answer["messages"]] == ["Let me see."]


async def test_chat_model_with_tools_bound_reads_state() -> None:
    """What is bound to it stays bound; the Speculation's tools are not bound once more."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look]).with_config(tags=["mine"])
    node = scene.spec.model_node(bound)
    scene.assert_hit(await scene.graph(node).ainvoke(ask()))
    assert (node.inner.kwargs, node.inner.config) == (bound.kwargs, bound.config)


def test_no_chat_model_is_refused() -> None:
    """A chain says nothing of its own to bind a callback to."""
    with pytest.raises(TypeError, match="a chat model is wanted, as it is or with arguments"):
        Speculation().model(RunnableLambda(_read).bind())


def test_chat_model_of_a_blocking_run() -> None:
    """The same for `invoke`."""
    scene = Scene()
    node = scene.spec.model_node(scene.model(blocking=True))
    scene.assert_hit(scene.graph(node).invoke(ask()))


# --- the wrapping


def test_function_stays_what_it_is() -> None:
    """LangGraph reads a node's name, signature and hints: all are kept."""
    spec = Speculation()

    def call(state: MessagesState, config: RunnableConfig, runtime: Runtime[Any]) -> Command[Any]:
        """Think."""
        return Command()

    async def acall(state: MessagesState, *, config: RunnableConfig) -> dict[str, Any]:
        """Think, awaited."""
        return {}

    for node in (call, acall):
        wrapped = spec.model_node(node)
        assert inspect.signature(wrapped) == inspect.signature(node)
        assert get_type_hints(wrapped) == get_type_hints(node)
        assert (wrapped.__name__, wrapped.__doc__) == (node.__name__, node.__doc__)
        assert inspect.iscoroutinefunction(wrapped) == inspect.iscoroutinefunction(node)


async def test_config_and_runtime_are_injected() -> None:
    """A wrapped function is given what it asks for, as a stock one."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])
    seen: list[Any] = []

    async def call(
        state: MessagesState, config: RunnableConfig, runtime: Runtime[dict[str, Any]]
    ) -> Any:
        seen.append((config["configurable"]["user"], runtime.context))
        return {"messages": [await bound.ainvoke(state["messages"], config)]}

    graph = scene.graph(scene.spec.model_node(call))
    state = await graph.ainvoke(ask(), {"configurable": {"user": "u1"}}, context={"c": 1})
    scene.assert_hit(state)
    assert seen == [("u1", {"c": 1})] * 2


def test_sequence_stays_a_sequence() -> None:
    """Its steps are wrapped one by one, and it keeps its name."""
    chain = RunnableSequence(RunnableLambda(_read), RunnableLambda(_write), name="thinking")
    wrapped = Speculation().model_node(chain)
    assert isinstance(wrapped, RunnableSequence)
    assert (wrapped.name, len(wrapped.steps)) == ("thinking", 2)
    assert [step.get_name() for step in wrapped.steps] == [s.get_name() for s in chain.steps]


@pytest.mark.parametrize("node", [None, 7, "openai:gpt-5", {"messages": []}, [print]])
def test_what_is_no_node(node: Any) -> None:
    """Something that cannot be called is refused, by value."""
    with pytest.raises(TypeError, match="a function, a runnable or a chat model, got"):
        Speculation().model_node(node)
