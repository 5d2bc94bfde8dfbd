"""The statistics of the proof that drafts leave the distribution of tokens as it is."""

import sys
from pathlib import Path
from random import Random

import pytest

# ruff: noqa: S311 - samples, not secrets

sys.path.append(str(Path(__file__).parents[2] / "proof"))
import distribution


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer repetitions than the proof itself makes."""
    monkeypatch.setattr(distribution, "NULLS", 500)
    monkeypatch.setattr(distribution, "TRIALS", 100)


EIGHTHS = dict.fromkeys(range(8), 1 / 8)


def test_distance_is_the_total_variation() -> None:
    """Equal shares are 0 apart, whatever the sizes; nothing in common is 1."""
    assert distribution.distance("aabb", "ab") == 0
    assert distribution.distance("aab", "ccc") == 1
    assert distribution.distance("aaab", "abbb") == 0.5


def test_samples_of_one_token_are_never_told_apart() -> None:
    """Every split is as far apart as what was seen, so p is 1."""
    assert distribution.permuted("a" * 40, "a" * 40, Random(1), times=99) == 1


def test_disjoint_samples_have_the_least_p_value() -> None:
    """No random split is as far apart, so only what was seen counts."""
    assert distribution.permuted("a" * 40, "b" * 40, Random(1), times=99) == 0.01


def test_a_permutation_test_is_exact_on_a_small_case() -> None:
    """Of the six splits of aabb in halves, two are as far apart as aa and bb."""
    p = distribution.permuted("aa", "bb", Random(1), times=6000)
    assert p == pytest.approx(1 / 3, abs=0.02)


def test_equal_distributions_are_called_different_as_seldom_as_the_level_says() -> None:
    """Of 200 pairs from one distribution, about 10 have p below 5 percent, and not 25."""
    random = Random(2)
    ps = [
        distribution.permuted(
            random.choices(range(8), k=50), random.choices(range(8), k=50), random, times=99
        )
        for _ in range(200)
    ]
    assert sum(p <= 0.05 for p in ps) < 25


def test_holm_multiplies_the_least_by_all_and_never_sinks() -> None:
    """The textbook example, in another order than sorted."""
    assert distribution.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def test_holm_stays_within_one() -> None:
    """A corrected p value is a p value."""
    assert distribution.holm([0.9, 0.6]) == [1.0, 1.0]
    assert distribution.holm([]) == []


def test_a_shift_toward_a_token_is_as_far_as_asked() -> None:
    """Whether the token occurs already or not."""
    for token in (3, "new"):
        moved = distribution.toward(token)(EIGHTHS, 0.2)
        assert distribution.apart(EIGHTHS, moved) == pytest.approx(0.2)
        assert sum(moved.values()) == pytest.approx(1)


def test_a_shift_toward_a_token_ends_where_nothing_else_is_left() -> None:
    """A distance that cannot be had gives the farthest that can."""
    assert distribution.toward("a")({"a": 0.9, "b": 0.1}, 0.5) == {"a": 1.0, "b": 0.0}


def test_a_spread_shift_is_as_far_as_asked() -> None:
    """Half of the tokens give to the other half."""
    moved = distribution.spread(EIGHTHS, 0.1)
    assert distribution.apart(EIGHTHS, moved) == pytest.approx(0.1)
    assert sum(moved.values()) == pytest.approx(1)


def test_a_lone_token_has_nobody_to_give_to() -> None:
    """The spread shift of a certain token is no shift."""
    assert distribution.spread({"a": 1.0}, 0.5) == {"a": 1.0}


def test_power_grows_from_the_level_to_certainty() -> None:
    """No difference is found as seldom as the level says, a great one always."""
    found = [
        distribution.power(
            EIGHTHS, distribution.spread(EIGHTHS, by), Random(3), size=100, level=0.05
        )
        for by in (0.0, 0.2, 0.5)
    ]
    assert found[0] < 0.12 < found[1] < found[2] == 1


def test_more_samples_find_smaller_differences() -> None:
    """The least difference found shrinks with the sample, and is found where it was said to be."""
    few, many = (
        distribution.smallest(EIGHTHS, distribution.spread, Random(4), size=size, level=0.05)
        for size in (25, 100)
    )
    assert many < few
    beyond = distribution.spread(EIGHTHS, many + 0.03)
    assert distribution.power(EIGHTHS, beyond, Random(5), size=100, level=0.05) > 0.8


def test_no_difference_is_promised_where_none_can_be_found() -> None:
    """A certain token cannot be spread, so nothing is claimed."""
    sure = {"a": 1.0}
    assert distribution.smallest(sure, distribution.spread, Random(6), size=9, level=0.05) is None
