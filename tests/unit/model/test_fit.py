"""What is read from event logs and recordings, and the estimate that is made of it."""

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool import Event
from langchain_spectool.bench.model.equations import jensen_gap
from langchain_spectool.bench.model.estimate import estimate, expected_s
from langchain_spectool.bench.model.fit import fit_events
from langchain_spectool.bench.model.recorded import timed_runs, timed_turns
from langchain_spectool.bench.model.turn_model import Call, Turn
from langchain_spectool.errors import SpectoolError

COMMITTED = {"kind": "turn_committed", "verdict": "committed"}


def events(*each: dict[str, Any]) -> list[Event]:
    """Make events of turn 1, at 10 s unless they say otherwise."""
    return [Event(**{"at_s": 10.0, "turn": 1, **fields}) for fields in each]


def guess(at_s: float, **more: Any) -> dict[str, Any]:
    """Make a scored guess of one source."""
    return {"kind": "guess", "at_s": at_s, "tool": "look", "source": "draft", **more}


RIGHT = {"kind": "scored", "verdict": "right", "tool": "look", "source": "draft", "key_hash": "k"}
SHADOW_HIT = {"kind": "claim", "verdict": "shadow_hit", "tool": "look", "position": 0}


def test_shadow_hit_has_the_time_of_its_guess() -> None:
    """G from the start to the answer, T from the committed call, g from the guess that was right.

    Of two guesses that cannot be told apart, the later one counts.
    """
    log = events(
        guess(8.5),
        guess(9.0),
        guess(8.1, source="patterns"),
        RIGHT,
        {**COMMITTED, "started_s": 8.0, "position": 1},
        {**SHADOW_HIT, "key_hash": "k"},
        {"kind": "call_ended", "at_s": 13.0, "position": 0, "started_s": 10.0, "spent_s": 3.0},
    )
    found = fit_events(log)
    assert found.turns == (Turn(generation_s=2.0, calls=(Call(tool_s=3.0, guesses_s=(1.0,)),)),)
    assert (found.scored, found.wasted, found.imputed) == (1, 0, 0)


def test_guess_that_names_its_call_has_its_own_time() -> None:
    """Another guess of the same tool and confidence, which was wrong, says nothing of g."""
    log = events(
        guess(8.5, key_hash="k"),
        guess(8.7, key_hash="k", verdict="duplicate"),
        guess(9.5, key_hash="other"),
        RIGHT,
        {**COMMITTED, "started_s": 8.0, "position": 1},
        {**SHADOW_HIT, "key_hash": "k"},
        {"kind": "call_ended", "at_s": 13.0, "position": 0, "started_s": 10.0, "spent_s": 3.0},
    )
    assert fit_events(log).turns[0].calls[0].guesses_s == (0.5,)


def test_early_run_has_its_own_times() -> None:
    """Where speculation was on, T is that of the early run; a kept one began before its turn."""
    log = events(
        {"kind": "scored", "verdict": "wrong"},
        {**COMMITTED, "started_s": 8.0, "position": 2},
        {"kind": "claim", "verdict": "no_guess", "position": 1},
        {"kind": "claim", "verdict": "hit", "position": 0, "started_s": 7.5, "spent_s": 2.0},
        {"kind": "call_ended", "position": 0, "spent_s": 0.0},
        {"kind": "call_ended", "position": 1, "spent_s": 1.0},
    )
    assert fit_events(log).turns[0].calls == (
        Call(tool_s=2.0, guesses_s=(-0.5,)),
        Call(tool_s=1.0),
    )


def test_calls_without_times_are_drawn_and_counted() -> None:
    """A turn in which nothing was planned has a number of calls only: they are misses."""
    log = [
        *events(
            RIGHT,
            {**COMMITTED, "started_s": 8.0, "position": 1},
            SHADOW_HIT,
            {"kind": "call_ended", "position": 0, "spent_s": 3.0},
        ),
        Event(**{**COMMITTED, "at_s": 20.0, "turn": 2, "started_s": 19.0, "position": 2}),
        Event(**{**COMMITTED, "at_s": 22.0, "turn": 3, "started_s": 21.0, "position": 0}),
        Event(kind="guess", at_s=23.0, turn=4),
    ]
    found = fit_events(log)
    assert found.turns[1:] == (
        Turn(generation_s=1.0, calls=(Call(tool_s=3.0), Call(tool_s=3.0))),
        Turn(generation_s=1.0),
    )
    assert (found.imputed, found.calls) == (2, 3)


def test_runs_are_resampled_where_two_are_told() -> None:
    """Turns of one run, or of none that is named, stand alone."""

    def log(*runs: str) -> list[Event]:
        ended = {"kind": "call_ended", "position": 0, "spent_s": 3.0}
        told = events(RIGHT, {**COMMITTED, "started_s": 8.0, "position": 1}, ended)
        more = [
            Event(**{**COMMITTED, "at_s": 20.0, "turn": turn, "started_s": 19.0, "run": run})
            for turn, run in enumerate(runs, 2)
        ]
        return [*told, *more]

    found = fit_events(log("1", "1", "2", ""))
    assert [len(unit) for unit in found.units] == [1, 2, 1, 1]
    assert found.by_run
    assert [len(unit) for unit in fit_events(log("1", "1")).units] == [1, 1, 1]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ([], "no turn that was committed"),
        (events({**COMMITTED, "started_s": 8.0, "position": 1}), "mode='shadow'"),
        (events(RIGHT, {**COMMITTED, "started_s": 8.0, "position": 1}), "T cannot be fitted"),
    ],
)
def test_what_a_log_lacks_is_said(log: list[Event], message: str) -> None:
    """No figure is made up: the message says what is missing."""
    with pytest.raises(SpectoolError, match=message):
        fit_events(log)


# --- estimates

CALLS = st.lists(
    st.tuples(st.floats(0, 5), st.booleans()).map(
        lambda drawn: Call(tool_s=drawn[0], may_run_early=drawn[1])
    ),
    max_size=4,
)


@given(st.floats(0.1, 5), CALLS, st.floats(0, 1), st.floats(0, 6))
def test_expected_turn_is_the_mean_over_all_outcomes(
    generation_s: float, calls: list[Call], alpha: float, guess_s: float
) -> None:
    """Every combination of hits and misses, weighed by its chance."""
    mean_s = 0.0
    for hits in product((True, False), repeat=len(calls)):
        chance, guessed = 1.0, []
        for call, hit in zip(calls, hits, strict=True):
            odds = alpha if call.may_run_early else 0.0
            chance *= odds if hit else 1 - odds
            guessed.append(Call(tool_s=call.tool_s, guesses_s=(guess_s,) * hit))
        mean_s += chance * Turn(generation_s=generation_s, calls=tuple(guessed)).speculative_s
    turn = Turn(generation_s=generation_s, calls=tuple(calls))
    assert expected_s(turn, alpha, guess_s) == pytest.approx(mean_s)


def test_estimate_by_hand() -> None:
    """One hit, one miss and a closing turn of 2 + 1 s: 1 of 8 s saved, and at best 2."""
    hit = Turn(generation_s=2.0, calls=(Call(tool_s=1.0, guesses_s=(0.1,)),))
    miss = Turn(generation_s=2.0, calls=(Call(tool_s=1.0),))
    units = [[hit], [miss], [Turn(generation_s=2.0)]]
    found = estimate(units)
    assert found.saving == pytest.approx(1 / 8)
    assert found.speedup == pytest.approx(8 / 7)
    assert found.bound == pytest.approx(8 / 6)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low < found.saving < found.high <= 1 / 3
    assert estimate(units, cost_s=0.1).speculative_s == pytest.approx(7.3)
    assert estimate(units, odds=(0.5, 0.1)).saving == pytest.approx(1 / 8)
    assert estimate([units[0]]).low is None
    assert (estimate([]).saving, estimate([]).speedup, estimate([]).bound) == (0, 1, 1)


def test_interval_covers_the_truth() -> None:
    """Of 100 logs of 100 turns, some 95 intervals hold the saving that the logs are drawn from.

    Binomial: below 88 of 100 has a chance of 0.0015 at a coverage of 95 %.
    """
    dice = Random(11)  # noqa: S311 - fair draws, no secret
    truth, covered = 0.6 * 1 / 3, 0
    for seed in range(100):
        units = [
            [Turn(generation_s=2.0, calls=(Call(tool_s=1.0, guesses_s=(0.1,) * hit),))]
            for hit in (dice.random() < 0.6 for _ in range(100))
        ]
        found = estimate(units, seed=seed)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered >= 88


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1),
    st.floats(0, 5),
    st.floats(0, 1),
)
def test_jensen_gap_is_never_negative(
    times: list[tuple[float, float]], guess_s: float, alpha: float
) -> None:
    """At the means (2) never promises too little, as long as every guess comes in time.

    A guess after the commit is a miss, which is convex: only where it never happens is it a law.
    """
    if all(guess_s <= generation_s for generation_s, _ in times):
        assert jensen_gap(times, guess_s, alpha) >= -1e-9


def test_jensen_gap_by_hand() -> None:
    """G of 1 and 3 s, T of 2 s, g of 0: (2 - 1.5) of 4 s at alpha 1."""
    assert jensen_gap([(1.0, 2.0), (3.0, 2.0)], 0.0, 1.0) == pytest.approx(0.5 / 4)
    assert jensen_gap([(2.0, 1.0)] * 3, 0.3, 0.8) == 0


# --- LangSmith's exports


def run(kind: str, name: str, began: float, ended: float, **more: Any) -> dict[str, Any]:
    """Make an exported run of trace `t`, by seconds after noon."""
    start, end = (f"2026-01-01T12:00:{at:06.3f}+00:00" for at in (began, ended))
    named = {"run_type": kind, "name": name, "trace_id": "t", "start_time": start, "end_time": end}
    return {**named, "dotted_order": f"a.{name}{began}", **more}


def write(path: Path, *records: object) -> list[str]:
    """Write records a line, and return what the readers take."""
    path.write_text("\n".join(map(json.dumps, records)))
    return [str(path)]


def test_turns_of_an_export(tmp_path: Path) -> None:
    """A model run and the tools before the next one are a turn, however they are listed."""
    paths = write(
        tmp_path / "runs.jsonl",
        [run("tool", "look", 2.0, 3.0), run("tool", "pay", 2.1, 2.6)],
        run("llm", "model", 3.5, 5.0),
        run("chain", "agent", 0.0, 9.0),
        run("llm", "model", 0.0, 2.0),
        {**run("llm", "inside", 2.2, 2.4), "dotted_order": "a.look2.0.b"},
        {**run("llm", "unfinished", 6.0, 7.0), "end_time": None},
        {**run("llm", "undated", 6.0, 7.0), "start_time": "noon"},
        {**run("llm", "elsewhere", 1.0, 2.0), "trace_id": "u"},
        {"messages": []},
    )
    found = timed_runs(paths)
    assert {trace: len(runs) for trace, runs in found.items()} == {"t": 4, "u": 1}
    first, second = timed_turns(found["t"], frozenset({"look"}))
    assert (first.generation_s, second) == (pytest.approx(2.0), Turn(generation_s=1.5))
    assert [(round(call.tool_s, 6), call.may_run_early) for call in first.calls] == [
        (1.0, True),
        (0.5, False),
    ]


@pytest.mark.parametrize("scale", [1, 1000])
def test_numbers_are_seconds_or_milliseconds(scale: int, tmp_path: Path) -> None:
    """Times since the epoch are read in both units."""
    record = {**run("llm", "m", 0, 1), "start_time": 1.7e9 * scale, "end_time": 1.7e9 * scale + 2}
    [found] = timed_runs(write(tmp_path / "a.jsonl", record))["t"]
    assert found.took_s == pytest.approx(2 / scale, rel=1e-3)


def test_tools_without_a_model_run_are_no_turn() -> None:
    """An export that was cut begins with whatever it begins with."""
    assert timed_turns([], frozenset()) == []
