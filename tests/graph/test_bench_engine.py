"""The engine's benchmark: it counts what a server did, and believes only what it can check."""

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from vllm_spectool.reference import (
    CHATML,
    DRIFTING,
    Reference,
    ReferenceSettings,
    scripted,
    serving,
)

from langchain_spectool.bench.engine import agents, main, measuring, meters, plan
from langchain_spectool.bench.engine.agents import Arm
from langchain_spectool.bench.engine.bars import as_json, divergences, exceeds, exceeds_paired
from langchain_spectool.bench.engine.cells import Cell, Results, Stage, Where
from langchain_spectool.bench.engine.meters import Meter, Page, VllmAdapter, adapter_for, page_of
from langchain_spectool.bench.engine.plan import Place, Plan
from langchain_spectool.bench.engine.server import Server, Start, started
from langchain_spectool.bench.engine.workload import Tool
from langchain_spectool.bench.tables.engine_blocks import BLOCKS
from langchain_spectool.bench.tables.schema import Engine, read_results
from langchain_spectool.errors import SpectoolError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "engine-benchmark.md"
FEW = (Cell(agents=1, tool_s=0.0, tasks=2), Cell(agents=3, tool_s=0.001))
SERVER = """\
#!{python}
import argparse, sys
from vllm_spectool.reference import Reference, ReferenceSettings
from vllm_spectool.reference.server import config
import uvicorn
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
given, rest = parser.parse_known_args()
if "versions" in rest[1] or "distributions" in rest[1]:
    print('{{"vllm": "0", "vllm-spectool": "0"}}')
    sys.exit()
print("flags:", *rest, flush=True)
if "--refuse" in rest:
    sys.exit("no such model")
if "--fail" in rest:
    print("(EngineCore pid=1) ERROR 11-29 [core.py:1] ValueError: no room", flush=True)
    sys.exit("RuntimeError: see above\\nRuntimeError: see above\\none last line")
app = config(Reference(), host="127.0.0.1", port=given.port)
uvicorn.Server(app).run()
"""


@pytest.fixture(autouse=True)
def _quick_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_QUIET_S", 0.001)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that, asked for vLLM, starts the reference engine."""
    fake = tmp_path / "python"
    fake.write_text(SERVER.format(python=sys.executable), "utf-8")
    fake.chmod(0o755)
    return fake


def played(
    reference: Reference, cells: tuple[Cell, ...] = FEW, repeats: int = 1, **settings: Any
) -> list[Results]:
    """Play cells against a reference engine."""

    async def play(url: str) -> list[Results]:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            meter = Meter(client, adapter_for(await page_of(client)))
            stage = Stage(client=client, model="reference", meter=meter, run="test", **settings)
            return await stage.play(cells, repeats, lambda: None)

    with serving(reference) as url, asyncio.Runner() as runner:
        return runner.run(play(url))


def bars(results: list[Results]) -> dict[str, Any]:
    """Return the values of the bars."""
    return {bar["name"]: bar["value"] for bar in as_json(results)["bars"]}


def test_a_hit_is_prefilled_once_and_runs_once() -> None:
    """In place, the history is computed once instead of twice, and every tool call runs once."""
    reference = Reference()
    results = played(reference, (*FEW, Cell(agents=2, tool_s=0.0, server="pressure")))
    found = bars(results)
    assert found["double_executions"] == 0
    assert found["divergence_over_aa"] == 0
    assert found["o3_prefill_tokens_vs_round_trip"] < 0.6
    assert found["kv_pressure_prefill_vs_round_trip"] < 0.6
    for each in results:
        done = each.cell.agents * each.cell.tasks
        rows = each.as_json()["arms"]
        assert {row["executions"] for row in rows.values()} == {done}
        assert [row["resolved"] for row in rows.values()] == [0, 0, 0, done]
        assert rows["o3"]["outcomes"]["continued"] == done
        assert {row["divergent"] for row in rows.values()} == {0}
    assert set(reference.left().values()) == {0}


def test_steps_are_those_of_one_request() -> None:
    """One at a time, both ways take one step a token."""
    (result,) = played(Reference(), FEW[:1])
    rows = result.as_json()["arms"]
    assert rows["o3"]["steps"] == rows["round_trip"]["steps"]
    assert rows["o3"]["decoded_tokens"] == rows["round_trip"]["decoded_tokens"]


def test_declined_responses_fall_back_to_the_round_trip() -> None:
    """Where nothing can go on in place, the agents still say the same and run each call once."""
    results = played(Reference(style=DRIFTING))
    found = bars(results)
    assert found["double_executions"] == found["divergence_over_aa"] == 0
    assert found["o3_prefill_tokens_vs_round_trip"] == 1
    row = results[0].as_json()["arms"]["o3"]
    assert row["outcomes"]["template_drift"] == row["calls"] == row["guessed"]
    assert row["resolved"] == 0


def test_a_wrong_answer_of_the_server_is_an_error() -> None:
    """A server that resolves what nobody posted is not believed."""

    def lie(request: httpx.Request) -> httpx.Response:
        if "cache-tool-output" in request.url.path:
            return httpx.Response(200, json={"cached": 1})
        record = {
            "tool_call_id": "c",
            "name": "get_weather",
            "params": {"city": "Rome"},
            "output_sha256": "0",
        }
        call = {"id": "c", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
        turn = {
            "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
            "spectool": {"resolved": [record]},
        }
        return httpx.Response(200, json=turn)

    async def ask() -> None:
        transport = httpx.MockTransport(lie)
        async with httpx.AsyncClient(base_url="http://engine", transport=transport) as client:
            agent = agents.Agent(
                client=client,
                model="m",
                arm=Arm(name="o3", early=True, engine=True),
                tool=Tool(seconds=0),
            )
            await agent.ask("Rome", 0, "salt")

    with pytest.raises(RuntimeError, match="never posted"):
        asyncio.run(ask())


def test_only_the_arm_without_drafts_declines_them() -> None:
    """A server that drafts does so for whoever posts, unless asked not to."""
    told: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if "cache-tool-output" in request.url.path:
            return httpx.Response(200, json={"cached": 1})
        told.append(json.loads(request.content).get("vllm_xargs"))
        turn = {
            "choices": [{"message": {"content": "Rainy."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }
        return httpx.Response(200, json=turn)

    async def ask(arm: Arm) -> None:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(base_url="http://engine", transport=transport) as client:
            agent = agents.Agent(client=client, model="m", arm=arm, tool=Tool(seconds=0))
            await agent.ask("Rome", 0, "salt")

    for arm in Cell(agents=1, tool_s=0.0, server="drafts").ways:
        asyncio.run(ask(arm))
    round_trip, again, undrafted, drafted = told
    assert round_trip is again is None
    assert undrafted["spectool_drafts"] == 0
    assert drafted.keys() == {"spectool_key"}


async def test_a_call_that_runs_twice_is_counted() -> None:
    """A second run of one call is a double; a guess nobody asked for is waste, once."""
    tool = Tool(seconds=0)
    await tool.run("task", "a")
    assert (tool.doubles, tool.wasted) == (0, 1)
    tool.commits["task", "a"] += 1
    assert (tool.doubles, tool.wasted) == (0, 0)
    await tool.run("task", "a")
    assert (tool.doubles, tool.wasted) == (1, 1)
    await tool.run("other", "a")
    assert (tool.doubles, tool.wasted) == (1, 2)


def test_the_exact_test_is_fishers() -> None:
    """Its p values are those of the hypergeometric distribution."""
    assert exceeds(0, 0, 10) == 1
    assert exceeds(5, 0, 5) == pytest.approx(1 / 252)
    assert exceeds(4, 1, 5) == pytest.approx(26 / 252)
    assert exceeds(0, 5, 5) == 1


def test_tasks_that_differ_in_both_arms_say_nothing() -> None:
    """The paired test is McNemar's exact one: a binomial over tasks where one arm alone differs."""
    assert exceeds_paired(0, 0) == 1
    assert exceeds_paired(5, 0) == 1 / 32
    assert exceeds_paired(3, 1) == 5 / 16
    assert exceeds_paired(0, 5) == 1


def test_arms_are_compared_task_by_task() -> None:
    """A round trip that is the odd one out tells on nobody; drafts are under no bar."""
    results = played(Reference(), (Cell(agents=6, tool_s=0.0),))
    arms = results[0].arms
    odd = arms["round_trip"].asked
    odd[0] = replace(odd[0], said=["odd"])
    arms["o3"].asked[1:] = [replace(each, said=["other"]) for each in arms["o3"].asked[1:]]
    early, o3 = divergences(results)
    assert (early.divergent, early.again_divergent, early.alone, early.p) == (1, 1, 0, 1)
    assert (o3.divergent, o3.alone, o3.again_alone, o3.p) == (6, 5, 0, round(1 / 32, 4))
    assert bars(results)["divergence_over_aa"] == 1
    drafting = Results(replace(results[0].cell, server="drafts"), arms)
    assert bars([drafting])["divergence_over_aa"] == 0


def test_time_that_is_up_ends_the_repeats() -> None:
    """One repeat is played in any case, and no more than there is time for."""
    cells = (Cell(agents=1, tool_s=0.0),)
    (result,) = played(Reference(), cells, repeats=3, until_s=0.0)
    assert result.repeats == 1
    (result,) = played(Reference(), cells, repeats=2)
    assert result.repeats == 2
    assert result.longest == max(sum(each.said[-1][-1]) for each in result.arms["round_trip"].asked)


def test_time_is_shared_out_between_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server leaves the later ones their start and their part; the last one has all the rest."""
    monkeypatch.setattr(plan.time, "monotonic", lambda: 100.0)
    shared = Plan(drafts=True, until_s=1_100.0)
    assert shared.until("roomy", start_s=100.0) == pytest.approx(100 + 0.6 * 800)
    assert shared.until("pressure", start_s=100.0) == pytest.approx(100 + 0.625 * 900)
    assert shared.until("drafts", start_s=100.0) == 1_100
    assert Plan().until("roomy", start_s=100.0) == math.inf
    drafting = [each for each in shared.cells if each.server == "drafts"]
    assert [(each.agents, each.tool_s) for each in drafting] == [(1, 0), (8, 0)]
    assert {each.server for each in Plan().cells} == {"roomy", "pressure"}


def test_a_model_that_calls_no_tool_is_not_measured() -> None:
    """Counts of plain answers would say nothing; the message shows what it said instead."""
    with pytest.raises(SpectoolError, match=r"called no tool, it said 'Done\.': take a model"):
        played(Reference(scripted()))


def test_vllm_is_read_by_its_own_names() -> None:
    """What went on in place counts as prefill: injected tokens, and one stop token each."""
    page = Page(
        'vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 500.0\n'
        'vllm:prompt_tokens_by_source_total{engine="0",source="local_cache_hit"} 300.0\n'
        'vllm:iteration_tokens_total_count{engine="0"} 40.0\n'
        'vllm:generation_tokens_total{engine="0"} 39.0\n'
        "vllm:spectool_injected_tokens_total 26.0\n"
        'vllm:spectool_turns_total{outcome="continued"} 2.0\n'
        'vllm:spectool_turns_total{outcome="no_entry"} 1.0\n'
        'vllm:cache_config_info{block_size="128",num_gpu_blocks="None"} 1.0\n'
    )
    assert isinstance(adapter_for(page), VllmAdapter)
    work = VllmAdapter().work(page)
    assert (work.prefill_tokens, work.steps, work.decoded_tokens) == (528, 40, 39)
    assert work.since(work).outcomes == {}
    assert meters.block_size(page) == (128, None)


def test_the_iteration_log_counts_what_was_computed_again(tmp_path: Path) -> None:
    """A preempted request is listed as generating, many tokens at once: that is prefill."""
    log = tmp_path / "log"
    log.write_text(
        "INFO Engine 000: Iteration(0): 2 context requests, 90 context tokens, 1 generation "
        "requests, 1 generation tokens, iteration elapsed time: 3.00 ms, CPU\n"
        "INFO Iteration(1): 0 context requests, 0 context tokens, 3 generation requests, "
        "52 generation tokens, iteration elapsed time: 3.00 ms\n",
        "utf-8",
    )
    shown = VllmAdapter().work(Page(""))
    work = meters._logged(log, shown)
    assert (work.prefill_tokens, work.steps) == (90 + 49, 2)


def test_other_metrics_are_refused() -> None:
    """A server whose figures have other names is not measured."""
    with pytest.raises(SpectoolError, match="neither"):
        adapter_for(Page("up 1\n"))


def test_the_command_prints_one_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The JSON goes to stdout and to the file, and the page explains its keys."""
    out = tmp_path / "engine.json"
    with serving(Reference()) as url:
        status = main(["--url", url, "--quick", "--json", "--out", str(out)])
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(out.read_text("utf-8"))
    assert found["not_run"].keys() == {"pressure"}
    assert [bar["name"] for bar in found["bars"]] == [
        "double_executions",
        "divergence_over_aa",
        "o3_prefill_tokens_vs_round_trip",
        "o3_steps_vs_round_trip",
    ]
    assert status == (0 if all(bar["met"] for bar in found["bars"]) else 1)
    row = found["cells"][0]["arms"]["o3"]
    explained = set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))
    keys = [*found, *found["cells"][0], *row, *found["servers"]["roomy"], *found["divergence"][0]]
    assert set(keys) <= explained


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ReferenceSettings(continuations=False), "has no tool cache"),
        (ReferenceSettings(unable="no parser"), "is off: no parser"),
    ],
)
def test_a_server_without_the_cache_is_not_measured(
    settings: ReferenceSettings, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says why, and the status is 2."""
    with serving(Reference(style=CHATML, settings=settings)) as url:
        assert main(["--url", url, "--quick"]) == 2
    assert message in capsys.readouterr().err


def test_without_a_server_it_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither an address nor an environment: one line, status 2."""
    assert main(["--json"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--python", "nowhere", "--model", "nowhere"]) == 2
    assert "there is no nowhere" in capsys.readouterr().err


def small(server: Where) -> Cell:
    """Return the least that can be played on a server."""
    return Cell(agents=1, tool_s=0.0, server=server)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Start reference engines, and none that drafts; list the flags they were given."""
    given: list[tuple[str, ...]] = []

    @contextmanager
    def start(_: Start, *flags: str) -> Generator[Server]:
        given.append(flags)
        if "--draft-arguments" in flags:
            msg = "no such flag"
            raise SpectoolError(msg)
        with serving(Reference()) as url:
            yield Server(url=url)

    monkeypatch.setattr(measuring, "started", start)
    monkeypatch.setattr(measuring, "packages", lambda _: {"vllm": "0"})
    cells = property(lambda self: [small(server) for server in self.servers])
    monkeypatch.setattr(Plan, "cells", cells)
    return given


PLACE = Place(start=Start(python=Path("python"), model=Path("model")))


def test_the_cache_under_pressure_holds_two_conversations(starts: list[tuple[str, ...]]) -> None:
    """Its size follows from what was measured before; without drafts the rest is worth it."""
    found = measuring.measure(Plan(repeats=1, drafts=True), PLACE)
    roomy, pressure, drafts = starts
    assert (roomy, drafts) == ((), ("--draft-arguments",))
    override, blocks, length, tokens = pressure
    assert (override, length) == ("--num-gpu-blocks-override", "--max-model-len")
    block = found["servers"]["roomy"]["block_tokens"] or 16
    assert int(blocks) % 2 == 0
    assert int(tokens) <= (int(blocks) - 1) * block
    assert found["not_run"] == {"drafts": "no such flag"}
    assert found["servers"].keys() == {"roomy", "pressure"}


@pytest.mark.usefixtures("starts")
def test_what_is_found_can_be_committed() -> None:
    """All of it is read, and every table shows it."""
    found = measuring.measure(Plan(repeats=1), PLACE)
    engine = Engine.model_validate_json(json.dumps(found))
    results = read_results(ROOT).model_copy(update={"engine": engine, "proof": None})
    shown = {name: write(results) for name, write in BLOCKS.items()}
    assert "| `double_executions` | 0 | <= 0 | yes |" in shown["engine-bars"]
    assert "reference" in shown["engine-bars"]
    assert shown["engine-cells"].count("| in place |") == 2
    assert shown["engine-measured"].startswith("**Measured** on a small model, with 2 of 2 ")


def test_a_server_there_is_no_time_for_is_not_started(starts: list[tuple[str, ...]]) -> None:
    """What was measured before is worth its result, and the first is measured in any case."""
    found = measuring.measure(Plan(repeats=1, until_s=0.0), PLACE)
    assert starts == [()]
    assert found["not_run"] == {"pressure": "no time was left for it"}


def test_a_server_is_started_and_stopped(python: Path, tmp_path: Path) -> None:
    """It serves on a port of its own with vLLM's flags, and is gone with all it wrote."""
    start = Start(python=python, model=tmp_path, flags=["--enforce-eager"])
    with started(start, "--num-gpu-blocks-override", "12") as server:
        assert httpx.get(f"{server.url}/health", trust_env=False).is_success
        assert server.log is not None
        said = server.log.read_text("utf-8")
    assert "--enforce-eager --num-gpu-blocks-override 12" in said
    assert not server.log.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health", trust_env=False)


def test_a_server_that_does_not_start_says_why(python: Path, tmp_path: Path) -> None:
    """The message ends with the server's own last words."""
    start = Start(python=python, model=tmp_path, flags=["--refuse"])
    with pytest.raises(SpectoolError, match=r"status 1: .*no such model"), started(start):
        pass


def test_the_first_errors_of_a_server_are_said(python: Path, tmp_path: Path) -> None:
    """Not the last lines, which only say that there were errors; the whole log stays on request."""
    logs = tmp_path / "logs" / "of servers"
    start = Start(python=python, model=tmp_path, flags=["--fail"], logs=logs)
    message = r": ValueError: no room \| RuntimeError: see above$"
    with pytest.raises(SpectoolError, match=message), started(start):
        pass
    (log,) = logs.iterdir()
    assert "one last line" in log.read_text("utf-8")


def test_a_terminated_benchmark_leaves_no_server(python: Path, tmp_path: Path) -> None:
    """SIGTERM stops the server before the benchmark ends."""
    code = (
        "import sys; from langchain_spectool.bench.engine.server import Start, started\n"
        "from pathlib import Path\n"
        f"with started(Start(python=Path({str(python)!r}), model=Path('.'))) as server:\n"
        "    print(server.url, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stdout is not None
        url = bench.stdout.readline().strip()
        assert httpx.get(f"{url}/health", trust_env=False).is_success
        os.kill(bench.pid, signal.SIGTERM)
        assert bench.wait(10) == 128 + signal.SIGTERM
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", trust_env=False)
