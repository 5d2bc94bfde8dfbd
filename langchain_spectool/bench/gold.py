"""Gold trajectories: what a data set says an agent should call, and the tools that answer."""

import inspect
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import BaseModel, ValidationError, create_model

from langchain_spectool import testing
from langchain_spectool.errors import SpectoolError

Call = tuple[str, Mapping[str, Any]]
Batch = tuple[Call, ...]
"""The calls of one answer of the model."""

_TELLING = 3
"""Characters from which a value found in an output is taken to come from there."""


class MissingPackages(SpectoolError):  # noqa: N818 - it tells what to install
    """A data set's package is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTool:
    """One executable tool of one environment."""

    name: str
    description: str
    schema: type[BaseModel]
    read_only: bool
    body: Callable[..., str]
    """Takes what the schema made of the arguments; never raises."""

    def answer(self, args: Mapping[str, Any]) -> str:
        """Run the tool on raw arguments, as an agent would."""
        try:
            checked = self.schema.model_validate(args)
        except ValidationError as error:
            return f"Error: {error}"
        return self.body(**{name: getattr(checked, name) for name in self.schema.model_fields})


Environment = Callable[[], Mapping[str, GoldTool]]
"""Makes a fresh environment: its tools by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a user says, and the calls that answer it, one batch after another."""

    text: str
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTask:
    """One conversation."""

    task_id: str
    questions: Sequence[Question]
    environment: Environment

    @property
    def answers(self) -> list[Batch]:
        """What the model says turn by turn: each question's batches, and then no calls."""
        return [batch for each in self.questions for batch in (*each.batches, ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Gold tasks, split by task."""

    name: str
    package: str
    """Name and version of the package they come from."""
    about: str
    train: Sequence[GoldTask]
    test: Sequence[GoldTask]


def package(name: str) -> ModuleType:
    """Import a module of a data set's package.

    Raises:
        MissingPackages: It, or something it needs, is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        msg = (
            f"`bench sources` needs the package of {name!r}, and {error.name!r} is not installed: "
            "run `make bench-sources`, which installs requirements.bench.lock"
        )
        raise MissingPackages(msg) from error


def tool_of(method: Callable[..., Any], *, read_only: bool) -> GoldTool:
    """Return a tool that calls a method of an environment."""
    function: Any = getattr(method, "__func__", method)
    name, description, schema = _described(function)

    def body(**args: Any) -> str:
        try:
            return as_text(method(**args))
        except Exception as error:  # noqa: BLE001 - the agent is told, as by the data sets' own runners
            return f"Error: {error}"

    return GoldTool(
        name=name, description=description, schema=schema, read_only=read_only, body=body
    )


@cache
def _described(function: Callable[..., Any]) -> tuple[str, str, type[BaseModel]]:
    parameters = [*inspect.signature(function).parameters.values()][1:]
    fields: dict[str, Any] = {
        each.name: (each.annotation, ... if each.default is each.empty else each.default)
        for each in parameters
    }
    name = function.__name__
    paragraph = (inspect.getdoc(function) or name).split("\n\n", maxsplit=1)[0]
    return name, " ".join(paragraph.split()), create_model(name, **fields)


def as_text(value: object) -> str:
    """Return what a tool gave back as a model reads it."""
    if isinstance(value, str):
        return value
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    return json.dumps(plain, default=str)


def batched(
    questions: Sequence[tuple[str, Sequence[Call]]], environment: Environment
) -> list[Question]:
    """Join neighbouring reads into batches, where none needs an output of its own batch.

    Gold calls come one by one; a model asks for what it can know at once.
    """
    tools = environment()
    known, found = "", list[Question]()
    for text, calls in questions:
        known += text
        batches: list[Batch] = []
        outputs = ""
        for name, args in calls:
            joins = (
                bool(batches)
                and tools[name].read_only
                and tools[batches[-1][-1][0]].read_only
                and not _needs(args, outputs, known)
            )
            if not joins:
                known, outputs = known + outputs, ""
                batches.append(())
            batches[-1] = (*batches[-1], (name, args))
            outputs += tools[name].answer(args)
        known += outputs
        found.append(Question(text=text, batches=batches))
    return found


def _needs(args: Mapping[str, Any], outputs: str, known: str) -> bool:
    """Say whether a value of `args` can only be known from `outputs`."""
    values = (str(value) for value in args.values())
    return any(len(each) >= _TELLING and each in outputs and each not in known for each in values)


def reads_of(batch: Batch, tools: Mapping[str, GoldTool]) -> Batch:
    """Return the read-only calls of a batch."""
    return tuple(call for call in batch if tools[call[0]].read_only)


def count_reads(tasks: Sequence[GoldTask]) -> int:
    """Return how many read-only calls the tasks commit."""
    return sum(
        len(reads_of(batch, tools))
        for task in tasks
        for tools in [task.environment()]
        for batch in task.answers
    )


def transcript(task: GoldTask) -> list[BaseMessage]:
    """Return the task's conversation, its calls run in a fresh environment."""
    tools, messages, turn = task.environment(), list[BaseMessage](), 0
    for question in task.questions:
        messages.append(HumanMessage(question.text))
        for batch in (*question.batches, ()):
            messages.append(answer := message_of(batch, turn))
            messages += [
                ToolMessage(tools[call["name"]].answer(call["args"]), tool_call_id=call["id"])
                for call in answer.tool_calls
            ]
            turn += 1
    return messages


def message_of(batch: Batch, turn: int) -> AIMessage:
    """Return the model's answer with these calls; without any, its closing word."""
    return testing.calls(*batch, prefix=f"t{turn}c") if batch else testing.text("Done.")


def split(
    tasks: Sequence[GoldTask], *, seed: int, share: float
) -> tuple[list[GoldTask], list[GoldTask]]:
    """Return about a `share` of `tasks` to train on, and the others, in a drawn order."""
    mixed = [*tasks]
    random.Random(f"split:{seed}").shuffle(mixed)  # noqa: S311 - a fair draw, no secret
    cut = round(share * len(mixed))
    return mixed[:cut], mixed[cut:]
