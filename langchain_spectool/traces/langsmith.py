"""Runs as LangSmith exports them: one line each, in any order, many to a trace."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from langchain_core.messages import BaseMessage

from langchain_spectool.traces.messages import is_message, messages_from
from langchain_spectool.traces.trajectory import (
    Conversation,
    UnreadableError,
    is_list,
    is_mapping,
)

_MODELS: Final = ("llm", "chat_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Longest:
    """The longest list of messages seen of a trace."""

    messages: tuple[BaseMessage, ...]
    order: str
    first: str
    """The order of the trace's earliest run that has messages."""
    tools: list[Any]


class Exported:
    """Gathers the runs of a file and keeps the longest list of messages of each trace.

    Memory grows with the number of traces, not with that of runs.
    """

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._traces: dict[str, _Longest] = {}

    def add(self, run: Mapping[str, Any]) -> None:
        """Take note of one run.

        Raises:
            UnreadableError: It should hold messages and does not.
        """
        found = _messages(run)
        if found is None:
            return
        trace, order = _trace(run), _order(run)
        messages = messages_from(found)
        best = self._traces.get(trace)
        first = order if best is None else min(best.first, order)
        if best is None or (len(messages), order) > (len(best.messages), best.order):
            tools = _tools(run) or (best.tools if best else [])
            best = _Longest(messages=messages, order=order, first=first, tools=tools)
        else:
            best = _Longest(
                messages=best.messages,
                order=best.order,
                first=first,
                tools=best.tools or _tools(run),
            )
        self._traces[trace] = best

    def conversations(self) -> Iterator[Conversation]:
        """Yield one conversation per trace, in the order in which they began."""
        for trace, best in sorted(self._traces.items(), key=lambda item: item[1].first):
            yield Conversation(
                messages=best.messages,
                run=f"{self._dataset}/{trace}",
                task=trace,
                dataset=self._dataset,
                tools=best.tools,
            )


def is_run(record: object) -> TypeGuard[Mapping[str, Any]]:
    """Say whether `record` is an exported run, whatever it holds."""
    return is_mapping(record) and "run_type" in record


def _trace(run: Mapping[str, Any]) -> str:
    trace = run.get("trace_id") or run.get("id")
    if not isinstance(trace, str):
        msg = "the run has neither `trace_id` nor `id`"
        raise UnreadableError(msg)
    return trace


def _order(run: Mapping[str, Any]) -> str:
    return str(run.get("dotted_order") or run.get("start_time") or "")


def _messages(run: Mapping[str, Any]) -> list[Any] | None:
    """Return what a run was asked and what it answered; None for runs that hold no conversation."""
    inputs, outputs = run.get("inputs"), run.get("outputs")
    if run.get("run_type") in _MODELS:
        asked = is_mapping(inputs) and inputs.get("messages")
        if not is_list(asked):
            msg = f"the run of type {run.get('run_type')!r} has no `inputs.messages`"
            raise UnreadableError(msg)
        return [*_flat(asked), *_answer(outputs)]
    if run.get("run_type") == "chain" and not run.get("parent_run_id") and is_mapping(outputs):
        said = outputs.get("messages")
        return said if is_list(said) and said else None
    return None


def _flat(asked: list[Any]) -> list[Any]:
    """Return the messages of a batch of one."""
    return asked[0] if len(asked) == 1 and is_list(asked[0]) else asked


def _answer(outputs: object) -> list[Any]:
    """Return the message that a model answered with, in a list; none if it failed."""
    if not is_mapping(outputs):
        return []
    for key in ("generations", "choices", "messages"):
        found = outputs.get(key)
        while is_list(found) and found:
            found = found[-1]
        if is_mapping(found):
            return [found.get("message", found)]
    found = outputs.get("message", outputs)
    return [found] if is_message(found) else []


def _tools(run: Mapping[str, Any]) -> list[Any]:
    extra, inputs = run.get("extra"), run.get("inputs")
    params = is_mapping(extra) and extra.get("invocation_params")
    for holder in (params, inputs):
        found = is_mapping(holder) and holder.get("tools")
        if is_list(found) and found:
            return found
    return []
