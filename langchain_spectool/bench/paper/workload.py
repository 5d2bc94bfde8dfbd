"""BFCL prompts and tools as an agent workload, whose tools answer from memory.

A task is one question of a user: the calls that the ground truth makes for it, one batch of calls
after another, and a closing answer. Two parts of BFCL give them: the user turns of the multi-turn
base category, with the outputs that the package's own classes give, and the questions of the
parallel categories, whose tools have no implementation and answer with a stub. As every output
comes from memory, every call is a read.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage
from pydantic import BaseModel, create_model

from langchain_spectool.bench import gold_bfcl
from langchain_spectool.bench.gold import Batch, GoldTask, message_of, package

CHARS_PER_TOKEN: Final = 4
VARIANT: Final = "variant"
"""One more argument that every tool takes: wrong guesses differ by it, whatever the tool."""
PARALLEL: Final = ("parallel", "parallel_multiple")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What an agent is told of one tool."""

    name: str
    description: str
    arguments: tuple[str, ...]

    @property
    def schema(self) -> type[BaseModel]:
        """A model of the arguments; all optional, of any type: the script makes no mistakes."""
        return _schema(self.name, self.arguments)


@cache
def _schema(name: str, arguments: tuple[str, ...]) -> type[BaseModel]:
    fields: dict[str, Any] = dict.fromkeys((*arguments, VARIANT), (Any, None))
    return create_model(name.replace(".", "_"), **fields)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperTask:
    """One question, and the calls that answer it."""

    task_id: str
    text: str
    batches: Sequence[Batch]
    """The calls of each answer of the model but the last, which makes none."""
    outputs: Sequence[Sequence[str]]
    """What the tools say to them."""
    tools: Mapping[str, ToolSpec]
    answers: Sequence[AIMessage] = field(init=False)
    """The model's answers, the closing one included."""
    asked_tokens: Sequence[int] = field(init=False)
    """Estimated tokens of each request: a quarter of its characters, tools included."""

    def __post_init__(self) -> None:
        """Write the messages."""
        answers = [message_of(batch, turn) for turn, batch in enumerate((*self.batches, ()))]
        object.__setattr__(self, "answers", answers)
        chars = len(self.text) + sum(
            len(each.name) + len(each.description) + len(str(each.arguments))
            for each in self.tools.values()
        )
        tokens: list[int] = []
        for turn in range(self.turns):
            tokens.append(chars // CHARS_PER_TOKEN)
            if turn < len(self.batches):
                chars += len(str(self.batches[turn])) + sum(map(len, self.outputs[turn]))
        object.__setattr__(self, "asked_tokens", tokens)

    @property
    def turns(self) -> int:
        """How often the model answers, the closing answer included."""
        return len(self.batches) + 1

    def output(self, name: str, args: Mapping[str, Any]) -> str:
        """Return what memory holds for a call; a call nobody expected gets a stub."""
        for batch, said in zip(self.batches, self.outputs, strict=True):
            for call, output in zip(batch, said, strict=True):
                if call == (name, args):
                    return output
        return f"{name}: nothing known"


def load_tasks() -> list[PaperTask]:
    """Return every task, in the order of the package's files.

    Raises:
        MissingPackages: `bfcl-eval` is not installed.
    """
    tasks = [
        task
        for conversation in gold_bfcl.load(seed=0, train_share=0.0).test
        for task in _questions(conversation)
    ]
    folder = Path(package("bfcl_eval").__path__[0]) / "data"
    return sorted(tasks, key=lambda task: task.task_id) + [
        _parallel(row, answer)
        for name in PARALLEL
        for row, answer in zip(
            _rows(folder / f"BFCL_v4_{name}.json"),
            _rows(folder / "possible_answer" / f"BFCL_v4_{name}.json"),
            strict=True,
        )
    ]


def deal(tasks: Sequence[PaperTask], *, agents: int, each: int, seed: int) -> list[list[PaperTask]]:
    """Give every agent `each` tasks, drawn by the seed; no task twice while they last."""
    mixed = [*tasks]
    random.Random(f"deal:{seed}").shuffle(mixed)  # noqa: S311 - a fair draw, no secret
    return [
        [mixed[(agent * each + place) % len(mixed)] for place in range(each)]
        for agent in range(agents)
    ]


def _questions(conversation: GoldTask) -> list[PaperTask]:
    """Run a conversation's calls once and return its questions as tasks of their own."""
    environment = conversation.environment()
    specs = {
        name: ToolSpec(
            name=name,
            description=tool.description,
            arguments=tuple(tool.schema.model_fields),
        )
        for name, tool in environment.items()
    }
    tasks: list[PaperTask] = []
    for number, question in enumerate(conversation.questions):
        outputs = [
            [environment[name].answer(args) for name, args in batch] for batch in question.batches
        ]
        if question.batches:
            tasks.append(
                PaperTask(
                    task_id=f"{conversation.task_id}:{number}",
                    text=question.text,
                    batches=question.batches,
                    outputs=outputs,
                    tools={name: specs[name] for batch in question.batches for name, _ in batch},
                )
            )
    return tasks


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _parallel(row: Mapping[str, Any], answer: Mapping[str, Any]) -> PaperTask:
    """Read a question whose calls are all made at once; of values that will do, the first is taken.

    Pydantic has no fields with leading underscores.
    """
    batch: Batch = tuple(
        (name, {key.lstrip("_"): values[0] for key, values in args.items() if values[0] != ""})
        for call in answer["ground_truth"]
        for name, args in call.items()
    )
    tools = {
        each["name"]: ToolSpec(
            name=each["name"],
            description=each["description"],
            arguments=_arguments(each, batch),
        )
        for each in row["function"]
    }
    return PaperTask(
        task_id=row["id"],
        text=row["question"][0][0]["content"],
        batches=[batch],
        outputs=[[f"{name}: done ({place})" for place, (name, _) in enumerate(batch)]],
        tools=tools,
    )


def _arguments(tool: Mapping[str, Any], batch: Batch) -> tuple[str, ...]:
    """Return a tool's arguments: one question's ground truth gives one that its schema lacks."""
    given = {key: None for name, args in batch if name == tool["name"] for key in args}
    names = (name.lstrip("_") for name in tool["parameters"]["properties"])
    return tuple({**dict.fromkeys(names), **given})
