"""What model calls cost, from a table the user writes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast

_RELEASE: Final = re.compile(
    r"[-@:_]("
    r"latest|0\d\d|\d{4}|\d{6}|\d{8}"  # flash-001, gpt-4-0613, sonnet-20250929
    r"|\d{4}-\d\d-\d\d|\d\d-\d\d(\d\d)?"  # nano-2025-08-07, preview-05-20, preview-09-2025
    r")"
)
"""What a provider appends to the name of a model for one release of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one model charges, in US dollars per million tokens.

    Raises:
        ValueError: A price is negative or not finite.
    """

    input_usd_per_million: float
    """Price of what the model reads."""
    output_usd_per_million: float
    """Price of what it writes, its reasoning included."""
    cached_input_usd_per_million: float | None = None
    """Price of what it reads from a provider's prompt cache. None: like all other input."""

    def __post_init__(self) -> None:
        """Check every price once."""
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if not (_is_price(value) or value is field.default):
                msg = f"`{field.name}` must be a number of 0 or more dollars, got {value!r}"
                raise ValueError(msg)

    def cost_usd(self, read: int, written: int, cached: int = 0) -> float:
        """Return the dollars for tokens; `cached` are those of the `read` that a cache held."""
        cached = min(cached, read)
        reused = self.cached_input_usd_per_million
        if reused is None:
            reused = self.input_usd_per_million
        micros = (
            (read - cached) * self.input_usd_per_million
            + cached * reused
            + written * self.output_usd_per_million
        )
        return micros / 1_000_000


class Prices:
    """Prices by model name."""

    def __init__(self, table: Mapping[str, Price]) -> None:
        """Keep a copy of `table`.

        Args:
            table: From a model's name to its price. A name also stands for its releases:
                `gpt-5-nano` for `gpt-5-nano-2025-08-07`, but not for `gpt-5-nano-high`.

        Raises:
            ValueError: A name is empty or no text, or its price is not a `Price`.
        """
        for name, price in cast("Mapping[Any, Any]", table).items():
            if not (isinstance(name, str) and name):
                msg = f"a model's name must be a non-empty text, got {name!r}"
                raise ValueError(msg)
            if not isinstance(price, Price):
                msg = f"the price of {name!r} must be a `Price`, got {price!r}"
                raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
        self._table = dict(table)

    def price(self, model_name: str | None) -> Price | None:
        """Return the price of a model: by its exact name, else by the longest that it releases.

        None where the table has no such model: a price is never taken from a similar name.
        """
        if not isinstance(cast("object", model_name), str) or model_name is None:
            return None
        if (exact := self._table.get(model_name)) is not None:
            return exact
        known = [
            name
            for name in self._table
            if model_name.startswith(name) and _RELEASE.fullmatch(model_name, len(name))
        ]
        return self._table[max(known, key=len)] if known else None

    def cost_usd(
        self, model_name: str | None, usage: Mapping[str, Any] | tuple[int, int] | None
    ) -> float | None:
        """Return what one or more calls of a model cost, in US dollars.

        Args:
            model_name: As the provider spells it, such as `response_metadata["model_name"]`.
            usage: LangChain's `usage_metadata`, or the input and output tokens.

        Returns:
            None where the model has no price or the usage is unknown, which is not 0.
        """
        price = self.price(model_name)
        tokens = _tokens(usage)
        return None if price is None or tokens is None else price.cost_usd(*tokens)


def _is_price(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf


def _tokens(usage: object) -> tuple[int, int, int] | None:
    """Return tokens read, written, and read from a cache; None where they are unknown."""
    if isinstance(usage, Mapping):
        found = cast("Mapping[str, Any]", usage)
        details = cast("Mapping[str, Any]", found.get("input_token_details") or {})
        cached = details.get("cache_read") or 0
        counts = (found.get("input_tokens"), found.get("output_tokens"), cached)
    elif isinstance(usage, tuple):
        counts = (*cast("tuple[object, ...]", usage), 0)
    else:
        return None
    match counts:
        case (int(read), int(written), int(cached)) if min(read, written, cached) >= 0:
            return read, written, cached
        case _:
            return None
