"""What the proof makes of samples: which differences are real, and which it could have seen."""

import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

# ruff: noqa: S311 - samples, not secrets

sys.path.append(str(Path(__file__).parents[2] / "proof"))
import distribution
import verdict

COIN = {"a": 0.5, "b": 0.5}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer repetitions than the proof itself makes."""
    monkeypatch.setattr(verdict, "TIMES", 299)
    monkeypatch.setattr(distribution, "NULLS", 300)
    monkeypatch.setattr(distribution, "TRIALS", 100)


def drawn(arm: str, odds: Mapping[str, float], seed: int, draft: str = "aa") -> verdict.Drawn:
    """Return an arm whose second position has other odds than the first, a fair coin."""
    random = Random(seed)
    firsts, seconds = (random.choices([*each], [*each.values()], k=100) for each in (COIN, odds))
    return verdict.Drawn(arm=arm, tokens=[*zip(firsts, seconds, strict=True)], draft=tuple(draft))


def test_only_the_position_that_differs_is_called_different() -> None:
    """A draft that is taken too often at one position shows there, and nowhere else."""
    taken = drawn("taken", {"a": 0.95, "b": 0.05}, 2)
    found = verdict.compared(drawn("none", COIN, 1), [taken], Random(3))
    assert [(each.position, each.differs) for each in found] == [(0, False), (1, True)]
    assert found[1].distance > 0.3


def test_p_values_are_corrected_for_all_arms_and_positions() -> None:
    """Two arms at two positions are four tests."""
    others = [drawn("one", COIN, 2), drawn("other", {"a": 1.0}, 3)]
    found = verdict.compared(drawn("none", COIN, 1), others, Random(4))
    least = min(found, key=lambda each: each.p)
    assert (least.arm, least.position) == ("other", 1)
    assert least.p_holm == pytest.approx(4 * least.p, abs=5e-4)


def test_a_fair_coin_shows_a_difference_that_a_certain_token_hides() -> None:
    """A position with one token alone is blind, whatever was drafted there."""
    seen = verdict.sights(drawn("none", {"a": 1.0}, 1), [drawn("one", {"a": 1.0}, 2)], Random(3))
    assert [each.blind for each in seen] == [False, True]
    assert 0.1 < (seen[0].toward_draft or 0) < 0.5
    assert seen[1].toward_draft is None
    assert seen[1].draft_share == 1


def test_a_difference_as_small_as_promised_is_found() -> None:
    """At the very distance that is said to be found, most samples are called different."""
    base = drawn("none", COIN, 1)
    (seen, _) = verdict.sights(base, [drawn("one", COIN, 2)], Random(3))
    other = distribution.toward("a")(COIN, (seen.toward_draft or 0) + 0.05)
    calls = [
        verdict.compared(base, [drawn("one", other, seed)], Random(seed))[1].differs
        for seed in range(10)
    ]
    assert sum(calls) > 5
