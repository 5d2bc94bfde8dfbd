"""Guesses on the results of early runs: the machine's rules for them, one test each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from langchain_spectool._core import flight
from langchain_spectool._core.claim import Claim, InFlight
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.flight import Flight, Outcome
from langchain_spectool._core.guess import Candidate, Guess, TurnRequest
from langchain_spectool._core.policy import Policy
from langchain_spectool._core.ports import Learner, Speculator
from langchain_spectool._core.run import RunMachine
from langchain_spectool._core.turn import Booking, CommittedCall, Discard, Turn
from langchain_spectool._core.verdicts import GuessVerdict
from langchain_spectool.speculators.chain import Chain
from tests.unit.machine_world import PURE, READ, RUN_LONG, WRITE


@dataclass
class World:
    """A machine whose calls are named by their keys; a tool's contract is its name's."""

    contracts: dict[str, Contract] = field(default_factory=dict[str, Contract])
    policy: Policy = field(default_factory=lambda: Policy(benefit=None))
    machine: RunMachine = field(default_factory=RunMachine)
    now_s: float = 0.0
    discards: list[Discard] = field(default_factory=list[Discard])
    steps: int = 0

    def turn(self, step: int | None = None, scope: str = "main", **fields: Any) -> Turn:
        self.steps += 1
        turn = Turn(
            number=self.steps, scope=scope, step=step or self.steps, started_s=self.now_s, **fields
        )
        self.discards += self.machine.open(turn)
        return turn

    def offer(
        self, turn: Turn, key: str, parent: Flight | None = None, **fields: Any
    ) -> tuple[GuessVerdict, Flight | None]:
        candidate = Candidate(
            tool="look",
            source="chain" if parent else "draft",
            confidence=1.0,
            contract=self.contracts.get(key, READ),
            key=key,
            parent=parent,
            **fields,
        )
        return self.machine.admit(
            turn, candidate, policy=self.policy, in_flight=InFlight(), now_s=self.now_s
        )

    def guess(self, turn: Turn, *keys: str, parent: Flight | None = None) -> list[Flight]:
        """Guess `keys`, each on the result of the one before; all of them land."""
        flights: list[Flight] = []
        for key in keys:
            verdict, flight = self.offer(turn, key, parent)
            assert flight is not None, verdict
            outcome = Outcome(state="landed", value=key, body_key=key)
            assert self.machine.landed(flight, outcome, self.now_s) is None
            flights.append(flight)
            parent = flight
        return flights

    def commit(self, turn: Turn, *keys: str, truncated: bool = False) -> Sequence[Booking]:
        calls = [
            CommittedCall(
                position=place,
                tool="look",
                id=str(place),
                args={"q": key},
                key=None if key == WRITE else key,
                contract=None if key == WRITE else self.contracts.get(key, READ),
            )
            for place, key in enumerate(keys)
        ]
        self.discards += self.machine.commit(turn, calls, truncated=truncated, now_s=self.now_s)
        return turn.bookings

    def claim(self, turn: Turn, booking: Booking, body_key: str = "") -> Claim:
        key = body_key or booking.call.key
        claim = self.machine.claim(turn, booking, key, self.now_s)
        self.discards += claim.discards
        return claim

    def runs(self, turn: Turn, *keys: str) -> list[str]:
        """Commit `keys`, let every call claim and end; return the verdicts."""
        verdicts: list[str] = []
        for booking in self.commit(turn, *keys):
            verdicts.append(self.claim(turn, booking).verdict)
            self.discards += self.machine.ended(turn, booking, self.now_s)
        return verdicts

    def told(self) -> list[tuple[str, str]]:
        return [(discard.flight.key, discard.reason) for discard in self.discards]


# --- a chain that comes true


@pytest.mark.parametrize("contract", [READ, PURE, RUN_LONG])
def test_next_turns_call_is_a_claim_like_any_other(contract: Contract) -> None:
    """The chained flight waits for the next turn, answers there, and nothing is left."""
    world = World({"b": contract})
    first, second = world.turn(), None
    world.guess(first, "a", "b")
    assert world.runs(first, "a") == ["hit"]
    second = world.turn()
    assert world.runs(second, "b") == ["hit"]
    assert world.told() == []
    assert world.machine.idle is (contract is not PURE)  # a result others may share stays


def test_three_links_take_three_turns() -> None:
    """Each waits for its own."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b", "c")
    assert world.runs(turn, "a") == ["hit"]
    assert world.runs(world.turn(), "b") == ["hit"]
    assert world.runs(world.turn(), "c") == ["hit"]
    assert world.told() == []
    assert world.machine.idle


def test_flight_that_still_runs_is_joined() -> None:
    """A chain's guess may take off at the last moment."""
    world = World()
    turn = world.turn()
    [link] = world.guess(turn, "a")
    verdict, running = world.offer(turn, "b", link)
    assert verdict == "run"
    assert world.runs(turn, "a") == ["hit"]
    later = world.turn()
    [booking] = world.commit(later, "b")
    claim = world.claim(later, booking)
    assert (claim.action, claim.flight) == ("wait", running)


def test_call_of_the_same_turn_takes_it() -> None:
    """What was expected one turn later may come beside its link, or without it."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    assert world.runs(turn, "a", "b") == ["hit", "hit"]
    assert world.told() == []
    other = world.turn()
    world.guess(other, "a", "b")
    assert world.runs(other, "b") == ["hit"]
    assert world.told() == [("a", "unclaimed")]
    assert world.machine.idle


def test_planned_flight_is_no_guess_any_more() -> None:
    """A plan outlasts the link; what hangs on the flight stays with it."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b", "c")
    assert world.runs(turn, "b") == ["hit"]
    assert world.runs(world.turn(), "c") == ["hit"]
    assert world.told() == [("a", "unclaimed")]


def test_kept_flight_is_not_guessed_again() -> None:
    """The next turn's own guesses find it there."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    assert world.offer(world.turn(), "b") == ("duplicate", None)


def test_call_guessed_directly_as_well_stays_for_the_next_turn() -> None:
    """Whoever guessed it first: it is expected after its link, too."""
    world = World()
    turn = world.turn()
    [link] = world.guess(turn, "a")
    world.guess(turn, "b")
    assert world.offer(turn, "b", link) == ("duplicate", None)
    assert world.runs(turn, "a") == ["hit"]
    assert world.runs(world.turn(), "b") == ["hit"]
    assert world.told() == []


def test_call_guessed_on_two_results_needs_one_of_them() -> None:
    """Rival guesses of one turn often lead to the same next call."""
    world = World()
    turn = world.turn()
    [ants, bees] = [*world.guess(turn, "ants"), *world.guess(turn, "bees")]
    world.guess(turn, "b", parent=ants)
    assert world.offer(turn, "b", bees) == ("duplicate", None)
    assert world.runs(turn, "bees") == ["hit"]
    assert world.told() == [("ants", "unclaimed")]
    assert world.runs(world.turn(), "b") == ["hit"]


# --- a chain that breaks


def test_child_that_is_not_called_is_unclaimed() -> None:
    """Its link came true, the guess did not; what hangs on it goes with it."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b", "c")
    world.runs(turn, "a")
    world.commit(world.turn(), "x")
    assert world.told() == [("b", "unclaimed"), ("c", "broken_link")]


def test_last_answer_leaves_nothing() -> None:
    """A turn without calls ends every chain."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    world.commit(world.turn())
    assert world.told() == [("b", "unclaimed")]
    assert world.machine.idle


@pytest.mark.parametrize("contract", [READ, PURE, RUN_LONG])
def test_link_that_is_not_called_takes_its_tail_along(contract: Contract) -> None:
    """At the commit, and whatever the tail's contract says of later turns."""
    world = World({"b": contract, "c": contract})
    turn = world.turn()
    world.guess(turn, "a", "b", "c")
    world.commit(turn, "x")
    assert world.told() == [("a", "unclaimed"), ("b", "broken_link"), ("c", "broken_link")]


def test_link_kept_for_the_run_does_not_keep_its_tail() -> None:
    """The tail was expected right after it."""
    world = World({"a": RUN_LONG})
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "x")
    assert world.told() == [("b", "broken_link")]
    assert world.runs(world.turn(), "a") == ["hit"]


@pytest.mark.parametrize("contract", [READ, RUN_LONG])
def test_child_kept_for_the_run_may_come_later(contract: Contract) -> None:
    """Its link came true: like any guess, it may stay if its contract says so."""
    world = World({"b": contract})
    turn = world.turn()
    world.guess(turn, "a", "b")
    assert world.runs(turn, "a") == ["hit"]
    assert world.runs(world.turn(), "x") == ["no_guess"]
    stays = contract is RUN_LONG
    assert world.runs(world.turn(), "b") == ["hit" if stays else "no_guess"]
    assert world.told() == ([] if stays else [("b", "unclaimed")])


@pytest.mark.parametrize("reason", ["edited", "stale", "changed", "returned"])
def test_refused_link_takes_its_tail_along(reason: str) -> None:
    """All of it is told at once, with the claim: the tail's bodies may still run."""
    world = World({"a": Contract(fresh_for_s=1.0) if reason == "stale" else READ})
    turn = world.turn()
    world.guess(turn, "a", "b", "c")
    [booking] = world.commit(turn, "a")
    world.now_s = 2.0
    claim = world.claim(turn, booking, "a!" if reason == "edited" else "")
    if reason == "changed":
        world.discards += world.machine.changed(cast("Flight", claim.flight)).discards
    elif reason == "returned":
        world.discards += world.machine.returned(cast("Flight", claim.flight))
    told = {"edited": "mismatch", "returned": "cancelled"}.get(reason, reason)
    assert world.told() == [("a", told), ("b", "broken_link"), ("c", "broken_link")]


def test_link_in_doubt_holds_its_tail() -> None:
    """A deterministic value that one call refused may still answer another, until its turn ends."""
    world = World({"a": PURE})
    turn = world.turn()
    world.guess(turn, "a", "b")
    [booking] = world.commit(turn, "a")
    assert world.claim(turn, booking, "a!").verdict == "mismatch"
    assert world.told() == []
    world.discards += world.machine.ended(turn, booking, world.now_s)
    assert world.told() == [("a", "unclaimed"), ("b", "broken_link")]


def test_planned_link_that_is_never_claimed() -> None:
    """A human said no, or a gate stopped the call: the next turn ends the chain."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.commit(turn, "a")
    world.turn()
    assert world.told() == [("a", "unclaimed"), ("b", "broken_link")]
    assert [*world.machine.kept] == []


def test_taken_back_link_takes_its_tail_along() -> None:
    """The stream goes on writing the call: no result of it counts."""
    world = World()
    turn = world.turn()
    link, _ = world.guess(turn, "a", "b")
    world.discards += world.machine.void(link)
    assert world.told() == [("a", "voided"), ("b", "broken_link")]


def test_direct_guess_does_not_hang_on_a_link() -> None:
    """A call that was also guessed for its own sake stays when the link breaks."""
    world = World()
    turn = world.turn()
    [link] = world.guess(turn, "a")
    world.guess(turn, "b")
    world.offer(turn, "b", link)
    world.discards += world.machine.void(link)
    assert world.runs(turn, "b") == ["hit"]


@pytest.mark.parametrize("gone", ["voided", "other_epoch", "invalidated", "switched_off"])
def test_no_guess_on_a_link_that_is_gone(gone: str) -> None:
    """The speculator was too slow."""
    world = World()
    turn = world.turn()
    [link] = world.guess(turn, "a")
    machine = world.machine
    world.discards += {
        "voided": lambda: machine.void(link),
        "other_epoch": lambda: machine.write_began(None) + machine.write_ended(None),
        "invalidated": lambda: machine.invalidate(None),
        "switched_off": lambda: machine.withdraw("look", None),
    }[gone]()
    assert world.told() == [("a", gone)]
    assert world.offer(turn, "b", link) == ("late", None)


def test_pushed_out_link_takes_its_tail_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room for more: the oldest goes, and all that hangs on it is told with it."""
    monkeypatch.setattr(flight, "KEPT_PER_SCOPE", 2)
    world = World({"p": PURE})
    turn = world.turn(step=1)
    world.guess(turn, "a", "b", "c")
    world.runs(turn, "a")
    beside = world.turn(step=1)
    world.turn(step=1)
    [leading] = world.commit(beside, "p")
    claim = world.claim(beside, leading)
    assert claim.action == "lead"
    assert world.told() == [("b", "no_room"), ("c", "broken_link")]


def test_tail_that_failed_is_not_kept() -> None:
    """Nobody hears of it, and nothing remembers it."""
    world = World()
    turn = world.turn()
    [link] = world.guess(turn, "a")
    _, failed = world.offer(turn, "b", link)
    assert failed is not None
    world.machine.landed(failed, Outcome(state="failed"), world.now_s)
    world.runs(turn, "a")
    assert world.machine.idle


# --- the world changes


def test_write_between_the_turns_drops_the_tail() -> None:
    """What a chain has read ahead is older than the write: it is never served."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    assert world.runs(turn, "a", WRITE)[0] == "hit"
    world.discards += world.machine.write_began(turn)
    assert world.told() == [("b", "other_epoch")]
    world.discards += world.machine.write_ended(turn)
    assert world.runs(world.turn(), "b") == ["no_guess"]


def test_unseen_write_drops_the_tail() -> None:
    """A call of an undeclared tool that ran where we do not see it counts as a write."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    [look, _] = world.commit(turn, "a", WRITE)
    world.claim(turn, look)
    world.turn()
    assert world.told() == [("b", "other_epoch")]


def test_old_tail_is_not_served() -> None:
    """Its age counts from its own start, a turn ago."""
    world = World({"b": Contract(fresh_for_s=1.0)})
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    world.now_s = 2.0
    assert world.runs(world.turn(), "b") == ["no_guess"]
    assert world.told() == [("b", "unclaimed")]


def test_deadline_ends_a_kept_flight() -> None:
    """It is an early run like any other."""
    world = World({"b": Contract(timeout_s=1.0)})
    turn = world.turn()
    [link] = world.guess(turn, "a")
    _, running = world.offer(turn, "b", link)
    world.runs(turn, "a")
    assert running is not None
    world.discards += world.machine.expire(running)
    assert world.told() == [("b", "expired")]
    assert world.machine.idle


# --- turns side by side


def test_other_scope_has_no_part_in_it() -> None:
    """Neither does it claim a chain's flight, nor does its commit end the chain."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    other = world.turn(scope="sub")
    assert world.runs(other, "b") == ["no_guess"]
    assert world.told() == []
    assert world.runs(world.turn(), "b") == ["hit"]


@pytest.mark.parametrize("first", ["own", "beside"])
def test_branch_of_the_same_step_does_not_end_it(first: str) -> None:
    """Branches of one superstep share a scope; who commits first must not matter."""
    world = World()
    own, beside = world.turn(step=1), world.turn(step=1)
    world.guess(own, "a", "b")
    for turn in (own, beside) if first == "own" else (beside, own):
        world.commit(turn, "a" if turn is own else "x")
    assert world.told() == []
    assert world.claim(own, own.bookings[0]).verdict == "hit"
    own, beside = world.turn(step=2), world.turn(step=2)
    for turn in (own, beside) if first == "own" else (beside, own):
        world.commit(turn, "b" if turn is own else "x")
    assert world.told() == []
    assert world.claim(own, own.bookings[0]).verdict == "hit"


def test_last_branch_tells_what_nobody_called() -> None:
    """Until then another may call it."""
    world = World()
    turn = world.turn(step=1)
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    one, two = world.turn(step=2), world.turn(step=2)
    world.commit(one, "x")
    assert world.told() == []
    world.commit(two, "y")
    assert world.told() == [("b", "unclaimed")]


@pytest.mark.parametrize("end", ["truncated", "failed", "run"])
def test_chain_ends_with_its_turn_or_run(end: str) -> None:
    """Nothing of it remains, and nothing is told twice."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b", "c")
    if end == "truncated":
        world.commit(turn, "a", truncated=True)
    elif end == "failed":
        world.discards += world.machine.close(turn, "turn_failed")
    else:
        world.runs(turn, "a")
        world.discards += world.machine.end()
    assert [key for key, _ in world.told()] == (["b", "c"] if end == "run" else ["a", "b", "c"])
    assert world.machine.idle


def test_truncated_turn_leaves_the_chain_to_the_next() -> None:
    """The model is asked again, and may make the call then."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    world.commit(world.turn(), "b", truncated=True)
    assert world.runs(world.turn(), "b") == ["hit"]


def test_shadow_turn_neither_uses_nor_ends_it() -> None:
    """A turn that is only scored changes nothing."""
    world = World()
    turn = world.turn()
    world.guess(turn, "a", "b")
    world.runs(turn, "a")
    assert world.runs(world.turn(shadow=True), "b") == ["no_guess"]
    assert world.runs(world.turn(), "b") == ["hit"]


def test_shadow_guess_of_a_chain_ends_with_its_turn() -> None:
    """Nothing runs, so nothing waits for the next turn."""
    world = World()
    turn = world.turn()
    [link] = world.guess(turn, "a")
    verdict, _ = world.offer(turn, "b", link, refusal="shadow")
    assert verdict == "shadow"
    world.commit(turn, "a")
    assert world.told() == [("b", "unclaimed")]


# --- limits


def test_chained_guesses_count() -> None:
    """Against the turn's limit, and in the air of the run until they land, in later turns too."""
    world = World(policy=Policy(benefit=None, guesses_per_turn=2, in_flight_per_run=1))
    turn = world.turn()
    [link] = world.guess(turn, "a")
    world.offer(turn, "b", link)
    assert world.offer(turn, "c", link) == ("turn_limit", None)
    world.runs(turn, "a")
    assert world.offer(world.turn(), "d") == ("no_room", None)


# --- the speculator


class Plain:
    """A source with nothing but what the port asks for."""

    name = "plain"
    samples = 2
    timeout_s = 3.0

    def guess(self, request: TurnRequest, sample: int) -> list[Guess]:
        return [Guess(tool="look", args={"sample": sample, "of": len(request.messages)})]

    async def aguess(self, request: TurnRequest, sample: int) -> Any:
        for guess in self.guess(request, sample):
            yield guess


class Pupil(Plain):
    """One that learns."""

    def __init__(self) -> None:
        self.learned: list[Any] = []

    def learn(self, request: TurnRequest, calls: Sequence[Any]) -> None:
        self.learned.append((request, calls))


REQUEST = TurnRequest(messages=["hi"], tools=[])
ASKED = [Guess(tool="look", args={"sample": 1, "of": 1})]


async def test_chain_speaks_for_its_inner_source() -> None:
    """It guesses, counts and is called as that does."""
    inner = Plain()
    chain = Chain(inner, depth=3)
    assert isinstance(chain, Speculator)
    assert (chain.name, chain.samples, chain.timeout_s) == ("plain", 2, 3.0)
    assert (chain.depth, *chain.members) == (3, inner)
    assert [*chain.guess(REQUEST, 1)] == ASKED
    assert [guess async for guess in chain.aguess(REQUEST, 1)] == ASKED


def test_inner_source_learns_if_it_does() -> None:
    """What the model really called is passed on as it is."""
    inner, calls = Pupil(), [{"name": "look", "args": {}}]
    chain = Chain(inner)
    assert isinstance(chain, Learner)
    chain.learn(REQUEST, calls)
    assert inner.learned == [(REQUEST, calls)]
    assert inner.learned[0][1] is calls
    Chain(Plain()).learn(REQUEST, calls)  # one that does not is left alone


@pytest.mark.parametrize("depth", [1, 0, -1, True, 2.5, "2", None])
def test_chain_of_no_depth_is_refused(depth: Any) -> None:
    """With what it should be."""
    with pytest.raises(ValueError, match="must be a whole number of 2 or more"):
        Chain(Plain(), depth=depth)


@pytest.mark.parametrize(
    "inner", [None, "patterns", object(), type("Mute", (Plain,), {"samples": 0})()]
)
def test_inner_source_must_guess(inner: Any) -> None:
    """A source that only listens can be asked nothing about the next turn."""
    with pytest.raises(ValueError, match="takes samples"):
        Chain(inner)
