"""What the committed results hold, key by key; docs/benchmarks.md says what it means."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_spectool.bench import gold_sweep
from langchain_spectool.bench.paper import grid, package_slice, real_time, scale
from langchain_spectool.errors import SpectoolError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Machine(_Strict):
    """Where it was measured."""

    system: str
    cores: int | None


class Measured(_Strict):
    """What every benchmark says of itself."""

    date: str
    python: str
    versions: Mapping[str, str | None]
    machine: Machine


class Bar(_Strict):
    """A value and its limit."""

    name: str
    value: float
    limit: float


class ArmTimes(_Strict):
    """What one arm took."""

    median_ms: float
    p10_ms: float


class Timed(Measured):
    """Of `spectool bench overhead` and `spectool bench turns`."""

    benchmark: Literal["overhead", "turns"]
    repeats: int
    bars: Sequence[Bar]
    arms: Mapping[str, ArmTimes]

    def value(self, bar: str) -> float:
        """Return the value of a bar."""
        return next(each.value for each in self.bars if each.name == bar)


class DataSet(_Strict):
    """Gold tasks, and how many were played."""

    about: str
    package: str
    train_tasks: int
    test_tasks: int
    tasks: int
    turns: int
    tool_turns: int
    batched_tool_turns: int
    calls: int
    read_only_calls: int


class Sources(Measured):
    """Of `spectool bench sources`."""

    benchmark: Literal["sources"]
    note: str
    wall_s: float
    settings: Mapping[str, Any]
    data_sets: Mapping[str, DataSet]
    sources: Mapping[str, str]
    rows: Sequence[gold_sweep.Row]


class PaperBar(Bar):
    """A bar of the paper's experiment."""

    sense: Literal["<=", ">"]
    met: bool


class Point(_Strict):
    """One latency of the paper's column, in per cent."""

    latency_s: float
    paper: float
    fitted: float
    residual: float
    package: float
    low: float
    high: float
    gap_points: float


class Calibration(_Strict):
    """The one number that is fitted."""

    label: str
    generation_s: float
    model_s_per_tool_turn: float
    tokens_per_s: float
    points: Sequence[Point]


class GainAt(_Strict):
    """What an arm gains at one latency."""

    latency_s: float
    points: float


class Gain(_Strict):
    """What an arm gains over the client side."""

    arm: str
    points: float
    low: float
    high: float
    by_latency: Sequence[GainAt]


class Peer(_Strict):
    """Another project in the same run."""

    name: str
    installed: bool
    version: str | None
    note: str


class Slice(_Strict):
    """The real package in virtual time."""

    rows: Sequence[package_slice.Row]
    column_rows: Sequence[package_slice.Row]
    gains: Sequence[Gain]
    peers: Sequence[Peer]


class Sample(_Strict):
    """A few tasks, event by event."""

    latency_s: float
    tasks: int
    arms: Mapping[str, Sequence[Mapping[str, Any]]]


class Grid(_Strict):
    """The discrete-event model."""

    repeats: int
    tasks: int
    generation_s: float
    capacity: float
    draft_load: float
    wall_s: float
    rows: Sequence[grid.GridRow]


class Real(_Strict):
    """In real time."""

    scale: float
    agents: int
    tasks: int
    repeats: int
    rows: Sequence[real_time.RealRow]


class Scale(_Strict):
    """One agent to many."""

    rows: Sequence[scale.ScaleRow]
    memory: Mapping[str, float]


class Paper(Measured):
    """Of `spectool bench paper`; None for a part that was not measured."""

    benchmark: Literal["paper"]
    note: str
    wall_s: float
    part_s: Mapping[str, float]
    settings: Mapping[str, Any]
    bars: Sequence[PaperBar]
    calibration: Calibration | None
    slice: Slice | None
    sample: Sample | None = None
    grid: Grid | None
    real: Real | None
    scale: Scale | None


class Results(BaseModel):
    """All that is committed."""

    model_config = ConfigDict(frozen=True)

    paper: Paper
    sources: Sources
    overhead: Timed
    turns: Timed


FILES: Final[Mapping[str, type[BaseModel]]] = {
    "paper": Paper,
    "sources": Sources,
    "overhead": Timed,
    "turns": Timed,
}


def read_results(folder: Path) -> Results:
    """Read and check the results.

    Raises:
        SpectoolError: A file is missing, or holds something else; the message says where.
    """
    found: dict[str, Any] = {}
    for name, model in FILES.items():
        path = folder / f"{name}.json"
        try:
            found[name] = model.model_validate_json(path.read_bytes())
        except OSError as error:
            msg = (
                f"{str(path)!r} cannot be read: {error.strerror}; "
                f"`spectool bench {name} --json` prints it"
            )
            raise SpectoolError(msg) from error
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            msg = (
                f"{str(path)!r} is no result of `spectool bench {name}`: `{place}`: {first['msg']}"
            )
            raise SpectoolError(msg) from error
    return Results(**found)
