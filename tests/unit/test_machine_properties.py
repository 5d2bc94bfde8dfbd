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
from langchain_spectool._core.claim import Claim, InFlight
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Landing, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.run import RunMachine
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn
from langchain_spectool._core.verdicts import DiscardReason

KEPT = 2
"""Few enough that flights are pushed out all the time."""
WRITE = "write"
"""A committed call of a tool nobody declared."""
CONTRACTS = [
    Contract(tags=frozenset({"db"})),
    Contract(fresh_for_s=2.0),
    Contract(timeout_s=1.0),
    Contract(reuse="run"),
    Contract(reuse="run", fresh_for_s=2.0, tags=frozenset({"db"})),
    Contract(deterministic=True, tags=frozenset({"db"})),
    Contract(deterministic=True, fresh_for_s=2.0),
    Contract(deterministic=True, reuse="run", timeout_s=1.0),
]

Thing = TypeVar("Thing")

keys = st.sampled_from("aab")
answers = st.sampled_from(
    [
        ("a",),
        ("a", "a"),
        ("a", WRITE),
        ("a", "a", WRITE),
        ("a", "b", WRITE, "a"),
        ("b", "a"),
        (WRITE, "a"),
        ("b",),
        (),
    ]
)
"""The calls of a turn."""
pick = st.integers(0, 7)
seldom = st.sampled_from([False, False, False, False, True])
afters = st.sampled_from(["taken", "taken", "taken", "taken", "changed", "returned"])
"""What becomes of an answer: taken, refused by `freshness`, or lost with a cancelled call."""
landings: st.SearchStrategy[Landing] = st.sampled_from(
    ["landed", "landed", "landed", "landed", "failed", "tainted", "cancelled"]
)
edits: st.SearchStrategy[str | None] = st.sampled_from(["", "", "", "", "!", None])
"""What is added to the predicted values on their way to the body; None: they cannot be told."""

MISHAPS: Sequence[DiscardReason] = (
    "no_room",
    "changed",
    "cancelled",
    "voided",
    "expired",
    "unclaimed",
    "run_ended",
)
"""Why a flight may be gone although nothing speaks against its answer; the last two, because
the turn or the run ended first."""


@dataclass(eq=False)
class Log:
    """What is known of a flight from outside."""

    flight: Flight
    started: int
    """How many times the world had changed."""
    started_s: float
    body_key: str | None
    turn: Turn | None = None
    """The turn that guessed it; None for a committed call's own run."""
    links: list["Log"] = field(default_factory=list["Log"])
    """The early runs on whose results it was guessed."""
    direct: bool = True
    """Whether it was guessed as a call of its own turn, too."""
    expected: bool = False
    """Whether a turn has planned one of its links."""
    outcome: Landing | None = None
    served: int = 0
    discards: int = 0
    reason: DiscardReason | None = None

    @property
    def alive(self) -> bool:
        """Whether it may still answer a call, for all that the driver was told."""
        free = not self.served or self.flight.contract.deterministic
        return free and not self.discards and self.outcome in (None, "landed")

    @property
    def lost(self) -> bool:
        """Whether no call has its result, or ever will."""
        return not self.served and (self.discards > 0 or self.outcome not in (None, "landed"))


@dataclass(eq=False)
class Call:
    """A committed call, from the plan to its end."""

    turn: Turn
    booking: Booking
    fenced: bool
    bound: int
    """How many times the world had changed when its flight was chosen."""
    claims: int = 0
    served: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Waiting:
    """A committed call that waits for its flight."""

    call: Call
    claim: Claim
    log: Log
    body_key: str | None


@dataclass(frozen=True)
class Change:
    """The world changed: by a call of `writer`, or as an invalidation of `tags` says."""

    writer: Turn | None = None
    invalidates: bool = False
    tags: frozenset[str] | None = None

    def spoils(self, contract: Contract) -> bool:
        return self.invalidates and (self.tags is None or not contract.tags.isdisjoint(self.tags))


@dataclass
class Books:
    """All that happened."""

    changes: list[Change] = field(default_factory=list[Change])
    logs: dict[Flight, Log] = field(default_factory=dict[Flight, Log])
    calls: list[Call] = field(default_factory=list[Call])
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    writers: list[Turn | None] = field(default_factory=list[Turn | None])

    def objections(self, call: Call, log: Log, body_key: str | None, now_s: float) -> set[str]:
        """Say why the flight of `log` must not answer `call` now, the landing aside."""
        contract = log.flight.contract
        fresh_for_s = contract.fresh_for_s
        before, after = self.changes[log.started : call.bound], self.changes[call.bound :]
        rules = {
            "values": body_key is None or body_key != log.body_key,
            "scope": log.flight.scope != call.turn.scope,
            "fence": call.fenced,
            "shadow": log.flight.shadow or call.turn.shadow,
            "discarded": log.discards > 0,
            "taken": log.served > 0 and not contract.deterministic,
            "link": not self.belongs(log, call.turn),
            "outcome": log.outcome not in (None, "landed"),
            "age": fresh_for_s is not None and now_s - log.started_s > fresh_for_s,
            "epoch": any(not change.invalidates for change in before)
            or any(not (change.invalidates or change.writer is call.turn) for change in after),
            "invalidated": any(change.spoils(contract) for change in self.changes[log.started :]),
        }
        return {name for name, holds in rules.items() if holds}

    @staticmethod
    def belongs(log: Log, turn: Turn) -> bool:
        """Say whether a guess may reach `turn`: a chain's does if its link was called before."""
        stays = log.flight.contract.reuse == "run" or log.served > 0
        return not log.links or stays or log.turn is turn or log.expected

    def planned(self, log: Log) -> list[Call]:
        """Return the calls that are to have the flight of `log`."""
        held = [call for call in self.calls if call.turn.phase == "committed"]
        return [call for call in held if call.booking.flight is log.flight]


class Interleavings(RuleBasedStateMachine):
    """Plays a driver that does everything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = RunMachine()
        self.policy = Policy(guesses_per_turn=5, in_flight_per_run=6, timeout_s=5.0)
        self.books = Books()
        self.turns: list[Turn] = []
        self.step = 1
        self.now_s = 0.0
        self.patched = patch.object(flight_module, "KEPT_PER_SCOPE", KEPT)
        self.patched.start()

    @initialize(contract=st.sampled_from(CONTRACTS), other=st.sampled_from(CONTRACTS))
    def begins(self, contract: Contract, other: Contract) -> None:
        """Two tools will do: the rarer the collisions, the less is learned."""
        self.contracts = {"a": contract, "b": other}
        self._open("main", 1, shadow=False)

    @rule(names=answers, same_step=seldom, lands=st.booleans())
    def is_guessed_right(self, names: tuple[str, ...], same_step: bool, lands: bool) -> None:
        """Most of the time all goes well; from there, everything else happens."""
        self.step += not same_step
        turn = self._open("main", self.step, shadow=False)
        for place, name in enumerate(names):
            if name != WRITE:
                self._guess(turn, name, names[:place].count(name), "")
        if lands:
            self.all_land()
        self._commit(turn, names, truncated=False)

    # --- turns and guesses

    @rule(elsewhere=seldom, later=st.booleans(), unknown=seldom, shadow=seldom)
    def opens(self, elsewhere: bool, later: bool, unknown: bool, shadow: bool) -> None:
        self.step += later
        scope = "elsewhere" if elsewhere else "main"
        self._open(scope, None if unknown else self.step, shadow=shadow)

    def _open(self, scope: str, step: int | None, *, shadow: bool) -> Turn:
        turn = Turn(
            number=len(self.turns), scope=scope, step=step, started_s=self.now_s, shadow=shadow
        )
        self.turns.append(turn)
        # A write that nobody asked us about ran elsewhere before this turn, or never.
        if any(other.precedes(turn) and other.wrote_unseen for other in self.machine.turns):
            self.books.changes.append(Change(writer=None))
        self._act(*self.machine.open(turn))
        return turn

    @rule(which=pick, key=keys, ordinal=st.integers(0, 1), edit=edits, grounded=seldom)
    def guesses(self, which: int, key: str, ordinal: int, edit: str | None, grounded: bool) -> None:
        if turn := self._some(self.turns, which):
            self._guess(turn, key, ordinal, edit, grounded=grounded)

    def _guess(  # noqa: PLR0913 - all that a guess may be
        self,
        turn: Turn,
        key: str,
        ordinal: int,
        edit: str | None,
        *,
        grounded: bool = False,
        link: Log | None = None,
    ) -> None:
        candidate = Candidate(
            tool=key,
            source="draft",
            confidence=1.0,
            contract=self.contracts[key],
            key=key,
            ordinal=ordinal,
            parent=None if link is None else link.flight,
        )
        verdict, flight = self.machine.admit(
            turn, candidate, policy=self.policy, in_flight=InFlight(), now_s=self.now_s
        )
        assert (flight is not None) == (verdict in ("run", "shadow"))
        if link is not None and link.lost:
            assert verdict == "late"
        if verdict == "duplicate":
            self._guessed_again(turn, key, link)
        if flight is None:
            return
        assert not self.books.writers
        assert turn.guesses <= self.policy.guesses_per_turn
        if grounded:
            self.machine.grounded(turn, flight)
        else:
            log = self._flies(flight, None if edit is None else key + edit)
            log.turn, log.direct = turn, link is None
            log.links += [] if link is None else [link]

    def _guessed_again(self, turn: Turn, key: str, link: Log | None) -> None:
        """It is not said which of several equal flights has one more reason to be there."""
        for log in self.books.logs.values():
            if log.alive and log.flight.key == key and log.flight.scope == turn.scope:
                log.direct |= link is None
                log.links += [] if link is None else [link]

    def _flies(self, flight: Flight, body_key: str | None) -> Log:
        log = Log(flight, len(self.books.changes), self.now_s, body_key=body_key)
        self.books.logs[flight] = log
        return log

    @property
    def linkable(self) -> list[Log]:
        """What has landed in its own turn, dropped since or not."""
        logs = self.books.logs.values()
        return [log for log in logs if log.outcome == "landed" and log.turn in self.open_turns]

    @precondition(lambda self: self.linkable)
    @rule(which=pick, key=keys, edit=edits)
    def chains(self, which: int, key: str, edit: str | None) -> None:
        """A call is guessed on the result of an early run."""
        if (link := self._some(self.linkable, which)) and link.turn:
            self._guess(link.turn, key, 0, edit, link=link)

    @rule(first=keys, second=keys, lands=st.booleans(), called=keys, side_by_side=seldom)
    def chain_is_guessed_right(
        self, first: str, second: str, lands: bool, called: str, side_by_side: bool
    ) -> None:
        """A turn calls what it was expected to, most of the time, and the next one may."""
        self.step += 1
        turn = self._open("main", self.step, shadow=False)
        if side_by_side:
            self._open("main", self.step, shadow=False)
        self._guess(turn, first, 0, "")
        self.all_land()
        for link in [log for log in self.linkable if log.turn is turn and log.alive]:
            self._guess(turn, second, 0, "", link=link)
        if lands:
            self.all_land()
        self._commit(turn, (called,), truncated=False)

    @property
    def aloft(self) -> list[Log]:
        logs = self.books.logs.values()
        return [log for log in logs if log.outcome is None and not log.flight.shadow]

    @precondition(lambda self: self.aloft)
    @rule(which=pick, state=landings)
    def lands(self, which: int, state: Landing) -> None:
        """An early or a leading run comes back, wanted or not."""
        if log := self._some(self.aloft, which):
            self._land(log, state)

    @precondition(lambda self: self.aloft)
    @rule()
    def all_land(self) -> None:
        for log in self.aloft:
            self._land(log, "landed")

    def _land(self, log: Log, state: Landing) -> None:
        log.outcome = state
        outcome = Outcome(state=state, value=log, body_key=log.body_key)
        self._act(self.machine.landed(log.flight, outcome, self.now_s))
        log.served += log.flight.lead and log.flight.state == "landed"

    @property
    def open_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.phase == "open"]

    @rule(which=pick, guess=st.booleans())
    def is_taken_back(self, which: int, guess: bool) -> None:
        """The stream goes on writing a call, or the model fails and its turn with it."""
        if guess and (log := self._some(self.aloft, which)):
            self._act(*self.machine.void(log.flight))
        elif turn := self._some(self.open_turns, which):
            self._act(*self.machine.close(turn, "turn_failed"))

    # --- commit and claim

    @precondition(lambda self: self.open_turns)
    @rule(
        which=pick,
        names=answers,
        truncated=seldom,
    )
    def commits(self, which: int, names: tuple[str, ...], truncated: bool) -> None:
        if turn := self._some(self.open_turns, which):
            self._commit(turn, names, truncated=truncated)

    def _commit(self, turn: Turn, names: tuple[str, ...], *, truncated: bool) -> None:
        calls = [
            CommittedCall(
                position=place,
                tool=name,
                id=str(place),
                args={},
                key=None if name == WRITE else name,
                contract=self.contracts.get(name),
            )
            for place, name in enumerate(names)
        ]
        waiting = self._awaited(turn)
        self._act(*self.machine.commit(turn, calls, truncated=truncated, now_s=self.now_s))
        assert len(turn.bookings) == (0 if truncated else len(names))
        fence = names.index(WRITE) if WRITE in names else len(names)
        self.books.calls += [
            Call(turn, booking, fenced=place > fence, bound=len(self.books.changes))
            for place, booking in enumerate(turn.bookings)
        ]
        if turn.bookings:
            self._chains_go_on(turn, waiting)

    def _awaited(self, turn: Turn) -> list[Log]:
        """Return the guesses of chains that `turn` may call: its own, and those kept for it."""
        return [
            log
            for log in self.books.logs.values()
            if log.links and log.alive and not (log.served or log.flight.shadow or turn.shadow)
            if log.flight.scope == turn.scope and not self.books.planned(log)
            if log.turn is turn or (log.turn and log.turn.phase != "open")
        ]

    def _chains_go_on(self, turn: Turn, awaited: Sequence[Log]) -> None:
        """What was expected and is called has its flight; what is expected next stays."""
        calls = [call for call in self.books.calls if call.turn is turn]
        missed = {
            call.booking.call.key for call in calls if not (call.fenced or call.booking.flight)
        }
        for log in awaited:
            usable = log.flight.overdue(self.now_s) is None and not self.books.planned(log)
            assert not (usable and log.flight.key in missed), "left out"
        logs = self.books.logs.values()
        for log in logs:
            if any(self.books.planned(link) or link.expected for link in log.links):
                log.expected |= log.turn is not None and log.turn.phase != "open"
        for log in awaited:
            if any(call.turn is turn for link in log.links for call in self.books.planned(link)):
                assert log.reason in (None, "no_room")

    @property
    def unclaimed(self) -> list[Call]:
        return [call for call in self.books.calls if call.booking.call.key and not call.claims]

    @precondition(lambda self: self.unclaimed)
    @rule(which=pick, edit=edits, after=afters)
    def claims(self, which: int, edit: str | None, after: str) -> None:
        if call := self._some(self.unclaimed, which):
            self._claim(call, edit, after=after)

    @precondition(lambda self: self.unclaimed)
    @rule()
    def all_claim(self) -> None:
        for call in self.unclaimed:
            self._claim(call, "", after="taken")

    @precondition(lambda self: any(call.claims for call in self.books.calls))
    @rule(which=pick)
    def retries(self, which: int) -> None:
        if call := self._some([call for call in self.books.calls if call.claims], which):
            self._claim(call, "", after="taken")

    def _claim(self, call: Call, edit: str | None, *, after: str) -> None:
        body_key = None if edit is None else f"{call.booking.call.key}{edit}"
        if call.booking.flight is None:
            call.bound = len(self.books.changes)
        call.claims += 1
        over = call.claims > 1 or call.turn.phase == "closed"
        claim = self.machine.claim(call.turn, call.booking, body_key, self.now_s)
        if claim.action == "lead":
            assert claim.flight is not None
            assert not call.fenced
            assert not call.turn.shadow
            self._flies(claim.flight, body_key)
        self._act(*claim.discards)
        if over:
            assert claim == Claim(action="run", verdict="no_guess")
        elif claim.action == "wait":
            self._joins(call, claim, body_key)
        elif claim.action != "lead":
            self._answered(call, claim, body_key, after=after)

    def _joins(self, call: Call, claim: Claim, body_key: str | None) -> None:
        assert claim.flight is not None
        log = self.books.logs[claim.flight]
        assert log.outcome is None
        assert self.now_s < log.flight.deadline_s
        assert self.books.objections(call, log, body_key, self.now_s) <= {"values"}
        self.books.waiting.append(Waiting(call, claim, log, body_key))

    @precondition(lambda self: self.books.waiting)
    @rule(which=pick, after=afters)
    def settles(self, which: int, after: str) -> None:
        """A wait ends: by the landing, by the flight's end, or because it cannot go on."""
        if waiting := self._some(self.books.waiting, which):
            self._settle(waiting, after=after)

    def _settle(self, waiting: Waiting, *, after: str) -> None:
        self.books.waiting.remove(waiting)
        claim = self.machine.settle(waiting.claim, waiting.body_key, self.now_s)
        self._act(*claim.discards)
        self._answered(waiting.call, claim, waiting.body_key, after=after)

    @precondition(lambda self: self.books.waiting)
    @rule(which=pick)
    def is_cancelled(self, which: int) -> None:
        if waiting := self._some(self.books.waiting, which):
            self.books.waiting.remove(waiting)
            self._act(*self.machine.forsake(waiting.log.flight))

    def _answered(self, call: Call, claim: Claim, body_key: str | None, *, after: str) -> None:
        if claim.flight is None:
            assert claim.action == "run"
            return
        log = self.books.logs[claim.flight]
        objections = self.books.objections(call, log, body_key, self.now_s)
        if claim.action != "serve":
            # One that has answered others goes without a word.
            gone = log.served > 0 and log.flight.state == "cancelled"
            mishap = log.outcome is None or log.reason in MISHAPS or gone
            assert mishap or objections - {"discarded"}, f"refused for nothing: {claim.verdict}"
            return
        assert not objections
        assert claim.flight.outcome is not None
        assert claim.flight.outcome.value is log
        assert log.outcome == "landed"
        if after == "changed":
            self._act(*self.machine.changed(claim.flight).discards)
        elif after == "returned":
            self._act(*self.machine.returned(claim.flight))
        else:
            log.served += 1
            call.served += 1
            assert call.served == 1

    @precondition(lambda self: self.books.calls)
    @rule(which=pick)
    def call_ends(self, which: int) -> None:
        if call := self._some([call for call in self.books.calls if not call.ended], which):
            call.ended = True
            self._act(*self.machine.ended(call.turn, call.booking, self.now_s))

    # --- the world

    @rule(which=pick, unknown=seldom)
    def write_begins(self, which: int, unknown: bool) -> None:
        """A planned undeclared call starts, or one that we know nothing of."""
        writes = [call.turn for call in self.books.calls if call.booking.call.key is None]
        writer = None if unknown else self._some(writes, which)
        self.books.writers.append(writer)
        self.books.changes.append(Change(writer=writer))
        self._act(*self.machine.write_began(writer))

    @rule(which=pick)
    def writes(self, which: int) -> None:
        """A planned undeclared call runs while nothing else happens."""
        self.write_begins(which, unknown=False)
        self.write_ends(-1)

    @precondition(lambda self: self.books.writers)
    @rule(which=pick)
    def write_ends(self, which: int) -> None:
        writer = self.books.writers.pop(which % len(self.books.writers))
        self.books.changes.append(Change(writer=writer))
        self._act(*self.machine.write_ended(writer))

    @rule(tags=st.sampled_from([None, frozenset({"db"}), frozenset({"files"})]))
    def is_invalidated(self, tags: frozenset[str] | None) -> None:
        self.books.changes.append(Change(invalidates=True, tags=tags))
        self._act(*self.machine.invalidate(tags))

    @rule(seconds=st.sampled_from([0.5, 3.0]), timers=st.booleans())
    def time_passes(self, seconds: float, timers: bool) -> None:
        """Not every driver has timers: a deadline may go by unnoticed."""
        self.now_s += seconds
        for log in self.aloft if timers else ():
            if self.now_s >= log.flight.deadline_s:
                self._act(*self.machine.expire(log.flight))

    # --- what holds at every moment

    @invariant()
    def kept_flights_can_be_claimed(self) -> None:
        """All of the current epoch, alive, few, and none that a plan has to itself."""
        planned = {flight for turn in self.machine.turns for flight in turn.flights}
        for flight in self.machine.kept:
            assert flight.available
            assert flight.epoch == self.machine.epoch
            assert flight.contract.deterministic or flight not in planned
            assert len(self.machine.kept.of(flight.scope)) <= KEPT

    @invariant()
    def broken_link_cancels_its_tail(self) -> None:
        """At once; what the plan gives to a call is no guess any more."""
        for log in self.books.logs.values():
            hangs = bool(log.links) and not log.direct and all(link.lost for link in log.links)
            wanted = log.served or self.books.planned(log) or log.flight.waiters
            assert not (hangs and log.alive and not wanted)

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """Who waits on a flight that cannot answer has been woken by its discard.

        Its values and its age show when it lands. A deterministic one may still answer others.
        """
        for waiting in self.books.waiting:
            log = waiting.log
            if log.outcome is None and not (log.discards or log.flight.contract.deterministic):
                objections = self.books.objections(waiting.call, log, waiting.body_key, self.now_s)
                assert objections <= {"values", "age"}

    @invariant()
    def room_holds(self) -> None:
        """Committed calls' own runs take none."""
        early = [log for log in self.aloft if log.flight.state == "running"]
        count = sum(not log.flight.lead for log in early)
        assert count <= self.policy.in_flight_per_run

    @invariant()
    def flights_end_once(self) -> None:
        for log in self.books.logs.values():
            assert log.discards <= 1
            assert not (log.served and log.discards)
            waiting = sum(other.log is log for other in self.books.waiting)
            leading = log.flight.lead and log.flight.landed_s is None
            assert log.flight.waiters == waiting + leading
            assert log.flight.shadow or log.flight.answers == log.served

    def teardown(self) -> None:
        """End the run: everything has ended once, and nothing is left."""
        self.patched.stop()
        self._act(*self.machine.end())
        for waiting in self.books.waiting:
            claim = self.machine.settle(waiting.claim, waiting.body_key, self.now_s)
            assert claim.action == "run"
            self._act(*claim.discards)
        for writer in self.books.writers:
            self._act(*self.machine.write_ended(writer))
        for log in self.aloft:
            self._land(log, "landed")
        for log in self.books.logs.values():
            answered = log.flight.answers if log.flight.shadow else log.served
            assert bool(answered) + log.discards == 1
        assert self.machine.idle
        assert not [*self.machine.kept]

    # --- the driver

    def _act(self, *discards: Discard | None) -> None:
        for discard in discards:
            if discard is not None:
                assert discard.flight.state not in ("running", "landed")
                log = self.books.logs[discard.flight]
                log.discards += 1
                log.reason = discard.reason

    def _some(self, things: Iterable[Thing], which: int) -> Thing | None:
        """Pick one of `things`, the latest for 0."""
        found: Sequence[Thing] = [*things]
        return found[-1 - which % len(found)] if found else None


Interleavings.TestCase.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


class TestMachine(Interleavings.TestCase):
    """Runs the interleavings."""
