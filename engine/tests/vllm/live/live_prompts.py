"""Prompts on which SmolLM2 with 135 million parameters calls tools, by imitation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

SYSTEM = {"role": "system", "content": "You are a helpful assistant that uses tools."}
CITIES = ("Paris", "Rome", "Oslo", "Berlin", "Madrid", "Athens", "Dublin", "Lisbon")
WEATHER = {
    "London": "12 C and rainy",
    "Tokyo": "25 C and sunny",
    "Cairo": "35 C and dry",
    "Lima": "19 C and foggy",
    "Oslo": "3 C and snowy",
    "Paris": "18 C and cloudy",
    "Rome": "28 C and clear",
    "Madrid": "30 C and hot",
    "Berlin": "9 C and windy",
    "Athens": "31 C and dry",
    "Dublin": "11 C and wet",
    "Lisbon": "22 C and mild",
}
ELSEWHERE = {"Leeds": "London", "Osaka": "Tokyo", "Giza": "Cairo", "Callao": "Lima"}
"""Towns whose weather the tool does not know, and the city it sends the model to."""


def tool(name: str) -> dict[str, Any]:
    """Return a tool that takes a city."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    about = "Get the current weather in a city"
    function = {"name": name, "description": about, "parameters": city}
    return {"type": "function", "function": function}


TOOLS = [tool("get_weather")]


def call(name: str, city: str) -> dict[str, Any]:
    """Return a call as clients send it back."""
    function = {"name": name, "arguments": json.dumps({"city": city})}
    return {"id": f"call-{name}-{city}", "type": "function", "function": function}


def turn(*calls: Mapping[str, Any], outputs: Sequence[str]) -> list[dict[str, Any]]:
    """Return a turn that calls tools, and what they answered."""
    said = {"role": "assistant", "content": None, "tool_calls": [*calls]}
    results = [
        {"role": "tool", "tool_call_id": each["id"], "content": output}
        for each, output in zip(calls, outputs, strict=True)
    ]
    return [said, *results]


def single(city: str) -> list[dict[str, Any]]:
    """Ask for one city: one call, then an answer."""
    messages = [SYSTEM]
    for shown in ("London", "Tokyo", "Cairo"):
        messages += [
            {"role": "user", "content": f"What is the weather in {shown}?"},
            *turn(call("get_weather", shown), outputs=[WEATHER[shown]]),
            {"role": "assistant", "content": f"{WEATHER[shown]}."},
        ]
    return [*messages, {"role": "user", "content": f"What is the weather in {city}?"}]


def parallel(one: str, other: str) -> list[dict[str, Any]]:
    """Ask for two cities at once: two calls, then an answer."""
    messages = [SYSTEM]
    for pair in (("London", "Tokyo"), ("Cairo", "Lima"), ("Oslo", "London")):
        calls = [call("get_weather", city) for city in pair]
        told = ", ".join(WEATHER[city] for city in pair)
        messages += [
            {"role": "user", "content": f"What is the weather in {pair[0]} and in {pair[1]}?"},
            *turn(*calls, outputs=[WEATHER[city] for city in pair]),
            {"role": "assistant", "content": f"{told}."},
        ]
    return [
        *messages,
        {"role": "user", "content": f"What is the weather in {one} and in {other}?"},
    ]


def sent_on(town: str) -> list[dict[str, Any]]:
    """Ask for a town the tool does not know: a call, another one, then an answer."""
    messages = [SYSTEM]
    for shown, city in ELSEWHERE.items():
        messages += [
            {"role": "user", "content": f"What is the weather in {shown}?"},
            *turn(call("get_weather", shown), outputs=[f"unknown, try {city}"]),
            *turn(call("get_weather", city), outputs=[WEATHER[city]]),
            {"role": "assistant", "content": f"The weather in {city} is {WEATHER[city]}."},
        ]
    return [*messages, {"role": "user", "content": f"What is the weather in {town}?"}]


def contract() -> dict[str, dict[str, Any]]:
    """Return the prompts of the contract suite, whose tools answer with what they were asked."""
    chain = [SYSTEM]
    for city in ("London", "Tokyo", "Cairo", "Lima"):
        chain += [
            {"role": "user", "content": f"What is the weather and the wind in {city}?"},
            *turn(call("get_weather", city), outputs=[f"output of get_weather: {city}"]),
            *turn(call("get_wind", city), outputs=[f"output of get_wind: {city}"]),
            {"role": "assistant", "content": f"You have it for {city}."},
        ]
    chain.append({"role": "user", "content": "What is the weather and the wind in Paris?"})
    return {
        "single": {"messages": single("Paris"), "tools": TOOLS},
        "parallel": {"messages": parallel("Paris", "Rome"), "tools": TOOLS},
        "two_turns": {"messages": chain, "tools": [*TOOLS, tool("get_wind")]},
    }
