"""`read_traces`: each form is told by its content, and what is damaged is named and skipped."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    messages_to_dict,
)
from langchain_core.messages.tool import tool_call

from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces import lines
from langchain_spectool.traces.reading import read_traces, trace_files
from langchain_spectool.traces.trajectory import BadRecord, Trajectory

OPENAI = [
    {"role": "user", "content": "find it"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"q": "it"}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "found"},
]
MESSAGES: list[BaseMessage] = [
    HumanMessage("find it"),
    AIMessage("", tool_calls=[tool_call(name="look", args={"q": "it"}, id="c")]),
    ToolMessage("found", tool_call_id="c"),
]
"""What `OPENAI` spells."""
LANGCHAIN = messages_to_dict(MESSAGES)
RECORD = {"messages": OPENAI, "task_id": "t", "run": "r", "dataset": "shop", "tenant": "ann"}

Read = tuple[list[Trajectory], list[BadRecord]]


def _read(*paths: Path, **options: Any) -> Read:
    bad: list[BadRecord] = []
    options.setdefault("on_warning", lambda _: None)
    return [*read_traces(paths, on_bad=bad.append, **options)], bad


def _write(path: Path, *parts: object) -> Path:
    path.write_text("".join(json.dumps(part) + "\n" for part in parts))
    return path


def _reasons(bad: Sequence[BadRecord]) -> list[str]:
    return [str(each) for each in bad]


@pytest.mark.parametrize(
    "parts",
    [
        [{"messages": OPENAI}],
        [OPENAI],
        [{"messages": LANGCHAIN}],
        [LANGCHAIN],
        [{"messages": [dumpd(message) for message in MESSAGES]}],
        OPENAI,
        LANGCHAIN,
        [[{"messages": OPENAI}]],
        [[LANGCHAIN]],
    ],
    ids=[
        "openai",
        "openai list",
        "langchain",
        "langchain list",
        "constructors",
        "openai message a line",
        "langchain message a line",
        "list of records",
        "list of lists",
    ],
)
def test_every_form_is_the_same_run(tmp_path: Path, parts: list[object]) -> None:
    """The form is told by content: neither the name nor the spelling changes what is read."""
    ((run,), bad) = _read(_write(tmp_path / "any.thing", *parts))
    assert list(run.messages) == MESSAGES
    assert bad == []


def test_a_record_says_whose_run_it_is(tmp_path: Path) -> None:
    """Ids, tenant and data set come from the record."""
    ((run,), _) = _read(_write(tmp_path / "a.jsonl", RECORD))
    assert (run.run, run.task, run.tenant, run.dataset) == ("shop/t/r", "t", "ann", "shop")


def test_without_ids_a_run_is_its_place(tmp_path: Path) -> None:
    """Runs without names of their own are still told apart; a `run` alone may name a model."""
    bare = {"messages": OPENAI}
    path = _write(tmp_path / "a.jsonl", bare, {**bare, "run": "x"}, {**bare, "id": 7}, [bare, bare])
    runs, _ = _read(path)
    assert [run.run for run in runs] == [
        "a.jsonl:1",
        "a.jsonl:2",
        "a/7",
        "a.jsonl:4[0]",
        "a.jsonl:4[1]",
    ]
    assert {run.dataset for run in runs} == {"a"}


@pytest.mark.parametrize("indent", [1, 4])
def test_a_document_over_many_lines_is_one_value(tmp_path: Path, indent: int) -> None:
    """JSON that was written for people is read, too, with a mark at its start or without."""
    path = tmp_path / "a.json"
    path.write_text("\ufeff" + json.dumps([RECORD, RECORD], indent=indent))
    runs, bad = _read(path)
    assert [list(run.messages) for run in runs] == [MESSAGES] * 2
    assert bad == []


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    """Gzip is told by content as well, and progress counts bytes of the file as it lies there."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(json.dumps(RECORD).encode()))
    counts: list[int] = []
    ((run,), bad) = _read(path, on_bytes=counts.append)
    assert list(run.messages) == MESSAGES
    assert bad == []
    assert sum(counts) == path.stat().st_size


def test_a_packed_file_that_ends_early_keeps_what_came_before(tmp_path: Path) -> None:
    """A copy that broke off is read up to the break, which is named."""
    path = tmp_path / "a.jsonl.gz"
    records = "".join(
        f'{{"messages": [{{"role": "user", "content": "{n}"}}]}}\n' for n in range(9999)
    )
    packed = gzip.compress(records.encode())
    path.write_bytes(packed[: len(packed) // 2])
    runs, bad = _read(path)
    assert 0 < len(runs) < 9999
    assert _reasons(bad) == [f"a.jsonl.gz:{len(runs) + 1}: the file cannot be read on: EOFError"]


def test_a_packed_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    """What only begins like gzip ends the file, not the reading."""
    (tmp_path / "a").write_bytes(b"\x1f\x8b but no more than that")
    _write(tmp_path / "b", RECORD)
    runs, bad = _read(tmp_path)
    assert len(runs) == 1
    assert _reasons(bad) == ["a:1: the file cannot be read on: BadGzipFile"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"messages": [', "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b"1" * 5000, "not JSON"),
        (b"\0" * 100, "not text"),
        (b"{}", "it is no recorded run"),
        (b"7", "it is no recorded run"),
        (b"[]", "it has no messages"),
        (b'{"messages": {}}', "it is no recorded run"),
        (b'{"messages": []}', "it has no messages"),
        (b'{"messages": [{"role": "x"}]}', "message 1: 'x' is no kind of message"),
        (b'{"role": "user", "content": 7}', "`content` is text or a list of blocks"),
        (b'[{"messages": 1}]', "[0] it is no recorded run"),
        (b'{"run_type": "llm"}', "the run of type 'llm' has no `inputs.messages`"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_bad_line_is_named_and_skipped(tmp_path: Path, line: bytes, reason: str) -> None:
    """File, line and reason are told; the lines around it count, blank ones count for nothing."""
    good = json.dumps(RECORD).encode()
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([good, b"", line, b"  ", good]))
    runs, (bad,) = _read(path)
    assert len(runs) == 2
    assert str(bad).startswith(f"a.jsonl:3: {reason}")


def test_bad_lines_are_warnings_if_nobody_asks(tmp_path: Path) -> None:
    """Without a listener nothing is skipped in silence."""
    path = _write(tmp_path / "a.jsonl", {"messages": [], "tools": [{"name": "f"}]})
    with pytest.warns(RuntimeWarning, match=r"a.jsonl:1: it has no messages"):
        assert [*read_traces([path])] == []


def test_what_is_named_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Reasons quote what was read: control and direction signs are escaped."""
    hostile = "\x1b[2J\r\n\u202e\ud800"
    path = _write(tmp_path / "a.jsonl", {"messages": [{"role": hostile}]})
    path = path.rename(tmp_path / "a\x1b[2J.jsonl")
    _, (bad,) = _read(path)
    assert str(bad).isprintable()
    assert "\\x1b[2J" in str(bad)
    str(bad).encode()


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\xef\xbb\xbf"], ids=["nothing", "blank", "mark"])
def test_an_empty_file_holds_nothing(tmp_path: Path, text: bytes) -> None:
    """No run and at most the word that this is no JSON."""
    path = tmp_path / "empty"
    path.write_bytes(text)
    runs, bad = _read(path)
    assert runs == []
    assert len(bad) == (1 if text.startswith(b"\xef") else 0)


def test_a_foreign_file_is_named_once(tmp_path: Path) -> None:
    """Of a picture or a program, the first lines are told, not each of thousands."""
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 50)
    runs, bad = _read(path)
    assert runs == []
    assert str(bad[-1]) == "a.png:3: not text: no trace format that is known"
    assert len(bad) == 3


def test_a_line_too_long_is_skipped_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One endless line takes a bounded amount of memory and hides nothing behind it."""
    monkeypatch.setattr(lines, "MOST_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(RECORD)}\n{'x' * 5000}\n{json.dumps(RECORD)}\n")
    runs, bad = _read(path)
    assert len(runs) == 2
    assert _reasons(bad) == ["a.jsonl:2: the line has more than 1000 bytes"]


def test_a_document_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document cannot be read piece by piece, so there is a most it may hold."""
    monkeypatch.setattr(lines, "MOST_BYTES", 100)
    path = tmp_path / "a.json"
    path.write_text(json.dumps([RECORD], indent=1))
    runs, (bad,) = _read(path)
    assert runs == []
    assert "write one record a line" in str(bad)


def test_folders_stand_for_the_files_in_them(tmp_path: Path) -> None:
    """Files directly inside count, by name; hidden ones and what SQLite leaves there do not."""
    (tmp_path / "tools").mkdir()
    for name in ("b.jsonl", "a.jsonl", ".hidden", "x.db-wal", "x.db-shm", "tools/t.json"):
        _write(tmp_path / name, RECORD)
    assert [file.name for file in trace_files([tmp_path])] == ["a.jsonl", "b.jsonl"]
    runs, bad = _read(tmp_path, tmp_path / "a.jsonl")
    assert len(runs) == 3
    assert bad == []


@pytest.mark.parametrize("name", ["missing", "empty\x1b"])
def test_a_path_to_nothing_is_an_error(tmp_path: Path, name: str) -> None:
    """It is raised at once, before anything is read, and names the path printably."""
    (tmp_path / "empty\x1b").mkdir()
    with pytest.raises(SpectoolError) as caught:
        read_traces([tmp_path / name])
    assert name.strip("\x1b") in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_file_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be opened by the time its turn comes costs only itself."""
    first, second = _write(tmp_path / "a", RECORD), _write(tmp_path / "b", RECORD)
    bad: list[BadRecord] = []
    reading = read_traces([first, second], on_bad=bad.append, on_warning=lambda _: None)
    next(reading)
    second.unlink()
    assert [*reading] == []
    assert _reasons(bad) == ["b: it cannot be opened: No such file or directory"]


def test_reading_is_a_stream(tmp_path: Path) -> None:
    """A run is handed out before the next line is looked at."""
    path = _write(tmp_path / "a.jsonl", RECORD, 7)
    bad: list[BadRecord] = []
    reading = read_traces([path], on_bad=bad.append, on_warning=lambda _: None)
    next(reading)
    assert bad == []
    assert [*reading] == []
    assert len(bad) == 1


def _llm(trace: str, order: str, messages: object, **more: Any) -> dict[str, Any]:
    return {
        "run_type": "llm",
        "trace_id": trace,
        "dotted_order": order,
        "inputs": {"messages": messages},
        **more,
    }


def _generations(message: object) -> dict[str, Any]:
    return {"generations": [[{"text": "", "message": message}]]}


CALL, ANSWER = OPENAI[1], {"role": "assistant", "content": "done"}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ([OPENAI], _generations(dumpd(AIMessage("done")))),
        (OPENAI, _generations(messages_to_dict([AIMessage("done")])[0])),
        ([[dumpd(m) for m in MESSAGES]], {"generations": [{"message": dumpd(AIMessage("done"))}]}),
        (OPENAI, {"choices": [{"message": ANSWER}]}),
        (OPENAI, {"message": ANSWER}),
        (OPENAI, ANSWER),
    ],
    ids=["serialized", "plain", "constructors", "choices", "message", "bare"],
)
def test_an_exported_model_run_is_question_and_answer(
    tmp_path: Path, asked: object, answered: object
) -> None:
    """Serialized and OpenAI's forms give what the model was asked, and then its answer."""
    ((run,), bad) = _read(_write(tmp_path / "a.jsonl", _llm("t1", "1", asked, outputs=answered)))
    assert list(run.messages) == [*MESSAGES, AIMessage("done")]
    assert (run.run, run.task) == ("a/t1", "t1")
    assert bad == []


def test_of_a_trace_the_longest_list_counts(tmp_path: Path) -> None:
    """Runs come in any order; traces are given out in the order in which they began."""
    path = _write(
        tmp_path / "a.jsonl",
        _llm("late", "9", OPENAI[:1]),
        _llm("early", "2", OPENAI),
        {"run_type": "tool", "trace_id": "early", "inputs": {}},
        _llm("early", "1", OPENAI[:1]),
        _llm("late", "8", OPENAI[:1], outputs=_generations(CALL)),
    )
    runs, bad = _read(path)
    assert [(run.task, len(run.messages)) for run in runs] == [("early", 3), ("late", 2)]
    assert bad == []


def test_of_equal_lists_the_later_one_counts(tmp_path: Path) -> None:
    """`start_time` orders runs where `dotted_order` is missing."""
    runs = [
        {
            **_llm("t", "", [{"role": "user", "content": text}]),
            "dotted_order": None,
            "start_time": s,
        }
        for text, s in (("b", "2026-02"), ("a", "2026-01"))
    ]
    ((run,), _) = _read(_write(tmp_path / "a.jsonl", *runs))
    assert [message.content for message in run.messages] == ["b"]


def test_a_root_chain_holds_the_whole_conversation(tmp_path: Path) -> None:
    """The state that a graph ended with counts; that of its parts does not."""
    root = {"run_type": "chain", "trace_id": "t", "outputs": {"messages": LANGCHAIN}}
    inner = {**root, "parent_run_id": "x", "outputs": {"messages": [*LANGCHAIN, *LANGCHAIN]}}
    ((run,), bad) = _read(_write(tmp_path / "a.jsonl", inner, root, {**root, "outputs": None}))
    assert list(run.messages) == MESSAGES
    assert bad == []


def test_an_export_names_the_tools_of_its_requests(tmp_path: Path) -> None:
    """What was bound is known by the parameters of the request."""
    bound = [{"type": "function", "function": {"name": "look"}}, {"function": {"name": "pay"}}]
    extra = {"invocation_params": {"tools": bound}}
    warnings: list[str] = []
    path = _write(
        tmp_path / "a.jsonl", _llm("t", "1", OPENAI[:1], extra=extra), _llm("t", "2", OPENAI)
    )
    ((run,), _) = _read(path, on_warning=warnings.append)
    assert [tool.name for tool in run.tools] == ["look", "pay"]
    assert warnings == []


def test_an_exported_run_without_a_trace_is_named(tmp_path: Path) -> None:
    """A run that belongs nowhere is skipped."""
    run = {**_llm("t", "1", OPENAI), "trace_id": None}
    runs, (bad,) = _read(_write(tmp_path / "a.jsonl", run))
    assert runs == []
    assert "neither `trace_id` nor `id`" in str(bad)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [*RECORD, *OPENAI[1], *_llm("", "", 0), "arguments", "choices", "data", "extra"]
            )
            | st.sampled_from(
                ["function", "generations", "id", "invocation_params", "kwargs", "message"]
            )
            | st.sampled_from(["name", "outputs", "parent_run_id", "tools", "tools_ref", "type"]),
            inner | st.sampled_from(["assistant", "user", "ai", "llm", "chain", "t"]),
            max_size=6,
        )
    ),
    max_leaves=30,
)
"""Any JSON, and more of what nearly is a record."""


@given(st.lists(JSON.map(json.dumps) | st.text(max_size=20), max_size=6))
def test_any_lines_are_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    """Whatever a file holds, nothing is raised."""
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_bytes("\n".join(texts).encode(errors="surrogatepass"))
    runs, bad = _read(path)
    assert all(run.messages for run in runs)
    assert all(str(each).isprintable() for each in bad)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x1f\x8b", b"SQLite format 3\0", b"[\n"]))
def test_any_bytes_are_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes, start: bytes
) -> None:
    """The same for files that are no text at all."""
    path = tmp_path_factory.mktemp("any") / "a"
    path.write_bytes(start + rest)
    _read(path)
