"""Print what a call key costs, as JSON, beside the `_parse_input` of the tool itself.

Values are microseconds: the median over rounds of the mean within a round.
"""

import json
import statistics
import timeit
from collections.abc import Callable
from typing import Any

from langchain_core.tools import BaseTool, tool

from langchain_spectool._core.keys import call_key

_ROUNDS = 101
_CALLS = 300


@tool
def lookup(order_id: int, unit: str = "c") -> str:
    """Look an order up, with a schema that can be prepared."""
    return f"{order_id}{unit}"


class CustomLookup(BaseTool):
    """The same, with parsing of its own that has to be called."""

    name: str = "lookup"
    description: str = "Look an order up."
    args_schema: Any = lookup.args_schema

    def _parse_input(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> str | dict[str, Any]:
        return super()._parse_input(tool_input, tool_call_id)

    def _run(self, order_id: int, unit: str) -> str:
        return f"{order_id}{unit}"


def medians_us(*functions: Callable[[], object]) -> list[float]:
    """Return what one call of each function takes, in microseconds; the rounds alternate."""
    rounds = [[timeit.timeit(run, number=_CALLS) for run in functions] for _ in range(_ROUNDS)]
    return [statistics.median(times) / _CALLS * 1e6 for times in zip(*rounds, strict=True)]


def main() -> None:
    """Measure both paths."""
    args = {"order_id": 5, "unit": "f"}
    custom = CustomLookup()
    prepared_us, custom_us, parse_us = medians_us(
        lambda: call_key(lookup, args),
        lambda: call_key(custom, args),
        lambda: custom._parse_input(dict(args), "x"),  # noqa: SLF001
    )
    bars = [
        {"name": "prepared_us", "value": round(prepared_us, 2), "limit": 5},
        {"name": "custom_vs_parse", "value": round(custom_us / parse_us, 2), "limit": 1.3},
    ]
    print(json.dumps({"bars": bars, "parse_us": round(parse_us, 2)}))


if __name__ == "__main__":
    main()
