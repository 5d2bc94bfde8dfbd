"""Conversations in JSON values: OpenAI's form, LangChain's, and LangSmith's exported runs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_spectool.traces.langsmith import Exported, is_run
from langchain_spectool.traces.lines import Value
from langchain_spectool.traces.messages import is_message, message_from, messages_from
from langchain_spectool.traces.trajectory import (
    Conversation,
    UnreadableError,
    is_list,
    is_mapping,
)


def conversations(
    values: Iterator[Value], path: Path, on_bad: Callable[[int, str], None]
) -> Iterator[Conversation]:
    """Yield the conversations in the `values` of a file.

    Lines that are single messages make up one conversation together. It and the runs of an export
    come last: only the end of the file tells that nothing follows.
    """
    dataset = stem(path)
    exported = Exported(dataset)
    loose: list[BaseMessage] = []
    for number, value in values:
        for place, record in _records(value):
            try:
                if is_run(record):
                    exported.add(record)
                elif is_message(record):
                    loose.append(message_from(record))
                else:
                    yield _conversation(record, dataset, f"{path.name}:{number}{place}")
            except UnreadableError as error:
                on_bad(number, f"{place} {error}".strip())
    if loose:
        name = path.name
        yield Conversation(messages=tuple(loose), run=name, task=name, dataset=dataset)
    yield from exported.conversations()


def stem(path: Path) -> str:
    """Return a file's name without the ends that tell its form."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _records(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a list that stand for themselves; a list of messages is one whole."""
    if is_list(value) and value and not is_message(value[0]):
        yield from ((f"[{index}]", each) for index, each in enumerate(value))
    else:
        yield "", value


def _conversation(record: object, dataset: str, place: str) -> Conversation:
    if isinstance(record, UnreadableError):
        raise record
    if is_list(record):
        record = {"messages": record}
    if not is_mapping(record) or not is_list(record.get("messages")):
        msg = "it is no recorded run: a JSON object with `messages`, or a list of messages"
        raise UnreadableError(msg)
    tools, tenant = record.get("tools"), record.get("tenant")
    dataset = str(record.get("dataset") or dataset)
    task = record.get("task_id")
    return Conversation(
        messages=messages_from(record["messages"]),
        run=_run(record, dataset, place),
        task=place if task is None else str(task),
        tenant=None if tenant is None else str(tenant),
        dataset=dataset,
        tools=tools if is_list(tools) else (),
        tools_ref=record.get("tools_ref"),
    )


def _run(record: Mapping[str, Any], dataset: str, place: str) -> str:
    """Put a run's name together; a `run` without a task may be the name of many."""
    if "task_id" in record and "run" in record:
        return f"{dataset}/{record['task_id']}/{record['run']}"
    return f"{dataset}/{record['id']}" if "id" in record else place
