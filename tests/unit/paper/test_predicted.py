"""The turn-by-turn model on drawn times."""

import pytest

from langchain_spectool.bench.paper.draft import Draft
from langchain_spectool.bench.paper.predicted import (
    PAPER_8B,
    DrawnCall,
    DrawnTurn,
    drawn,
    fitted_generation_s,
    model_s_per_tool_turn,
    saved,
)
from tests.unit.paper.stage import task

CLOSING = DrawnTurn(1.0, [])


def single(*guesses_s: float) -> DrawnTurn:
    """Return a turn of mean length with one call."""
    return DrawnTurn(1.0, [DrawnCall(1.0, guesses_s, None)])


def test_a_hit_hides_the_tool_and_the_closing_turn_hides_nothing() -> None:
    """4 + 2 + 4 plain; guessed after 1 the tool is back after 3, before the model is done."""
    assert saved([[[single(1.0), CLOSING]]], 4.0, 2.0) == [pytest.approx(20)]


def test_a_guess_after_the_model_is_a_miss() -> None:
    """It spares nothing."""
    assert saved([[[single(4.5), CLOSING]]], 4.0, 2.0) == [0]


def test_a_turn_takes_its_longest_call() -> None:
    """The second call of the batch is missed, so the turn is not shorter at all."""
    turn = DrawnTurn(1.0, [DrawnCall(1.0, (1.0,), 0.75), DrawnCall(1.0, (), None)])
    assert saved([[[turn]]], 4.0, 2.0) == [0]


def test_the_stream_closes_a_call_before_the_turn_ends() -> None:
    """At 3 of 4 seconds; the shorter last call of the batch no longer matters."""
    turn = DrawnTurn(1.0, [DrawnCall(2.0, (), 0.75), DrawnCall(0.5, (), None)])
    assert saved([[[turn]]], 4.0, 2.0, "early_dispatch") == [pytest.approx(100 / 8)]


def test_a_chain_begins_in_the_turn_before() -> None:
    """Turn 1 is hit at 0.5 and lands at 3.5; turn 2's tool starts at 4.0 and not at 5.5."""
    turns = [single(0.5), single(0.5)]
    plain_s, client_s = 2 * (5 + 3), 5 + 5
    assert saved([[turns]], 5.0, 3.0) == [pytest.approx(100 * (1 - client_s / plain_s))]
    longer = [single(0.5), DrawnTurn(0.2, [DrawnCall(1.0, (0.5,), None)])]
    without, chained = saved([[longer]], 5.0, 3.0), saved([[longer]], 5.0, 3.0, "chain")
    assert chained[0] == pytest.approx(without[0] + 100 * 1.5 / 12)


def test_an_oracle_knows_at_once() -> None:
    """Whatever the draft says."""
    assert saved([[[single()]]], 4.0, 2.0, "oracle") == [pytest.approx(100 * 2 / 6)]


def test_the_fit_lies_where_the_paper_can_be_met_best() -> None:
    """With an accuracy of 0.8 that is near 6.3 s of model per turn with a tool."""
    turns = [[DrawnTurn(1.0, [DrawnCall(1.0, (0.1,) if n % 5 else (), None)])] for n in range(5)]
    generation_s = fitted_generation_s([turns])
    assert generation_s == pytest.approx(6.4, abs=0.3)
    assert model_s_per_tool_turn([turns], generation_s) == pytest.approx(generation_s)
    gaps = [saved([turns], generation_s, at_s)[0] - paper for at_s, paper in PAPER_8B.items()]
    assert max(map(abs, gaps)) < 2


def test_what_is_drawn_is_what_the_arms_will_meet() -> None:
    """As many guesses as samples are right, at their times."""
    draft = Draft(accuracy=0.8, mean_s=0.5, seed=3)
    asked = task(2, 1)
    [[turns]] = drawn([[asked]], draft, 9)
    assert [len(turn.calls) for turn in turns] == [2, 1, 0]
    for number, turn in enumerate(turns):
        said = draft.samples(asked, number)
        for place, call in enumerate(turn.calls):
            times = [0.5 * each.time_factor for each in said if each.right[place]]
            assert [*call.guesses_s] == times
    assert [call.closed_at for call in turns[0].calls] == [0.75, None]
