"""One call of the main model: gathers guesses while it writes, and plans when it has answered."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage

from langchain_spectool._core.assembly import CallAssembler, ClosedCall
from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._core.ports import Clock, Speculator, StreamSpeculator
from langchain_spectool._core.verdicts import IdleReason
from langchain_spectool._runtime.driver import Job
from langchain_spectool._runtime.turn_scope import EarlyRun, TurnScope, turn_numbers
from langchain_spectool.graph.book import Resolved, ToolBook
from langchain_spectool.graph.deltas import StreamStep, truncated, truncated_message
from langchain_spectool.graph.early import Surroundings, early_run
from langchain_spectool.graph.isolation import silence, untraced

Report = Callable[[Event], None]

MOST_GUESSES = 256
"""Most guesses taken from one sample; a source that never ends is cut off there."""


@dataclass(slots=True, kw_only=True)
class _Listener:
    """One stream speculator on one attempt of the main model."""

    source: str
    assembler: CallAssembler
    flights: dict[int, Flight] = field(default_factory=dict[int, Flight])


@dataclass(slots=True, kw_only=True, eq=False)
class QuietTurn:
    """A turn in which nobody can guess and no call can be answered: it is only counted."""

    clock: Clock
    report: Report
    idle: IdleReason
    started_s: float
    started: int = 0

    def commit(self, message: AIMessage | None) -> None:
        """Say that the model answered."""
        cut = message is not None and truncated_message(message)
        self._tell(
            "turn_committed",
            "truncated" if cut else "committed",
            started_s=self.started_s,
            position=0 if message is None else len(message.tool_calls),
        )

    def abandon(self) -> None:
        """Say that it failed or was cancelled."""
        self._tell("turn_ended", "failed")

    def _tell(self, kind: Any, verdict: str, **more: Any) -> None:  # noqa: ANN401 - fields of Event
        number, at_s = next(turn_numbers), self.clock()
        self.report(Event(kind=kind, at_s=at_s, turn=number, verdict=verdict, **more))


@dataclass(slots=True, kw_only=True)
class ModelTurn:
    """Owns a turn from the request to the answer. No method raises."""

    scope: TurnScope
    book: ToolBook
    sampling: Sequence[Speculator]
    listening: Sequence[StreamSpeculator]
    around: Surroundings | None
    shadow: bool
    report: Report
    rebook: Callable[[Mapping[str, Any]], ToolBook] | None = None
    """For a wrapped node: the book of the tools in its model's parameters."""
    on_usage: Callable[[str, tuple[int, int] | None], None] | None = None
    request: TurnRequest | None = None
    """None until a wrapped node calls its model."""
    idle: IdleReason = "no_guesses"
    started: int = 0
    cut: bool = False
    answer: AIMessage | None = None
    _listeners: dict[UUID, list[_Listener] | None] = field(
        default_factory=dict[UUID, list[_Listener] | None]
    )
    """By attempt of the main model; None until it has said something."""
    _seen: Counter[tuple[str, int, str]] = field(default_factory=Counter[tuple[str, int, str]])
    _attempts: int = 0

    # --- guesses

    def start(self, request: TurnRequest, *, sample: bool = True) -> None:
        """Let every speculator guess what the answer to `request` will call."""
        self.request = request
        around = self.around
        if around is None or not sample:
            return
        for speculator in self.sampling:
            for number in range(speculator.samples):
                job = self._sample(speculator, request, number)
                self.scope.sample(job, around.context.copy())

    def _sample(self, speculator: Speculator, request: TurnRequest, number: int) -> Job:
        deadline_s = self.scope.clock() + speculator.timeout_s

        def run() -> None:
            try:
                silence()
                with untraced():
                    for guess in islice(speculator.guess(request, number), MOST_GUESSES):
                        if self._closed(deadline_s):  # a thread cannot be cancelled
                            return
                        self.offer(guess, speculator.name, number)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a speculator's failure is a miss
                self._failed(speculator.name, error)

        async def arun() -> None:
            try:
                silence()
                left = MOST_GUESSES
                with untraced():
                    async for guess in speculator.aguess(request, number):
                        if left == 0 or self._closed(deadline_s):
                            return
                        left -= 1
                        self.offer(guess, speculator.name, number)
                        await asyncio.sleep(0)  # a source that never waits must not hold the loop
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a speculator's failure is a miss
                self._failed(speculator.name, error)

        return Job(
            name=f"spectool:{speculator.name}",
            timeout_s=speculator.timeout_s,
            run=run,
            arun=arun,
            done=_nothing,
        )

    def _closed(self, deadline_s: float) -> bool:
        return self.scope.turn.phase != "open" or self.scope.clock() >= deadline_s

    def offer(self, guess: Guess, source: str, sample: int) -> Flight | None:
        """Judge a guess and start it if it may run."""
        try:
            resolved = self.book.resolve(guess, source, shadow=self.shadow)
            candidate = resolved.candidate
            if candidate.key is not None:
                seen = (source, sample, candidate.key)
                if ordinal := self._seen[seen]:
                    resolved = _again(resolved, ordinal)
                self._seen[seen] += 1
            flight = self.scope.offer(resolved.candidate, lambda: self._early(resolved, guess))
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed(source, error)
            return None
        self.started += flight is not None
        return flight

    def _early(self, resolved: Resolved, guess: Guess) -> EarlyRun:
        if resolved.tool is None or self.around is None:
            msg = "an admitted guess has a tool and a run around it"
            raise RuntimeError(msg)
        return early_run(
            resolved.tool,
            guess.args,
            resolved.candidate.contract,
            resolved.structure,
            self.around,
        )

    # --- what the tap hears

    def model_started(
        self, run_id: UUID, messages: Sequence[BaseMessage], parameters: Mapping[str, Any]
    ) -> None:
        """The main model began, or began again after a retry or on a fallback."""
        try:
            if self.request is None and not self._adopt(messages, parameters):
                return
            self._attempts += 1
            self._listeners[run_id] = None
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("tap", error)

    def _adopt(self, messages: Sequence[BaseMessage], parameters: Mapping[str, Any]) -> bool:
        if self.rebook is None:
            return False
        book = self.rebook(parameters)
        if not book.tools:
            self.idle = "no_tools_bound"
            return False
        self.book = book
        self.idle = "no_guesses"
        self.start(
            TurnRequest(
                messages=messages,
                tools=book.tools,
                declared=book.declared if self.sampling else (),
                on_usage=self.on_usage,
            )
        )
        return True

    def _listen(self, run_id: UUID) -> list[_Listener]:
        request = self.request
        if request is None or run_id not in self._listeners:
            return []
        listeners = self._listeners[run_id]
        if listeners is None:
            listeners = self._listeners[run_id] = [
                _Listener(source=speculator.name, assembler=speculator.listen(request))
                for speculator in self.listening
            ]
        return listeners

    def streamed(self, run_id: UUID, step: StreamStep) -> None:
        """The main model wrote a little more."""
        try:
            if truncated(step.finish_reason):
                self.cut = True
            for listener in self._listen(run_id):
                self._hear(listener, step)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("tap", error)
            self._listeners[run_id] = []  # who missed a step cannot read the next one

    def _hear(self, listener: _Listener, step: StreamStep) -> None:
        news = listener.assembler.feed(
            step.deltas, later_content=step.later_content, ended=step.ended
        )
        for call in news:
            if isinstance(call, ClosedCall):
                if self.cut:
                    continue
                guess = Guess(tool=call.name, args=call.args)
                flight = self.offer(guess, listener.source, self._attempts)
                if flight is not None:
                    listener.flights[call.position] = flight
            elif flight := listener.flights.pop(call.position, None):
                self.scope.take_back(flight)

    def model_ended(self, run_id: UUID, message: AIMessage | None) -> None:
        """The main model answered; what is done with the answer is the node's affair."""
        if run_id in self._listeners:
            del self._listeners[run_id]
            self.answer = message

    def model_failed(self, run_id: UUID) -> None:
        """An attempt failed; its guesses stay until the turn's answer commits."""
        self._listeners.pop(run_id, None)

    # --- the answer

    def commit(self, message: AIMessage | None) -> None:
        """Plan for the calls of `message`."""
        try:
            calls = () if message is None else message.tool_calls
            cut = message is not None and truncated_message(message)
            keyed = self.started > 0 or self.book.shares
            self.scope.commit(self.book.committed(calls, keyed=keyed), truncated=cut)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("commit", error)
            self.abandon()
        self._let_go()

    def abandon(self) -> None:
        """Drop everything: the model failed or was cancelled."""
        try:
            self.scope.abandon()
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("abandon", error)
        self._let_go()

    def _let_go(self) -> None:
        # The run's end is seen by who still holds its control: a kept config would hold it.
        self.around = None
        self._listeners.clear()

    def _failed(self, what: str, error: BaseException) -> None:
        self.report(
            Event(
                kind="error",
                at_s=self.scope.clock(),
                turn=self.scope.turn.number,
                verdict=type(error).__name__,
                source=what,
                detail=str(error),
            )
        )


def _again(resolved: Resolved, ordinal: int) -> Resolved:
    return replace(resolved, candidate=replace(resolved.candidate, ordinal=ordinal))


def _nothing(*_: object) -> None:
    """Samples end by themselves; their guesses are all that counts."""
