"""JSON values of a text file, one at a time, plain or packed by gzip."""

import gzip
import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from langchain_spectool.traces.trajectory import UnreadableError

MOST_BYTES: Final = 64 * 2**20
"""Longest line, and longest document that is spread over lines, in bytes after unpacking."""
_GZIP: Final = b"\x1f\x8b"
_OPENINGS: Final = (b"[", b"{", b"[{")
"""What the first line holds, alone, where one document is spread over many lines."""
_UNREADABLE: Final = (OSError, EOFError, zlib.error)
_BINARY: Final = b"\0"

Value = tuple[int, object]
"""The number of a line, from 1, and what it holds, which may be an `UnreadableError`."""


@contextmanager
def opened(path: Path) -> Generator[tuple[IO[bytes], Callable[[], int]]]:
    """Open a file for reading; yields it unpacked, and what tells how many bytes are read of it."""
    with path.open("rb") as packed:
        start = packed.read(len(_GZIP))
        packed.seek(0)
        if start != _GZIP:
            yield packed, packed.tell
            return
        with gzip.open(packed) as plain:
            yield cast("IO[bytes]", plain), packed.tell


def values(file: IO[bytes]) -> Iterator[Value]:
    """Yield the values of all lines that are not blank, or the one document in `file`.

    What is damaged is yielded as an `UnreadableError`. It is the last value where the packing is
    damaged, and where the file seems to be no text at all.
    """
    number, sound = 0, False
    lines = enumerate(_lines(file), 1)
    try:
        for number, line in lines:
            if not isinstance(line, bytes):
                yield number, line
            elif number == 1 and line.removeprefix(BOM_UTF8).strip() in _OPENINGS:
                yield number, _document(line, file)
                return
            elif line.strip():
                found = _value(line)
                yield number, found
                sound = sound or not isinstance(found, UnreadableError)
                if _BINARY in line and not sound:
                    return
    except _UNREADABLE as error:
        yield number + 1, UnreadableError(f"the file cannot be read on: {type(error).__name__}")


def _lines(file: IO[bytes]) -> Iterator[bytes | UnreadableError]:
    for line in iter(lambda: file.readline(MOST_BYTES), b""):
        if len(line) < MOST_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (part := file.readline(MOST_BYTES)) and not part.endswith(b"\n"):
            pass
        yield UnreadableError(f"the line has more than {MOST_BYTES} bytes")


def _document(start: bytes, file: IO[bytes]) -> object:
    text = start + file.read(MOST_BYTES)
    if len(text) > MOST_BYTES:
        return UnreadableError(
            f"the document has more than {MOST_BYTES} bytes: write one record a line instead"
        )
    return _value(text)


def _value(text: bytes) -> object:
    if _BINARY in text:
        return UnreadableError("not text: no trace format that is known")
    try:
        return json.loads(text.removeprefix(BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        return UnreadableError(f"not UTF-8: {error.reason}")
    except RecursionError:
        return UnreadableError("not JSON: nested too deep")
    except ValueError as error:
        return UnreadableError(f"not JSON: {error}")
