"""What an answer costs: its tokens, at the price of its model."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_spectool._core.prices import Price, Prices
from langchain_spectool.graph.costs import cost_of
from langchain_spectool.testing import text

PRICES = Prices({"big": Price(input_usd_per_million=1.0, output_usd_per_million=10.0)})
USAGE = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}


def answer(message: AIMessage, model: str | None = "big", usage: Any = USAGE) -> AIMessage:
    """Return `message` as a model's answer."""
    metadata = {} if model is None else {"model_name": model}
    return message.model_copy(update={"response_metadata": metadata, "usage_metadata": usage})


def test_an_answer_costs_its_tokens() -> None:
    """A thousand read at a dollar and a hundred written at ten, per million."""
    assert cost_of(answer(text("done")), PRICES) == pytest.approx(0.002)


@pytest.mark.parametrize(
    "message",
    [
        None,
        answer(text("done"), model=None),
        answer(text("done"), model="other"),
        answer(text("done"), usage=None),
    ],
)
def test_what_is_unknown_is_not_free(message: AIMessage | None) -> None:
    """No answer, no model, no price, no usage."""
    assert cost_of(message, PRICES) is None
