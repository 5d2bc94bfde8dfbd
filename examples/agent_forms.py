"""The two ways to build an agent.

In each, the lines that mention `speculative` are all that speculation takes.
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

from langchain_spectool import DraftModel, EarlyDispatch, Speculation, SpeculationMiddleware

Built = tuple[CompiledStateGraph[Any], Speculation | None]
"""The agent, and what speculates for it, whose `report()` says how that went."""
Form = Callable[..., Built]


def agent_form(
    model: BaseChatModel,
    tools: Sequence[BaseTool],
    prompt: str,
    *,
    speculative: bool,
    draft: BaseChatModel | None,
) -> Built:
    """Build an agent with `create_agent`; without a draft, calls start from the main stream."""
    ours = SpeculationMiddleware(draft=draft) if speculative else None
    agent = create_agent(model, tools, system_prompt=prompt, middleware=[ours] if ours else [])
    return agent, ours.speculation if ours else None


def graph_form(
    model: BaseChatModel,
    tools: Sequence[BaseTool],
    prompt: str,
    *,
    speculative: bool,
    draft: BaseChatModel | None,
) -> Built:
    """Build the same agent by hand, from two nodes and three edges."""
    bound = model.bind_tools(tools)

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke([SystemMessage(prompt), *state["messages"]])]}

    builder = StateGraph(MessagesState)
    if speculative:
        speculators = [DraftModel(draft) if draft else EarlyDispatch()]
        spec = Speculation(tools, speculators=speculators)
        builder.add_node("agent", spec.model_node(call_model))
        builder.add_node("tools", spec.tool_node())
    else:
        spec = None
        builder.add_node("agent", call_model)
        builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(), spec
