"""Middleware that changes what a model is told, or loses what it said."""

import asyncio
from collections.abc import Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage


class Editing(AgentMiddleware[Any, Any]):
    """Rewrites what the tools said."""

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        message = await handler(request)
        assert isinstance(message, ToolMessage)
        return message.model_copy(update={"content": f"({message.content})"})


class FailsOnce(AgentMiddleware[Any, Any]):
    """Loses the second answer of the model once."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def awrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        response = await handler(request)
        if len(request.messages) > 1 and not self.lost:
            self.lost += 1
            msg = "lost"
            raise ConnectionError(msg)
        return response


class Slow(AgentMiddleware[Any, Any]):
    """Takes its time around each tool."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        await asyncio.sleep(self.seconds)
        return await handler(request)
