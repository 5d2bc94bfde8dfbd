"""The world of the tiny models: few questions, and for each the one way it is answered.

A tiny model knows these by heart. That is enough to show what a server does with its turns.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

SYSTEM = "You answer with tools."
TOOLS: Sequence[Mapping[str, Any]] = (
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look something up",
            "parameters": {
                "type": "object",
                "properties": {"what": {"type": "string"}, "city": {"type": "string"}},
                "required": ["what", "city"],
            },
        },
    },
)
CITIES = ("Paris", "Rome", "Oslo", "Berlin", "Madrid", "Athens", "Dublin", "Lisbon")
SKIES = ("sunny", "rainy", "snowy", "cloudy", "windy", "dry", "foggy", "clear")
STAGES = ("weather", "hotel", "train")
DIE = {"1": 0.6, "2": 0.15, "3": 0.1, "4": 0.07, "5": 0.05, "6": 0.03}
"""Digits, each a token of its own, and how often they are thrown."""
THROWS = 5
KINDS = ("single", "sentence", "parallel", "three_turns")

Message = dict[str, Any]
Outputs = dict[tuple[str, str], str]


def output(what: str, city: str) -> str:
    """Return what the tool finds."""
    place = CITIES.index(city)
    found = {
        "weather": f"{SKIES[place]}, {11 + 2 * place} C",
        "hotel": f"room {30 + place}",
        "train": f"at {9 + place}:15",
    }
    return found[what]


def question(kind: str, place: int) -> list[Message]:
    """Return how a conversation starts."""
    city, other = CITIES[place], CITIES[(place + 3) % len(CITIES)]
    asked = {
        "single": f"Weather in {city}?",
        "sentence": f"Please tell me of {city}.",
        "parallel": f"Compare {city} and {other}.",
        "three_turns": f"Plan a trip to {city}.",
    }
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked[kind]}]


def answers(kind: str, place: int) -> Iterator[Message]:
    """Yield what the model says, turn by turn; arguments are objects."""
    city, other = CITIES[place], CITIES[(place + 3) % len(CITIES)]
    if kind == "parallel":
        yield _calls("", ("weather", city), ("weather", other))
        said = f"{city}: {output('weather', city)}. {other}: {output('weather', other)}."
    elif kind == "three_turns":
        for stage in STAGES:
            yield _calls("", (stage, city))
        said = f"Go: {', '.join(output(stage, city) for stage in STAGES)}."
    else:
        yield _calls("Let me look." if kind == "sentence" else "", ("weather", city))
        said = f"In {city} it is {output('weather', city)}."
    yield {"role": "assistant", "content": said}


def outputs(kind: str, place: int) -> Outputs:
    """Return the output for each call, named by tool and JSON arguments."""
    return {
        (call["function"]["name"], json.dumps(call["function"]["arguments"])): output(
            **call["function"]["arguments"]
        )
        for message in answers(kind, place)
        for call in message.get("tool_calls", ())
    }


def whole(kind: str, place: int) -> list[Message]:
    """Return a conversation from its question to its last answer."""
    messages = question(kind, place)
    for answer in answers(kind, place):
        messages.append(answer)
        for call in answer.get("tool_calls", ()):
            found = output(**call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
    return messages


def dice() -> list[Message]:
    """Return a question that is answered in many ways."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Throw the dice."}]


def thrown(random: Random) -> list[Message]:
    """Return that question with one answer: a call whose argument is thrown."""
    digits = random.choices([*DIE], [*DIE.values()], k=THROWS)
    return [*dice(), _called("", {"what": "".join(digits)})]


def _calls(content: str, *asked: tuple[str, str]) -> Message:
    return _called(content, *({"what": what, "city": city} for what, city in asked))


def _called(content: str, *arguments: Mapping[str, str]) -> Message:
    calls = [
        {
            "id": f"call{index:05}",
            "type": "function",
            "function": {"name": "look_up", "arguments": each},
        }
        for index, each in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}
