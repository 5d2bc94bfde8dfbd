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
from contextvars import Context
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools import BaseTool

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
    untraced,
)
from langchain_spectool.graph.proxy import proxy
from langchain_spectool.graph.retry_after import retry_after_s
from langchain_spectool.graph.setting import Setting, current_setting
from langchain_spectool.graph.structure import Structure

_REFUSED = "_spectool_tainted"


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


class _Recorder:
    """Stands where the body stood: keeps the values it got and the raw value it returned."""

    def __init__(self, tool: BaseTool, contract: Contract, taint: Taint) -> None:
        self._tool = tool
        self._contract = contract
        self._taint = taint
        self.key: str | None = None
        self.token: object = None
        self.reached = False
        self.holds: object = None
        self.returned: tuple[Any] | None = None
        self.error: BaseException | None = None
        """What the body raised, which the tool itself may have turned into a message."""

    def run(
        self, body: Callable[[], Any], values: Mapping[str, Any], handed: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        look = self._begin(values, handed)
        if look is not None:
            self.token = look()
        try:
            value = body()
        except Exception as error:
            self.error = error
            raise
        self.returned = (value,)
        return value

    async def arun(
        self,
        body: Callable[[], Coroutine[Any, Any, Any]],
        values: Mapping[str, Any],
        handed: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401
        look = self._begin(values, handed)
        if look is not None:
            self.token = await off_the_loop(look)
        try:
            value = await body()
        except (SystemExit, KeyboardInterrupt) as error:
            # Core runs the body in a task of its own, which would take these to the loop.
            raise _Exited from error
        except Exception as error:
            self.error = error
            raise
        self.returned = (value,)
        return value

    def _begin(
        self, values: Mapping[str, Any], handed: Mapping[str, Any]
    ) -> Callable[[], object] | None:
        self.reached = self._taint.in_body = True
        setting = current_setting(handed)
        self.holds = setting.holds
        self.key = body_key(self._tool, self._contract, values, setting)
        freshness = self._contract.freshness
        if freshness is None:
            return None
        return lambda: freshness(values)


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
    recorder = _Recorder(tool, contract, taint)
    stand_in = proxy(tool, recorder, callbacks=False)

    def run() -> Outcome:
        try:
            silence(taint)
            with untraced():
                stand_in.invoke(call, config)
        except BaseException as error:  # noqa: BLE001 - a failed guess is invisible
            return _outcome(tool, recorder, taint, error)
        return _outcome(tool, recorder, taint, None)

    async def arun() -> Outcome:
        task_cancelled = _cancellation()
        try:
            silence(taint)
            with untraced():
                await stand_in.ainvoke(call, config)
        except BaseException as error:
            if task_cancelled():
                raise
            return _outcome(tool, recorder, taint, error)
        return _outcome(tool, recorder, taint, None)

    return EarlyRun(
        run=run if structure.synchronous else None,
        arun=arun if structure.asynchronous else None,
        context=around.context.copy(),
    )


def _cancellation() -> Callable[[], bool]:
    task = asyncio.current_task()
    return lambda: task is not None and task.cancelling() > 0


def _outcome(
    tool: BaseTool, recorder: _Recorder, taint: Taint, error: BaseException | None
) -> Outcome:
    reasons = [*taint.reasons]
    if recorder.returned is not None and (what := unrepeatable(recorder.returned[0])):
        reasons.append(what)
    if reasons:
        _refuse(tool, reasons[0])
        return Outcome(state="tainted", body_key=recorder.key, detail=reasons[0])
    if error is not None or recorder.returned is None:
        detail = type(error).__name__ if error is not None else "the body was not reached"
        wait_s = attempt(retry_after_s, recorder.error or error)
        recorder.error = None  # its frames hold the recorder
        return Outcome(state="failed", body_key=recorder.key, detail=detail, retry_after_s=wait_s)
    return Outcome(
        state="landed",
        value=recorder.returned[0],
        body_key=recorder.key,
        token=recorder.token,
        holds=recorder.holds,
    )


def unrepeatable(value: object) -> str | None:
    """Say why a returned value can answer no other call; None if it can."""
    # A tool with artifacts returns a pair, of which the first may be such a message.
    parts = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(part, ToolOutputMixin) for part in parts):
        return "returned a message or command bound to its own call"
    if any(isinstance(part, (Iterator, AsyncIterator, Awaitable)) for part in parts):
        return "returned a stream that can be read only once"
    return None
