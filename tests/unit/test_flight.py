"""Flights, and what hangs together among them."""

from typing import Any

import pytest

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Kept, unbroken


def flight(key: str = "a", parent: Flight | None = None, **fields: Any) -> Flight:
    """Return a flight that has landed, unless `fields` say otherwise."""
    made: dict[str, Any] = {"contract": Contract(), "scope": "main", "state": "landed", **fields}
    return Flight(
        tool="look",
        source="draft",
        key=key,
        epoch=0,
        started_s=0.0,
        deadline_s=30.0,
        parent=parent,
        **made,
    )


def test_links_count_the_calls_to_come() -> None:
    """A guess of this very turn waits for none, nor does one whose link came true."""
    first = flight("a")
    second = flight("b", first)
    third = flight("c", second)
    assert [each.links for each in (first, second, third)] == [0, 1, 2]
    first.answers = 1
    assert [each.links for each in (first, second, third)] == [0, 0, 1]
    assert [each.expected_after for each in (first, second, third)] == [set(), {first}, {second}]


def test_unbroken_goes_link_by_link() -> None:
    """One that hangs on what nobody planned is no part of it, nor is what hangs on that."""
    first, other = flight("a"), flight("z")
    second, lost = flight("b", first), flight("y", other)
    third, tail = flight("c", second), flight("x", lost)
    assert unbroken([first], [second, lost, third, tail]) == [second, third]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "failed"},
        {"state": "tainted"},
        {"state": "cancelled"},
        {"answers": 1},
        {"waiters": 1},
        {"state": "running", "shadow": True},
    ],
)
def test_unbroken_holds_what_may_still_answer(fields: dict[str, Any]) -> None:
    """And nothing that hangs on what may not."""
    first = flight("a")
    second = flight("b", first, **fields)
    assert unbroken([first], [second, flight("c", second)]) == []


def test_running_link_is_a_link() -> None:
    """It need not have landed to wait for its turn."""
    first = flight("a")
    second = flight("b", first, state="running")
    assert unbroken([first], [second]) == [second]


@pytest.mark.parametrize(
    ("fields", "cut_off"),
    [
        ({}, False),
        ({"state": "running"}, False),
        ({"state": "cancelled"}, True),
        ({"state": "failed"}, True),
        ({"state": "cancelled", "answers": 1}, False),
    ],
)
def test_tail_of_a_wasted_flight_is_cut_off(fields: dict[str, Any], cut_off: bool) -> None:
    """One that has answered a call was a true link, whatever became of it."""
    assert flight("b", flight("a", **fields)).cut_off is cut_off


def test_second_reason_holds_it() -> None:
    """It hangs on every result it was guessed on, and by itself if it was guessed without."""
    gone, there = flight("a", state="cancelled"), flight("z")
    chained, direct = flight("b", gone), flight("b")
    assert chained.cut_off
    chained.expected_after.add(there)
    direct.expected_after.add(gone)
    assert not chained.cut_off
    assert not direct.cut_off


def test_chain_never_comes_back_to_itself() -> None:
    """A call expected after its own result, links later, holds on to nothing by that."""
    first = flight("a")
    second = flight("b", first)
    third = flight("c", second)
    for each in (first, second, third):
        each.expect_after(third)
    assert [each.expected_after for each in (first, second, third)] == [set(), {first}, {second}]
    third.expect_after(first)
    assert third.expected_after == {first, second}


def test_what_is_cut_off_does_not_outlive_its_turn() -> None:
    """Not even where the contract lets others stay for the run."""
    first = flight("a")
    second = flight("b", first, contract=Contract(reuse="run"))
    assert second.outlives_turn
    first.state = "cancelled"
    assert not second.outlives_turn


def test_kept_tells_chained_from_others() -> None:
    """Of one scope, not taken, and not in anybody's plan."""
    kept, first = Kept(), flight("a")
    due, planned = flight("b", first), flight("c", first)
    taken, elsewhere = flight("d", first, answers=1), flight("e", first, scope="other")
    for each in (first, due, planned, taken, elsewhere):
        kept.add(each)
    assert kept.chained("main", [planned]) == [due]
    assert kept.chained("nowhere", []) == []
