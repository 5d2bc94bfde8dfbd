"""Asks a speculator about recorded runs, turn by turn, and scores it. No tool runs.

Every message of a model is a turn: the speculator is shown what came before it, with the read-only
tools declared, and its guesses are compared with the calls in the message. Turns that call
anything are asked about once more with all tools declared, for the figures under `all`.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol, TypeGuard

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.tools import BaseTool

from langchain_spectool._core.encoding import encode
from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._core.keys import call_key
from langchain_spectool._core.ports import Learner, Speculator
from langchain_spectool.bench.scoring import (
    Standing,
    TurnScore,
    calibration_error,
    gates,
    hits,
    percentile,
)
from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces.trajectory import Trajectory

TRAIN_SHARE = 0.7
"""Share of the tasks whose runs are learned from before the others are guessed."""


class Fitting(Protocol):
    """A speculator that can learn from recorded runs."""

    def fit(self, trajectories: Iterable[Trajectory]) -> object:
        """Learn from all of them."""
        ...


@dataclass(slots=True, kw_only=True)
class Replay:
    """What came of asking a speculator about recorded runs."""

    turns: list[TurnScore] = field(default_factory=list[TurnScore])
    seconds: list[float] = field(default_factory=list[float])
    """What each turn's first prediction took."""
    trajectories: int = 0
    errors: int = 0
    """Predictions that were broken off by an error; their guesses before it count."""
    fit_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the figures under the names `--json` prints."""
        return {
            "read_only": hits(turn.read_only for turn in self.turns),
            "all": hits(turn.every for turn in self.turns),
            "gates": gates(self.turns),
            "ece": calibration_error(self.turns),
            "predict_us": {
                name: _micro(percentile(self.seconds, share))
                for name, share in (("p50", 0.5), ("p99", 0.99))
            },
            "fit_s": self.fit_s,
            "trajectories": self.trajectories,
            "turns": len(self.turns),
            "errors": self.errors,
        }


def replay(
    speculator: Speculator,
    trajectories: Iterable[Trajectory],
    *,
    learning: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> Replay:
    """Ask `speculator` about every turn of `trajectories`.

    Args:
        speculator: Its samples are asked one after the other, and equal guesses count once, where
            the first of them stood.
        trajectories: Recorded runs, in the order in which they are replayed.
        learning: Tell it after each turn what was called, if it is a `Learner`.
        advance: Called after each run.

    Raises:
        SpectoolError: It yields something other than guesses.
    """
    result = Replay()
    for trajectory in trajectories:
        run = _Run(trajectory, speculator, result)
        for messages, calls in _turns(trajectory):
            request = run.ask(messages, calls)
            if learning and isinstance(speculator, Learner):
                speculator.learn(request, calls)
        result.trajectories += 1
        advance()
    return result


def split_by_task(
    trajectories: Sequence[Trajectory], seed: int
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Split runs into those to learn from and those to guess, never one task on both sides."""
    tasks = sorted({each.task for each in trajectories})
    random.Random(seed).shuffle(tasks)  # noqa: S311 - a fair split, no secret
    train = {*tasks[: int(len(tasks) * TRAIN_SHARE)]}
    return (
        [each for each in trajectories if each.task in train],
        [each for each in trajectories if each.task not in train],
    )


def fit(speculator: object, trajectories: Iterable[Trajectory]) -> float:
    """Let `speculator` learn from recorded runs, if it can; return the seconds that took."""
    if not _can_fit(speculator):
        return 0.0
    began_s = time.perf_counter()
    speculator.fit(trajectories)
    return time.perf_counter() - began_s


def _can_fit(speculator: object) -> TypeGuard[Fitting]:
    return callable(getattr(speculator, "fit", None))


def _turns(trajectory: Trajectory) -> Iterator[tuple[list[BaseMessage], list[ToolCall]]]:
    messages = [*trajectory.messages]
    for place, message in enumerate(messages):
        if isinstance(message, AIMessage):
            yield messages[:place], message.tool_calls


class _Run:
    """Asks about the turns of one recorded run."""

    def __init__(self, trajectory: Trajectory, speculator: Speculator, result: Replay) -> None:
        self._trajectory = trajectory
        self._speculator = speculator
        self._result = result
        self._tools = {tool.name: tool for tool in trajectory.tools}
        self._readers = [tool for tool in trajectory.tools if tool.name in trajectory.read_only]

    def ask(self, messages: Sequence[BaseMessage], calls: Sequence[ToolCall]) -> TurnRequest:
        """Ask about one turn, and return how it was asked."""
        request = self._request(messages, self._readers)
        guesses, seconds = self._guesses(request)
        read_only = self._trajectory.read_only
        guesses = {key: guess for key, guess in guesses.items() if guess.tool in read_only}
        called = [(self._key(call["name"], call["args"]), call["name"]) for call in calls]
        everything = (
            self._guesses(self._request(messages, self._trajectory.tools))[0] if calls else {}
        )
        self._result.seconds.append(seconds)
        self._result.turns.append(
            TurnScore(
                confidences=tuple(guess.confidence for guess in guesses.values()),
                right=next(iter(guesses), None) in {key for key, _ in called},
                read_only=_standing(guesses, [each for each in called if each[1] in read_only]),
                every=_standing(everything, called),
            )
        )
        return request

    def _request(
        self, messages: Sequence[BaseMessage], declared: Sequence[BaseTool]
    ) -> TurnRequest:
        return TurnRequest(
            messages=messages,
            tools=self._trajectory.tools,
            declared=declared,
            tenant=self._trajectory.tenant,
        )

    def _guesses(self, request: TurnRequest) -> tuple[dict[str, Guess], float]:
        """Return the guesses by call, in their order, and the seconds they took."""
        found: list[Guess] = []
        samples = range(self._speculator.samples)
        began_s = time.perf_counter()
        try:
            found.extend(chain.from_iterable(self._speculator.guess(request, n) for n in samples))
        except Exception:  # noqa: BLE001 - as in an agent: it costs the guesses that were to come
            self._result.errors += 1
        seconds = time.perf_counter() - began_s
        guesses: dict[str, Guess] = {}
        for guess in found:
            _check(guess)
            guesses.setdefault(self._key(guess.tool, guess.args), guess)
        return guesses, seconds

    def _key(self, name: str, args: Mapping[str, Any]) -> str:
        tool = self._tools.get(name)
        plain = {**args}
        key = None if tool is None else call_key(tool, plain)
        return key or encode([name, plain]) or repr([name, plain])


def _standing(guesses: Mapping[str, Guess], called: Sequence[tuple[str, str]]) -> Standing | None:
    if not called:
        return None
    keys, names = {key for key, _ in called}, {name for _, name in called}
    first = next(iter(guesses.values()), None)
    return Standing(
        place=next((place for place, key in enumerate(guesses) if key in keys), None),
        named=first is not None and first.tool in names,
    )


def _check(guess: object) -> None:
    if not isinstance(guess, Guess):
        msg = f"`guess` yields `Guess` objects, got {guess!r:.100}"
        raise SpectoolError(msg)


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e6 * seconds, 1)
