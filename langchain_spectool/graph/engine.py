"""Where a Speculation meets its engine: model calls, early results on their way, ends of runs."""

import contextlib
import functools
from collections.abc import Generator, Hashable, Iterable
from typing import TypeVar

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.verdicts import EngineVerdict
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.driver import AsyncDriver, Driver, ThreadDriver
from langchain_spectool._runtime.landing import running_loop
from langchain_spectool._runtime.turn_scope import Place
from langchain_spectool.engines.client import ToolCacheClient
from langchain_spectool.engines.entries import entry_for, may_tell
from langchain_spectool.engines.install import Installer, Served, addresses_of
from langchain_spectool.engines.model_call import CURRENT, ModelCall
from langchain_spectool.engines.scope import EngineScope
from langchain_spectool.graph.following import shown_to_model
from langchain_spectool.graph.model_turn import ModelTurn
from langchain_spectool.graph.place import current_config, place_in
from langchain_spectool.graph.quiet_turn import QuietTurn
from langchain_spectool.telemetry.broadcast import Broadcast

_MOST_KEPT = 8
"""Most early results of earlier turns that are told again for a new response."""

Model = TypeVar("Model")


class EngineLink:
    """The engine of one Speculation. None of its methods raise."""

    def __init__(self, client: ToolCacheClient, events: Broadcast, owner: object) -> None:
        """Ask nothing yet. `owner` tells the runs of one Speculation from another's."""
        self.client = client
        self._events = events
        self._owner = owner
        self._installer = Installer(client)
        self._scopes: dict[tuple[int, Hashable], EngineScope] = {}
        self._said: set[tuple[str, str]] = set()

    # --- the model's call

    def served(self, model: Model) -> Model:
        """Return a copy of `model` that the engine serves; itself if it does not."""
        found = self._served(model)
        return model if found is None else found.model

    def _served(self, model: object) -> Served | None:
        try:
            found = self._installer.served(model)
        except Exception as error:  # noqa: BLE001 - our failure costs the gain
            self._events.failed("engine", error)
            return None
        if isinstance(found, Served):
            return found
        self._say_once(found, self._reason(found, model))
        return None

    def _reason(self, verdict: EngineVerdict, model: object) -> str:
        name = f"{type(model).__name__} is not served by the engine at {self.client.base_url}"
        if verdict == "elsewhere":
            return f"{name}: it is served at {addresses_of(model)}"
        return f"{name}: use a plain ChatOpenAI; bind tools after `speculation.model(...)`"

    def unseen(self, turn: ModelTurn | QuietTurn) -> None:
        """Note that a node has called a model that it did not show."""
        if self._may_begin(turn) and not self._scopes:
            how = "use `speculation.model(...)` inside, and the function itself as the node"
            self._say_once("no_model", f"model_node sees no model that a function calls: {how}")

    @contextlib.contextmanager
    def calling(self, turn: ModelTurn | QuietTurn, model: Model) -> Generator[Model]:
        """Tell the engine what lands while the block calls the model that it is given."""
        call, used = None, model
        served = self._served(model) if self._may_begin(turn) else None
        if served is not None:
            call = self._begun(turn, served)
            used = model if call is None else served.model
        if call is None:
            yield used
            return
        token = CURRENT.set(call)
        try:
            yield used
        finally:
            with contextlib.suppress(ValueError):  # closed with its loop, outside of its context
                CURRENT.reset(token)
            with contextlib.suppress(Exception):
                call.scope.ended(call)

    def _begun(self, turn: ModelTurn | QuietTurn, served: Served) -> ModelCall | None:
        try:
            return self._begin(turn, served)
        except Exception as error:  # noqa: BLE001 - our failure costs the gain
            self._events.failed("engine", error)
            return None

    def _may_begin(self, turn: ModelTurn | QuietTurn) -> bool:
        if isinstance(turn, QuietTurn):
            return turn.idle != "held_out" and bool(self._scopes)
        return not turn.shadow

    def _begin(self, turn: ModelTurn | QuietTurn, served: Served) -> ModelCall | None:
        place = place_in(current_config(), self._owner)
        if place is None or not self._may_begin(turn):
            return None
        scope = (
            self._scopes.get(_name(place)) if isinstance(turn, QuietTurn) else self._scope(place)
        )
        if scope is None:
            return None
        loop = running_loop()
        driver: Driver = ThreadDriver() if loop is None else AsyncDriver(loop)
        call = scope.begin(driver, served.headers, place.step)
        if isinstance(turn, ModelTurn):
            turn.scope.on_return = functools.partial(self._landed, call, turn)
            turn.scope.on_outdated = scope.forget
            for flight in (*turn.scope.turn.flights, *_kept(place)):
                if flight.outcome is not None:
                    self._landed(call, turn, flight, flight.outcome)
        return call

    def _scope(self, place: Place) -> EngineScope | None:
        name = _name(place)
        scope = self._scopes.get(name)
        if scope is not None:
            return scope
        loop = running_loop()
        clock = ThreadDriver().clock if loop is None else loop.time
        scope = EngineScope(self.client, self._events.emit, clock)
        if place.at_aend is not None:
            place.at_aend(functools.partial(self._aend, name))
        elif place.at_end is not None:
            place.at_end(functools.partial(self._end, name))
        else:
            self._say_once("no_run_end", "nothing tells when this graph ends")
            return None
        self._scopes[name] = scope
        return scope

    # --- what lands

    def _landed(self, call: ModelCall, turn: ModelTurn, flight: Flight, outcome: Outcome) -> None:
        try:
            self._post(call, turn, flight, outcome)
        except Exception as error:  # noqa: BLE001 - our failure costs the gain
            self._events.failed("engine", error)

    def _post(self, call: ModelCall, turn: ModelTurn, flight: Flight, outcome: Outcome) -> None:
        contract: Contract = flight.contract
        tool = next((each for each in turn.book.tools if each.name == flight.tool), None)
        if tool is None or outcome.state != "landed" or not flight.available or flight.lead:
            return
        current = call.scope.current(call, flight.tool)
        if current is None:  # before anything else: a call may be waiting for this result
            return
        if not may_tell(self.client.audience, contract):
            self._say_once("private", f"{flight.tool} is for a narrower audience", flight.tool)
            return
        if tool.response_format != "content":
            return
        age_s = turn.scope.clock() - flight.started_s
        shown: object = shown_to_model(outcome.value, tool)
        entry = entry_for(flight.tool, flight.args, shown, contract, age_s)
        if entry is not None:
            current.post(entry)

    def _say_once(self, verdict: EngineVerdict, detail: str, tool: str = "") -> None:
        if (verdict, detail) not in self._said:
            self._said.add((verdict, detail))
            self._events.emit(
                Event(kind="engine", at_s=0.0, verdict=verdict, tool=tool, detail=detail)
            )

    # --- what is no longer true

    def wrote(self, control: object) -> None:
        """An undeclared call of the run of `control` begins or ends: the world may have changed."""
        self._forget(scope for name, scope in [*self._scopes.items()] if name[0] == id(control))

    def invalidate(self) -> None:
        """Somebody says that the world has changed."""
        self._forget([*self._scopes.values()])

    def _forget(self, scopes: Iterable[EngineScope]) -> None:
        for scope in scopes:
            with contextlib.suppress(Exception):
                scope.forget()

    # --- the end

    @property
    def in_progress(self) -> int:
        """How many graphs have something with the engine."""
        return len(self._scopes)

    def _end(self, name: tuple[int, Hashable]) -> None:
        scope = self._scopes.pop(name, None)
        if scope is not None:
            with contextlib.suppress(Exception):  # a graph unwinds: nothing of ours may reach it
                scope.end()

    async def _aend(self, name: tuple[int, Hashable]) -> None:
        scope = self._scopes.pop(name, None)
        if scope is not None:
            with contextlib.suppress(Exception):  # a graph unwinds: nothing of ours may reach it
                await scope.aend()


def _name(place: Place) -> tuple[int, Hashable]:
    # The control itself is not held: who holds it tells whether the run goes on.
    return id(place.control), place.scope


def _kept(place: Place) -> list[Flight]:
    """Return what earlier turns have left for this one, the newest."""
    run = runs.find(place.control)
    if run is None:
        return []
    with run.lock:
        return [*run.machine.kept.of(place.scope)][-_MOST_KEPT:]
