"""Agents whose speculation has to pay: tools that note their runs, sources that may be wrong."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool

from langchain_spectool import (
    DraftModel,
    Guess,
    Policy,
    TurnRequest,
    speculatable,
)
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool._core.prices import Price
from langchain_spectool.testing import ScriptedModel, Turn, calls, text
from tests.cases.harness import HELLO, THINKS_S, Rehearsal, Scene, Way

TAKES_S = 0.5
"""Virtual seconds that `look` and `find` take; in threads they take none."""
USAGE = {"input_tokens": 900, "output_tokens": 100, "total_tokens": 1000}
PRICES = {
    "scripted": Price(input_usd_per_million=1.0, output_usd_per_million=1.0),
    "small": Price(input_usd_per_million=0.5, output_usd_per_million=0.5),
}
A, B = ("look", {"q": "a"}), ("look", {"q": "b"})
ONE_CALL = (calls(A), text("done"))
STOCK_S = 2 * THINKS_S + TAKES_S
"""Two turns of the model and one call of `look`."""
ways = pytest.mark.parametrize("way", ["ainvoke", "invoke"])


class Limited(Exception):  # noqa: N818 - stands for a client's own error
    """What a client raises for a 429 with `Retry-After: 60`."""

    def __init__(self) -> None:
        super().__init__("HTTP 429")
        self.retry_after = 60


class Bodies:
    """Tools that note which of their bodies ran, in the order they began."""

    def __init__(self, way: Way = "ainvoke") -> None:
        self.way = way
        self.ran: list[str] = []
        self.limits: set[str] = set()
        """Arguments for which the service is too busy."""

    def read(self, name: str, **contract: Any) -> BaseTool:
        """Return a declared tool; it takes `TAKES_S`, or no time in a thread."""

        def body(q: str) -> str:
            self.ran.append(f"{name} {q}")
            if q in self.limits:
                raise Limited
            return q

        async def abody(q: str) -> str:
            self.ran.append(f"{name} {q}")
            await asyncio.sleep(TAKES_S)
            if q in self.limits:
                raise Limited
            return q

        body.__name__ = abody.__name__ = name
        made = tool(abody if self.way == "ainvoke" else body, description="Read something.")
        return speculatable(made, **contract)


def rehearsal(
    bodies: Bodies,
    *guesses: Sequence[tuple[str, Mapping[str, Any]]],
    turns: Sequence[Turn | AIMessage] = ONE_CALL,
    tools: Sequence[BaseTool] = (),
    **options: Any,
) -> Rehearsal:
    """Return an agent with `look`, or other tools, whose oracle makes `guesses` turn by turn."""
    scene = Scene(turns=turns, tools=tools or [bodies.read("look")], way=bodies.way)
    return Rehearsal(scene, *guesses, **options)


async def timed(agent: Any, config: Any = None, inputs: Any = HELLO) -> tuple[float, Any]:
    """Run and return the virtual seconds it took, and the state."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    state = await agent.ainvoke(inputs, config)
    return round(loop.time() - began_s, 6), state


def tenant(name: str) -> dict[str, Any]:
    """Return the config of a run for a tenant."""
    return {"configurable": {"tenant": name}}


def watched(show: Rehearsal) -> int:
    """Return how many runs are still followed."""
    watch = show.spec._opener._watch
    assert watch is not None
    return len(watch._runs)


class Fickle:
    """A source that guesses `q` as long as it is told to, and counts how often it was asked."""

    name = "fickle"
    samples = 1
    timeout_s = 30.0

    def __init__(self, q: str, confidence: float = 1.0, **fields: Any) -> None:
        self.q = q
        self.confidence = confidence
        self.asked = 0
        self.__dict__.update(fields)

    def guess(self, request: TurnRequest, sample: int) -> Sequence[Guess]:
        # Only of the first turn, which is the one with a call.
        if any(isinstance(message, AIMessage) for message in request.messages):
            return ()
        self.asked += 1
        return [Guess(tool="look", args={"q": self.q}, confidence=self.confidence)]

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        for guess in self.guess(request, sample):
            yield guess


def drafted(usage: Any, **budgets: Budget) -> tuple[Rehearsal, ScriptedModel]:
    """Return an agent with a draft model that is always right."""
    draft = ScriptedModel(
        turns=ONE_CALL, generation_s=0.1, model_name="small", usage_metadata=usage
    )
    policy = Policy(budgets=Budgets(**budgets))
    options = {"speculators": [DraftModel(draft)], "policy": policy, "prices": PRICES}
    return rehearsal(Bodies(), **options), draft
