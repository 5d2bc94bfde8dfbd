"""What an answer of the main model costs."""

from langchain_core.messages import AIMessage

from langchain_spectool._core.prices import Prices


def cost_of(message: AIMessage | None, prices: Prices) -> float | None:
    """Return the dollars for `message`: None, unknown, without a price, or the tokens used."""
    if message is None:
        return None
    model = message.response_metadata.get("model_name")
    return prices.cost_usd(model, message.usage_metadata)
