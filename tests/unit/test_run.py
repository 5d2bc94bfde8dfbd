"""The machine's rules for ends: of flights, of turns and of the run."""

from langchain_spectool._core.turn import Discard
from tests.unit.machine_world import PURE, RUN_LONG, World

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
