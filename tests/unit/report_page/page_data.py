"""Logs and results to draw: small ones whose figures are known, and hostile ones."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from langchain_spectool._core.events import Event
from langchain_spectool.telemetry.event_log import line_of

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    '<a href="javascript:alert(5)">x</a><br>',
    "%{x} {{ 7 * 7 }} {% raw %} $a^2$",
    "<!-- <script>",
    "&lt;b&gt;",
)
"""Names that must be seen as they are written."""


def turn(
    number: int, tool: str = "look", source: str = "draft", *, hit: bool = True
) -> list[Event]:
    """Return the events of a turn: 1 s of writing, 2 s of tool begun 0.25 s after the model.

    A hit waits 1.25 s for its early run; of a miss the early run is wasted and the call runs 2 s.
    """
    at_s = 100.0 * number
    told = [
        Event(kind="guess", at_s=at_s + 0.25, verdict="run", tool=tool, source=source),
        Event(
            kind="scored",
            at_s=at_s + 1,
            verdict="right" if hit else "wrong",
            tool=tool,
            source=source,
            confidence=0.5,
            key_hash="a" if hit else "b",
        ),
        Event(kind="turn_committed", at_s=at_s + 1, started_s=at_s, position=1),
    ]
    early: dict[str, Any] = {"tool": tool, "source": source, "started_s": at_s + 0.25}
    if hit:
        claim = {"spent_s": 2.0, "waited_s": 1.25, "hidden_s": 0.75, "verdict": "joined"}
        told.append(Event(kind="claim", at_s=at_s + 1, position=0, key_hash="a", **early, **claim))
    else:
        told += [
            Event(kind="discarded", at_s=at_s + 1, verdict="mismatch", spent_s=0.75, **early),
            Event(
                kind="claim", at_s=at_s + 1, verdict="mismatch", tool=tool, position=0, key_hash="a"
            ),
        ]
    ended_s = at_s + (2.25 if hit else 3.0)
    ended = {"at_s": ended_s, "started_s": at_s + 1, "spent_s": ended_s - at_s - 1}
    told += [
        Event(kind="call_ended", tool=tool, position=0, **ended),
        Event(
            kind="turn_ended",
            at_s=ended_s,
            verdict="done",
            started_s=at_s,
            hidden_s=0.75 if hit else 0.0,
        ),
    ]
    return [_numbered(event, number) for event in told]


def shadow_turn(number: int, tool: str = "look", *, hit: bool = True) -> list[Event]:
    """Return the events of a turn in shadow mode: 1 s of writing, then 2 s of tool."""
    at_s = 100.0 * number
    said: dict[str, Any] = {"tool": tool, "source": "draft", "confidence": 0.5}
    told = [
        Event(kind="guess", at_s=at_s + 0.25, verdict="shadow", **said),
        Event(
            kind="scored",
            at_s=at_s + 1,
            verdict="right" if hit else "wrong",
            key_hash="a" if hit else "b",
            **said,
        ),
        Event(kind="turn_committed", at_s=at_s + 1, started_s=at_s, position=1, tools=(tool,)),
    ]
    if hit:
        shadow = {"verdict": "shadow_hit", "key_hash": "a"}
        told.append(Event(kind="claim", at_s=at_s + 1, tool=tool, position=0, **shadow))
    ended = {"at_s": at_s + 3, "started_s": at_s + 1, "spent_s": 2.0}
    told.append(Event(kind="call_ended", tool=tool, position=0, **ended))
    return [_numbered(event, number) for event in told]


def closing(number: int) -> list[Event]:
    """Return a turn that calls nothing."""
    at_s = 100.0 * number
    return [Event(kind="turn_committed", at_s=at_s + 1, turn=number, started_s=at_s, position=0)]


def hostile_log() -> list[Event]:
    """Return a log whose every text is an attack."""
    return [event for number, name in enumerate(HOSTILE, 1) for event in _attack(number, name)]


def _attack(number: int, name: str) -> Iterator[Event]:
    yield from turn(number, name, name, hit=number % 2 == 1)
    yield Event(kind="error", at_s=100.0 * number, turn=number, verdict=name, detail=name)
    yield Event(kind="guess", at_s=100.0 * number, turn=number, verdict=name, tool=name)
    yield Event(kind="usage", at_s=100.0 * number, turn=number, source=name, usage=(5, 3))


def _numbered(event: Event, number: int) -> Event:
    return replace(event, turn=number)


def cell(arm: str, latency_s: float, saved: float, **more: Any) -> dict[str, Any]:
    """Return a row of `slice.rows`."""
    return {
        "arm": arm,
        "latency_s": latency_s,
        "samples": 1,
        "accuracy": 0.8,
        "saved": saved,
        "low": saved - 0.5,
        "high": saved + 0.5,
        "model_saved": saved + 0.1 if arm == "client_side" else None,
        "hit_share": 0.8,
        "turns_fully_hit": 0.7,
        "lead_s": 2.0,
        "wasted_calls": 5,
        "wasted_s": 4.5,
        "task_p50_s": 9.0,
        "task_p95_s": 20.0,
        "usd_per_100_turns": 0.4,
        "tokens_per_s": 30.0,
        "early_runs": 40,
        "tool_runs": 50,
        **more,
    }


def of_run(events: Iterable[Event], run: str) -> list[Event]:
    """Return the events of a run that ends half a second after its last event."""
    told = [replace(event, run=run) for event in events]
    ends = {"started_s": min(event.at_s for event in told) - 0.25, "arm": "treated"}
    over_s = max(event.at_s for event in told) + 0.5
    return [*told, Event(kind="run_ended", at_s=over_s, run=run, verdict="done", **ends)]


def paper() -> dict[str, Any]:
    """Return results of `spectool bench paper --json`, made up."""
    latencies = (0.0, 0.5, 1.0, 2.0)
    arms = {
        "plain": 0.0,
        "client_side": 10.0,
        "early_dispatch": 10.6,
        "chain": 10.3,
        "oracle": 13.0,
    }
    return {
        "benchmark": "paper",
        "note": "Made up, for tests.",
        "date": "2026-01-02T03:04:05+00:00",
        "python": "3.11.9",
        "wall_s": 12.5,
        "versions": {"langgraph": "1.2.24"},
        "machine": {"system": "Linux", "cores": 2},
        "settings": {"seed": 0, "policy": {"benefit": None}, "latencies_s": [0, 0.5, 1, 2]},
        "bars": [
            {"name": "max_gap", "value": 0.1, "limit": 0.5, "sense": "<=", "met": True},
            {"name": "paper_gap", "value": 2.2, "limit": 2, "sense": "<=", "met": False},
            {"name": "memory", "value": None, "limit": 20, "sense": "<=", "met": None},
        ],
        "calibration": {
            "label": "calibrated reproduction",
            "generation_s": 3.6,
            "model_s_per_tool_turn": 6.3,
            "points": [
                {
                    "latency_s": latency_s,
                    "paper": 12.0,
                    "fitted": 11.5,
                    "residual": -0.5,
                    "package": 11.6,
                    "low": 11.0,
                    "high": 12.0,
                    "gap_points": -0.4,
                }
                for latency_s in (0.5, 1.0)
            ],
        },
        "slice": {
            "rows": [cell(arm, at, rate * at) for arm, rate in arms.items() for at in latencies],
            "gains": [
                {"arm": "early_dispatch", "points": 0.5, "low": 0.2, "high": 0.8},
                {"arm": "chain", "points": 0.2, "low": -0.1, "high": 0.5},
            ],
            "peers": [{"name": "eager", "installed": False, "version": None, "note": "absent"}],
        },
        "sample": {
            "latency_s": 2.0,
            "tasks": 2,
            "arms": {
                arm: [
                    line_of(event)
                    for run, hit in (("1", True), ("2", False))
                    for event in of_run(turn(int(run), hit=hit), run)
                ]
                for arm in ("client_side", "chain")
            },
        },
        "grid": {
            "repeats": 5,
            "capacity": 16,
            "rows": [
                {
                    "agents": agents,
                    "latency_s": 1.0,
                    "samples": samples,
                    "accuracy": accuracy,
                    "saved": 10.0 if agents == 1 else -1.0,
                    "low": 9.0 if agents == 1 else -2.0,
                    "high": 11.0 if agents == 1 else -0.5,
                    "model_saved": 10.0,
                    "stretch": 1.0,
                }
                for agents in (1, 32)
                for samples in (1, 9)
                for accuracy in (0.6, 0.8)
            ],
        },
        "real": {
            "scale": 0.1,
            "rows": [
                {"latency_s": 1.0, "arm": "chain", "saved": 9, "low": 8, "high": 10, "void": True}
            ],
        },
        "scale": {
            "rows": [
                {"agents": 1, "clock": "real", "saved": 9, "low": 8, "high": 10, "most_at_once": 1},
                {
                    "agents": 1000,
                    "clock": "real",
                    "saved": 1,
                    "low": 0,
                    "high": 2,
                    "most_at_once": 480,
                    "saturated": True,
                },
            ],
            "memory": {"turns": 256, "kb_per_turn": 15.0, "kb_per_turn_without_guess": 5.0},
        },
    }
