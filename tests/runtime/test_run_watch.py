"""Runs from their first turn to their end: known by their control, and never remembered longer."""

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._runtime.run_watch import MOST_RUNS, RunName, RunWatch, WatchedRun


class Paused(Exception):  # noqa: N818 - stands for an interrupt
    """A run that goes on later."""


class Control:
    """Stands for a graph's RunControl."""


class Watching:
    """A watch, a clock, and what was told of runs that ended."""

    def __init__(self, hold_out: Callable[[int], bool] = lambda _: False) -> None:
        self.now_s = 0.0
        self.ended: list[tuple[int, float, bool]] = []
        self.watch = RunWatch(hold_out, self._end, (Paused,))

    def _end(self, run: WatchedRun, now_s: float, succeeded: bool) -> None:
        self.ended.append((run.number, now_s, succeeded))

    def enter(self, control: object, stack: ExitStack | None = None) -> WatchedRun:
        """Begin a turn of the graph that `stack` belongs to."""
        return self.watch.enter(control, lambda: self.now_s, stack and stack.push)

    @property
    def watched(self) -> int:
        """How many runs are remembered."""
        return len(self.watch._runs)


def test_turns_of_one_run_share_it() -> None:
    """The second turn finds the first one's run, and its end is told once."""
    scene, control = Watching(), Control()
    with ExitStack() as stack:
        first = scene.enter(control, stack)
        assert scene.enter(control, stack) is first
        assert scene.watched == 1
        scene.now_s = 3.0
    assert scene.ended == [(1, 3.0, True)]
    assert scene.watched == 0


def test_watches_of_one_run_agree_on_its_name() -> None:
    """Whoever meets it first names it; the next run has another name, though both are held."""
    ours, theirs = (RunWatch(lambda _: False, lambda *_: None, prefix=each) for each in "ab")
    control, held = Control(), list[WatchedRun]()
    for _ in range(2):
        with ExitStack() as stack:
            held += [each.enter(control, lambda: 0.0, stack.push) for each in (ours, theirs)]
    assert [run.name.text for run in held] == ["a.1", "a.1", "a.2", "a.2"]
    assert theirs.enter(Control(), lambda: 0.0, None).name.text == "b.3"


def test_the_next_run_is_another_one() -> None:
    """Even with the same control: once its graph is over, so is the run."""
    scene, control = Watching(), Control()
    for _ in range(2):
        with ExitStack() as stack:
            scene.enter(control, stack)
    assert [number for number, _, _ in scene.ended] == [1, 2]


@pytest.mark.parametrize(
    ("error", "succeeded"),
    [(ValueError("no"), False), (KeyboardInterrupt(), False), (Paused("later"), True)],
)
def test_a_run_succeeds_unless_something_is_raised(error: BaseException, succeeded: bool) -> None:
    """A pause is no failure; and what is raised goes on its way."""
    scene = Watching()

    def fail() -> None:
        with ExitStack() as stack:
            scene.enter(Control(), stack)
            raise error

    with pytest.raises(type(error)):
        fail()
    assert scene.ended == [(1, 0.0, succeeded)]
    assert scene.watched == 0


def test_who_hears_of_the_end_cannot_disturb_it() -> None:
    """A graph unwinds: our failure is nobody's."""

    def broken(*_: Any) -> None:
        raise RuntimeError("our own")

    watch = RunWatch(lambda _: False, broken)
    with ExitStack() as stack:
        watch.enter(Control(), lambda: 0.0, stack.push)
    assert len(watch._runs) == 0


def test_each_run_is_asked_about_once() -> None:
    """Who is held out is decided at its first turn, by its number."""
    asked: list[int] = []

    def hold_out(number: int) -> bool:
        asked.append(number)
        return number % 2 == 0

    scene, control = Watching(hold_out), Control()
    with ExitStack() as stack:
        arms = [scene.enter(each, stack).held_out for each in (control, Control(), control)]
    assert arms == [False, True, False]
    assert asked == [1, 2]


def test_a_control_is_not_kept_alive() -> None:
    """Who else holds it tells whether a run goes on."""
    scene, control, stack = Watching(), Control(), ExitStack()
    scene.enter(control, stack)
    reference = weakref.ref(control)
    del control
    gc.collect()
    assert reference() is None
    stack.close()


def test_without_an_exit_a_run_is_never_counted() -> None:
    """Nobody can say when it ended; it is forgotten to make room."""
    scene = Watching()
    controls = [Control() for _ in range(MOST_RUNS + 1)]
    for control in controls:
        scene.enter(control)
    assert scene.watched == MOST_RUNS
    assert scene.enter(controls[-1]).number == MOST_RUNS + 1
    assert scene.enter(controls[0]).number == MOST_RUNS + 2
    assert scene.ended == []


def test_one_that_was_forgotten_does_not_end_another() -> None:
    """Its end is still told, and whoever has its name by now stays."""
    scene, control, stack = Watching(), Control(), ExitStack()
    scene.enter(control, stack)
    scene.watch._runs.clear()
    later = scene.enter(control)
    stack.close()
    assert [number for number, _, _ in scene.ended] == [1]
    assert scene.enter(control) is later


def test_runs_of_many_threads_have_their_own_numbers() -> None:
    """Threads that begin at once do not share a run."""
    scene, numbers = Watching(), list[int]()
    barrier = threading.Barrier(8)

    def run() -> None:
        barrier.wait()
        for _ in range(50):
            with ExitStack() as stack:
                control = Control()
                numbers.extend({scene.enter(control, stack).number for _ in range(2)})

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == [*range(1, 401)]
    assert scene.watched == 0
    assert len(scene.ended) == 400


# --- figures


def watched(**fields: Any) -> WatchedRun:
    """Return a run that began at 0."""
    return WatchedRun(number=1, name=RunName("1"), held_out=False, started_s=0.0, **fields)


def test_a_turn_lasts_until_the_next_one_or_the_end() -> None:
    """Its tools included; without a turn there is none."""
    assert watched(turns_at_s=[0.0, 2.0, 5.0]).turn_s(6.0) == (2.0, 3.0, 1.0)
    assert watched().turn_s(6.0) == ()


@given(st.lists(st.floats(0, 10), max_size=6))
def test_turns_that_began_at_once_add_up_all_the_same(starts: list[float]) -> None:
    """Parallel agents may tell of their starts in any order: no turn is shorter than nothing."""
    turn_s = watched(turns_at_s=starts).turn_s(10.0)
    assert len(turn_s) == len(starts)
    assert all(each >= 0 for each in turn_s)
    assert sum(turn_s) == pytest.approx(10.0 - min(starts, default=10.0))


def test_costs_add_up_while_all_are_known() -> None:
    """One part of unknown price makes the whole unknown."""
    run = watched()
    assert run.cost_usd == 0.0
    for _ in range(10):
        run.cost(0.1)
    assert run.cost_usd == 1.0
    run.cost(None)
    run.cost(0.1)
    assert run.cost_usd is None
