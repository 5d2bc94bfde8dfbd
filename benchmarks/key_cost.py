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

_ROUNDS = 51
_CALLS = 1000


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


def median_us(function: Callable[[], object]) -> float:
    """Return what one call of `function` takes, in microseconds."""
    function()
    rounds = timeit.repeat(function, number=_CALLS, repeat=_ROUNDS)
    return statistics.median(rounds) / _CALLS * 1e6


def main() -> None:
    """Measure both paths."""
    args = {"order_id": 5, "unit": "f"}
    custom = CustomLookup()
    parse_us = median_us(lambda: custom._parse_input(dict(args), "x"))  # noqa: SLF001
    custom_us = median_us(lambda: call_key(custom, args))
    bars = [
        {
            "name": "prepared_us",
            "value": round(median_us(lambda: call_key(lookup, args)), 2),
            "limit": 5,
        },
        {"name": "custom_vs_parse", "value": round(custom_us / parse_us, 2), "limit": 1.3},
        {"name": "parse_us", "value": round(parse_us, 2), "limit": None},
    ]
    print(json.dumps({"bars": bars}))


if __name__ == "__main__":
    main()
