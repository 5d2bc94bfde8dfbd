"""The operator's limits check themselves, and the most careful mode wins."""

from typing import Any

import pytest

from langchain_spectool._core.budget import Budget
from langchain_spectool._core.policy import Mode, Policy, lowest, mode_of


def test_policy_defaults_are_valid() -> None:
    """A policy without arguments lets every declared guess run."""
    policy = Policy()
    assert policy.mode == "on"
    assert policy.min_confidence == 0
    assert not policy.allow_external


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "off"},
        {"mode": "shadow"},
        {"min_confidence": 0},
        {"min_confidence": 1},
        {"guesses_per_turn": 0},
        {"in_flight_per_run": 0},
        {"in_flight": 0},
        {"timeout_s": 0.001},
        {"timeout_s": 5},
        {"allow_external": True},
    ],
)
def test_policy_takes_the_ends_of_each_range(fields: dict[str, Any]) -> None:
    """The limits that a field states are themselves allowed."""
    policy = Policy(**fields)
    assert [getattr(policy, name) for name in fields] == [*fields.values()]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("mode", "dry", "on, shadow, off"),
        ("mode", None, "on, shadow, off"),
        ("mode", True, "on, shadow, off"),
        ("min_confidence", -0.1, "from 0 to 1"),
        ("min_confidence", 1.1, "from 0 to 1"),
        ("min_confidence", float("nan"), "from 0 to 1"),
        ("min_confidence", "high", "from 0 to 1"),
        ("holdout", -0.1, "from 0 to 1"),
        ("holdout", 1.1, "from 0 to 1"),
        ("holdout", None, "from 0 to 1"),
        ("budgets", None, "must be Budgets"),
        ("budgets", Budget(calls=1), "must be Budgets"),
        ("benefit", "on", "must be a BenefitGate"),
        ("guesses_per_turn", -1, "whole number of 0 or more"),
        ("in_flight_per_run", 1.5, "whole number of 0 or more"),
        ("in_flight", True, "whole number of 0 or more"),
        ("timeout_s", 0, "more than 0 seconds and finite"),
        ("timeout_s", float("inf"), "more than 0 seconds and finite"),
        ("timeout_s", float("nan"), "more than 0 seconds and finite"),
        ("timeout_s", None, "more than 0 seconds and finite"),
        ("allow_external", "no", "True or False"),
    ],
)
def test_bad_value_is_named_with_its_remedy(name: str, value: object, remedy: str) -> None:
    """The error names the field, the value and what would be right."""
    fields: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=remedy) as error:
        Policy(**fields)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("mode", ["on", "shadow", "off"])
def test_mode_of_returns_the_modes(mode: Mode) -> None:
    """A known mode is returned as it is."""
    assert mode_of(mode) == mode


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ((), "on"),
        (("on",), "on"),
        (("on", "shadow"), "shadow"),
        (("shadow", "on", "off"), "off"),
        (("off", "on"), "off"),
    ],
)
def test_lowest_mode_is_the_most_careful(modes: tuple[Mode, ...], expected: Mode) -> None:
    """Nobody's word raises what another's lowered."""
    assert lowest(*modes) == expected
