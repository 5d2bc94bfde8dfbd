"""A turn in progress: what it starts, what it plans, and that it owns all of it."""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from stage import PURE, READ, Body, Control, Stage, candidate, committed, until

from langchain_spectool._core.benefit import BenefitGate
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.policy import Policy
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.driver import Job, ThreadDriver
from langchain_spectool._runtime.pool import DaemonPool
from langchain_spectool._runtime.turn_scope import EarlyRun, TurnScope

PATIENCE_S = 5.0


@pytest.fixture
def stage() -> Stage:
    """A run nobody has entered yet."""
    return Stage()


def sample(turn: TurnScope, arun: Callable[[], Any], *, timeout_s: float = 60.0) -> None:
    """Start a speculator's sample."""
    job = Job(name="spectool:draft", timeout_s=timeout_s, run=None, arun=arun, done=lambda _: None)
    turn.sample(job, contextvars.copy_context())


# --- no trace


async def test_turn_without_guesses_leaves_no_trace(stage: Stage) -> None:
    """Neither an open turn nor a committed one is in the registry before it guesses."""
    turn = stage.turn()
    assert runs.in_progress() == 0
    turn.commit([], truncated=False)
    assert runs.in_progress() == 0
    assert stage.told() == [("turn_committed", "committed")]


@pytest.mark.parametrize("refusal", ["undeclared", "gated", "unknown_tool"])
async def test_refused_guess_leaves_no_trace(stage: Stage, refusal: Any) -> None:
    """A guess that stands no chance is reported and enters nothing."""
    turn = stage.turn()
    assert stage.guess(turn, refusal=refusal) is None
    assert runs.in_progress() == 0
    assert stage.told() == [("guess", refusal)]


async def test_the_answer_tells_which_calls_may_run_early(stage: Stage) -> None:
    """Undeclared ones may not, nor may those behind them, which may see what they changed."""
    calls = [
        committed(0, "a", READ),
        committed(1, None, Contract(early=False)),
        committed(2, None, None),
        committed(3, "b", READ),
    ]
    stage.turn(shadow=True).commit(calls)
    assert stage.events[-1].barred == ("", "not_early", "undeclared", "fenced")
    assert stage.events[-1].arm == "shadow"
    stage.turn().commit([])
    assert (stage.events[-1].barred, stage.events[-1].arm) == ((), "")


@pytest.mark.parametrize(
    ("benefit", "weighed"), [(None, "run"), (BenefitGate(warm_up=5), "warming_up")]
)
async def test_a_scored_guess_tells_whether_it_would_run(
    stage: Stage, benefit: BenefitGate | None, weighed: str
) -> None:
    """Also the second source's equal one, and nothing stays reserved for either."""
    stage.policy = Policy(benefit=benefit, budgets=Budgets(turn=Budget(calls=1)))
    turn = stage.turn(shadow=True)
    for source in ("draft", "patterns"):
        stage.guess(turn, refusal="shadow", source=source)
    stage.guess(turn, key="b", refusal="gated")
    assert [(event.verdict, event.weighed) for event in stage.events] == [
        ("shadow", weighed),
        ("duplicate", weighed),
        ("gated", ""),
    ]
    turn.commit([])


async def test_guess_below_the_bar_goes_with_its_turn(stage: Stage) -> None:
    """A guess the machine refuses leaves nothing once the model has answered."""
    stage.policy = Policy(min_confidence=0.5)
    turn = stage.turn()
    assert stage.guess(turn, confidence=0.1) is None
    assert not stage.commit(turn, "a")
    assert runs.in_progress() == 0
    assert stage.told("guess") == [("guess", "unsure")]


# --- flights


async def test_flight_lands_and_is_told(stage: Stage) -> None:
    """An early run is reported when it starts and when it lands, in this order."""
    turn = stage.turn()
    flight = stage.guess(turn, Body(delay_s=2))
    assert flight is not None
    assert stage.airborne.beside("look").tool == 1
    await asyncio.sleep(3)
    assert stage.airborne.beside("look").process == 0
    assert flight.state == "landed"
    assert flight.spent_s(turn.clock()) == 2
    assert stage.told() == [("guess", "run"), ("landed", "landed")]
    stage.end()


@pytest.mark.parametrize("state", ["failed", "tainted"])
async def test_flight_that_came_to_nothing(stage: Stage, state: Any) -> None:
    """It is told as landed and then as discarded, once each."""
    turn = stage.turn()
    stage.guess(turn, Body(state=state))
    await asyncio.sleep(1)
    assert stage.told() == [("guess", "run"), ("landed", state), ("discarded", state)]
    stage.end()
    assert stage.told("discarded") == [("discarded", state)]


async def test_task_cancelled_by_somebody_else(stage: Stage) -> None:
    """`asyncio.run` cancels all tasks at its end: each flight is discarded once."""
    body = Body(delay_s=5)
    turn = stage.turn()
    stage.guess(turn, body)
    await asyncio.sleep(1)
    for task in asyncio.all_tasks():
        if task.get_name() == "spectool:look":
            task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert body.ends == ["cancelled"]
    turn.abandon()
    assert stage.told("landed", "discarded") == [("discarded", "cancelled")]


async def test_late_flight_is_dropped(stage: Stage) -> None:
    """An unclaimed flight is cancelled at its deadline."""
    body = Body(delay_s=100)
    turn = stage.turn()
    stage.guess(turn, body, contract=Contract(timeout_s=3))
    await asyncio.sleep(4)
    assert body.ends == ["cancelled"]
    assert stage.told("discarded") == [("discarded", "expired")]
    turn.abandon()
    assert runs.in_progress() == 0


async def test_guess_that_is_taken_back(stage: Stage) -> None:
    """The stream went on writing the call: its flight is cancelled, once."""
    body = Body(delay_s=5)
    turn = stage.turn()
    flight = stage.guess(turn, body)
    assert flight is not None
    await asyncio.sleep(1)
    turn.take_back(flight)
    turn.take_back(flight)
    await asyncio.sleep(1)
    assert body.ends == ["cancelled"]
    assert stage.told("discarded") == [("discarded", "voided")]
    turn.abandon()
    stage.turn().take_back(flight)


def test_no_room_leaves_no_flight(stage: Stage) -> None:
    """No thread is free: the guess did not run, so nothing is discarded either."""
    stage.pool = DaemonPool(1)
    gate = threading.Event()
    turn = stage.turn()
    assert stage.guess(turn, Body(gate=gate)) is not None
    assert stage.guess(turn, key="b") is None
    assert stage.airborne.beside("look").process == 1
    assert stage.told() == [("guess", "run"), ("guess", "no_room")]
    gate.set()
    until(lambda: stage.pool.busy == 0)
    assert stage.guess(turn, key="b") is not None
    until(lambda: stage.pool.busy == 0)
    turn.abandon()


def test_early_run_that_cannot_be_prepared(stage: Stage) -> None:
    """Arguments that cannot be copied cost the guess; no call waits for what never started."""
    turn = stage.turn()

    def fail() -> EarlyRun:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        turn.offer(candidate("a"), fail)
    assert stage.airborne.beside("look").process == 0
    assert not stage.commit(turn, "a")
    assert runs.in_progress() == 0


async def test_shadow_runs_nothing(stage: Stage) -> None:
    """In shadow a guess is scored; no body runs, so none is wasted, and calls share nothing."""
    body = Body()
    turn = stage.turn(shadow=True)
    assert stage.guess(turn, body, refusal="shadow", contract=PURE) is not None
    assert stage.guess(turn, body, key="b", refusal="shadow") is not None
    await asyncio.sleep(1)
    (call,) = stage.commit(turn, "a", contract=PURE)
    assert not body.ends
    assert not call.begin()
    call.end()
    assert stage.told("guess", "claim", "discarded") == [
        ("guess", "shadow"),
        ("guess", "shadow"),
        ("claim", "shadow_hit"),
    ]
    assert runs.in_progress() == 0


# --- samples


async def test_samples_stop_when_the_model_answers(stage: Stage) -> None:
    """Who still guesses when the answer is there is cancelled."""
    ends: list[str] = []

    async def draft() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    for leave in (lambda turn: turn.commit([]), lambda turn: turn.abandon()):
        turn = stage.turn()
        sample(turn, draft)
        await asyncio.sleep(1)
        leave(turn)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert ends == ["cancelled"] * 2
    assert asyncio.get_running_loop().time() == 2


async def test_late_sample_is_cancelled(stage: Stage) -> None:
    """A sample is given up at its own deadline, while the model still writes."""
    turn = stage.turn()
    sample(turn, lambda: asyncio.sleep(100), timeout_s=3)
    await asyncio.sleep(4)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("spectool")]
    turn.abandon()


async def test_no_sample_after_the_answer(stage: Stage) -> None:
    """Once the model has answered nobody starts to guess."""
    turn = stage.turn()
    turn.commit([])

    async def draft() -> None:
        raise AssertionError

    sample(turn, draft)
    await asyncio.sleep(1)


def test_no_room_for_a_sample(stage: Stage) -> None:
    """A sample without a free thread does not run, and is not stopped either."""
    turn = stage.turn(driver=ThreadDriver(DaemonPool(1)))
    sample(turn, lambda: asyncio.sleep(0))
    turn.commit([])


# --- the answer


async def test_guess_after_the_answer_is_late(stage: Stage) -> None:
    """A guess that comes with or after the answer starts nothing."""
    early, late = stage.turn(), stage.turn()
    stage.guess(early)
    early.abandon()
    late.commit([])
    assert stage.guess(early) is None
    assert stage.guess(late) is None
    assert stage.told("guess") == [("guess", "run"), ("guess", "late"), ("guess", "late")]
    assert runs.in_progress() == 0


async def test_unplanned_flights_are_cancelled(stage: Stage) -> None:
    """The answer keeps the flights it plans, and stops the others."""
    kept, dropped = Body(delay_s=5), Body(delay_s=5)
    turn = stage.turn()
    stage.guess(turn, kept)
    stage.guess(turn, dropped, key="b")
    await asyncio.sleep(1)
    stage.commit(turn, "a")
    await asyncio.sleep(5)
    assert (kept.ends, dropped.ends) == (["returned"], ["cancelled"])
    assert stage.told("discarded") == [("discarded", "unclaimed")]
    stage.end()


async def test_truncated_answer_has_no_plan(stage: Stage) -> None:
    """All flights of a truncated turn go."""
    body = Body(delay_s=5)
    turn = stage.turn()
    stage.guess(turn, body)
    await asyncio.sleep(1)
    assert not stage.commit(turn, "a", truncated=True, contract=PURE)
    await asyncio.sleep(1)
    assert body.ends == ["cancelled"]
    assert stage.told("turn_committed", "discarded") == [
        ("discarded", "truncated"),
        ("turn_committed", "truncated"),
    ]
    assert runs.in_progress() == 0


async def test_abandoned_turn_leaves_nothing(stage: Stage) -> None:
    """The model failed: its flights are cancelled and the entry is gone."""
    body = Body(delay_s=5)
    turn = stage.turn()
    stage.guess(turn, body)
    await asyncio.sleep(1)
    turn.abandon()
    await asyncio.sleep(1)
    assert body.ends == ["cancelled"]
    assert stage.told("discarded", "turn_ended") == [
        ("discarded", "turn_failed"),
        ("turn_ended", "failed"),
    ]
    assert runs.in_progress() == 0


async def test_deterministic_calls_have_a_plan_without_guesses(stage: Stage) -> None:
    """Equal calls may share a run even where nothing was guessed."""
    turn = stage.turn()
    assert len(stage.commit(turn, "a", "a", contract=PURE)) == 2
    stage.end()


async def test_turn_of_a_run_that_was_ended(stage: Stage) -> None:
    """The run was ended under an open turn: it guesses no more, and plans nothing."""
    turn = stage.turn()
    stage.guess(turn)
    stage.end()
    assert stage.guess(turn, key="b") is None
    assert not stage.commit(turn, "a", contract=PURE)
    assert stage.told("discarded") == [("discarded", "run_ended")]
    assert runs.in_progress() == 0


async def test_run_that_ends_between_entering_and_admission(stage: Stage) -> None:
    """The janitor comes between the two: the guess is late, and nothing flies."""
    turn = stage.turn()
    entered = turn._entered

    def then_ended() -> Any:
        run = entered()
        stage.end()
        return run

    turn._entered = then_ended  # type: ignore[method-assign]
    assert stage.guess(turn) is None
    assert stage.told() == [("guess", "late")]


def test_guesses_from_many_threads_while_the_model_answers() -> None:
    """Samples race the answer: whatever took off is planned or discarded, and nothing stays."""
    for _ in range(20):
        stage = Stage(policy=Policy(guesses_per_turn=1000, in_flight_per_run=1000))
        turn = stage.turn()
        start = threading.Barrier(5)

        def draft(
            number: int, stage: Stage = stage, turn: TurnScope = turn, start: Any = start
        ) -> None:
            start.wait(PATIENCE_S)
            for n in range(10):
                stage.guess(turn, key=f"{number} {n}")

        threads = [threading.Thread(target=draft, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        start.wait(PATIENCE_S)
        stage.commit(turn, "0 0")
        for thread in threads:
            thread.join(PATIENCE_S)
        until(lambda stage=stage: stage.pool.busy == 0)
        stage.end()
        assert runs.in_progress() == 0
        took_off = stage.told("guess").count(("guess", "run"))
        assert len(stage.told("discarded")) == took_off


# --- what holds what


async def test_flight_does_not_hold_the_run(stage: Stage) -> None:
    """Tasks, timers, tickets and turns of a flight hold no reference to the control."""
    turn = stage.turn()
    stage.guess(turn, Body(delay_s=100))
    await asyncio.sleep(1)
    gone = weakref.ref(stage.control)
    run = runs.find(stage.control)
    assert run is not None
    gc.collect()
    gc.disable()
    try:
        stage.control = Control()
        assert run._orphaned()
        run.end()
        assert gone() is None
    finally:
        gc.enable()
    await asyncio.sleep(0)


async def test_turn_lets_go_of_the_run_when_the_model_answers(stage: Stage) -> None:
    """A sample that was abandoned in its thread holds the turn, but not the run."""
    turns = [stage.turn(), stage.turn()]
    turns[0].commit([])
    turns[1].abandon()
    gone = weakref.ref(stage.control)
    stage.ends.clear()
    stage.control = Control()
    assert gone() is None


def test_abandoned_body_does_not_hold_the_run(stage: Stage) -> None:
    """A body that never returns holds its thread, and no graph run."""
    gate = threading.Event()
    turn = stage.turn()
    stage.guess(turn, Body(gate=gate))
    turn.abandon()
    gone = weakref.ref(stage.control)
    stage.control = Control()
    until(lambda: gone() is None)
    assert stage.airborne.beside("look").process == 1
    gate.set()
    until(lambda: stage.airborne.beside("look").process == 0)
    assert stage.told("landed", "discarded") == [("discarded", "turn_failed")]


async def test_cancelled_deadline_holds_no_context(stage: Stage) -> None:
    """A timer that is cancelled stays in the loop until its time: it may hold nothing."""

    class Thing:
        """Something that can be referenced weakly."""

    variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")
    things: list[weakref.ref[Thing]] = []

    async def node() -> None:
        thing = Thing()
        things.append(weakref.ref(thing))
        variable.set(thing)
        turn = stage.turn()
        stage.guess(turn)
        await asyncio.sleep(1)
        turn.abandon()

    await asyncio.create_task(node())
    await asyncio.sleep(0)
    assert things[0]() is None


async def test_graph_that_ends_ends_its_flights(stage: Stage) -> None:
    """Planned flights that nobody claims end with their graph, at once."""
    body = Body(delay_s=5)
    turn = stage.turn()
    stage.guess(turn, body)
    await asyncio.sleep(1)
    stage.commit(turn, "a")
    assert len(stage.ends) == 1
    stage.ends[0]()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert body.ends == ["cancelled"]
    assert stage.told("discarded") == [("discarded", "run_ended")]
    assert runs.in_progress() == 0


async def test_contract_of_a_call_is_what_plans_it(stage: Stage) -> None:
    """Calls that neither have a flight nor may share one need no plan."""
    turn = stage.turn()
    stage.guess(turn, key="b")
    assert not stage.commit(turn, "a", contract=READ)
    assert not stage.commit(stage.turn(), "a", contract=None)
    assert runs.in_progress() == 0
