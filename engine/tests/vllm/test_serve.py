"""How vLLM is started, without starting it."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from vllm_spectool import cli, serve
from vllm_spectool.plugin.support import PROPOSER, SCHEDULER

PARSER = ["--tool-call-parser", "hermes"]


def test_flags_go_to_vllm_as_they_are() -> None:
    """Only what a tool parser needs is added."""
    start = serve.plan("model", [*PARSER, "--dtype=float32"], environ={"HOME": "/h"})
    assert start.command == [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "model"),
        *("--enable-auto-tool-choice", *PARSER, "--dtype=float32"),
    ]
    assert start.environ["HOME"] == "/h"


@pytest.mark.parametrize(
    "flags",
    [
        [*PARSER, "--enable-auto-tool-choice"],
        ["--tool-call-parser=hermes", "--enable-auto-tool-choice"],
        ["--tool_call_parser=hermes", "--enable-auto-tool-choice"],
    ],
)
def test_what_is_given_is_not_given_twice(flags: list[str]) -> None:
    """With the value after an equals sign as well."""
    command = serve.plan("model", flags, environ={}).command
    assert command.count("--enable-auto-tool-choice") == 1


def test_a_parser_is_known_in_vllms_other_spelling() -> None:
    """With underscores, which vLLM reads as dashes."""
    assert (
        "--enable-auto-tool-choice"
        in serve.plan("m", ["--tool_call_parser", "x"], environ={}).command
    )


def test_without_a_parser_nothing_is_added() -> None:
    """A server without tools stays one, and is told why the cache is off."""
    start = serve.plan("model", [], environ={})
    assert "--enable-auto-tool-choice" not in start.command
    assert start.line.startswith("spectool: off: ")


@pytest.mark.parametrize(
    ("allowed", "others", "expected"),
    [
        (None, [], ["spectool"]),
        (None, ["lora", "platform"], ["lora", "platform", "spectool"]),
        ("lora", ["lora", "platform"], ["lora", "spectool"]),
        ("spectool,lora", [], ["spectool", "lora"]),
        ("", ["lora"], ["spectool"]),
    ],
)
def test_no_other_plugin_is_turned_off(
    allowed: str | None, others: list[str], expected: list[str]
) -> None:
    """Naming one plugin turns all others off, so those that were on are named as well."""
    assert serve.merged(allowed, others) == expected


def test_the_turns_reach_the_plugin() -> None:
    """Through the environment, which is all that vLLM hands on."""
    assert "VLLM_SPECTOOL_MAX_TURNS" not in serve.plan("model", PARSER, environ={}).environ
    start = serve.plan("model", PARSER, environ={}, settings=serve.Settings(turns=3))
    assert start.environ["VLLM_SPECTOOL_MAX_TURNS"] == "3"


@pytest.mark.parametrize(
    ("flags", "environ", "word"),
    [
        (PARSER, {"VLLM_SPECTOOL": "0"}, "VLLM_SPECTOOL"),
        ([], {}, "--tool-call-parser"),
        ([*PARSER, "--api-server-count", "2"], {}, "--api-server-count"),
        ([*PARSER, "-asc=2"], {}, "--api-server-count"),
        ([*PARSER, "--speculative-config={}"], {}, "speculative"),
        ([*PARSER, "--speculative_config.method", "ngram"], {}, "speculative"),
        ([*PARSER, "-sc", "{}"], {}, "speculative"),
        ([*PARSER, "--spec-method=ngram"], {}, "speculative"),
        ([*PARSER, "--pipeline_parallel_size=2"], {}, "pipeline"),
        ([*PARSER, "--pipeline-parallel-size=2"], {}, "pipeline"),
        ([*PARSER, "-pp", "2"], {}, "pipeline"),
        ([*PARSER, "--kv-transfer-config", "{}"], {}, "KV connector"),
        ([*PARSER, "--disable-log-stats"], {}, "--disable-log-stats"),
    ],
)
def test_what_stands_in_the_way_is_foreseen(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], environ: dict[str, str], word: str
) -> None:
    """Before minutes are spent on loading a model."""
    monkeypatch.setattr(serve, "installed_vllm", lambda: "0.32.0")
    reason = serve.foreseen(flags, environ)
    assert reason is not None
    assert word in reason


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("0.32.0", "spectool: on (O3)"),
        ("0.33.0", "spectool: off: vLLM 0.33.0"),
        (None, "spectool: off: vLLM is not installed"),
    ],
)
def test_the_release_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, release: str | None, line: str
) -> None:
    """Whatever the distribution is called."""
    monkeypatch.setattr(serve, "installed_vllm", lambda: release)
    assert serve.plan("model", PARSER, environ={}).line.startswith(line)


def test_the_command_takes_its_own_flags_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others reach vLLM, also those that look like one of its own."""
    started: list[serve.Start] = []
    monkeypatch.setattr(serve, "run", started.append)
    flags = ["--max-resident-turns", "2", "--max-model-len", "512", "--max-res", "1", "-tp", "2"]
    assert cli.main(["serve", "model", *flags]) == 0
    assert list(started[0].command[3:]) == ["--model", "model", *flags[2:]]
    assert started[0].environ["VLLM_SPECTOOL_MAX_TURNS"] == "2"


def test_no_turns_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One turn is what every response has."""
    with pytest.raises(SystemExit):
        cli.main(["serve", "model", "--max-resident-turns", "0"])
    assert "0 is not 1 or more" in capsys.readouterr().err


@pytest.fixture
def tested_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a release were installed that this was tested with."""
    monkeypatch.setattr(serve, "installed_vllm", lambda: "0.32.0")


@pytest.mark.usefixtures("tested_vllm")
def test_a_file_of_flags_may_name_the_parser() -> None:
    """So nothing is foreseen of it, drafts are not dropped, and the start says so."""
    settings = serve.Settings(drafts=serve.Drafts())
    flags = ["--config", "vllm.yaml"]
    start = serve.plan("model", flags, environ={}, settings=settings)
    assert start.reason is None
    assert "--scheduler-cls" in start.command
    assert "--enable-auto-tool-choice" not in start.command  # vLLM wants the parser beside it
    assert start.line.split("\n")[:2] == ["spectool: on (O3, O2)", serve.UNREAD]
    assert serve.plan("model", [*flags, "-pp", "2"], environ={}).line.startswith("spectool: off")


@pytest.mark.usefixtures("tested_vllm")
def test_drafting_takes_a_scheduler_and_a_proposer() -> None:
    """Only where it is asked for; the start says what it costs."""
    stock = serve.plan("model", PARSER, environ={})
    assert "--scheduler-cls" not in stock.command
    drafts = serve.Drafts(tokens=4, running=2)
    start = serve.plan("model", PARSER, environ={}, settings=serve.Settings(drafts=drafts))
    at = start.command.index("--scheduler-cls")
    assert start.command[at + 1] == SCHEDULER
    assert start.command[at + 2] == "--speculative-config"
    assert json.loads(start.command[at + 3]) == {
        "method": "custom_class",
        "model": PROPOSER,
        "num_speculative_tokens": 4,
    }
    assert start.environ["VLLM_SPECTOOL_DRAFT_MAX_RUNNING"] == "2"
    first, price = start.line.split("\n")
    assert first == "spectool: on (O3, O2)"
    assert all(word in price for word in ("Model Runner V1", "synchronous", "more than 2", "GPU"))
    assert "more than 8" in serve.Drafts().price


@pytest.mark.parametrize("name", [SCHEDULER, PROPOSER])
def test_what_vllm_is_told_to_load_is_there(name: str) -> None:
    """By its path, which nothing else checks before a server starts."""
    module, _, made = name.rpartition(".")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    assert f"\nclass {made}" in Path(spec.origin).read_text()


@pytest.mark.usefixtures("tested_vllm")
@pytest.mark.parametrize(
    ("flags", "environ"), [(PARSER, {"VLLM_SPECTOOL": "0"}), ([*PARSER, "-pp", "2"], {}), ([], {})]
)
def test_a_server_that_is_off_keeps_its_own_scheduler(
    flags: list[str], environ: dict[str, str]
) -> None:
    """There is nothing to draft, so nothing is paid."""
    settings = serve.Settings(drafts=serve.Drafts())
    start = serve.plan("model", flags, environ=environ, settings=settings)
    assert "--speculative-config" not in start.command
    assert start.line.startswith("spectool: off: ")


@pytest.mark.parametrize(
    "flag", ["--scheduler-cls", "--speculative-config={}", "-sc", "--spec-method=ngram"]
)
def test_a_scheduler_of_ones_own_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line that names it."""
    with pytest.raises(SystemExit):
        cli.main(["serve", "model", "--draft-arguments", flag, "x"])
    *_, line = capsys.readouterr().err.splitlines()
    assert line.endswith(f"itself: leave out {flag.split('=', maxsplit=1)[0]}")


def test_the_commands_settings_reach_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafting has a default; drift is allowed by the flag or by the environment, and said."""
    started: list[serve.Start] = []
    monkeypatch.setattr(serve, "run", started.append)
    monkeypatch.setattr(serve, "installed_vllm", lambda: "0.32.0")
    monkeypatch.delenv("VLLM_SPECTOOL_ALLOW_DRIFT", raising=False)
    cli.main(["serve", "model", *PARSER, "--draft-arguments", "--draft-max-running", "3"])
    cli.main(["serve", "model", *PARSER, "--draft-arguments", "5", "--allow-drift"])
    monkeypatch.setenv("VLLM_SPECTOOL_ALLOW_DRIFT", "1")
    cli.main(["serve", "model", *PARSER])
    default, given, stock = started
    assert default.drafts == serve.Drafts(tokens=16, running=3)
    assert given.drafts == serve.Drafts(tokens=5)
    assert stock.drafts is None
    assert [start.environ.get("VLLM_SPECTOOL_ALLOW_DRIFT") for start in started] == [None, "1", "1"]
    assert ["drift is allowed" in start.line for start in started] == [False, True, True]


@pytest.mark.parametrize("flag", ["--draft-arguments", "--draft-max-running"])
def test_numbers_below_one_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They would turn off what they set."""
    with pytest.raises(SystemExit):
        cli.main(["serve", "model", f"{flag}=0"])
    assert "0 is not 1 or more" in capsys.readouterr().err
