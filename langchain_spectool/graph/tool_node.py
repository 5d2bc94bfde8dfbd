"""`SpeculativeToolNode`: a ToolNode whose calls may be answered by early runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langchain_spectool.graph.speculation import Speculation

Result = ToolMessage | Command[Any]
Execute = Callable[[ToolCallRequest], Result]
AsyncExecute = Callable[[ToolCallRequest], Awaitable[Result]]


class _Carried(GraphBubbleUp):
    """Takes a tool's exception past ToolNode's handling of *wrapper* exceptions.

    With a wrapper, ToolNode turns whatever leaves it into an error message, whichever types
    `handle_tool_errors` names. Ours must not change which errors are handled.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class SpeculativeToolNode(ToolNode):
    """Takes every argument `ToolNode` takes, and a `speculation`.

    A user's `wrap_tool_call` stands outside ours, so it sees every call and may edit it. Without
    a `speculation` of a model node in the same graph there are no early runs to claim, and the
    node behaves as stock.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        speculation: Speculation | None = None,
        wrap_tool_call: Callable[[ToolCallRequest, Execute], Result] | None = None,
        awrap_tool_call: Callable[[ToolCallRequest, AsyncExecute], Awaitable[Result]] | None = None,
        **options: Any,
    ) -> None:
        """Build the stock node around our wrapper."""
        self.speculation = speculation or Speculation()
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            tools,
            wrap_tool_call=self._around(wrap_tool_call),
            awrap_tool_call=self._aaround(awrap_tool_call, synchronous=wrap_tool_call),
            **options,
        )

    def invoke(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Runnable's
        """Run the calls; see `ToolNode`."""
        try:
            return super().invoke(*args, **kwargs)
        except _Carried as carried:
            error = carried.error
        raise error

    async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Runnable's
        """Run the calls; see `ToolNode`."""
        try:
            return await super().ainvoke(*args, **kwargs)
        except _Carried as carried:
            error = carried.error
        raise error

    def _around(
        self, user: Callable[[ToolCallRequest, Execute], Result] | None
    ) -> Callable[[ToolCallRequest, Execute], Result]:
        def ours(request: ToolCallRequest, execute: Execute) -> Result:
            return self.speculation.run_committed(request, execute)

        def alone(request: ToolCallRequest, execute: Execute) -> Result:
            try:
                return ours(request, execute)
            except GraphBubbleUp:
                raise
            except Exception as error:
                raise _Carried(error) from error

        if user is None:
            return alone
        return lambda request, execute: user(request, lambda inner: ours(inner, execute))

    def _aaround(
        self,
        user: Callable[[ToolCallRequest, AsyncExecute], Awaitable[Result]] | None,
        *,
        synchronous: object,
    ) -> Callable[[ToolCallRequest, AsyncExecute], Awaitable[Result]] | None:
        if user is None and synchronous is not None:
            return None  # stock then runs the blocking wrapper, on the loop

        async def ours(request: ToolCallRequest, execute: AsyncExecute) -> Result:
            return await self.speculation.arun_committed(request, execute)

        async def alone(request: ToolCallRequest, execute: AsyncExecute) -> Result:
            try:
                return await ours(request, execute)
            except (GraphBubbleUp, asyncio.CancelledError):
                raise
            except Exception as error:
                raise _Carried(error) from error

        if user is None:
            return alone

        async def outside(request: ToolCallRequest, execute: AsyncExecute) -> Result:
            return await user(request, lambda inner: ours(inner, execute))

        return outside
