"""The same agent in every form that is compared."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from langchain import agents
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langchain_spectool._core.policy import Policy
from langchain_spectool.bench.paced import look_up_tool
from langchain_spectool.graph.declare import speculatable
from langchain_spectool.graph.speculation import Source, Speculation

Form = Literal["plain", "noop", "ours", "graph_plain", "graph_ours"]
"""`create_agent` without middleware, with one that does nothing, and with ours; a hand-built
`StateGraph` with a stock `ToolNode`, and with our two nodes."""

ToolResult = ToolMessage | Command[Any]


class NoopMiddleware(AgentMiddleware[Any, Any, Any]):
    """Wraps what ours wraps, and only passes it on."""

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Pass it on."""
        return handler(request)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Pass it on."""
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        """Pass it on."""
        return handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Pass it on."""
        return await handler(request)


def build(
    form: Form, model: BaseChatModel, speculators: Sequence[Source] | None
) -> tuple[Any, Speculation | None]:
    """Return a compiled agent of `form` with one look-up tool, and its Speculation if it has one.

    In every form but ours the tool is undeclared and `speculators` have no place.
    """
    create_agent: Callable[..., Any] = agents.create_agent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    tool = look_up_tool()
    if form == "plain":
        return create_agent(model, [tool]), None
    if form == "noop":
        return create_agent(model, [tool], middleware=[NoopMiddleware()]), None
    if form == "graph_plain":
        return _graph(model, [tool], None), None
    # Many turns share one process here, and none of them may be refused for lack of room.
    policy = Policy(in_flight=1024)
    speculation = Speculation([speculatable(tool)], speculators=speculators, policy=policy)
    if form == "ours":
        return create_agent(model, [tool], middleware=[speculation.middleware()]), speculation
    return _graph(model, [tool], speculation), speculation


def _graph(model: BaseChatModel, tools: Sequence[Any], speculation: Speculation | None) -> Any:  # noqa: ANN401 - a compiled graph
    bound = model.bind_tools(tools)

    async def call_model(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", speculation.model_node(call_model) if speculation else call_model)
    builder.add_node("tools", speculation.tool_node() if speculation else ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()
