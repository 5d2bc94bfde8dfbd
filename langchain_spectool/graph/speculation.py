"""`Speculation`: one set of speculators, limits and observers, and the places it plugs into."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, overload

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langchain_spectool._core.events import Event
from langchain_spectool._core.guess import TurnRequest
from langchain_spectool._core.policy import Mode, Policy, lowest, mode_of
from langchain_spectool._core.ports import Observer
from langchain_spectool._core.verdicts import IdleReason
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.claims import BookedCall
from langchain_spectool._runtime.driver import AsyncDriver, Driver, ThreadDriver
from langchain_spectool._runtime.turn_scope import Airborne, Place, TurnScope
from langchain_spectool.graph.answers import answer_in
from langchain_spectool.graph.arguments import Source, by_kind, held_back, server_names
from langchain_spectool.graph.book import ToolBook, judge_of
from langchain_spectool.graph.committed import CommittedCallScope
from langchain_spectool.graph.declare import Explanation, contract_of, explain
from langchain_spectool.graph.early import Surroundings
from langchain_spectool.graph.isolation import RUNTIME, detached_context
from langchain_spectool.graph.model_turn import ModelTurn, QuietTurn
from langchain_spectool.graph.place import current_config, place_in
from langchain_spectool.graph.tap import ForcingTap, Tap, bound_names, caller_streams
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.speculators.early_dispatch import EarlyDispatch
from langchain_spectool.telemetry.broadcast import Broadcast
from langchain_spectool.telemetry.report import Report, Tally


class Speculation:
    """Runs an agent's read-only tools before its model has finished asking for them.

    Args:
        tools: The agent's tools, for `model_node`, `tool_node` and `explain`. A middleware
            takes them from each request instead.
        draft: A cheap chat model, or `"provider:name"`, that guesses beside the main model;
            short for a `DraftModel` in front of the other speculators.
        speculators: Where guesses come from; `EarlyDispatch()` when not given.
        policy: The operator's limits.
        gated: Tools that never run early: names, or approval middleware of the same agent.
        trust_mcp: MCP servers whose read-only hints count.
        observers: Told every event.

    Raises:
        ValueError: A gate of an unknown kind, or `trust_mcp` as a single string.
    """

    def __init__(  # noqa: PLR0913 - every part has a default
        self,
        tools: Iterable[BaseTool] = (),
        *,
        draft: BaseChatModel | str | None = None,
        speculators: Sequence[Source] | None = None,
        policy: Policy | None = None,
        gated: Sequence[object] = (),
        trust_mcp: Collection[str] = (),
        observers: Sequence[Observer] = (),
    ) -> None:
        """Start nothing yet."""
        self.tools = [*tools]
        given: Sequence[Source] = (EarlyDispatch(),) if speculators is None else speculators
        self.speculators: tuple[Source, ...] = (
            (*given,) if draft is None else (DraftModel(draft), *given)
        )
        self.policy = policy or Policy()
        self.gated = held_back(gated)
        self.trusted = server_names(trust_mcp)
        self._tally = Tally()
        self.events = Broadcast((self._tally, *observers))
        self._airborne = Airborne()
        self._books: dict[bool, ToolBook] = {}
        self._last_bound: tuple[object, Sequence[BaseTool]] = (None, ())
        self._sampling, self._listening = by_kind(self.speculators)
        self._force = any(source.force for source in self._listening)

    # --- what users ask

    def report(self) -> Report:
        """Return hits, misses, waste and hidden seconds so far, per tool and in all."""
        return self._tally.report()

    def explain(self, tools: Iterable[object] | None = None) -> list[Explanation]:
        """Say for each tool whether it can run early, and why not."""
        asked = self.tools if tools is None else tools
        return explain(asked, policy=self.policy, gated=self.gated, trust_mcp=self.trusted)

    def invalidate(self, tags: Collection[str] | None = None) -> None:
        """Drop every early result that read one of `tags` (None: all of them).

        For writes made outside tool calls. Affects all runs in progress in this process.

        Raises:
            ValueError: `tags` is a single string.
        """
        if isinstance(tags, str):
            msg = f"`tags` must be a collection of tags, got {tags!r}: write [{tags!r}]"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
        runs.invalidate(None if tags is None else frozenset(tags))

    def mode(self, config: Mapping[str, Any]) -> Mode:
        """Return what may be done in the run of `config`: the least of policy, run and process."""
        asked = cast("Mapping[str, Any]", config.get("configurable") or {}).get("speculation")
        mode = self.policy.mode
        for value in (os.environ.get("SPECTOOL_MODE"), asked):
            if value is False:
                mode = "off"
            elif value not in (None, ""):
                mode = lowest(mode, self._checked(value))
        return mode

    def _checked(self, value: object) -> Mode:
        try:
            return mode_of(value)
        except ValueError as error:
            self.events.warn_once(f"{error}; speculation is off")
            return "off"

    # --- the model's turn

    @overload
    def begin_turn(
        self, request: None, *, loop: asyncio.AbstractEventLoop | None
    ) -> ModelTurn | None: ...
    @overload
    def begin_turn(
        self,
        request: Callable[[], TurnRequest],
        gates: Callable[[], Collection[str]],
        *,
        model: object,
        loop: asyncio.AbstractEventLoop | None,
    ) -> ModelTurn | QuietTurn | None: ...
    def begin_turn(
        self,
        request: Callable[[], TurnRequest] | None,
        gates: Callable[[], Collection[str]] = frozenset,
        *,
        model: object = None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> ModelTurn | QuietTurn | None:
        """Begin a turn and let the speculators guess; None where nothing may be speculated.

        Never raises. Without a `request` the turn waits for the node's own model call.
        """
        try:
            return self._begin(request, gates, model, loop=loop)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("open", error)
            return None

    def _begin(
        self,
        request: Callable[[], TurnRequest] | None,
        gates: Callable[[], Collection[str]],
        model: object,
        *,
        loop: asyncio.AbstractEventLoop | None,
    ) -> ModelTurn | QuietTurn | None:
        config = current_config()
        mode = self.mode(config)
        place = place_in(config, self)
        if mode == "off" or place is None:
            self._tally.idle("off" if mode == "off" else "no_run_control")
            return None
        driver: Driver = ThreadDriver() if loop is None else AsyncDriver(loop)
        emit = self.events.emit
        asked = None if request is None else request()
        gated = self.gated.union(gates())

        def book(tools: Sequence[object]) -> ToolBook:
            return self._book(tools, gated, blocking=loop is None)

        if asked is not None and self._is_quiet(model, book(asked.tools), place):
            clock = driver.clock
            return QuietTurn(
                clock=clock, report=self.events.emit, idle=self._deaf, started_s=clock()
            )
        turn = ModelTurn(
            scope=TurnScope(
                place,
                driver,
                self.policy,
                self.events.emit,
                self._airborne,
                shadow=mode == "shadow",
            ),
            book=book(self.tools if asked is None else asked.tools),
            sampling=self._sampling,
            listening=self._listening,
            around=Surroundings(
                config=config,
                runtime=config["configurable"][RUNTIME],
                context=detached_context(),
            ),
            shadow=mode == "shadow",
            report=emit,
            rebook=lambda parameters: book(self._bound(parameters)),
            on_usage=self._used,
        )
        if asked is not None:
            self._start(turn, asked)
        return turn

    def _book(self, tools: Sequence[object], gated: frozenset[str], *, blocking: bool) -> ToolBook:
        """Return the book of a request's tools; most requests have those of the one before."""
        book = self._books.get(blocking)
        if book is None or not book.fits(tools, gated):
            judge = judge_of(
                tools, external=self.policy.allow_external, gated=gated, trusted=self.trusted
            )
            book = self._books[blocking] = ToolBook(tools, judge, blocking=blocking)
        return book

    def _bound(self, parameters: Mapping[str, Any]) -> Sequence[BaseTool]:
        """Return which of our tools a model is called with: most calls have the list before."""
        given: object = parameters.get("tools")
        known, bound = self._last_bound
        if given is None or given is not known:
            names = bound_names(parameters)
            bound = [tool for tool in self.tools if tool.name in names]
            self._last_bound = given, bound
        return bound

    def _is_quiet(self, model: object, book: ToolBook, place: Place) -> bool:
        """Say whether nobody can guess in this turn, and nothing known can answer its calls."""
        return not (
            self._sampling
            or self._hears(model)
            or book.shares
            or runs.find(place.control) is not None
        )

    def _hears(self, model: object) -> bool:
        return bool(self._listening) and (self._force or caller_streams(model))

    @property
    def _deaf(self) -> IdleReason:
        """Why nobody guesses in a turn without samples that is not listened to."""
        return "not_streaming" if self._listening else "no_speculators"

    def _start(self, turn: ModelTurn, request: TurnRequest) -> None:
        declared = turn.book.declared if self._sampling else ()
        if self._sampling and not declared:
            turn.idle = "no_contracts" if turn.book.tools else "no_tools_bound"
        turn.start(replace(request, declared=declared, on_usage=self._used), sample=bool(declared))

    def _used(self, source: str, usage: tuple[int, int] | None) -> None:
        self.events.emit(Event(kind="usage", at_s=0.0, source=source, usage=usage))

    def answer_of(self, output: object) -> AIMessage | None:
        """Return the model's answer in what a node returned. Never raises."""
        try:
            return answer_in(output)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("answer", error)
            return None

    def end_turn(self, turn: ModelTurn | QuietTurn, message: AIMessage | None) -> None:
        """Plan for the model's answer. Never raises."""
        turn.commit(message)
        if not turn.started:
            self._tally.idle(turn.idle)

    def tap_for(self, turn: ModelTurn | QuietTurn, model: object) -> Tap | None:
        """Return the tap for a known request, unless it would hear nothing. Never raises."""
        if isinstance(turn, QuietTurn):
            return None
        try:
            if self._hears(model):
                return self.node_tap(turn)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("tap", error)
            return None
        if not self._sampling:
            turn.idle = self._deaf
        return None

    def node_tap(self, turn: ModelTurn) -> Tap:
        """Return the tap for a node whose own model call is yet to be seen."""
        return ForcingTap(turn) if self._force else Tap(turn)

    # --- the committed calls

    def committed(self, request: ToolCallRequest) -> CommittedCallScope | None:
        """Return what a committed call needs from us; None: nothing. Never raises."""
        try:
            return self._committed(request)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._lost(error)
            return None

    def _committed(self, request: ToolCallRequest) -> CommittedCallScope | None:
        config: Mapping[str, Any] = getattr(request, "runtime").config  # noqa: B009 - its type is open
        place = place_in(config, self)
        if place is None:
            return None
        tool = request.tool
        # Who answers a name that is not registered may write, too.
        contract = None if tool is None else contract_of(tool, trust_mcp=self.trusted)
        if contract is None and self.mode(config) == "off":
            return None
        inside = str(config["configurable"].get("checkpoint_ns") or "")
        run = runs.find(place.control)
        if run is None:
            return CommittedCallScope(place.control, inside) if contract is None else None
        call = request.tool_call
        with run.lock:
            found = run.machine.booking(place.scope, call["name"], call.get("id"), call["args"])
        if found is None:
            return CommittedCallScope(place.control, inside) if contract is None else None
        turn, booking = found
        booked = BookedCall(run, turn, booking, self.events.emit)
        return CommittedCallScope(
            place.control, inside, booked=booked, contract=contract, writes=contract is None
        )

    def run_committed(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:  # noqa: ANN401 - what the handler returns
        """Run a committed call through `handler`; its flight answers it, if it has one."""
        call = self.committed(request)
        if call is None:
            return handler(request)
        try:
            return handler(self._begun(call, request))
        finally:
            self._ended(call)

    async def arun_committed(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:  # noqa: ANN401 - what the handler returns
        """Await a committed call through `handler`."""
        call = self.committed(request)
        if call is None:
            return await handler(request)
        try:
            return await handler(self._begun(call, request))
        finally:
            self._ended(call)

    def _begun(self, call: CommittedCallScope, request: ToolCallRequest) -> ToolCallRequest:
        try:
            return call.begin(request)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._lost(error)
            return request

    def _ended(self, call: CommittedCallScope) -> None:
        try:
            call.end()
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        """Report that a call escaped us: it may write, so nothing read so far may answer."""
        self.events.failed("claim", error)
        with contextlib.suppress(Exception):
            runs.invalidate(None)

    # --- the places it plugs into

    def middleware(self) -> Any:  # noqa: ANN401 - imported late, to leave langchain.agents out
        """Return a `SpeculationMiddleware` over this Speculation."""
        from langchain_spectool.graph.middleware import SpeculationMiddleware  # noqa: PLC0415

        return SpeculationMiddleware(speculation=self)

    def model_node(
        self, node: Callable[..., Any] | Runnable[Any, Any], *, messages_key: str = "messages"
    ) -> Any:  # noqa: ANN401 - a function for a function, a runnable for a runnable
        """Wrap a node function, a runnable or a chat model as a speculative model node.

        `messages_key` says where a chat model finds the messages in the graph's state.
        """
        from langchain_spectool.graph.model_node import model_node  # noqa: PLC0415

        return model_node(self, node, messages_key=messages_key)

    def model(self, model: BaseChatModel) -> BaseChatModel:
        """Return a copy of `model` that speculates wherever it is called in a graph."""
        from langchain_spectool.graph.model_node import watched_model  # noqa: PLC0415

        return watched_model(self, model)

    def tool_node(self, **options: Any) -> Any:  # noqa: ANN401 - ToolNode's own options
        """Return a `SpeculativeToolNode` of this Speculation's tools."""
        from langchain_spectool.graph.tool_node import SpeculativeToolNode  # noqa: PLC0415

        return SpeculativeToolNode(self.tools, speculation=self, **options)
