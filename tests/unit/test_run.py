"""The machine's rules, one test each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from langchain_spectool._core.claim import Claim, InFlight
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import KEPT_PER_SCOPE, Flight, Landing, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.run import RunMachine
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn
from langchain_spectool._core.verdicts import DiscardReason, GuessVerdict

READ = Contract()
PURE = Contract(deterministic=True)
RUN_LONG = Contract(reuse="run")
WRITE = "write"
"""A committed call of a tool nobody declared."""


@dataclass
class World:
    """A machine, a clock, and short ways to say what happens.

    A call is named by its key; its body receives values of that same key.
    """

    machine: RunMachine = field(default_factory=RunMachine)
    policy: Policy = field(default_factory=Policy)
    now_s: float = 0.0
    discards: list[Discard] = field(default_factory=list[Discard])

    def turn(self, step: int | None = 1, scope: str = "main", **fields: Any) -> Turn:
        turn = Turn(number=1, scope=scope, step=step, started_s=self.now_s, **fields)
        self.discards += self.machine.open(turn)
        return turn

    def offer(
        self, turn: Turn, key: str | None = "a", contract: Contract = READ, **fields: Any
    ) -> tuple[GuessVerdict, Flight | None]:
        in_flight, judge = fields.pop("in_flight", InFlight()), fields.pop("judge", None)
        candidate = Candidate(
            tool="look",
            source="draft",
            confidence=fields.pop("confidence", 1.0),
            contract=contract,
            key=key,
            **fields,
        )
        return self.machine.admit(
            turn,
            candidate,
            policy=self.policy,
            in_flight=in_flight,
            now_s=self.now_s,
            judge=judge,
        )

    def guess(self, turn: Turn, key: str = "a", contract: Contract = READ, **fields: Any) -> Flight:
        verdict, flight = self.offer(turn, key, contract, **fields)
        assert flight is not None, verdict
        return flight

    def land(self, flight: Flight, state: Landing = "landed", body_key: str | None = "") -> None:
        key = flight.key if body_key == "" else body_key
        discard = self.machine.landed(
            flight, Outcome(state=state, value=object(), body_key=key), self.now_s
        )
        self.discards += [] if discard is None else [discard]

    def commit(
        self,
        turn: Turn,
        *keys: str,
        contract: Contract = READ,
        truncated: bool = False,
    ) -> Sequence[Booking]:
        calls = [
            CommittedCall(
                position=place,
                tool="look",
                id=str(place),
                args={"query": key},
                key=None if key == WRITE else key,
                contract=None if key == WRITE else contract,
            )
            for place, key in enumerate(keys)
        ]
        self.discards += self.machine.commit(turn, calls, truncated=truncated, now_s=self.now_s)
        return turn.bookings

    def claim(self, turn: Turn, booking: Booking, body_key: str | None = "") -> Claim:
        key = booking.call.key if body_key == "" else body_key
        claim = self.machine.claim(turn, booking, key, self.now_s)
        self.discards += claim.discards
        return claim

    def settle(self, claim: Claim, body_key: str | None = "a") -> Claim:
        settled = self.machine.settle(claim, body_key, self.now_s)
        self.discards += settled.discards
        return settled

    def end(self, turn: Turn, *bookings: Booking) -> None:
        for booking in bookings:
            self.discards += self.machine.ended(turn, booking, self.now_s)

    def write(self, turn: Turn | None = None) -> None:
        self.discards += self.machine.write_began(turn)
        self.discards += self.machine.write_ended(turn)

    def planned(
        self, *keys: str, contract: Contract = READ, step: int = 1
    ) -> tuple[Turn, Sequence[Booking]]:
        """Let a turn guess `keys`, land them all, and commit the same calls."""
        turn = self.turn(step)
        for key in dict.fromkeys(keys):
            if key != WRITE:
                self.land(self.guess(turn, key, contract))
        return turn, self.commit(turn, *keys, contract=contract)

    def reasons(self) -> list[DiscardReason]:
        return [discard.reason for discard in self.discards]


# --- admission


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"refusal": "gated"}, "gated"),
        ({"refusal": "unknown_tool", "key": None}, "unknown_tool"),
        ({"confidence": 0.4}, "unsure"),
        ({"key": None}, "unkeyable"),
        ({"refusal": "gated", "confidence": 0.4}, "gated"),
    ],
)
def test_guess_is_refused_for_the_first_reason(
    fields: dict[str, Any], verdict: GuessVerdict
) -> None:
    """Safety comes before odds; nothing is counted for what does not start."""
    world = World(policy=Policy(min_confidence=0.5))
    turn = world.turn()
    assert world.offer(turn, **fields) == (verdict, None)
    assert (turn.guesses, turn.flights) == (0, [])


def test_admitted_guess_becomes_a_flight_of_this_moment() -> None:
    """It carries scope, epoch, start and deadline."""
    world = World(policy=Policy(timeout_s=7.0), now_s=3.0)
    world.write()
    turn = world.turn(scope="sub")
    verdict, flight = world.offer(turn, confidence=0.7)
    assert verdict == "run"
    assert flight is not None
    assert (flight.scope, flight.epoch, flight.confidence) == ("sub", 2, 0.7)
    assert (flight.started_s, flight.deadline_s) == (3.0, 10.0)
    assert turn.guesses == 1


def test_contract_timeout_overrides_the_policys() -> None:
    """The author knows best how long the tool may take."""
    world = World()
    flight = world.guess(world.turn(), contract=Contract(timeout_s=2.0))
    assert flight.deadline_s == 2.0


def test_guess_after_the_answer_is_late() -> None:
    """A turn's guesses stop when the model answers."""
    world = World()
    turn, _ = world.planned("a")
    assert world.offer(turn, "b") == ("late", None)


def test_equal_guesses_of_different_samples_merge() -> None:
    """Both are the first of their sample, so one flight is enough."""
    world = World()
    turn = world.turn()
    world.guess(turn, ordinal=0)
    assert world.offer(turn, ordinal=0) == ("duplicate", None)


def test_one_sample_with_two_equal_calls_gets_two_flights() -> None:
    """And another sample that expects both gets no more."""
    world = World()
    turn = world.turn()
    world.guess(turn, ordinal=0)
    world.guess(turn, ordinal=1)
    assert world.offer(turn, ordinal=1) == ("duplicate", None)
    assert len(turn.flights) == 2


def test_deterministic_tool_needs_one_flight_for_all_equal_calls() -> None:
    """They will share it."""
    world = World()
    turn = world.turn()
    world.guess(turn, contract=PURE, ordinal=0)
    assert world.offer(turn, contract=PURE, ordinal=1) == ("duplicate", None)


def test_failed_guess_is_not_tried_again_in_its_turn() -> None:
    """Another sample's word does not make the tool work."""
    world = World()
    turn = world.turn()
    world.land(world.guess(turn), "failed")
    assert world.offer(turn) == ("duplicate", None)


def test_voided_guess_may_come_again() -> None:
    """The stream went on writing another call; the next one may be the old one after all."""
    world = World()
    turn = world.turn()
    world.machine.void(world.guess(turn))
    assert world.offer(turn)[0] == "run"


def test_stale_flight_does_not_stand_in_the_way_of_a_fresh_one() -> None:
    """It could not answer any more."""
    world = World()
    turn = world.turn()
    contract = Contract(fresh_for_s=1.0)
    world.land(world.guess(turn, contract=contract))
    world.now_s = 2.0
    assert world.offer(turn, contract=contract)[0] == "run"


def test_turn_limit_counts_guesses_that_started() -> None:
    """0 turns speculation off."""
    world = World(policy=Policy(guesses_per_turn=1))
    turn = world.turn()
    world.guess(turn, "a")
    assert world.offer(turn, "b") == ("turn_limit", None)
    assert World(policy=Policy(guesses_per_turn=0)).offer(
        Turn(number=1, scope="main", step=1, started_s=0.0)
    ) == ("turn_limit", None)


def test_run_limit_counts_what_is_in_the_air_in_every_turn() -> None:
    """Landed flights and scored ones take no room."""
    world = World(policy=Policy(in_flight_per_run=1))
    one, other = world.turn(), world.turn()
    flight = world.guess(one, "a")
    assert world.offer(other, "b") == ("no_room", None)
    world.land(flight)
    assert world.offer(other, "b")[0] == "run"


def test_process_limit_counts_other_runs() -> None:
    """Abandoned bodies of ended runs included, as the driver counts them."""
    world = World(policy=Policy(in_flight=3))
    turn = world.turn()
    assert world.offer(turn, in_flight=InFlight(process=3)) == ("no_room", None)
    assert world.offer(turn, in_flight=InFlight(process=2))[0] == "run"


def test_tool_limit_is_the_contracts_max_concurrency() -> None:
    """Without one, only the policy's limits hold."""
    world = World()
    turn = world.turn()
    busy = InFlight(tool=2, process=2)
    limited = Contract(max_concurrency=2)
    assert world.offer(turn, contract=limited, in_flight=busy) == ("no_room", None)
    assert world.offer(turn, contract=READ, in_flight=busy)[0] == "run"


def test_leading_call_takes_no_room_from_guesses() -> None:
    """It is a committed call's own run, not an early one."""
    world = World(policy=Policy(in_flight_per_run=1))
    turn = world.turn()
    [booking] = world.commit(turn, "a", contract=PURE)
    assert world.claim(turn, booking).action == "lead"
    assert world.offer(world.turn(), "b")[0] == "run"


def test_no_guess_starts_while_a_write_is_in_progress() -> None:
    """Its result would be dropped when the write ends."""
    world = World()
    turn = world.turn()
    world.machine.write_began(None)
    assert world.offer(turn) == ("writing", None)
    world.machine.write_ended(None)
    assert world.offer(turn)[0] == "run"


@pytest.mark.parametrize(
    ("write", "namespace", "verdict"),
    [
        ("tools:1", "tools:1|model:2", "run"),
        ("tools:1", "tools:1", "run"),
        ("tools:1", "tools:11|model:2", "writing"),
        ("tools:1", "model:2", "writing"),
        (None, "tools:1|model:2", "writing"),
    ],
)
def test_agent_inside_an_undeclared_call_may_guess(
    write: str | None, namespace: str, verdict: GuessVerdict
) -> None:
    """To it the call is not a change of the world, but its own frame."""
    world = World()
    turn = world.turn(namespace=namespace)
    world.machine.write_began(None, write)
    assert world.offer(turn)[0] == verdict
    world.machine.write_ended(None, write)
    assert world.offer(turn, "b")[0] == "run"


def test_grounded_flight_was_never_there() -> None:
    """A guess the driver had no room for leaves the turn's limit alone and may come again."""
    world = World(policy=Policy(guesses_per_turn=1))
    turn = world.turn()
    flight = world.guess(turn)
    world.machine.grounded(turn, flight)
    assert (turn.guesses, turn.flights, flight.state) == (0, [], "cancelled")
    assert world.offer(turn)[0] == "run"


@pytest.mark.parametrize(
    ("fields", "shadow", "verdict", "asked"),
    [
        ({}, False, "not_worth", 1),
        ({"key": None}, False, "unkeyable", 0),
        ({"refusal": "gated"}, False, "gated", 0),
        ({"refusal": "shadow"}, False, "shadow", 0),
        ({}, True, "shadow", 0),
    ],
)
def test_price_is_weighed_last(
    fields: dict[str, Any], shadow: bool, verdict: GuessVerdict, asked: int
) -> None:
    """And only for what would run: who judges may have reserved what it costs."""
    world = World()
    judged: list[GuessVerdict] = []

    def judge() -> GuessVerdict:
        judged.append("not_worth")
        return "not_worth"

    told, flight = world.offer(world.turn(shadow=shadow), judge=judge, **fields)
    assert (told, len(judged)) == (verdict, asked)
    assert (flight is None) is (verdict != "shadow")


def test_guess_that_pays_runs() -> None:
    """Nothing stands against it."""
    world = World()
    verdict, flight = world.offer(world.turn(), judge=lambda: None)
    assert verdict == "run"
    assert flight is not None


# --- shadow


@pytest.mark.parametrize(
    ("turn_fields", "guess_fields"), [({"shadow": True}, {}), ({}, {"refusal": "shadow"})]
)
def test_shadow_guess_is_scored_and_answers_nothing(
    turn_fields: dict[str, Any], guess_fields: dict[str, Any]
) -> None:
    """A hit is no waste, and its call runs for real."""
    world = World(policy=Policy(in_flight_per_run=0))
    turn = world.turn(**turn_fields)
    verdict, flight = world.offer(turn, **guess_fields)
    assert verdict == "shadow"
    assert flight is not None
    [booking] = world.commit(turn, "a")
    assert booking.verdict == "shadow_hit"
    assert world.claim(turn, booking) == Claim(action="run", verdict="shadow_hit")
    assert world.discards == []


def test_shadow_miss_is_discarded() -> None:
    """So that hits can be told from guesses."""
    world = World()
    turn = world.turn(shadow=True)
    world.guess(turn, "a")
    world.commit(turn, "b")
    assert world.reasons() == ["unclaimed"]


def test_shadow_score_does_not_expire() -> None:
    """Nothing runs, so nothing can be late."""
    world = World(policy=Policy(timeout_s=1.0))
    turn = world.turn(shadow=True)
    world.guess(turn)
    world.now_s = 60.0
    [booking] = world.commit(turn, "a")
    assert booking.verdict == "shadow_hit"


def test_shadow_turn_shares_nothing() -> None:
    """Shadow only scores: even equal calls of a deterministic tool all run."""
    world = World()
    turn = world.turn(shadow=True)
    first, second = world.commit(turn, "a", "a", contract=PURE)
    assert world.claim(turn, first).action == "run"
    assert world.claim(turn, second).action == "run"


def test_shadow_turn_takes_no_kept_flight() -> None:
    """A turn before it may have flown for real; its results stay where they are."""
    world = World()
    turn, [booking] = world.planned("a", contract=PURE)
    world.claim(turn, booking)
    shadow = world.turn(2, shadow=True)
    [again] = world.commit(shadow, "a", contract=PURE)
    assert world.claim(shadow, again) == Claim(action="run", verdict="no_guess")


# --- commit


def test_unplanned_flights_are_dropped_at_the_commit() -> None:
    """Running ones too: a turn's guesses stop when the model answers."""
    world = World()
    turn = world.turn()
    wanted, unwanted = world.guess(turn, "a"), world.guess(turn, "b")
    world.commit(turn, "a")
    assert world.discards == [Discard(unwanted, "unclaimed")]
    assert unwanted.state == "cancelled"
    assert wanted.state == "running"


def test_truncated_answer_has_no_plan() -> None:
    """Its calls may be cut short: all flights go, even those of `reuse="run"`."""
    world = World()
    turn = world.turn()
    flights = [world.guess(turn, "a"), world.guess(turn, "b", RUN_LONG)]
    assert world.commit(turn, "a", truncated=True) == []
    assert world.discards == [Discard(flight, "truncated") for flight in flights]
    assert world.machine.idle


def test_answer_without_calls_ends_the_turn() -> None:
    """There is nothing to wait for."""
    world = World()
    turn = world.turn()
    world.guess(turn)
    world.commit(turn)
    assert world.reasons() == ["unclaimed"]
    assert turn.phase == "closed"
    assert world.machine.idle


def test_commit_of_an_ended_turn_plans_nothing() -> None:
    """The run was given up in the meantime."""
    world = World()
    turn = world.turn()
    world.machine.end()
    assert world.commit(turn, "a") == []
    assert world.machine.idle


def test_failed_and_overdue_flights_are_not_planned() -> None:
    """They could not answer, and a later equal flight can."""
    world = World()
    turn = world.turn()
    contract = Contract(timeout_s=1.0)
    world.land(world.guess(turn), "failed")
    expired = world.guess(turn, contract=contract, ordinal=1)
    world.now_s = 1.0
    good = world.guess(turn, contract=contract, ordinal=1)
    [booking] = world.commit(turn, "a")
    assert booking.flight is good
    assert expired.state == "cancelled"


# --- claim


def test_landed_flight_answers_its_call() -> None:
    """A hit; the turn ends without waste."""
    world = World()
    turn, [booking] = world.planned("a")
    claim = world.claim(turn, booking)
    assert (claim.action, claim.verdict, claim.flight) == ("serve", "hit", booking.flight)
    world.end(turn, booking)
    assert world.discards == []
    assert world.machine.idle


def test_running_flight_is_joined() -> None:
    """The call waits, then has the value."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    [booking] = world.commit(turn, "a")
    claim = world.claim(turn, booking)
    assert (claim.action, claim.verdict) == ("wait", "joined")
    world.land(flight)
    settled = world.settle(claim)
    assert (settled.action, settled.verdict, settled.flight) == ("serve", "joined", flight)


def test_call_without_a_flight_runs() -> None:
    """So does one after the fence."""
    world = World()
    turn, bookings = world.planned(WRITE, "a")
    assert world.claim(turn, bookings[0], None).verdict == "no_guess"
    claim = world.claim(turn, bookings[1])
    assert (claim.action, claim.verdict) == ("run", "fenced")


def test_retry_of_a_position_runs_for_real() -> None:
    """Who calls again has seen the first answer and wants another."""
    world = World()
    turn, [booking] = world.planned("a")
    assert world.claim(turn, booking).action == "serve"
    assert world.claim(turn, booking) == Claim(action="run", verdict="no_guess")


def test_retry_of_a_deterministic_position_runs_for_real() -> None:
    """Even where its own earlier result could be shared."""
    world = World()
    turn = world.turn()
    [booking] = world.commit(turn, "a", contract=PURE)
    lead = world.claim(turn, booking)
    assert lead.flight is not None
    world.land(lead.flight)
    assert world.claim(turn, booking) == Claim(action="run", verdict="no_guess")


def test_call_of_an_ended_turn_runs_for_real() -> None:
    """Its flights may be another turn's by now."""
    world = World()
    turn, [booking] = world.planned("a", contract=RUN_LONG)
    world.machine.close(turn, "unclaimed")
    assert world.claim(turn, booking).action == "run"


@pytest.mark.parametrize("body_key", ["edited", None])
def test_other_values_than_the_flights_are_a_mismatch(body_key: str | None) -> None:
    """Whatever a middleware edited is seen; values that cannot be told are never equal."""
    world = World()
    turn, [booking] = world.planned("a")
    claim = world.claim(turn, booking, body_key)
    assert (claim.action, claim.verdict) == ("run", "mismatch")
    assert world.reasons() == ["mismatch"]


def test_landed_flight_of_unknown_values_is_a_mismatch() -> None:
    """The predicted key alone answers nothing."""
    world = World()
    turn = world.turn()
    world.land(world.guess(turn), body_key=None)
    [booking] = world.commit(turn, "a")
    assert world.claim(turn, booking).verdict == "mismatch"


def test_mismatch_is_seen_after_the_wait_too() -> None:
    """While it flies the values are unknown; the joined flight then counts as wasted, once."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    [booking] = world.commit(turn, "a")
    claim = world.claim(turn, booking, "edited")
    assert claim.action == "wait"
    world.land(flight)
    assert world.settle(claim, "edited").verdict == "mismatch"
    world.end(turn, booking)
    assert world.discards == [Discard(flight, "mismatch")]


def test_mismatch_leaves_a_deterministic_flight_to_others() -> None:
    """A second position was planned onto the same flight."""
    world = World()
    turn, [first, second] = world.planned("a", "a", contract=PURE)
    assert world.claim(turn, first, "edited").verdict == "mismatch"
    assert world.claim(turn, second).verdict == "hit"


@pytest.mark.parametrize("state", ["failed", "tainted", "cancelled"])
def test_flight_that_brought_nothing_is_never_served(state: Landing) -> None:
    """Before the claim or during the wait; it is discarded once, and the call runs."""
    world = World()
    turn = world.turn()
    early, joined = world.guess(turn, "a"), world.guess(turn, "b")
    first, second = world.commit(turn, "a", "b")
    world.land(early, state)
    assert world.claim(turn, first).verdict == state
    waiting = world.claim(turn, second)
    world.land(joined, state)
    assert world.settle(waiting, "b").verdict == state
    world.end(turn, first, second)
    assert world.discards == [Discard(early, state), Discard(joined, state)]


def test_stale_flight_is_never_served() -> None:
    """Its age counts from its start, at the claim and after the wait."""
    world = World()
    turn = world.turn()
    contract = Contract(fresh_for_s=1.0)
    world.land(world.guess(turn, "a", contract))
    joined = world.guess(turn, "b", contract)
    first, second = world.commit(turn, "a", "b")
    world.now_s = 1.0
    waiting = world.claim(turn, second)
    assert waiting.action == "wait"
    world.now_s = 1.1
    assert world.claim(turn, first).verdict == "stale"
    world.land(joined)
    assert world.settle(waiting, "b").verdict == "stale"
    assert world.reasons() == ["stale", "stale"]


def test_expired_flight_is_never_joined() -> None:
    """A planned flight is kept until its deadline, and not a moment longer."""
    world = World()
    turn = world.turn()
    world.guess(turn, contract=Contract(timeout_s=1.0))
    [booking] = world.commit(turn, "a")
    world.now_s = 1.0
    claim = world.claim(turn, booking)
    assert (claim.action, claim.verdict) == ("run", "expired")
    assert world.reasons() == ["expired"]


def test_wait_that_was_not_possible_is_a_miss() -> None:
    """A flight that still runs at the settling answers nothing."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    [booking] = world.commit(turn, "a")
    settled = world.settle(world.claim(turn, booking))
    assert (settled.action, settled.verdict) == ("run", "cannot_wait")
    assert world.discards == [Discard(flight, "cancelled")]


def test_settling_a_claim_that_does_not_wait_changes_nothing() -> None:
    """The verdict stays."""
    world = World()
    claim = Claim(action="run", verdict="fenced")
    assert world.settle(claim) == claim


def test_changed_value_is_taken_back() -> None:
    """The contract's `freshness` has the last word; the flight is wasted."""
    world = World()
    turn, [booking] = world.planned("a", contract=PURE)
    claim = world.claim(turn, booking)
    assert claim.flight is not None
    changed = world.machine.changed(claim.flight)
    assert (changed.action, changed.verdict) == ("run", "changed")
    assert changed.discards == [Discard(claim.flight, "changed")]
    world.end(turn, booking)
    assert world.machine.idle


def test_answer_that_never_arrived_is_given_back() -> None:
    """The call was cancelled on the way: its flight is wasted, unless it may answer others."""
    world = World()
    turn, [booking] = world.planned("a")
    flight = world.claim(turn, booking).flight
    assert flight is not None
    assert world.machine.returned(flight) == [Discard(flight, "cancelled")]
    other, [first, second] = world.planned("a", "a", contract=PURE)
    shared = world.claim(other, first).flight
    assert shared is not None
    assert world.machine.returned(shared) == []
    assert world.claim(other, second).verdict == "hit"


# --- deterministic tools


def test_equal_calls_share_one_flight() -> None:
    """The first is a hit, the second shares; the value is kept for later."""
    world = World()
    turn, [first, second] = world.planned("a", "a", contract=PURE)
    assert world.claim(turn, first).verdict == "hit"
    assert world.claim(turn, second).verdict == "shared"
    assert [*world.machine.kept] == [first.flight]


def test_equal_calls_wait_together() -> None:
    """Both are served by one landing."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn, contract=PURE)
    first, second = world.commit(turn, "a", "a", contract=PURE)
    claims = [world.claim(turn, first), world.claim(turn, second)]
    assert [claim.verdict for claim in claims] == ["joined", "shared"]
    world.land(flight)
    assert [world.settle(claim).action for claim in claims] == ["serve", "serve"]


def test_committed_result_answers_a_later_equal_call() -> None:
    """In the same turn and in later ones; the run itself is nobody's waste."""
    world = World()
    turn = world.turn()
    first, second = world.commit(turn, "a", "a", contract=PURE)
    lead = world.claim(turn, first)
    assert (lead.action, lead.verdict) == ("lead", "no_guess")
    assert lead.flight is not None
    world.land(lead.flight)
    shared = world.claim(turn, second)
    assert (shared.action, shared.verdict, shared.flight) == ("serve", "shared", lead.flight)
    world.end(turn, first, second)
    later = world.turn(2)
    [again] = world.commit(later, "a", contract=PURE)
    assert world.claim(later, again).verdict == "shared"
    world.discards += world.machine.end()
    assert world.discards == []


def test_equal_call_waits_for_the_leading_one() -> None:
    """While the leader's body still runs."""
    world = World()
    turn = world.turn()
    first, second = world.commit(turn, "a", "a", contract=PURE)
    lead = world.claim(turn, first).flight
    waiting = world.claim(turn, second)
    assert (waiting.action, waiting.verdict, waiting.flight) == ("wait", "shared", lead)
    assert lead is not None
    assert lead.waiters == 2
    world.land(lead)
    assert lead.waiters == 1
    assert world.settle(waiting).action == "serve"
    assert (lead.waiters, lead.answers) == (0, 2)


def test_failed_leader_leads_nobody() -> None:
    """Who waited runs for real; the next one leads."""
    world = World()
    turn = world.turn()
    first, second, third = world.commit(turn, "a", "a", "a", contract=PURE)
    lead = world.claim(turn, first).flight
    assert lead is not None
    waiting = world.claim(turn, second)
    world.land(lead, "failed")
    assert world.settle(waiting).verdict == "failed"
    assert world.claim(turn, third).action == "lead"


def test_only_equal_values_are_shared() -> None:
    """Other values lead a flight of their own; values that cannot be told run alone."""
    world = World()
    turn = world.turn()
    first, second, third = world.commit(turn, "a", "a", "a", contract=PURE)
    assert world.claim(turn, first).action == "lead"
    assert world.claim(turn, second, "edited").action == "lead"
    assert world.claim(turn, third, None).action == "run"


def test_edited_call_may_share_what_it_was_edited_to() -> None:
    """The body's values decide, whatever the model wrote."""
    world = World()
    turn, [first, second] = world.planned("a", "b", contract=PURE)
    second.flight = None
    world.claim(turn, first)
    assert world.claim(turn, second, "a").verdict == "shared"


def test_only_deterministic_tools_share() -> None:
    """One flight answers one call."""
    world = World()
    turn = world.turn()
    first, second = world.commit(turn, "a", "a")
    assert world.claim(turn, first).action == "run"
    assert world.claim(turn, second).action == "run"
    assert not world.machine.kept


def test_shared_result_grows_stale() -> None:
    """Its age counts from the start of the run it came from; then the next call leads."""
    world = World()
    contract = Contract(deterministic=True, fresh_for_s=1.0)
    turn = world.turn()
    first, second = world.commit(turn, "a", "a", contract=contract)
    lead = world.claim(turn, first).flight
    assert lead is not None
    world.land(lead)
    world.now_s = 1.1
    claim = world.claim(turn, second)
    assert claim.action == "lead"
    assert claim.flight is not lead


def test_scopes_share_nothing() -> None:
    """Parallel subgraphs may speak for different users."""
    world = World()
    turn, [booking] = world.planned("a", contract=PURE)
    world.claim(turn, booking)
    other = world.turn(scope="other")
    [elsewhere] = world.commit(other, "a", contract=PURE)
    assert world.claim(other, elsewhere).action == "lead"


# --- the end of a flight


def test_joined_flight_does_not_expire() -> None:
    """A call already waits for it."""
    world = World()
    turn = world.turn()
    joined, other = world.guess(turn, "a"), world.guess(turn, "b")
    [booking, _] = world.commit(turn, "a", "b")
    world.claim(turn, booking)
    assert world.machine.expire(joined) == []
    assert world.machine.expire(other) == [Discard(other, "expired")]
    assert world.machine.expire(other) == []


def test_landed_flight_does_not_expire() -> None:
    """The deadline is for the run, not for its result."""
    world = World()
    flight = world.guess(world.turn())
    world.land(flight)
    assert world.machine.expire(flight) == []


def test_voided_flight_is_dropped_unless_a_call_has_it() -> None:
    """What the stream took back, nobody may claim."""
    world = World()
    turn = world.turn()
    kept, voided = world.guess(turn, "a"), world.guess(turn, "b")
    assert world.machine.void(voided) == [Discard(voided, "voided")]
    first, second = world.commit(turn, "a", "b")
    world.claim(turn, first)
    assert world.machine.void(kept) == []
    assert second.flight is None


def test_late_landing_of_a_dropped_flight_is_ignored() -> None:
    """A thread that could not be stopped brings nothing back."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    world.machine.void(flight)
    world.land(flight)
    assert (flight.state, flight.outcome) == ("cancelled", None)


def test_cancelled_call_gives_up_its_flight() -> None:
    """Nobody else waits for it."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    [booking] = world.commit(turn, "a")
    world.claim(turn, booking)
    assert world.machine.forsake(flight) == [Discard(flight, "cancelled")]


def test_cancelled_call_leaves_the_flight_to_who_still_waits() -> None:
    """The last one to leave gives it up."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn, contract=PURE)
    first, second = world.commit(turn, "a", "a", contract=PURE)
    world.claim(turn, first)
    world.claim(turn, second)
    assert world.machine.forsake(flight) == []
    assert world.machine.forsake(flight) == [Discard(flight, "cancelled")]


def test_cancelled_call_leaves_a_leading_call_alone() -> None:
    """It waits for nobody, and still leads those to come."""
    world = World()
    turn = world.turn()
    first, second, third = world.commit(turn, "a", "a", "a", contract=PURE)
    lead = world.claim(turn, first).flight
    assert lead is not None
    world.claim(turn, second)
    assert world.machine.forsake(lead) == []
    assert world.claim(turn, third).verdict == "shared"


# --- turns


def test_later_step_ends_earlier_turns_of_its_scope() -> None:
    """What they planned and nobody claimed is dropped."""
    world = World()
    turn, [booking] = world.planned("a")
    world.turn(2)
    assert world.discards == [Discard(booking.flight, "unclaimed")]
    assert turn.phase == "closed"


def test_parallel_branches_do_not_end_each_other() -> None:
    """Same scope, same step."""
    world = World()
    one, [booking] = world.planned("a")
    other, _ = world.planned("b")
    assert world.machine.turns == [one, other]
    assert world.claim(one, booking).verdict == "hit"


def test_turn_ends_with_its_last_call() -> None:
    """Until then its other flights can still be claimed."""
    world = World()
    turn, [first, second] = world.planned("a", "b")
    world.end(turn, first)
    assert world.claim(turn, second).verdict == "hit"
    world.end(turn, second)
    assert world.discards == [Discard(first.flight, "unclaimed")]
    assert world.machine.idle


def test_request_finds_the_latest_turn_of_its_scope() -> None:
    """B09: ids repeat from turn to turn, and an old turn's plan answers no new call."""
    world = World()
    one, _ = world.planned("a")
    other, [booking] = world.planned("a")
    found = world.machine.booking("main", "look", "0", {"query": "a"})
    assert found == (other, booking)
    assert booking.requested
    assert world.machine.booking("main", "look", "0", {"query": "a"}) == (one, one.bookings[0])


def test_unplanned_request_is_not_found() -> None:
    """Another scope, another id, or no turn at all."""
    world = World()
    world.planned("a")
    assert world.machine.booking("other", "look", "0", {"query": "a"}) is None
    assert world.machine.booking("main", "look", "9", {"query": "a"}) is None


def test_failed_turn_drops_everything() -> None:
    """Those of `reuse="run"` too."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn, contract=RUN_LONG)
    assert world.machine.close(turn, "turn_failed") == [Discard(flight, "turn_failed")]
    assert world.machine.idle


# --- reuse="run"


def test_unclaimed_flight_is_kept_for_a_later_turn() -> None:
    """Landed or running; it then answers as any other, and only once."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn, contract=RUN_LONG)
    world.commit(turn, "b", contract=RUN_LONG)
    later = world.turn(2)
    assert world.offer(later, contract=RUN_LONG) == ("duplicate", None)
    world.land(flight)
    first, second = world.commit(later, "a", "a", contract=RUN_LONG)
    assert world.claim(later, first).verdict == "hit"
    assert world.claim(later, second).verdict == "no_guess"
    assert world.discards == []


def test_planned_but_unclaimed_flight_is_kept_when_its_turn_ends() -> None:
    """The call never came."""
    world = World()
    _, [booking] = world.planned("a", contract=RUN_LONG)
    later = world.turn(2)
    assert [*world.machine.kept] == [booking.flight]
    [again] = world.commit(later, "a", contract=RUN_LONG)
    assert world.claim(later, again).verdict == "hit"


def test_planned_flight_is_no_other_turns() -> None:
    """Parallel branches cannot both plan onto a flight that answers one call."""
    world = World()
    turn = world.turn()
    world.land(world.guess(turn, contract=RUN_LONG))
    world.commit(turn, contract=RUN_LONG)
    one, other = world.turn(2), world.turn(2)
    [first] = world.commit(one, "a", contract=RUN_LONG)
    [second] = world.commit(other, "a", contract=RUN_LONG)
    assert first.flight is not None
    assert second.flight is None


def test_kept_flight_that_fails_is_forgotten() -> None:
    """Nothing is left to remember."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn, contract=RUN_LONG)
    world.commit(turn)
    assert not world.machine.idle
    world.land(flight, "failed")
    assert world.machine.idle
    assert world.discards == [Discard(flight, "failed")]


def test_scope_keeps_a_bounded_number_of_flights() -> None:
    """The oldest go first, and are told of; other scopes are not touched."""
    world = World(policy=Policy(guesses_per_turn=99, in_flight_per_run=99))
    elsewhere = world.turn(scope="other")
    world.guess(elsewhere, contract=RUN_LONG)
    world.commit(elsewhere)
    turn = world.turn()
    flights = [world.guess(turn, str(number), RUN_LONG) for number in range(KEPT_PER_SCOPE + 2)]
    world.commit(turn)
    assert world.discards == [Discard(flight, "no_room") for flight in flights[:2]]
    assert world.machine.kept.of("main") == flights[2:]
    assert len(world.machine.kept.of("other")) == 1


def test_shared_results_make_room_too() -> None:
    """An unclaimed flight that a newer result pushes out is told of."""
    world = World(policy=Policy(guesses_per_turn=99, in_flight_per_run=99))
    turn = world.turn()
    flights = [world.guess(turn, str(number), RUN_LONG) for number in range(KEPT_PER_SCOPE)]
    world.commit(turn)
    later, [booking] = world.planned("served", contract=PURE, step=2)
    assert world.claim(later, booking).discards == [Discard(flights[0], "no_room")]
    leading = world.turn(3)
    [lead] = world.commit(leading, "led", contract=PURE)
    assert world.claim(leading, lead).discards == [Discard(flights[1], "no_room")]


# --- the world changes


def test_write_drops_what_was_read_before() -> None:
    """Landed, running, kept: nothing of an older epoch is ever served."""
    world = World()
    before = world.turn()
    kept = world.guess(before, "k", RUN_LONG)
    world.commit(before)
    turn = world.turn(2)
    landed, running = world.guess(turn, "a"), world.guess(turn, "b")
    world.land(landed)
    world.write()
    assert world.machine.epoch == 2
    assert world.discards == [
        Discard(landed, "other_epoch"),
        Discard(running, "other_epoch"),
        Discard(kept, "other_epoch"),
    ]
    world.commit(turn, "a")
    assert turn.bookings[0].flight is None


def test_epoch_rises_at_the_start_and_the_end_of_a_write() -> None:
    """What was read while it was in progress may be out of date, whatever its outcome."""
    world = World()
    world.machine.write_began(None)
    turn = world.turn()
    [booking] = world.commit(turn, "a", contract=PURE)
    lead = world.claim(turn, booking).flight
    assert lead is not None
    world.land(lead)
    world.machine.write_ended(None)
    assert not world.machine.kept
    assert (world.machine.epoch, world.machine.writes) == (2, [])


def test_end_of_an_unknown_write_still_counts() -> None:
    """It may have begun before the run was known to us."""
    world = World()
    world.machine.write_ended(None)
    assert (world.machine.epoch, world.machine.writes) == (1, [])


def test_flights_planned_before_the_fence_survive_their_own_turns_write() -> None:
    """In the model's order they come before it, though all run at once."""
    world = World()
    turn, [first, second, _] = world.planned("a", "b", WRITE)
    world.discards += world.machine.write_began(turn)
    assert world.claim(turn, first).verdict == "hit"
    world.discards += world.machine.write_ended(turn)
    assert world.claim(turn, second).verdict == "hit"
    assert world.discards == []


def test_joined_flight_survives_its_own_turns_write() -> None:
    """A wait that began before the write ends well after it."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    [booking, _] = world.commit(turn, "a", WRITE)
    claim = world.claim(turn, booking)
    world.write(turn)
    world.land(flight)
    assert world.settle(claim).verdict == "joined"


def test_other_turns_write_drops_planned_flights() -> None:
    """A parallel branch's order is unknown, so its write comes before."""
    world = World()
    turn, [booking] = world.planned("a")
    other, _ = world.planned(WRITE)
    world.write(other)
    assert world.claim(turn, booking).verdict == "other_epoch"
    assert world.reasons() == ["other_epoch"]


def test_other_turns_write_wakes_who_waits() -> None:
    """Nothing waits for a flight that will not answer."""
    world = World()
    turn = world.turn()
    flight = world.guess(turn)
    [booking] = world.commit(turn, "a")
    claim = world.claim(turn, booking)
    world.write()
    assert world.discards == [Discard(flight, "other_epoch")]
    assert world.settle(claim).verdict == "other_epoch"


def test_what_survived_a_write_answers_no_later_turn() -> None:
    """It was read before the write: a later read must see what was written."""
    world = World()
    turn, [first, second, _] = world.planned("a", "a", WRITE, contract=PURE)
    world.claim(turn, first)
    world.write(turn)
    assert world.claim(turn, second).verdict == "shared"
    world.end(turn, *turn.bookings)
    later = world.turn(2)
    [again] = world.commit(later, "a", contract=PURE)
    assert world.claim(later, again).action == "lead"


def test_unclaimed_survivor_of_a_write_is_not_kept() -> None:
    """`reuse="run"` lasts until the world changes."""
    world = World()
    turn, [booking, _] = world.planned("a", WRITE, contract=RUN_LONG)
    world.write(turn)
    world.end(turn, *turn.bookings)
    assert world.discards == [Discard(booking.flight, "unclaimed")]
    assert world.machine.idle


def test_write_of_an_ended_turn_spares_nothing() -> None:
    """What that turn planned and nobody claimed is kept for others, who come after the write."""
    world = World()
    turn, [booking, write] = world.planned("a", WRITE, contract=RUN_LONG)
    write.requested = True
    world.turn(2)
    assert [*world.machine.kept] == [booking.flight]
    world.write(turn)
    assert world.discards == [Discard(booking.flight, "other_epoch")]


def test_write_that_ran_elsewhere_counts_when_the_next_turn_opens() -> None:
    """Nobody asked us about the undeclared call: it may have run where we see nothing."""
    world = World()
    _, [booking, _] = world.planned("a", WRITE, contract=RUN_LONG)
    world.turn(2)
    assert world.discards == [Discard(booking.flight, "other_epoch")]
    assert world.machine.epoch == 1


def test_flight_shared_by_two_turns_survives_only_for_the_writer() -> None:
    """The other turn's call may come after the write."""
    world = World()
    turn, [booking] = world.planned("a", contract=PURE)
    world.claim(turn, booking)
    world.end(turn, booking)
    writer, other = world.turn(2), world.turn(2)
    mine, _ = world.commit(writer, "a", WRITE, contract=PURE)
    [theirs] = world.commit(other, "a", contract=PURE)
    assert mine.flight is theirs.flight
    world.write(writer)
    assert world.claim(writer, mine).verdict == "shared"
    assert world.claim(other, theirs).verdict == "other_epoch"


def test_invalidation_drops_by_tag() -> None:
    """Whatever read one of the tags, joined flights included."""
    world = World()
    turn = world.turn()
    db, files = Contract(tags=frozenset({"db", "x"})), Contract(tags=frozenset({"files"}))
    joined, other = world.guess(turn, "a", db), world.guess(turn, "b", files)
    first, second = world.commit(turn, "a", "b")
    claim = world.claim(turn, first)
    world.discards += world.machine.invalidate({"db", "y"})
    assert world.discards == [Discard(joined, "invalidated")]
    assert world.settle(claim).verdict == "cancelled"
    world.land(other)
    assert world.claim(turn, second).verdict == "hit"


def test_invalidation_reaches_a_shared_flight_that_survived_a_write() -> None:
    """It is kept for nobody else, and still held by the turn that shares it."""
    world = World()
    [booking] = world.commit(one := world.turn(), "a", contract=PURE)
    lead = world.claim(one, booking).flight
    mine, _ = world.commit(other := world.turn(), "b", WRITE, contract=PURE)
    waiting = world.claim(other, mine, "a")
    assert (waiting.action, waiting.flight) == ("wait", lead)
    world.write(other)
    assert world.discards == []
    world.discards += world.machine.invalidate(None)
    assert world.discards == [Discard(lead, "invalidated")]
    assert world.settle(waiting).verdict == "cancelled"


def test_fenced_call_neither_shares_nor_leads() -> None:
    """It may see what the undeclared call changed, and is no measure for those before it."""
    world = World()
    turn, bookings = world.planned("a", WRITE, "a", contract=PURE)
    world.claim(turn, bookings[0])
    assert world.claim(turn, bookings[2]) == Claim(action="run", verdict="fenced")


def test_invalidation_without_tags_drops_all() -> None:
    """A shared result that has answered goes too, and is no waste."""
    world = World()
    turn, [first, second] = world.planned("a", "a", contract=PURE)
    world.claim(turn, first)
    flight = world.guess(world.turn(), "b")
    world.discards += world.machine.invalidate(None)
    assert world.discards == [Discard(flight, "invalidated")]
    assert world.claim(turn, second).verdict == "cancelled"
    assert not world.machine.kept


# --- the end of the run


def test_end_of_the_run_drops_everything_once() -> None:
    """Open turns, plans, kept flights; each is told of, so that each is stopped."""
    world = World()
    past = world.turn()
    kept = world.guess(past, "k", RUN_LONG)
    world.commit(past)
    committed, [booking] = world.planned("a", step=2)
    running = world.guess(world.turn(2), "b")
    world.discards += world.machine.end()
    assert world.discards == [
        Discard(booking.flight, "run_ended"),
        Discard(running, "run_ended"),
        Discard(kept, "run_ended"),
    ]
    assert world.machine.idle
    assert world.machine.end() == []
    assert world.claim(committed, booking).action == "run"


def test_end_of_a_nested_graph_ends_its_scope() -> None:
    """Turns and kept flights of other scopes go on."""
    world = World()
    past = world.turn(scope="nested")
    kept = world.guess(past, contract=RUN_LONG)
    world.commit(past)
    running = world.guess(world.turn(2, scope="nested"), "b")
    turn, [booking] = world.planned("a", contract=RUN_LONG)
    assert world.machine.end("nested") == [
        Discard(running, "run_ended"),
        Discard(kept, "run_ended"),
    ]
    assert world.claim(turn, booking).verdict == "hit"


def test_run_with_a_write_in_progress_is_not_idle() -> None:
    """Its end must still be heard."""
    world = World()
    assert world.machine.idle
    world.machine.write_began(None)
    assert not world.machine.idle
    world.machine.write_ended(None)
    assert world.machine.idle
