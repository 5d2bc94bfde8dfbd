"""The paper's experiment: all arms say the same, take what was drawn, and are reported whole."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from langchain_spectool._core.policy import Policy
from langchain_spectool.bench.paper import (
    actors,
    command,
    package_slice,
    peers,
    real_time,
    sample,
    scale,
)
from langchain_spectool.bench.paper.cells import Job, Played, Setup, play
from langchain_spectool.bench.paper.command import Experiment, main, measure
from langchain_spectool.bench.paper.draft import Draft
from langchain_spectool.bench.paper.figures import saved_percent
from langchain_spectool.bench.paper.package_slice import Plan, Row
from langchain_spectool.bench.paper.predicted import drawn, saved
from langchain_spectool.bench.paper.real_time import RealPlan, RealRow
from langchain_spectool.bench.paper.scale import ScalePlan, ScaleRow
from langchain_spectool.bench.paper.workload import load_tasks
from langchain_spectool.bench.report_page.scorecard import facts_of
from langchain_spectool.bench.tables.schema import Paper
from langchain_spectool.errors import SpectoolError
from langchain_spectool.telemetry.event_log import event_of

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
SETUP = Setup(agents=3, tasks=3, seed=7, generation_s=3.0)
DRAFT = Draft(accuracy=0.8, mean_s=0.5, seed=7)
LATENCIES_S = (0.0, 0.5, 3.0)
TINY = Plan(
    seed=7, agents=2, tasks=1, column_tasks=1, latencies_s=(1.0,), peers_s=(1.0,), workers=0
)


def played(arm: str, samples: int = 1) -> list[Played]:
    """Play a small set-up."""
    return play(SETUP, Job(arm=arm, latencies_s=LATENCIES_S, draft=DRAFT, samples=samples))


def test_the_workload_is_the_documented_one() -> None:
    """As many questions, and as many turns with several calls, as docs/benchmarks.md says."""
    tasks = load_tasks()
    parallel = [task for task in tasks if task.task_id.startswith("parallel")]
    sizes = [len(batch) for task in tasks for batch in task.batches]
    assert (len(tasks) - len(parallel), len(parallel)) == (731, 400)
    assert len({task.task_id for task in tasks}) == len(tasks)
    assert round(len(sizes) / len(tasks), 1) == 1.3
    assert round(sum(size > 1 for size in sizes) / len(sizes), 1) == 0.3
    said = PAGE.read_text("utf-8")
    assert "731 user turns" in said
    assert "the 400 questions" in said


def test_every_call_of_the_workload_has_an_answer_in_memory() -> None:
    """And a schema that takes its arguments."""
    for task in load_tasks():
        for batch in task.batches:
            for name, args in batch:
                assert {*args} <= {*task.tools[name].schema.model_fields}
                assert task.output(name, args) in {said for each in task.outputs for said in each}
        assert "nothing known" in task.output("no_such_tool", {})


@pytest.mark.parametrize("arm", [name for name in actors.ARMS if name != "plain"])
def test_the_package_takes_what_the_turn_model_says(arm: str) -> None:
    """To the millisecond, in virtual time, at every latency, and it changes no word."""
    draws = drawn(SETUP.dealt(), DRAFT, 1)
    for plain, ours in zip(played("plain"), played(arm), strict=True):
        assert ours.said == plain.said
        assert (ours.turns, ours.calls) == (plain.turns, plain.calls)
        percent = saved_percent(plain.agents_s, ours.agents_s)
        assert percent == pytest.approx(
            saved(draws, SETUP.generation_s, ours.latency_s, arm), abs=1e-3
        )


def test_more_samples_are_right_more_often_and_waste_more() -> None:
    """And the turn model holds for them too."""
    one, nine = played("client_side")[-1], played("client_side", samples=9)[-1]
    assert nine.hits > one.hits
    assert nine.wasted_calls > one.wasted_calls
    assert nine.draft_tokens[0] == 9 * one.draft_tokens[0]
    percent = saved_percent(played("plain")[-1].agents_s, nine.agents_s)
    model = saved(drawn(SETUP.dealt(), DRAFT, 9), SETUP.generation_s, 3.0)
    assert percent == pytest.approx(model, abs=1e-3)


def test_every_early_run_is_a_hit_or_waste() -> None:
    """No call is counted twice, and none gets lost."""
    for arm in ("client_side", "early_dispatch", "chain", "oracle"):
        for each in played(arm):
            assert each.early_runs == each.hits + each.wasted_calls
            assert each.fully_hit <= each.asking <= each.calls
    assert played("oracle")[0].hits == played("oracle")[0].calls


def test_a_result_cache_answers_equal_calls_of_a_task_only() -> None:
    """It says what plain says, and no more time is saved than calls are repeated."""
    for plain, cached in zip(played("plain"), played("result_cache"), strict=True):
        assert cached.said == plain.said
        assert all(
            ours <= theirs for ours, theirs in zip(cached.agents_s, plain.agents_s, strict=True)
        )


def test_a_peer_that_is_not_installed_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so."""
    missing = replace(peers.PEERS["eager_tools"], module="no_such_module")
    monkeypatch.setitem(peers.PEERS, "eager_tools", missing)  # type: ignore[arg-type]
    assert "eager_tools" not in {job.arm for job in TINY.jobs()}
    told = missing.as_json("eager_tools")
    assert (told["installed"], told["version"]) == (False, None)


def test_arms_run_every_guess() -> None:
    """No gate learns at the expense of an arm, and no limit cuts nine samples short."""
    assert actors.POLICY.benefit is None
    assert actors.POLICY.guesses_per_turn > Policy().guesses_per_turn


def test_an_arm_that_says_other_things_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times would mean nothing."""

    def altered(setup: Setup, job: Job) -> list[Played]:
        found = play(setup, job)
        return [replace(each, said="other") for each in found] if job.arm == "oracle" else found

    monkeypatch.setattr(package_slice, "play", altered)
    with pytest.raises(RuntimeError, match=r"'oracle' at 1\.0 s the agents said other things"):
        package_slice.measure(TINY)


def test_quick_measures_the_virtual_parts_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that the page names is there, and the bars are those of the parts."""
    monkeypatch.setattr(Experiment, "plan", property(lambda _: TINY))
    found = measure(Experiment(parts=("slice", "grid"), quick=True, workers=0))
    Paper.model_validate_json(json.dumps(found))
    assert [bar["name"] for bar in found["bars"]] == [
        "max_gap_to_turn_model_points",
        "paper_column_gap_points",
        "gain_over_client_side_points",
    ]
    assert found["bars"][0]["value"] < 0.01
    assert found["real"] is found["scale"] is None
    assert {row["arm"] for row in found["slice"]["rows"]} >= {*actors.ARMS, "result_cache"}
    assert {point["latency_s"] for point in found["calibration"]["points"]} == {0.5, 1, 1.5, 2, 2.5}
    assert found["calibration"]["label"] == "calibrated reproduction"
    assert {row["agents"] for row in found["grid"]["rows"]} == {1, 8, 32}


def test_the_sample_shows_what_each_arm_does() -> None:
    """Early dispatch and chains answer calls in it, it is small, and it is always the same."""
    plan = Plan(seed=0)
    found = sample.recorded(plan, 3.18)
    assert found == sample.recorded(plan, 3.18)
    assert len(json.dumps(found, indent=2)) < 200_000
    arms = {
        arm: facts_of([event_of(said) for said in json.loads(json.dumps(told))])
        for arm, told in found["arms"].items()
    }
    for name, facts in arms.items():
        assert len(facts.runs) == found["tasks"] == 4
        assert len(facts.timed) == len(facts.turns)
        sources = {call.early.source for _, call in facts.total.calls if call.early is not None}
        assert sources >= {"draft_model", *({name} & {"early_dispatch", "chain"})}


def test_the_page_explains_every_field_of_a_row() -> None:
    """In a table of its own, and the other rows' fields in the list of keys."""
    text = PAGE.read_text("utf-8")
    table = text[text.index("A row of `slice.rows`:") :]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [each.name for each in fields(Row)]
    keys = text[text.index("### The JSON of the paper's experiment") :]
    for row in (RealRow, ScaleRow):
        assert not {each.name for each in fields(row)} - {*re.findall(r"`(\w+)`", keys)}


@pytest.mark.real_loop
def test_real_time_is_compared_with_virtual_time() -> None:
    """The same agents at a tiny scale; a cell that mostly measures the machine is void."""
    plan = RealPlan(
        seed=7,
        generation_s=3.0,
        draft=DRAFT,
        agents=1,
        tasks=1,
        repeats=1,
        scale=0.003,
        latencies_s=(3.0,),
    )
    found = real_time.measure(plan)
    assert [row["arm"] for row in found["rows"]] == [*actors.ARMS][1:]
    for row in found["rows"]:
        assert row["void"] == (row["cpu_share"] > real_time.VOID_ABOVE)
    oracle = found["rows"][-1]
    assert oracle["virtual_saved"] == pytest.approx(
        saved(drawn(plan.setup(1.0).dealt(), DRAFT, 1), 3.0, 3.0, "oracle")[0], abs=1e-2
    )


@pytest.fixture(scope="module")
def crowds() -> Mapping[str, Any]:
    """Measure small crowds, once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(scale, "_QUIET", 1)
        monkeypatch.setattr(scale, "_PROBES", 3)
        return scale.measure(ScalePlan(real=(1, 2), virtual=(20,), held=8, times=0.002))


def test_crowds_are_measured_on_both_clocks(crowds: Mapping[str, Any]) -> None:
    """In virtual time to the digit; the memory of a turn grows with what it has in hand."""
    assert [row["clock"] for row in crowds["rows"]] == ["real", "real", "virtual"]
    virtual = crowds["rows"][-1]
    assert virtual["saved"] == pytest.approx(45, abs=0.1)
    assert virtual["agents"] == 20
    memory = crowds["memory"]
    assert memory["kb_per_turn"] > memory["kb_per_turn_landed"] > 0
    assert memory["kb_per_turn_landed"] > memory["kb_per_turn_without_guess"]


def some_found(*, met: bool) -> Mapping[str, Any]:
    """Return the least that can be printed."""
    bar = {"name": "b", "value": 1.0, "limit": 2.0, "sense": "<=", "met": met}
    parts = dict.fromkeys(("slice", "grid", "real", "scale", "calibration"))
    return {**parts, "bars": [bar], "settings": {"seed": 0}, "wall_s": 1.0, "note": "n"}


@pytest.mark.parametrize(("met", "status", "word"), [(True, 0, "met"), (False, 1, "missed")])
def test_a_missed_bar_is_printed_and_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    met: bool,
    status: int,
    word: str,
) -> None:
    """Nothing is rounded in our favour."""
    monkeypatch.setattr(command, "measure", lambda _: some_found(met=met))
    assert main([]) == status
    assert re.search(rf"b\s+1\.000\s+<= 2\s+{word}", capsys.readouterr().out)
    assert main(["--json"]) == status
    assert json.loads(capsys.readouterr().out)["bars"][0]["met"] is met


def test_all_that_is_measured_can_be_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    crowds: Mapping[str, Any],
) -> None:
    """Every part has its table."""
    real = {"scale": 0.1, "agents": 1, "rows": list[Any]()}
    monkeypatch.setattr(Experiment, "plan", property(lambda _: TINY))
    monkeypatch.setattr(command.scale_part, "measure", lambda *_: crowds)
    monkeypatch.setattr(command.real_part, "measure", lambda *_: real)
    found = measure(Experiment(quick=True, workers=0))
    command.print_tables(found)
    shown = capsys.readouterr().out
    for title in ("in virtual time", "calibrated", "discrete-event", "real time", "many agents"):
        assert title in shown


def test_nothing_is_measured_where_speculation_is_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would all be plain."""
    monkeypatch.setenv("SPECTOOL_MODE", "off")
    assert main(["--quick"]) == 2
    assert "unset it" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With what is missing."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(command, "measure", lambda _: some_found(met=True))
    monkeypatch.setattr(command, "import_module", missing)
    assert main(["-o", str(tmp_path / "page.html")]) == 2
    assert "the page needs 'langchain_spectool.bench.report_page'" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_the_page_is_made_of_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the module that renders it."""

    class Page:
        @staticmethod
        def render(*, paper: Any, events: Any) -> str:
            return f"{paper['wall_s']} {events}"

    monkeypatch.setattr(command, "measure", lambda _: some_found(met=True))
    monkeypatch.setattr(command, "import_module", lambda _: Page)
    assert main(["--json", "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == "1.0 None"


def test_a_missing_package_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with status 2."""

    def fail(_: Experiment) -> None:
        msg = "run `make bench-sources`"
        raise SpectoolError(msg)

    monkeypatch.setattr(command, "measure", fail)
    assert main([]) == 2
    assert "make bench-sources" in capsys.readouterr().err
