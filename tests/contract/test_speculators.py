"""The suite of the Speculator port, on ours, on a user's, and on ones that break a promise."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from langchain_spectool import DraftModel, EarlyDispatch, Guess, Rules, TurnRequest, speculatable
from langchain_spectool.speculators import contract
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.speculators.contract import check_speculator
from langchain_spectool.speculators.ensemble import Ensemble
from langchain_spectool.speculators.self_model import SelfModel
from langchain_spectool.testing import ScriptedModel, calls, text


@speculatable
@tool
def look(q: str) -> str:
    """Look something up."""
    return q


EXPECTED = Guess(tool="look", args={"q": "ants"}, confidence=0.5)


def request() -> TurnRequest:
    """Return what a main model was asked."""
    return TurnRequest(messages=[HumanMessage("ants?")], tools=[look], declared=[look])


def draft(**options: Any) -> DraftModel:
    """Return a draft model that always expects one call."""
    return DraftModel(ScriptedModel(turns=[calls(("look", {"q": "ants"}))]), **options)


def itself(**options: Any) -> SelfModel:
    """Return a main model that always expects one call of itself."""
    model = ScriptedModel(script=lambda _: calls(("look", {"q": "ants"})))
    return SelfModel(model=model, **options)


class Mine:
    """A speculator as a user would write it."""

    name = "mine"
    samples = 2
    timeout_s = 5.0

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        yield EXPECTED

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        await asyncio.sleep(0)
        yield EXPECTED


class Both(Mine):
    """One that samples and listens."""

    force = False

    def listen(self, request: TurnRequest) -> Any:
        return EarlyDispatch().listen(request)


@pytest.mark.parametrize(
    ("speculator", "guesses"),
    [
        (draft(), 1),
        (draft(samples=3, temperatures=(0.0, 1.0)), 3),
        (draft(tools="all"), 1),
        (DraftModel(ScriptedModel(turns=[text("nothing to look up")])), 0),
        (Rules(lambda _: [EXPECTED, EXPECTED]), 2),
        (Rules(lambda _: []), 0),
        (itself(), 1),
        (itself(samples=3, temperatures=(0.0, 1.0), from_partial=True), 3),
        (Chain(draft(samples=2)), 2),
        (Chain(Rules(lambda _: [EXPECTED]), depth=3), 1),
        (EarlyDispatch(), 0),
        (EarlyDispatch(force=True), 0),
        (Mine(), 2),
        (Both(), 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_promises_are_kept(speculator: Any, guesses: int) -> None:
    """Every speculator of this package, and a user's own, pass."""
    assert check_speculator(speculator, request()) == [EXPECTED] * guesses


@pytest.mark.parametrize("members", [1, 3])
def test_ensemble_keeps_the_promises(members: int) -> None:
    """Merged sources are a source; what several members agree on is surer than one's word."""
    sources = [EarlyDispatch(), *([draft(samples=2), itself(), Mine()][:members])]
    guesses = check_speculator(Ensemble(sources), request())
    assert [(guess.source, guess.confidence) for guess in guesses] == [
        ("draft_model", 0.5),
        ("self_model", 0.75),
        ("mine", 0.875),
    ][:members]
    assert {(guess.tool, *guess.args.items()) for guess in guesses} == {("look", ("q", "ants"))}


def broken(**changes: Any) -> Any:
    """Return a speculator of a user with something changed."""
    return type("Broken", (Both,), changes)()


class Deaf(Mine):
    """One whose samples take no cancellation."""

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        for _ in range(2):
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        yield EXPECTED


class Rude(Mine):
    """One that changes what it was shown."""

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        request.messages[0].content += "!"
        yield EXPECTED


class Greedy(Mine):
    """One that takes a tool away."""

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        request.tools.clear()  # type: ignore[attr-defined]
        yield EXPECTED


class Vague(Mine):
    """One that awaits its way to something else."""

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        yield {"name": "look"}  # type: ignore[misc]


SAME = EarlyDispatch().listen(request())
BROKEN: list[tuple[Any, str]] = [
    (broken(name="My Rules"), "`name` is a label"),
    (broken(name=None), "`name` is a label"),
    (type("Nothing", (), {"name": "nothing"})(), "has neither"),
    (broken(samples=-1), "`samples` is a whole number"),
    (broken(samples=True), "`samples` is a whole number"),
    (broken(samples=1.5), "`samples` is a whole number"),
    (broken(timeout_s=0), "`timeout_s` is a number of seconds"),
    (broken(timeout_s=float("inf")), "`timeout_s` is a number of seconds"),
    (broken(timeout_s="1"), "`timeout_s` is a number of seconds"),
    (broken(guess=lambda *_: [("look", {})]), "`guess` yields `Guess` objects"),
    (Vague(), "`aguess` yields `Guess` objects"),
    (Rude(), "must not be changed"),
    (Greedy(), "must not be changed"),
    (broken(force=None), "`force` is True or False"),
    (broken(listen=lambda *_: None), "`listen` returns a `CallAssembler`"),
    (broken(listen=lambda *_: SAME), "fresh assembler"),
]


@pytest.mark.parametrize(("speculator", "complaint"), BROKEN)
def test_broken_promise_is_named(speculator: Any, complaint: str) -> None:
    """Each promise that is broken is an AssertionError that says which."""
    with pytest.raises(AssertionError, match=complaint):
        check_speculator(speculator, request())


def test_sample_that_cannot_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that goes on when the model has answered is found out."""
    monkeypatch.setattr(contract, "CANCEL_S", 0.005)
    with pytest.raises(AssertionError, match="sample 0 of `aguess` goes on"):
        check_speculator(Deaf(), request())


def test_assembler_of_its_own() -> None:
    """A stream speculator may bring an assembler that only looks like ours."""

    class Other:
        def feed(self, *_: Any, **__: Any) -> list[Any]:
            return []

    assert check_speculator(broken(listen=lambda *_: Other(), samples=0), request()) == []


def test_used_assembler_is_not_fresh() -> None:
    """An assembler that knows a call before the first delta belongs to another attempt."""

    class Used(type(SAME)):  # type: ignore[misc]
        def feed(self, *_: Any, **__: Any) -> list[Any]:
            return ["call"]

    with pytest.raises(AssertionError, match="knows of no call yet"):
        check_speculator(broken(listen=lambda *_: Used()), request())


def test_error_of_a_sample_is_the_developers() -> None:
    """In a check, unlike in an agent, what a sample raises is raised."""

    def fail(*_: Any) -> list[Guess]:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        check_speculator(Rules(fail), request())
