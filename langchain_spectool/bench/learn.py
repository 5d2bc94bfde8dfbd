"""`spectool learn`: writes down what recorded runs have in common."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_spectool.bench.recorded import Recorded
from langchain_spectool.errors import SpectoolError
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.speculators.patterns.store import PatternFileError, read_patterns
from langchain_spectool.traces.trajectory import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """What is learned from, and where it goes.

    Raises:
        SpectoolError: `shared_across` is less than 1.
    """

    traces: Sequence[str]
    """Files and folders, as `read_traces` takes them."""
    out: str
    """The file to write."""
    tools: str | None = None
    """A list of tools for all of them."""
    merge: bool = False
    """Whether to add to what `out` holds already, if it is there."""
    shared_across: int | None = None
    """In how many runs a value must have been seen to be kept, from 1. None: `Patterns` decides."""

    def __post_init__(self) -> None:
        """Check the number."""
        if self.shared_across is not None and self.shared_across < 1:
            msg = f"a value is kept once it was seen in 1 run or more, got {self.shared_across!r}"
            raise SpectoolError(msg)


def show(options: LearnOptions, *, as_json: bool = False) -> int:
    """Learn patterns from recorded runs, write them, and print what was learned.

    Nothing is written where nothing can be learned.

    Raises:
        SpectoolError: The traces cannot be used, or the file cannot be merged with or written.
    """
    began_s = time.perf_counter()
    patterns = _start(options)
    recorded = Recorded(options.traces, options.tools)
    patterns.fit(recorded)
    try:
        patterns.save(options.out)
    except OSError as error:
        msg = f"{options.out!r} cannot be written: {error.strerror}"
        raise SpectoolError(msg) from error
    found = {
        "runs": recorded.runs,
        "turns": recorded.turns,
        "calls": recorded.calls,
        "bad_lines": recorded.bad_lines,
        "bytes": Path(options.out).stat().st_size,
        "seconds": round(time.perf_counter() - began_s, 3),
    }
    print(json.dumps(found) if as_json else _line(options.out, found))
    return 0


def load_patterns(path: str, **settings: Any) -> Patterns:
    """Load a patterns file that has to be there and sound; `settings` are those of `Patterns`.

    Raises:
        SpectoolError: It is not: an agent goes on with an empty model, a command does not.
    """
    across = {name: settings[name] for name in ("shared_across",) if name in settings}
    try:
        return Patterns(read_patterns(path, **across), **settings)
    except OSError as error:
        msg = f"{path!r} cannot be read: {error.strerror}"
        raise SpectoolError(msg) from error
    except PatternFileError as error:
        raise SpectoolError(printable(str(error))) from error


def _start(options: LearnOptions) -> Patterns:
    settings: dict[str, Any] = {}
    if options.shared_across is not None:
        settings["shared_across"] = options.shared_across
    if options.merge and Path(options.out).exists():
        return load_patterns(options.out, **settings)
    return Patterns(**settings)


def _line(out: str, found: dict[str, int | float]) -> str:
    return (
        f"{out}: {found['calls']} calls in {found['turns']} turns of {found['runs']} runs learned "
        f"in {found['seconds']:.2f} s, {found['bytes']} bytes; {found['bad_lines']} bad lines"
    )
