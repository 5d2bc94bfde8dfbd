"""Bad input: an error that names the value and the remedy, or a run that goes on as stock."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import BaseTool, tool

from langchain_spectool import (
    EarlyDispatch,
    Guess,
    Policy,
    Rules,
    Speculation,
    SpeculationMiddleware,
    speculatable,
)
from langchain_spectool._core.contracts import Contract
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text

ASK: Any = {"messages": [("user", "hi")]}


def _rules() -> Rules:
    return Rules(lambda _: [Guess(tool="look", args={"q": "ants"})])


def _look(**contract: Any) -> BaseTool:
    @speculatable(**contract)
    @tool
    async def look(q: str) -> str:
        """Look something up."""
        return f"found {q}"

    return look


async def _run(spec: Speculation, look: BaseTool, config: Any = None) -> list[Any]:
    model = ScriptedModel(turns=[calls(("look", {"q": "ants"})), text("done")], generation_s=1.0)
    agent = create_agent(model, [look], middleware=[spec.middleware()])
    state = await agent.ainvoke(ASK, config)
    return [m.content for m in state["messages"]]


# --- settings


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mode": "fast"}, "one of on, shadow, off; got 'fast'"),
        ({"mode": None}, "one of on, shadow, off; got None"),
        ({"min_confidence": -0.1}, "`min_confidence` must be from 0 to 1, got -0.1"),
        ({"min_confidence": "high"}, "`min_confidence` must be from 0 to 1, got 'high'"),
        ({"guesses_per_turn": -1}, "`guesses_per_turn` must be a whole number of 0 or more"),
        ({"guesses_per_turn": True}, "`guesses_per_turn`.*got True"),
        ({"in_flight_per_run": 1.5}, "`in_flight_per_run`.*got 1.5"),
        ({"in_flight": "many"}, "`in_flight`.*got 'many'"),
        ({"timeout_s": 0}, "`timeout_s` must be more than 0 seconds and finite, got 0"),
        ({"timeout_s": float("inf")}, "`timeout_s`.*finite, got inf"),
        ({"allow_external": "yes"}, "`allow_external` must be True or False, got 'yes'"),
    ],
)
def test_policy(settings: dict[str, Any], named: str) -> None:
    """A limit outside its range is refused when the policy is made."""
    with pytest.raises(ValueError, match=named):
        Policy(**settings)


class Neither:
    """No speculator, whatever its name says."""

    name = "neither"

    def guess(self, request: Any, sample: int) -> Any:
        return ()


@pytest.mark.parametrize("make", [Speculation, SpeculationMiddleware])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"gated": "pay"}, r"`gated` must be a list.*got 'pay': write \['pay'\]"),
        ({"gated": [object()]}, "`gated` takes tool names and approval middleware, got <object"),
        ({"trust_mcp": "github"}, r"`trust_mcp` must be a list.*write \['github'\]"),
        ({"speculators": [Neither()]}, "a speculator has `guess` and `aguess`, or `listen`"),
        ({"speculators": [lambda _: ()]}, "<function .*lambda.* has neither"),
        ({"speculators": [EarlyDispatch]}, "EarlyDispatch.* has neither"),
        ({"speculators": [_rules(), None]}, "None has neither"),
    ],
)
def test_speculation(make: Callable[..., Any], settings: dict[str, Any], named: str) -> None:
    """What cannot be used is refused when the agent is built, not when it runs."""
    with pytest.raises(ValueError, match=named):
        make(**settings)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Rules("look"), "`fn` must be a function from messages to guesses, got 'look'"),
        (lambda: Rules(list, timeout_s=-1), "`timeout_s` must be more than 0 seconds, got -1"),
        (lambda: Guess(tool="look", args={}, confidence=2), "`confidence` .* 0 to 1, got 2"),
        (lambda: Contract(fresh_for_s=-1), "fresh_for_s.*-1"),
        (lambda: Contract(audience="everyone"), "audience.*everyone"),
    ],
)
def test_parts(make: Callable[[], Any], named: str) -> None:
    """Speculators, guesses and contracts check their own values."""
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize("tags", ["files", ""])
def test_invalidate_takes_a_collection(tags: str) -> None:
    """One tag is written as a list: a string would be read letter by letter."""
    with pytest.raises(ValueError, match=rf"`tags` must be a collection.*write \['{tags}'\]"):
        Speculation().invalidate(tags)


# --- switches


@pytest.mark.parametrize("where", ["environment", "run", "both"])
async def test_unknown_mode_is_off(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that nobody understands switches off, says so once per place, and loses no run."""
    look, spec = _look(), Speculation(speculators=[_rules()])
    config: Any = {"configurable": {"speculation": "bogus"}} if where != "environment" else None
    if where != "run":
        monkeypatch.setenv("SPECTOOL_MODE", "bogus")
    with pytest.warns(RuntimeWarning, match="got 'bogus'; speculation is off") as said:
        answers = [await _run(spec, look, config) for _ in range(2)]
    assert len(said) == (2 if where == "both" else 1)
    assert answers == [["hi", "", "found ants", "done"]] * 2
    assert spec.report().guesses == 0
    assert spec.report().idle == {"off": 4}


@pytest.mark.parametrize(
    ("environment", "run", "started"),
    [
        ("", None, 1),
        ("on", "on", 1),
        ("on", "off", 0),
        ("on", False, 0),
        ("off", "on", 0),
        ("shadow", "on", 0),
    ],
)
async def test_switches_only_lower(
    environment: str, run: Any, started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most careful of the switches decides; an empty one says nothing."""
    monkeypatch.setenv("SPECTOOL_MODE", environment)
    spec = Speculation(speculators=[_rules()])
    await _run(spec, _look(), {"configurable": {"speculation": run}})
    assert spec.report().hits == started


# --- who sees the arguments


@pytest.mark.parametrize("allowed", [False, True])
async def test_external_tools_wait_for_the_operator(allowed: bool) -> None:
    """A tool whose arguments third parties see runs early only if the policy says so."""
    look = _look(audience="external")
    spec = Speculation([look], speculators=[_rules()], policy=Policy(allow_external=allowed))
    assert await _run(spec, look) == ["hi", "", "found ants", "done"]
    assert spec.report().hits == allowed
    [explained] = spec.explain()
    assert explained.verdict == ("run" if allowed else "external")
    if not allowed:
        assert "allow_external" in str(explained.reason)


# --- nobody to guess


@pytest.mark.parametrize(
    ("sources", "reason"), [([], "no_speculators"), ([EarlyDispatch()], "not_streaming")]
)
async def test_nobody_to_guess(sources: list[Any], reason: str) -> None:
    """Turns without a source of guesses are counted, with the reason."""
    spec = Speculation(speculators=sources)
    assert await _run(spec, _look()) == ["hi", "", "found ants", "done"]
    assert spec.report().idle == {reason: 2}
    assert spec.report().turns == 2


async def test_failed_turn_with_nobody_to_guess() -> None:
    """A model that fails in such a turn raises its own error, and the turn ends as failed."""
    observed = RecordingObserver()
    spec = Speculation(speculators=[], observers=[observed])
    model = ScriptedModel(turns=[Turn(error=ConnectionError("lost"))])
    agent = create_agent(model, [_look()], middleware=[spec.middleware()])
    with pytest.raises(ConnectionError, match="lost"):
        await agent.ainvoke(ASK)
    kinds = [(e.kind, e.verdict) for e in observed.events]
    assert kinds == [("turn_ended", "failed"), ("run_ended", "failed")]
