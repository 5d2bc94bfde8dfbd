"""Rest: who is right too seldom is asked ever more seldom, and used again when it recovers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.rest import PROBE_AFTER, PROBE_AT_MOST, Rest


def source(min_hit_rate: float = 0.05, patience: int = 20) -> Rest:
    """Return a source nobody has heard of yet."""
    return Rest(min_hit_rate=min_hit_rate, patience=patience)


def tired(**settings: float) -> Rest:
    """Return a source that has been wrong until it had to rest."""
    rest = source(**settings)
    while not rest.resting:
        rest.seen(came_true=False)
    return rest


def turns_until_asked(rest: Rest) -> int:
    """Return how many turns a source is left out of before it is asked again."""
    left_out = 0
    while rest.skips():
        left_out += 1
    return left_out


def test_nobody_rests_before_patience_is_over() -> None:
    """The last of `patience` wrong guesses ends it, not the one before."""
    rest = source(patience=20)
    for _ in range(19):
        rest.seen(came_true=False)
        assert not rest.resting
        assert not rest.skips()
    rest.seen(came_true=False)
    assert rest.resting


def test_one_that_is_always_wrong_is_asked_ever_more_seldom() -> None:
    """Probes come at doubled distances, up to the longest."""
    rest = tired()
    distances: list[int] = []
    for _ in range(7):
        distances.append(turns_until_asked(rest))
        rest.seen(came_true=False)
    assert distances == [4, 8, 16, 32, 64, 64, 64]
    assert (distances[0], distances[-1]) == (PROBE_AFTER, PROBE_AT_MOST)


def test_a_probe_that_says_nothing_counts_as_one() -> None:
    """A source that was asked and stayed silent is asked no sooner."""
    rest = tired()
    assert [turns_until_asked(rest) for _ in range(3)] == [4, 8, 16]


def test_a_right_probe_brings_the_next_one_near() -> None:
    """Who begins to be right need not wait for long to show it again."""
    rest = tired()
    for _ in range(200):
        rest.seen(came_true=False)
    assert [turns_until_asked(rest) for _ in range(5)] == [4, 8, 16, 32, 64]
    rest.seen(came_true=True)
    assert rest.resting
    assert turns_until_asked(rest) == PROBE_AFTER


def test_one_that_recovers_is_used_again() -> None:
    """Some right probes end the rest, and the next rest begins with short distances."""
    rest = tired()
    probes = 0
    while rest.resting:
        turns_until_asked(rest)
        rest.seen(came_true=True)
        probes += 1
    assert probes <= 3
    assert not rest.skips()
    while not rest.resting:
        rest.seen(came_true=False)
    assert turns_until_asked(rest) == PROBE_AFTER


def test_waking_takes_about_twice_the_share_at_which_it_slept() -> None:
    """A source at the edge does not go to and fro with every guess."""
    rest = tired(min_hit_rate=0.1)
    while rest.resting:
        rest.seen(came_true=True)
    assert rest.hit_rate >= 0.19


@pytest.mark.parametrize("min_hit_rate", [0.05, 0.5, 0.6, 0.9])
def test_any_share_below_all_can_be_reached(min_hit_rate: float) -> None:
    """However much is asked of a source, it comes back when it is always right."""
    rest = tired(min_hit_rate=min_hit_rate)
    for _ in range(200):
        rest.seen(came_true=True)
    assert not rest.resting


def test_no_least_share_means_no_rest() -> None:
    """0 switches it off."""
    rest = source(min_hit_rate=0.0)
    for _ in range(200):
        rest.seen(came_true=False)
    assert not rest.resting


def test_old_merits_fade() -> None:
    """A thousand right guesses do not excuse a hundred wrong ones."""
    rest = source()
    for _ in range(1000):
        rest.seen(came_true=True)
    for _ in range(100):
        rest.seen(came_true=False)
    assert rest.resting


@given(st.lists(st.booleans(), max_size=200), st.floats(0, 1), st.integers(1, 30))
def test_only_news_changes_a_rest(news: list[bool], min_hit_rate: float, patience: int) -> None:
    """The share stays one, who never misses never rests, and the same news ends the same way."""
    one, other = (source(min_hit_rate, patience) for _ in range(2))
    for came_true in news:
        for rest in (one, other):
            rest.seen(came_true=came_true)
            assert 0 <= rest.hit_rate <= 1
            assert not (rest.resting and rest.guesses < patience)
        assert one.skips() == other.skips()
    assert one == other
    if all(news):
        assert not one.resting
