"""`model_node`: any kind of node is wrapped, answers what it answered, and is read right."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict, get_type_hints
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableSequence
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel

from langchain_spectool import (
    EarlyDispatch,
    Guess,
    Policy,
    Rules,
    Speculation,
    SpeculativeModelNode,
    speculatable,
)
from langchain_spectool.graph.answers import answer_in
from langchain_spectool.graph.deltas import StreamStep
from langchain_spectool.graph.tap import ForcingTap, Tap, bound_names
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text

MAIN_S = 1.0
TOOL_S = 0.5


class Scene:
    """A tool, a Speculation that expects the call, and what they noted."""

    def __init__(self, *sources: Any, **options: Any) -> None:
        self.ran: list[str] = []
        self.observed = RecordingObserver()
        self.started = threading.Event()

        async def alook(q: str) -> str:
            self.ran.append(q)
            await asyncio.sleep(TOOL_S)
            return f"found {q}"

        def look(q: str) -> str:
            self.ran.append(q)
            self.started.set()
            return f"found {q}"

        self.look: BaseTool = speculatable(
            StructuredTool.from_function(look, alook, name="look", description="Look.")
        )
        rules = Rules(_expects)
        self.spec = Speculation(
            [self.look],
            speculators=sources or [rules],
            observers=[self.observed],
            **options,
        )

    def model(self, *, blocking: bool = False) -> ScriptedModel:
        def script(messages: list[BaseMessage]) -> Any:
            if messages[-1].type == "tool":
                return text("done")
            if blocking:
                self.started.wait(2)
            return calls(("look", {"q": "ants"}), content="Let me see.")

        return ScriptedModel(script=script, generation_s=0.0 if blocking else MAIN_S)

    def graph(self, node: Any, schema: Any = MessagesState, key: str = "messages") -> Any:
        builder = StateGraph(schema)
        builder.add_node("agent", node)
        builder.add_node("tools", self.spec.tool_node(messages_key=key))
        builder.add_edge(START, "agent")
        builder.add_conditional_edges(
            "agent", lambda s: "tools" if getattr(_chat(s, key)[-1], "tool_calls", 0) else END
        )
        builder.add_edge("tools", "agent")
        return builder.compile()

    def assert_hit(self, state: Any, key: str = "messages") -> None:
        found = [m.content for m in _chat(state, key)]
        assert found == ["hi", "Let me see.", "found ants", "done"]
        assert self.ran == ["ants"]
        assert (self.spec.report().hits, self.spec.report().errors) == (1, 0)


def _expects(messages: Sequence[BaseMessage]) -> list[Guess]:
    return [Guess(tool="look", args={"q": "ants"})] if messages[-1].type == "human" else []


def _chat(state: Any, key: str) -> list[Any]:
    if isinstance(state, list):
        return state
    return list(state[key] if isinstance(state, dict) else getattr(state, key))


def _ask(key: str = "messages") -> Any:
    return {key: [("user", "hi")]}


# --- kinds of nodes


def _function(bound: Any) -> Any:
    def call(state: MessagesState) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    return call


def _afunction(bound: Any) -> Any:
    async def call(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

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
    "lambda": lambda bound: RunnableLambda(_function(bound), _afunction(bound)),
    "runnable with config": lambda bound: RunnableLambda(
        _function(bound), _afunction(bound)
    ).with_config(tags=["mine"]),
}
ASYNC_NODES = {
    **{name: node for name, node in NODES.items() if name not in ("function", "object", "method")},
    "async function": _afunction,
    "async object": ACaller,
}


@pytest.mark.parametrize("kind", ASYNC_NODES)
async def test_awaited_nodes(kind: str) -> None:
    """Whatever a node is, its model's call starts the guesses and its answer the plan."""
    scene = Scene()
    node = scene.spec.model_node(ASYNC_NODES[kind](scene.model().bind_tools([scene.look])))
    state = await scene.graph(node).ainvoke(_ask())
    scene.assert_hit(state)


@pytest.mark.parametrize("kind", NODES)
def test_blocking_nodes(kind: str) -> None:
    """The same for `invoke`."""
    scene = Scene()
    bound = scene.model(blocking=True).bind_tools([scene.look])
    state = scene.graph(scene.spec.model_node(NODES[kind](bound))).invoke(_ask())
    scene.assert_hit(state)


@pytest.mark.parametrize("kind", NODES)
def test_blocking_streams(kind: str) -> None:
    """The same for `stream`, whose chunks early dispatch hears."""
    scene = Scene(EarlyDispatch())
    bound = scene.model().model_copy(update={"generation_s": 0.002}).bind_tools([scene.look])
    graph = scene.graph(scene.spec.model_node(NODES[kind](bound)))
    parts = [*graph.stream(_ask(), stream_mode=["messages", "values"])]
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
            async for event in graph.astream_events(_ask(), version="v2")
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
    state = _ask()

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
    state = await scene.graph(node, schema, "chat").ainvoke(_ask("chat"))
    scene.assert_hit(state, "chat")


async def test_chat_model_reads_a_list() -> None:
    """A state that is the list of messages itself."""
    scene = Scene()
    node = scene.spec.model_node(scene.model())
    answer = await node.ainvoke([HumanMessage("hi")])
    assert [m.content for m in answer["messages"]] == ["Let me see."]


def test_chat_model_of_a_blocking_run() -> None:
    """The same for `invoke`."""
    scene = Scene()
    node = scene.spec.model_node(scene.model(blocking=True))
    scene.assert_hit(scene.graph(node).invoke(_ask()))


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
        await scene.graph(scene.spec.model_node(call), Noted).ainvoke({**_ask(), "note": ""})
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

    state = await scene.graph(scene.spec.model_node(call)).ainvoke(_ask())
    assert [m.content for m in state["messages"]][2] == "found bees"
    assert scene.ran == ["ants", "bees"]
    assert (scene.spec.report().hits, scene.spec.report().wasted) == (0, 1)


async def test_node_that_keeps_its_answer() -> None:
    """A node may write nothing: what its model said then counts, and is left unclaimed."""
    scene = Scene()
    bound = scene.model().bind_tools([scene.look])

    async def call(state: MessagesState) -> Any:
        await bound.ainvoke(state["messages"])

    state = await scene.graph(scene.spec.model_node(call)).ainvoke(_ask())
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
        assert [event async for event in graph.astream_events(_ask(), version="v2")]
    else:
        state = await graph.ainvoke(_ask())
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

    scene.assert_hit(await scene.graph(scene.spec.model_node(call)).ainvoke(_ask()))


async def test_node_without_our_tools_is_idle() -> None:
    """A model with none of our tools bound is heard, and left alone."""
    scene = Scene()
    bare = ScriptedModel(script=lambda _: text("done"))

    async def call(state: MessagesState) -> Any:
        return {"messages": [await bare.ainvoke(state["messages"])]}

    await scene.graph(scene.spec.model_node(call)).ainvoke(_ask())
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
        await scene.graph(scene.spec.model_node(call)).ainvoke(_ask())
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
    state = await scene.graph(scene.spec.model_node(chain)).ainvoke(_ask())
    assert [m.content for m in state["messages"]][2:] == ["found ants", "done"]
    assert {e.verdict for e in scene.observed.events if e.kind == "error"} == {"ZeroDivisionError"}


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
    state = await graph.ainvoke(_ask(), {"configurable": {"user": "u1"}}, context={"c": 1})
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


# --- the answer in an output

FIRST, LAST = AIMessage("first"), AIMessage("last")


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
    scene.assert_hit(await agent.ainvoke(_ask()))


# --- models watched wherever they are called


async def test_watched_model_that_fails_is_tried_again() -> None:
    """Each call of a watched model is a turn; a failed one leaves nothing."""
    scene = Scene()
    attempts = iter([ConnectionError("lost"), None])

    def script(messages: list[BaseMessage]) -> Any:
        if messages[-1].type == "tool":
            return text("done")
        if (error := next(attempts)) is not None:
            return Turn(error=error)
        return calls(("look", {"q": "ants"}), content="Let me see.")

    model = scene.spec.model(ScriptedModel(script=script, generation_s=MAIN_S))
    bound = model.bind_tools([scene.look]).with_retry(
        stop_after_attempt=2, wait_exponential_jitter=False
    )
    state = await scene.graph(_afunction(bound)).ainvoke(_ask())
    assert [m.content for m in state["messages"]][1:] == ["Let me see.", "found ants", "done"]
    assert scene.spec.report().hits == 1
    ends = [e.verdict for e in scene.observed.events if e.kind == "turn_ended"]
    assert ends == ["failed", "done"]


@pytest.mark.parametrize("fails", [False, True])
async def test_watched_model_that_is_switched_off(fails: bool) -> None:
    """Off is off: chunks, answers and errors go by unheard."""
    scene = Scene(policy=Policy(mode="off"))
    answer = Turn(chunks=[(0.1, AIMessageChunk("do")), (0.2, AIMessageChunk("ne"))])
    failing = Turn(error=ConnectionError("lost"))
    model = scene.spec.model(ScriptedModel(script=lambda _: failing if fails else answer))
    graph = scene.graph(_afunction(model.bind_tools([scene.look])))
    if fails:
        with pytest.raises(ConnectionError):
            await graph.ainvoke(_ask())
    else:
        assert [part async for part in graph.astream(_ask(), stream_mode="messages")]
    assert scene.observed.events == []


# --- what the tap hears


def _two(q: str) -> ScriptedModel:
    """Return a model whose first call is closed by its second."""
    both = calls(("look", {"q": q}), ("look", {"q": f"{q} too"}))
    script = {"tool": text("done"), "human": both}
    return ScriptedModel(script=lambda messages: script[messages[-1].type], generation_s=MAIN_S)


async def test_streams_of_other_models_are_not_listened_to() -> None:
    """A node may stream from a model without our tools, and from one that is a helper's."""
    scene = Scene(EarlyDispatch(force=True))
    bound = _two("ants").bind_tools([scene.look])
    other, helper = _two("bees"), _two("cats")

    async def call(state: MessagesState) -> Any:
        await other.ainvoke("Name this conversation.")
        marked: Any = {"metadata": {"lc_source": "summarization"}}
        await helper.bind_tools([scene.look]).ainvoke("Sum up.", marked)
        return {"messages": [await bound.ainvoke(state["messages"])]}

    await scene.graph(scene.spec.model_node(call)).ainvoke(_ask())
    assert scene.ran == ["ants", "ants too"]
    report = scene.spec.report()
    assert (report.guesses, report.hits, report.errors) == (1, 1, 0)


def _part(args: str | None, index: int = 0, **more: Any) -> ToolCallChunk:
    return tool_call_chunk(args=args, index=index, **more)


async def test_cut_that_is_heard_with_the_end_of_a_call() -> None:
    """A chunk that closes a call and says that the answer was cut off starts nothing."""
    scene = Scene(EarlyDispatch(force=True))
    head = _part('{"q": "ants"}', name="look", id="c0")
    cut = {"finish_reason": "length"}
    answer = Turn(
        chunks=[
            (0.1, AIMessageChunk("", tool_call_chunks=[head])),
            (0.2, AIMessageChunk("and so", response_metadata=cut)),
        ]
    )
    model = ScriptedModel(script=lambda m: answer if m[-1].type == "human" else text("done"))
    await scene.graph(scene.spec.model_node(model)).ainvoke(_ask())
    assert scene.spec.report().guesses == 0


async def test_late_delta_of_a_call_that_did_not_start() -> None:
    """What goes on being written after it was closed, and was never started, is no matter."""
    scene = Scene(EarlyDispatch(force=True))
    chunks = [
        (0.1, AIMessageChunk("", tool_call_chunks=[_part('{"q": 1}', name="else", id="c0")])),
        (0.2, AIMessageChunk("", tool_call_chunks=[_part("{", 1, name="look", id="c1")])),
        (0.3, AIMessageChunk("", tool_call_chunks=[_part(" ", 0)])),
        (0.4, AIMessageChunk("", tool_call_chunks=[_part("}", 1)])),
    ]
    answer = Turn(chunks=chunks)
    model = ScriptedModel(script=lambda m: answer if m[-1].type == "human" else text("done"))
    await scene.graph(scene.spec.model_node(model)).ainvoke(_ask())
    report = scene.spec.report()
    assert report.verdicts == {"unknown_tool": 1}
    assert (report.errors, report.wasted) == (0, 0)


class Heard:
    """Keeps what a tap reports."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def model_started(self, run_id: UUID, messages: Any, parameters: Any) -> None:
        self.said.append(("started", list(messages)))

    def streamed(self, run_id: UUID, step: StreamStep) -> None:
        self.said.append(step)

    def model_ended(self, run_id: UUID, message: Any) -> None:
        self.said.append(("ended", message))

    def model_failed(self, run_id: UUID) -> None:
        self.said.append("failed")


def test_what_is_streamed_both_ways_is_heard_once() -> None:
    """A model that streams events and chunks says everything twice: the first way counts."""
    heard, run_id = Heard(), uuid4()
    tap = Tap(heard)
    tap.on_chat_model_start({}, [], run_id=run_id)
    delta = {"type": "tool_call_chunk", "name": "look", "args": "{}"}
    tap.on_stream_event(
        {"event": "content-block-start", "index": 0, "content": delta}, run_id=run_id
    )
    tap.on_llm_new_token("", chunk=AIMessageChunk("x"), run_id=run_id)
    tap.on_llm_end(LLMResult(generations=[]), run_id=run_id)
    tap.on_llm_new_token("", chunk=AIMessageChunk("x"), run_id=run_id)  # after its end
    tap.on_llm_error(ValueError(), run_id=run_id)
    first, step, last = heard.said
    assert (first, last) == (("started", []), ("ended", None))
    assert step.deltas


def test_answer_of_a_result() -> None:
    """A result holds a chat message, or none that we can read."""
    heard = Heard()
    results = [
        [[Generation(text="plain")]],
        [[ChatGeneration(message=HumanMessage("hi")), ChatGeneration(message=LAST)]],
    ]
    for generations in results:
        run_id, tap = uuid4(), Tap(heard)
        tap.on_chat_model_start({}, [[]], run_id=run_id)
        tap.on_llm_end(LLMResult(generations=generations), run_id=run_id)
    assert [what for what in heard.said if what[0] == "ended"] == [("ended", None), ("ended", LAST)]


def test_forcing_tap_passes_streams_on() -> None:
    """Its presence asks for streaming; the stream itself is none of its business."""
    tap, stream = ForcingTap(Heard()), iter("x")
    assert tap.tap_output_iter(uuid4(), stream) is stream
    assert tap.tap_output_aiter(uuid4(), stream) is stream


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({}, set()),
        ({"tools": None, "functions": "x"}, set()),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, {"a"}),
        ({"tools": [{"name": "a", "input_schema": {}}, {"type": "web_search"}]}, {"a"}),
        ({"functions": [{"name": "a"}, {"name": "b"}]}, {"a", "b"}),
        ({"tools": [{"function_declarations": [{"name": "a"}, {"name": "b"}]}]}, {"a", "b"}),
        ({"tools": ({"functionDeclarations": [{"name": "a"}]},)}, {"a"}),
        ({"tools": [{"toolSpec": {"name": "a"}}]}, {"a"}),
        ({"tools": [StructuredTool.from_function(print, name="a", description="")]}, {"a"}),
        ({"tools": [{"name": 7}, object(), 7]}, set()),
    ],
)
def test_bound_names(parameters: Any, names: set[str]) -> None:
    """The tools of a model's call are read in any provider's format."""
    assert bound_names(parameters) == names


class Streaming(ScriptedModel):
    """A model with the switch that providers have."""

    streaming: bool = True


@pytest.mark.parametrize("streaming", [False, True])
async def test_model_that_streams_of_itself_is_heard(streaming: bool) -> None:
    """A passive listener hears a model that is set to stream; else the report says why not."""
    scene = Scene(EarlyDispatch())
    model = Streaming(script=_two("ants").script, generation_s=MAIN_S, streaming=streaming)
    agent = create_agent(model, [scene.look], middleware=[scene.spec.middleware()])
    await agent.ainvoke(_ask())
    report = scene.spec.report()
    assert report.guesses == streaming
    assert report.idle == ({"no_guesses": 1} if streaming else {"not_streaming": 2})
