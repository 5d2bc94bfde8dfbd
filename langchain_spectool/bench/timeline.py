"""When what happened in one run of an agent: turns, tool calls, and what ran early."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from langchain_spectool._core.events import Event
from langchain_spectool._core.verdicts import SERVED

Span = tuple[float, float]
"""Seconds on the run's clock at which something began and ended."""


@dataclass(slots=True, kw_only=True)
class CallTimes:
    """A call of the model's answer."""

    tool: str
    began_s: float | None = None
    ended_s: float | None = None
    verdict: str = ""
    """How it was answered; empty where no guess was made in its turn."""
    early: Span | None = None
    """The early run that answered it."""


@dataclass(slots=True, kw_only=True)
class TurnTimes:
    """One turn of the main model and the calls it committed."""

    began_s: float
    answered_s: float | None = None
    calls: dict[str, CallTimes] = field(default_factory=dict[str, CallTimes])
    """By the id of the call, in the order of the answer."""
    wasted: list[tuple[str, Span]] = field(default_factory=list[tuple[str, Span]])
    """Early runs that answered nothing, with their tools."""

    @property
    def ended_s(self) -> float:
        """When the last of its calls had ended, or the answer came if it has none."""
        answered_s = self.began_s if self.answered_s is None else self.answered_s
        return max([answered_s, *(call.ended_s or answered_s for call in self.calls.values())])


class Timeline(BaseCallbackHandler):
    """Records one run, as its callback handler and as an observer of its speculation.

    Both tell times on `time.monotonic`, which is also the clock of asyncio's own loops.
    """

    run_inline = True
    """Told on the spot: a thread of its own would come late."""

    def __init__(self, on_step: Callable[[str], None]) -> None:
        """Start empty; `on_step` is told in words what the agent begins to do."""
        self.turns: list[TurnTimes] = []
        self._events: list[Event] = []
        self._tool_runs: dict[object, CallTimes] = {}
        self._on_step = on_step

    # --- the run, as its callbacks tell it

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Begin a turn."""
        self.turns.append(TurnTimes(began_s=time.monotonic()))
        self._on_step(f"turn {len(self.turns)}: the model writes")

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Note the calls of the answer."""
        turn = self.turns[-1]
        turn.answered_s = time.monotonic()
        turn.calls = {
            call["id"] or "": CallTimes(tool=call["name"])
            for message in _answers(response)
            for call in message.tool_calls
        }

    def on_tool_start(
        self, *_: Any, run_id: object, tool_call_id: str | None = None, **__: Any
    ) -> None:
        """Begin a committed call; early runs are not told to callbacks."""
        call = self.turns[-1].calls.get(tool_call_id or "")
        if call is not None:
            call.began_s = time.monotonic()
            self._tool_runs[run_id] = call
            self._on_step(f"turn {len(self.turns)}: {call.tool}")

    def on_tool_end(self, *_: Any, run_id: object, **__: Any) -> None:
        """End it."""
        if call := self._tool_runs.pop(run_id, None):
            call.ended_s = time.monotonic()

    def on_tool_error(self, *_: Any, run_id: object, **__: Any) -> None:
        """End it."""
        self.on_tool_end(run_id=run_id)

    # --- its speculation, as events tell it

    def on_event(self, event: Event) -> None:
        """Keep one event until the run is over."""
        self._events.append(event)

    def finished(self) -> list[TurnTimes]:
        """Return the turns, with the early runs among their calls."""
        numbers = [event.turn for event in self._events if event.kind == "turn_committed"]
        turns = dict(zip(numbers, self.turns, strict=False))
        for event in self._events:
            if (turn := turns.get(event.turn)) is not None:
                _add(event, turn)
        return self.turns


def _add(event: Event, turn: TurnTimes) -> None:
    span = None if event.started_s is None else (event.started_s, event.started_s + event.spent_s)
    if event.kind == "claim" and event.position is not None:
        call = [*turn.calls.values()][event.position]
        call.verdict = event.verdict
        call.early = span if event.verdict in SERVED else None
    elif event.kind == "discarded" and span is not None:
        turn.wasted.append((event.tool, span))


def _answers(response: LLMResult) -> Iterator[AIMessage]:
    for generations in response.generations:
        for generation in generations:
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                yield generation.message
