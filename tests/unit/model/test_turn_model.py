"""The turn model against a simulation that plays the same runs out, and what eq. (2) leaves out."""

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.model.simulate import simulate_s
from langchain_spectool.bench.model.turn_model import Call, Turn, plain_s, run_s
from langchain_spectool.bench.model.workload import Workload, hit_rate, mean_of
from langchain_spectool.errors import SpectoolError

SECONDS = st.floats(0, 10)
CALLS = st.builds(
    Call,
    tool_s=SECONDS,
    guesses_s=st.lists(SECONDS, max_size=4).map(tuple),
    chained_s=st.none() | st.floats(0.01, 3),
    may_run_early=st.booleans(),
)
TURNS = st.builds(
    Turn, generation_s=st.floats(0.1, 10), calls=st.lists(CALLS, max_size=3).map(tuple)
)
RUNS = st.lists(TURNS, max_size=8)
LINKS = st.builds(
    Turn,
    generation_s=st.floats(0.1, 10),
    calls=st.builds(
        Call,
        tool_s=st.floats(0.1, 3),
        guesses_s=st.just((0.2,)) | st.just(()),
        chained_s=st.none() | st.floats(0.01, 1),
    ).map(lambda call: (call,)),
)


@given(RUNS, st.integers(1, 4))
def test_runs_take_what_the_simulation_takes(turns: list[Turn], depth: int) -> None:
    """Batches, closing turns, samples, late guesses, tools that may not run early, chains."""
    assert run_s(turns, depth) == pytest.approx(simulate_s(turns, depth))


@given(st.lists(LINKS, min_size=2, max_size=8), st.integers(1, 5))
def test_chains_take_what_the_simulation_takes(turns: list[Turn], depth: int) -> None:
    """Runs of single calls, where a chain can go all the way."""
    assert run_s(turns, depth) == pytest.approx(simulate_s(turns, depth))


def test_a_chain_goes_on_from_all_that_has_landed() -> None:
    """The third link is at its depth's end in the first turn, and is gone on from in the second.

    It landed at 3.95 s; from the start of the second turn at 4 s on it is a link nearer.
    """
    links = [(4.0, 0.5, None), (2.0, 0.25, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]
    turns = [
        Turn(
            generation_s=generation_s,
            calls=(Call(tool_s=tool_s, guesses_s=(0.2,), chained_s=chained_s),),
        )
        for generation_s, tool_s, chained_s in links
    ]
    assert run_s(turns, 3) == simulate_s(turns, 3) == 8.0
    assert run_s(turns, 2) == pytest.approx(simulate_s(turns, 2))


@given(RUNS)
def test_without_a_chain_a_run_is_the_sum_of_its_turns(turns: list[Turn]) -> None:
    """Turns follow each other; none takes longer than plain, or less than the model writes."""
    assert run_s(turns) == pytest.approx(sum(turn.speculative_s for turn in turns))
    for turn in turns:
        assert turn.generation_s <= turn.least_s <= turn.speculative_s <= turn.plain_s


@given(RUNS, st.integers(1, 4))
def test_a_longer_chain_is_never_slower(turns: list[Turn], depth: int) -> None:
    """What starts sooner ends sooner."""
    assert run_s(turns, depth + 1) <= run_s(turns, depth) * (1 + 1e-12)


def one(*guesses_s: float, generation_s: float = 2.0, tool_s: float = 1.0) -> Turn:
    """Make a turn of one call."""
    return Turn(generation_s=generation_s, calls=(Call(tool_s=tool_s, guesses_s=guesses_s),))


@pytest.mark.parametrize(
    ("turn", "seconds"),
    [
        (one(), 3.0),
        (one(0.3), 2.0),
        (one(1.5), 2.5),
        (one(1.999), 2.999),
        (one(2.0), 3.0),
        (one(2.5), 3.0),
        (one(1.8, 1.2, 2.5), 2.2),
        (one(0.3, tool_s=5), 5.3),
        (one(-3.0, tool_s=4), 2.0),
        (Turn(generation_s=2.0), 2.0),
    ],
    ids=["miss", "hidden", "joined", "last", "at", "late", "first", "long", "kept", "closing"],
)
def test_turns_by_hand(turn: Turn, seconds: float) -> None:
    """A miss is G + T, a hit max(G, g + T) of the first right guess, a late guess a miss."""
    assert turn.speculative_s == pytest.approx(seconds)


def test_a_batch_is_as_long_as_its_slowest_call() -> None:
    """One miss among equal calls undoes what the hits hide."""
    hit, miss = Call(tool_s=1, guesses_s=(0.1,)), Call(tool_s=1)
    assert Turn(generation_s=1, calls=(hit, hit)).speculative_s == pytest.approx(1.1)
    assert Turn(generation_s=1, calls=(hit, miss)).speculative_s == pytest.approx(2)
    early = Call(tool_s=1, guesses_s=(0.1,), may_run_early=False)
    assert Turn(generation_s=1, calls=(hit, early)).least_s == pytest.approx(2)


def test_a_chain_by_hand() -> None:
    """G = 4, T = 1, g = 0.5: three calls start in the first turn, at 0.5, 2.0 and 3.5 s.

    Long tools would have waited: of the second turn's, 5 s long, 2 s are hidden before it begins.
    """
    link = Call(tool_s=1, chained_s=0.5)
    first = Turn(generation_s=4, calls=(Call(tool_s=1, guesses_s=(0.5,)),))
    slow = Turn(generation_s=1, calls=(Call(tool_s=5, chained_s=0.5),))
    assert run_s([first, slow], 1) == pytest.approx(4 + 6)
    assert run_s([first, slow], 2) == pytest.approx(4 + 3)
    quick = Turn(generation_s=0.1, calls=(link,))
    assert run_s([first, quick, quick], 2) == pytest.approx(4 + 0.1 + 1.1)
    assert run_s([first, quick, quick], 3) == pytest.approx(4 + 0.1 + 0.4)


# --- where equation (2) at the means is off, and which way

CONSTANT: dict[str, Any] = {
    "generation_s": 1.0,
    "tool_s": 1.0,
    "guess_s": 0.1,
    "accuracy": 0.8,
    "generation_spread": 0.0,
    "tool_spread": 0.0,
}
RUNS_DRAWN = 20_000
"""The standard error of a saving is then below 0.3 points: five of them are allowed for."""


def closed_form(workload: Workload) -> float:
    """Return the saving of (2) at the means."""
    return Client(
        generation_s=workload.generation_s,
        tool_s=workload.tool_s,
        guess_s=workload.guess_s,
        alpha=workload.accuracy,
    ).saving


@pytest.mark.parametrize(
    "workload",
    [
        Workload(**CONSTANT),
        Workload(**{**CONSTANT, "generation_spread": 0.6, "tool_spread": 0.3}),
        Workload(**{**CONSTANT, "calls": 3}),
        Workload(**CONSTANT, turns=3, closing=True),
        Workload(**CONSTANT, closed_at=(0.25,)),
        Workload(**{**CONSTANT, "samples": 5, "likeness": 0.5, "accuracy": 0.4}),
        Workload(**{**CONSTANT, "generation_spread": 0.6}, turns=4, depth=3),
    ],
    ids=["constant", "spread", "batch", "closing", "stream", "samples", "chain"],
)
def test_drawn_runs_take_what_the_simulation_takes(workload: Workload) -> None:
    """The mean over drawn runs is that of the same runs played out."""
    dice = Random(7)  # noqa: S311 - fair draws, no secret
    runs = [workload.draw(dice) for _ in range(300)]
    simulated = sum(simulate_s(run, workload.depth) for run in runs) / len(runs)
    assert mean_of(workload, 300, seed=7).speculative_s == pytest.approx(simulated)


def test_equation_2_holds_where_its_assumptions_do() -> None:
    """Constant times, one call a turn, no closing turn: within five standard errors."""
    found = mean_of(Workload(**CONSTANT), RUNS_DRAWN)
    assert found.error < 0.003
    assert found.saving == pytest.approx(closed_form(Workload(**CONSTANT)), abs=5 * found.error)


def test_equation_2_at_the_means_is_too_rosy() -> None:
    """max() is convex: with the recorded spread of G it promises 6 to 9 points too much at T = G.

    The gap is a gap of Jensen's inequality: never below 0 where hits do not depend on the times.
    """
    gaps: dict[float, float] = {}
    for tool_s in (0.5, 1.0, 2.0, 2.5, 3.8, 8.0):
        workload = Workload(generation_s=4.7, tool_s=tool_s, guess_s=0.3, accuracy=0.8)
        found = mean_of(workload, RUNS_DRAWN)
        gaps[tool_s] = closed_form(workload) - found.saving
        assert gaps[tool_s] > -5 * found.error
    assert 0.05 < max(gaps.values()) < 0.10
    assert gaps[0.5] < 0.01


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_closing_turn_dilutes_the_saving(turns: int) -> None:
    """N turns of 2 s that save 0.72 s, and one of 1 s that saves none."""
    found = mean_of(Workload(**CONSTANT, turns=turns, closing=True), RUNS_DRAWN)
    assert found.saving == pytest.approx(0.72 * turns / (2 * turns + 1), abs=5 * found.error)


@pytest.mark.parametrize("calls", [2, 4])
def test_a_batch_needs_all_its_hits(calls: int) -> None:
    """Equal tools: only a turn whose calls are all guessed is shorter, a share of alpha^k."""
    found = mean_of(Workload(**CONSTANT, calls=calls), RUNS_DRAWN)
    assert found.saving == pytest.approx(0.8**calls * 0.9 / 2, abs=5 * found.error)


def test_hits_that_go_with_short_turns_save_less() -> None:
    """(2) takes hits to be independent of the times; the turn model does not."""
    short, long = one(0.1, generation_s=0.2), one(generation_s=3.8)
    other = [one(generation_s=0.2), one(0.1, generation_s=3.8)]
    rosy = Client(generation_s=2, tool_s=1, guess_s=0.1, alpha=0.5).speculative_s
    assert run_s([short, long]) / 2 > rosy
    assert run_s(other) / 2 == pytest.approx(rosy)


def test_the_stream_hides_what_is_written_after_the_call() -> None:
    """Closed at a quarter of 1 s, a tool of 0.5 s is hidden; the last word hides nothing."""
    settings = {**CONSTANT, "tool_s": 0.5, "accuracy": 0.0}
    assert mean_of(Workload(**settings, closed_at=(0.25,)), 10).saving == pytest.approx(1 / 3)
    assert mean_of(Workload(**settings, closed_at=(1.0,)), 10).saving == 0


# --- samples


@pytest.mark.parametrize(
    ("likeness", "alpha"), [(0.0, 1 - 0.5**3), (0.5, 1 - 0.5 * 0.75 * 2.5 / 3), (1.0, 0.5)]
)
def test_hit_rate_of_samples_by_hand(likeness: float, alpha: float) -> None:
    """Independent samples, a uniform chance, samples that are all alike."""
    assert hit_rate(0.5, 3, likeness) == pytest.approx(alpha)


@given(st.floats(0, 1), st.integers(1, 9), st.floats(0, 1))
def test_more_samples_hit_more_and_like_samples_less(
    accuracy: float, samples: int, likeness: float
) -> None:
    """The rate lies between that of one sample and that of independent ones, and rises."""
    alpha = hit_rate(accuracy, samples, likeness)
    most = 1 - (1 - accuracy) ** samples
    assert accuracy - 1e-9 <= alpha <= most + 1e-5
    assert alpha <= hit_rate(accuracy, samples + 1, likeness) + 1e-9


def test_hit_rate_is_that_of_simulated_samples() -> None:
    """Chances from Beta(1, 1) are uniform: 40,000 calls, four standard errors."""
    dice = Random(3)  # noqa: S311 - fair draws, no secret
    right, drawn = 0, 40_000
    for _ in range(drawn):
        chance = dice.random()
        right += any(dice.random() < chance for _ in range(3))
    alpha = hit_rate(0.5, 3, 1 / 3)
    error = math.sqrt(alpha * (1 - alpha) / drawn)
    assert right / drawn == pytest.approx(alpha, abs=4 * error)


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 0},
        {"calls": 0},
        {"turns": 0},
        {"depth": 0},
        {"likeness": 1.5},
        {"tool_spread": -0.1},
        {"generation_spread": 4},
        {"closed_at": (0.5, 0.6)},
        {"closed_at": (1.5,)},
    ],
)
def test_workloads_outside_their_range_are_refused(change: dict[str, Any]) -> None:
    """The message names the value."""
    with pytest.raises(SpectoolError, match="got"):
        Workload(**{**CONSTANT, **change})


def test_nothing_takes_no_time() -> None:
    """A run without turns."""
    assert (run_s([]), plain_s([]), simulate_s([])) == (0, 0, 0)
