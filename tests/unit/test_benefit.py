"""The gate: what a hit spares against what a miss costs."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.benefit import BenefitGate

ODDS = st.floats(0, 1)
SECONDS = st.floats(0, 100)
DOLLARS = st.floats(0, 10)
GATES = st.builds(
    BenefitGate,
    usd_per_s=st.floats(1e-6, 1),
    usd_per_tool_s=st.floats(0, 1),
    free_s=st.floats(0, 1),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("usd_per_s", 0),
        ("usd_per_s", math.inf),
        ("usd_per_s", True),
        ("usd_per_tool_s", -0.1),
        ("free_s", math.nan),
        ("free_s", "none"),
        ("warm_up", -1),
        ("warm_up", 1.5),
        ("min_hit_rate", 1.1),
        ("min_hit_rate", -0.1),
        ("patience", 0),
        ("patience", 2.0),
        ("adapt_samples", 1),
    ],
)
def test_bad_settings_are_named(name: str, value: Any) -> None:
    """The message says which field, and what it was given."""
    with pytest.raises(
        ValueError, match=f"`{name}` of the benefit gate is out of range: {value!r}"
    ):
        BenefitGate(**{name: value})


def test_settings_reach_their_ends() -> None:
    """Both ends of every range are fine."""
    gate = BenefitGate(usd_per_s=5e-324, usd_per_tool_s=0, free_s=0, warm_up=0, patience=1)
    assert gate.warm_up == 0
    assert BenefitGate(min_hit_rate=0).min_hit_rate == 0
    assert BenefitGate(min_hit_rate=1, adapt_samples=False).adapt_samples is False
    assert BenefitGate().warm_up is None


@given(ODDS, SECONDS, st.floats(0, 0.05))
def test_what_costs_nothing_always_pays(odds: float, hideable_s: float, run_s: float) -> None:
    """A quick and free tool runs on the faintest hope."""
    assert BenefitGate().pays(odds, hideable_s, 0.0, run_s)


@given(GATES, st.floats(1e-3, 100), DOLLARS, SECONDS)
def test_a_sure_thing_always_pays(
    gate: BenefitGate, hideable_s: float, run_usd: float, run_s: float
) -> None:
    """Where nothing can be wasted no price counts."""
    assert gate.pays(1.0, hideable_s, run_usd, run_s)


def test_a_dear_guess_needs_good_odds() -> None:
    """A cent a call against a second spared at a cent: worth it from one in two."""
    gate = BenefitGate(usd_per_tool_s=0)
    assert [gate.pays(odds, 1.0, 0.01, 1.0) for odds in (0.49, 0.5, 0.51)] == [False, True, True]


def test_nothing_to_hide_is_nothing_to_gain() -> None:
    """A call that costs and spares nothing does not run, unless it is sure."""
    assert not BenefitGate().pays(0.99, 0.0, 0.01, 1.0)
    assert not BenefitGate().pays(0.0, 5.0, 0.01, 1.0)


def test_a_hidden_run_pays_from_nine_in_a_hundred() -> None:
    """What the defaults say of themselves."""
    gate = BenefitGate()
    assert [gate.pays(odds, 10.0, 0.0, 10.0) for odds in (0.08, 0.1)] == [False, True]


@given(GATES, ODDS, ODDS, SECONDS, DOLLARS, SECONDS)
def test_better_odds_never_stop_a_guess(  # noqa: PLR0913, PLR0917 - all that decides
    gate: BenefitGate, one: float, other: float, hideable_s: float, run_usd: float, run_s: float
) -> None:
    """Monotone in the odds."""
    less, more = sorted((one, other))
    assert gate.pays(more, hideable_s, run_usd, run_s) or not gate.pays(
        less, hideable_s, run_usd, run_s
    )


@given(GATES, ODDS, SECONDS, SECONDS, DOLLARS, SECONDS)
def test_more_to_hide_never_stops_a_guess(  # noqa: PLR0913, PLR0917 - all that decides
    gate: BenefitGate, odds: float, one: float, other: float, run_usd: float, run_s: float
) -> None:
    """Monotone in the hideable time."""
    less, more = sorted((one, other))
    assert gate.pays(odds, more, run_usd, run_s) or not gate.pays(odds, less, run_usd, run_s)


@given(GATES, ODDS, SECONDS, DOLLARS, DOLLARS, SECONDS, SECONDS)
def test_a_higher_price_never_starts_a_guess(  # noqa: PLR0913, PLR0917 - all that decides
    gate: BenefitGate,
    odds: float,
    hideable_s: float,
    one_usd: float,
    other_usd: float,
    one_s: float,
    other_s: float,
) -> None:
    """Antitone in dollars and in seconds."""
    cheap_usd, dear_usd = sorted((one_usd, other_usd))
    short_s, long_s = sorted((one_s, other_s))
    assert gate.pays(odds, hideable_s, cheap_usd, short_s) or not gate.pays(
        odds, hideable_s, dear_usd, long_s
    )
