"""Checkpoint databases: what real savers wrote is read, and nothing in them runs."""

import operator
import os
import pickle
import sqlite3
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_spectool.testing import ScriptedModel, calls, text
from langchain_spectool.traces.reading import read_traces
from langchain_spectool.traces.trajectory import BadRecord, Trajectory


@tool
def look(q: str) -> str:
    """Look."""
    return f"found {q}"


def _saved(path: Path, use: Callable[[SqliteSaver], Any]) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        use(saver)


def _agent(state: type, saver: SqliteSaver | None = None) -> Any:
    model = ScriptedModel(script=_next).bind_tools([look])
    graph = StateGraph(state)
    graph.add_node("agent", lambda given: {"messages": [model.invoke(given["messages"])]})
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)


def _next(messages: list[BaseMessage]) -> AIMessage:
    return text("done") if messages[-1].type == "tool" else calls(("look", {"q": "it"}))


def _config(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def _read(path: Path) -> tuple[list[Trajectory], list[BadRecord]]:
    bad: list[BadRecord] = []
    return [*read_traces([path], on_bad=bad.append, on_warning=lambda _: None)], bad


def _told(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Return what messages say, without what is said about them."""
    return [message.model_dump(exclude={"response_metadata"}) for message in messages]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, list[BaseMessage]]]:
    """Run an agent in two threads, the first one twice, and keep what it said."""
    said: dict[str, list[BaseMessage]] = {}

    def use(saver: SqliteSaver) -> None:
        agent = _agent(MessagesState, saver)
        for thread in ("one", "two", "one"):
            state = agent.invoke({"messages": [("user", "find it")]}, _config(thread))
            said[thread] = state["messages"]

    path = tmp_path / "runs.sqlite"
    _saved(path, use)
    return path, said


def test_each_thread_is_a_run(saved: tuple[Path, dict[str, list[BaseMessage]]]) -> None:
    """The latest checkpoint counts, with all that the state's messages say."""
    path, said = saved
    runs, bad = _read(path)
    assert {run.task: _told(run.messages) for run in runs} == {
        thread: _told(messages) for thread, messages in said.items()
    }
    assert [run.run for run in runs] == ["runs/one", "runs/two"]
    assert len(said["one"]) == 8
    assert bad == []


def test_reading_leaves_nothing_behind(saved: tuple[Path, object]) -> None:
    """Neither the database nor its folder changes, even where both may be written."""
    path, _ = saved
    before = path.read_bytes()
    _read(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_database_in_use_is_read(tmp_path: Path) -> None:
    """What a running agent has committed is seen, also while it is only in the log."""
    path = tmp_path / "runs.sqlite"

    def use(saver: SqliteSaver) -> None:
        _agent(MessagesState, saver).invoke({"messages": [("user", "find it")]}, _config("one"))
        ((run,), bad) = _read(path)
        assert len(run.messages) == 4
        assert bad == []

    _saved(path, use)


def test_nested_graphs_are_not_counted_twice(tmp_path: Path) -> None:
    """What a subgraph said, its parent says, too: only what nobody repeats is a run of its own."""

    class Parent(MessagesState):
        scratch: Annotated[list[BaseMessage], operator.add]

    def use(saver: SqliteSaver) -> None:
        graph = StateGraph(Parent)
        graph.add_node("inner", _agent(MessagesState))
        graph.add_node("note", lambda _: {"scratch": [AIMessage("aside", id="aside")]})
        graph.add_edge(START, "inner")
        graph.add_edge("inner", "note")
        graph.compile(checkpointer=saver).invoke(
            {"messages": [("user", "find it")], "scratch": []}, _config("one")
        )

    path = tmp_path / "runs.sqlite"
    _saved(path, use)
    runs, bad = _read(path)
    assert {run.run: len(run.messages) for run in runs} == {"runs/one": 4, "runs/one/scratch": 1}
    assert bad == []


class Deltas(TypedDict):
    """A state whose messages are stored as what was added."""

    messages: Annotated[
        list[BaseMessage],
        DeltaChannel(lambda state, writes: reduce(add_messages, writes, state)),
    ]


@pytest.fixture
def deltas(tmp_path: Path) -> Path:
    """Run an agent with such a state."""
    path = tmp_path / "runs.sqlite"
    _saved(
        path,
        lambda saver: _agent(Deltas, saver).invoke(
            {"messages": [HumanMessage("find it")]}, _config("one")
        ),
    )
    return path


def test_messages_stored_as_deltas_are_put_together(deltas: Path) -> None:
    """Checkpoints that hold only what was added give the same conversation."""
    ((run,), bad) = _read(deltas)
    assert [message.type for message in run.messages] == ["human", "ai", "tool", "ai"]
    assert bad == []


def test_deltas_need_the_library(deltas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the reason says which package to install."""
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)
    runs, (bad,) = _read(deltas)
    assert runs == []
    assert "pip install langgraph-checkpoint-sqlite" in str(bad)


def test_damaged_deltas_are_named(deltas: Path) -> None:
    """A value that is no message costs its thread only."""
    with sqlite3.connect(deltas) as connection:
        connection.execute(
            "UPDATE writes SET type = 'json', value = '7' WHERE channel = 'messages'"
        )
    connection.close()
    runs, (bad,) = _read(deltas)
    assert runs == []
    assert "its deltas are damaged" in str(bad)


def _tables(path: Path, *rows: tuple[object, ...]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint)"
        )
        connection.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()


def test_old_databases_hold_json(tmp_path: Path) -> None:
    """Before msgpack, checkpoints were JSON with serialized constructors: read as plain data."""
    stored = (
        b'{"channel_values": {"messages": [{"lc": 1, "type": "constructor", "id": ["langchain", '
        b'"schema", "messages", "AIMessage"], "kwargs": {"content": "", "tool_calls": '
        b'[{"name": "look", "args": {"q": "it"}, "id": "c"}]}}]}}'
    )
    _tables(tmp_path / "old.db", ("one", "", "1", "json", stored))
    ((run,), bad) = _read(tmp_path / "old.db")
    (message,) = run.messages
    assert message == AIMessage("", tool_calls=[tool_call(name="look", args={"q": "it"}, id="c")])
    assert bad == []


@dataclass
class Planted:
    """What an attacker would like to have run."""

    folder: str

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.folder,))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """A pickle is named and skipped, and does not run."""
    made = tmp_path / "made"
    _tables(tmp_path / "a.db", ("one", "", "1", "pickle", pickle.dumps(Planted(str(made)))))
    runs, (bad,) = _read(tmp_path / "a.db")
    assert runs == []
    assert "stored as 'pickle', which is not read" in str(bad)
    assert not made.exists()


@pytest.mark.parametrize("code", range(8))
def test_no_type_is_built_by_name(tmp_path: Path, code: int) -> None:
    """Msgpack may name any class or method of any module: only known types are built."""
    ormsgpack = pytest.importorskip("ormsgpack")
    marker = tmp_path / "marker"
    inner = ormsgpack.packb(("pathlib", "os", {"path": str(marker)}, "mkdir"))
    evil = ormsgpack.packb(("subprocess", "call", (["touch", str(marker)],), "call"))
    stored = [
        ormsgpack.packb({"channel_values": {"messages": [ormsgpack.Ext(code, part)]}})
        for part in (inner, evil)
    ]
    _tables(
        tmp_path / "a.db",
        *((str(n), "", "1", "msgpack", part) for n, part in enumerate(stored)),
    )
    runs, _ = _read(tmp_path / "a.db")
    assert runs == []
    assert not marker.exists()


@pytest.mark.parametrize(
    ("kind", "stored", "reason"),
    [
        ("msgpack", b"\xc1", "it is damaged"),
        ("msgpack", b"", "it is damaged"),
        ("msgpack", None, "it is damaged"),
        ("msgpack", b"\x80", "no `channel_values`"),
        ("json", b"{", "it is damaged"),
        ("json", b"[" * 100_000, "it is damaged"),
        ("json", b"7", "no `channel_values`"),
        (None, None, "stored as None"),
        ("msgpack+aes", b"", "stored as 'msgpack+aes'"),
        ("json", b'{"channel_values": {"messages": [{"role": "user"}, 7]}}', "message 2"),
    ],
)
def test_a_damaged_checkpoint_is_named(
    tmp_path: Path, kind: str | None, stored: bytes | None, reason: str
) -> None:
    """It costs its own thread, and the reason is printable whatever the thread is called."""
    good = b'{"channel_values": {"messages": [{"role": "user", "content": "hi"}], "n": 1}}'
    _tables(
        tmp_path / "a.db",
        ("bad\x1b[2J", "", "1", kind, stored),
        ("good", "", "1", "json", good),
    )
    ((run,), (bad,)) = _read(tmp_path / "a.db")
    assert run.task == "good"
    assert str(bad).startswith("a.db: thread 'bad\\x1b[2J', checkpoint '1': ")
    assert reason in str(bad)
    assert str(bad).isprintable()


def test_another_database_is_named(tmp_path: Path) -> None:
    """A database of something else has no checkpoints."""
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE cats (name)")
    connection.close()
    runs, (bad,) = _read(tmp_path / "a.db")
    assert runs == []
    assert str(bad) == "a.db: it is no sound checkpoint database: no such table: checkpoints"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a database that an agent left."""
    path = tmp_path_factory.mktemp("sound") / "a.db"
    asked = {"messages": [("user", "find it")]}
    _saved(path, lambda saver: _agent(MessagesState, saver).invoke(asked, _config("one")))
    return path.read_bytes()


@given(place=st.integers(0, 30_000), junk=st.binary(min_size=1, max_size=64))
def test_a_damaged_database_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, place: int, junk: bytes
) -> None:
    """Any bytes overwritten in a real database: runs or reasons, nothing else."""
    path = tmp_path_factory.mktemp("db") / "a.db"
    path.write_bytes(sound[:place] + junk + sound[place + len(junk) :])
    _, bad = _read(path)
    assert all(str(each).isprintable() for each in bad)
