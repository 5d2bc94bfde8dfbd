"""`SpeculationMiddleware`: one line in `create_agent`."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import (
    ModelCallResult,
    ModelRequest,
    ModelResponse,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langchain_spectool._core.guess import TurnRequest
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.ports import Observer
from langchain_spectool._core.prices import Price
from langchain_spectool.engines.client import ToolCacheClient
from langchain_spectool.graph.gates import gates_around
from langchain_spectool.graph.model_turn import ModelTurn
from langchain_spectool.graph.opening import Tenant, named_tenant
from langchain_spectool.graph.quiet_turn import QuietTurn
from langchain_spectool.graph.speculation import Source, Speculation
from langchain_spectool.graph.tap import tapped

ToolResult = ToolMessage | Command[Any]


class SpeculationMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs the agent's read-only tools early, while its model is still writing.

    Only tools declared with `@speculatable` run early. Messages, state, streams, callbacks and
    errors stay those of the agent without it; see `Speculation` for the arguments.

    ```python
    speculation = SpeculationMiddleware(draft="openai:gpt-5-nano")
    agent = create_agent(model, [search_docs, send_mail], middleware=[speculation])
    ```
    """

    def __init__(  # noqa: PLR0913 - every part has a default
        self,
        *,
        draft: BaseChatModel | str | None = None,
        speculators: Sequence[Source] | None = None,
        policy: Policy | None = None,
        gated: Sequence[object] = (),
        trust_mcp: Collection[str] = (),
        observers: Sequence[Observer] = (),
        prices: Mapping[str, Price] | None = None,
        engine: str | ToolCacheClient | None = None,
        tenant: Tenant = named_tenant,
        speculation: Speculation | None = None,
    ) -> None:
        """Build a Speculation of its own, or take the one given."""
        super().__init__()
        self.speculation = speculation or Speculation(
            draft=draft,
            speculators=speculators,
            policy=policy,
            gated=gated,
            trust_mcp=trust_mcp,
            observers=observers,
            prices=prices,
            engine=engine,
            tenant=tenant,
        )

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Guess while `handler` waits for the model."""
        turn = self._open(request, handler, loop=None)
        if turn is None:
            return handler(request)
        tap = self.speculation.tap_for(turn, request.model)
        try:
            with self.speculation.calling(turn, request.model) as model:
                request = _on(request, model)
                if tap is None:
                    response = handler(request)
                else:
                    with tapped(tap):
                        response = handler(request)
        except BaseException:
            turn.abandon()
            raise
        self._commit(turn, response)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Guess while `handler` awaits the model."""
        turn = self._open(request, handler, loop=asyncio.get_running_loop())
        if turn is None:
            return await handler(request)
        tap = self.speculation.tap_for(turn, request.model)
        try:
            with self.speculation.calling(turn, request.model) as model:
                request = _on(request, model)
                if tap is None:
                    response = await handler(request)
                else:
                    with tapped(tap):
                        response = await handler(request)
        except BaseException:
            turn.abandon()
            raise
        self._commit(turn, response)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        """Let the plan's flight answer the call, if it has one."""
        return self.speculation.run_committed(request, handler)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Let the plan's flight answer the call, if it has one."""
        return await self.speculation.arun_committed(request, handler)

    def _open(
        self,
        request: ModelRequest[Any],
        handler: Callable[..., Any],
        *,
        loop: asyncio.AbstractEventLoop | None,
    ) -> ModelTurn | QuietTurn | None:
        return self.speculation.begin_turn(
            lambda: _turn_request(request),
            lambda: gates_around(handler),
            model=request.model,
            loop=loop,
        )

    def _commit(self, turn: ModelTurn | QuietTurn, response: ModelCallResult[Any]) -> None:
        self.speculation.end_turn(turn, self.speculation.answer_of(response))


def _on(request: ModelRequest[Any], model: BaseChatModel) -> ModelRequest[Any]:
    return request if model is request.model else request.override(model=model)


def _turn_request(request: ModelRequest[Any]) -> TurnRequest:
    messages = list(request.messages)
    if request.system_message is not None:
        messages.insert(0, request.system_message)
    settings = request.model_settings
    if request.tool_choice is not None:
        settings = {**settings, "tool_choice": request.tool_choice}
    return TurnRequest(messages=messages, tools=request.tools, settings=settings)
