"""`Speculation`: one set of speculators, limits and observers, and the places it plugs into."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.guess import TurnRequest
from langchain_spectool._core.policy import Mode, Policy
from langchain_spectool._core.ports import Observer
from langchain_spectool._core.prices import Price, Prices
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.claims import BookedCall
from langchain_spectool._runtime.meter import Meter
from langchain_spectool._runtime.shared_economy import ChainLesson, SharedEconomy
from langchain_spectool._runtime.turn_scope import Place
from langchain_spectool.engines.client import ToolCacheClient
from langchain_spectool.graph.answers import answer_in
from langchain_spectool.graph.arguments import held_back, server_names
from langchain_spectool.graph.committed import CommittedCallScope, Unplanned
from langchain_spectool.graph.costs import cost_of
from langchain_spectool.graph.declare import Explanation, contract_of, explain
from langchain_spectool.graph.engine import EngineLink
from langchain_spectool.graph.model_turn import ModelTurn
from langchain_spectool.graph.opening import Tenant, TurnOpener, named_tenant
from langchain_spectool.graph.place import place_in
from langchain_spectool.graph.quiet_turn import QuietTurn
from langchain_spectool.graph.tap import ForcingTap, Tap
from langchain_spectool.graph.team import Source, team_of
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.speculators.early_dispatch import EarlyDispatch
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.telemetry.broadcast import Broadcast
from langchain_spectool.telemetry.report import Report, Tally

AnyModel = TypeVar("AnyModel")
ChatRunnable = TypeVar("ChatRunnable", bound=Runnable[Any, AIMessage])


class Speculation:
    """Runs an agent's read-only tools before its model has finished asking for them.

    Args:
        tools: The agent's tools, for `model_node`, `tool_node` and `explain`. A middleware
            takes them from each request instead.
        draft: A cheap chat model, or `"provider:name"`, that guesses beside the main model;
            short for a `DraftModel` in front of the other speculators.
        speculators: Where guesses come from; `Patterns()` and `EarlyDispatch()` when not given.
        policy: The operator's limits.
        gated: Tools that never run early: names, or approval middleware of the same agent.
        trust_mcp: MCP servers whose read-only hints count.
        observers: Told every event.
        prices: What models charge, by name; for budgets in dollars and the cost of runs.
        engine: The base URL of the engine that serves the main model, if it has a tool cache; or
            a `ToolCacheClient` with more to say about it.
        tenant: From a run's config to whose conversation it is, which bounds what is learned and
            what it may use up; `config={"configurable": {"tenant": ...}}` when not given.

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
        prices: Mapping[str, Price] | None = None,
        engine: str | ToolCacheClient | None = None,
        tenant: Tenant = named_tenant,
    ) -> None:
        """Start nothing yet."""
        self.tools = [*tools]
        given: Sequence[Source] = (
            (Patterns(), EarlyDispatch()) if speculators is None else speculators
        )
        drafting = () if draft is None else (DraftModel(draft),)
        self.speculators: tuple[Source, ...] = (*drafting, *given)
        self.policy = policy or Policy()
        self.gated = held_back(gated)
        self.trusted = server_names(trust_mcp)
        self.prices = Prices(prices or {})
        self.team = team_of(self.speculators, self.prices)
        self._tally = Tally(self.policy.seed)
        self._economy = SharedEconomy(self.policy, self.prices)
        self.events = Broadcast(observers, own=(self._tally, ChainLesson(self._economy)))
        self._opener = TurnOpener(
            self,
            self.tools,
            team=self.team,
            policy=self.policy,
            economy=self._economy,
            gated=self.gated,
            trusted=self.trusted,
            tenant=tenant,
            events=self.events,
            tally=self._tally,
        )
        client = ToolCacheClient(engine) if isinstance(engine, str) else engine
        self.engine = None if client is None else EngineLink(client, self.events, self)

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
        if self.engine is not None:
            self.engine.invalidate()

    def mode(self, config: Mapping[str, Any]) -> Mode:
        """Return what may be done in the run of `config`: the least of policy, run and process."""
        return self._opener.mode(config)

    def switch_off(self, *, tool: str | None = None, tenant: str | None = None) -> None:
        """Stop speculating on a tool, or for a tenant, at once: what runs early is dropped.

        Committed calls are not touched. Holds until `switch_on`. A name that no tool has had so far
        is a warning.

        Raises:
            ValueError: Neither a tool nor a tenant is named.
        """
        self._switch(tool, tenant, on=False)
        runs.withdraw(tool, tenant)

    def switch_on(self, *, tool: str | None = None, tenant: str | None = None) -> None:
        """Take a `switch_off` back.

        Raises:
            ValueError: Neither a tool nor a tenant is named.
        """
        self._switch(tool, tenant, on=True)

    def _switch(self, tool: str | None, tenant: str | None, *, on: bool) -> None:
        if tool is None and tenant is None:
            msg = "name a `tool` or a `tenant` to switch; for everything set SPECTOOL_MODE=off"
            raise ValueError(msg)
        known = self._opener.known
        if tool is not None and known and tool not in known:
            # It holds all the same: the tool may be bound later.
            names = ", ".join(sorted(known))
            self.events.warn_once(f"no tool {tool!r} was seen so far; known are {names}")
        self._economy.switch(on=on, tool=tool, tenant=tenant)

    # --- the model's turn

    @overload
    def begin_turn(
        self, request: None, *, loop: asyncio.AbstractEventLoop | None
    ) -> ModelTurn | QuietTurn | None: ...
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
            return self._opener.open(request, gates, model, loop=loop)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("open", error)
            return None

    def answer_of(self, output: object) -> AIMessage | None:
        """Return the model's answer in what a node returned. Never raises."""
        try:
            return answer_in(output)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("answer", error)
            return None

    def end_turn(self, turn: ModelTurn | QuietTurn, message: AIMessage | None) -> None:
        """Plan for the model's answer. Never raises."""
        if turn.run is not None:
            turn.run.cost(self._cost(message))
        turn.commit(message)
        if not turn.started:
            self._tally.idle(turn.idle)

    def _cost(self, message: AIMessage | None) -> float | None:
        """Return the dollars of an answer; None if unknown."""
        try:
            return cost_of(message, self.prices)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("cost", error)
            return None

    def tap_for(self, turn: ModelTurn | QuietTurn, model: object) -> Tap | None:
        """Return the tap for a known request, unless it would hear nothing. Never raises."""
        if isinstance(turn, QuietTurn):
            return None
        try:
            if self._opener.hears(model):
                return self.node_tap(turn)
        except Exception as error:  # noqa: BLE001 - our failure is a miss
            self.events.failed("tap", error)
            return None
        if not self.team.sampling:
            turn.idle = self.team.deaf
        return None

    def node_tap(self, turn: ModelTurn) -> Tap:
        """Return the tap for a node whose own model call is yet to be seen."""
        return ForcingTap(turn) if self.team.force else Tap(turn)

    def calling(
        self, turn: ModelTurn | QuietTurn, model: AnyModel
    ) -> contextlib.AbstractContextManager[AnyModel]:
        """Return what a call of `model` in `turn` runs in; it gives the model to call."""
        engine = self.engine
        return contextlib.nullcontext(model) if engine is None else engine.calling(turn, model)

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
        call = request.tool_call
        meter = None if contract is None else self._meter(call["name"], contract, place.control)
        booked = self._booked(place, call, meter)
        name = call["name"] if tool is not None else "other"
        return CommittedCallScope(
            place.control,
            inside,
            booked=booked,
            contract=contract,
            meter=meter,
            unplanned=None if booked is not None else self._unplanned(name, place.control),
            on_write=self._on_write(place.control),
        )

    def _on_write(self, control: object) -> Callable[[], None] | None:
        engine = self.engine
        return None if engine is None else functools.partial(engine.wrote, control)

    def _unplanned(self, tool: str, control: object) -> Unplanned | None:
        """Return who tells of a call outside a plan; None where the run has no turn of ours."""
        run = self._opener.named(control)
        if not run:
            return None
        return Unplanned(tool=tool, run=run, clock=self._opener.now_s, report=self.events.emit)

    def _meter(self, tool: str, contract: Contract, control: object) -> Meter:
        return Meter(
            tool=tool,
            contract=contract,
            economy=self._economy,
            clock=self._opener.now_s,
            run=self._opener.watched(control),
        )

    def _booked(
        self, place: Place, call: Mapping[str, Any], meter: Meter | None
    ) -> BookedCall | None:
        """Return the position of a plan that `call` stands for, if there is one."""
        run = runs.find(place.control)
        if run is None:
            return None
        with run.lock:
            found = run.machine.booking(place.scope, call["name"], call.get("id"), call["args"])
        return None if found is None else BookedCall(run, *found, self.events.emit, meter)

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

        `messages_key` says where a chat model, with tools bound or not, finds a state's messages.
        """
        from langchain_spectool.graph.model_node import model_node  # noqa: PLC0415

        return model_node(self, node, messages_key=messages_key)

    def model(self, model: ChatRunnable) -> ChatRunnable:
        """Return a copy of `model`, bound arguments and all, that speculates wherever it is called.

        Raises:
            TypeError: There is no chat model in it, as in a chain.
        """
        from langchain_spectool.graph.model_node import watched_model  # noqa: PLC0415

        return watched_model(self, model)

    def tool_node(self, **options: Any) -> Any:  # noqa: ANN401 - ToolNode's own options
        """Return a `SpeculativeToolNode` of this Speculation's tools."""
        from langchain_spectool.graph.tool_node import SpeculativeToolNode  # noqa: PLC0415

        return SpeculativeToolNode(self.tools, speculation=self, **options)
