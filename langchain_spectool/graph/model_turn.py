"""One call of the main model: gathers guesses while it writes, and plans when it has answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.tool import ToolCall

from langchain_spectool._core.assembly import CallAssembler, ClosedCall
from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import CHAIN, Guess, TurnRequest
from langchain_spectool._core.ports import Speculator, payer_of
from langchain_spectool._core.verdicts import IdleReason
from langchain_spectool._runtime.run_watch import WatchedRun
from langchain_spectool._runtime.turn_scope import EarlyRun, TurnScope
from langchain_spectool.graph.book import Resolved, ToolBook
from langchain_spectool.graph.deltas import StreamStep, truncated, truncated_message
from langchain_spectool.graph.early import Surroundings, early_run
from langchain_spectool.graph.following import after
from langchain_spectool.graph.forks import Forks
from langchain_spectool.graph.quiet_turn import Rebook, Report
from langchain_spectool.graph.sampling import Sample, fork_of, sample_of
from langchain_spectool.graph.team import Team, depth_of, is_free, samples_alike, warm_up_of


@dataclass(slots=True, kw_only=True)
class _Listener:
    """One stream speculator on one attempt of the main model."""

    source: str
    assembler: CallAssembler
    flights: dict[int, Flight] = field(default_factory=dict[int, Flight])


@dataclass(slots=True, kw_only=True)
class ModelTurn:
    """Owns a turn from the request to the answer. No method raises."""

    scope: TurnScope
    book: ToolBook
    team: Team
    around: Surroundings | None
    shadow: bool
    report: Report
    rebook: Rebook | None = None
    """For a wrapped node, whose model is yet to be called."""
    run: WatchedRun | None = None
    tenant: str | None = None
    thread: str = ""
    """What tells its thread, or its run without one, from others."""
    request: TurnRequest | None = None
    """None until a wrapped node calls its model."""
    idle: IdleReason = "no_guesses"
    started: int = 0
    said: bool = False
    """Whether somebody guessed a call that could be committed, whether it ran or not."""
    cut: bool = False
    answer: AIMessage | None = None
    _listeners: dict[UUID, list[_Listener] | None] = field(
        default_factory=dict[UUID, list[_Listener] | None]
    )
    """By attempt of the main model; None until it has said something."""
    _seen: dict[tuple[str, int, Flight | None, str], int] = field(
        default_factory=dict[tuple[str, int, Flight | None, str], int]
    )
    _attempts: int = 0
    _forks: Forks | None = None

    @property
    def called(self) -> bool:
        """Whether the model has been called with tools of ours."""
        return self.request is not None

    # --- guesses

    def start(self, request: TurnRequest, *, sample: bool = True) -> None:
        """Let every speculator guess what the answer to `request` will call."""
        self.request = request = replace(request, on_usage=self.used)
        if not sample:
            return
        self.scope.on_landed = self._follow if self.team.chains else None
        self._forks = Forks.of(self.team.forking) if self.team.forking else None
        for speculator in self.team.sampling:
            try:
                self._ask(speculator, request, None)
            except Exception as error:  # noqa: BLE001 - an odd source costs its own guesses only
                self._failed("ask", error)
        if self.team.chains:
            self.scope.go_on()

    def _ask(self, speculator: Speculator, request: TurnRequest, parent: Flight | None) -> None:
        """Let a source guess, on what it may spend; its samples end with the turn."""
        alike = samples_alike(speculator)
        most = 1 if alike else speculator.samples
        if parent is None:
            most = self.scope.purse.economy.samples(
                speculator.name,
                speculator.samples,
                alike=alike,
                free=is_free(speculator),
                tenant=self.tenant,
            )
        for number in range(most):
            sample, payer = sample_of(speculator, request, number), payer_of(speculator, number)
            self._start(sample, number, warm_up_of(speculator), parent, payer)

    def _start(
        self, sample: Sample, number: int, warm_up: int, parent: Flight | None, payer: str
    ) -> None:
        around = self.around
        if around is None or not self._pays(payer):
            return
        job = sample.job(
            lambda guess: self.offer(guess, sample.source, number, warm_up, parent, sample.request),
            is_open=lambda: self.scope.turn.phase == "open",
            failed=self._failed,
            clock=self.scope.clock,
        )
        self.scope.sample(job, around.context.copy())

    def _pays(self, source: str) -> bool:
        """Reserve what a request of `source` costs; say so, and do not send it, if it may not."""
        model = self.team.models.get(source)
        now_s = self.scope.clock()
        if model is None or self.scope.purse.asks(source, model, now_s):
            return True
        turn, verdict = self.scope.turn.number, "over_budget"
        self.report(Event(kind="guess", at_s=now_s, turn=turn, verdict=verdict, source=source))
        return False

    def used(self, source: str, usage: tuple[int, int] | None) -> None:
        """Book what a source's request to its model used."""
        self.scope.purse.used(source, self.team.models.get(source, source), usage)
        turn, at_s = self.scope.turn.number, self.scope.clock()
        self.report(Event(kind="usage", at_s=at_s, turn=turn, source=source, usage=usage))

    def _follow(self, flight: Flight, outcome: Outcome) -> None:
        """Guess the call after `flight` on its real result, where a chain goes that far."""
        try:
            request = self.request
            for speculator in self.team.sampling:
                if request is not None and flight.links + 1 < depth_of(speculator):
                    self._ask(speculator, after(request, flight, outcome), flight)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("chain", error)

    def offer(  # noqa: PLR0913, PLR0917 - all that is known of a guess
        self,
        guess: Guess,
        source: str,
        sample: int,
        warm_up: int = 0,
        parent: Flight | None = None,
        request: TurnRequest | None = None,
    ) -> Flight | None:
        """Judge a guess and start it if it may run."""
        try:
            source = guess.source or source
            if parent is not None:
                source = CHAIN
                guess = replace(guess, confidence=guess.confidence * parent.confidence)
            request = request or self.request
            messages = () if request is None else request.messages
            resolved = self.book.resolve(guess, source, shadow=self.shadow, messages=messages)
            resolved = self._placed(resolved, sample, warm_up, parent)
            flight = self.scope.offer(resolved.candidate, lambda: self._early(resolved, guess))
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed(source, error)
            return None
        self.started += flight is not None
        return flight

    def _placed(
        self, resolved: Resolved, sample: int, warm_up: int, parent: Flight | None
    ) -> Resolved:
        """Add what only the turn knows: whose guess it is, and how many equal ones came before."""
        candidate, ordinal = resolved.candidate, 0
        if candidate.key is not None:
            seen = (candidate.source, sample, parent, candidate.key)
            ordinal = self._seen.get(seen, 0)
            self._seen[seen] = ordinal + 1
            self.said = True
        return replace(
            resolved,
            candidate=replace(
                candidate, sample=sample, ordinal=ordinal, warm_up=warm_up, parent=parent
            ),
        )

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
        if self.run is not None:
            self.run.turns_at_s.append(self.scope.clock())
        self.start(
            TurnRequest(
                messages=messages,
                tools=book.tools,
                declared=book.declared if self.team.sampling else (),
                tenant=self.tenant,
                run=self.thread,
            ),
            sample=bool(self.team.sampling and book.declared),
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
                for speculator in self.team.listening
            ]
        return listeners

    def streamed(self, run_id: UUID, step: StreamStep) -> None:
        """The main model wrote a little more."""
        try:
            if truncated(step.finish_reason):
                self.cut = True
            for listener in self._listen(run_id):
                self._hear(listener, step)
            self._fork(run_id, step)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("tap", error)
            self._listeners[run_id] = []  # who missed a step cannot read the next one

    def _fork(self, run_id: UUID, step: StreamStep) -> None:
        """Ask a source again where the model has written enough text, and no call yet."""
        if self._forks is None or self.request is None or run_id not in self._listeners:
            return
        for forker, partial in self._forks.heard(run_id, step):
            for number in range(0 if self._is_off() else forker.samples):
                sample = fork_of(forker, self.request, partial, number)
                place = forker.samples + number
                self._start(sample, place, warm_up_of(forker), None, forker.name)

    def _is_off(self) -> bool:
        return self.scope.purse.economy.is_off(self.tenant)

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
            keyed = self.said or self.book.shares or self.team.chains
            self.scope.commit(self.book.committed(calls, keyed=keyed), truncated=cut)
            if self.idle == "no_guesses" and not self.started and self._is_off():
                self.idle = "switched_off"
            if not cut:
                self._teach(calls)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._failed("commit", error)
            self.abandon()
        self._let_go()

    def _teach(self, calls: Sequence[ToolCall]) -> None:
        request = self.request
        if request is None or not request.declared:
            return
        for learner in self.team.learning:
            try:
                learner.learn(request, calls)
            except Exception as error:  # noqa: BLE001 - the plan stands, and the others learn
                self._failed("learn", error)

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
