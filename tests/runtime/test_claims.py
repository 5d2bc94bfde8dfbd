"""Claims: what a committed call gets from its flight, and what it never notices."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from stage import PATIENCE_S, PURE, READ, Body, Stage, real, received, until

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.turn import Discard
from langchain_spectool._runtime import runs
from langchain_spectool._runtime import steps as steps_module
from langchain_spectool._runtime.claims import BookedCall, Received
from langchain_spectool._runtime.driver import AsyncDriver, ThreadDriver
from langchain_spectool._runtime.pool import DaemonPool


@pytest.fixture
def stage() -> Stage:
    """A run nobody has entered yet."""
    return Stage()


@dataclass
class Rows:
    """A value that can be changed."""

    n: int = 1


class Opaque:
    """A value that cannot be copied."""

    def __deepcopy__(self, _: object) -> object:
        raise TypeError("planted")


async def flying(
    stage: Stage, body: Body, *keys: str, contract: Contract = READ, at_s: float = 1
) -> list[BookedCall]:
    """Start `body` for the first key, commit calls of all `keys` a second later."""
    turn = stage.turn()
    assert stage.guess(turn, body, contract=contract) is not None
    await asyncio.sleep(at_s)
    return stage.commit(turn, *(keys or ("a",)), contract=contract)


async def claimed(call: BookedCall, body: Callable[[], Any], key: str | None = "a") -> Any:
    """Make the call as the proxy does: begin, claim in the body, end."""
    try:
        return await call.aanswer(received(key), body) if call.begin() else await body()
    finally:
        call.end()


def now_s() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


# --- one flight, one call


async def test_landed_flight_is_served(stage: Stage) -> None:
    """The flight's very value comes back at once; the body does not run."""
    value, ran = Rows(), list[int]()
    (call,) = await flying(stage, Body(value))
    assert await claimed(call, real(ran=ran)) is value
    assert (now_s(), ran) == (1, [])
    assert runs.in_progress() == 0
    claim = next(event for event in stage.events if event.kind == "claim")
    assert (claim.verdict, claim.source, claim.waited_s, claim.hidden_s) == ("hit", "draft", 0, 0)
    assert not stage.told("discarded")


async def test_flight_in_the_air_is_joined(stage: Stage) -> None:
    """A claim waits for the rest of its flight, no longer, and says what that hid."""
    (call,) = await flying(stage, Body(delay_s=3))
    assert await claimed(call, real()) == "early"
    assert now_s() == 3
    claim = next(event for event in stage.events if event.kind == "claim")
    assert (claim.verdict, claim.waited_s, claim.spent_s, claim.hidden_s) == ("joined", 2, 3, 1)
    ended = next(event for event in stage.events if event.kind == "turn_ended")
    assert (ended.spent_s, ended.hidden_s) == (2, 1)


async def test_call_without_a_flight_runs(stage: Stage) -> None:
    """The model asked for something else: its own body runs, and is counted as a miss."""
    calls = await flying(stage, Body(), "b", "a")
    assert not calls[0].begin()
    calls[0].end()
    assert await claimed(calls[1], real()) == "early"
    assert stage.told("claim") == [("claim", "no_guess"), ("claim", "hit")]
    assert stage.told("turn_ended") == [("turn_ended", "done")]


@pytest.mark.parametrize("state", ["failed", "tainted"])
async def test_flight_that_failed_while_joined(stage: Stage, state: Any) -> None:
    """The call runs for real then; the flight is discarded once."""
    (call,) = await flying(stage, Body(delay_s=3, state=state))
    assert await claimed(call, real()) == "real"
    assert now_s() == 4
    assert stage.told("claim", "discarded") == [("discarded", state), ("claim", state)]


async def test_flight_that_failed_before(stage: Stage) -> None:
    """A failed guess is no plan: the call runs at once."""
    turn = stage.turn()
    stage.guess(turn, Body(state="failed"))
    await asyncio.sleep(1)
    assert not stage.commit(turn, "a")


async def test_flight_that_is_cancelled_while_joined(stage: Stage) -> None:
    """Somebody cancels the flight's task: the waiter is not cancelled, its body runs (B16)."""
    body = Body(delay_s=100)
    (call,) = await flying(stage, body)
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(1)
    for task in asyncio.all_tasks():
        if task.get_name() == "spectool:look":
            task.cancel()
    assert await calling == "real"
    assert body.ends == ["cancelled"]
    assert stage.told("claim", "discarded") == [("discarded", "cancelled"), ("claim", "cancelled")]


@pytest.mark.parametrize("key", ["b", None])
async def test_edited_call_runs(stage: Stage, key: str | None) -> None:
    """The body received other values than the flight's: it runs, the flight is discarded once."""
    (call,) = await flying(stage, Body())
    assert await claimed(call, real(), key) == "real"
    assert stage.told("claim", "discarded") == [("discarded", "mismatch"), ("claim", "mismatch")]


async def test_flight_with_other_values_than_it_promised(stage: Stage) -> None:
    """Only when it lands is it known what the early body received: other values are a miss."""
    (call,) = await flying(stage, Body(delay_s=3, key="z"))
    assert await claimed(call, real()) == "real"
    assert stage.told("claim", "discarded") == [("discarded", "mismatch"), ("claim", "mismatch")]


async def test_write_while_a_claim_waits(stage: Stage) -> None:
    """The world changes under a flight that is waited for: the call runs for real."""
    (call,) = await flying(stage, Body(delay_s=3))
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(1)
    writing = runs.write_began(stage.control, None)
    runs.write_ended(writing, stage.control, None)
    assert await calling == "real"
    assert now_s() == 3
    assert stage.told("discarded") == [("discarded", "other_epoch")]


async def test_run_that_is_ended_while_a_claim_waits(stage: Stage) -> None:
    """The entry is evicted: who waited runs its body."""
    (call,) = await flying(stage, Body(delay_s=30))
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(1)
    stage.end()
    assert await calling == "real"
    assert stage.told("discarded") == [("discarded", "run_ended")]


async def test_graph_that_ends_while_a_claim_waits(stage: Stage) -> None:
    """A sibling's error ends the graph: who waits on still has its flight, and then all goes."""
    (call, _) = await flying(stage, Body(delay_s=3), "a", "b")
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(1)
    stage.ends[0]()
    assert runs.in_progress() == 1
    assert await calling == "early"
    assert now_s() == 3
    assert not stage.told("discarded")
    assert runs.in_progress() == 0


async def test_second_attempt_runs(stage: Stage) -> None:
    """A retry of the same call is not answered by what was served before."""
    (call,) = await flying(stage, Body())
    call.begin()
    assert await call.aanswer(received(), real()) == "early"
    assert await call.aanswer(received(), real()) == "real"
    call.end()
    assert not stage.told("discarded")


# --- cancellation


async def test_cancelled_claim_cancels_its_flight(stage: Stage) -> None:
    """Nobody else waits for the flight: it goes with its call, discarded once."""
    body = Body(delay_s=100)
    (call,) = await flying(stage, body)
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await asyncio.sleep(0)
    assert body.ends == ["cancelled"]
    assert stage.told("discarded") == [("discarded", "cancelled")]
    assert runs.in_progress() == 0


async def test_first_of_two_waiters_is_cancelled(stage: Stage) -> None:
    """The second still gets the value (B37)."""
    body = Body(delay_s=5)
    calls = await flying(stage, body, "a", "a", contract=PURE)
    first, second = (asyncio.create_task(claimed(call, real())) for call in calls)
    await asyncio.sleep(1)
    first.cancel()
    assert await second == "early"
    assert first.cancelled()
    assert now_s() == 5
    assert body.ends == ["returned"]
    assert not stage.told("discarded")
    stage.end()
    assert not stage.told("discarded")


async def test_last_of_two_waiters_is_cancelled(stage: Stage) -> None:
    """A flight nobody waits for any more is cancelled, and not before (B37)."""
    body = Body(delay_s=100)
    calls = await flying(stage, body, "a", "a", contract=PURE)
    waiting = [asyncio.create_task(claimed(call, real())) for call in calls]
    for each in waiting:
        await asyncio.sleep(1)
        assert not body.ends
        each.cancel()
    await asyncio.sleep(1)
    assert body.ends == ["cancelled"]
    assert stage.told("discarded") == [("discarded", "cancelled")]
    assert runs.in_progress() == 0


async def test_cancelled_while_looking_whether_it_is_fresh(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled after it was served and before it had the value: the flight is discarded once."""
    gate = threading.Event()
    contract = Contract(freshness=lambda _: gate.wait(PATIENCE_S))
    monkeypatch.setattr(steps_module, "POOL", DaemonPool(1))
    (call,) = await flying(stage, Body(), contract=contract)
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    gate.set()
    assert stage.told("discarded") == [("discarded", "cancelled")]
    assert runs.in_progress() == 0


# --- errors


async def test_error_of_the_real_body_leaves_bare(stage: Stage) -> None:
    """A miss raises what the body raised, and nothing around it."""
    (call,) = await flying(stage, Body(state="failed", delay_s=2))

    async def body() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match=r"^no$") as caught:
        await claimed(call, body)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert runs.in_progress() == 0


@pytest.mark.parametrize("broken", ["claim", "settle"])
async def test_failure_of_ours_is_a_miss(
    stage: Stage, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks in the books: the body runs once, and an event says so."""
    (call,) = await flying(stage, Body(delay_s=3))
    ran: list[int] = []

    def fail(*_: object) -> None:
        raise LookupError("planted")

    monkeypatch.setattr(call.run.machine, broken, fail)
    assert await claimed(call, real(ran=ran)) == "real"
    assert ran == [1]
    errors = [event for event in stage.events if event.kind == "error"]
    assert [(e.verdict, e.source, e.detail) for e in errors] == [
        ("LookupError", "claim", "planted")
    ]
    stage.end()


async def test_failure_of_ours_after_the_body(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The books break when a result is to be shared: the call has its value all the same."""
    turn = stage.turn()
    first, second = stage.commit(turn, "a", "a", contract=PURE)
    ran: list[int] = []

    def fail(*_: object) -> None:
        raise LookupError("planted")

    leading = asyncio.create_task(claimed(first, real(ran=ran)))
    await asyncio.sleep(0)
    monkeypatch.setattr(first.run.machine, "landed", fail)
    waiting = asyncio.create_task(claimed(second, real("own", ran=ran)))
    assert await leading == "real"
    assert await waiting == "own"
    assert ran == [1, 1]
    assert [event.verdict for event in stage.events if event.kind == "error"] == ["LookupError"]
    stage.end()


# --- deterministic calls share


async def test_early_result_is_shared_in_copies(stage: Stage) -> None:
    """Equal calls of a deterministic tool get equal values, each its own (B46)."""
    calls = await flying(stage, Body(Rows()), "a", "a", contract=PURE)
    first = await claimed(calls[0], real())
    first.n = 99
    second = await claimed(calls[1], real())
    assert second == Rows(1)
    assert stage.told("claim") == [("claim", "hit"), ("claim", "shared")]
    stage.end()


async def test_committed_result_is_shared_in_copies(stage: Stage) -> None:
    """The first call's own result answers equal ones, during and after its run."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", "a", contract=PURE)
    ran: list[int] = []
    value = Rows()
    first = asyncio.create_task(claimed(calls[0], real(value, ran)))
    await asyncio.sleep(0)
    second = asyncio.create_task(claimed(calls[1], real(ran=ran)))
    assert await first is value
    value.n = 99
    shared = await second
    assert shared == Rows(1)
    shared.n = 7
    assert await claimed(calls[2], real(ran=ran)) == Rows(1)
    assert (now_s(), ran) == (1, [1])
    assert [v for _, v in stage.told("claim")] == ["no_guess", "shared", "shared"]
    stage.end()
    assert not stage.told("discarded")


async def test_value_that_cannot_be_copied_is_given_once(stage: Stage) -> None:
    """The first claim has the early value itself; the next runs its body (B46)."""
    value = Opaque()
    calls = await flying(stage, Body(value), "a", "a", contract=PURE)
    assert await claimed(calls[0], real()) is value
    assert await claimed(calls[1], real()) == "real"
    assert [v for _, v in stage.told("claim")] == ["hit", "failed"]
    stage.end()
    assert not stage.told("discarded")


async def test_two_claims_of_a_value_that_cannot_be_copied(stage: Stage) -> None:
    """Both wait for it and wake at once: one has it, the other runs its body."""
    value = Opaque()
    calls = await flying(stage, Body(value, delay_s=3), "a", "a", contract=PURE)
    results = await asyncio.gather(*(claimed(call, real()) for call in calls))
    assert results == [value, "real"]
    stage.end()


async def test_committed_result_that_cannot_be_copied_is_not_kept(stage: Stage) -> None:
    """It belongs to the call that made it; equal calls run (B46)."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", "a", contract=PURE)
    value, own = Opaque(), Opaque()
    first = asyncio.create_task(claimed(calls[0], real(value)))
    await asyncio.sleep(0)
    second = asyncio.create_task(claimed(calls[1], real(own)))
    assert await first is value
    assert await second is own
    assert await claimed(calls[2], real("third")) == "third"
    stage.end()


async def test_committed_result_that_must_not_be_repeated_is_not_kept(stage: Stage) -> None:
    """What only its own call may have, equal calls do not get."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", contract=PURE)
    seen: list[object] = []

    def never(value: object) -> bool:
        seen.append(value)
        return False

    own = Received(key="a", values={}, repeatable=never)
    results = [await call.aanswer(own, real(n)) for n, call in enumerate(calls) if call.begin()]
    assert results == seen == [0, 1]
    for call in calls:
        call.end()
    stage.end()


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
async def test_error_of_a_leading_call_is_not_shared(
    stage: Stage, kind: type[BaseException]
) -> None:
    """Who waited for a call that raised, or was cancelled, runs its own body (B48)."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", contract=PURE)

    async def fail() -> None:
        await asyncio.sleep(1)
        raise kind("no")

    first = asyncio.create_task(claimed(calls[0], fail))
    await asyncio.sleep(0)
    second = asyncio.create_task(claimed(calls[1], real()))
    with pytest.raises(kind):
        await first
    assert await second == "real"
    stage.end()


async def test_waiter_of_a_leading_call_is_cancelled(stage: Stage) -> None:
    """The leading call goes on, and its result is kept for later ones."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", "a", contract=PURE)
    first = asyncio.create_task(claimed(calls[0], real()))
    await asyncio.sleep(0)
    second = asyncio.create_task(claimed(calls[1], real()))
    await asyncio.sleep(0)
    second.cancel()
    assert await first == "real"
    assert await claimed(calls[2], real("own")) == "real"
    stage.end()


async def test_run_that_is_ended_while_a_call_leads(stage: Stage) -> None:
    """The entry goes under a leading call: it has its value, who waits for it runs."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", contract=PURE)
    first = asyncio.create_task(claimed(calls[0], real()))
    await asyncio.sleep(0)
    second = asyncio.create_task(claimed(calls[1], real("own")))
    await asyncio.sleep(0)
    stage.end()
    assert await first == "real"
    assert await second == "own"
    assert not stage.told("discarded")
    assert runs.in_progress() == 0


async def test_two_bodies_of_one_call_at_once(stage: Stage) -> None:
    """A wrapper runs one call twice, side by side: each has a result of its own."""
    turn = stage.turn()
    (call,) = stage.commit(turn, "a", contract=PURE)
    call.begin()
    both = await asyncio.gather(
        call.aanswer(received("a"), real("first")), call.aanswer(received("b"), real("second"))
    )
    call.end()
    assert both == ["first", "second"]
    stage.end()


# --- freshness


async def test_unchanged_token_serves(stage: Stage) -> None:
    """The token is asked for again with the values received, in another thread."""
    asked: list[tuple[Any, bool]] = []
    home = threading.get_ident()

    def token(values: Any) -> str:
        asked.append((dict(values), threading.get_ident() == home))
        return "v1"

    (call,) = await flying(stage, Body(token="v1"), contract=Contract(freshness=token))  # noqa: S106
    call.begin()
    assert await call.aanswer(received("a", q="x"), real()) == "early"
    call.end()
    assert asked == [({"q": "x"}, False)]


class Incomparable:
    """A token that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("planted")

    __hash__ = None  # type: ignore[assignment]


def _raises(_: Any) -> None:
    raise OSError("planted")


@pytest.mark.parametrize(
    "token", [lambda _: "v2", _raises, lambda _: Incomparable()], ids=["new", "raises", "odd"]
)
@pytest.mark.parametrize("contract", [Contract(), PURE], ids=["plain", "deterministic"])
async def test_changed_token_is_a_miss(stage: Stage, token: Any, contract: Contract) -> None:
    """A token that differs, cannot be had or not be compared: the body runs, one discard."""
    fresh = Contract(freshness=token, deterministic=contract.deterministic)
    (call,) = await flying(stage, Body(token="v1"), contract=fresh)  # noqa: S106
    assert await claimed(call, real()) == "real"
    assert stage.told("claim", "discarded") == [("discarded", "changed"), ("claim", "changed")]
    stage.end()
    assert len(stage.told("discarded")) == 1


async def test_no_thread_for_the_token_is_a_miss(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all threads taken the body runs, rather than the loop be blocked."""
    pool = DaemonPool(1)
    gate = threading.Event()
    assert pool.submit(lambda: gate.wait(PATIENCE_S) and None)  # type: ignore[arg-type,func-returns-value]
    monkeypatch.setattr(steps_module, "POOL", pool)
    (call,) = await flying(stage, Body(), contract=Contract(freshness=lambda _: None))
    assert await claimed(call, real()) == "real"
    gate.set()


async def test_committed_result_is_checked_too(stage: Stage) -> None:
    """A leading call takes its token before its body runs; later calls compare it."""
    tokens = iter(["v1", "v1", "v2"])
    contract = Contract(deterministic=True, freshness=lambda _: next(tokens))
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", "a", contract=contract)
    results = [await claimed(call, real(n)) for n, call in enumerate(calls)]
    assert results == [0, 0, 2]
    assert [v for _, v in stage.told("claim")] == ["no_guess", "shared", "changed"]
    stage.end()
    assert not stage.told("discarded")


async def test_committed_result_without_a_token_is_not_kept(stage: Stage) -> None:
    """Where the token cannot be had, a result answers nobody else."""
    turn = stage.turn()
    calls = stage.commit(turn, "a", "a", contract=Contract(deterministic=True, freshness=_raises))
    assert [await claimed(call, real(n)) for n, call in enumerate(calls)] == [0, 1]
    stage.end()


# --- blocking calls


def test_blocking_claim_waits_for_a_thread(stage: Stage) -> None:
    """Without a loop a claim blocks until its flight is home."""
    gate = threading.Event()
    turn = stage.turn()
    stage.guess(turn, Body(gate=gate))
    (call,) = stage.commit(turn, "a")
    got: list[Any] = []

    def calling() -> None:
        call.begin()
        got.append(call.answer(received(), lambda: "real"))
        call.end()

    thread = threading.Thread(target=calling)
    thread.start()
    until(lambda: bool(call.booking.flight and call.booking.flight.waiters))
    gate.set()
    thread.join(PATIENCE_S)
    assert got == ["early"]
    assert runs.in_progress() == 0


def test_blocking_claim_that_misses(stage: Stage) -> None:
    """The body's value, or its bare error, is the call's."""
    turn = stage.turn()
    stage.guess(turn, Body(key="z"))
    (call,) = stage.commit(turn, "a")
    until(lambda: stage.pool.busy == 0)
    call.begin()
    assert call.answer(received(), lambda: "real") == "real"

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match=r"^no$") as caught:
        call.answer(received(), fail)
    assert caught.value.__context__ is None
    call.end()
    assert runs.in_progress() == 0


@pytest.mark.parametrize("contract", [READ, PURE], ids=["plain", "deterministic"])
async def test_blocking_claim_on_the_loops_thread(stage: Stage, contract: Contract) -> None:
    """A flight of this loop cannot be waited for by blocking it: the body runs, no deadlock."""
    body = Body(delay_s=3)
    (call,) = await flying(stage, body, contract=contract)
    call.begin()
    assert call.answer(received(), lambda: "real") == "real"
    call.end()
    assert stage.told("claim") == [("claim", "cannot_wait")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stage.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert body.ends == ["cancelled"]
    assert len(stage.told("discarded")) == 1


async def test_blocking_claim_off_the_loops_thread(stage: Stage) -> None:
    """From another thread a flight of the loop can be waited for."""
    (call,) = await flying(stage, Body(delay_s=3))
    call.begin()
    loop = asyncio.get_running_loop()
    answering = loop.run_in_executor(None, call.answer, received(), lambda: "real")
    # The clock of the test's loop stands while an executor works: the flight lands here.
    until(lambda: bool(call.booking.flight and call.booking.flight.waiters))
    loop._jumping.owed.clear()  # type: ignore[attr-defined]
    assert await answering == "early"
    call.end()


def test_loop_that_is_closed_under_a_blocking_claim(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread waits for a flight whose loop is closed by hand: its body runs in the end."""
    monkeypatch.setattr(runs, "SWEEP_S", 0.002)
    until(lambda: runs._janitor is None)
    loop = asyncio.SelectorEventLoop()

    async def begin() -> BookedCall:
        turn = stage.turn(driver=AsyncDriver(loop))
        stage.guess(turn, Body(delay_s=100))
        await asyncio.sleep(0)
        return stage.commit(turn, "a")[0]

    call = loop.run_until_complete(begin())
    got: list[Any] = []
    thread = threading.Thread(
        target=lambda: got.append(call.answer(received(), lambda: "real")), daemon=True
    )
    thread.start()
    until(lambda: bool(call.booking.flight and call.booking.flight.waiters))
    assert not got
    loop.close()
    thread.join(PATIENCE_S)
    assert got == ["real"]
    assert runs.in_progress() == 0


def test_interrupted_wait_gives_the_flight_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a blocking wait passes, and nobody is left waiting for what it led."""
    gate = threading.Event()
    turn = stage.turn(driver=ThreadDriver(stage.pool))
    stage.guess(turn, Body(gate=gate))
    (call,) = stage.commit(turn, "a")
    flight = call.booking.flight
    assert flight is not None

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(call.run.aloft[flight].landing, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call.answer(received(), lambda: "real")
    assert flight.waiters == 0
    assert stage.told("discarded") == [("discarded", "cancelled")]
    gate.set()
    call.end()


# --- what else may happen


async def test_flight_whose_landing_is_unknown(stage: Stage) -> None:
    """A flight the books know and the runtime does not is not waited for."""
    (call,) = await flying(stage, Body(delay_s=3))
    flight = call.booking.flight
    assert flight is not None
    aloft = call.run.aloft.pop(flight)
    call.begin()
    assert await call.aanswer(received(), real()) == "real"
    call.end()
    assert stage.told("claim") == [("claim", "cannot_wait")]
    assert aloft.ticket is not None
    aloft.ticket.cancel()


async def test_write_between_the_claim_and_the_value(stage: Stage) -> None:
    """The world changes while a token is compared: what was served is not handed out."""
    writing: list[Any] = []

    def token(_: Any) -> None:
        writing.append(runs.write_began(stage.control, None))

    (call,) = await flying(stage, Body(), contract=Contract(freshness=token))
    assert await claimed(call, real()) == "real"
    assert stage.told("claim") == [("claim", "cancelled")]
    runs.write_ended(writing[0], stage.control, None)


async def test_claims_run_in_the_callers_context(stage: Stage) -> None:
    """The real body sees the caller's variables."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    tenant.set("acme")
    (call,) = await flying(stage, Body(state="failed", delay_s=2))

    async def body() -> str:
        return tenant.get()

    assert await claimed(call, body) == "acme"


async def test_leads_are_nobodys_waste(stage: Stage) -> None:
    """A discard of a call's own run tells no observer."""
    turn = stage.turn()
    (call,) = stage.commit(turn, "a", contract=PURE)
    calling = asyncio.create_task(claimed(call, real()))
    await asyncio.sleep(0)
    (lead,) = call.run.aloft
    call.run.act((Discard(lead, "run_ended"),))
    assert await calling == "real"
    assert not stage.told("discarded")
    stage.end()
