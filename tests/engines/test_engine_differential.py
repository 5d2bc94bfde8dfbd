"""The agents of `tests/graph/test_differential.py` show what stock ones show, with an engine told.

Both arms have a ChatOpenAI on a reference engine, so that even usage, response metadata and each
chunk of a stream are compared; only the number of requests may differ.
"""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from langchain_spectool.engines import answers, parked
from langchain_spectool.graph import early
from tests.engines.differential import assert_same
from tests.graph.differential.specs import AgentSpec, CallSpec, ToolSpec, TurnSpec
from tests.graph.differential.strategies import agents

pytestmark = pytest.mark.timeout(300)

_TIMES = max(1, int(os.environ.get("SPECTOOL_EXAMPLES", "1")))
WAYS = pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])


@pytest.mark.parametrize(("clock", "examples"), [("async", 20), ("sync", 3)])
def test_drawn_agents_show_the_same(clock: str, examples: int) -> None:
    """Outcomes, checkpoints, every stream mode, run trees, what the tools wrote; nothing is left.

    No arm makes more requests than stock. `SPECTOOL_EXAMPLES=20` draws 20 times as many agents.
    """
    tally: Counter[str] = Counter()

    @settings(
        max_examples=examples * _TIMES,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(agents(clock), st.booleans())
    def check(spec: AgentSpec, streaming: bool) -> None:
        _, on = assert_same(spec, streaming=streaming)
        tally.update(on.verdicts, drawn=1, requests=on.service.requests)

    check()
    assert tally["requests"] >= tally["drawn"] >= examples


# --- agents worth running every time


def _turn(*calls: tuple[str, str]) -> TurnSpec:
    made = tuple(CallSpec(tool=tool, args={"q": q}) for tool, q in calls)
    return TurnSpec(calls=made, guesses=made, content="so")


_BUSY = AgentSpec(
    tools=(
        ToolSpec(kind="plain", body="both", latency=5, contract=()),
        ToolSpec(kind="other", body="both", contract=("deterministic",), watched=True),
        ToolSpec(kind="write", body="both", latency=3),
    ),
    turns=(
        _turn(("plain", "a"), ("other", "b"), ("other", "b")),
        _turn(("other", "a")),
        _turn(("plain", "a"), ("write", "a")),
        _turn(("other", "ann@x.org")),
    ),
    sources=("drafts",),
)


@WAYS
@pytest.mark.parametrize("entry", ["invoke", "stream", "events"])
def test_a_busy_agent_goes_on_and_shows_the_same(streaming: bool, entry: Any) -> None:
    """Model calls are answered by the response before, but for the one after a write.

    An answer in one piece has been written before anybody could guess what comes after it.
    """
    here, on = assert_same(replace(_BUSY, entry=entry), streaming=streaming)
    assert here.hits >= 4
    assert on.verdicts.count("continued") == (3 if streaming else 2), on.verdicts
    assert on.service.requests == (2 if streaming else 3)


@WAYS
def test_a_busy_agent_in_threads_shows_the_same(streaming: bool) -> None:
    """It goes on as well, as far as its threads are in time."""
    _, on = assert_same(replace(_BUSY, clock="sync", entry="stream"), streaming=streaming)
    assert "continued" in on.verdicts, on.verdicts


@WAYS
@pytest.mark.parametrize("around", ["parallel", "nested", "batch"])
def test_agents_side_by_side_show_the_same(streaming: bool, around: Any) -> None:
    """Two agents of one run, or two runs of one agent, go on each from its own answers."""
    turns = (*_BUSY.turns[:2], _BUSY.turns[3])
    twice = replace(_BUSY, tools=_BUSY.tools[:2], turns=turns, around=around, checkpointer=False)
    _, on = assert_same(twice, streaming=streaming)
    assert on.verdicts.count("continued") >= 2, on.verdicts


def test_a_react_agent_shows_the_same() -> None:
    """Built by hand, with a model that the Speculation wraps."""
    _, on = assert_same(replace(_BUSY, form="react", entry="stream"), streaming=True)
    assert on.verdicts.count("continued") == 3, on.verdicts


# --- the test itself bites

_REDACTED = replace(_BUSY, turns=_BUSY.turns[3:], middleware=("pii",))


def _any_output(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        parked, "goes_on", lambda asked, said, _, now: answers.may_go_on(asked, said, now)
    )


def _wrong_value(patch: pytest.MonkeyPatch) -> None:
    recorded = early._outcome
    patch.setattr(early, "_outcome", lambda *args: replace(recorded(*args), value="wrong"))


@pytest.mark.parametrize("plant", [_any_output, _wrong_value])
def test_planted_faults_are_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that knows another output than the agent shows; a result that is no tool's."""
    assert_same(_REDACTED, streaming=True)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="on differs from stock"):
        assert_same(_REDACTED, streaming=True)
