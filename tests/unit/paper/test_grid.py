"""The discrete-event model and its server."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool.bench.paper import grid
from langchain_spectool.bench.paper.grid import (
    Grid,
    GridTurn,
    alone,
    draw_agent,
    grid_rows,
    shared,
)

BEST = (0.8, 1)


def plan(**changes: object) -> Grid:
    """Return a small grid."""
    given: dict[str, object] = {
        "generation_s": 3.0,
        "shapes": ((1, 0), (2, 1, 0)),
        "seed": 0,
        "tasks": 3,
        "repeats": 2,
        "latencies_s": (1.0,),
        "samples": (1, 9),
        "accuracies": (0.8,),
    }
    return Grid(**(given | changes))  # type: ignore[arg-type]


def turn(guessed_s: float = math.inf, generation_s: float = 4.0, draft_s: float = 1.0) -> GridTurn:
    """Return a turn with one call."""
    return GridTurn(generation_s, [1.0], {0.8: [draft_s]}, {BEST: [guessed_s]})


def test_a_hit_hides_what_the_model_is_longer_than() -> None:
    """4 + 2 s plain; guessed after 1, the tool is back after 3."""
    assert alone([[turn()]], 2.0, None).agents_s == [6.0]
    found = alone([[turn(1.0)]], 2.0, BEST)
    assert (found.agents_s, found.hits, found.fully_hit) == ([4.0], 1, 1)


def test_a_late_guess_is_a_miss() -> None:
    """On a server of one's own and on a shared one."""
    late = [[turn(4.5, draft_s=4.5)]]
    assert alone(late, 2.0, BEST).agents_s == shared(late, 2.0, BEST).agents_s == [6.0]
    assert shared(late, 2.0, BEST).hits == 0


@given(st.integers(min_value=0, max_value=5), st.sampled_from([None, (0.8, 1), (0.8, 9)]))
def test_a_server_with_room_slows_nobody(seed: int, how: grid.Speculating) -> None:
    """Then both ways to run agents come to the same."""
    agents = [draw_agent(plan(seed=seed), 0, agent) for agent in range(3)]
    own, together = alone(agents, 1.0, how), shared(agents, 1.0, how)
    assert together.agents_s == pytest.approx(own.agents_s)
    assert (together.hits, together.fully_hit) == (own.hits, own.fully_hit)
    assert together.generating_s == pytest.approx(own.generating_s)


def test_a_full_server_slows_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations on a server for one take twice as long."""
    monkeypatch.setattr(grid, "CAPACITY", 1.0)
    found = shared([[turn()], [turn()]], 2.0, None)
    assert found.agents_s == pytest.approx([10.0, 10.0])
    assert found.generating_s == pytest.approx(2 * found.alone_s)


def test_the_draft_takes_its_share_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one second of work the server runs at 1 / 1.5; the tool starts when that is done."""
    monkeypatch.setattr(grid, "CAPACITY", 1.0)
    monkeypatch.setattr(grid, "DRAFT_LOAD", 0.5)
    found = shared([[turn(1.0)]], 6.0, BEST)
    assert found.generating_s == pytest.approx(1.5 + 3)
    assert found.agents_s == pytest.approx([1.5 + 6])


def test_a_sample_that_still_runs_when_the_model_is_done_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It loads the server no longer: the next turn is slowed by its own draft only."""
    monkeypatch.setattr(grid, "CAPACITY", 1.0)
    monkeypatch.setattr(grid, "DRAFT_LOAD", 1.0)
    found = shared([[turn(9.0, draft_s=9.0), turn(9.0, draft_s=9.0)]], 0.0, BEST)
    assert found.agents_s == pytest.approx([16.0])


def test_repeats_and_arms_meet_the_same_agents() -> None:
    """Drawn by seed, repeat and agent alone."""
    assert draw_agent(plan(), 1, 2) == draw_agent(plan(latencies_s=(1.0,)), 1, 2)
    assert draw_agent(plan(), 1, 2) != draw_agent(plan(), 0, 2)


def test_a_row_for_every_number_of_samples_and_accuracy() -> None:
    """With the figures alone where nothing is shared."""
    rows = grid_rows(plan(accuracies=(0.6, 0.8)), 2, 1.0)
    assert [(row.samples, row.accuracy) for row in rows] == [(1, 0.6), (9, 0.6), (1, 0.8), (9, 0.8)]
    for row in rows:
        assert row.saved == row.model_saved
        assert row.stretch == 1
        assert row.low <= row.saved <= row.high
        assert row.tokens_per_s > row.plain_tokens_per_s


def test_more_agents_than_the_server_carries_save_less() -> None:
    """The time that a tool no longer takes is spent in the queue of the model."""
    row = grid_rows(plan(), 64, 1.0)[0]
    assert row.stretch > 1.5
    assert row.saved < row.model_saved / 2
