"""The benchmarks: their arms agree, their ratios reach the bounds, and they say what they saw."""

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel

from langchain_spectool.bench import overhead, turns
from langchain_spectool.bench.gold_agent import GoldModel
from langchain_spectool.bench.measure import Arm, Sample, interleave
from langchain_spectool.bench.paced import PacedModel, look_up_tool
from langchain_spectool.bench.turns import WORKLOADS, turn_arms, turn_bars
from langchain_spectool.graph.speculation import Speculation
from langchain_spectool.testing import VirtualTimeLoop, text

OVERHEAD_LIMITS = {
    "create_agent_idle_vs_noop": 1.12,
    "stategraph_idle_vs_plain": 1.20,
    "extra_call_ms": 0.1,
    "extra_hit_ms": 0.1,
}
TURN_LIMITS = {
    "hit": 0.62,
    "miss_short": 1.02,
    "miss_long": 1.02,
    "spread_hit": 0.65,
    "long_first_hit": 0.58,
    "early_dispatch": 0.75,
    "sync_hit": 0.63,
    "concurrent_16_hit": 0.67,
    "concurrent_256_vs_noop": 1.02,
}
BOUNDS = {
    "hit": 0.5 + 0.1,
    "miss_short": 1,
    "miss_long": 1,
    "spread_hit": 0.8 / 1.3,
    "long_first_hit": 0.9 / 1.6,
    "early_dispatch": 0.8 / 1.3,
    "concurrent_16_hit": 0.6,
    "concurrent_256_vs_noop": 0.6,
}
"""The ratios without any overhead: what a clock that only counts waiting shows."""


def test_turns_reach_their_bounds_in_virtual_time() -> None:
    """Every ratio is the bound of its workload, where work itself takes no time."""
    few = [replace(each, at_once=min(each.at_once, 3)) for each in WORKLOADS if not each.blocking]
    arms = turn_arms(few)
    interleave(arms, 1, loop_factory=VirtualTimeLoop)
    measured = {bar.name: bar.value for bar in turn_bars(few, arms)}
    assert measured == pytest.approx(BOUNDS, abs=0.001)


@pytest.mark.parametrize(
    "model",
    [PacedModel(answer=text("done")), GoldModel(turns=[text("done")])],
    ids=lambda m: m._llm_type,
)
def test_models_bind_tools_by_name(model: BaseChatModel) -> None:
    """Callbacks see which tools there are, and nothing else is written out."""
    bound: Any = model.bind_tools([look_up_tool(), {"type": "a provider's own"}], tool_choice="any")
    assert bound.kwargs == {"tools": [{"name": "look_up"}]}
    assert bound.invoke("hi").content == "done"


def test_blocking_turns_agree() -> None:
    """Through `invoke` too, both arms say the same."""
    blocking = [each for each in WORKLOADS if each.blocking]
    quick = [
        replace(each, generation_s=0.002, tools_s=(0.002,), draft_s=0.0, guessed="none")
        for each in blocking
    ]
    arms = turn_arms(quick)
    interleave(arms, 1)
    assert [bar.name for bar in turn_bars(quick, arms)] == ["sync_hit"]


def test_overhead_arms_agree_and_hit() -> None:
    """All forms of the agent give equal messages, and the arms of hits make all their hits."""
    arms = overhead.overhead_arms()
    interleave(arms, 1, loop_factory=VirtualTimeLoop)
    assert {len(arm.seconds) for arm in arms} == {1}
    assert {arm.name: arm.hits for arm in arms if arm.hits} == {"ours_hit_1": 1, "ours_hit_8": 8}


def test_overhead_bars_compare_the_right_arms() -> None:
    """Ratios are of turns with one call, extra costs are per call beyond the first."""
    arms = overhead.overhead_arms()
    for arm in arms:
        base_s = 0.0022 if "ours" in arm.name else 0.002
        arm.seconds = [base_s if arm.name.endswith("_1") else base_s + 7 * base_s / 10]
    values = {bar.name: bar.value for bar in overhead.overhead_bars(arms)}
    assert values == pytest.approx(
        {
            "create_agent_idle_vs_noop": 1.1,
            "stategraph_idle_vs_plain": 1.1,
            "extra_call_ms": 0.02,
            "extra_hit_ms": 0.02,
        }
    )


def _said(text: str, *, task: str = "t") -> Arm:
    answer = [{"content": text}]
    return Arm(name=text, task=task, run=lambda _: Sample(seconds=1.0, answers=[answer]))


def test_arms_that_disagree_have_no_times() -> None:
    """Two arms of one task with different messages end the benchmark."""
    with pytest.raises(RuntimeError, match="where its task gives"):
        interleave([_said("yes"), _said("no")], 1)


def test_arms_of_different_tasks_need_not_agree() -> None:
    """Only arms of one task are held against each other; the first run is not counted."""
    arms = [_said("yes"), _said("no", task="other")]
    interleave(arms, 3)
    assert [arm.seconds for arm in arms] == [[1.0] * 3] * 2


def test_missing_hits_end_the_benchmark() -> None:
    """An arm that speculates nothing, as with SPECTOOL_MODE=off, does not pass for a hit."""
    arm = _said("yes")
    arm.speculation, arm.hits = Speculation(), 1
    with pytest.raises(RuntimeError, match="made 0 hits in 2 runs, not 2"):
        interleave([arm], 1)


@pytest.mark.parametrize(("count", "p10"), [(1, 1.0), (10, 1.0), (11, 2.0), (200, 20.0)], ids=str)
def test_p10_is_not_exceeded_by_a_tenth(count: int, p10: float) -> None:
    """The lowest value that at least a tenth of the samples do not exceed."""
    arm = _said("yes")
    arm.seconds = [float(number) for number in range(count, 0, -1)]
    assert arm.p10_s == p10
    assert arm.median_s == (count + 1) / 2


def _timed(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *, ours_s: float) -> None:
    """Let every arm of ours take `ours_s` per call, and every other arm 1 s."""

    def give_times(arms: list[Arm], repeats: int, **_: object) -> None:
        for arm in arms:
            arm.seconds = [ours_s if "ours" in arm.name else 1.0] * repeats

    monkeypatch.setattr(module, "interleave", give_times)


@pytest.mark.parametrize(
    ("module", "limits"), [(overhead, OVERHEAD_LIMITS), (turns, TURN_LIMITS)], ids=["oh", "turns"]
)
def test_json_names_every_bar_and_the_machine(
    module: ModuleType,
    limits: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The JSON has the bars with their limits, the arms, and where and when it was measured."""
    _timed(monkeypatch, module, ours_s=0.5)
    assert module.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {bar["name"]: bar["limit"] for bar in found["bars"]} == limits
    assert all(set(bar) == {"name", "value", "limit"} for bar in found["bars"])
    assert found["machine"]["cores"] >= 1
    assert {"date", "python", "versions", "repeats", "arms"} <= set(found)
    assert all(set(arm) == {"median_ms", "p10_ms"} for arm in found["arms"].values())


@pytest.mark.parametrize("module", [overhead, turns])
def test_a_value_over_its_limit_fails_the_command(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tables name what is over, and the exit status is 1."""
    _timed(monkeypatch, module, ours_s=2.0)
    assert module.main([]) == 1
    shown = capsys.readouterr().out
    assert "over" in shown
    assert "median ms" in shown


def test_too_few_repeats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Overheads of milliseconds need many runs to mean anything."""
    with pytest.raises(SystemExit) as stopped:
        overhead.main(["--repeats", "10"])
    assert stopped.value.code == 2
    assert "must be 200 or more, got 10" in capsys.readouterr().err


def test_a_benchmark_runs_end_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command measures what it prints, here on a clock that only counts waiting."""

    def virtually(arms: list[Arm], repeats: int, **_: object) -> None:
        interleave(arms, repeats, loop_factory=VirtualTimeLoop)

    monkeypatch.setattr(turns, "interleave", virtually)
    monkeypatch.setattr(turns, "WORKLOADS", WORKLOADS[:1])
    assert turns.main(["--json", "--repeats", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arms"]["hit:plain"]["median_ms"] == pytest.approx(1000)
    assert found["arms"]["hit:ours"]["median_ms"] == pytest.approx(600)
