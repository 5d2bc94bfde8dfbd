"""The registry of runs: an entry lives as long as there is something to remember, and no longer."""

import asyncio
import gc
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from langchain_spectool._core.claim import InFlight
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.turn import CommittedCall, Discard, Turn
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.runs import Aloft, Run

PATIENCE_S = 5.0
READ = Contract(tags=frozenset({"files"}))
KEPT = Contract(reuse="run")


class Control:
    """Stands for a graph's RunControl."""


@dataclass
class FakeTicket:
    lost: bool = False
    cancelled: int = 0

    def cancel(self) -> None:
        self.cancelled += 1


@dataclass
class Here:
    """One run, and short ways to fly in it."""

    control: object = field(default_factory=Control)
    now_s: float = 0.0
    discards: list[Discard] = field(default_factory=list[Discard])
    ends: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def open(self, *, step: int = 1, scope: str = "main") -> tuple[Run, Turn]:
        turn = Turn(number=1, scope=scope, step=step, started_s=self.now_s)
        return runs.open_turn(self.control, self._clock, turn, self.ends.append), turn

    def fly(self, run: Run, turn: Turn, key: str = "a", contract: Contract = READ) -> Flight:
        candidate = Candidate(tool="look", source="draft", confidence=1, contract=contract, key=key)
        with run.lock:
            _, flight = run.machine.admit(
                turn, candidate, policy=Policy(), in_flight=InFlight(), now_s=self.now_s
            )
            assert flight is not None
            run.aloft[flight] = Aloft(on_discard=self.discards.append, ticket=FakeTicket())
        return flight

    def commit(self, run: Run, turn: Turn, *keys: str, contract: Contract = READ) -> None:
        calls = [
            CommittedCall(position=i, tool="look", id=f"c{i}", args={}, key=key, contract=contract)
            for i, key in enumerate(keys)
        ]
        run.act(run.machine.commit(turn, calls, truncated=False, now_s=self.now_s))

    def reasons(self) -> list[str]:
        return [discard.reason for discard in self.discards]

    def _clock(self) -> float:
        return self.now_s


@pytest.fixture
def here() -> Here:
    """A run nobody has entered yet."""
    return Here()


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A janitor that looks every few milliseconds."""
    monkeypatch.setattr(runs, "SWEEP_S", 0.002)


def until(holds: Callable[[], bool]) -> None:
    """Wait for the janitor to get there."""
    limit_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit_s
        time.sleep(0.001)


def ticket_of(run: Run, flight: Flight) -> FakeTicket:
    """Return the fake ticket of a flight that is still up."""
    ticket = run.aloft[flight].ticket
    assert isinstance(ticket, FakeTicket)
    return ticket


# --- an entry's life


def test_entry_is_made_once_and_found(here: Here) -> None:
    """Turns of one run share its entry; nobody else's control finds it."""
    assert runs.find(here.control) is None
    run, _ = here.open()
    assert here.open(scope="other")[0] is run
    assert runs.find(here.control) is run
    assert runs.find(Control()) is None
    assert runs.in_progress() == 1
    run.end()


def test_entry_goes_with_its_last_turn(here: Here) -> None:
    """When the last turn closes the entry is gone, the flight stopped and told of once."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    aloft, ticket = run.aloft[flight], ticket_of(run, flight)
    run.act(run.machine.close(turn, "turn_failed"))
    run.act(run.machine.close(turn, "unclaimed"))
    assert runs.in_progress() == 0
    assert runs.find(here.control) is None
    assert here.reasons() == ["turn_failed"]
    assert ticket.cancelled == 1
    assert aloft.landing.wait().state == "cancelled"
    assert not run.aloft


def test_kept_results_keep_the_entry(here: Here) -> None:
    """A result that later turns may claim keeps the entry when its turn is over."""
    run, turn = here.open()
    flight = here.fly(run, turn, contract=KEPT)
    run.machine.landed(flight, Outcome(state="landed", body_key="a"), 0)
    here.commit(run, turn)
    assert runs.find(here.control) is run
    run.end()
    assert here.reasons() == ["run_ended"]


def test_entry_lets_go_of_the_control(here: Here) -> None:
    """Who still holds an entry that is over, such as an abandoned body, holds no graph run."""
    run, turn = here.open()
    gone = weakref.ref(here.control)
    here.control = None
    run.act(run.machine.close(turn, "unclaimed"))
    assert run.over
    assert gone() is None


def test_id_is_used_again(here: Here) -> None:
    """A new control with an old one's id finds no entry of that one."""
    run, _ = here.open()
    control = Control()
    runs._runs[id(control)] = run
    try:
        assert runs.find(control) is None
    finally:
        del runs._runs[id(control)]
    run.end()


def test_entry_left_between_finding_and_opening(here: Here) -> None:
    """Another thread ends the entry that a turn was about to open in: the turn gets a new one."""
    old, _ = here.open()
    enter = runs._enter

    def then_ended(*args: Any, **options: Any) -> Run:
        run = enter(*args, **options)
        old.end()
        return run

    runs._enter = then_ended
    try:
        new, turn = here.open(step=2)
        assert new is not old
        assert runs.find(here.control) is new
        assert new.machine.turns == [turn]
        new.end()
        old, _ = here.open()
        writing = runs.write_began(here.control, None)
    finally:
        runs._enter = enter
    assert writing is not old
    assert runs.find(here.control) is writing
    runs.write_ended(writing, here.control, None)


def test_threads_open_and_close_at_once() -> None:
    """Turns of one run come and go in many threads; each is in an entry that can be found."""
    here = Here()
    lost: list[Turn] = []
    start = threading.Barrier(8)

    def branch(number: int) -> None:
        start.wait(PATIENCE_S)
        for step in range(100):
            run, turn = here.open(step=step, scope=f"branch {number}")
            if runs.find(here.control) is not run:
                lost.append(turn)
            run.act(run.machine.close(turn, "unclaimed"))

    threads = [threading.Thread(target=branch, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not lost
    assert runs.in_progress() == 0


def test_oldest_run_makes_room(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit the run entered first ends, in order, and the others stay."""
    monkeypatch.setattr(runs, "MAX_RUNS", 2)
    run, turn = here.open()
    here.fly(run, turn)
    others = [Here(), Here()]
    entered = [other.open()[0] for other in others]
    assert run.over
    assert here.reasons() == ["run_ended"]
    assert [runs.find(other.control) for other in others] == entered
    for other in entered:
        other.end()


def test_ended_run_serves_nothing_more(here: Here) -> None:
    """A turn that was open when its run ended takes no guess and finds no booking."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    run.end()
    assert turn.phase == "closed"
    assert flight.state == "cancelled"
    assert run.machine.booking("main", "look", "c0", {}) is None
    run.end()
    assert here.reasons() == ["run_ended"]


# --- what act promises


def test_discards_are_told_after_all_is_stopped(here: Here) -> None:
    """An observer that looks around sees every flight stopped and every waiter released."""
    run, turn = here.open()
    flights = [here.fly(run, turn, key) for key in "ab"]
    tickets = [ticket_of(run, flight) for flight in flights]
    alofts = [run.aloft[flight] for flight in flights]
    seen: list[tuple[int, bool, bool]] = []
    for aloft in alofts:
        aloft.on_discard = lambda _: seen.append(
            (
                sum(ticket.cancelled for ticket in tickets),
                all(each.landing.done for each in alofts),
                runs.find(here.control) is None,
            )
        )
    run.act(run.machine.close(turn, "unclaimed"))
    assert seen == [(2, True, True)] * 2


def test_discard_of_an_answered_flight_is_no_news(here: Here) -> None:
    """What a call has taken from the books is not told of again."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    run.aloft.pop(flight)
    run.act((Discard(flight, "unclaimed"), None))
    assert not here.discards
    run.end()


def test_flight_without_a_ticket_is_only_told_of(here: Here) -> None:
    """A scored flight has nothing to stop."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    run.aloft[flight].ticket = None
    run.act(run.machine.void(flight))
    assert here.reasons() == ["voided"]
    run.end()


def test_invalidate_reaches_every_run(here: Here) -> None:
    """A tag drops the flights that read it, in all runs; no tag drops all."""
    other = Here()
    for each in (here, other):
        run, turn = each.open()
        each.fly(run, turn, "a", READ)
        each.fly(run, turn, "b", KEPT)
    runs.invalidate(frozenset({"files"}))
    assert here.reasons() == other.reasons() == ["invalidated"]
    runs.invalidate(None)
    assert here.reasons() == other.reasons() == ["invalidated"] * 2
    for run in runs._all():
        run.end()


# --- writes


def test_write_nobody_guessed_before_is_known_to_later_guesses(here: Here) -> None:
    """A write begins in a run without flights; a guess during it does not run."""
    writing = runs.write_began(here.control, None)
    assert runs.find(here.control) is writing
    run, turn = here.open()
    assert run is writing
    candidate = Candidate(tool="look", source="draft", confidence=1, contract=READ, key="a")
    admitted = run.machine.admit(turn, candidate, policy=Policy(), in_flight=InFlight(), now_s=0)
    assert admitted == ("writing", None)
    run.act(run.machine.close(turn, "unclaimed"))
    assert runs.in_progress() == 1
    runs.write_ended(writing, here.control, None)
    assert runs.in_progress() == 0


async def test_write_in_a_loop_lives_on_its_clock(here: Here) -> None:
    """An entry made by a write has the clock of where the write runs."""
    await asyncio.sleep(7)
    writing = runs.write_began(here.control, None)
    assert writing.clock() == 7
    runs.write_ended(writing, here.control, None)


def test_write_drops_what_was_read_before_it(here: Here) -> None:
    """The epoch rises at a write's start and at its end."""
    run, turn = here.open()
    here.fly(run, turn)
    runs.write_began(here.control, None)
    assert here.reasons() == ["other_epoch"]
    epoch = run.machine.epoch
    runs.write_ended(run, here.control, None)
    assert run.machine.epoch == epoch + 1
    run.end()


def test_write_outlives_its_entry(here: Here) -> None:
    """The entry was ended during the write: the one that follows learns of the write's end."""
    writing = runs.write_began(here.control, None)
    writing.end()
    run, turn = here.open()
    here.fly(run, turn)
    runs.write_ended(writing, here.control, None)
    assert here.reasons() == ["other_epoch"]
    assert not run.machine.writes
    run.end()


# --- the graph's end


def test_end_of_the_graph_ends_its_scope(here: Here) -> None:
    """When the graph says it has ended, what nobody claimed goes, once, and the entry too."""
    run, turn = here.open()
    here.open(step=2)
    here.fly(run, turn)
    here.commit(run, turn, "a")
    assert len(here.ends) == 1
    here.ends[0]()
    here.ends[0]()
    assert here.reasons() == ["run_ended"]
    assert runs.in_progress() == 0


def test_end_of_a_subgraph_leaves_the_others(here: Here) -> None:
    """Only the scope whose graph ended goes; the parent's flights stay."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    run, inner = here.open(scope="inner")
    here.fly(run, inner, "b")
    here.ends[1]()
    assert here.reasons() == ["run_ended"]
    assert flight in run.aloft
    here.ends[0]()
    assert runs.in_progress() == 0


def test_same_scope_begins_again(here: Here) -> None:
    """A subgraph that ended and is called once more tells of its second end too."""
    run, outer = here.open(scope="outer")
    _, turn = here.open()
    flight = here.fly(run, turn)
    flight.waiters = 1
    here.ends[1]()
    _, again = here.open(step=2)
    assert len(here.ends) == 3
    flight.waiters = 0
    run.act(())
    assert again in run.machine.turns
    here.ends[2]()
    assert run.machine.turns == [outer]
    run.end()


def test_end_of_the_graph_waits_for_who_waits(here: Here) -> None:
    """A call that waits for its flight when its graph unwinds does not run its body instead."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    here.commit(run, turn, "a")
    claim = run.machine.claim(turn, turn.bookings[0], "a", 0)
    assert claim.action == "wait"
    here.ends[0]()
    assert flight.state == "running"
    assert not run.aloft[flight].landing.done
    run.act(run.machine.forsake(flight))
    assert here.reasons() == ["cancelled"]
    assert runs.in_progress() == 0


def test_end_of_a_graph_whose_entry_is_gone(here: Here) -> None:
    """The graph ends long after its entry: nothing is held for that, and nothing happens."""
    run, turn = here.open()
    gone = weakref.ref(run)
    run.act(run.machine.close(turn, "unclaimed"))
    del run
    until(lambda: gone() is None)
    here.ends[0]()
    assert not here.discards


def test_failure_of_ours_does_not_reach_the_graph(here: Here) -> None:
    """Whatever an observer does while the graph unwinds, the graph goes on."""
    run, turn = here.open()
    flight = here.fly(run, turn)

    def fail(_: Discard) -> None:
        raise ValueError("planted")

    run.aloft[flight].on_discard = fail
    here.ends[0]()
    assert runs.in_progress() == 0


# --- the janitor


@pytest.fixture
def _clean_threads() -> Iterator[None]:
    """The janitor of earlier tests has ended before the test."""
    until(lambda: runs._janitor is None and not janitors())
    yield
    until(lambda: runs._janitor is None and not janitors())


def janitors() -> list[threading.Thread]:
    """Return the living janitors."""
    return [thread for thread in threading.enumerate() if thread.name == "spectool-janitor"]


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_janitor_ends_a_run_nobody_holds(here: Here) -> None:
    """A run that ended without a word is ended by who counts the references to its control."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    ticket = ticket_of(run, flight)
    time.sleep(0.01)
    assert runs.find(here.control) is run
    assert not here.discards
    here.control = None
    until(lambda: runs.in_progress() == 0)
    assert here.reasons() == ["run_ended"]
    assert ticket.cancelled == 1


def test_janitor_is_quick_enough() -> None:
    """An orphan is seen, and its idle thread gone, within a second of the run's end."""
    from langchain_spectool._runtime import pool  # noqa: PLC0415 - for its constant

    assert runs.SWEEP_S + pool.IDLE_S < 1


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_janitor_ends_when_nothing_is_left_and_comes_back(here: Here) -> None:
    """There is one janitor while there are runs, none without, and a new one for new runs."""
    for _ in range(2):
        run, _ = here.open()
        other, _ = Here().open()
        assert len(janitors()) == 1
        other.end()
        run.end()
        until(lambda: not janitors())


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_writes_need_no_janitor(here: Here) -> None:
    """An undeclared call alone starts no thread: it ends its entry itself."""
    writing = runs.write_began(here.control, None)
    assert not janitors()
    runs.write_ended(writing, here.control, None)


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_janitor_looks_after_deadlines(here: Here) -> None:
    """A flight past its deadline goes, also where no event loop has a timer for it."""
    run, turn = here.open()
    late, waited = here.fly(run, turn), here.fly(run, turn, "b")
    scored = here.fly(run, turn, "c")
    run.aloft[scored].ticket = None
    waited.waiters = 1
    here.now_s = 29.9
    time.sleep(0.01)
    assert not here.discards
    here.now_s = 30.0
    until(lambda: bool(here.discards))
    assert [(d.flight, d.reason) for d in here.discards] == [(late, "expired")]
    assert scored in run.aloft
    assert waited.state == "running"
    run.end()


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_janitor_ends_a_run_whose_loop_was_closed(here: Here) -> None:
    """A flight that will never land is not waited for: whoever does is released."""
    run, turn = here.open()
    flight = here.fly(run, turn)
    landing = run.aloft[flight].landing
    ticket_of(run, flight).lost = True
    assert landing.wait().state == "cancelled"
    until(lambda: runs.in_progress() == 0)


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_janitor_ends_a_run_of_old_age(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control that somebody holds for ever does not keep an entry for ever."""
    run, turn = here.open()
    here.fly(run, turn)
    monkeypatch.setattr(runs, "MAX_AGE_S", 0.0)
    until(lambda: runs.in_progress() == 0)
    assert here.reasons() == ["run_ended"]


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_interpreter_that_does_not_count(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without reference counts only age ends an entry."""
    monkeypatch.delattr("sys.getrefcount")
    run, _ = here.open()
    here.control = None
    time.sleep(0.01)
    assert not run.over
    monkeypatch.setattr(runs, "MAX_AGE_S", 0.0)
    until(lambda: run.over)


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_one_bad_run_does_not_stop_the_janitor(here: Here) -> None:
    """A run whose clock raises is skipped, and the next one swept."""
    bad = Here()

    def clock() -> float:
        raise RuntimeError("planted")

    turn = Turn(number=1, scope="main", step=1, started_s=0)
    run = runs.open_turn(bad.control, clock, turn, None)
    orphan, _ = here.open()
    here.control = None
    until(lambda: orphan.over)
    assert not run.over
    run.end()


@pytest.mark.usefixtures("_clean_threads")
def test_no_thread_for_a_janitor(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system starts no thread, no entry is left behind unswept."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            here.open()
    assert runs.in_progress() == 0
    run, _ = here.open()
    assert janitors()
    run.end()


def test_garbage_collector_is_not_needed(here: Here) -> None:
    """Nothing of an ended run is in a cycle: counting its references is enough."""
    gc.disable()
    try:
        run, turn = here.open()
        here.fly(run, turn)
        run.end()
        gone = weakref.ref(run)
        del run
        here.discards.clear()
        until(lambda: gone() is None)  # the janitor may be looking at it
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="this system does not fork")
def test_forked_child_has_no_runs(here: Here) -> None:
    """A forked child starts without its parent's runs, and with a janitor of its own."""
    run, _ = here.open()
    with runs._lock:
        child = multiprocessing.get_context("fork").Process(target=_enters_in_a_child)
        child.start()
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    run.end()


def _enters_in_a_child() -> None:
    assert runs.in_progress() == 0
    run, _ = Here().open()
    assert runs._janitor is not None
    assert runs._janitor.is_alive()
    run.end()


@pytest.mark.usefixtures("_quick", "_clean_threads")
def test_entry_of_the_parent_in_a_forked_child(here: Here) -> None:
    """A turn that was open at the fork ends in the child without touching later runs."""
    run, _ = here.open()
    runs._forget_all()
    new, _ = here.open(step=2)
    assert new is not run
    run.end()
    assert runs.find(here.control) is new
    new.end()
