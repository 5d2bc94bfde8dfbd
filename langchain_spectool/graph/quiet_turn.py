"""One call of the main model in which nothing is guessed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage

from langchain_spectool._core.events import Event
from langchain_spectool._core.ports import Clock
from langchain_spectool._core.verdicts import IdleReason
from langchain_spectool._runtime.run_watch import WatchedRun
from langchain_spectool._runtime.turn_scope import turn_numbers
from langchain_spectool.graph.book import ToolBook
from langchain_spectool.graph.deltas import truncated_message

Report = Callable[[Event], None]
Rebook = Callable[[Mapping[str, Any]], ToolBook]
"""Returns the book of the tools in a model's parameters."""


@dataclass(slots=True, kw_only=True, eq=False)
class QuietTurn:
    """A turn in which nobody can guess and no call can be answered: it is only counted."""

    clock: Clock
    report: Report
    idle: IdleReason
    started_s: float
    book: ToolBook
    run_name: str
    rebook: Rebook | None = None
    """For a wrapped node, which may call no model."""
    called: bool = True
    """Whether the model has been called with tools of ours."""
    run: WatchedRun | None = None
    started: int = 0

    def model_started(
        self, _id: UUID, _messages: Sequence[BaseMessage], parameters: Mapping[str, Any]
    ) -> None:
        """Take note of the first call of a wrapped node's model."""
        try:
            if self.called or self.rebook is None or not (book := self.rebook(parameters)).tools:
                return
        except Exception:  # noqa: BLE001 - our failure is a turn that is not counted
            return
        self.called, self.book, self.started_s = True, book, self.clock()
        if self.run is not None:
            self.run.turns_at_s.append(self.started_s)

    def commit(self, message: AIMessage | None) -> None:
        """Say that the model answered."""
        cut = message is not None and truncated_message(message)
        tools = () if message is None else self.book.names(message.tool_calls)
        self._tell(
            "turn_committed",
            "truncated" if cut else "committed",
            started_s=self.started_s,
            position=len(tools),
            tools=tools,
        )

    def abandon(self) -> None:
        """Say that it failed or was cancelled."""
        self._tell("turn_ended", "failed")

    def _tell(self, kind: Any, verdict: str, **more: Any) -> None:  # noqa: ANN401 - fields of Event
        number, at_s = next(turn_numbers), self.clock()
        run = self.run_name
        self.report(Event(kind=kind, at_s=at_s, turn=number, verdict=verdict, run=run, **more))
