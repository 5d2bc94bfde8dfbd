"""The example agents reach their goals, and say the same things with and without speculation."""

import asyncio
import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("swe_agent", "search_agent")
FORMS = {"create_agent": False, "graph": True}
SPEED = 20.0


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the examples find each other, as they do when run as scripts."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


def _run(name: str, *, speculative: bool, plain_graph: bool, is_async: bool) -> tuple[Any, ...]:
    """Run one arm of an example; returns its messages, whether it got there, and its report."""
    built = _module(name).build_agent(speculative, plain_graph=plain_graph, speed=SPEED)
    with built as example:
        if is_async:
            state = asyncio.run(example.graph.ainvoke(example.inputs))
        else:
            state = example.graph.invoke(example.inputs)
        report = example.speculation.report() if example.speculation else None
        messages = state["messages"]
        return _module("example").comparable(messages), example.verify(messages), report


@cache
def _stock(name: str, *, plain_graph: bool) -> tuple[Any, ...]:
    return _run(name, speculative=False, plain_graph=plain_graph, is_async=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_stock_agent_reaches_its_goal(name: str, form: str) -> None:
    """Without speculation the tests end green, and the answer names the right documents."""
    messages, reached, report = _stock(name, plain_graph=FORMS[form])
    turns = [each for each in messages if each[0] == "ai"]
    assert reached
    assert report is None
    assert 4 <= len(turns) <= 8
    assert any(len(calls) > 1 for _, _, calls, *_ in turns)


@pytest.mark.parametrize("is_async", [True, False], ids=["ainvoke", "invoke"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_speculative_agent_says_the_same(name: str, form: str, *, is_async: bool) -> None:
    """With speculation the same messages come, some of them from guesses."""
    stock, *_ = _stock(name, plain_graph=FORMS[form])
    messages, reached, report = _run(
        name, speculative=True, plain_graph=FORMS[form], is_async=is_async
    )
    assert messages == stock
    assert reached
    assert report.hits > 0


def test_command_line_compares_both_arms(capsys: pytest.CaptureFixture[str]) -> None:
    """Run without a key, an example prints that the messages were the same and exits with 0."""
    assert _module("search_agent").main(["--speed", str(SPEED)]) == 0
    assert "same messages in both arms: yes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv", [["--draft", "openai:small"], ["--base-url", "http://127.0.0.1"], ["--speed", "0"]]
)
def test_command_line_refuses_what_it_cannot_do(argv: list[str]) -> None:
    """Options that need another one, and a speed that is none, end with a message."""
    with pytest.raises(SystemExit) as ended:
        _module("search_agent").main(argv)
    assert ended.value.code


def test_main_and_draft_disagree_at_times() -> None:
    """The draft of the repair agent guesses right on some turns and wrong on others."""
    scripted, script = _module("scripted"), _module("swe_script")
    built = _module("swe_agent").build_agent(False, speed=SPEED)
    with built as example:
        messages = asyncio.run(example.graph.ainvoke(example.inputs))["messages"]
    right = wrong = 0
    for position, message in enumerate(messages):
        if message.type == "ai":
            said = [(made["name"], made["args"]) for made in message.tool_calls]
            guesses = script.draft_turn(messages[:position]).tool_calls
            hits = sum((made["name"], made["args"]) in said for made in guesses)
            right, wrong = right + hits, wrong + len(guesses) - hits
    assert scripted.DRAFT_TOKENS_PER_S > scripted.TOKENS_PER_S
    assert right > wrong > 0


class TestProjectTools:
    """The repair agent's tools stay inside the project and say what went wrong."""

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        """Make a project of one file, beside a secret and with a link to it."""
        project = tmp_path.resolve() / "project"
        project.mkdir()
        (project / "a.py").write_text("x = 1\nx = 1\n")
        (tmp_path / "secret.txt").write_text("secret")
        (project / "link.txt").symlink_to(tmp_path / "secret.txt")
        return project

    def _call(self, project: Path, name: str, **args: str) -> Any:
        tools = {each.name: each for each in _module("swe_agent").project_tools(project, 0)}
        return tools[name].invoke({"name": name, "args": args, "id": "1", "type": "tool_call"})

    @pytest.mark.parametrize(
        ("name", "args"),
        [
            ("read_file", {"path": "../secret.txt"}),
            ("read_file", {"path": os.fspath(Path("/etc/passwd"))}),
            ("read_file", {"path": "link.txt"}),
            ("read_file", {"path": "missing.py"}),
            ("read_file", {"path": "a\0b"}),
            ("list_files", {"path": ".."}),
            ("grep", {"pattern": "secret", "path": ".."}),
            ("grep", {"pattern": "("}),
            ("edit_file", {"path": "../secret.txt", "old": "secret", "new": ""}),
            ("edit_file", {"path": "a.py", "old": "x = 1", "new": "x = 2"}),
        ],
    )
    def test_refusals_are_told_to_the_model(
        self, project: Path, name: str, args: dict[str, str]
    ) -> None:
        """Paths outside the project, unreadable files and unclear edits are errors, not crashes."""
        assert self._call(project, name, **args).status == "error"
        assert (project.parent / "secret.txt").read_text() == "secret"
        assert (project / "a.py").read_text() == "x = 1\nx = 1\n"

    def test_searching_does_not_follow_links_out(self, project: Path) -> None:
        """A search of the whole project leaves out what a link points to."""
        assert self._call(project, "grep", pattern="secret").content == "no line matches"

    def test_freshness_follows_the_files_a_call_reads(self, project: Path) -> None:
        """An edit changes the token of calls that read the file, and of no other."""
        (project / "b.py").write_text("y = 1\n")
        token = _module("swe_agent").freshness_in(project)
        calls = [{"path": "a.py"}, {"path": "b.py"}, {"pattern": "x"}]
        before = [token(args) for args in calls]
        (project / "a.py").write_text("x = 22\n")
        after = [token(args) for args in calls]
        assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, False]


class TestDocIndex:
    """The documents are many, and come without importing anything."""

    def test_several_hundred_documents_are_found(self) -> None:
        """The index knows the documents the question is about, and no joke modules."""
        documents = _module("doc_service").stdlib_index().documents
        assert len(documents) > 300
        assert set(_module("search_agent").EXPECTED) <= documents.keys()
        assert not {"antigravity", "this"} & documents.keys()

    def test_a_missing_document_is_an_answer(self) -> None:
        """Reading an id that does not exist tells the model to search first."""
        service = _module("doc_service")
        with service.serving(service.DocIndex({"a.b": "text " * 20}), 0) as address:
            read_doc = _module("search_agent").doc_tools(address)[1]
            assert "search for its id" in read_doc.invoke({"doc_id": "a.c"})
