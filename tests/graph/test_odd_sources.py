"""A source with odd attributes costs its own guesses: those of the others and the plan stay."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

from langchain_spectool import Guess, Policy, TurnRequest, speculatable
from langchain_spectool.testing import calls, text
from tests.cases.harness import Oracle, Rehearsal, Scene, Way

A = ("look", {"q": "a"})
TURNS = (calls(A), text("done"))


def look(way: Way) -> BaseTool:
    """Return a declared tool of the kind that a run of this way uses."""

    def body(q: str) -> str:
        return q

    async def abody(q: str) -> str:
        return q

    made = tool("look", description="Look something up.")
    return speculatable(made(abody if way == "ainvoke" else body))


class Odd:
    """A source in order, but for what a test changes."""

    name = "odd"
    samples = 1
    timeout_s = 5.0
    accepted = False

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        yield Guess(tool="look", args={"q": "odd"})

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        for guess in self.guess(request, sample):
            yield guess


def odd(**fields: Any) -> Odd:
    """Return a source with some attributes replaced."""
    return type("Replaced", (Odd,), fields)()


class Fading(Odd):
    """A source whose number of samples is gone once it was accepted."""

    @property
    def samples(self) -> Any:  # type: ignore[override]
        return None if self.accepted else 1


class BadPupil(Odd):
    """A source that cannot learn."""

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        raise ValueError("cannot learn")


class Pupil(Odd):
    """A source that notes what it is told."""

    name = "pupil"

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        self.told.append([call["name"] for call in calls])


ODD: dict[str, Callable[[], Odd]] = {
    "samples fade": Fading,
    "timeout None": lambda: odd(timeout_s=None),
    "timeout text": lambda: odd(timeout_s="5"),
    "timeout negative": lambda: odd(timeout_s=-1),
    "name list": lambda: odd(name=["odd"]),
    "name None": lambda: odd(name=None),
    "depth text": lambda: odd(depth="deep"),
    "depth None": lambda: odd(depth=None),
    "warm_up text": lambda: odd(warm_up="long"),
    "warm_up None": lambda: odd(warm_up=None),
    "guess None": lambda: odd(guess=lambda *_: None, aguess=lambda *_: None),
    "learns badly": BadPupil,
    "learn no function": lambda: odd(learn=3),
}


ways = pytest.mark.parametrize("way", ["ainvoke", "invoke"])


def rehearsal(way: Way, *sources: Any, before: bool) -> tuple[Rehearsal, Oracle]:
    """Return an agent with an oracle that is right, and `sources` before or after it."""
    oracle, scene = Oracle([A]), Scene(turns=TURNS, tools=[look(way)], way=way)
    team = [*sources, oracle] if before else [oracle, *sources]
    show = Rehearsal(scene, speculators=team, policy=Policy(benefit=None))
    for source in sources:
        source.accepted = True
    show.agent = scene.agent(show.spec, scene.model(oracle.wait))
    return show, oracle


@ways
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("kind", ODD)
async def test_others_hit_whatever_one_source_is(kind: str, before: bool, way: Way) -> None:
    """A good source's guess answers the call, wherever the odd one stands; the agent is stock's."""
    show, oracle = rehearsal(way, ODD[kind](), before=before)
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert show.report.hits == 1
    assert show.report.turns == 2
    assert [e.source for e in show.events("scored") if e.verdict == "right"] == [oracle.name]


@ways
async def test_a_source_that_cannot_be_asked_is_an_error_and_no_more(way: Way) -> None:
    """Each failure is told, with its cause."""
    show, _ = rehearsal(way, Fading(), before=True)
    await show.run()
    assert show.report.hits == 1
    assert {event.source for event in show.events("error")} == {"ask"}


@ways
async def test_a_learner_that_raises_keeps_nobody_from_learning(way: Way) -> None:
    """Those before and after it hear of every turn, and the failure is told once for each."""
    first, last = Pupil(), Pupil()
    show, _ = rehearsal(way, first, BadPupil(), last, before=True)
    await show.run()
    assert first.told == last.told == [["look"], []]
    told = [(event.source, event.verdict) for event in show.events("error")]
    assert told == [("learn", "ValueError")] * 2
    assert show.verdicts("turn_committed") == ["committed"] * 2
