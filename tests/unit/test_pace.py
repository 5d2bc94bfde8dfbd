"""Pace: times are measured as they go, and old habits are forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.pace import (
    AT_LEAST_LEFT,
    MOST_TOOLS,
    USUAL_TOOL_S,
    USUAL_TURN_S,
    Pace,
)

SECONDS = st.floats(0, 1000)


def test_before_anything_was_measured_it_is_as_usual() -> None:
    """A tool takes a second and a turn three, until we know better."""
    pace = Pace()
    assert pace.tool_s("look") == USUAL_TOOL_S
    assert pace.turn_s == USUAL_TURN_S


def test_the_first_measurement_counts_in_full() -> None:
    """What was taken for usual is gone with it; one tool says nothing of another."""
    pace = Pace()
    pace.tool_took("look", 0.2)
    pace.turn_took(8.0)
    assert pace.tool_s("look") == pytest.approx(0.2)
    assert (pace.tool_s("find"), pace.turn_s) == (USUAL_TOOL_S, 8.0)


def test_new_habits_replace_old_ones() -> None:
    """A tool that became slow is known to be slow after some tens of runs."""
    pace = Pace()
    for _ in range(1000):
        pace.tool_took("look", 0.1)
    for _ in range(40):
        pace.tool_took("look", 5.0)
    assert pace.tool_s("look") == pytest.approx(5.0, rel=0.05)


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_a_mean_stays_among_what_was_measured(times: list[float]) -> None:
    """Whatever comes, the expectation is never beyond it; the first ten count alike."""
    pace = Pace()
    for seconds in times:
        pace.tool_took("look", seconds)
    assert min(times) - 1e-9 <= pace.tool_s("look") <= max(times) + 1e-9
    if len(times) <= 10:
        assert pace.tool_s("look") == pytest.approx(sum(times) / len(times), abs=1e-6)


def test_tools_nobody_has_used_for_long_are_forgotten() -> None:
    """Memory is bounded."""
    pace = Pace()
    for number in range(MOST_TOOLS + 1):
        pace.tool_took(f"tool {number}", 7.0)
    assert pace.tool_s("tool 0") == USUAL_TOOL_S
    assert pace.tool_s(f"tool {MOST_TOOLS}") == 7.0


def test_no_more_is_hidden_than_the_model_still_writes() -> None:
    """Early in the turn all of a run is hidden, later only a part of it."""
    pace = Pace()
    pace.turn_took(4.0)
    pace.tool_took("look", 2.0)
    assert pace.hideable_s("look", 0.0) == 2.0
    assert pace.hideable_s("look", 2.5) == 1.5
    assert pace.hideable_s("look", 100.0) == AT_LEAST_LEFT * 4.0


def test_a_call_of_a_later_turn_has_all_of_that_turn_too() -> None:
    """A chain hides longer runs than a guess at this turn's call."""
    pace = Pace()
    pace.turn_took(1.0)
    pace.tool_took("look", 9.0)
    assert [pace.hideable_s("look", 0.5, ahead) for ahead in (0, 1, 2)] == [0.5, 1.5, 2.5]


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 3))
def test_who_starts_later_hides_no_more(
    tool_s: float, turn_s: float, one_s: float, other_s: float, ahead: int
) -> None:
    """The hideable time falls as the turn goes on, and is never below 0."""
    pace = Pace()
    pace.tool_took("look", tool_s)
    pace.turn_took(turn_s)
    early_s, late_s = sorted((one_s, other_s))
    later = pace.hideable_s("look", late_s, ahead)
    assert 0 <= later <= pace.hideable_s("look", early_s, ahead) <= pace.tool_s("look")
