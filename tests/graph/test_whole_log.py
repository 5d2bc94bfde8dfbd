"""An event log tells runs apart, and names and times every committed call."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from langchain_spectool import Event, Policy, SpeculationMiddleware, speculatable
from langchain_spectool.bench.report_page.log_runs import compared
from langchain_spectool.bench.report_page.log_turns import turns_of
from langchain_spectool.bench.report_page.scorecard import facts_of
from langchain_spectool.telemetry.event_log import EventLog, read_events
from langchain_spectool.testing import ScriptedModel, calls, text

ASK = {"messages": "hi"}


@speculatable
@tool
async def look(query: str) -> str:
    """Look it up."""
    await asyncio.sleep(2.0)
    return query


@tool
async def pay(query: str) -> str:
    """Pay."""
    await asyncio.sleep(1.0)
    return query


def agent(log: EventLog, policy: Policy, guessed: str = "a") -> Any:
    """Make an agent that looks, looks twice at once, pays, calls what is not there, and closes."""
    script = [
        calls(("look", {"query": "a"})),
        calls(("look", {"query": "b"}), ("look", {"query": "c"})),
        calls(("pay", {"query": "d"})),
        calls(("launch_rockets", {})),
        text("done"),
    ]
    draft = ScriptedModel(script=lambda _: calls(("look", {"query": guessed})), generation_s=0.25)
    middleware = SpeculationMiddleware(draft=draft, policy=policy, observers=[log])
    return create_agent(
        ScriptedModel(turns=script, generation_s=1.0), [look, pay], middleware=[middleware]
    )


async def recorded(path: Path, policy: Policy, guessed: str = "a", runs: int = 1) -> list[Event]:
    """Run the agent, and return what its log says."""
    with EventLog(path) as log:
        for _ in range(runs):
            await agent(log, policy, guessed).ainvoke(ASK)
    events, bad = read_events(path)
    assert bad == []
    return events


@pytest.mark.parametrize(
    ("policy", "guessed"),
    [
        (Policy(benefit=None), "a"),
        (Policy(benefit=None), "wrong"),
        (Policy(mode="shadow"), "a"),
        (Policy(holdout=1.0), "a"),
    ],
    ids=["hits", "misses", "shadow", "held out"],
)
async def test_every_call_is_named_and_timed(policy: Policy, guessed: str, tmp_path: Path) -> None:
    """Whatever was planned: four calls of our tools with their seconds, and one of no tool."""
    events = await recorded(tmp_path / "log", policy, guessed)
    turns = turns_of(events)
    assert [[call.tool for call in turn.calls] for turn in turns] == [
        ["look"], ["look", "look"], ["pay"], ["other"], [],
    ]  # fmt: skip
    for turn in turns:
        assert turn.calling_s is not None
        for call in turn.calls:
            assert call.began_s is not None
            assert call.ended_s is not None
    paid = turns[2].calls[0]
    assert (paid.ended_s or 0) - (paid.began_s or 0) == pytest.approx(1.0)
    facts = facts_of(events)
    assert len(facts.timed) == 5
    assert facts.serial_s == pytest.approx(5 * 1.0 + 2 + 2 + 1)


async def test_no_name_that_a_model_made_up(tmp_path: Path) -> None:
    """Not in plans, not outside them."""
    await recorded(tmp_path / "log", Policy(benefit=None))
    assert "rockets" not in (tmp_path / "log").read_text()


async def test_runs_are_told_apart(tmp_path: Path) -> None:
    """Each has a number, its turns, and an end; nothing in the log names its thread."""
    path = tmp_path / "log"
    with EventLog(path) as log:
        one = agent(log, Policy(benefit=None))
        await asyncio.gather(
            *(one.ainvoke(ASK, {"configurable": {"thread_id": "alice"}}) for _ in range(3))
        )
    events, _ = read_events(path)
    assert Counter(turn.run for turn in turns_of(events)) == {"1": 5, "2": 5, "3": 5}
    assert [run.took_s for run in facts_of(events).runs] == [pytest.approx(10, abs=3)] * 3
    assert "alice" not in path.read_text()


async def test_the_end_of_a_run_says_how_it_fared(tmp_path: Path) -> None:
    """Held out or not, what it cost where that is known, and whether it failed."""
    events = await recorded(tmp_path / "log", Policy(holdout=1.0))
    [end] = [event for event in events if event.kind == "run_ended"]
    assert (end.arm, end.verdict, end.run) == ("holdout", "done", "1")
    assert end.started_s is not None
    [end] = [
        event
        for event in await recorded(tmp_path / "other", Policy(benefit=None))
        if event.kind == "run_ended"
    ]
    assert (end.arm, end.cost_usd) == ("", None)


async def test_no_run_is_followed_for_nobody() -> None:
    """Without an observer of the user's, turns cost what they did before runs had names."""
    middleware = SpeculationMiddleware(speculators=[])
    model = ScriptedModel(turns=[calls(("look", {"query": "a"})), text("done")])
    await create_agent(model, [look], middleware=[middleware]).ainvoke(ASK)
    opener = middleware.speculation._opener
    assert middleware.speculation.report().turns == 2
    assert opener._watch._count == 0


async def test_nothing_is_told_where_speculation_is_off(tmp_path: Path) -> None:
    """No turn, no call, no run."""
    assert await recorded(tmp_path / "log", Policy(mode="off")) == []


async def test_turn_whose_model_fails_belongs_to_its_run(tmp_path: Path) -> None:
    """The page compares runs by the turns that the report of the same process knows."""
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        middleware = SpeculationMiddleware(
            draft=ScriptedModel(script=lambda _: calls(("look", {"query": "a"}))),
            policy=Policy(holdout=0.5),
            observers=[log],
        )
        model = ScriptedModel(turns=[calls(("look", {"query": "a"}))], generation_s=1.0)
        with pytest.raises(IndexError):
            await create_agent(model, [look], middleware=[middleware]).ainvoke(ASK)
    events, _ = read_events(path)
    first, failed = turns_of(events)
    assert (first.run, failed.run) == ("1", "1")
    assert failed.began_s >= first.over_s
    found = middleware.speculation.report().comparison
    assert found is not None
    assert compared(facts_of(events).runs) == found
