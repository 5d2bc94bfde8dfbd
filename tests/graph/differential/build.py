"""Builds one arm of a drawn agent: the stock graph, or the same with speculation."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, get_args

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.store.memory import InMemoryStore
from langgraph.types import RetryPolicy
from pydantic import BaseModel

from langchain_spectool import (
    Chain,
    DraftModel,
    EarlyDispatch,
    Ensemble,
    Guess,
    Patterns,
    Policy,
    Rules,
    SelfModel,
    Speculation,
    SpeculationMiddleware,
    SpeculativeToolNode,
)
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text
from tests.graph.differential.specs import AgentSpec, CallSpec, World
from tests.graph.differential.stacks import MIDDLEWARE, TurnMarker, edited, short
from tests.graph.differential.tools import build_tool

Arm = Literal["stock", "off", "shadow", "on"]
ARMS: tuple[Arm, ...] = get_args(Arm)

_DRAFT_UNITS = 1


def _all_errors(error: Exception) -> str:
    return f"sorry: {error!r}"


def _value_errors(error: ValueError) -> str:
    return f"bad value: {error!r}"


HANDLING: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "all": {"handle_tool_errors": True},
    "none": {"handle_tool_errors": False},
    "text": {"handle_tool_errors": "try again"},
    "types": {"handle_tool_errors": (ValueError,)},
    "type": {"handle_tool_errors": KeyError},
    "function": {"handle_tool_errors": _all_errors},
    "value_function": {"handle_tool_errors": _value_errors},
}


@dataclass(frozen=True)
class Tenant:
    """The run's context."""

    tenant: str


_VERDICT = {
    "title": "Verdict",
    "description": "A structured answer.",
    "type": "object",
    "properties": {"words": {"type": "string"}},
    "required": ["words"],
}


@dataclass(kw_only=True)
class Built:
    """One arm, ready to run once."""

    graph: Any
    world: World
    store: InMemoryStore
    speculation: Speculation | None
    observer: RecordingObserver = field(default_factory=RecordingObserver)


def build(spec: AgentSpec, arm: Arm) -> Built:
    """Build one arm of `spec`."""
    world = World(counted=spec.form == "create_agent" and spec.around == "none")
    tools = [build_tool(tool, world, spec) for tool in spec.tools]
    observer = RecordingObserver()
    speculation = None
    if arm != "stock":
        speculation = Speculation(
            tools,
            speculators=[_source(name, spec, world) for name in spec.sources],
            policy=Policy(mode=arm),
            observers=[observer],
        )
    store = InMemoryStore()
    options: dict[str, Any] = {"store": store}
    if spec.checkpointer:
        options["checkpointer"] = InMemorySaver()
    if spec.pause:
        options["interrupt_before"] = ["tools"]
    forms = {"create_agent": _create_agent, "state_graph": _state_graph, "react": _react}
    inner = {"parallel": {}, "nested": {}}.get(spec.around, options)
    graph = forms[spec.form](spec, world, tools, speculation, inner)
    if inner is not options:
        graph = _twice(spec, graph, options)
    return Built(graph=graph, world=world, store=store, speculation=speculation, observer=observer)


def _twice(spec: AgentSpec, agent: Any, options: dict[str, Any]) -> Any:
    """Return a graph that runs `agent` twice: at once, or one after the other in a node."""
    key = spec.messages_key

    def inputs(state: Any) -> dict[str, Any]:
        return {key: [_messages_of(state, key)[0]]}

    def blocking(state: Any) -> dict[str, Any]:
        return {key: _messages_of(agent.invoke(inputs(state)), key)}

    async def awaiting(state: Any) -> dict[str, Any]:
        return {key: _messages_of(await agent.ainvoke(inputs(state)), key)}

    node = agent if spec.around == "parallel" else awaiting if spec.clock == "async" else blocking
    builder = StateGraph(_STATES[spec.state, key], context_schema=Tenant)
    builder.add_node("left", node)
    builder.add_node("right", node)
    builder.add_edge(START, "left")
    builder.add_edge("left" if spec.around == "nested" else START, "right")
    return builder.compile(**options)


def _messages_of(state: Any, key: str) -> list[Any]:
    return state[key] if isinstance(state, dict) else getattr(state, key)


# --- models and speculators


def _answer(spec: AgentSpec, turn: int) -> AIMessage:
    if turn >= len(spec.turns):
        if spec.structured:
            return calls(("Verdict", {"words": f"done after {turn}"}))
        return text(f"done, ann@x.org, after {turn}")
    made = spec.turns[turn]
    requests = [(call.tool, call.args) for call in made.calls]
    prefix = "c" if spec.repeat_ids else f"t{turn}c"
    message = calls(*requests, content=made.content, prefix=prefix)
    if made.truncated:
        message.response_metadata["finish_reason"] = "length"
    return message


def _main_model(spec: AgentSpec, world: World, *, fails: bool) -> ScriptedModel:
    def script(messages: list[BaseMessage]) -> Turn:
        turn = world.turn_of(messages)
        made = spec.turns[turn] if turn < len(spec.turns) else None
        world.attempts[turn] += 1
        seconds = spec.unit_s * (1 if made is None else made.generation)
        if made is not None and fails and world.attempts[turn] <= made.failures:
            return Turn(error=RuntimeError("overloaded"), generation_s=seconds)
        return Turn(message=_answer(spec, turn), generation_s=seconds)

    return ScriptedModel(script=script, model_name="main" if fails else "fallback")


def _guesses(spec: AgentSpec, turn: int) -> Sequence[CallSpec]:
    return spec.turns[turn].guesses if turn < len(spec.turns) else ()


def _source(name: str, spec: AgentSpec, world: World) -> Any:
    def script(messages: list[BaseMessage]) -> AIMessage:
        guessed = _guesses(spec, world.turn_of(messages))
        return calls(*((guess.tool, guess.args) for guess in guessed), content="perhaps")

    draft = ScriptedModel(
        script=script, generation_s=_DRAFT_UNITS * spec.unit_s, model_name="draft"
    )
    rules = Rules(
        lambda messages: [
            Guess(tool=guess.tool, args=guess.args)
            for guess in _guesses(spec, world.turn_of(messages))
        ]
    )
    kinds: dict[str, Callable[[], Any]] = {
        "early": EarlyDispatch,
        "forced": lambda: EarlyDispatch(force=True),
        "rules": lambda: rules,
        "draft": lambda: DraftModel(draft),
        "drafts": lambda: DraftModel(draft, samples=3),
        "chained": lambda: Chain(rules, depth=3),
        "patterns": _eager_patterns,
        "self": lambda: SelfModel(2, model=draft, from_partial=True),
        "ensemble": lambda: Ensemble(DraftModel(draft), rules, EarlyDispatch()),
    }
    return kinds[name]()


def _eager_patterns() -> Patterns:
    patterns = Patterns(min_confidence=0.0)
    patterns.warm_up = 0
    return patterns


# --- the three forms


def _create_agent(
    spec: AgentSpec,
    world: World,
    tools: list[BaseTool],
    speculation: Speculation | None,
    options: dict[str, Any],
) -> Any:
    fallback = _main_model(spec, world, fails=False)
    names = tuple(tool.kind for tool in spec.tools)
    stack = [MIDDLEWARE[name](world, spec.unit_s, fallback, names) for name in spec.middleware]
    if speculation is not None:
        stack.insert(spec.place, SpeculationMiddleware(speculation=speculation))
    return create_agent(
        _main_model(spec, world, fails=True),
        tools,
        middleware=[TurnMarker(world), *stack],
        context_schema=Tenant,
        system_prompt="Be brief.",
        response_format=ToolStrategy(_VERDICT) if spec.structured else None,
        **options,
    )


def _tool_node(
    spec: AgentSpec, tools: list[BaseTool], speculation: Speculation | None, key: str
) -> ToolNode:
    options: dict[str, Any] = {**HANDLING[spec.handling], "messages_key": key}
    options.update(_wrappers(spec))
    if speculation is None:
        return ToolNode(tools, **options)
    return SpeculativeToolNode(tools, speculation=speculation, **options)


def _wrappers(spec: AgentSpec) -> dict[str, Any]:
    if spec.wrapper is None:
        return {}

    def blocking(request: Any, execute: Any) -> Any:
        if spec.wrapper == "edit":
            return execute(edited(request))
        if spec.wrapper == "raise" and request.tool_call["args"].get("q") == "b":
            raise ValueError("the wrapper says no")
        return short(request) or execute(request)

    async def awaiting(request: Any, execute: Any) -> Any:
        if spec.wrapper == "edit":
            return await execute(edited(request))
        if spec.wrapper == "raise" and request.tool_call["args"].get("q") == "b":
            raise ValueError("the wrapper says no")
        return short(request) or await execute(request)

    return {"wrap_tool_call": blocking, "awrap_tool_call": awaiting}


class _Typed(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class _TypedChat(TypedDict):
    chat: Annotated[list[AnyMessage], add_messages]


class _Model(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []


class _ModelChat(BaseModel):
    chat: Annotated[list[AnyMessage], add_messages] = []


@dataclass
class _Data:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)


@dataclass
class _DataChat:
    chat: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)


_STATES = {
    ("typed", "messages"): _Typed,
    ("typed", "chat"): _TypedChat,
    ("pydantic", "messages"): _Model,
    ("pydantic", "chat"): _ModelChat,
    ("dataclass", "messages"): _Data,
    ("dataclass", "chat"): _DataChat,
}


def _state_graph(
    spec: AgentSpec,
    world: World,
    tools: list[BaseTool],
    speculation: Speculation | None,
    options: dict[str, Any],
) -> Any:
    key = spec.messages_key
    node = _agent_node(spec, world, _main_model(spec, world, fails=True).bind_tools(tools))
    if speculation is not None:
        node = speculation.model_node(node)
    builder = StateGraph(_STATES[spec.state, key], context_schema=Tenant)
    policy = RetryPolicy(
        max_attempts=2,
        initial_interval=spec.unit_s,
        jitter=False,
        retry_on=(RuntimeError, ValueError),
    )
    retry = policy if spec.retries else None
    builder.add_node("agent", node, retry_policy=retry)
    builder.add_node("tools", _tool_node(spec, tools, speculation, key), retry_policy=retry)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: tools_condition(state, key))
    builder.add_edge("tools", "agent")
    return builder.compile(**options)


def _agent_node(spec: AgentSpec, world: World, bound: Any) -> Any:
    key = spec.messages_key

    def asked(state: Any) -> list[Any]:
        world.begin_turn()
        return _messages_of(state, key)

    def answered(message: AIMessage) -> dict[str, Any]:
        return {key: [message]}

    if spec.node == "chain":
        return RunnableLambda(asked) | bound | RunnableLambda(answered)
    if spec.clock == "sync":
        return lambda state: answered(bound.invoke(asked(state)))

    async def agent(state: Any) -> dict[str, Any]:
        return answered(await bound.ainvoke(asked(state)))

    return agent


def _react(
    spec: AgentSpec,
    world: World,
    tools: list[BaseTool],
    speculation: Speculation | None,
    options: dict[str, Any],
) -> Any:
    def prompt(state: Any) -> list[Any]:
        world.begin_turn()
        return state["messages"]

    model: BaseChatModel = _main_model(spec, world, fails=True)
    if speculation is not None:
        model = speculation.model(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(
            model,
            _tool_node(spec, tools, speculation, "messages"),
            prompt=prompt,
            context_schema=Tenant,
            version=spec.version,
            **options,
        )
