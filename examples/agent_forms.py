"""The two ways to build an agent.

In each, the lines that mention `speculation` are all that speculation takes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_spectool import Speculation

Form = Callable[..., CompiledStateGraph[Any]]


def agent_form(
    model: BaseChatModel,
    tools: Sequence[BaseTool],
    prompt: str,
    speculation: Speculation | None,
) -> CompiledStateGraph[Any]:
    """Build an agent with `create_agent`; None builds the stock one."""
    middleware = [speculation.middleware()] if speculation else []
    return create_agent(model, tools, system_prompt=prompt, middleware=middleware)


def graph_form(
    model: BaseChatModel,
    tools: Sequence[BaseTool],
    prompt: str,
    speculation: Speculation | None,
) -> CompiledStateGraph[Any]:
    """Build the same agent by hand, from two nodes and three edges."""
    bound = model.bind_tools(tools)

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke([SystemMessage(prompt), *state["messages"]])]}

    builder = StateGraph(MessagesState)
    if speculation:
        builder.add_node("agent", speculation.model_node(call_model))
        builder.add_node("tools", speculation.tool_node())
    else:
        builder.add_node("agent", call_model)
        builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()
