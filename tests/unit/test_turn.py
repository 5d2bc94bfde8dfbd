"""A turn's plan: positions, fence, shadow scores, and finding a request's position."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.turn import Booking, CommittedCall, Turn

READ = Contract()
PURE = Contract(deterministic=True)


def _turn(step: int | None = 1, scope: str = "main", **fields: Any) -> Turn:
    return Turn(number=1, scope=scope, step=step, started_s=0.0, **fields)


def _flight(key: str = "a", contract: Contract = READ, **fields: Any) -> Flight:
    return Flight(
        tool="look",
        source="draft",
        contract=contract,
        key=key,
        scope="main",
        epoch=0,
        started_s=0.0,
        deadline_s=30.0,
        **fields,
    )


def _call(
    key: str | None = "a",
    *,
    contract: Contract | None = READ,
    call_id: str | None = "1",
    args: Mapping[str, Any] | None = None,
) -> CommittedCall:
    return CommittedCall(
        position=0,
        tool="look",
        id=call_id,
        args={"query": key} if args is None else args,
        key=key,
        contract=contract,
    )


def _plan(*calls: CommittedCall, flights: list[Flight]) -> tuple[Turn, list[Flight]]:
    turn = _turn()
    turn.flights = [*flights]
    return turn, turn.plan(calls, [*flights], 1.0)


def test_equal_calls_take_flights_in_position_order() -> None:
    """The first of two equal calls gets the first of two equal flights."""
    first, second = _flight(), _flight()
    turn, left = _plan(_call(), _call(), flights=[first, second])
    assert [booking.flight for booking in turn.bookings] == [first, second]
    assert left == []
    assert turn.phase == "committed"
    assert turn.committed_s == 1.0


def test_one_flight_answers_one_call() -> None:
    """A second equal call without a second flight has none."""
    flight = _flight()
    turn, _ = _plan(_call(), _call(), flights=[flight])
    assert [booking.flight for booking in turn.bookings] == [flight, None]
    assert turn.bookings[1].verdict == "no_guess"


def test_equal_calls_share_a_deterministic_flight() -> None:
    """All of them are planned onto it, and the turn holds it once."""
    flight = _flight(contract=PURE)
    turn, _ = _plan(_call(contract=PURE), _call(contract=PURE), flights=[flight])
    assert [booking.flight for booking in turn.bookings] == [flight, flight]
    assert turn.flights == [flight]


def test_flights_nobody_called_are_left() -> None:
    """What the plan has no use for is handed back, not silently forgotten."""
    wanted, unwanted = _flight("a"), _flight("b")
    turn, left = _plan(_call("a"), flights=[unwanted, wanted])
    assert left == [unwanted]
    assert turn.flights == [wanted]


def test_calls_after_the_first_undeclared_one_are_fenced() -> None:
    """They may see what it changed; the calls before it may be answered."""
    flights = [_flight("a"), _flight("b")]
    write = _call(None, contract=None)
    turn, left = _plan(_call("a"), write, _call("b"), write, flights=flights)
    assert [booking.verdict for booking in turn.bookings] == [
        "no_guess",
        "no_guess",
        "fenced",
        "fenced",
    ]
    assert [booking.flight for booking in turn.bookings] == [flights[0], None, None, None]
    assert left == [flights[1]]


def test_declared_call_that_never_runs_early_is_no_fence() -> None:
    """`early=False` says read-only: calls after it keep their flights."""
    flight = _flight("a")
    quiet = _call(None, contract=Contract(early=False))
    turn, _ = _plan(quiet, _call("a"), flights=[flight])
    assert [booking.flight for booking in turn.bookings] == [None, flight]


def test_shadow_flight_is_scored_and_answers_nothing() -> None:
    """A shadow hit counts once, and the position still runs for real."""
    flight = _flight(shadow=True)
    turn, left = _plan(_call(), _call(), flights=[flight])
    assert [booking.verdict for booking in turn.bookings] == ["shadow_hit", "no_guess"]
    assert [booking.flight for booking in turn.bookings] == [None, None]
    assert flight.answers == 1
    assert left == [flight]


def test_plan_follows_a_write_of_its_own_turn() -> None:
    """Every flight still good in the epoch before it is carried along, older ones are not."""
    current, older = _flight("a"), _flight("b")
    turn, _ = _plan(_call("a"), _call("b"), _call("c"), flights=[current, older])
    turn.bookings[0].epoch, turn.bookings[1].epoch = 4, 3
    assert turn.follow(5) == {current}
    assert [booking.epoch for booking in turn.bookings[:2]] == [5, 3]


def test_equal_ids_are_told_apart_by_the_arguments() -> None:
    """B09: a model that reuses an id still gets the right position."""
    turn, _ = _plan(_call("a", call_id="dup"), _call("b", call_id="dup"), flights=[])
    found = turn.find("look", "dup", {"query": "b"})
    assert found is not None
    assert found[1] is turn.bookings[1]


def test_equal_calls_of_one_id_are_found_in_turn() -> None:
    """B11: a position that was requested gives way to one that was not."""
    turn, _ = _plan(_call("a"), _call("a"), flights=[])
    turn.bookings[0].requested = True
    found = turn.find("look", "1", {"query": "a"})
    assert found is not None
    assert found[1] is turn.bookings[1]


def test_retry_of_the_same_arguments_finds_its_own_position() -> None:
    """The very same object stands before an equal call that was not requested yet."""
    args = {"query": "a"}
    turn, _ = _plan(_call("a", args=args), _call("a"), flights=[])
    turn.bookings[0].requested = True
    found = turn.find("look", "1", args)
    assert found is not None
    assert found[1] is turn.bookings[0]


def test_edited_call_is_known_by_its_id() -> None:
    """A middleware may change the arguments; the position stays."""
    turn, _ = _plan(_call("a"), _call("b", call_id="2"), flights=[])
    found = turn.find("look", "2", {"query": "edited"})
    assert found is not None
    assert found[1] is turn.bookings[1]


@pytest.mark.parametrize(("tool", "call_id"), [("look", "9"), ("other", "1"), ("look", None)])
def test_request_of_another_tool_or_id_is_not_found(tool: str, call_id: str | None) -> None:
    """Equal arguments alone make no position."""
    turn, _ = _plan(_call("a"), flights=[])
    assert turn.find(tool, call_id, {"query": "a"}) is None


def test_turn_is_over_when_all_its_calls_have_ended() -> None:
    """An open turn is not over, nor one with a call in progress; a closed one is."""
    turn = _turn()
    assert not turn.over
    turn.plan([_call(), _call()], [], 1.0)
    turn.bookings[0].ended_s = 2.0
    assert not turn.over
    turn.bookings[1].ended_s = 3.0
    assert turn.over
    turn.bookings[1].ended_s = None
    turn.phase = "closed"
    assert turn.over


@pytest.mark.parametrize(
    ("earlier", "later", "over"),
    [(1, 2, True), (1, 1, False), (2, 1, False), (None, 1, True), (1, None, True)],
)
def test_turns_of_one_superstep_go_on_side_by_side(
    earlier: int | None, later: int | None, over: bool
) -> None:
    """Only a later step, or one that cannot be told, ends a committed turn."""
    turn = _turn(earlier, phase="committed")
    assert turn.precedes(_turn(later)) is over


def test_open_turn_and_other_scope_are_never_ended() -> None:
    """A model that still writes, or another subgraph, is nobody's past."""
    assert not _turn(1).precedes(_turn(2))
    assert not _turn(1, phase="committed").precedes(_turn(2, scope="other"))


@dataclass
class Span:
    began_s: float | None
    ended_s: float | None
    body_s: float | None


@pytest.mark.parametrize(
    ("spans", "saved_s"),
    [
        ([], 0.0),
        ([Span(1, None, 3), Span(None, 2, 3)], 0.0),
        ([Span(1, 1.25, 2)], 1.75),
        ([Span(1, 3, 2)], 0.0),
        ([Span(1, 1.5, None)], 0.0),
        ([Span(1, 1.5, 2), Span(1, 3, 2)], 0.0),
        ([Span(1, 1.5, 2), Span(1, 2, 1)], 1.0),
    ],
)
def test_saved_seconds_let_parallel_calls_overlap(spans: list[Span], saved_s: float) -> None:
    """The counterfactual starts every body when its call began, side by side."""
    turn = _turn()
    turn.bookings = [
        Booking(call=_call(), began_s=s.began_s, ended_s=s.ended_s, body_s=s.body_s) for s in spans
    ]
    assert turn.saved_s() == saved_s


def test_flight_is_available_to_one_call_or_to_all_if_deterministic() -> None:
    """A flight that is waited for, or has answered, is taken."""
    flight, pure = _flight(), _flight(contract=PURE)
    assert flight.available
    assert not flight.taken
    flight.waiters = pure.answers = 1
    assert flight.taken
    assert not flight.available
    assert pure.available
    pure.state = "failed"
    assert not pure.available


@pytest.mark.parametrize(
    ("contract", "fields", "stays"),
    [
        (Contract(reuse="run"), {}, True),
        (Contract(reuse="run"), {"state": "landed"}, True),
        (Contract(reuse="run"), {"state": "failed"}, False),
        (Contract(reuse="run"), {"shadow": True}, False),
        (Contract(reuse="run", deterministic=True), {"answers": 1}, False),
        (READ, {}, False),
    ],
)
def test_only_unclaimed_results_of_reuse_run_outlive_their_turn(
    contract: Contract, fields: dict[str, Any], stays: bool
) -> None:
    """Scored, failed and claimed flights do not."""
    assert _flight(contract=contract, **fields).outlives_turn is stays


def test_age_counts_from_the_start_of_the_early_run() -> None:
    """A result is as old as its run, not as its landing; the limit itself is still fresh."""
    flight = _flight(contract=Contract(fresh_for_s=5.0))
    flight.state, flight.landed_s = "landed", 4.0
    assert flight.overdue(5.0) is None
    assert flight.overdue(5.1) == "stale"


def test_running_flight_expires_at_its_deadline() -> None:
    """A landed one does not."""
    flight = _flight()
    assert flight.overdue(29.9) is None
    assert flight.overdue(30.0) == "expired"
    flight.state = "landed"
    assert flight.overdue(math.inf) is None


@pytest.mark.parametrize(
    ("state", "known", "asked", "may"),
    [
        ("running", None, "k", True),
        ("running", "k", "k", True),
        ("running", "other", "k", False),
        ("landed", "k", "k", True),
        ("landed", "other", "k", False),
        ("landed", None, "k", False),
        ("running", None, None, False),
        ("landed", None, None, False),
    ],
)
def test_values_must_be_known_to_be_equal(
    state: Any, known: str | None, asked: str | None, may: bool
) -> None:
    """Only a flight in the air gets the benefit of the doubt, until it lands."""
    flight = _flight(state=state, body_key=known)
    assert flight.may_equal(asked) is may


def test_spent_seconds_end_at_the_landing() -> None:
    """Up to now while it runs; never negative."""
    flight = _flight()
    assert flight.spent_s(2.0) == 2.0
    flight.landed_s = 1.5
    assert flight.spent_s(9.0) == 1.5
    flight.landed_s = -1.0
    assert flight.spent_s(9.0) == 0.0


def test_outcome_holds_nothing_by_default() -> None:
    """A failure brings back no value and no key."""
    outcome = Outcome(state="failed")
    assert (outcome.value, outcome.body_key, outcome.token, outcome.detail) == (None,) * 3 + ("",)
