"""Over 500 requests to which everything happens by chance: no call runs twice, nothing is left."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import pytest
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.messages import ToolMessage
from vllm_spectool.reference import call, scripted

from tests.engines.agents import SETTLE_S, Bench, bench, inputs, thread
from tests.engines.faults import Fault, Faulty, Line
from tests.engines.stacks import Editing, FailsOnce

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(300)]

SEEDS = 6
REQUESTS = 90 * max(1, int(os.environ.get("SPECTOOL_EXAMPLES", "1")))
"""Fewest requests of each seed."""
FATES = ("plain", "threads", "edit", "retry", "cancel", "leave")
FAULTS: tuple[Fault, ...] = ("none",) * 8 + ("refused", "status", "cut", "between")
ROME: Mapping[str, Any] = {"city": "Rome"}
OSLO: Mapping[str, Any] = {"city": "Oslo"}
ANSWER = scripted(call("weather", city="Rome"), "It is fine.")


@dataclass
class _Client:
    """One ChatOpenAI, streaming or not, and the line it is on; used by run after run."""

    line: Line
    models: Mapping[bool, Any]


@asynccontextmanager
async def _client(b: Bench) -> AsyncIterator[_Client]:
    line = Line()
    blocking = httpx2.Client(transport=Faulty(line, httpx2.HTTPTransport(verify=False)))
    awaited = httpx2.AsyncClient(transport=Faulty(line, httpx2.AsyncHTTPTransport(verify=False)))
    options = {"http_client": blocking, "http_async_client": awaited, "max_retries": 2}
    with blocking:
        async with awaited:
            yield _Client(line, {s: b.model(streaming=s, **options) for s in (True, False)})


@dataclass
class _Drawn:
    """What happens to one run."""

    fate: str
    fault: Fault
    nth: int
    cut_after: int
    guess: Mapping[str, Any]
    guess_s: float
    tool_s: float
    streaming: bool
    wait_s: float

    @property
    def ends(self) -> bool:
        """Whether the run has its answer in the end."""
        cut = self.fault == "cut" and self.fate != "retry"
        return self.fate not in ("cancel", "leave") and not cut


def _drawn(dice: random.Random, fate: str, fault: Fault) -> _Drawn:
    return _Drawn(
        fate=fate,
        fault=fault,
        nth=dice.choice([0, 0, 1]),
        cut_after=dice.choice([0, 100, 200, 300, 3000]),
        guess=dice.choice([ROME, ROME, ROME, OSLO]),
        guess_s=dice.choice([0.0, 0.0, 0.0, 0.03]),
        tool_s=dice.choice([0.0, 0.0, 0.0, 0.05]),
        streaming=dice.random() < 0.7,
        wait_s=dice.uniform(0.0, 0.15),
    )


async def _run(shared: Bench, client: _Client, drawn: _Drawn) -> Counter[str]:
    """Run one agent, and count what its calls did."""
    b = Bench(shared.service, shared.url, delay_s=drawn.tool_s)
    line = client.line
    line.fault, line.nth, line.after = drawn.fault, drawn.nth, drawn.cut_after
    line.asked, line.failed = 0, 0
    line.ids.clear()
    middleware: list[Any] = [Editing()] if drawn.fate == "edit" else []
    if drawn.fate == "retry":
        retry = ModelRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
        middleware = [retry, FailsOnce()]
    speculation = b.speculation({0: [("weather", drawn.guess)]}, delay_s=drawn.guess_s)
    model = client.models[drawn.streaming]
    agent = b.agent(speculation, [b.read()], model=model, middleware=middleware)
    try:
        messages = await _lived(agent, drawn)
    except (openai.APIError, httpx2.TransportError):
        assert drawn.fault == "cut"
        messages = []
    _assert_once(b, drawn, messages)
    if drawn.fault == "refused" and line.failed and drawn.ends:
        assert line.ids[drawn.nth] == line.ids[drawn.nth + 1], "the SDK's retry has another id"
    assert speculation.engine is not None
    assert speculation.engine.in_progress == 0
    assert b.errors == []
    await _nothing_left(b, line)
    continued = b.engine_verdicts.count("continued")
    return Counter(
        {
            "requests": line.asked + continued,
            "continued": continued,
            drawn.fate: 1,
            drawn.fault: bool(line.failed),
            "hit": b.claims.count("hit"),
            "missed": drawn.guess == OSLO and len(b.committed),
        }
    )


def _assert_once(b: Bench, drawn: _Drawn, messages: list[Any]) -> None:
    served = sum(verdict in ("hit", "joined", "shared") for verdict in b.claims)
    answered = sum(isinstance(message, ToolMessage) for message in messages)
    if drawn.ends:
        assert answered == 1
        assert messages[-1].content == "It is fine."
        assert len(b.committed) + served == 1
    else:
        assert len(b.committed) + served <= 1


async def _lived(agent: Any, drawn: _Drawn) -> list[Any]:
    if drawn.fate == "cancel":
        task = asyncio.create_task(agent.ainvoke(inputs(), thread()))
        await asyncio.sleep(drawn.wait_s)
        task.cancel()
        await asyncio.wait({task})
    elif drawn.fate == "leave":
        stream = agent.astream(inputs(), thread(), stream_mode="updates")
        async for _ in stream:
            break
        await stream.aclose()
    elif drawn.fate == "threads":
        return (await asyncio.to_thread(agent.invoke, inputs(), thread()))["messages"]
    else:
        return (await agent.ainvoke(inputs(), thread()))["messages"]
    return []


async def _nothing_left(b: Bench, line: Line) -> None:
    """Within a second: no parked response, open connection, entry, request or block, no task."""
    deadline = time.monotonic() + SETTLE_S
    while (left := _left(b, line)) and time.monotonic() < deadline:  # noqa: ASYNC110 - of a thread
        await asyncio.sleep(0.002)
    assert not left


def _left(b: Bench, line: Line) -> dict[str, Any]:
    left: dict[str, Any] = {name: count for name, count in b.service.left().items() if count}
    tasks = [task.get_name() for task in asyncio.all_tasks()]
    left |= {name: "running" for name in tasks if name.startswith("spectool")}
    return left | ({"open": line.opened} if line.opened else {})


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_happens_each_call_runs_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hits, misses, late posts, edits, retries, aborts, disconnects and broken connections."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    dice = random.Random(seed)  # noqa: S311 - dice, not secrets
    tally: Counter[str] = Counter()
    with bench(ANSWER, token_s=0.001) as b:
        async with _client(b) as client:
            while tally["requests"] < REQUESTS:
                fates = dice.sample(2 * FATES, len(FAULTS))
                for fate, fault in zip(fates, dice.sample(FAULTS, len(FAULTS)), strict=True):
                    tally += await _run(b, client, _drawn(dice, fate, fault))
    assert SEEDS * tally["requests"] > 500
    happened = {*FATES, *FAULTS, "continued", "hit", "missed"} - {"none"}
    assert not {name for name in happened if not tally[name]}, tally
