"""The machine's rules for answers: what is planned, and which flight answers which call."""

import pytest

from langchain_spectool._core.claim import Claim
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Landing
from langchain_spectool._core.turn import Discard
from tests.unit.machine_world import PURE, RUN_LONG, WRITE, World

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
