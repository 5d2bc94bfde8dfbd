"""Drawn agents show what stock ones show, with an engine on; only requests differ."""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from vllm_spectool.reference import CHATML, DRIFTING, LLAMA, Call, Turn, scripted

from tests.engines.agents import Bench, bench, inputs, said, thread

pytestmark = pytest.mark.timeout(300)

_EXAMPLES = 6 * max(1, int(os.environ.get("SPECTOOL_EXAMPLES", "1")))
CITIES = ("Rome", "Oslo", "Bern")
CALLS = [("weather", {"city": city}) for city in CITIES] + [("send", {"city": "Rome"})]


@dataclass(frozen=True)
class _Agent:
    """What is drawn: what the model says, what is guessed, and how it is asked."""

    turns: tuple[tuple[str, tuple[int, ...]], ...]
    """Text and calls of each turn; the last one calls nothing."""
    guesses: tuple[tuple[int, ...], ...]
    streaming: bool
    awaited: bool
    style: str
    deterministic: bool

    def script(self) -> Any:
        turns = [
            Turn(content=text, calls=[Call(name=CALLS[c][0], params=CALLS[c][1]) for c in calls])
            for text, calls in self.turns
        ]
        return scripted(*turns)

    def guessed(self) -> dict[int, list[tuple[str, dict[str, str]]]]:
        return {turn: [CALLS[c] for c in calls] for turn, calls in enumerate(self.guesses)}


@st.composite
def _agents(draw: st.DrawFn) -> _Agent:
    texts = st.sampled_from(["", "", "Let me see."])
    calls = st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple)
    turns = draw(st.lists(st.tuples(texts, calls), min_size=1, max_size=3))
    guesses = [
        made if draw(st.integers(0, 3)) else draw(st.lists(st.integers(0, 2), max_size=2))
        for _, made in turns
    ]
    return _Agent(
        turns=(*turns, ("Done.", ())),
        guesses=tuple(tuple(c for c in each if c < 3) for each in guesses),
        streaming=draw(st.booleans()),
        awaited=draw(st.booleans()),
        style=draw(st.sampled_from(["chatml", "chatml", "llama", "drifting"])),
        deterministic=draw(st.booleans()),
    )


STYLES = {"chatml": CHATML, "llama": LLAMA, "drifting": DRIFTING}


def _run(drawn: _Agent, *, speculate: bool, engine: bool) -> tuple[Any, Bench]:
    with bench(drawn.script(), style=STYLES[drawn.style]) as b:
        speculation = b.speculation(drawn.guessed(), engine=engine) if speculate else None
        tools = [b.read(deterministic=drawn.deterministic), b.write()]
        agent = b.agent(speculation, tools, model=b.model(streaming=drawn.streaming))
        if drawn.awaited:
            steps = asyncio.run(_streamed(agent))
        else:
            steps = [*agent.stream(inputs(), thread(), stream_mode=["updates", "values"])]
        if speculation is not None:
            b.assert_nothing_left(speculation)
        return _in_order([(mode, _shown(step)) for mode, step in steps]), b


async def _streamed(agent: Any) -> list[Any]:
    stream = agent.astream(inputs(), thread(), stream_mode=["updates", "values"])
    steps = [step async for step in stream]
    await asyncio.sleep(0.05)
    return steps


def _in_order(steps: list[Any]) -> list[Any]:
    """Bring the updates of calls that run side by side into one order: theirs is not fixed."""
    groups = [
        sorted(group, key=repr) if side_by_side else [*group]
        for side_by_side, group in groupby(steps, lambda step: step[0] == "updates")
    ]
    return [step for group in groups for step in group]


def _shown(step: Any) -> Any:
    if "messages" in step:
        return said(step["messages"])
    return {node: said(update["messages"]) for node, update in step.items()}


def test_drawn_agents_show_the_same() -> None:
    """Every step; each committed call runs once; no more requests than without an engine."""
    tally: Counter[str] = Counter()

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(_agents())
    def check(drawn: _Agent) -> None:
        stock, plain = _run(drawn, speculate=False, engine=False)
        on, b = _run(drawn, speculate=True, engine=True)
        assert on == stock
        served = sum(verdict in ("hit", "joined", "shared") for verdict in b.claims)
        assert len(b.committed) + served == len(plain.committed)
        assert b.service.requests <= plain.service.requests
        tally.update(drawn=1, fewer=b.service.requests < plain.service.requests)

    check()
    assert tally["drawn"] >= _EXAMPLES
