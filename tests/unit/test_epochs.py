"""The machine's rules for writes: nothing that was read before them is served."""

from langchain_spectool._core.claim import Claim
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.turn import Discard
from tests.unit.machine_world import PURE, RUN_LONG, WRITE, World


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
