"""Prices of model calls: what is unknown stays unknown."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.prices import Price, Prices

NANO = Price(
    input_usd_per_million=0.05, output_usd_per_million=0.4, cached_input_usd_per_million=0.005
)
BIG = Price(input_usd_per_million=1.25, output_usd_per_million=10)
PRICES = Prices({"gpt-5": BIG, "gpt-5-nano": NANO})
MILLION = 1_000_000
ONE_OF_EACH = (MILLION, MILLION)


def test_tokens_are_charged_by_kind() -> None:
    """Cached input has its own price, and is part of the input, not on top of it."""
    usage: dict[str, Any] = {
        "input_tokens": 2 * MILLION,
        "output_tokens": MILLION,
        "total_tokens": 3 * MILLION,
        "input_token_details": {"cache_read": MILLION, "audio": 0},
        "output_token_details": {"reasoning": MILLION},
    }
    assert PRICES.cost_usd("gpt-5-nano", usage) == pytest.approx(0.05 + 0.005 + 0.4)
    assert PRICES.cost_usd("gpt-5", usage) == pytest.approx(2 * 1.25 + 10)


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("gpt-5", BIG),
        ("gpt-5-nano", NANO),
        ("gpt-5-nano-2025-08-07", NANO),
        ("gpt-5-2025-08-07", BIG),
        ("gpt-5-latest", BIG),
        ("gpt-5-0613", BIG),
        ("gpt-5@20250929", BIG),
        ("gpt-5-001", BIG),
        ("gpt-5-05-20", BIG),
        ("gpt-5-09-2025", BIG),
        ("gpt-5-mini", None),
        ("gpt-5-mini-2025-08-07", None),
        ("gpt-5.1", None),
        ("gpt-5-1", None),
        ("gpt-50613", None),
        ("gpt-5-", None),
        ("GPT-5", None),
        ("openai:gpt-5", None),
        ("gpt", None),
        ("", None),
        (None, None),
    ],
)
def test_a_name_stands_for_its_releases_and_nothing_else(
    name: str | None, price: Price | None
) -> None:
    """The longest name that the model is a release of decides; similar names do not."""
    assert PRICES.price(name) is price
    cost = PRICES.cost_usd(name, ONE_OF_EACH)
    assert cost == (None if price is None else price.cost_usd(*ONE_OF_EACH))


@pytest.mark.parametrize("name", [["gpt-5"], 3, {"gpt-5": 1}, b"gpt-5", True, ("gpt-5",)], ids=repr)
def test_a_name_that_is_no_text_has_no_price(name: Any) -> None:
    """A provider may write anything into a message; what cannot be looked up is unknown."""
    assert PRICES.price(name) is None
    assert PRICES.cost_usd(name, ONE_OF_EACH) is None


def test_longest_name_wins() -> None:
    """A release with a price of its own is not charged as its family."""
    prices = Prices({"m": BIG, "m-2025": NANO})
    assert prices.price("m-2025") is NANO
    assert prices.price("m-2025-0613") is NANO
    assert prices.price("m-2024") is BIG


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input_tokens": 5},
        {"input_tokens": 5, "output_tokens": None},
        {"input_tokens": -5, "output_tokens": 5},
        {"input_tokens": 5, "output_tokens": 5, "input_token_details": {"cache_read": -1}},
        {"input_tokens": "5", "output_tokens": 5},
        (5,),
        (5, None),
        "55",
    ],
)
def test_unknown_usage_is_not_free(usage: Any) -> None:
    """Without both counts there is no cost, not a cost of 0."""
    assert PRICES.cost_usd("gpt-5", usage) is None


@pytest.mark.parametrize("details", [None, {}, {"cache_read": None}])
def test_usage_without_details_has_no_cached_part(details: Any) -> None:
    """What providers leave out of the details counts as none."""
    usage = {"input_tokens": MILLION, "output_tokens": 0, "input_token_details": details}
    assert PRICES.cost_usd("gpt-5-nano", usage) == pytest.approx(0.05)


def test_known_usage_of_nothing_is_free() -> None:
    """0 tokens cost 0 dollars, which is known."""
    assert PRICES.cost_usd("gpt-5", (0, 0)) == 0


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_tokens_never_cost_less(read: int, written: int, cached: int, more: int) -> None:
    """Costs rise with tokens, fall with cached ones, and are never below 0."""
    cost = NANO.cost_usd(read, written, cached)
    assert 0 <= cost <= NANO.cost_usd(read, written) * (1 + 1e-9)
    assert NANO.cost_usd(read + more, written, cached) >= cost * (1 - 1e-9)
    assert NANO.cost_usd(read, written + more, cached) >= cost * (1 - 1e-9)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", True, None])
@pytest.mark.parametrize("name", ["input_usd_per_million", "output_usd_per_million"])
def test_bad_price_is_named(name: str, value: Any) -> None:
    """The error names the field and the value."""
    fields: dict[str, Any] = {"input_usd_per_million": 1, "output_usd_per_million": 1, name: value}
    with pytest.raises(ValueError, match=f"`{name}`.*{value!r}"):
        Price(**fields)


@pytest.mark.parametrize("table", [{"": BIG}, {3: BIG}, {"m": 1.25}])
def test_bad_table_is_refused(table: Any) -> None:
    """A table is checked when it is made, not at the first call."""
    with pytest.raises(ValueError, match="must be"):
        Prices(table)


def test_later_changes_of_the_table_do_not_count() -> None:
    """The table is copied."""
    table = {"m": BIG}
    prices = Prices(table)
    table.clear()
    assert prices.price("m") is BIG
