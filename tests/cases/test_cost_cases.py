"""Cases of kinds 6 and 8: what guesses may cost (B58, B59)."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from harness import Form, Rehearsal, Scene, Shape, settle
from langchain_core.tools import tool

from langchain_spectool import Policy, speculatable
from langchain_spectool.testing import calls, text

TURNS = 20
PROPOSED = 100


def _wrong(turn: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    return [("probe", {"n": turn * 1000 + each}) for each in range(count)]


async def test_b58_budget_of_a_turn(shape: Shape, ran: list[Any]) -> None:
    """B58 S19: with a budget of two, ten predictions start two runs."""

    @speculatable
    @tool
    def probe(n: int) -> str:
        """Probe."""
        ran.append(n)
        return str(n)

    scene = Scene(turns=[text("done")], tools=[probe], **shape)
    played = Rehearsal(scene, _wrong(0, 10), policy=Policy(guesses_per_turn=2))
    await played.run()
    settle()
    assert sorted(ran) == [0, 1]
    assert Counter(played.verdicts("guess")) == {"run": 2, "turn_limit": 8}


class Service:
    """Refuses more than one request at a time."""

    def __init__(self) -> None:
        self.open = 0
        self.refused: list[int] = []

    async def ask(self, n: int) -> str:
        if self.open:
            self.refused.append(n)
            return "429"
        self.open += 1
        try:
            await asyncio.sleep(1.5)
        finally:
            self.open -= 1
        return str(n)


async def test_b58_guesses_yield_to_the_call(form: Form) -> None:
    """B58 S18: guesses keep within the tool's own limit, and are gone when the call comes."""
    service = Service()

    @speculatable(max_concurrency=1)
    @tool
    async def probe(n: int) -> str:
        """Ask the service."""
        return await service.ask(n)

    scene = Scene(turns=[calls(("probe", {"n": 4})), text("done")], tools=[probe], form=form)
    played = Rehearsal(scene, _wrong(1, 3))
    ours = await played.run()
    assert ours.tools == [("c0", "success", "4")]
    assert service.refused == []
    assert Counter(played.verdicts("guess")) == {"run": 1, "no_room": 2}


@pytest.mark.parametrize("limit", ["in_flight_per_run", "in_flight"])
async def test_b58_budget_in_the_air(limit: str, form: Form) -> None:
    """B58: no more than so many early runs are in the air at once, in a run or a process."""
    most = 0
    aloft = 0

    @speculatable
    @tool
    async def probe(n: int) -> str:
        """Count how many run at once."""
        nonlocal most, aloft
        aloft += 1
        most = max(most, aloft)
        try:
            await asyncio.sleep(0.3)
        finally:
            aloft -= 1
        return str(n)

    scene = Scene(turns=[text("done")], tools=[probe], form=form)
    played = Rehearsal(scene, _wrong(0, 10), policy=Policy(**{limit: 3}))
    runs = 2 if limit == "in_flight" else 1
    await asyncio.gather(*(played.run() for _ in range(runs)))
    assert most == 3
    assert Counter(played.verdicts("guess"))["no_room"] == 10 * runs - 3


async def test_b59_hundred_wrong_guesses_a_turn(shape: Shape, ran: list[Any]) -> None:
    """B59: a predictor gone wild costs no more than the limit of every turn, and is reported."""

    @speculatable
    @tool
    def probe(n: int) -> str:
        """Probe."""
        ran.append(n)
        return str(n)

    turns = [calls(("probe", {"n": -turn}), prefix=f"t{turn}-") for turn in range(TURNS)]
    scene = Scene(turns=[*turns, text("done")], tools=[probe], **shape)
    policy = Policy(guesses_per_turn=5, benefit=None)
    guesses = [_wrong(turn + 1, PROPOSED) for turn in range(TURNS + 1)]
    played = Rehearsal(scene, *guesses, policy=policy)
    ours = await played.run({"recursion_limit": 100})
    settle()
    assert [content for _, _, content in ours.tools] == [str(-turn) for turn in range(TURNS)]
    report = played.report
    assert report.guesses <= 5 * (TURNS + 1)
    assert report.guesses == report.wasted == len(ran) - TURNS
    assert report.guesses + report.verdicts["turn_limit"] <= PROPOSED * (TURNS + 1)
    assert report.verdicts["turn_limit"] >= (PROPOSED - 5) * TURNS
    assert report.hits == 0
    assert report.wasted_s >= 0


async def test_b59_no_budget_no_runs(shape: Shape, ran: list[Any]) -> None:
    """B59: a budget of none is checked before the first start."""

    @speculatable
    @tool
    def probe(n: int) -> str:
        """Probe."""
        ran.append(n)
        return str(n)

    scene = Scene(turns=[text("done")], tools=[probe], **shape)
    played = Rehearsal(scene, _wrong(0, PROPOSED), policy=Policy(guesses_per_turn=0))
    await played.run()
    assert ran == []
    assert Counter(played.verdicts("guess")) == {"turn_limit": PROPOSED}
