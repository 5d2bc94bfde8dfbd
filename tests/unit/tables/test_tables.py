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
from langchain_spectool.bench.tables.command import RESULTS, rewritten
from langchain_spectool.bench.tables.schema import FILES, Results, read_results
from langchain_spectool.errors import SpectoolError

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "benchmarks.md"


@pytest.fixture(scope="module")
def results() -> Results:
    """Read what is committed."""
    return read_results(ROOT / RESULTS)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what the command reads and writes."""
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / RESULTS, tmp_path / RESULTS)
    return tmp_path


def test_no_table_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails: `make tables`."""
    assert cli.main(["bench", "tables", "--check", "--root", str(ROOT)]) == 0, (
        capsys.readouterr().err
    )


def test_every_table_is_shown_somewhere() -> None:
    """No block is written for nobody."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "README.md", PAGE))
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


@pytest.mark.parametrize("name", FILES)
def test_a_result_with_other_keys_is_refused(checkout: Path, name: str) -> None:
    """A key that is not documented, or one that is missing, is named."""
    path = checkout / RESULTS / f"{name}.json"
    found = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**found, "mood": "good"}), "utf-8")
    with pytest.raises(SpectoolError, match=f"bench {name}`: `mood`"):
        read_results(checkout / RESULTS)
    del found["date"]
    path.write_text(json.dumps(found), "utf-8")
    with pytest.raises(SpectoolError, match=f"bench {name}`: `date`"):
        read_results(checkout / RESULTS)
    path.unlink()
    with pytest.raises(SpectoolError, match=f"`spectool bench {name} --json` prints it"):
        read_results(checkout / RESULTS)


@pytest.mark.parametrize("name", FILES)
def test_rows_have_no_other_fields(name: str, results: Results) -> None:
    """What is committed is what is read: nothing is left out, at any depth."""
    path = ROOT / RESULTS / f"{name}.json"
    dumped = json.loads(getattr(results, name).model_dump_json(exclude_unset=True))
    assert _keys(dumped) == _keys(json.loads(path.read_text("utf-8")))


def _keys(found: Any, place: str = "") -> set[str]:
    """Return every path of keys."""
    if isinstance(found, list):
        return {key for each in found for key in _keys(each, f"{place}[]")}
    if not isinstance(found, dict):
        return {place}
    return {key for name, each in found.items() for key in _keys(each, f"{place}.{name}")}


@pytest.mark.parametrize("name", FILES)
def test_every_field_is_documented(name: str) -> None:
    """docs/benchmarks.md names each key of each file."""
    named = {*re.findall(r"`(?:\w+\.)?(\w+)`", PAGE.read_text("utf-8"))}
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
