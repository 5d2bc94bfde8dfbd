"""`Ensemble`: what it passes on, what it drops, and what it learns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from langchain_spectool import EarlyDispatch, Guess, Speculator, TurnRequest, speculatable
from langchain_spectool._core.ports import Learner
from langchain_spectool.speculators import ensemble
from langchain_spectool.speculators.ensemble import Ensemble


@speculatable
@tool
def look(q: str, n: int = 0) -> str:
    """Look something up."""
    return q


@speculatable
@tool
def read(path: str) -> str:
    """Read a file."""
    return path


def request() -> TurnRequest:
    """Return what a main model was asked."""
    return TurnRequest(messages=[HumanMessage("hi")], tools=[look, read], declared=[look, read])


def at(q: str, confidence: float = 0.5, **more: Any) -> Guess:
    """Return a guess of a look at `q`."""
    return Guess(tool="look", args={"q": q, **more}, confidence=confidence)


def call(q: str) -> dict[str, Any]:
    """Return a committed look at `q`."""
    return {"name": "look", "args": {"q": q}, "id": "c"}


class Member:
    """Guesses what it was given, the n-th list in its n-th sample, so long after one another."""

    def __init__(
        self, *samples: Iterable[Guess], name: str = "one", step_s: float = 0.0, timeout_s: Any = 5
    ) -> None:
        self.name = name
        self.samples = len(samples)
        self.timeout_s = timeout_s
        self._guesses = samples
        self._step_s = step_s
        self.closed = 0

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        yield from self._guesses[sample]

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        try:
            for guess in self._guesses[sample]:
                await asyncio.sleep(self._step_s)
                yield guess
        finally:
            self.closed += 1


class Learning(Member):
    """One that learns itself, or fails to."""

    def __init__(self, *samples: Iterable[Guess], error: Exception | None = None) -> None:
        super().__init__(*samples)
        self.error = error
        self.told: list[Any] = []

    def learn(self, request: TurnRequest, calls: Any) -> None:
        self.told.append((request, calls))
        if self.error:
            raise self.error


def said(source: Ensemble, asked: TurnRequest | None = None) -> list[tuple[str, float, str]]:
    """Return all it says of a request, sample after sample."""
    asked = asked or request()
    return [
        (guess.args.get("q", ""), round(guess.confidence, 3), guess.source)
        for sample in range(source.samples)
        for guess in source.guess(asked, sample)
    ]


async def heard(source: Ensemble) -> list[tuple[float, str]]:
    """Return what it says with all samples at once, and when."""
    asked, loop = request(), asyncio.get_running_loop()

    async def listen(sample: int) -> list[tuple[float, str]]:
        return [(loop.time(), guess.args["q"]) async for guess in source.aguess(asked, sample)]

    notes = await asyncio.gather(*(listen(sample) for sample in range(source.samples)))
    return sorted(note for each in notes for note in each)


def taught(source: Ensemble, turns: int, *calls: Any) -> Ensemble:
    """Let it guess and see the same turn so many times."""
    for _ in range(turns):
        asked = request()
        said(source, asked)
        source.learn(asked, calls)
    return source


# --- what it passes on


def test_each_guess_names_its_member() -> None:
    """Guesses carry on what they are, and who says so; the first samples come first."""
    one = Member([at("ants", 0.3)], [at("bees", 0.4)], name="one")
    other = Member([at("cats", 0.6)], name="other")
    both = Ensemble(one, other)
    assert isinstance(both, Speculator)
    assert isinstance(both, Learner)
    assert both.samples == 3
    assert said(both) == [("ants", 0.3, "one"), ("cats", 0.6, "other"), ("bees", 0.4, "one")]


def test_origins_are_kept() -> None:
    """Where values come from decides where they may be sent."""
    told = replace(at("ants"), origins={"q": "untrusted_output"})
    assert [g.origins for g in Ensemble(Member([told])).guess(request(), 0)] == [told.origins]


def test_equal_guesses_are_one() -> None:
    """However the arguments are written, and whoever says it again without adding to it."""
    spelled = at("ants", 0.1, n="0")
    both = Ensemble(
        Member([at("ants", 0.9)], [spelled]), Member([spelled, at("bees")], name="other")
    )
    assert said(both) == [("ants", 0.9, "one"), ("bees", 0.5, "other")]


def test_guess_is_repeated_once_others_make_it_surer() -> None:
    """What was too unsure for a gate may pass it when a second source agrees."""
    both = Ensemble(Member([at("ants", 0.5)]), Member([at("ants", 0.4)], name="other"))
    assert said(both) == [("ants", 0.5, "one"), ("ants", 0.7, "other")]


def test_samples_of_one_member_do_not_add_up() -> None:
    """They err together: it is the surest of them that counts."""
    alone = Ensemble(Member([at("ants", 0.5)], [at("ants", 0.5)], [at("ants", 0.6)]))
    assert said(alone) == [("ants", 0.5, "one"), ("ants", 0.6, "one")]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_agreement_has_a_limit(stated: list[float]) -> None:
    """Together they are at least as sure as the surest, and never certain by agreement."""
    source = Ensemble(*(Member([at("ants", each)]) for each in stated))
    told = [confidence for _, confidence, _ in said(source)]
    assert told == sorted(told)
    assert max(stated) - ensemble.STEP <= max(told) + 0.001
    assert max(told) <= max(ensemble.MOST_AGREED, *stated) + 0.001


def test_call_expected_twice_is_passed_on_twice() -> None:
    """Two equal calls of one sample are two; a second sample may not be able to add just one."""
    twice = Ensemble(Member([at("ants"), at("ants")]))
    assert [q for q, _, _ in said(twice)] == ["ants", "ants"]
    late = Ensemble(Member([at("ants")]), Member([at("ants", 0.0), at("ants")], name="other"))
    assert [(q, who) for q, _, who in said(late)] == [
        ("ants", "one"),
        ("ants", "other"),
        ("ants", "other"),
    ]


@pytest.mark.parametrize(
    "guess",
    [
        Guess(tool="unknown", args={"q": "ants"}),
        Guess(tool="look", args={"q": ["no", "text"]}),
    ],
)
def test_guess_without_a_key_is_passed_on(guess: Guess) -> None:
    """Whether two of them are equal cannot be told, and their verdict is another's to give."""
    source = Ensemble(Member([guess, guess]))
    assert [g.tool for g in source.guess(request(), 0)] == [guess.tool] * 2
    source.learn(request(), [])


def test_equal_requests_are_two() -> None:
    """What was said of one run's question is still news to another run."""
    source = Ensemble(Member([at("ants")]))
    one, other = request(), request()
    assert said(source, one) == said(source, other) == [("ants", 0.5, "one")]
    assert said(source, one) == []


# --- time


async def test_all_samples_run_at_once() -> None:
    """A guess is passed on as it comes; a slow member holds back no fast one."""
    slow = Member([at("ants"), at("bees")], step_s=1.0)
    fast = Member([at("cats")], [at("dogs")], step_s=0.2, name="other")
    assert await heard(Ensemble(slow, fast)) == [
        (0.2, "cats"),
        (0.2, "dogs"),
        (1.0, "ants"),
        (2.0, "bees"),
    ]


async def test_members_own_limit_holds() -> None:
    """A member that allows itself less time than the others is given up when that is over."""
    short = Member([at("ants"), at("bees")], step_s=1.0, timeout_s=1.5)
    long = Member([at("cats")], step_s=3.0, timeout_s=5.0, name="other")
    both = Ensemble(short, long)
    assert both.timeout_s == 5.0
    assert await heard(both) == [(1.0, "ants"), (3.0, "cats")]
    assert (short.closed, long.closed) == (1, 1)


def test_members_own_limit_holds_in_a_thread() -> None:
    """What a blocking member says after its time is not listened to."""
    assert said(Ensemble(Member([at("ants")], timeout_s=0), Member([at("bees")]))) == [
        ("bees", 0.5, "one")
    ]


async def test_closed_guesses_close_the_members() -> None:
    """A sample that is no longer wanted lets go of its member's at once."""
    member = Member([at("ants"), at("bees")])
    guesses: Any = Ensemble(member).aguess(request(), 0)
    assert (await anext(guesses)).args == {"q": "ants"}
    await guesses.aclose()
    assert member.closed == 1


async def test_cancelled_sample_cancels_the_members() -> None:
    """The main model has answered: a member that still waits is closed with its sample."""
    member = Member([at("ants")], step_s=9.0)
    sample = asyncio.create_task(heard(Ensemble(member)))
    await asyncio.sleep(1)
    sample.cancel()
    await asyncio.wait([sample])
    assert (sample.cancelled(), member.closed) == (True, 1)
    assert asyncio.get_running_loop().time() == 1.0


async def test_member_may_yield_by_any_iterator() -> None:
    """Not all that can be iterated can be closed."""

    class Once:
        def __init__(self) -> None:
            self.left = [at("ants")]

        def __aiter__(self) -> "Once":
            return self

        async def __anext__(self) -> Guess:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    class Plain(Member):
        def aguess(self, request: TurnRequest, sample: int) -> Any:
            return Once()

    assert await heard(Ensemble(Plain([]))) == [(0.0, "ants")]


async def test_members_own_timeout_is_its_failure() -> None:
    """A timeout that a member raises is not taken for the end of its time."""

    class Failing(Member):
        async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
            raise TimeoutError("planted")
            yield

    with pytest.raises(TimeoutError, match="planted"):
        await heard(Ensemble(Failing([])))


def test_failing_member_costs_only_its_own_guesses() -> None:
    """What it raises is the affair of its own sample."""

    def fail() -> Iterator[Guess]:
        yield at("ants")
        raise ValueError("planted")

    source, asked = Ensemble(Member(fail()), Member([at("bees")])), request()
    with pytest.raises(ValueError, match="planted"):
        [*source.guess(asked, 0)]
    assert [guess.args["q"] for guess in source.guess(asked, 1)] == ["bees"]


def test_member_that_takes_fewer_samples_by_now() -> None:
    """Who adapts its samples during a turn leaves the last ones with nothing to say."""
    member = Member([at("ants")], [at("bees")])
    source = Ensemble(member)
    member.samples = 1
    assert [*source.guess(request(), 1)] == []


async def test_member_that_takes_fewer_samples_by_now_on_a_loop() -> None:
    """The same, awaited."""
    source = Ensemble(Member([at("ants")]))
    assert [guess async for guess in source.aguess(request(), 7)] == []


# --- what it learns


def test_member_is_worth_what_it_turned_out_to_be() -> None:
    """One that is always wrong loses its weight, one that is always right gains it."""
    both = Ensemble(Member([at("ants", 0.8)]), Member([at("bees", 0.5)], name="other"))
    taught(both, 100, call("bees"))
    told = {q: confidence for q, confidence, _ in said(both)}
    assert told["ants"] < 0.1
    assert told["bees"] > 0.9


def test_tools_are_weighed_apart() -> None:
    """Who knows one tool's arguments may know nothing of another's."""
    file = Guess(tool="read", args={"path": "x"}, confidence=0.5)
    source = taught(Ensemble(Member([at("ants"), file])), 100, call("ants"))
    by_tool = {guess.tool: guess.confidence for guess in source.guess(request(), 0)}
    assert by_tool["look"] > 0.9
    assert by_tool["read"] < 0.1


def test_members_of_one_name_are_weighed_apart() -> None:
    """Two draft models share their label, not their merits."""
    both = taught(Ensemble(Member([at("ants")]), Member([at("bees")])), 100, call("bees"))
    told = {q: confidence for q, confidence, _ in said(both)}
    assert told["ants"] < 0.1
    assert told["bees"] > 0.9


def test_second_of_two_equal_guesses_needs_a_second_call() -> None:
    """One committed call makes one of them true."""
    twice = taught(Ensemble(Member([at("ants"), at("ants")])), 300, call("ants"))
    (_, confidence, _), *_ = said(twice)
    assert confidence == pytest.approx(0.5, abs=0.05)


def test_samples_that_agree_are_one_guess() -> None:
    """Three samples with one wrong idea are wrong once a turn, and so are ten."""
    many, single = (
        taught(Ensemble(Member(*[[at("ants")]] * count)), 3, call("bees")) for count in (10, 1)
    )
    assert said(many) == said(single)


def test_nothing_is_learned_from_another_turn() -> None:
    """Calls that answer a request it was not shown, or was told of before, say nothing."""
    source, asked = Ensemble(Member([at("ants")])), request()
    said(source, asked)
    for _ in range(50):
        source.learn(request(), [])
    assert said(source) == [("ants", 0.5, "one")]
    source.learn(asked, [])
    (_, once, _), *_ = said(source)
    source.learn(asked, [])
    assert said(source) == [("ants", once, "one")]


def test_learning_members_are_told() -> None:
    """Each of them, with the same request, also after one has failed."""
    failing, fine, asked = Learning(error=ValueError("planted")), Learning([]), request()
    with pytest.raises(ValueError, match="planted"):
        Ensemble(failing, Member([]), fine).learn(asked, [call("ants")])
    assert failing.told == fine.told == [(asked, [call("ants")])]


def test_turns_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A committed turn leaves nothing behind, an abandoned one until others take its place."""
    monkeypatch.setattr(ensemble, "MOST_TURNS", 3)
    source, asked = Ensemble(Member([at("ants")])), request()
    said(source, asked)
    source.learn(asked, [])
    assert len(source._turns) == 0
    for _ in range(10):
        said(source, request())
    assert len(source._turns) == 3


# --- its members


def test_members_may_listen() -> None:
    """One that reads the main model's stream is found in `members`, and not sampled."""
    early = EarlyDispatch(force=True)
    source = Ensemble([early, Member([at("ants")])])
    assert source.members[0] is early
    assert source.samples == 1
    assert Ensemble(early).samples == 0


def test_ensembles_nest() -> None:
    """The innermost member is the source."""
    inner = Ensemble(Member([at("ants")], name="deep"), Member([at("bees")], name="deeper"))
    assert said(taught(Ensemble(inner), 30, call("ants")))[0][2] == "deep"
    told = {q: confidence for q, confidence, _ in said(taught(Ensemble(inner), 60, call("ants")))}
    assert told["bees"] < 0.2
    assert told["ants"] > 0.8


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Ensemble, "at least one speculator"),
        (lambda: Ensemble([]), "at least one speculator"),
        (lambda: Ensemble(object()), "a member has `guess`"),
        (lambda: Ensemble(Member([]), "draft"), "'draft' has neither"),
        (lambda: Ensemble(Member([]), timeout_s=0), "`timeout_s` must be more than 0.*got 0"),
    ],
)
def test_bad_settings(make: Callable[[], Any], complaint: str) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=complaint):
        make()
