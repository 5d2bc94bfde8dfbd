"""What is asked, and the tool that answers.

The prompt holds three finished questions, so that a small model calls the tool as well.
"""

import asyncio
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

TOOL: Final = "get_weather"
TOOLS: Final[Sequence[Mapping[str, Any]]] = (
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Get the current weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    },
)
CITIES: Final = (
    *("Paris", "Rome", "Oslo", "Berlin", "Madrid", "Athens", "Dublin", "Lisbon"),
    *("Vienna", "Prague", "Warsaw", "Moscow", "Delhi", "Seoul", "Boston", "Chicago"),
    *("Denver", "Dallas", "Miami", "Toronto", "Sydney", "Lima", "Nairobi", "Mumbai"),
    *("Milan", "Geneva", "Munich", "Hamburg", "Naples", "Venice", "Lyon", "Turin"),
)
_SHOWN: Final = (
    ("London", "12 C and rainy"),
    ("Tokyo", "25 C and sunny"),
    ("Cairo", "35 C and dry"),
)
_SKIES: Final = ("cloudy", "sunny", "rainy", "windy", "dry", "foggy", "clear", "snowy")

Message = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Tool:
    """Takes its time, and counts how often it runs for each call of each task."""

    seconds: float
    executions: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    commits: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    async def run(self, task: str, arguments: str) -> str:
        """Execute a call, whoever asks for it."""
        self.executions[task, arguments] += 1
        await asyncio.sleep(self.seconds)
        return _weather(arguments)

    @property
    def doubles(self) -> int:
        """How many runs there were beyond one for each committed call.

        The run of a guess that came to nothing is one too many only where it was made twice.
        """
        return sum(
            max(0, ran - max(self.commits[call], 1)) for call, ran in self.executions.items()
        )

    @property
    def wasted(self) -> int:
        """How many runs no committed call asked for."""
        return sum(max(0, ran - self.commits[call]) for call, ran in self.executions.items())


def prompt(city: str, notes: int) -> list[Message]:
    """Return the messages that ask for the weather in `city`.

    `notes` lengthens them by about four tokens each: histories end anywhere in a block, and so
    they have to here.
    """
    noted = ", ".join(f"{each} {index % 10}" for index, each in enumerate((CITIES * 2)[:notes]))
    messages: list[Message] = [
        {
            "role": "system",
            "content": f"You are a helpful assistant that uses tools. Notes: {noted}",
        }
    ]
    for index, (shown, weather) in enumerate(_SHOWN):
        call = {
            "id": f"call-{index}",
            "type": "function",
            "function": {"name": TOOL, "arguments": json.dumps({"city": shown})},
        }
        messages += [
            {"role": "user", "content": f"What is the weather in {shown}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": weather},
            {"role": "assistant", "content": f"The weather in {shown} is {weather}."},
        ]
    return [*messages, {"role": "user", "content": f"What is the weather in {city}?"}]


def canonical(arguments: str) -> str:
    """Write arguments the one way that early runs and calls are compared in."""
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return arguments


def _weather(arguments: str) -> str:
    drawn = zlib.crc32(arguments.encode())
    return f"{drawn % 35} C and {_SKIES[drawn // 35 % len(_SKIES)]}"
