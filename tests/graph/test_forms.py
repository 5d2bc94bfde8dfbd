"""Every form an agent takes: the guess is claimed, or nothing happens, and all says the same."""

import asyncio
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Send
from pydantic import BaseModel

from langchain_spectool import Guess, Rules, Speculation, speculatable
from langchain_spectool.testing import ScriptedModel, calls, text

Ran = list[Any]
THINKS_S = 1.0


@pytest.fixture(name="ran")
def _ran() -> Ran:
    return []


@pytest.fixture(name="look")
def _look(ran: Ran) -> BaseTool:
    @speculatable
    @tool
    async def look(q: str) -> str:
        """Look something up."""
        ran.append(q)
        await asyncio.sleep(0.5)
        return f"found {q}"

    return look


def _question(messages: Sequence[BaseMessage]) -> str:
    return str([m.content for m in messages if m.type == "human"][-1])


def _script(messages: list[BaseMessage]) -> Any:
    """Look up the question, then answer."""
    if messages[-1].type == "tool":
        return text("done")
    return calls(("look", {"q": _question(messages)}))


def _model(**options: Any) -> ScriptedModel:
    return ScriptedModel(script=_script, generation_s=THINKS_S, **options)


def _rule(messages: Sequence[BaseMessage]) -> Iterator[Guess]:
    if messages[-1].type == "human":
        yield Guess(tool="look", args={"q": _question(messages)})


def _spec(*tools: BaseTool, **options: Any) -> Speculation:
    return Speculation(tools, **{"speculators": [Rules(_rule)], **options})


def _ask(q: str, key: str = "messages") -> Any:
    return {key: [("user", q)]}


def _tool_messages(messages: Sequence[BaseMessage]) -> list[Any]:
    return [m.content for m in messages if m.type == "tool"]


def _assert_hits(spec: Speculation, ran: Ran, *asked: str) -> None:
    """Check that each question was looked up once, early."""
    assert sorted(ran) == sorted(asked)
    assert spec.report().hits == len(asked)
    assert spec.report().wasted == spec.report().errors == 0


def _loop(spec: Speculation | None, tools: list[BaseTool], **options: Any) -> Any:
    """Return the usual hand-built agent, not yet compiled."""
    bound = _model().bind_tools(tools)

    async def call(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", call if spec is None else spec.model_node(call))
    node = ToolNode(tools, **options) if spec is None else spec.tool_node(**options)
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder


# --- ready-made agents


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_create_react_agent(version: Any, look: BaseTool, ran: Ran) -> None:
    """A watched model and our tool node make the older ready-made agent speculative."""
    spec = _spec(look)
    agent = create_react_agent(spec.model(_model()), spec.tool_node(), version=version)
    state = await agent.ainvoke(_ask("ants"))
    assert _tool_messages(state["messages"]) == ["found ants"]
    _assert_hits(spec, ran, "ants")


async def test_middleware_and_watched_model_together(look: BaseTool, ran: Ran) -> None:
    """An agent with two ways in has two turns at once: one guess answers, the other is wasted."""
    spec = _spec(look)
    agent = create_agent(spec.model(_model()), [look], middleware=[spec.middleware()])
    state = await agent.ainvoke(_ask("ants"))
    assert _tool_messages(state["messages"]) == ["found ants"]
    assert ran == ["ants", "ants"]
    assert (spec.report().hits, spec.report().wasted) == (1, 1)


# --- states


class TypedState(TypedDict):
    chat: Annotated[list[Any], add_messages]


class ModelState(BaseModel):
    chat: Annotated[list[Any], add_messages]


@dataclass
class DataState:
    chat: Annotated[list[Any], add_messages] = field(default_factory=list)


def _chat(state: Any) -> list[Any]:
    return list(state["chat"] if isinstance(state, dict) else state.chat)


@pytest.mark.parametrize("shape", ["function", "runnable", "callable", "chain"])
@pytest.mark.parametrize("schema", [TypedState, ModelState, DataState])
async def test_states_and_nodes(schema: type[Any], shape: str, look: BaseTool, ran: Ran) -> None:
    """Any state schema, any name for its messages, any kind of node."""
    spec = _spec(look)
    bound = _model().bind_tools([look])

    async def call(state: Any) -> Any:
        return {"chat": [await bound.ainvoke(_chat(state))]}

    class Caller:
        async def __call__(self, state: Any) -> Any:
            return await call(state)

    def wrap(message: Any) -> Any:
        return {"chat": [message]}

    nodes: dict[str, Any] = {
        "function": call,
        "runnable": RunnableLambda(call),
        "callable": Caller(),
        "chain": RunnableLambda(_chat) | bound | RunnableLambda(wrap),
    }
    builder = StateGraph(schema)
    builder.add_node("agent", spec.model_node(nodes[shape]))
    builder.add_node("tools", spec.tool_node(messages_key="chat"))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda s: "tools" if _chat(s)[-1].tool_calls else END)
    builder.add_edge("tools", "agent")
    state = await builder.compile().ainvoke(_ask("ants", "chat"))
    assert _tool_messages(state["chat"]) == ["found ants"]
    _assert_hits(spec, ran, "ants")


async def test_sync_node_in_an_async_graph(ran: Ran) -> None:
    """A blocking node of an awaited graph runs in a thread; its guesses run in threads too."""

    @speculatable
    @tool
    def look(q: str) -> str:
        """Look something up."""
        ran.append(q)
        return f"found {q}"

    spec = _spec(look)
    bound = ScriptedModel(script=_script, generation_s=0.05).bind_tools([look])

    def call(state: MessagesState) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", spec.model_node(call))
    builder.add_node("tools", spec.tool_node())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    state = await builder.compile().ainvoke(_ask("ants"))
    assert _tool_messages(state["messages"]) == ["found ants"]
    assert set(ran) == {"ants"}
    assert spec.report().errors == 0


# --- subgraphs and branches


class Both(TypedDict):
    found: Annotated[list[Any], operator.add]
    questions: list[str]


@pytest.mark.parametrize("form", ["create_agent", "graph"])
@pytest.mark.parametrize("order", ["sequence", "parallel"])
async def test_subgraphs(form: str, order: str, look: BaseTool, ran: Ran) -> None:
    """One agent as two nodes, one after the other or at once, keeps its guesses apart."""
    spec = _spec(look)
    if form == "graph":
        agent = _loop(spec, [look]).compile()
    else:
        agent = create_agent(_model(), [look], middleware=[spec.middleware()])

    def node(q: str) -> Any:
        async def ask(state: Both) -> Any:
            return {"found": _tool_messages((await agent.ainvoke(_ask(q)))["messages"])}

        return ask

    builder = StateGraph(Both)
    builder.add_node("one", node("ants"))
    builder.add_node("two", node("bees"))
    builder.add_edge(START, "one")
    builder.add_edge(START if order == "parallel" else "one", "two")
    state = await builder.compile().ainvoke({"found": [], "questions": []})
    assert state["found"] == ["found ants", "found bees"]
    _assert_hits(spec, ran, "ants", "bees")


@pytest.mark.parametrize("form", ["create_agent", "graph"])
async def test_agent_added_as_a_node(form: str, look: BaseTool, ran: Ran) -> None:
    """A compiled agent that is itself a node of another graph speculates as it does alone."""
    spec = _spec(look)
    if form == "graph":
        agent = _loop(spec, [look]).compile()
    else:
        agent = create_agent(_model(), [look], middleware=[spec.middleware()])
    builder = StateGraph(MessagesState)
    builder.add_node("inner", agent)
    builder.add_edge(START, "inner")
    state = await builder.compile().ainvoke(_ask("ants"))
    assert _tool_messages(state["messages"]) == ["found ants"]
    _assert_hits(spec, ran, "ants")


@pytest.mark.parametrize("same", [True, False])
async def test_send_to_one_agent(same: bool, look: BaseTool, ran: Ran) -> None:
    """Branches made by `Send` run at once, and each claims its own early run."""
    spec = _spec(look)
    agent = create_agent(_model(), [look], middleware=[spec.middleware()])

    async def ask(state: Any) -> Any:
        return {"found": _tool_messages((await agent.ainvoke(_ask(state["q"])))["messages"])}

    def fan_out(state: Both) -> list[Send]:
        return [Send("ask", {"q": q}) for q in state["questions"]]

    builder = StateGraph(Both)
    builder.add_node("ask", ask)
    builder.add_conditional_edges(START, fan_out, ["ask"])
    questions = ["ants"] * 3 if same else ["ants", "bees", "cats"]
    state = await builder.compile().ainvoke({"found": [], "questions": questions})
    assert state["found"] == [f"found {q}" for q in questions]
    _assert_hits(spec, ran, *questions)


async def test_send_to_the_model_node(look: BaseTool, ran: Ran) -> None:
    """Model turns of one step and one graph plan beside each other, not in each other's place."""
    spec = _spec(look)
    bound = _model().bind_tools([look])

    async def call(state: Any) -> Any:
        return {"messages": [await bound.ainvoke([("user", state["q"])])]}

    def to_tools(state: MessagesState) -> list[Send]:
        return [Send("tools", [call]) for m in state["messages"] for call in m.tool_calls]

    builder = StateGraph(MessagesState)
    builder.add_node("agent", spec.model_node(call))
    builder.add_node("tools", spec.tool_node())
    builder.add_conditional_edges(
        START, lambda _: [Send("agent", {"q": q}) for q in ("ants", "bees")], ["agent"]
    )
    builder.add_node("join", lambda _: {})
    builder.add_edge("agent", "join")
    builder.add_conditional_edges("join", to_tools, ["tools"])
    state = await builder.compile().ainvoke({"messages": []})
    assert sorted(_tool_messages(state["messages"])) == ["found ants", "found bees"]
    _assert_hits(spec, ran, "ants", "bees")


# --- many runs


@pytest.mark.parametrize("form", ["create_agent", "graph"])
async def test_abatch(form: str, look: BaseTool, ran: Ran) -> None:
    """Runs of one batch share the agent and nothing else; one of them may be switched off."""
    spec = _spec(look)
    if form == "graph":
        agent = _loop(spec, [look]).compile()
    else:
        agent = create_agent(_model(), [look], middleware=[spec.middleware()])
    questions = ["ants", "ants", "bees", "cats"]
    modes = ["on", "on", "on", "off"]
    configs: Any = [{"configurable": {"speculation": mode}} for mode in modes]
    states = await agent.abatch([*map(_ask, questions)], configs)
    found = [_tool_messages(state["messages"]) for state in states]
    assert found == [[f"found {q}"] for q in questions]
    assert sorted(ran) == sorted(questions)
    assert (spec.report().hits, spec.report().idle["off"]) == (3, 2)


def test_batch(ran: Ran) -> None:
    """The same with threads."""

    @speculatable
    @tool
    def look(q: str) -> str:
        """Look something up."""
        ran.append(q)
        return f"found {q}"

    spec = _spec(look)
    model = ScriptedModel(script=_script, generation_s=0.02)
    agent = create_agent(model, [look], middleware=[spec.middleware()])
    questions = ["ants", "bees", "ants"]
    states = agent.batch([*map(_ask, questions)])
    found = [_tool_messages(state["messages"]) for state in states]
    assert found == [[f"found {q}"] for q in questions]
    assert spec.report().errors == 0


@pytest.mark.parametrize("value", ["offf", "ON", 1, True])
async def test_unknown_mode_is_off_and_said_once(value: Any, look: BaseTool, ran: Ran) -> None:
    """A switch nobody understands switches off, with one warning that names the choices."""
    spec = _spec(look)
    agent = create_agent(_model(), [look], middleware=[spec.middleware()])
    with pytest.warns(RuntimeWarning, match="must be one of on, shadow, off") as said:
        await agent.ainvoke(_ask("ants"), {"configurable": {"speculation": value}})
    assert len(said) == 1
    assert spec.report().guesses == 0
    assert ran == ["ants"]


# --- the functional API


async def test_functional_agent(look: BaseTool, ran: Ran) -> None:
    """Under `@entrypoint`, calls made from the entry point and from tasks behave as in stock."""
    spec = _spec(look)
    model = spec.model(_model()).bind_tools([look])
    node = spec.tool_node()

    @task
    async def think(messages: list[Any]) -> Any:
        return await model.ainvoke(messages)

    @task
    async def act(message: Any) -> Any:
        return await node.ainvoke([message])

    @entrypoint()
    async def agent(q: str) -> Any:
        messages: list[Any] = [("user", q)]
        answer = await think(messages)
        while answer.tool_calls:
            messages += [answer, *await act(answer)]
            answer = await think(messages)
        return messages

    messages = await agent.ainvoke("ants")
    assert messages[-1].content == "found ants"
    _assert_hits(spec, ran, "ants")


# --- tools


async def test_duplicate_names(look: BaseTool, ran: Ran) -> None:
    """Of two tools with one name neither runs early, and the one stock picks answers."""

    @tool("look")
    async def other_look(q: str) -> str:
        """Look elsewhere."""
        ran.append(f"other {q}")
        return f"other {q}"

    tools = [look, other_look]
    spec = _spec(*tools)
    stock = await _loop(None, tools).compile().ainvoke(_ask("ants"))
    ran.clear()
    ours = await _loop(spec, tools).compile().ainvoke(_ask("ants"))
    assert _tool_messages(ours["messages"]) == _tool_messages(stock["messages"])
    assert ran == ["other ants"]
    assert spec.report().guesses == 0


class LateTool(AgentMiddleware[Any, Any, Any]):
    """Adds a tool that the agent was not made with."""

    def __init__(self, late: BaseTool) -> None:
        super().__init__()
        self._late = late

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(tools=[*request.tools, self._late]))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] == self._late.name:
            request = request.override(tool=self._late)
        return await handler(request)


@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_dynamic_tool(place: str, look: BaseTool, ran: Ran) -> None:
    """A tool that another middleware binds at run time runs early where ours can see it."""

    @tool
    def static() -> str:
        """Be there from the start."""
        return ""

    spec = _spec()
    late = LateTool(look)
    middleware = [late, spec.middleware()] if place == "outside" else [spec.middleware(), late]
    agent = create_agent(_model(), [static], middleware=middleware)
    state = await agent.ainvoke(_ask("ants"))
    assert _tool_messages(state["messages"]) == ["found ants"]
    assert ran == ["ants"]
    assert spec.report().hits == (1 if place == "outside" else 0)


class Answer(BaseModel):
    """The answer."""

    insect: str


async def test_structured_output(look: BaseTool, ran: Ran) -> None:
    """The tool that carries structured output is nobody's guess, and guesses beside it work."""

    def script(messages: list[BaseMessage]) -> Any:
        if messages[-1].type == "tool":
            return calls(("Answer", {"insect": "ant"}))
        return calls(("look", {"q": "ants"}))

    def rule(messages: Sequence[BaseMessage]) -> Iterator[Guess]:
        yield Guess(tool="look", args={"q": "ants"})
        yield Guess(tool="Answer", args={"insect": "ant"})

    spec = _spec(look, speculators=[Rules(rule)])
    model = ScriptedModel(script=script, generation_s=THINKS_S)
    options: dict[str, Any] = {"response_format": ToolStrategy(Answer)}
    plain = await create_agent(model, [look], **options).ainvoke(_ask("ants"))
    ran.clear()
    agent = create_agent(model, [look], middleware=[spec.middleware()], **options)
    ours = await agent.ainvoke(_ask("ants"))
    assert ours["structured_response"] == plain["structured_response"] == Answer(insect="ant")
    assert [m.content for m in ours["messages"]] == [m.content for m in plain["messages"]]
    assert ran == ["ants", "ants"]
    assert (spec.report().hits, spec.report().wasted) == (1, 1)


@pytest.mark.parametrize("declared", ["early", "not early", "undeclared"])
async def test_agent_as_a_tool(declared: str, look: BaseTool, ran: Ran) -> None:
    """An agent inside a tool speculates for itself, even while that tool may be writing.

    Run early, the tool starts runs of its own: it is dropped, unseen.
    """
    spec = _spec(look)
    inner = create_agent(_model(), [look], middleware=[spec.middleware()])

    @tool
    async def research(topic: str) -> str:
        """Ask another agent."""
        state = await inner.ainvoke(_ask(topic))
        return str(_tool_messages(state["messages"]))

    if declared != "undeclared":
        speculatable(research, early=declared == "early")

    def script(messages: list[BaseMessage]) -> Any:
        return text("done") if len(messages) > 1 else calls(("research", {"topic": "ants"}))

    def rule(messages: Sequence[BaseMessage]) -> Iterator[Guess]:
        if len(messages) == 1:
            yield Guess(tool="research", args={"topic": "ants"})

    outer = _spec(speculators=[Rules(rule)])
    model = ScriptedModel(script=script, generation_s=5.0)
    agent = create_agent(model, [research], middleware=[outer.middleware()])
    parts = [part async for part in agent.astream(_ask("ants"), stream_mode="updates")]
    assert [next(iter(part)) for part in parts] == ["model", "tools", "model"]
    [message] = parts[1]["tools"]["messages"]
    assert message.content == "['found ants']"
    assert outer.report().hits == 0
    assert outer.report().discards == ({"tainted": 1} if declared == "early" else {})
    assert spec.report().verdicts == {"run": 1}
    assert spec.report().hits == 1
