"""Calls that no plan named find the turn they are of, by run and tool."""

from typing import Any

from langchain_spectool._core.events import Event
from langchain_spectool.telemetry.placing import placed


def committed(turn: int, *tools: str, run: str = "r") -> Event:
    """Make the answer of a turn."""
    told: dict[str, Any] = {"turn": turn, "run": run, "tools": tools, "position": len(tools)}
    return Event(kind="turn_committed", at_s=float(turn), started_s=0.0, **told)


def ended(tool: str, run: str = "r", **more: Any) -> Event:
    """Make the end of a call, of no known turn unless `more` says so."""
    return Event(kind="call_ended", at_s=99.0, tool=tool, run=run, **more)


def places(events: list[Event]) -> list[tuple[int, int | None]]:
    """Return turn and position of the calls that ended."""
    return [(event.turn, event.position) for event in placed(events) if event.kind == "call_ended"]


def test_equal_calls_take_their_positions_in_order() -> None:
    """Two calls of one tool are two calls."""
    log = [committed(1, "look", "pay", "look"), ended("look"), ended("pay"), ended("look")]
    assert places(log) == [(1, 0), (1, 1), (1, 2)]


def test_the_latest_turn_goes_first() -> None:
    """A nested agent's call is its own; the outer call ends later and is the outer turn's."""
    log = [committed(1, "ask"), committed(2, "look"), ended("look"), ended("ask")]
    assert places(log) == [(2, 0), (1, 0)]


def test_runs_do_not_mix() -> None:
    """A call of a run is looked for in its own turns, and not after the run's end."""
    log = [
        committed(1, "look", run="a"),
        committed(2, "look", run="b"),
        ended("look", run="a"),
        Event(kind="run_ended", at_s=9.0, run="b"),
        ended("look", run="b"),
    ]
    assert places(log) == [(1, 0), (0, None)]


def test_planned_calls_keep_what_they_said() -> None:
    """A plan names its calls itself, and no other call takes their place."""
    log = [committed(1, "look", "look"), ended("look"), ended("look", turn=1, position=0)]
    assert places(log) == [(1, 1), (1, 0)]


def test_what_fits_nowhere_stays() -> None:
    """The second try of a call, and a call of a run that nobody knows."""
    log = [committed(1, "look"), ended("look"), ended("look"), ended("look", run="other")]
    assert places(log) == [(1, 0), (0, None), (0, None)]
