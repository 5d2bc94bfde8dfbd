"""Lambda: as many samples as the last one earns its place."""

from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.samples import ENOUGH, PROBE_AT_MOST, PROBE_EVERY, SampleCount


def asked_over(count: SampleCount, turns: int, worth: int) -> list[int]:
    """Return how many samples each turn asked for; the first `worth` add something each time."""
    numbers: list[int] = []
    for _ in range(turns):
        numbers.append(count.asked)
        count.seen(last_alone=count.asked <= worth)
    return numbers


def test_it_begins_at_the_most() -> None:
    """What the user asked for holds until there is evidence against it."""
    assert SampleCount(5).asked == 5


def test_a_last_sample_that_adds_nothing_goes() -> None:
    """One by one, down to a single one, which stays whatever it brings."""
    count = SampleCount(4)
    numbers = asked_over(count, 3 * ENOUGH + 1, worth=1)
    assert numbers == [4] * ENOUGH + [3] * ENOUGH + [2] * ENOUGH + [1]
    assert set(asked_over(count, PROBE_EVERY, worth=0)) == {1}


def test_a_last_sample_that_adds_something_stays() -> None:
    """One right guess in ten turns is reason enough."""
    count = SampleCount(3)
    for turn in range(200):
        count.seen(last_alone=turn % 10 == 0)
    assert count.asked == 3


def test_useless_samples_are_tried_ever_more_seldom() -> None:
    """Each failed probe doubles the turns until the next, up to the longest."""
    count = SampleCount(2)
    waits: list[int] = []
    alone = 0
    for asked in asked_over(count, 2000, worth=1):
        if asked == 1:
            alone += 1
        elif alone:
            waits, alone = [*waits, alone], 0
    starts = [wait for wait in waits if wait > 1]
    assert starts[:4] == [32, 64, 128, 256]
    assert set(starts[4:]) == {PROBE_AT_MOST}


def test_more_samples_come_back_when_they_are_worth_it() -> None:
    """One probe that pays makes the next one soon: all are back long before the longest wait."""
    count = SampleCount(4)
    asked_over(count, 1500, worth=1)
    assert count.asked <= 2
    back = asked_over(count, PROBE_AT_MOST + 4 * PROBE_EVERY, worth=4)
    assert back[-1] == 4


def test_a_proven_sample_does_not_shorten_the_wait_for_a_useless_one() -> None:
    """Where two samples are right and a third never is, the third is tried ever more seldom."""
    count = SampleCount(3)
    numbers = asked_over(count, 1000, worth=2)
    assert set(numbers) == {2, 3}
    assert numbers[500:].count(3) <= 500 * 0.05


@given(st.integers(1, 6), st.lists(st.booleans(), max_size=400))
def test_it_stays_between_one_and_the_most(most: int, turns: list[bool]) -> None:
    """Whatever happens; and by steps of one, never twice within `ENOUGH` turns."""
    count, other = SampleCount(most), SampleCount(most)
    since, before = 0, most
    for last_alone in turns:
        count.seen(last_alone=last_alone)
        other.seen(last_alone=last_alone)
        since += 1
        assert 1 <= count.asked <= most
        assert abs(count.asked - before) <= 1
        if count.asked != before:
            assert since >= ENOUGH
            since, before = 0, count.asked
    assert count == other
