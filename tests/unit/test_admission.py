"""The machine's rules for guesses: which may run, and what shadow makes of them."""

from typing import Any

import pytest

from langchain_spectool._core.claim import Claim, InFlight
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.turn import Turn
from langchain_spectool._core.verdicts import GuessVerdict
from tests.unit.machine_world import PURE, READ, World

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
