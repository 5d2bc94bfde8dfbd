"""The middleware that drawn agents stand among."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from langchain_spectool.testing import ScriptedModel, text
from tests.graph.differential.specs import World

Handler = Callable[[ToolCallRequest], Any]


def edited(request: ToolCallRequest) -> ToolCallRequest:
    """Return `request` asking for something else, if it asks for "a"."""
    call = request.tool_call
    if call["args"].get("q") != "a":
        return request
    return request.override(tool_call={**call, "args": {**call["args"], "q": "b"}})


def short(request: ToolCallRequest) -> ToolMessage | None:
    """Answer what asks for "b" without running it."""
    call = request.tool_call
    if call["args"].get("q") != "b":
        return None
    return ToolMessage("not now", tool_call_id=call["id"], name=call["name"])


class TurnMarker(AgentMiddleware):
    """Tells the world that a turn begins; stands in every arm."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def before_model(self, state: Any, runtime: Any) -> None:
        self._world.begin_turn()

    async def abefore_model(self, state: Any, runtime: Any) -> None:
        self._world.begin_turn()


class Editing(AgentMiddleware):
    """Changes the arguments of calls."""

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        return handler(edited(request))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        return await handler(edited(request))


class ShortCircuit(AgentMiddleware):
    """Answers some calls itself."""

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        return short(request) or handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        return short(request) or await handler(request)


class Twice(AgentMiddleware):
    """Runs every call twice and keeps the second answer."""

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        handler(request)
        return handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        await handler(request)
        return await handler(request)


class Narrowing(AgentMiddleware):
    """Shows the model all tools but the last."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request.override(tools=request.tools[:-1]))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return await handler(request.override(tools=request.tools[:-1]))


Stack = Callable[[World, float, BaseChatModel, tuple[str, ...]], AgentMiddleware]

MIDDLEWARE: Mapping[str, Stack] = {
    "retry": lambda world, unit_s, model, names: ToolRetryMiddleware(
        max_retries=1, initial_delay=unit_s, backoff_factor=1.0, jitter=False
    ),
    "retry_error": lambda world, unit_s, model, names: ToolRetryMiddleware(
        max_retries=1, initial_delay=unit_s, backoff_factor=1.0, jitter=False, on_failure="error"
    ),
    "limit": lambda world, unit_s, model, names: ToolCallLimitMiddleware(run_limit=2),
    "limit_end": lambda world, unit_s, model, names: ToolCallLimitMiddleware(
        run_limit=2, exit_behavior="end"
    ),
    "limit_error": lambda world, unit_s, model, names: ToolCallLimitMiddleware(
        run_limit=3, exit_behavior="error"
    ),
    "fallback": lambda world, unit_s, model, names: ModelFallbackMiddleware(model),
    "model_retry": lambda world, unit_s, model, names: ModelRetryMiddleware(
        max_retries=1, initial_delay=unit_s, backoff_factor=1.0, jitter=False
    ),
    "approve": lambda world, unit_s, model, names: HumanInTheLoopMiddleware(
        dict.fromkeys(names[:2], True)
    ),
    "pii": lambda world, unit_s, model, names: PIIMiddleware(
        "email", apply_to_output=True, apply_to_tool_results=True
    ),
    "todo": lambda world, unit_s, model, names: TodoListMiddleware(),
    "summary": lambda world, unit_s, model, names: SummarizationMiddleware(
        ScriptedModel(script=lambda messages: text("so far so good"), generation_s=unit_s),
        trigger=("messages", 4),
        keep=("messages", 2),
    ),
    "edit": lambda world, unit_s, model, names: Editing(),
    "short": lambda world, unit_s, model, names: ShortCircuit(),
    "twice": lambda world, unit_s, model, names: Twice(),
    "narrow": lambda world, unit_s, model, names: Narrowing(),
}
EXCLUSIVE = (("retry", "retry_error"), ("limit", "limit_end", "limit_error"))
"""Those of one class, of which an agent takes only one."""
