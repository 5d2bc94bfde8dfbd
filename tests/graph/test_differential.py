"""Off, in shadow and on, an agent shows exactly what stock LangGraph shows; only time differs.

Agents are drawn (`differential/strategies.py`) and run in four arms, in virtual time where they
are asynchronous, in threads with latencies of milliseconds where they are not. Compared are what
each invocation returned or raised, every checkpoint, what the tools wrote, what reached the
store, the events of every stream mode or of `astream_events` in the order of each task or run,
and the run trees of a tracer. `SPECTOOL_EXAMPLES=20` draws 20 times as many agents.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from langchain_spectool._core.flight import Outcome
from langchain_spectool._core.run import RunMachine
from langchain_spectool.graph import early
from langchain_spectool.graph.isolation import Taint
from langchain_spectool.speculators import draft_model
from tests.graph.differential.compare import assert_same
from tests.graph.differential.specs import AgentSpec, CallSpec, ToolSpec, TurnSpec
from tests.graph.differential.strategies import agents

pytestmark = pytest.mark.timeout(600)

_TIMES = max(1, int(os.environ.get("SPECTOOL_EXAMPLES", "1")))
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]


def _thorough(examples: int) -> settings:
    return settings(
        max_examples=examples * _TIMES,
        deadline=None,
        phases=_PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _same_for_all_drawn(clock: str, examples: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @_thorough(examples)
    @given(agents(clock))
    def check(spec: AgentSpec) -> None:
        hits = assert_same(spec).hits
        tally.update(drawn=1, hit=bool(hits), hits=hits)

    check()
    return tally


def test_asynchronous_agents_show_the_same() -> None:
    """Drawn agents on a virtual clock; early runs answer calls of more than a tenth of them."""
    tally = _same_for_all_drawn("async", 60)
    assert tally["hit"] * 10 > tally["drawn"], tally


def test_synchronous_agents_show_the_same() -> None:
    """Drawn agents in threads; early runs answer some of their calls."""
    tally = _same_for_all_drawn("sync", 15)
    assert tally["hits"], tally


# --- agents worth running every time


def _call(tool: str, q: str = "a", **args: Any) -> CallSpec:
    return CallSpec(tool=tool, args={"q": q, **args})


def _turn(*calls: CallSpec, guesses: tuple[CallSpec, ...] | None = None) -> TurnSpec:
    return TurnSpec(calls=calls, guesses=calls if guesses is None else guesses, content="so")


_READS = (
    ToolSpec(kind="plain", latency=5, contract=()),
    ToolSpec(kind="pair", latency=2, body="both", contract=("deterministic",), watched=True),
    ToolSpec(kind="klass", latency=1, body="sync", contract=()),
    ToolSpec(kind="write", latency=3),
)
_BUSY = AgentSpec(
    tools=_READS,
    turns=(
        _turn(_call("plain"), _call("pair", "b"), _call("klass"), _call("pair", "b")),
        _turn(_call("plain"), _call("write"), _call("plain")),
        _turn(_call("plain"), _call("klass", "b", n="2")),
    ),
    sources=("drafts", "early"),
)


_WAYS = [("async", entry) for entry in ("invoke", "stream", "events")]
_WAYS += [("sync", "invoke"), ("sync", "stream")]


@pytest.mark.parametrize(("clock", "entry"), _WAYS)
@pytest.mark.parametrize("form", ["create_agent", "state_graph", "chain", "react"])
def test_busy_agent_hits_and_shows_the_same(form: str, clock: str, entry: str) -> None:
    """Every form, clock and entry: five or more calls are hits, and nothing else changes."""
    made = replace(
        _BUSY,
        form="state_graph" if form == "chain" else form,
        node="chain" if form == "chain" else "function",
        entry=entry,
    )
    if clock == "sync":
        made = _in_threads(made)
    assert assert_same(made, ("on",)).hits >= 5


def _in_threads(spec: AgentSpec) -> AgentSpec:
    """Return `spec` for threads, with time enough for its guesses on a busy machine."""
    tools = tuple(replace(tool, body="both") for tool in spec.tools)
    turns = tuple(replace(turn, generation=100) for turn in spec.turns)
    return replace(spec, clock="sync", tools=tools, turns=turns)


@pytest.mark.parametrize("around", ["parallel", "nested", "batch"])
def test_agents_that_share_a_speculation_show_the_same(around: str) -> None:
    """Two agents at once, as subgraphs or as a batch, do not take each other's flights."""
    tools = tuple(tool for tool in _READS if tool.kind != "write")
    turns = tuple(
        replace(turn, calls=tuple(call for call in turn.calls if call.tool != "write"))
        for turn in _BUSY.turns
    )
    made = replace(_BUSY, tools=tools, turns=turns, around=around, checkpointer=False)
    assert assert_same(made, ("on",)).hits >= 10


# --- the test itself bites


_Patch = Callable[[pytest.MonkeyPatch], None]


def _wrong_value(patch: pytest.MonkeyPatch) -> None:
    recorded = early._outcome

    def wrong(*args: Any) -> Outcome:
        outcome = recorded(*args)
        return replace(outcome, value="wrong") if outcome.state == "landed" else outcome

    patch.setattr(early, "_outcome", wrong)


def _leaked_callbacks(patch: pytest.MonkeyPatch) -> None:
    isolated = early.early_config

    def leaky(config: Any, *args: Any, **options: Any) -> Any:
        return {**isolated(config, *args, **options), "callbacks": config["callbacks"]}

    patch.setattr(early, "early_config", leaky)


def _leaked_draft(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(draft_model, "_CONFIG", None)
    patch.setattr("langchain_spectool.graph.sampling.silence", lambda: None)
    patch.setattr("langchain_spectool.graph.isolation.var_child_runnable_config", _Kept())


class _Kept:
    """Stands for the context variable that isolation clears, and clears nothing."""

    def set(self, value: object) -> None:
        """Leave the run's config where it is."""


def _no_taint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Taint, "mark", lambda self, reason: None)


def _no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunMachine, "_raise_epoch", lambda self, *_: [])


_KEPT = AgentSpec(
    tools=(ToolSpec(kind="other", contract=("reuse",)), ToolSpec(kind="write")),
    turns=(
        _turn(_call("other"), guesses=(_call("other"), _call("other", "b"))),
        _turn(_call("write"), guesses=()),
        _turn(_call("other", "b"), guesses=(_call("other"),)),
    ),
)
_INNER = AgentSpec(tools=(ToolSpec(kind="chain", contract=()),), turns=(_turn(_call("chain")),))
_FAULTS: dict[str, tuple[_Patch, AgentSpec]] = {
    "wrong value": (_wrong_value, _BUSY),
    "leaked callbacks": (_leaked_callbacks, _BUSY),
    "leaked draft": (_leaked_draft, replace(_BUSY, entry="stream")),
    "no taint": (_no_taint, _INNER),
    "no epoch": (_no_epoch, _KEPT),
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that shows the same without the fault differs with it."""
    plant, spec = _FAULTS[fault]
    assert_same(spec, ("on",))
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="on differs from stock"):
        assert_same(spec, ("on",))


def test_drawn_agents_find_a_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Served values that are wrong do not survive a few dozen drawn agents."""
    _wrong_value(monkeypatch)

    def differs(spec: AgentSpec) -> bool:
        try:
            assert_same(spec, ("on",))
        except AssertionError:
            return True
        return False

    once = settings(_thorough(40), phases=[Phase.generate], database=None)
    assert find(agents("async"), differs, settings=once)
