"""What the model would be asked next if a guess comes true: the request after an early run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langgraph.prebuilt import tool_node

from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import TurnRequest


def after(request: TurnRequest, flight: Flight, outcome: Outcome) -> TurnRequest:
    """Return `request` as it goes on once its model has made the call of `flight`.

    The calls that led to `flight` and their results come before it.
    """
    chain: list[Flight] = []
    link: Flight | None = flight
    while link is not None and not link.answers:  # those that came true are in the request
        chain.insert(0, link)
        link = link.parent
    messages = [*request.messages]
    for number, each in enumerate(chain):
        call_id = f"spectool_{number}"
        result = outcome if each is flight else each.outcome
        call = tool_call(name=each.tool, args=dict(each.args), id=call_id)
        value = None if result is None else result.value
        content = shown_to_model(value, _tool(request, each.tool))
        messages += [
            AIMessage(content="", tool_calls=[call]),
            ToolMessage(content=content, tool_call_id=call_id, name=each.tool),
        ]
    return replace(request, messages=messages)


def _tool(request: TurnRequest, name: str) -> object:
    return next((tool for tool in request.tools if getattr(tool, "name", None) == name), None)


_shown = cast(
    "Callable[[object], Any]",
    tool_node.msg_content_output,  # pyright: ignore[reportUnknownMemberType] - its blocks
)


def shown_to_model(value: object, tool: object) -> Any:  # noqa: ANN401 - text, or blocks of content
    """Return what a model would read of the raw value of `tool`, as LangGraph formats it."""
    if getattr(tool, "response_format", "content") == "content_and_artifact":
        value = cast("tuple[object, object]", value)[0]
    if not isinstance(value, tuple):
        return _shown(value)
    several = cast("tuple[object, ...]", value)
    blocks = _shown([*several])
    return _shown(several) if isinstance(blocks, str) else blocks
