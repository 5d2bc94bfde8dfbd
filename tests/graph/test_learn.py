"""`spectool learn`: what is read reaches the patterns, and the file is written or it is not."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from langchain_spectool import cli
from langchain_spectool.bench import learn
from langchain_spectool.speculators.patterns.store import PatternFileError
from langchain_spectool.traces.trajectory import Trajectory

RECORD = {
    "messages": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "1", "function": {"name": "look", "arguments": "{}"}},
                {"id": "2", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "found"},
        {"role": "assistant", "content": "done"},
    ],
    "tools": [{"name": "look", "x_read_only": True}],
}


class Noted:
    """Stands for `Patterns`: its state is the runs it was told, and how it was made."""

    def __init__(self, runs: Iterable[str] = (), **settings: Any) -> None:
        self.settings = settings
        self.runs = [*runs]

    def fit(self, trajectories: Iterable[Trajectory]) -> None:
        self.runs += [each.run for each in trajectories]

    def save(self, path: str) -> None:
        Path(path).write_text(json.dumps({"runs": self.runs, "settings": self.settings}))


def _read(path: str, **settings: Any) -> list[str]:
    """Stand for `read_patterns`."""
    text = Path(path).read_text()
    if text == "as it was":
        raise PatternFileError(f"{path} is damaged:\x1b[2J learn it anew")
    return json.loads(text)["runs"]


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `Noted` stand for `Patterns`; write two runs around a bad line, and go there."""
    monkeypatch.setattr(learn, "Patterns", Noted)
    monkeypatch.setattr(learn, "read_patterns", _read)
    monkeypatch.chdir(tmp_path)
    line = json.dumps(RECORD)
    (tmp_path / "runs.jsonl").write_text(f"{line}\n{{\n{line}\n")
    return tmp_path


def test_what_is_learned_is_counted(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs, turns, calls, bad lines, bytes and seconds are printed, bad lines named on stderr."""
    assert cli.main(["learn", "runs.jsonl", "-o", "p.json", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found.pop("seconds") >= 0
    assert found == {
        "runs": 2,
        "turns": 4,
        "calls": 4,
        "bad_lines": 1,
        "bytes": (traces / "p.json").stat().st_size,
    }
    assert printed.err.startswith("spectool: skipped runs.jsonl:2: not JSON")
    assert json.loads((traces / "p.json").read_text()) == {
        "runs": ["runs.jsonl:1", "runs.jsonl:3"],
        "settings": {},
    }


def test_people_get_a_line(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--json`, the same in words."""
    assert cli.main(["learn", "runs.jsonl", "-o", "p.json"]) == 0
    assert capsys.readouterr().out.startswith("p.json: 4 calls in 4 turns of 2 runs learned in ")


def test_merging_adds_to_the_file(traces: Path) -> None:
    """`--merge` goes on from what is there, and starts anew where nothing is."""
    assert cli.main(["learn", "runs.jsonl", "-o", "p.json", "--merge"]) == 0
    assert cli.main(["learn", "runs.jsonl", "-o", "p.json", "--merge"]) == 0
    assert len(json.loads((traces / "p.json").read_text())["runs"]) == 4
    assert cli.main(["learn", "runs.jsonl", "-o", "p.json"]) == 0
    assert len(json.loads((traces / "p.json").read_text())["runs"]) == 2


def test_how_often_a_value_must_be_seen_is_passed_on(traces: Path) -> None:
    """`--shared-across` reaches the patterns."""
    assert cli.main(["learn", "runs.jsonl", "-o", "p.json", "--shared-across", "5"]) == 0
    assert json.loads((traces / "p.json").read_text())["settings"] == {"shared_across": 5}


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["missing", "-o", "p.json"], "'missing' is neither a file nor a folder"),
        (["empty", "-o", "p.json"], "no recorded run is in 'empty'"),
        (["runs.jsonl", "-o", "p.json", "--tools", "empty"], "tools file 'empty' cannot be used"),
        (["runs.jsonl", "-o", "nowhere/p.json"], "'nowhere/p.json' cannot be written"),
        (["runs.jsonl", "-o", "p.json", "--shared-across", "0"], "1 run or more, got 0"),
        (["runs.jsonl", "-o", "p.json", "--merge"], "p.json is damaged:\\x1b[2J learn it anew"),
        (["runs.jsonl", "-o", "folder", "--merge"], "'folder' cannot be read: Is a directory"),
    ],
    ids=lambda part: str(part)[-30:],
)
def test_unusable_input_ends_with_2(
    traces: Path, capsys: pytest.CaptureFixture[str], argv: list[str], reason: str
) -> None:
    """One line on stderr says what is wrong; no file is written, and none is overwritten."""
    (traces / "empty").touch()
    (traces / "folder").mkdir()
    (traces / "p.json").write_text("as it was")
    assert cli.main(["learn", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert reason in printed.err.splitlines()[-1]
    assert (traces / "p.json").read_text() == "as it was"


@pytest.mark.parametrize("argv", [[], ["runs.jsonl"], ["runs.jsonl", "-o", "p", "--shared-across"]])
def test_wrong_usage_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Missing arguments end with usage on stderr."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["learn", *argv])
    assert ended.value.code == 2
    assert "usage: spectool learn" in capsys.readouterr().err


def test_real_patterns_are_learned_merged_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From recordings to a file, from the file to guesses: a habit is guessed right."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.jsonl").write_text(f"{json.dumps(RECORD)}\n" * 12)
    learned = ["learn", "runs.jsonl", "-o", "p.json", "--shared-across", "2"]
    assert cli.main(learned) == 0
    assert cli.main([*learned, "--merge"]) == 0
    capsys.readouterr()
    assert cli.main(["replay", "runs.jsonl", "--patterns", "p.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["read_only"]["hit@1"], found["read_only"]["n"], found["errors"]) == (1, 12, 0)
    assert cli.main(["replay", "runs.jsonl", "--patterns", "missing.json"]) == 2
    (tmp_path / "p.json").write_text("{")
    assert cli.main(["replay", "runs.jsonl", "--patterns", "p.json"]) == 2
    assert cli.main([*learned, "--merge"]) == 2
    assert (tmp_path / "p.json").read_text() == "{"
    assert "learn it anew" in capsys.readouterr().err


@pytest.mark.parametrize("runs", [1, 3])
def test_runs_without_tools_are_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: int
) -> None:
    """What is left out is said, and the rest is learned; a name is written once 3 runs had it."""
    bare = json.dumps({"messages": RECORD["messages"]})
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{bare}\n" * runs)
    assert cli.main(["learn", str(path), "-o", str(tmp_path / "p.json")]) == 0
    printed = capsys.readouterr()
    assert "left out are their schemas and which of them only read" in printed.err
    assert "all else is used" in printed.err
    assert f"{2 * runs} calls in {2 * runs} turns of {runs} runs learned" in printed.out
    assert ('"look"' in (tmp_path / "p.json").read_text()) == (runs == 3)
