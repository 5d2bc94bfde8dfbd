"""Odds: what a source's word is worth after some of its guesses came true."""

import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_spectool._core.odds import Odds

SHARES = st.floats(0, 1)
NAMES = st.sampled_from("abc")
HISTORIES = st.lists(st.tuples(NAMES, NAMES, SHARES, st.booleans()), max_size=80)


def learned(history: list[tuple[str, str, float, bool]], **settings: Any) -> Odds:
    """Return odds that have seen `history`."""
    odds = Odds(**settings)
    for guess in history:
        odds.seen(*guess)
    return odds


def drawn(rate: float, count: int, stated: float, seed: int = 0) -> list[Any]:
    """Return guesses of one (source, tool) of which `rate` come true, evenly mixed."""
    dice = random.Random(seed)  # noqa: S311 - dice, not secrets
    return [("a", "look", stated, dice.random() < rate) for _ in range(count)]


@given(HISTORIES, NAMES, NAMES, SHARES)
def test_estimate_is_a_share(history: Any, source: str, tool: str, stated: float) -> None:
    """Whatever was seen and is stated, 0 and 1 included."""
    assert 0 <= learned(history).estimate(source, tool, stated) <= 1


@given(HISTORIES, NAMES, NAMES, SHARES, SHARES)
def test_who_says_more_is_believed_more(
    history: Any, source: str, tool: str, one: float, other: float
) -> None:
    """Within a (source, tool) the estimate rises with what is stated."""
    odds = learned(history)
    less, more = sorted((one, other))
    low, high = (odds.estimate(source, tool, stated) for stated in (less, more))
    assert low <= high + 1e-12


@given(st.floats(0.05, 0.95), st.floats(0.02, 0.98))
def test_estimate_comes_to_the_true_rate(rate: float, stated: float) -> None:
    """In the long run it does not matter what a source says of itself."""
    odds = learned(drawn(rate, 4000, stated), half_life=1000)
    assert odds.estimate("a", "look", stated) == pytest.approx(rate, abs=0.06)
    assert odds.hit_rate("a", "look") == pytest.approx(rate, abs=0.06)


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_what_was_seen_of_one_tool_is_what_is_estimated(rate: float, stated: float) -> None:
    """With the prior gone, the estimate at the usual confidence is the share itself."""
    odds = learned(drawn(rate, 2000, stated), half_life=20)
    share = odds.hit_rate("a", "look")
    assert share is not None
    assume(0.01 < share < 0.99)
    assert odds.estimate("a", "look", stated) == pytest.approx(share, abs=1e-6)


def test_source_that_is_right_about_itself_is_left_as_it_is() -> None:
    """A calibrated source with many confidences keeps them all."""
    dice = random.Random(1)  # noqa: S311 - dice, not secrets
    odds = Odds(half_life=2000)
    for _ in range(8000):
        stated = dice.random()
        odds.seen("a", "look", stated, dice.random() < stated)
    for stated in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert odds.estimate("a", "look", stated) == pytest.approx(stated, abs=0.05)


@given(st.booleans())
def test_old_guesses_are_forgotten(first: bool) -> None:
    """A habit that turned round is believed again after a few half-lives."""
    odds = learned([("a", "look", 0.5, first)] * 500 + [("a", "look", 0.5, not first)] * 60)
    now = odds.estimate("a", "look", 0.5)
    assert now < 0.45 if first else now > 0.55
    assert odds.guesses("a", "look") == 560


@given(SHARES)
def test_unknown_source_is_taken_at_its_word(stated: float) -> None:
    """Also when others are known."""
    odds = learned(drawn(0.1, 50, 0.9))
    assert odds.estimate("b", "look", stated) == stated
    assert (odds.guesses("b"), odds.hit_rate("b")) == (0, None)


def test_a_few_guesses_do_not_settle_it() -> None:
    """One hit or miss moves the estimate by what one of five guesses is worth, not to the end."""
    missed, hit = (learned([("a", "look", 0.6, came_true)]) for came_true in (False, True))
    assert 0.25 < missed.estimate("a", "look", 0.6) < 0.6 < hit.estimate("a", "look", 0.6) < 0.9


def test_new_tool_is_believed_like_the_source() -> None:
    """Back-off: what was seen of a source's other tools, until the tool has shown its own."""
    odds = learned(drawn(0.1, 200, 0.8))
    assert odds.estimate("a", "put", 0.8) == pytest.approx(
        odds.estimate("a", "look", 0.8), abs=0.05
    )
    for _ in range(100):
        odds.seen("a", "put", 0.8, True)
    assert odds.estimate("a", "put", 0.8) > 0.9
    assert odds.estimate("a", "look", 0.8) < 0.3
    assert (odds.guesses("a", "put"), odds.guesses("a")) == (100, 300)


def test_records_are_bounded() -> None:
    """A model that invents tool names fills no memory; what was seen last stays."""
    odds = Odds(most=10)
    for number in range(1000):
        odds.seen("a", f"tool{number}", 0.5, True)
    assert len(odds._records) == 10
    assert odds.guesses("a") == 1000
    assert [odds.guesses("a", f"tool{number}") for number in (990, 991, 999)] == [0, 1, 1]


@given(HISTORIES)
def test_same_history_same_estimates(history: Any) -> None:
    """Nothing is drawn and no clock is read."""
    one, other = learned(history), learned(history)
    assert [one.estimate(s, t, 0.4) for s in "abc" for t in "abc"] == [
        other.estimate(s, t, 0.4) for s in "abc" for t in "abc"
    ]


@pytest.mark.parametrize("name", ["prior", "half_life", "most"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_bad_settings(name: str, value: Any) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"`{name}` must be more than 0, got {value}"):
        Odds(**{name: value})
