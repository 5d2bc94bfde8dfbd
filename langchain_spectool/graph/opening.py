"""How a turn of the main model begins: what may be done in it, and who guesses."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from langchain_spectool._core.events import Event
from langchain_spectool._core.guess import TurnRequest
from langchain_spectool._core.policy import Mode, Policy, lowest, mode_of
from langchain_spectool._core.verdicts import IdleReason
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.driver import AsyncDriver, Driver, ThreadDriver
from langchain_spectool._runtime.landing import running_loop
from langchain_spectool._runtime.run_watch import MOST_RUNS, RunWatch, WatchedRun
from langchain_spectool._runtime.shared_economy import SharedEconomy
from langchain_spectool._runtime.turn_scope import Common, Place, TurnScope
from langchain_spectool.graph.book import ToolBook, judge_of
from langchain_spectool.graph.early import Surroundings
from langchain_spectool.graph.isolation import RUNTIME, detached_context
from langchain_spectool.graph.model_turn import ModelTurn
from langchain_spectool.graph.place import current_config, place_in
from langchain_spectool.graph.quiet_turn import QuietTurn, Rebook
from langchain_spectool.graph.tap import bound_names, caller_streams
from langchain_spectool.graph.team import Team
from langchain_spectool.telemetry.arms import held_out
from langchain_spectool.telemetry.broadcast import Broadcast
from langchain_spectool.telemetry.report import Tally

Tenant = Callable[[Mapping[str, Any]], str | None]
"""From a run's config to whose conversation it is; None if nobody said."""


def named_tenant(config: Mapping[str, Any]) -> str | None:
    """Return what `config={"configurable": {"tenant": ...}}` says."""
    name = cast("Mapping[str, Any]", config.get("configurable") or {}).get("tenant")
    return None if name is None else str(name)


class TurnOpener:
    """Opens the turns of one Speculation."""

    def __init__(  # noqa: PLR0913 - all that a turn is made of
        self,
        owner: object,
        tools: Sequence[BaseTool],
        *,
        team: Team,
        policy: Policy,
        economy: SharedEconomy,
        gated: frozenset[str],
        trusted: frozenset[str],
        tenant: Tenant,
        events: Broadcast,
        tally: Tally,
    ) -> None:
        """Open nothing yet. `owner` tells the turns of one Speculation from another's."""
        self._owner = owner
        self._tools = tools
        self.team = team
        self._policy = policy
        self._gated = gated
        self._trusted = trusted
        self._tenant = tenant
        self._events = events
        self._tally = tally
        self._common = Common(policy=policy, economy=economy, emit=self._emit)
        self._had_turns: set[str] = set()
        """The runs in progress that events name: of no other the end is told."""
        self._books: dict[bool, ToolBook] = {}
        self._last_bound: tuple[object, Sequence[BaseTool]] = (None, ())
        self._name = secrets.token_hex(16)
        self._follows_runs = bool(policy.holdout) or policy.budgets.run is not None
        """Whether the policy makes it necessary to follow every run from end to end."""
        self._watch = RunWatch(
            self._holds_out,
            self._run_ended,
            (GraphBubbleUp, GeneratorExit),
            prefix=self._name[:8],
        )

    def _holds_out(self, number: int) -> bool:
        policy = self._policy
        return bool(policy.holdout) and held_out(policy.seed, number, policy.holdout)

    def _run_ended(self, run: WatchedRun, now_s: float, succeeded: bool) -> None:  # noqa: FBT001 - what happened
        self._tell_end(run, now_s, succeeded)
        if not self._follows_runs:
            return
        self._common.economy.forget("run", run.number)
        self._tally.run_ended(run, now_s, succeeded=succeeded)

    def _tell_end(self, run: WatchedRun, now_s: float, succeeded: bool) -> None:  # noqa: FBT001 - as above
        name = self._named(run)
        if name not in self._had_turns:
            return
        self._had_turns.discard(name)
        arm = "holdout" if run.held_out else "treated"
        self._events.emit(
            Event(
                kind="run_ended",
                at_s=now_s,
                run=name,
                arm=arm if self._policy.holdout else "",
                verdict="done" if succeeded else "failed",
                started_s=run.started_s,
                cost_usd=run.cost_usd if self._follows_runs else None,
            )
        )

    def _emit(self, event: Event) -> None:
        if event.run:
            if len(self._had_turns) > MOST_RUNS:  # whose ends nobody could tell
                self._had_turns.clear()
            self._had_turns.add(event.run)
        self._events.emit(event)

    # --- what may be done

    def mode(self, config: Mapping[str, Any]) -> Mode:
        """Return what may be done in the run of `config`: the least of policy, run and process."""
        asked = cast("Mapping[str, Any]", config.get("configurable") or {}).get("speculation")
        mode = self._policy.mode
        for where, value in (("SPECTOOL_MODE", os.environ.get("SPECTOOL_MODE")), ("", asked)):
            if value is False:
                mode = "off"
            elif value not in (None, ""):
                mode = lowest(mode, self._checked(value, where or "the run's config"))
        return mode

    def _checked(self, value: object, where: str) -> Mode:
        try:
            return mode_of(value)
        except ValueError as error:
            self._events.warn_once(f"{where}: {error}; speculation is off")
            return "off"

    @property
    def known(self) -> set[str]:
        """The names of the tools seen so far."""
        seen = (tool.name for book in self._books.values() for tool in book.tools)
        return {*(tool.name for tool in self._tools), *seen}

    @staticmethod
    def now_s() -> float:
        """Return the time on the clock of whoever runs here."""
        loop = running_loop()
        return time.monotonic() if loop is None else loop.time()

    # --- the turn

    def open(
        self,
        request: Callable[[], TurnRequest] | None,
        gates: Callable[[], Collection[str]],
        model: object,
        *,
        loop: asyncio.AbstractEventLoop | None,
    ) -> ModelTurn | QuietTurn | None:
        """Begin a turn; None where nothing may be speculated."""
        config = current_config()
        mode = self.mode(config)
        place = place_in(config, self._owner)
        if mode == "off" or place is None:
            self._tally.idle("off" if mode == "off" else "no_run_control")
            return None
        driver: Driver = ThreadDriver() if loop is None else AsyncDriver(loop)
        run = self._watched(place, driver)
        asked = None if request is None else request()
        if asked is not None and self._follows_runs and run is not None:
            run.turns_at_s.append(driver.clock())  # else once the node calls its model
        gated = self._gated.union(gates())

        def book(tools: Sequence[object]) -> ToolBook:
            return self._book(tools, gated, blocking=loop is None)

        def rebook(parameters: Mapping[str, Any]) -> ToolBook:
            return book(self._bound(parameters))

        # Who knows its request needs no other book, and would hold all of this.
        later = rebook if asked is None else None
        bound = book(self._tools if asked is None else asked.tools)
        if run is not None and run.held_out:
            return self._quiet(driver, "held_out", run, bound, later)
        if asked is not None and self._is_quiet(model, bound, place):
            return self._quiet(driver, self._silence(bound), run, bound)
        named: object = self._tenant(config)
        # Text, as in `switch_off` and in files: a number that does not equal it would pass.
        tenant = None if named is None else str(named)
        turn = ModelTurn(
            scope=TurnScope(
                place,
                driver,
                self._common,
                watched=self._followed(run),
                tenant=tenant,
                shadow=mode == "shadow",
                run=self._named(run),
            ),
            book=bound,
            team=self.team,
            around=_around(config),
            shadow=mode == "shadow",
            report=self._events.emit,
            rebook=later,
            run=self._followed(run),
            tenant=tenant,
            thread=self._thread(config, place),
        )
        if asked is not None:
            self._start(turn, replace(asked, model=model, tenant=tenant, run=turn.thread))
        return turn

    def _thread(self, config: Mapping[str, Any], place: Place) -> str:
        """Return what tells the thread of a turn, or its run without one, from others."""
        thread = config["configurable"].get("thread_id")
        if thread is not None:
            return f"thread {thread}"
        # Nested agents and parallel branches are of one run: none of them counts as another.
        run = self._watch.enter(place.control, self.now_s, place.on_exit)
        return f"run {run.number} of {self._name}"

    def watched(self, control: object) -> WatchedRun | None:
        """Return the run that is going on, if runs are followed."""
        return self._watch.find(control) if self._follows_runs else None

    def named(self, control: object) -> str:
        """Return what events call the run that is going on; empty if it had no turn of ours."""
        return self._named(self._watch.find(control)) if self._events.heard else ""

    def _named(self, run: WatchedRun | None) -> str:
        """Return what tells the run from others in a log; empty where nobody writes one."""
        return run.name.text if run is not None and self._events.heard else ""

    def _followed(self, run: WatchedRun | None) -> WatchedRun | None:
        return run if self._follows_runs else None

    def _watched(self, place: Place, driver: Driver) -> WatchedRun | None:
        if not (self._follows_runs or self._events.heard):
            return None
        return self._watch.enter(place.control, driver.clock, place.on_exit)

    def _quiet(
        self,
        driver: Driver,
        idle: IdleReason,
        run: WatchedRun | None,
        book: ToolBook,
        rebook: Rebook | None = None,
    ) -> QuietTurn:
        return QuietTurn(
            clock=driver.clock,
            report=self._emit,
            idle=idle,
            started_s=driver.clock(),
            book=book,
            rebook=rebook,
            called=rebook is None,
            run_name=self._named(run),
            run=self._followed(run),
        )

    def _book(self, tools: Sequence[object], gated: frozenset[str], *, blocking: bool) -> ToolBook:
        """Return the book of a request's tools; most requests have those of the one before."""
        book = self._books.get(blocking)
        if book is None or not book.fits(tools, gated):
            judge = judge_of(
                tools, external=self._policy.allow_external, gated=gated, trusted=self._trusted
            )
            book = self._books[blocking] = ToolBook(tools, judge, blocking=blocking)
        return book

    def _bound(self, parameters: Mapping[str, Any]) -> Sequence[BaseTool]:
        """Return which of our tools a model is called with: most calls have the list before."""
        given: object = parameters.get("tools")
        known, bound = self._last_bound
        if given is None or given is not known:
            names = bound_names(parameters)
            bound = [tool for tool in self._tools if tool.name in names]
            self._last_bound = given, bound
        return bound

    def _is_quiet(self, model: object, book: ToolBook, place: Place) -> bool:
        """Say whether nobody can guess in this turn, and nothing known can answer its calls."""
        return not (
            (self.team.sampling and book.declared)
            or self.hears(model)
            or book.shares
            or runs.find(place.control) is not None
        )

    def _silence(self, book: ToolBook) -> IdleReason:
        if not self.team.sampling:
            return self.team.deaf
        return "no_contracts" if book.tools else "no_tools_bound"

    def hears(self, model: object) -> bool:
        """Say whether a source would hear `model` write."""
        hearing = self.team.listening or self.team.forking
        return bool(hearing) and (self.team.force or caller_streams(model))

    def _start(self, turn: ModelTurn, request: TurnRequest) -> None:
        declared = turn.book.declared if self.team.sampling else ()
        if self.team.sampling and not declared:
            turn.idle = "no_contracts" if turn.book.tools else "no_tools_bound"
        turn.start(replace(request, declared=declared), sample=bool(declared))


def _around(config: Mapping[str, Any]) -> Surroundings:
    return Surroundings(
        config=config, runtime=config["configurable"][RUNTIME], context=detached_context()
    )
