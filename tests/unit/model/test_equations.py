"""The paper's closed forms: figures worked by hand, and what Lemma 1 says of them."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool.bench.model.equations import Client, Engine, EngineTurn
from langchain_spectool.bench.model.simulate import simulate_s
from langchain_spectool.bench.model.turn_model import Call, Turn
from langchain_spectool.errors import SpectoolError

SECONDS = st.floats(0.01, 100)
SHARES = st.floats(0, 1)


def client(**more: Any) -> Client:
    """Make the example of the documents: 2 s of model, 1 s of tool, 0.3 s of guessing, 0.8."""
    return Client(**{"generation_s": 2.0, "tool_s": 1.0, "guess_s": 0.3, "alpha": 0.8, **more})


def test_equation_2_by_hand() -> None:
    """(2 + 1) / (0.8 max(2, 1.3) + 0.2 (2 + 1)) = 3 / 2.2, at most 3 / 2."""
    found = client()
    assert found.speedup == pytest.approx(3 / 2.2)
    assert found.bound == pytest.approx(1.5)
    assert found.saving == pytest.approx(0.8 / 3)
    assert found.ceiling == pytest.approx(2 - 0.6 / 3.3)


@pytest.mark.parametrize(
    ("tool_s", "percent"), [(0.5, 6), (1.0, 12), (1.5, 16), (2.0, 19), (2.5, 21)]
)
def test_papers_8b_column_is_within_two_points_at_one_fitted_g(tool_s: float, percent: int) -> None:
    """With G = 6.3 s, equation (2) reproduces the paper's savings for its 8B draft model."""
    found = client(generation_s=6.3, tool_s=tool_s)
    assert 100 * found.saving == pytest.approx(percent, abs=2)


@given(SECONDS, SECONDS, SECONDS, SHARES, SHARES)
def test_lemma_1(g: float, G: float, T: float, one: float, other: float) -> None:  # noqa: N803
    """For g < G, S rises with alpha, up to the bound, which is at most the ceiling, below 2."""
    low, high = sorted((one, other))
    at = [client(generation_s=G, tool_s=T, guess_s=g, alpha=alpha) for alpha in (low, high, 1.0)]
    assert 1 <= at[0].speedup <= at[1].speedup <= at[2].speedup
    assert at[2].speedup == pytest.approx(at[2].bound)
    assert at[2].bound <= at[2].ceiling * (1 + 1e-12)
    assert at[2].ceiling < 2


def test_rise_with_alpha_is_strict() -> None:
    """Where a hit hides anything at all, every further hit counts."""
    speedups = [client(alpha=tenth / 10).speedup for tenth in range(11)]
    assert all(one < other for one, other in pairwise(speedups))


def test_ceiling_is_reached_where_the_two_paths_are_equal() -> None:
    """G = g + T: the model and the early run end together."""
    found = client(generation_s=1.3)
    assert found.bound == pytest.approx(found.ceiling)


@given(SECONDS, SECONDS, SECONDS, st.integers(0, 9))
def test_equation_2_is_what_the_simulation_gives_under_its_assumptions(
    G: float,  # noqa: N803
    T: float,  # noqa: N803
    g: float,
    hits: int,
) -> None:
    """Ten equal turns of one call each, so many of them guessed: exact, with g >= G a miss."""
    turns = [
        Turn(generation_s=G, calls=(Call(tool_s=T, guesses_s=(g,) * (number < hits)),))
        for number in range(10)
    ]
    found = client(generation_s=G, tool_s=T, guess_s=g, alpha=hits / 10)
    assert simulate_s(turns) == pytest.approx(10 * found.speculative_s)


def test_break_even_by_hand() -> None:
    """A cost of 0.2 s a turn: alpha above 0.2, g below 2 - 0.2 / 0.8, cost below 0.8 s."""
    found = client(cost_s=0.2)
    assert found.alpha_to_break_even == pytest.approx(0.2)
    assert found.guess_s_to_break_even == pytest.approx(1.75)
    assert found.cost_s_to_break_even == pytest.approx(0.8)


@given(SECONDS, SECONDS, st.floats(0, 1), st.floats(0.05, 1), st.floats(0.01, 1))
def test_nothing_is_saved_at_break_even(
    G: float,  # noqa: N803
    T: float,  # noqa: N803
    g: float,
    alpha: float,
    cost: float,
) -> None:
    """At each of the three, and only there, the simulated time is the plain one."""
    cost_s = cost * alpha * min(T, G)
    found = client(generation_s=G, tool_s=T, guess_s=g * G, alpha=alpha, cost_s=cost_s)
    guess_s = found.guess_s_to_break_even
    assert guess_s is not None
    there = [{"guess_s": max(0.0, guess_s)}, {"cost_s": found.cost_s_to_break_even}]
    if found.alpha_to_break_even is not None:
        there.append({"alpha": found.alpha_to_break_even})
    for change in there:
        values = {"generation_s": G, "tool_s": T, "guess_s": g * G, "alpha": alpha}
        assert client(**{**values, "cost_s": cost_s, **change}).speedup == pytest.approx(1)


def test_cost_is_what_the_simulation_gives_when_guessing_delays_the_model() -> None:
    """Seconds of cost are seconds of each turn, hit or miss."""
    hit = Turn(generation_s=2, calls=(Call(tool_s=1, guesses_s=(0.3,)),))
    miss = Turn(generation_s=2, calls=(Call(tool_s=1),))
    took_s = simulate_s([hit, hit, hit, hit, miss], cost_s=0.1)
    assert took_s == pytest.approx(5 * client(cost_s=0.1).speculative_s)


def test_where_nothing_can_be_saved_there_is_no_break_even() -> None:
    """A guess as slow as the model hides nothing; a cost above all savings is never earned."""
    assert client(guess_s=2.0).alpha_to_break_even is None
    assert client(guess_s=2.0, cost_s=0.1).alpha_to_break_even is None
    assert client(cost_s=1.5).alpha_to_break_even is None
    assert client(cost_s=1.5).guess_s_to_break_even is None
    assert client(alpha=0.0).guess_s_to_break_even is None
    assert client().alpha_to_break_even == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("generation_s", 0),
        ("generation_s", float("nan")),
        ("tool_s", -1),
        ("tool_s", float("inf")),
        ("guess_s", -0.1),
        ("cost_s", -0.1),
        ("alpha", 1.1),
        ("alpha", float("nan")),
    ],
)
def test_values_outside_their_range_are_named(field: str, value: float) -> None:
    """The message says which value it was."""
    with pytest.raises(SpectoolError, match=f"got {value!r}"):
        client(**{field: value})


ENGINE: dict[str, Any] = {
    "prompt_tokens": 100,
    "overhead_s": 0.05,
    "prefill_s": 0.001,
    "decode_s": 0.01,
}
TURNS = [
    EngineTurn(reasoning_tokens=50, call_tokens=10, output_tokens=30, tool_s=0.2),
    EngineTurn(reasoning_tokens=20, call_tokens=15, output_tokens=40, tool_s=0.1),
]


def test_equations_4_to_6_by_hand() -> None:
    """Two turns: prefills of 100 + 140 tokens, or once 195; 95 tokens decoded; 0.3 s of tools."""
    engine = Engine(turns=TURNS, **ENGINE)
    assert engine.vanilla_s == pytest.approx(0.2 + 0.24 + 0.95 + 0.3)
    assert engine.cached_s == pytest.approx(0.2 + 0.195 + 0.95 + 0.3)
    assert engine.speculative_s(1) == pytest.approx(0.195 + 0.01 * (2 + 70))
    assert engine.speculative_s(0.5) == pytest.approx(0.1 + 0.195 + 0.01 * (1 + 70 + 12.5) + 0.15)


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=9), SHARES)
def test_engine_equations_agree_where_they_must(
    drawn: list[tuple[float, float, float, float]], alpha: float
) -> None:
    """Without a hit (6) is (5); a prefix cache spares all but the last turn's prefill."""
    turns = [
        EngineTurn(reasoning_tokens=r, call_tokens=1 + t, output_tokens=o, tool_s=s)
        for r, t, o, s in drawn
    ]
    engine = Engine(turns=turns, **ENGINE)
    assert engine.speculative_s(0) == pytest.approx(engine.cached_s)
    assert engine.speculative_s(alpha) <= engine.cached_s * (1 + 1e-12)
    last_s = engine.prefill_s * (turns[-1].call_tokens + turns[-1].output_tokens)
    assert engine.cached_s - last_s <= engine.vanilla_s * (1 + 1e-12)


def test_engine_without_turns_or_with_a_negative_rate_is_refused() -> None:
    """What cannot be is an error, not a figure."""
    with pytest.raises(SpectoolError, match="at least one turn"):
        Engine(turns=[], **ENGINE)
    with pytest.raises(SpectoolError, match="-1"):
        Engine(turns=TURNS, **{**ENGINE, "decode_s": -1})
