"""Drawn times: truncated, of the stated mean, and the same for everyone who asks."""

from statistics import fmean, pstdev

from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool.bench.paper.latencies import (
    LATENCIES_S,
    RELATIVE_SD,
    factor,
    factor_of,
    spread,
)


@given(st.floats(min_value=0, max_value=1, exclude_max=True))
def test_no_time_is_negative_or_more_than_twice_the_mean(uniform: float) -> None:
    """That is where the normal is cut."""
    assert 0 <= factor(uniform) <= 2


def test_the_mean_is_the_mean() -> None:
    """A symmetric cut moves neither the mean nor, as far out as here, the deviation."""
    drawn = [factor((place + 0.5) / 1000) for place in range(1000)]
    assert abs(fmean(drawn) - 1) < 1e-9
    assert abs(pstdev(drawn) - RELATIVE_SD) < 0.002


def test_a_key_names_its_draw() -> None:
    """Arms that ask by the same key meet the same time, others another."""
    assert factor_of("a") == factor_of("a") != factor_of("b")


def test_there_are_twelve_different_means() -> None:
    """As many as in the paper."""
    assert len(set(LATENCIES_S)) == 12


def test_spread_ends_with_the_last() -> None:
    """A small selection still holds the longest."""
    assert spread((1.0, 2.0, 3.0, 4.0), 2) == (2.0, 4.0)
