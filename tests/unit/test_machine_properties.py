"""Whatever the interleaving: nothing is served that may not be, and every flight ends once.

The rules are judged by a second book-keeping, made of what happened and when; it shares no code
with the machine's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from langchain_spectool._core import flight as flight_module
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Landing, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.run import Claim, InFlight, RunMachine
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn

KEPT = 2
"""Few enough that flights are pushed out all the time."""
CONTRACTS = {
    "read": Contract(tags=frozenset({"db"})),
    "fresh": Contract(fresh_for_s=2.0),
    "short": Contract(timeout_s=1.0),
    "long": Contract(reuse="run"),
    "pure": Contract(deterministic=True, tags=frozenset({"db"})),
    "pure_fresh": Contract(deterministic=True, fresh_for_s=2.0),
    "pure_long": Contract(deterministic=True, reuse="run", timeout_s=1.0),
}
"""By tool; a call's key is its tool's name and one letter."""
WRITE = "write"

Thing = TypeVar("Thing")

keys = st.builds("{} {}".format, st.sampled_from(sorted(CONTRACTS)), st.sampled_from("ab"))
calls = st.lists(st.one_of(keys, st.just(WRITE)), max_size=4)
landings: st.SearchStrategy[Landing] = st.sampled_from(
    ["landed", "landed", "landed", "failed", "tainted", "cancelled"]
)
pick = st.integers(0, 10_000)


def _contract(key: str) -> Contract:
    return CONTRACTS[key.split(maxsplit=1)[0]]


@dataclass(eq=False)
class Log:
    """What is known of a flight from outside."""

    flight: Flight
    started: int
    """How many events there had been."""
    started_s: float
    body_key: str
    outcome: Landing | None = None
    served: int = 0
    discards: int = 0


@dataclass(eq=False)
class Call:
    """A committed call, from the plan to its end."""

    turn: Turn
    booking: Booking
    fenced: bool
    planned: int
    """How many events there had been when its flight was bound."""
    claims: int = 0
    served: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Waiting:
    call: Call
    claim: Claim
    body_key: str | None


@dataclass
class Event:
    """The world changed: by a call of `writer`, or by an invalidation of `tags`."""

    writer: Turn | None = None
    tags: frozenset[str] | None = None
    invalidates: bool = False


@dataclass
class Books:
    """All that happened."""

    events: list[Event] = field(default_factory=list[Event])
    logs: dict[Flight, Log] = field(default_factory=dict[Flight, Log])
    calls: list[Call] = field(default_factory=list[Call])
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    writers: list[Turn | None] = field(default_factory=list[Turn | None])

    def objections(self, call: Call, log: Log, body_key: str | None, now_s: float) -> list[str]:
        """Say why `log`'s flight must not answer `call` now, the landing aside."""
        contract = log.flight.contract
        since, own = self.events[log.started : call.planned], self.events[call.planned :]
        rules = {
            "values": body_key is None or body_key != log.body_key,
            "scope": log.flight.scope != call.turn.scope,
            "fence": call.fenced,
            "shadow": log.flight.shadow or call.turn.shadow,
            "retry": call.claims > 1,
            "over": call.turn.phase == "closed",
            "discarded": log.discards > 0,
            "taken": log.served > 0 and not contract.deterministic,
            "brought nothing": log.outcome not in (None, "landed"),
            "stale": contract.fresh_for_s is not None
            and now_s - log.started_s > contract.fresh_for_s,
            "epoch": any(not event.invalidates for event in since)
            or any(not event.invalidates and event.writer is not call.turn for event in own),
            "invalidated": any(
                event.invalidates
                and (event.tags is None or not contract.tags.isdisjoint(event.tags))
                for event in self.events[log.started :]
            ),
        }
        return [name for name, holds in rules.items() if holds]


class Interleavings(RuleBasedStateMachine):
    """Plays a driver that does everything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = RunMachine()
        self.policy = Policy(guesses_per_turn=6, in_flight_per_run=8, timeout_s=5.0)
        self.books = Books()
        self.turns: list[Turn] = []
        self.step = 1
        self.now_s = 0.0
        self.patched = patch.object(flight_module, "KEPT_PER_SCOPE", KEPT)
        self.patched.start()

    # --- turns and guesses

    @initialize()
    def first_turn(self) -> None:
        self._open("main", 1, shadow=False)

    @rule(
        scope=st.sampled_from(["main", "main", "sub"]),
        later=st.booleans(),
        known=st.sampled_from([True, True, True, False]),
        shadow=st.sampled_from([False, False, False, True]),
    )
    def opens(self, scope: str, later: bool, known: bool, shadow: bool) -> None:
        self.step += later
        self._open(scope, self.step if known else None, shadow=shadow)

    def _open(self, scope: str, step: int | None, *, shadow: bool) -> None:
        number = len(self.turns)
        turn = Turn(number=number, scope=scope, step=step, started_s=self.now_s, shadow=shadow)
        self.turns.append(turn)
        self._act(self.machine.open(turn))

    @rule(
        which=pick,
        key=keys,
        ordinal=st.integers(0, 1),
        edited=st.sampled_from([False, False, False, True]),
        room=st.sampled_from([True, True, True, False]),
    )
    def guesses(self, which: int, key: str, ordinal: int, edited: bool, room: bool) -> None:
        """Offer a guess; the body may receive other values than predicted."""
        turn = self._one(self.turns[-3:], which)
        candidate = Candidate(
            tool=key.split(maxsplit=1)[0],
            source="draft",
            confidence=1.0,
            contract=_contract(key),
            key=key,
            ordinal=ordinal,
        )
        verdict, flight = self.machine.admit(
            turn, candidate, policy=self.policy, in_flight=InFlight(), now_s=self.now_s
        )
        assert (flight is not None) == (verdict in ("run", "shadow"))
        if flight is None:
            return
        assert not self.machine.writing
        assert turn.guesses <= self.policy.guesses_per_turn
        if room:
            self._flies(flight, f"{key}!" if edited else key)
        else:
            self.machine.grounded(turn, flight)

    def _flies(self, flight: Flight, body_key: str) -> None:
        self.books.logs[flight] = Log(
            flight=flight,
            started=len(self.books.events),
            started_s=self.now_s,
            body_key=body_key,
        )

    @rule(which=pick, state=landings)
    def lands(self, which: int, state: Landing) -> None:
        """An early or a leading run comes back, wanted or not."""
        aloft = [
            log for log in self.books.logs.values() if log.outcome is None and not log.flight.shadow
        ]
        if aloft:
            self._land(self._one(aloft, which), state)

    def _land(self, log: Log, state: Landing) -> None:
        log.outcome = state
        outcome = Outcome(state=state, value=log, body_key=log.body_key)
        discard = self.machine.landed(log.flight, outcome, self.now_s)
        self._act([] if discard is None else [discard])
        log.served += log.flight.lead and log.flight.state == "landed"

    @rule(which=pick)
    def is_taken_back(self, which: int) -> None:
        if log := self._some(self.books.logs.values(), which):
            self._act(self.machine.void(log.flight))

    @rule(which=pick)
    def reaches_its_deadline(self, which: int) -> None:
        late = [log for log in self.books.logs.values() if self.now_s >= log.flight.deadline_s]
        if log := self._some(late, which):
            self._act(self.machine.expire(log.flight))

    @rule(which=pick)
    def fails(self, which: int) -> None:
        """The model fails, and its turn with it."""
        if turn := self._some([t for t in self.turns if t.phase == "open"], which):
            self._act(self.machine.close(turn, "turn_failed"))

    # --- commit and claim

    @rule(which=pick, wanted=calls, truncated=st.sampled_from([False] * 5 + [True]))
    def commits(self, which: int, wanted: list[str], truncated: bool) -> None:
        turn = self._some([t for t in self.turns if t.phase == "open"], which)
        if turn is None:
            return
        guessed = [flight.key for flight in turn.flights][:2]
        names = [*guessed, *wanted] if which % 2 else wanted
        planned = [
            CommittedCall(
                position=place,
                tool=name.split()[0],
                id=str(place % 2),
                args={"key": name},
                key=None if name == WRITE else name,
                contract=None if name == WRITE else _contract(name),
            )
            for place, name in enumerate(names)
        ]
        self._act(self.machine.commit(turn, planned, truncated=truncated, now_s=self.now_s))
        assert len(turn.bookings) == (0 if truncated else len(planned))
        fence = names.index(WRITE) if WRITE in names else len(names)
        for place, booking in enumerate(turn.bookings):
            call = Call(turn, booking, fenced=place > fence, planned=len(self.books.events))
            self.books.calls.append(call)

    @rule(
        which=pick,
        edited=st.sampled_from([None, None, None, "!", "?"]),
        changed=st.sampled_from([False, False, False, True]),
    )
    def claims(self, which: int, edited: str | None, changed: bool) -> None:
        """Any committed call asks, for the first time or again."""
        call = self._some([call for call in self.books.calls if call.booking.call.key], which)
        if call is None:
            return
        key = call.booking.call.key or ""
        body_key = {None: key, "!": f"{key}!", "?": None}[edited]
        bound = call.booking.flight
        claim = self.machine.claim(call.turn, call.booking, body_key, self.now_s)
        self._act([claim.discard])
        call.claims += 1
        if bound is None:
            call.planned = len(self.books.events)
        if claim.action == "lead" and claim.flight is not None:
            assert not call.fenced
            self._flies(claim.flight, body_key or "")
        elif claim.action == "wait":
            self._joins(call, claim, body_key)
        else:
            self._answered(call, claim, body_key, changed=changed)

    def _joins(self, call: Call, claim: Claim, body_key: str | None) -> None:
        log = self._log(claim)
        assert log.outcome is None
        assert self.now_s < log.flight.deadline_s
        assert set(self.books.objections(call, log, body_key, self.now_s)) <= {"values"}
        self.books.waiting.append(Waiting(call, claim, body_key))

    @rule(which=pick, changed=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: bool(self.books.waiting))
    def settles(self, which: int, changed: bool) -> None:
        """A wait ends: by the landing, by the flight's end, or because it cannot go on."""
        waiting = self._one(self.books.waiting, which)
        self.books.waiting.remove(waiting)
        claim = self.machine.settle(waiting.claim, waiting.body_key, self.now_s)
        self._act([claim.discard])
        self._answered(waiting.call, claim, waiting.body_key, changed=changed)

    @rule(which=pick)
    @precondition(lambda self: bool(self.books.waiting))
    def is_cancelled(self, which: int) -> None:
        waiting = self._one(self.books.waiting, which)
        self.books.waiting.remove(waiting)
        self._act(self.machine.forsake(self._log(waiting.claim).flight))

    def _answered(self, call: Call, claim: Claim, body_key: str | None, *, changed: bool) -> None:
        if claim.flight is None:
            return
        log = self._log(claim)
        objections = self.books.objections(call, log, body_key, self.now_s)
        if claim.action != "serve":
            running = log.outcome is None
            assert objections or running, f"refused for nothing: {claim.verdict}"
            return
        assert not objections
        assert log.outcome == "landed"
        assert claim.flight.outcome is not None
        assert claim.flight.outcome.value is log
        if changed:
            taken_back = self.machine.changed(claim.flight)
            self._act([taken_back.discard])
            assert taken_back.action == "run"
        else:
            log.served += 1
            call.served += 1
            assert call.served == 1

    @rule(which=pick)
    def call_ends(self, which: int) -> None:
        if call := self._some([call for call in self.books.calls if not call.ended], which):
            call.ended = True
            self._act(self.machine.ended(call.turn, call.booking, self.now_s))

    # --- the world

    @rule(which=pick, ours=st.booleans())
    def write_begins(self, which: int, ours: bool) -> None:
        writes = [c.turn for c in self.books.calls if c.booking.call.key is None]
        writer = self._some(writes, which) if ours else None
        self.books.writers.append(writer)
        self.books.events.append(Event(writer=writer))
        self._act(self.machine.write_began(writer))

    @rule(which=pick)
    @precondition(lambda self: bool(self.books.writers))
    def write_ends(self, which: int) -> None:
        writer = self.books.writers.pop(which % len(self.books.writers))
        self.books.events.append(Event(writer=writer))
        self._act(self.machine.write_ended(writer))

    @rule(tags=st.sampled_from([None, frozenset({"db"}), frozenset({"files"})]))
    def is_invalidated(self, tags: frozenset[str] | None) -> None:
        self.books.events.append(Event(tags=tags, invalidates=True))
        self._act(self.machine.invalidate(tags))

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    # --- what holds at every moment

    @invariant()
    def kept_flights_can_be_claimed(self) -> None:
        """All of the current epoch, alive, few, and none that a plan has to itself."""
        planned = {f for turn in self.machine.turns for f in turn.flights}
        for flight in self.machine.kept:
            assert flight.available
            assert flight.epoch == self.machine.epoch
            assert flight.contract.deterministic or flight not in planned
            assert len(self.machine.kept.of(flight.scope)) <= KEPT

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """Who waits on a flight that cannot answer has been woken by its discard."""
        for waiting in self.books.waiting:
            log = self._log(waiting.claim)
            if log.outcome is None and not log.discards and not log.flight.contract.deterministic:
                objections = self.books.objections(waiting.call, log, waiting.body_key, self.now_s)
                assert set(objections) <= {"values", "stale"}

    @invariant()
    def limits_hold(self) -> None:
        """Committed calls' own runs take no room."""
        early = [
            log
            for log in self.books.logs.values()
            if log.flight.state == "running" and not (log.flight.shadow or log.flight.lead)
        ]
        assert len(early) <= self.policy.in_flight_per_run

    @invariant()
    def counts_stay_whole(self) -> None:
        for log in self.books.logs.values():
            assert log.flight.waiters >= 0
            assert log.flight.answers >= 0
            assert not (log.served and log.discards)
            assert log.discards <= 1

    def teardown(self) -> None:
        """End the run: everything has ended once, and nothing is left."""
        try:
            self._act(self.machine.end())
            for waiting in self.books.waiting:
                claim = self.machine.settle(waiting.claim, waiting.body_key, self.now_s)
                assert claim.action == "run"
                self._act([claim.discard])
            for writer in self.books.writers:
                self._act(self.machine.write_ended(writer))
            for log in self.books.logs.values():
                if log.outcome is None:
                    self._land(log, "landed")
                scored = log.flight.shadow and log.flight.answers > 0
                assert (log.served > 0 or scored) + log.discards == 1
            assert self.machine.idle
            assert not [*self.machine.kept]
        finally:
            self.patched.stop()

    # --- the driver

    def _act(self, discards: Sequence[Discard | None]) -> None:
        for discard in discards:
            if discard is not None:
                log = self.books.logs[discard.flight]
                log.discards += 1
                assert discard.flight.state not in ("running", "landed")

    def _log(self, claim: Claim) -> Log:
        assert claim.flight is not None
        return self.books.logs[claim.flight]

    def _one(self, things: Sequence[Thing], which: int) -> Thing:
        return things[which % len(things)]

    def _some(self, things: Iterable[Thing], which: int) -> Thing | None:
        found = [*things]
        return found[which % len(found)] if found else None


Interleavings.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


class TestMachine(Interleavings.TestCase):
    """Runs the interleavings."""
