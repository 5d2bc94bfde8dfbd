"""Conversations in a LangGraph checkpoint database of SQLite.

A database is data that others may have written: it is opened for reading only, nothing in it is
unpickled, and of the types it names only LangChain's messages and plain values are built.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial, reduce
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage

from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces.messages import is_message, messages_from
from langchain_spectool.traces.records import stem
from langchain_spectool.traces.trajectory import (
    Conversation,
    UnreadableError,
    is_list,
    is_mapping,
)

_SIGNATURE: Final = b"SQLite format 3\0"
_LATEST: Final = """
    SELECT thread_id, checkpoint_ns, MAX(checkpoint_id) FROM checkpoints
    GROUP BY thread_id, checkpoint_ns ORDER BY thread_id, checkpoint_ns
"""
_ONE: Final = """
    SELECT type, checkpoint FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
"""
_MESSAGES: Final = "messages"
_Key = tuple[str, str, str]
"""Thread, namespace and checkpoint."""


def is_database(path: Path) -> bool:
    """Say whether a file is a database of SQLite."""
    with path.open("rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE


def conversations(path: Path, on_bad: Callable[[str], None]) -> Iterator[Conversation]:
    """Yield what the latest checkpoint of each thread and namespace holds.

    A list of messages that another one of its thread contains is left out: nested graphs often
    repeat what their parent says.

    Raises:
        SpectoolError: LangGraph's packages, needed to read checkpoints, are not installed.
    """
    store = _Store(path)
    try:
        with closing(_connected(path)) as connection:
            keys: list[_Key] = connection.execute(_LATEST).fetchall()
            for thread, group in groupby(keys, key=lambda key: key[0]):
                found = store.lists(connection, [*group], on_bad)
                for name, messages in _distinct(found):
                    yield Conversation(
                        messages=messages,
                        run=f"{stem(path)}/{thread}{name and f'/{name}'}",
                        task=str(thread),
                        dataset=stem(path),
                    )
    except (sqlite3.Error, UnicodeError) as error:  # sqlite3 reports damage in damaged words
        on_bad(f"it is no sound checkpoint database: {error}")


def _connected(path: Path) -> sqlite3.Connection:
    # Without a log beside it nobody is writing, and then nothing is written beside it for us.
    logs = [path.with_name(path.name + end) for end in ("-wal", "-journal")]
    alone = "" if any(log.exists() for log in logs) else "&immutable=1"
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{alone}", uri=True)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _distinct(found: Mapping[str, tuple[BaseMessage, ...]]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name, messages in sorted(found.items(), key=lambda item: -len(item[1])):
        said = {message.id for message in messages if isinstance(message, AIMessage) and message.id}
        if not said or not said <= seen:
            yield name, messages
        seen |= said


class _Store:
    """Reads the checkpoints of one database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._serializer = _Serializer()

    def lists(
        self, connection: sqlite3.Connection, keys: list[_Key], on_bad: Callable[[str], None]
    ) -> dict[str, tuple[BaseMessage, ...]]:
        """Return the lists of messages in the checkpoints of one thread, by where they were."""
        found: dict[str, tuple[BaseMessage, ...]] = {}
        for key in keys:
            try:
                for channel, value in self._channels(connection, key).items():
                    parts = (key[1], "" if channel == _MESSAGES else channel)
                    if is_list(value) and value and is_message(value[0]):
                        found["/".join(filter(None, parts))] = messages_from(value)
            except UnreadableError as error:
                on_bad(f"thread {key[0]!r:.60}, checkpoint {key[2]!r:.60}: {error}")
        return found

    def _channels(self, connection: sqlite3.Connection, key: _Key) -> dict[str, Any]:
        row: tuple[str, bytes] | None = connection.execute(_ONE, key).fetchone()
        checkpoint: Any = row and self._serializer.loads_typed(row)
        channels = is_mapping(checkpoint) and checkpoint.get("channel_values")
        if not is_mapping(channels):
            msg = "it holds no `channel_values`"
            raise UnreadableError(msg)
        versions = checkpoint.get("channel_versions")
        if is_mapping(versions) and _MESSAGES in versions and _MESSAGES not in channels:
            return {**channels, _MESSAGES: self._from_deltas(connection, key)}
        return {name: getattr(value, "value", value) for name, value in channels.items()}

    def _from_deltas(self, connection: sqlite3.Connection, key: _Key) -> object:
        try:
            return _replayed(connection, key, self._serializer)
        except ImportError as error:
            msg = "its messages are stored as deltas: `pip install langgraph-checkpoint-sqlite`"
            raise UnreadableError(msg) from error
        except Exception as error:
            msg = f"its deltas are damaged: {error!r:.200}"
            raise UnreadableError(msg) from error


def _replayed(connection: sqlite3.Connection, key: _Key, serializer: Any) -> object:  # noqa: ANN401 - its port is LangGraph's
    """Put together a channel of which checkpoints store only what was added."""
    from langgraph.channels.delta import (  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]
        DeltaChannel,
    )
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - optional
    from langgraph.graph.message import (  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]
        add_messages,
    )

    def add(state: Any, writes: Any) -> Any:  # noqa: ANN401 - messages in any form
        return reduce(add_messages, writes, state)

    saver = SqliteSaver(connection, serde=serializer)
    saver.is_setup = True  # setting up would write
    thread, namespace, checkpoint = key
    history = saver.get_delta_channel_history(
        config={
            "configurable": {
                "thread_id": thread,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint,
            }
        },
        channels=[_MESSAGES],
    )[_MESSAGES]
    make: Any = DeltaChannel
    channel = make(add, list)
    channel = channel.from_checkpoint(history.get("seed"))
    channel.replay_writes(history["writes"])
    return channel.get()


class _Serializer:
    """Reads what LangGraph's own serializer wrote, and builds nothing but messages and values."""

    def __init__(self) -> None:
        try:
            from langgraph.checkpoint.serde.jsonplus import (  # noqa: PLC0415 - only databases need it
                JsonPlusSerializer,
            )
        except ImportError as error:  # pragma: no cover - LangGraph brings it along
            msg = "checkpoints cannot be read: `pip install langgraph-checkpoint`"
            raise SpectoolError(msg) from error
        self._packed = JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=None)

    def dumps_typed(self, obj: object) -> tuple[str, bytes]:
        """Refuse: nothing is written."""
        raise NotImplementedError

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - whatever was stored
        """Return what `data` holds; JSON stays plain.

        Raises:
            UnreadableError: It is stored in another way, or damaged.
        """
        kind, text = data
        try:
            if kind == "msgpack":
                return self._packed.loads_typed((kind, text))
            if kind == "json":
                return json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            msg = f"it is damaged: {type(error).__name__}"
            raise UnreadableError(msg) from error
        msg = f"it is stored as {cast('object', kind)!r:.60}, which is not read"
        raise UnreadableError(msg)
