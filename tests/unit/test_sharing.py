"""The machine's rules for results that answer more than one call, or a later turn's."""

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import KEPT_PER_SCOPE
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.turn import Discard
from tests.unit.machine_world import PURE, RUN_LONG, World

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
