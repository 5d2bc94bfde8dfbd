"""The simulated draft: as accurate as stated, and never right by accident."""

from statistics import fmean

import pytest

from langchain_spectool.bench.paper.draft import DRAFT_S, Draft
from langchain_spectool.bench.paper.workload import VARIANT
from tests.unit.paper.stage import task

TURNS = 4000


def rate(accuracy: float, samples: int) -> float:
    """Return the share of turns in which one of the samples is right."""
    draft = Draft(accuracy=accuracy, mean_s=0.1, seed=1)
    tasks = [task(1, name=f"t{number}") for number in range(TURNS)]
    return fmean(any(each.right[0] for each in draft.samples(t, 0)[:samples]) for t in tasks)


@pytest.mark.parametrize("accuracy", DRAFT_S)
def test_one_sample_is_as_accurate_as_stated(accuracy: float) -> None:
    """Within three standard errors."""
    assert abs(rate(accuracy, 1) - accuracy) < 3 * (0.25 / TURNS) ** 0.5


def test_nine_samples_find_57_percent_more_at_an_accuracy_of_60() -> None:
    """They share their turn's difficulty: independent ones would be right all the time."""
    assert 1.5 < rate(0.6, 9) / rate(0.6, 1) < 1.64


def test_a_sample_says_the_right_call_or_one_that_nobody_makes() -> None:
    """And the same thing whenever it is asked."""
    draft, asked = Draft(accuracy=0.6, mean_s=0.1, seed=0), task(3)
    for sample in range(9):
        said, seconds = draft.says(asked, 0, sample)
        assert (said, seconds) == draft.says(asked, 0, sample)
        right = draft.samples(asked, 0)[sample].right
        assert [call in asked.batches[0] for call in said] == [*right]
        assert all((VARIANT in args) != hit for (_, args), hit in zip(said, right, strict=True))


def test_in_a_closing_turn_it_is_silent_or_wrong() -> None:
    """What it calls there is waste."""
    draft = Draft(accuracy=0.6, mean_s=0.1, seed=0)
    said = [draft.says(task(1, name=f"t{n}"), 1, 0)[0] for n in range(200)]
    assert {len(batch) for batch in said} == {0, 1}
    assert all(VARIANT in args for batch in said for _, args in batch)
