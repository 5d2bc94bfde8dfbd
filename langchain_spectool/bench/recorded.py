"""The recordings that a command was given: read once, counted, complained about."""

import sys
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage
from rich.console import Console
from rich.progress import Progress

from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces.reading import read_traces, trace_files
from langchain_spectool.traces.trajectory import BadRecord, Trajectory

MOST_NAMED = 20
"""Bad records that are named one by one; of the rest, only the number."""


class Recorded:
    """The trajectories in files and folders, with counts of what has been read so far.

    Iterating reads anew, shows a bar on stderr where that is a terminal, and says there at the
    end what was skipped.
    """

    def __init__(self, paths: Sequence[str], tools: str | None) -> None:
        self._paths = paths
        self._tools = tools
        self._bad: list[BadRecord] = []
        self._warnings: list[str] = []
        self.bad_lines = self.runs = self.turns = self.calls = 0

    def __iter__(self) -> Iterator[Trajectory]:
        """Yield the trajectories.

        Raises:
            SpectoolError: A path or the tools file cannot be used, or nothing in them is a trace.
        """
        self._bad.clear()
        self._warnings.clear()
        self.bad_lines = self.runs = self.turns = self.calls = 0
        for trajectory in self._read():
            self._count(trajectory)
            yield trajectory
        self._complain()
        if not self.runs:
            msg = f"no recorded run is in {', '.join(map(repr, self._paths))}"
            raise SpectoolError(msg)

    def _read(self) -> Iterator[Trajectory]:
        console = Console(stderr=True)
        size = sum(file.stat().st_size for file in trace_files(self._paths))
        with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
            task = shown.add_task("reading", total=size)
            yield from read_traces(
                self._paths,
                tools=self._tools,
                on_bad=self._note,
                on_warning=self._warnings.append,
                on_bytes=lambda count: shown.advance(task, count),
            )

    def _count(self, trajectory: Trajectory) -> None:
        turns = [message for message in trajectory.messages if isinstance(message, AIMessage)]
        self.runs += 1
        self.turns += len(turns)
        self.calls += sum(len(turn.tool_calls) for turn in turns)

    def _note(self, bad: BadRecord) -> None:
        self.bad_lines += 1
        if len(self._bad) < MOST_NAMED:
            self._bad.append(bad)

    def _complain(self) -> None:
        for line in (*self._warnings, *(f"skipped {bad}" for bad in self._bad)):
            print(f"spectool: {line}", file=sys.stderr)
        if more := self.bad_lines - len(self._bad):
            print(f"spectool: skipped {more} more", file=sys.stderr)
