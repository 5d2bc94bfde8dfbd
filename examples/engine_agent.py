"""A two-turn agent on an engine with a tool cache: one HTTP request instead of two.

The engine is the reference engine of `vllm-spectool`: the API and the rules of the vLLM plugin over
a small deterministic model, in this process, over HTTP on loopback. Nothing leaves the machine.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from vllm_spectool.reference import Reference, ReferenceSettings, call, scripted, serving

from langchain_spectool import Guess, Policy, Speculation, TurnRequest, speculatable

QUESTION = "What is the weather in Rome?"
ANSWER = "It is 18 degrees and sunny in Rome."
TOKEN_S = 0.005
"""Seconds the engine takes for one token."""


@speculatable
@tool
async def weather(city: str) -> str:
    """Tell today's weather in a city."""
    return f"18 degrees, sunny, in {city}"


class Habit:
    """Guesses that whoever asks about the weather in Rome is told of it."""

    name, samples, timeout_s, free = "habit", 1, 1.0, True

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:  # noqa: ARG002 - a port
        """Yield the one guess for a question."""
        if request.messages[-1].type == "human":
            yield Guess(tool="weather", args={"city": "Rome"})

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Yield the same."""
        for guess in self.guess(request, sample):
            yield guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run of the agent came to."""

    updates: list[tuple[str, list[BaseMessage]]]
    """Of `stream_mode="updates"`: each node, and the messages it added."""
    checkpoints: list[list[BaseMessage]]
    """The messages of each, the newest first."""
    requests: int
    """Chat requests that the engine has taken."""
    left: dict[str, int]
    """What the engine still holds; all of it should be zero."""

    def shown(self) -> tuple[object, object]:
        """Return what another run can be compared with: all but the ids."""
        updates = [(node, [*map(_said, messages)]) for node, messages in self.updates]
        return updates, [[*map(_said, messages)] for messages in self.checkpoints]


def _said(message: BaseMessage) -> tuple[str, Any, list[tuple[str, Any]]]:
    calls = [(call["name"], call["args"]) for call in getattr(message, "tool_calls", ())]
    return message.type, message.content, calls


async def run(*, engine: bool, streaming: bool = True) -> Outcome:
    """Ask the agent, with or without telling the engine of early results."""
    service = Reference(
        scripted(call("weather", city="Rome"), ANSWER), settings=ReferenceSettings(token_s=TOKEN_S)
    )
    with serving(service) as url:
        base_url = f"{url}/v1"
        model = ChatOpenAI(
            model="reference", api_key="none", base_url=base_url, streaming=streaming
        )
        speculation = Speculation(
            speculators=[Habit()],
            policy=Policy(benefit=None),  # one run is no time to learn what pays
            engine=base_url if engine else None,
        )
        agent: Any = create_agent(
            model, [weather], middleware=[speculation.middleware()], checkpointer=InMemorySaver()
        )
        thread = {"configurable": {"thread_id": "weather"}}
        asked = {"messages": [("user", QUESTION)]}
        steps = [step async for step in agent.astream(asked, thread, stream_mode="updates")]
        states = [state async for state in agent.aget_state_history(thread)]
        await asyncio.sleep(0.1)  # the engine sees that the connections have ended
        return Outcome(
            updates=[(node, new["messages"]) for step in steps for node, new in step.items()],
            checkpoints=[state.values.get("messages", []) for state in states],
            requests=service.requests,
            left=service.left(),
        )


async def main(*, streaming: bool) -> None:
    """Run both and compare them."""
    off = await run(engine=False, streaming=streaming)
    on = await run(engine=True, streaming=streaming)
    for message in on.checkpoints[0]:
        print(message.pretty_repr())
    print()
    print(f"engine off: {off.requests} HTTP requests")
    print(f"engine on:  {on.requests} HTTP request")
    print(f"equal updates and checkpoints: {on.shown() == off.shown()}")
    print(f"left on the engine: {sum(on.left.values())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", action="store_true", help="answers in one piece, not streamed")
    asyncio.run(main(streaming=not parser.parse_args().whole))
