"""The `spectool` command: what it is given reaches one function, whose answer is the exit code."""

import json
import sys
from pathlib import Path

import pytest

from langchain_spectool import cli
from langchain_spectool.errors import SpectoolError

AGENT = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_spectool import SpeculationMiddleware, speculatable
from langchain_spectool.testing import ScriptedModel, text

@speculatable
@tool
def look(query: str) -> str:
    """Look it up."""
    return query

@tool
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)

agent = create_agent(
    ScriptedModel(turns=[text("done")]), [look, pay], middleware=[SpeculationMiddleware()]
)
'''


@pytest.fixture
def agent_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module with an agent, and return how the command line names it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "my_agent.py"
    file.write_text(AGENT)
    return f"{file}:agent"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["demo", "--speed", "0"],
        ["demo", "--speed", "fast"],
        ["demo", "more"],
        ["doctor"],
        ["doctor", "a:b", "--loud"],
        ["bench"],
        ["bench", "sleep"],
    ],
)
def test_wrong_usage_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, unknown and impossible arguments end with usage on stderr and code 2."""
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert "usage: spectool" in capsys.readouterr().err


def test_version_is_that_of_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--version` prints the installed version and nothing else."""
    monkeypatch.setattr(cli.metadata, "version", lambda name: f"version of {name}")
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "version of langchain-spectool\n"


def test_version_of_a_source_folder_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the package is not installed, `--version` says so and every command still works."""

    def missing(name: str) -> str:
        raise cli.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(cli.metadata, "version", missing)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert "not installed" in capsys.readouterr().out


def test_doctor_says_it_in_lines(agent_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`doctor` prints each tool with the reason, and exits with 0 whatever it found."""
    assert cli.main(["doctor", agent_file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  look: can run early" in lines
    assert any(line.startswith("  pay: no, nobody declared it") for line in lines)


def test_doctor_says_it_in_json(agent_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`doctor --json` prints the verdicts under stable names."""
    assert cli.main(["doctor", agent_file, "--json"]) == 0
    (graph,) = json.loads(capsys.readouterr().out)["graphs"]
    assert [(tool["tool"], tool["early"], tool["verdict"]) for tool in graph["tools"]] == [
        ("look", True, "run"),
        ("pay", False, "undeclared"),
    ]


@pytest.mark.parametrize("target", ["no_such_module_here:agent", "agent", "json:no_such_name"])
def test_doctor_of_nothing_ends_with_2(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A target that cannot be loaded is named on stderr, without a traceback."""
    assert cli.main(["doctor", target]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("spectool: ")
    assert repr(target) in printed.err


@pytest.mark.parametrize("what", ["overhead", "turns"])
@pytest.mark.parametrize("code", [0, 1])
def test_bench_hands_its_arguments_on(
    monkeypatch: pytest.MonkeyPatch, what: str, code: int
) -> None:
    """`bench` passes what follows to the benchmark, and its exit code back."""
    given: list[list[str]] = []

    def measure(argv: list[str]) -> int:
        given.append(argv)
        return code

    monkeypatch.setattr(f"langchain_spectool.bench.{what}.main", measure)
    assert cli.main(["bench", what, "--json", "--repeats", "3"]) == code
    assert given == [["--json", "--repeats", "3"]]


def test_demo_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo` passes speed and format on, and exits with what it returns."""
    given: list[tuple[float, bool]] = []

    def show(*, speed: float, as_json: bool) -> int:
        given.append((speed, as_json))
        return 1

    monkeypatch.setattr("langchain_spectool.bench.demo.show", show)
    assert cli.main(["demo", "--json", "--speed", "2.5"]) == 1
    assert cli.main(["demo"]) == 1
    assert given == [(2.5, True), (1.0, False)]


def test_our_own_errors_end_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command cannot do is one line on stderr."""

    def show(**_: object) -> int:
        raise SpectoolError("there is no stage")

    monkeypatch.setattr("langchain_spectool.bench.demo.show", show)
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "spectool: there is no stage\n"


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control-C in the middle ends with the shell's code for it, not with a traceback."""

    def show(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("langchain_spectool.bench.demo.show", show)
    assert cli.main(["demo"]) == 130
