"""Reads turns from recorded runs: their calls always, their times where the recording has them.

Of the recordings that are read, only LangSmith's exports hold times. Which calls would have been
guessed, no recording says: that is asked of `Patterns`, or given.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from langchain_core.messages import AIMessage

from langchain_spectool.bench.model.turn_model import Call, Turn
from langchain_spectool.traces.langsmith import is_run
from langchain_spectool.traces.lines import opened, values
from langchain_spectool.traces.reading import trace_files
from langchain_spectool.traces.trajectory import Trajectory, is_list

_MODELS: Final = ("llm", "chat_model")
_INSIDE: Final = "."
"""What follows a run's `dotted_order` in that of a run inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A model's answer or a tool call, with its times in seconds since the epoch."""

    kind: str
    name: str
    began_s: float
    ended_s: float
    order: str

    @property
    def took_s(self) -> float:
        """Seconds it took."""
        return max(0.0, self.ended_s - self.began_s)


def timed_runs(paths: Sequence[str]) -> dict[str, list[Timed]]:
    """Return the model and tool runs of LangSmith's exports by trace, in the order they began.

    Runs without both times, and runs inside a tool, are left out; files of other forms hold none.
    """
    traces: defaultdict[str, list[Timed]] = defaultdict(list)
    for record in _records(paths):
        found = _timed(record)
        if found is not None:
            traces[str(record.get("trace_id") or record.get("id"))].append(found)
    return {trace: _outermost(found) for trace, found in traces.items()}


def timed_turns(runs: Sequence[Timed], read_only: frozenset[str]) -> list[Turn]:
    """Return the turns of one trace: every model run with the tools that began before the next."""
    places = [place for place, run in enumerate(runs) if run.kind != "tool"]
    return [
        Turn(
            generation_s=runs[place].took_s,
            calls=tuple(
                Call(tool_s=tool.took_s, may_run_early=tool.name in read_only)
                for tool in runs[place + 1 : after]
            ),
        )
        for place, after in pairwise([*places, len(runs)])
    ]


def untimed_turns(trajectory: Trajectory, generation_s: float, tool_s: float) -> list[Turn]:
    """Return the turns of a run whose recording has no times, all with the same ones."""
    return [
        Turn(
            generation_s=generation_s,
            calls=tuple(
                Call(tool_s=tool_s, may_run_early=call["name"] in trajectory.read_only)
                for call in message.tool_calls
            ),
        )
        for message in trajectory.messages
        if isinstance(message, AIMessage)
    ]


def _records(paths: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for path in trace_files(paths):
        with opened(path) as (file, _):
            for _, value in values(file):
                yield from filter(is_run, value if is_list(value) else [value])


def _timed(run: Mapping[str, Any]) -> Timed | None:
    kind = run.get("run_type")
    began_s, ended_s = _seconds(run.get("start_time")), _seconds(run.get("end_time"))
    if kind not in (*_MODELS, "tool") or began_s is None or ended_s is None:
        return None
    return Timed(
        kind=str(kind),
        name=str(run.get("name")),
        began_s=began_s,
        ended_s=ended_s,
        order=str(run.get("dotted_order") or ""),
    )


def _outermost(runs: list[Timed]) -> list[Timed]:
    tools = tuple(f"{run.order}{_INSIDE}" for run in runs if run.kind == "tool" and run.order)
    outer = [run for run in runs if not run.order.startswith(tools)]
    return sorted(outer, key=lambda run: (run.began_s, run.kind == "tool"))


def _seconds(said: object) -> float | None:
    """Read a time: an ISO date, or seconds or milliseconds since the epoch."""
    if isinstance(said, str):
        try:
            return datetime.fromisoformat(said).timestamp()
        except (ValueError, OverflowError):
            return None
    if isinstance(said, int | float) and not isinstance(said, bool):
        return said / 1000 if said > 1e11 else float(said)  # noqa: PLR2004 - the year 5138
    return None
