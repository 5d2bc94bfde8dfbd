"""Runs a tool's body early: detached, recorded, and dropped at the first thing nobody may see."""

import asyncio
import copy
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.encoding import attempt
from langchain_spectool._core.flight import Outcome
from langchain_spectool._core.keys import prepared
from langchain_spectool._runtime.steps import off_the_loop
from langchain_spectool._runtime.turn_scope import EarlyRun
from langchain_spectool.graph.isolation import (
    Taint,
    early_config,
    early_tool_runtime,
    silence,
)
from langchain_spectool.graph.proxy import proxy
from langchain_spectool.graph.retry_after import retry_after_s
from langchain_spectool.graph.setting import Setting, current_setting
from langchain_spectool.graph.structure import Structure

_REFUSED = "_spectool_tainted"
_Body = Callable[[], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an early run may know of the graph run it belongs to."""

    config: Mapping[str, Any]
    runtime: object
    context: Context


def body_key(
    tool: BaseTool, contract: Contract, values: Mapping[str, Any], setting: Setting
) -> str | None:
    """Return the exact key of the values a body received; equal keys may share a result.

    The body itself is part of it, as an object: two tools of one name never answer each other.
    So is its setting: no one is answered with what another was told.
    """
    own = values if contract.key is None else contract.key(values)
    encoded = prepared(tool).values_key(own, exact=True)
    return None if encoded is None else f"{id(_body_of(tool))}:{setting.text}:{encoded}"


def _body_of(tool: BaseTool) -> object:
    return getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool


def tainted_before(tool: BaseTool) -> str | None:
    """Return what an earlier early run of this tool did, if it can never be replayed."""
    return getattr(_body_of(tool), _REFUSED, None) or getattr(tool, _REFUSED, None)


def _refuse(tool: BaseTool, reason: str) -> None:
    body = _body_of(tool)
    try:
        setattr(body, _REFUSED, reason)
    except (AttributeError, TypeError, ValueError):
        object.__setattr__(tool, _REFUSED, reason)


class _Exited(Exception):  # noqa: N818 - never leaves this module
    """A body that nobody asked for wanted to end the process."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Early:
    """One early run: stands where the body stood, and keeps what that got and what it returned.

    Most bodies do not run where LangChain calls them: that call ends as soon as the arguments
    are there, and what it was made of is free while the body runs.
    """

    tool: BaseTool
    contract: Contract
    taint: Taint
    aside: bool
    """Whether the asynchronous body runs after the call that prepared it, not inside."""
    asked: list[tuple[BaseTool, dict[str, Any], RunnableConfig]]
    """A stand-in for the tool, and what it is called with; empty once it is."""
    rest: list[tuple[_Body, Context]] = field(default_factory=list[tuple[_Body, Context]])
    """A body that was put aside, and where it runs; empty once it does."""
    look: Callable[[], object] | None = None
    key: str | None = None
    token: object = None
    holds: object = None
    returned: tuple[Any] | None = None
    error: BaseException | None = None
    """What the body raised, which the tool itself may have turned into a message."""

    # --- the early run

    def outcome(self) -> Outcome:
        """Run it, blocking."""
        try:
            silence(self.taint)
            stand_in, call, config = self.asked.pop()
            stand_in.invoke(call, config)
        except BaseException as error:  # noqa: BLE001 - a failed guess is invisible
            return _outcome(self, error)
        return _outcome(self, None)

    async def aoutcome(self) -> Outcome:
        """Run it, awaiting."""
        try:
            silence(self.taint)
            await self._ainvoked()
            if self.rest:
                await self._resumed()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _cancelling():
                raise
            return _outcome(self, error)
        return _outcome(self, None)

    def _ainvoked(self) -> Awaitable[Any]:
        stand_in, call, config = self.asked.pop()
        return stand_in.ainvoke(call, config)

    def _resumed(self) -> Coroutine[Any, Any, Any]:
        """Go on with a body that was put aside, in this task and as its call left the context."""
        body, context = self.rest.pop()
        for variable, value in context.items():
            variable.set(value)
        return self._awaited(body)

    # --- where the body stood

    def run(
        self, body: Callable[[], Any], values: Mapping[str, Any], handed: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        self._begin(values, handed)
        if self.look is not None:
            self.token = self.look()
        try:
            value = body()
        except Exception as error:
            self.error = error
            raise
        self.returned = (value,)
        return value

    async def arun(self, body: _Body, values: Mapping[str, Any], handed: Mapping[str, Any]) -> Any:  # noqa: ANN401
        self._begin(values, handed)
        if not self.aside:
            return await self._awaited(body)
        self.rest.append((body, copy_context()))
        return ("", None) if self.tool.response_format == "content_and_artifact" else ""

    async def _awaited(self, body: _Body) -> Any:  # noqa: ANN401
        if self.look is not None:
            self.token = await off_the_loop(self.look)
        try:
            value = await body()
        except (SystemExit, KeyboardInterrupt) as error:
            # A body may run in a task of core's, which would take these to the loop.
            raise _Exited from error
        except Exception as error:
            self.error = error
            raise
        self.returned = (value,)
        return value

    def _begin(self, values: Mapping[str, Any], handed: Mapping[str, Any]) -> None:
        self.taint.in_body = True
        setting = current_setting(handed)
        self.holds = setting.holds
        self.key = body_key(self.tool, self.contract, values, setting)
        freshness = self.contract.freshness
        if freshness is not None:
            self.look = lambda: freshness(values)


def _cancelling() -> bool:
    """Say whether somebody cancels this task.

    Not in the run itself, whose frame would hold the task, and the task by its error the frame. A
    task group of the body that failed has cancelled it as well, and takes that back only later.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _outcome(early: _Early, error: BaseException | None) -> Outcome:
    cause, early.error = early.error or error, None  # its frames hold the early run
    reasons = [*early.taint.reasons]
    if early.returned is not None and (what := unrepeatable(early.returned[0])):
        reasons.append(what)
    if reasons:
        _refuse(early.tool, reasons[0])
        return Outcome(state="tainted", body_key=early.key, detail=reasons[0])
    if error is not None or early.returned is None:
        detail = type(error).__name__ if error is not None else "the body was not reached"
        wait_s = attempt(retry_after_s, cause)
        return Outcome(state="failed", body_key=early.key, detail=detail, retry_after_s=wait_s)
    return Outcome(
        state="landed",
        value=early.returned[0],
        body_key=early.key,
        token=early.token,
        holds=early.holds,
    )


def early_run(
    tool: BaseTool,
    args: Mapping[str, Any],
    contract: Contract,
    structure: Structure,
    around: Surroundings,
) -> EarlyRun:
    """Prepare both forms of an early run of `tool`."""
    taint = Taint()
    omit = contract.inner_runs == "omit"
    config = early_config(around.config, around.runtime, taint, probe=not omit)
    given = {k: v for k, v in copy.deepcopy(dict(args)).items() if k not in structure.injected}
    for name in structure.runtime_parameters:
        given[name] = early_tool_runtime(around.runtime, config, taint)
    call = {"name": tool.name, "args": given, "id": "speculation", "type": "tool_call"}
    early = _Early(
        tool=tool,
        contract=contract,
        taint=taint,
        aside=_called_as_ever(type(tool)),
        asked=[],
    )
    early.asked.append((proxy(tool, early, callbacks=False), call, config))
    return EarlyRun(
        run=early.outcome if structure.synchronous else None,
        arun=early.aoutcome if structure.asynchronous else None,
        context=around.context.copy(),
    )


def _called_as_ever(kind: type[BaseTool]) -> bool:
    """Say whether calls of such a tool do nothing around its body but what LangChain does."""
    stock = (BaseTool.ainvoke, StructuredTool.ainvoke, Tool.ainvoke)
    return kind.ainvoke in stock and kind.arun is BaseTool.arun


def unrepeatable(value: object) -> str | None:
    """Say why a returned value can answer no other call; None if it can."""
    # A tool with artifacts returns a pair, of which the first may be such a message.
    parts = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(part, ToolOutputMixin) for part in parts):
        return "returned a message or command bound to its own call"
    if any(isinstance(part, (Iterator, AsyncIterator, Awaitable)) for part in parts):
        return "returned a stream that can be read only once"
    return None
