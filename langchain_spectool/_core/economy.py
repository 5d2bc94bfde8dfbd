"""What speculation has learned of its own worth, shared by all runs of one Speculation.

Whoever calls holds a lock: nothing in here is safe from two threads at once.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

from langchain_spectool._core.benefit import BenefitGate
from langchain_spectool._core.budget import Budgets, Charge, Ledger, Level, Reservation
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.odds import Odds
from langchain_spectool._core.pace import Pace
from langchain_spectool._core.rest import Rest
from langchain_spectool._core.samples import SampleCount
from langchain_spectool._core.verdicts import GuessVerdict

MOST_PAIRS = 4096
"""Most pairs of source and tool that are remembered; the least recently used go first."""
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A guess that could have answered a call, whether it ran or not."""

    source: str
    tool: str
    key: str
    confidence: float
    sample: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When and for whom a guess would run."""

    now_s: float
    elapsed_s: float = 0.0
    """Seconds since the model began its turn."""
    turns_ahead: int = 0
    """How many turns later than this one the call is expected."""
    payers: Sequence[tuple[Level, Hashable]] = ()
    tenant: str | None = None
    warm_up: int = 0
    """Guesses that the source itself wants scored before any runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a guess may run: a refusal, or the room reserved for it."""

    refusal: GuessVerdict | None = None
    reservation: Reservation | None = None


@dataclass(slots=True)
class _Switches:
    """What operators have switched off, and what providers have."""

    tools: set[str] = field(default_factory=set[str])
    tenants: set[str] = field(default_factory=set[str])
    limited_until_s: dict[str, float] = field(default_factory=dict[str, float])


class Economy:
    """Weighs guesses, keeps the budgets, and learns from what became of what was said."""

    def __init__(self, gate: BenefitGate | None, budgets: Budgets) -> None:
        """Start with nothing learned; without a `gate` only budgets and switches count."""
        self._gate = gate
        self._switches = _Switches()
        self._rests: LRUCache[tuple[str, str], Rest] = LRUCache(MOST_PAIRS)
        self._samples: dict[str, SampleCount] = {}
        self._recent: dict[str, deque[float]] = {}
        self.odds = Odds()
        self.pace = Pace()
        self.ledger = Ledger(budgets)

    # --- before a guess

    def judge(self, candidate: Candidate, moment: Moment) -> Judgement:
        """Say whether `candidate` may run now; if so, its price is reserved."""
        refusal = self._barred(candidate, moment) or self._doubted(candidate, moment)
        if refusal is not None:
            return Judgement(refusal=refusal)
        charge = Charge(
            calls=1,
            usd=candidate.contract.cost_usd or 0.0,
            tool_s=self.pace.tool_s(candidate.tool),
        )
        reservation = self.ledger.reserve(charge, moment.payers, moment.now_s)
        if reservation is None:
            return Judgement(refusal="over_budget")
        self.called(candidate.tool, candidate.contract, moment.now_s)
        return Judgement(reservation=reservation)

    def _barred(self, candidate: Candidate, moment: Moment) -> GuessVerdict | None:
        switches = self._switches
        if candidate.tool in switches.tools or self.is_off(moment.tenant):
            return "switched_off"
        full = self._room_used(candidate.tool, candidate.contract, moment.now_s) >= 1
        limited = moment.now_s < switches.limited_until_s.get(candidate.tool, -math.inf)
        return "rate_limited" if full or limited else None

    def _doubted(self, candidate: Candidate, moment: Moment) -> GuessVerdict | None:
        gate = self._gate
        if gate is None:
            return None
        rest = self._rest(candidate.source, candidate.tool, gate)
        warm_up = moment.warm_up if gate.warm_up is None else gate.warm_up
        # A call of a later turn is not scored by this turn's answer: only by having run.
        scored = moment.turns_ahead == 0
        if scored and self._rest(candidate.source, "", gate).guesses < warm_up:
            return "warming_up"
        if rest.resting and (scored or rest.skips()):
            return "backing_off"
        tool, odds = candidate.tool, candidate.confidence
        if not rest.resting:  # a probe is taken at its word
            odds = self.odds.estimate(candidate.source, tool, odds)
        room = 1 - self._room_used(tool, candidate.contract, moment.now_s)
        pays = gate.pays(
            odds,
            self.pace.hideable_s(tool, moment.elapsed_s, moment.turns_ahead),
            (candidate.contract.cost_usd or 0.0) / room,
            self.pace.tool_s(tool) / room,
        )
        return None if pays else "not_worth"

    def samples(
        self,
        source: str,
        most: int,
        *,
        alike: bool = True,
        free: bool = False,
        tenant: str | None = None,
    ) -> int:
        """Say how many samples of `source` this turn is worth, from 0 to `most`.

        Where they are not `alike`, as those of several members, it is all or none of them.
        To be asked once per turn: a source that rests is tried again after some turns, unless
        asking it is `free`. For a tenant that is switched off nobody is asked.
        """
        gate = self._gate
        if self.is_off(tenant):
            return 0
        if gate is None or most == 0:
            return most
        if not free and self._rest(source, "", gate).skips():
            return 0
        if not (gate.adapt_samples and alike) or most == 1:
            return most
        count = self._samples.get(source)
        if count is None or count.most != most:
            count = self._samples[source] = SampleCount(most)
        return count.asked

    def is_off(self, tenant: str | None) -> bool:
        """Say whether `tenant` is switched off: then nobody is asked."""
        return tenant in self._switches.tenants

    # --- after a turn

    def committed(self, said: Sequence[Said], keys: Collection[str]) -> list[tuple[Said, bool]]:
        """Learn which of a turn's guesses came true: those whose key is among `keys`.

        Returns:
            Each source's guess at a call, once, and whether it came true.
        """
        scored = [(each, each.key in keys) for each in _once(said)]
        gate = self._gate
        for each, came_true in scored:
            self.odds.seen(each.source, each.tool, each.confidence, came_true)
            # Who says that a call is unlikely is not wrong when it does not come.
            if gate is not None and (came_true or each.confidence >= gate.min_hit_rate):
                for name in (each.tool, ""):
                    self._rest(each.source, name, gate).seen(came_true=came_true)
        right = {(each.source, each.key) for each, came_true in scored if came_true}
        for source, count in self._samples.items():
            if any(each.source == source for each in said):
                count.seen(last_alone=_last_alone(said, source, count.asked - 1, right))
        return scored

    def limited(self, tool: str, until_s: float) -> None:
        """Note that the service behind `tool` wants to be left alone until then."""
        before_s = self._switches.limited_until_s.get(tool, until_s)
        self._switches.limited_until_s[tool] = max(before_s, until_s)

    def called(self, tool: str, contract: Contract, now_s: float) -> None:
        """Count a call, early or committed, against what the service allows per minute."""
        if contract.calls_per_minute is not None:
            most = math.ceil(contract.calls_per_minute)
            self._recent.setdefault(tool, deque(maxlen=most)).append(now_s)

    def _room_used(self, tool: str, contract: Contract, now_s: float) -> float:
        """Return the share that is used up of the whole calls which the service allows at once.

        Two and a half a minute are three in 72 seconds.
        """
        rate, times = contract.calls_per_minute, self._recent.get(tool)
        if rate is None or times is None:
            return 0.0
        most = math.ceil(rate)
        while times and now_s - times[0] >= MINUTE_S * most / rate:
            times.popleft()
        return len(times) / most

    # --- switches

    def switch(self, *, on: bool, tool: str | None, tenant: str | None) -> None:
        """Let guesses for a tool, or for a tenant, run or not."""
        for name, off in ((tool, self._switches.tools), (tenant, self._switches.tenants)):
            if name is not None:
                (off.discard if on else off.add)(name)

    def _rest(self, source: str, tool: str, gate: BenefitGate) -> Rest:
        rest = self._rests.get((source, tool))
        if rest is None:
            rest = Rest(min_hit_rate=gate.min_hit_rate, patience=gate.patience)
            self._rests[source, tool] = rest
        return rest


def _once(said: Sequence[Said]) -> list[Said]:
    """Return each source's guess at a call once, with the confidence it was first given."""
    first: dict[tuple[str, str], Said] = {}
    for each in said:
        first.setdefault((each.source, each.key), each)
    return [*first.values()]


def _last_alone(
    said: Sequence[Said], source: str, last: int, right: Collection[tuple[str, str]]
) -> bool:
    """Say whether only sample number `last` had one of the calls that came true."""
    by = Counter(
        (each.key, each.sample == last)
        for each in said
        if each.source == source and (source, each.key) in right
    )
    return any(is_last and not by[key, False] for key, is_last in by)
