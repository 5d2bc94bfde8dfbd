"""The sources that `bench sources` compares, each made afresh for one arm."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, get_buffer_string
from langchain_core.messages.ai import UsageMetadata

from langchain_spectool import testing
from langchain_spectool._core.guess import Guess
from langchain_spectool._core.policy import Policy
from langchain_spectool.bench.gold import (
    Batch,
    Call,
    DataSet,
    GoldTask,
    message_of,
    reads_of,
    transcript,
)
from langchain_spectool.bench.gold_agent import PACES, GoldModel, langchain_tool, turn_of
from langchain_spectool.graph.speculation import Speculation
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.speculators.early_dispatch import EarlyDispatch
from langchain_spectool.speculators.ensemble import Ensemble
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.speculators.rules import Rules

DRAFT_PACE = PACES["gemini-2.5-flash"]
DRAFT_USD_PER_MILLION = (0.10, 0.40)
"""Assumed prices of the simulated draft's input and output tokens."""
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What a source is made for."""

    data_set: DataSet
    current: Callable[[], GoldTask]
    """The task being played."""
    seed: int
    accuracy: float
    """Chance that the simulated draft is right about a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """A source under a name, and what it is."""

    about: str
    make: Callable[[Arm], Speculation]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTrajectory:
    """A finished conversation to learn from."""

    messages: Sequence[BaseMessage]
    tools: Sequence[Any]
    read_only: frozenset[str]
    run: str
    tenant: str | None = None


def _off(_: Arm) -> Speculation:
    return Speculation(policy=Policy(mode="off"))


def _early_dispatch(_: Arm) -> Speculation:
    return Speculation(speculators=[EarlyDispatch()])


def _patterns(_: Arm) -> Speculation:
    return Speculation(speculators=[Patterns()])


def _patterns_fitted(arm: Arm) -> Speculation:
    patterns = Patterns()
    patterns.fit([trajectory(task) for task in arm.data_set.train])
    return Speculation(speculators=[patterns])


def _draft(arm: Arm) -> Speculation:
    draft = _SimulatedDraft(arm)
    model = GoldModel(script=draft.answer, model_name="simulated draft")
    return Speculation(speculators=[DraftModel(model)])


def _ensemble(_: Arm) -> Speculation:
    return Speculation(speculators=[Ensemble(Patterns(), EarlyDispatch())])


def _oracle(arm: Arm) -> Speculation:
    def guesses(messages: Sequence[BaseMessage]) -> Iterator[Guess]:
        task = arm.current()
        for name, args in reads_of(task.answers[turn_of(messages)], task.environment()):
            yield Guess(tool=name, args=args)

    return Speculation(speculators=[Rules(guesses)])


SOURCES: Mapping[str, SourceKind] = {
    "off": SourceKind(about="nothing runs early: what the others are compared with", make=_off),
    "early_dispatch": SourceKind(
        about="calls of a batch, as the model's stream closes them", make=_early_dispatch
    ),
    "patterns": SourceKind(
        about="learned online from nothing, test task after test task", make=_patterns
    ),
    "patterns_fitted": SourceKind(
        about="fitted on the train tasks, then learning online", make=_patterns_fitted
    ),
    "draft": SourceKind(
        about="SIMULATED: a script, right about a turn with a stated chance", make=_draft
    ),
    "ensemble": SourceKind(
        about="patterns from nothing and early dispatch, merged: the default sources",
        make=_ensemble,
    ),
    "oracle": SourceKind(
        about="all reads of a turn as the turn begins: the upper bound of a guess", make=_oracle
    ),
}


def trajectory(task: GoldTask) -> GoldTrajectory:
    """Return a task's gold conversation for `Patterns.fit`."""
    tools = task.environment()
    return GoldTrajectory(
        messages=transcript(task),
        tools=[langchain_tool(each, latency_s=0) for each in tools.values()],
        read_only=frozenset(name for name, each in tools.items() if each.read_only),
        run=task.task_id,
    )


class _SimulatedDraft:
    """A script that knows the gold calls and says them, or a wrong one, by the throw of a die.

    It stands for a draft model of stated accuracy and pace; no model is asked.
    """

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        tasks = (*arm.data_set.train, *arm.data_set.test)
        # Any read of the data set can be a wrong guess, if the agent has its tool.
        self._reads: list[Call] = [
            call
            for task in tasks
            for batch in task.answers
            for call in reads_of(batch, task.environment())
        ]

    def answer(self, messages: list[BaseMessage]) -> testing.Turn:
        turn = turn_of(messages)
        key = f"draft:{self._arm.seed}:{self._arm.current().task_id}:{turn}"
        message = message_of(self._batch(turn, random.Random(key)), turn)  # noqa: S311 - a die, no secret
        message.usage_metadata = _usage(messages, message)
        return testing.Turn(message=message, generation_s=DRAFT_PACE.draw(f"pace:{key}"))

    def _batch(self, turn: int, chance: random.Random) -> Batch:
        task = self._arm.current()
        tools = task.environment()
        gold = reads_of(task.answers[turn], tools)
        if chance.random() < self._arm.accuracy:
            return gold
        wrong = [call for call in self._reads if call[0] in tools and call not in gold]
        return (chance.choice(wrong),) if wrong else ()


def _usage(messages: Sequence[BaseMessage], answer: AIMessage) -> UsageMetadata:
    """Estimate the tokens of a request and its answer from their characters."""
    asked = len(get_buffer_string(messages)) // _CHARS_PER_TOKEN
    said = len(str(answer.tool_calls)) // _CHARS_PER_TOKEN
    return UsageMetadata(input_tokens=asked, output_tokens=said, total_tokens=asked + said)
