"""The economy of one Speculation, behind a lock, and the purse of each of its turns."""

import threading
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from langchain_spectool._core.budget import Budget, Budgets, Charge, Level, Reservation
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.economy import Economy, Judgement, Moment, Said
from langchain_spectool._core.events import Event
from langchain_spectool._core.flight import Flight
from langchain_spectool._core.guess import CHAIN, Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.prices import Prices
from langchain_spectool._core.verdicts import SERVED
from langchain_spectool._runtime.run_watch import WatchedRun

Usage = tuple[int, int] | None
"""Input and output tokens of a model call; None when not reported."""

USUAL_USAGE = (1000, 100)
"""Tokens reserved for the first request to a draft model; later ones reserve what it used last."""


class SharedEconomy:
    """Lets threads and event loops use one `Economy` in turn; no call waits for anything else."""

    def __init__(self, policy: Policy, prices: Prices) -> None:
        """Start with nothing learned."""
        self._lock = threading.Lock()
        self._economy = Economy(policy.benefit, policy.budgets)
        self._prices = prices
        self._usage: dict[str, tuple[int, int]] = {}
        self.budgets = policy.budgets

    def judge(self, candidate: Candidate, moment: Moment) -> Judgement:
        """Weigh a guess; see `Economy.judge`."""
        with self._lock:
            return self._economy.judge(candidate, moment)

    def samples(
        self,
        source: str,
        most: int,
        *,
        alike: bool = True,
        free: bool = False,
        tenant: str | None = None,
    ) -> int:
        """Say how many samples a turn is worth; see `Economy.samples`."""
        with self._lock:
            return self._economy.samples(source, most, alike=alike, free=free, tenant=tenant)

    def is_off(self, tenant: str | None) -> bool:
        """Say whether `tenant` is switched off."""
        with self._lock:
            return self._economy.is_off(tenant)

    def committed(self, said: Sequence[Said], keys: Collection[str]) -> list[tuple[Said, bool]]:
        """Learn which guesses came true; see `Economy.committed`."""
        with self._lock:
            return self._economy.committed(said, keys)

    def tool_took(self, tool: str, seconds: float) -> None:
        """Note how long a run of `tool` took."""
        with self._lock:
            self._economy.pace.tool_took(tool, seconds)

    def turn_took(self, seconds: float) -> None:
        """Note how long the model took for its answer."""
        with self._lock:
            self._economy.pace.turn_took(seconds)

    def called(self, tool: str, contract: Contract, now_s: float) -> None:
        """Count a committed call against what the service allows per minute."""
        if contract.calls_per_minute is not None:
            with self._lock:
                self._economy.called(tool, contract, now_s)

    def limited(self, tool: str, until_s: float) -> None:
        """Leave the service behind `tool` alone until then."""
        with self._lock:
            self._economy.limited(tool, until_s)

    def switch(self, *, on: bool, tool: str | None, tenant: str | None) -> None:
        """Let guesses for a tool, or for a tenant, run or not."""
        with self._lock:
            self._economy.switch(on=on, tool=tool, tenant=tenant)

    # --- money

    def reserve_request(
        self, source: str, model: str, payers: Sequence[tuple[Level, Hashable]], now_s: float
    ) -> Reservation | None:
        """Hold room for one request of `source` to `model`; None if a budget is too full."""
        with self._lock:
            charge = self._charge(model, self._usage.get(source, USUAL_USAGE))
            return self._economy.ledger.reserve(charge, payers, now_s)

    def request_cost(self, source: str, model: str, usage: Usage) -> Charge | None:
        """Return what a request used; None, and nothing is learned, when that is unknown."""
        if usage is None:
            return None
        with self._lock:
            self._usage[source] = usage
        return self._charge(model, usage)

    def _charge(self, model: str, usage: tuple[int, int]) -> Charge:
        usd = self._prices.cost_usd(model, usage) or 0.0
        return Charge(calls=1, tokens=sum(usage), usd=usd)

    def priced(self, model: str) -> bool:
        """Say whether what `model` charges is known."""
        return self._prices.price(model) is not None

    def spend(self, charge: Charge, payers: Sequence[tuple[Level, Hashable]], now_s: float) -> None:
        """Book what was used unasked."""
        with self._lock:
            self._economy.ledger.spend(charge, payers, now_s)

    def settle(self, reservation: Reservation, actual: Charge | None) -> None:
        """Book what something really used; None books what was reserved."""
        with self._lock:
            reservation.settle(actual)

    def forget(self, level: Level, name: Hashable) -> None:
        """Drop the account of a turn or run that is over."""
        with self._lock:
            self._economy.ledger.forget(level, name)


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A request to a draft model, and what was reserved for it."""

    source: str
    model: str
    reservation: Reservation


class Purse:
    """What one turn has said, reserved and spent. Methods may be called from any thread."""

    def __init__(
        self,
        economy: SharedEconomy,
        payers: Sequence[tuple[Level, Hashable]],
        tenant: str | None,
        started_s: float,
        run: WatchedRun | None = None,
    ) -> None:
        """Pay for a turn of `run` that began at `started_s`, from the accounts of `payers`."""
        self.economy = economy
        self._payers = payers
        self._tenant = tenant
        self._started_s = started_s
        self._run = run
        self._lock = threading.Lock()
        self._said: list[Said] = []
        self._flights: dict[Flight, Reservation] = {}
        self._requests: list[_Request] | None = []
        """Those that wait for their usage; None after the turn."""

    # --- guesses

    def heard(self, candidate: Candidate) -> None:
        """Remember a guess that could answer a call of this turn, whether it runs or not."""
        if candidate.key is None or candidate.parent is not None:
            return
        self._said.append(
            Said(
                source=candidate.source,
                tool=candidate.tool,
                key=candidate.key,
                confidence=candidate.confidence,
                sample=candidate.sample,
            )
        )

    def judge(self, candidate: Candidate, now_s: float) -> Judgement:
        """Weigh a guess at this point of the turn."""
        parent = candidate.parent
        moment = Moment(
            now_s=now_s,
            elapsed_s=now_s - self._started_s,
            turns_ahead=0 if parent is None else parent.links + 1,
            payers=self._payers,
            tenant=self._tenant,
            warm_up=candidate.warm_up,
        )
        return self.economy.judge(candidate, moment)

    def took_off(self, flight: Flight, reservation: Reservation) -> None:
        """Remember what was reserved for `flight`, which costs its price whatever it brings."""
        self._flights[flight] = reservation
        self._cost(flight.contract.cost_usd or 0.0)

    def grounded(self, flight: Flight) -> None:
        """Give back what was reserved for a guess that did not start."""
        reservation = self._flights.pop(flight, None)
        if reservation is not None:
            self.economy.settle(reservation, Charge())
            self._cost(-(flight.contract.cost_usd or 0.0))

    def returned(self, flight: Flight, now_s: float, *, measured: bool) -> None:
        """Settle what an early run cost, and learn how long it took if it came back by itself."""
        seconds = max(0.0, now_s - flight.started_s)
        if measured:
            self.economy.tool_took(flight.tool, seconds)
        reservation = self._flights.pop(flight, None)
        if reservation is not None:
            usd = flight.contract.cost_usd or 0.0
            self.economy.settle(reservation, Charge(calls=1, usd=usd, tool_s=seconds))

    # --- requests to draft models

    def asks(self, source: str, model: str, now_s: float) -> bool:
        """Reserve what a request of `source` to `model` will cost; False if it may not be sent."""
        with self._lock:
            if self._requests is None:
                return False
            reservation = self.economy.reserve_request(source, model, self._payers, now_s)
            if reservation is not None:
                self._requests.append(_Request(source, model, reservation))
            return reservation is not None

    def used(self, source: str, model: str, usage: Usage) -> None:
        """Settle a request; one whose usage stays unknown remains charged as reserved.

        One that nothing was reserved for is booked as well. After the turn all are settled.
        """
        actual = self.economy.request_cost(source, model, usage)
        with self._lock:
            if self._requests is None:
                return
            request = next((each for each in self._requests if each.source == source), None)
            if request is not None:
                self._requests.remove(request)
        if request is not None:
            self._settle(request, actual)
        elif actual is not None:
            self.economy.spend(actual, self._payers, self._started_s)
            self._cost(actual.usd if self.economy.priced(model) else None)

    def _settle(self, request: _Request, actual: Charge | None) -> None:
        self.economy.settle(request.reservation, actual)
        usd = (request.reservation.charge if actual is None else actual).usd
        self._cost(usd if self.economy.priced(request.model) else None)

    def _cost(self, usd: float | None) -> None:
        if self._run is not None:
            self._run.cost(usd)

    # --- the end of the turn

    def committed(self, keys: Collection[str], now_s: float) -> list[tuple[Said, bool]]:
        """Learn from the model's answer which guesses were right."""
        self.economy.turn_took(now_s - self._started_s)
        said, self._said = self._said, []
        return self.economy.committed(said, keys)

    def close(self) -> None:
        """Charge what was never reported: an abandoned request costs its provider's price."""
        with self._lock:
            requests, self._requests = self._requests or [], None
        for request in requests:
            self._settle(request, None)
        for level, name in self._payers:
            if level == "turn":
                self.economy.forget(level, name)


class ChainLesson:
    """An observer that learns which guesses of a chain came true: their turn comes later."""

    def __init__(self, economy: SharedEconomy) -> None:
        """Teach `economy`."""
        self._economy = economy

    def on_event(self, event: Event) -> None:
        """Take note of how a chain's early run ended."""
        if event.source != CHAIN:
            return
        hit = event.kind == "claim" and event.verdict in SERVED
        if hit or (event.kind == "discarded" and event.verdict == "unclaimed"):
            said = Said(
                source=CHAIN,
                tool=event.tool,
                key=event.key_hash,
                confidence=event.confidence or 0.0,
            )
            self._economy.committed([said], [event.key_hash] if hit else [])


def payers_of(
    budgets: Budgets, *, turn: int, run: int, tenant: str | None
) -> list[tuple[Level, Hashable]]:
    """Return which accounts pay for a turn; only levels that have a budget keep one.

    A conversation of no known tenant pays from the account of all such.
    """
    levels: list[tuple[Level, Hashable, Budget | None]] = [
        ("turn", turn, budgets.turn),
        ("run", run, budgets.run),
        ("tenant", tenant, budgets.tenant),
        ("process", "", budgets.process),
    ]
    return [(level, name) for level, name, budget in levels if budget is not None]
