"""How vLLM is started, without starting it."""

import sys

import pytest

from vllm_spectool import cli, serve

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
    ],
)
def test_what_is_given_is_not_given_twice(flags: list[str]) -> None:
    """With the value after an equals sign as well."""
    command = serve.plan("model", flags, environ={}).command
    assert command.count("--enable-auto-tool-choice") == 1


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
    start = serve.plan("model", PARSER, turns=3, environ={})
    assert start.environ["VLLM_SPECTOOL_MAX_TURNS"] == "3"


@pytest.mark.parametrize(
    ("flags", "environ", "word"),
    [
        (PARSER, {"VLLM_SPECTOOL": "0"}, "VLLM_SPECTOOL"),
        ([], {}, "--tool-call-parser"),
        ([*PARSER, "--api-server-count", "2"], {}, "--api-server-count"),
        ([*PARSER, "-asc=2"], {}, "--api-server-count"),
        ([*PARSER, "--speculative-config={}"], {}, "speculative"),
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
