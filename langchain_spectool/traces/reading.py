"""`read_traces`: the trajectories in files and folders, whatever form they have.

The form is told from what a file holds, never from its name. Files are read as a stream: in
memory are one record and, of LangSmith's exports, the longest conversation of each trace.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path

from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces import checkpoints, records
from langchain_spectool.traces.lines import Value, opened, values
from langchain_spectool.traces.tools import Kits
from langchain_spectool.traces.trajectory import BadRecord, Conversation, Trajectory

_BESIDE = ("-wal", "-shm", "-journal")
"""Ends of the names of what SQLite keeps beside a database."""


def read_traces(
    paths: Iterable[str | PathLike[str]],
    *,
    tools: str | PathLike[str] | None = None,
    on_bad: Callable[[BadRecord], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Trajectory]:
    """Return the trajectories in files, and in the files directly inside folders.

    Args:
        paths: Files of messages in OpenAI's form or LangChain's (JSON or JSON Lines, also packed
            by gzip), LangGraph checkpoint databases of SQLite, runs exported from LangSmith.
        tools: A list of tools in OpenAI's form with `x_read_only`, for all of them. None: what the
            recordings list, or name by `tools_ref`, and else the names that were called.
        on_bad: Told of each record that is skipped. None: a warning each.
        on_warning: Told what else makes the result less than it could be. None: a warning.
        on_bytes: Told how many more bytes of the files are dealt with.

    Raises:
        SpectoolError: A path or the tools file cannot be used.
    """
    files = trace_files(paths)
    kits = Kits(None if tools is None else Path(tools), on_warning or _warn)
    return _trajectories(files, kits, on_bad or _warn, on_bytes or _ignore)


def trace_files(paths: Iterable[str | PathLike[str]]) -> list[Path]:
    """Return the files that `read_traces` reads, in its order.

    Raises:
        SpectoolError: A path is neither a file nor a folder with files.
    """
    return [file for path in paths for file in _files(Path(path))]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        msg = f"{str(path)!r} is neither a file nor a folder"
        raise SpectoolError(msg)
    found = [
        file
        for file in sorted(path.iterdir())
        if file.is_file() and not file.name.startswith(".") and not file.name.endswith(_BESIDE)
    ]
    if not found:
        msg = f"the folder {str(path)!r} holds no files"
        raise SpectoolError(msg)
    return found


def _trajectories(
    files: Iterable[Path],
    kits: Kits,
    on_bad: Callable[[BadRecord], None],
    on_bytes: Callable[[int], None],
) -> Iterator[Trajectory]:
    for path in files:
        for found in _conversations(path, on_bad, on_bytes):
            kit = kits.kit(found, path.parent)
            yield Trajectory(
                messages=found.messages,
                tools=kit.tools,
                read_only=kit.read_only,
                tools_are_listed=kit.is_listed,
                run=found.run,
                task=found.task,
                tenant=found.tenant,
                dataset=found.dataset,
            )


def _conversations(
    path: Path, on_bad: Callable[[BadRecord], None], on_bytes: Callable[[int], None]
) -> Iterator[Conversation]:
    def bad(line: int | None, reason: str) -> None:
        on_bad(BadRecord(path=path, line=line, reason=reason))

    try:
        if checkpoints.is_database(path):
            yield from checkpoints.conversations(path, partial(bad, None))
            on_bytes(path.stat().st_size)
            return
        with opened(path) as (file, tell):
            lines = _told(values(file), tell, on_bytes)
            yield from records.conversations(lines, path, bad)
    except OSError as error:
        bad(None, f"it cannot be opened: {error.strerror}")


def _told(
    found: Iterator[Value], tell: Callable[[], int], on_bytes: Callable[[int], None]
) -> Iterator[Value]:
    done = 0
    for each in found:
        yield each
        done, before = tell(), done
        on_bytes(done - before)


def _warn(what: object) -> None:
    warnings.warn(str(what), RuntimeWarning, stacklevel=3)


def _ignore(_: int) -> None:
    pass
