"""What the documents show runs, and what they list is complete."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from pytest_examples import find_examples

from langchain_spectool import Policy
from langchain_spectool._core import verdicts
from langchain_spectool._core.contracts import Contract
from langchain_spectool.telemetry.report import Report
from langchain_spectool.testing import ScriptedModel, text

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROSE = [*PAGES, ROOT / "examples" / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
SHORTEST_AGENT = 12
"""Lines the whole agent of the README may take."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path) -> list[tuple[int, str]]:
    """Return the Python blocks of a page, with the lines they start on."""
    return [
        (example.start_line, example.source)
        for example in find_examples(page)
        if example.prefix == "python"
    ]


def _answer(_: list[BaseMessage]) -> AIMessage:
    return text("nothing to call")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every `provider:name` be a scripted model."""

    def scripted(*_: Any, **__: Any) -> ScriptedModel:
        return ScriptedModel(script=_answer)

    monkeypatch.setattr("langchain.chat_models.init_chat_model", scripted)
    monkeypatch.setattr("langchain.agents.factory.init_chat_model", scripted)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_blocks_run(page: Path) -> None:
    """The blocks of a page run from top to bottom, each after those before it."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for line, source in _blocks(page):
        padded = "\n" * line + source  # so that a traceback names the line of the page
        exec(compile(padded, page, "exec"), namespace)  # noqa: S102 - the page is ours


def test_agent_without_a_key_is_short_and_hits(capsys: pytest.CaptureFixture[str]) -> None:
    """The README's whole agent has at most 12 lines, answers, and is answered early."""
    source = next(each for _, each in _blocks(ROOT / "README.md") if "ScriptedModel" in each)
    assert len([line for line in source.splitlines() if line.strip()]) <= SHORTEST_AGENT
    exec(source, {"__name__": "page"})  # noqa: S102 - the page is ours
    printed = capsys.readouterr().out
    assert printed.startswith("Six. ")
    assert "1 hits, 0 misses, 0 wasted" in printed


@pytest.mark.parametrize("page", PROSE, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link leads to a file that exists, and to a heading it has."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
        where, _, heading = target.partition("#")
        file = (page.parent / where).resolve() if where else page
        assert file.exists(), target
        if heading:
            assert heading in _anchors(file), target


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-") for each in headings}


def _first_column(page: str, header: str) -> set[str]:
    """Return the names in backticks of a table's first column."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    rows = iter(lines[lines.index(header) + 2 :])
    names: set[str] = set()
    for row in rows:
        if not row.startswith("|"):
            break
        names.update(re.findall(r"`(\w+)`", row.split("|")[1]))
    return names


def _defaults(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_field_of_a_contract_is_listed() -> None:
    """The page on contracts lists all fields; the README all that can be used."""
    header = "| field | default | meaning |"
    assert _first_column("docs/contracts.md", header) == _defaults(Contract)
    assert _first_column("README.md", header) == _defaults(Contract)


def test_every_field_of_the_policy_is_listed() -> None:
    """The page on safety lists every limit."""
    assert _first_column("docs/safety.md", "| field | default | meaning |") == _defaults(Policy)


def test_every_figure_of_the_report_is_listed() -> None:
    """The page on observability lists every field and property of a report."""
    properties = {name for name, each in vars(Report).items() if isinstance(each, property)}
    listed = _first_column("docs/observability.md", "| field | meaning |")
    assert listed == _defaults(Report) | properties


NAMED: Mapping[str, tuple[Any, str]] = {
    "guess": (verdicts.GuessVerdict, "| verdict | meaning |"),
    "claim": (verdicts.ClaimVerdict, "| verdict | the call was |"),
    "idle": (verdicts.IdleReason, "| reason | meaning, and what to do |"),
}


@pytest.mark.parametrize("what", NAMED)
def test_every_verdict_is_listed(what: str) -> None:
    """The page on observability explains every named reason, and no other."""
    names, header = NAMED[what]
    assert _first_column("docs/observability.md", header) == set(get_args(names))


def test_every_reason_to_discard_is_listed() -> None:
    """The page on observability names every reason for which an early run is dropped."""
    page = (ROOT / "docs" / "observability.md").read_text("utf-8")
    sentence = re.search(r"Of an early run that answered nothing: (.+?)\n\n", page, re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == set(get_args(verdicts.DiscardReason))
