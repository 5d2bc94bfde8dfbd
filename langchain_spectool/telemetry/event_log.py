"""Events as JSON Lines: written while agents run, read back by what measures them."""

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, cast

from pydantic import TypeAdapter, ValidationError

from langchain_spectool._core.events import Event
from langchain_spectool.errors import SpectoolError
from langchain_spectool.telemetry.placing import placed

__all__ = ["EventLog", "event_of", "line_of", "read_events"]

_MOST_BYTES: Final = 2**20
"""Longest line that is read: no event is that long unless its `detail` is."""
_MOST_CALLS: Final = 1_000
"""Highest place of a call that is read: who reads a log goes through all calls of a turn."""
_MOST: Final = 1e12
"""Farthest from 0 that a number may be; sums and differences of such are still finite."""
_DEFAULTS: Final = {each.name: each.default for each in fields(Event)}
_EVENT: Final = TypeAdapter(Event)


class EventLog:
    """Observer that appends one JSON object a line to a file, each line written out at once.

    A line holds the fields of `Event` that differ from their defaults, and `log`, which names the
    process that wrote it: several may append to one file, and files may be joined. It holds no
    messages, arguments or results. `key_hash` tells equal calls apart within the log alone: it is
    keyed by a secret that is written nowhere, so nobody can find a call by trying.

    Raises:
        OSError: The file cannot be opened for writing.
    """

    def __init__(self, path: str | PathLike[str], *, detail: bool = False) -> None:
        """Append to `path`; `detail` adds the text that may hold what a model or a user wrote."""
        # No buffer and no lock, which a fork would copy as they are: the system appends a line.
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - until closed
        self._detail = detail
        self._name = secrets.token_hex(4)
        self._secret = secrets.token_bytes(16)

    def on_event(self, event: Event) -> None:
        """Write one line.

        Raises:
            OSError: It cannot be written.
            ValueError: The log is closed.
        """
        line = line_of(event)
        if not self._detail:
            line.pop("detail", None)
        if event.key_hash:
            digest = blake2b(event.key_hash.encode(), key=self._secret, digest_size=6)
            line["key_hash"] = digest.hexdigest()
        # The process is part of the name: a fork counts its turns from the same number on.
        line["log"] = f"{self._name}.{os.getpid()}"
        self._file.write(f"{json.dumps(line)}\n".encode("ascii"))

    def close(self) -> None:
        """Close the file; later events are errors."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def line_of(event: Event) -> dict[str, Any]:
    """Return the fields that differ from their defaults, as JSON values."""
    said = {name: getattr(event, name) for name in _DEFAULTS}
    return {name: value for name, value in said.items() if value != _DEFAULTS[name]}


def event_of(said: Mapping[str, Any]) -> Event:
    """Return the event of a line; fields that this version does not know are ignored.

    Raises:
        ValueError: It is none.
    """
    event = _EVENT.validate_python({name: said[name] for name in _DEFAULTS if name in said})
    if not all(map(math.isfinite, _floats(event))):
        msg = "a time or a confidence is not finite"
        raise ValueError(msg)
    if any(abs(number) > _MOST for number in (event.turn, *_floats(event), *(event.usage or ()))):
        msg = f"a number is farther from 0 than {_MOST:g}"
        raise ValueError(msg)
    if not -_MOST_CALLS <= (event.position or 0) <= _MOST_CALLS:
        msg = f"no turn has more than {_MOST_CALLS} calls"
        raise ValueError(msg)
    return event


def read_events(path: str | PathLike[str]) -> tuple[list[Event], list[str]]:
    """Return the events of a log in the order of its lines, and what was skipped.

    Each skipped line is named with its number and the reason, safe to print. A turn keeps its
    number unless another process's turn has it already; runs are numbered as they come, and calls
    are placed in their turn. Times are comparable within a run only: every process has a clock of
    its own.

    Raises:
        SpectoolError: The file cannot be read.
    """
    events: list[Event] = []
    bad: list[str] = []
    numbers = _Numbers()
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(_lines(file), 1):
                if not line.strip():
                    continue
                try:
                    events.append(_event(line, numbers))
                except ValueError as error:
                    bad.append(f"line {number}: {_reason(error)}")
    except OSError as error:
        msg = f"{os.fspath(path)!r} cannot be read: {error.strerror}"
        raise SpectoolError(msg) from error
    return placed(events), bad


class _Numbers:
    """Gives every turn, and every run, of every process a number that no other has."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], str] = {}
        self._given: dict[tuple[str, int], int] = {}
        self._taken: set[int] = set()
        self._highest = 0

    def of(self, log: str, turn: int) -> int:
        """Return the number of a turn; 0, which is no turn, stays 0."""
        if turn == 0:
            return 0
        if (log, turn) not in self._given:
            number = turn if turn not in self._taken else self._highest + 1
            self._given[log, turn] = number
            self._taken.add(number)
            self._highest = max(self._highest, number)
        return self._given[log, turn]

    def of_run(self, log: str, run: str) -> str:
        """Return the number of a run, as text; none stays none."""
        return self._runs.setdefault((log, run), str(len(self._runs) + 1)) if run else ""


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines, of one that is too long only its start."""
    while line := file.readline(_MOST_BYTES):
        yield line
        while len(line) == _MOST_BYTES and not line.endswith(b"\n"):
            line = file.readline(_MOST_BYTES)


def _event(line: bytes, numbers: _Numbers) -> Event:
    try:
        found: Any = json.loads(line)
    except RecursionError:
        msg = "not JSON: nested too deep"
        raise ValueError(msg) from None
    if not isinstance(found, dict):
        msg = "not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - what a line holds is a value, whatever its type
    said = cast("dict[str, Any]", found)
    event = event_of(said)
    log = str(said.get("log", ""))
    return replace(event, turn=numbers.of(log, event.turn), run=numbers.of_run(log, event.run))


def _floats(event: Event) -> Iterator[float]:
    return (value for name in _DEFAULTS if isinstance(value := getattr(event, name), float))


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
