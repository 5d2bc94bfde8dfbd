"""Guesses check their confidence."""

from fractions import Fraction
from typing import Any

import pytest

from langchain_spectool._core.guess import Guess, TurnRequest


@pytest.mark.parametrize("confidence", [0, 0.5, 1, Fraction(1, 3)])
def test_confidence_is_a_share(confidence: Any) -> None:
    """Any real number from 0 to 1 is a confidence, whatever its type."""
    assert Guess(tool="search", args={}, confidence=confidence).confidence == confidence


@pytest.mark.parametrize("confidence", [-0.01, 1.01, float("nan"), "high", None])
def test_confidence_outside_its_range_is_refused(confidence: Any) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match="from 0 to 1") as error:
        Guess(tool="search", args={}, confidence=confidence)
    assert repr(confidence) in str(error.value)


def test_guess_is_certain_unless_it_says_otherwise() -> None:
    """A source that knows nothing of odds need not invent them."""
    assert Guess(tool="search", args={"query": "x"}).confidence == 1


def test_request_needs_only_messages_and_tools() -> None:
    """A test of a speculator can be shown just these two."""
    request = TurnRequest(messages=["hi"], tools=["search"])
    assert (request.declared, request.settings, request.on_usage) == ((), {}, None)
