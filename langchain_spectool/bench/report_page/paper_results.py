"""What `spectool bench paper --json` prints, as far as the page shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from langchain_spectool._core.events import Event
from langchain_spectool.errors import SpectoolError
from langchain_spectool.telemetry.event_log import event_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value and its limit."""

    name: str
    value: float | None
    limit: float
    sense: str = "<="
    met: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One latency of the calibrated reproduction, in per cent."""

    latency_s: float
    paper: float
    fitted: float
    residual: float
    package: float
    low: float
    high: float
    gap_points: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The one generation time that was fitted, and how well it fits."""

    label: str
    generation_s: float
    model_s_per_tool_turn: float | None = None
    points: Sequence[Point] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm at one latency: a row of `slice.rows`."""

    arm: str
    latency_s: float
    samples: int
    accuracy: float
    saved: float
    low: float
    high: float
    model_saved: float | None = None
    tokens_per_s: float | None = None
    hit_share: float | None = None
    turns_fully_hit: float | None = None
    lead_s: float | None = None
    wasted_calls: int | None = None
    wasted_s: float | None = None
    task_p50_s: float | None = None
    task_p95_s: float | None = None
    usd_per_100_turns: float | None = None
    early_runs: int | None = None
    tool_runs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What an arm gains over the client side, in points."""

    arm: str
    points: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another project in the same run."""

    name: str
    installed: bool
    version: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The real package, in virtual time."""

    rows: Sequence[Cell]
    gains: Sequence[Gain] = ()
    peers: Sequence[Peer] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One cell of the discrete-event model."""

    agents: int
    latency_s: float
    samples: int
    accuracy: float
    saved: float
    low: float
    high: float
    model_saved: float | None = None
    stretch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCell:
    """One arm in real time."""

    latency_s: float
    arm: str
    saved: float
    low: float
    high: float
    virtual_saved: float | None = None
    cpu_share: float | None = None
    void: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCell:
    """So many agents, arriving one after another."""

    agents: int
    clock: str
    saved: float
    low: float
    high: float
    plain_cpu_share: float | None = None
    client_side_cpu_share: float | None = None
    cpu_ratio: float | None = None
    most_at_once: int | None = None
    saturated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a turn in progress holds."""

    turns: int
    kb_per_turn: float
    kb_per_turn_without_guess: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The full grid, in the discrete-event model."""

    rows: Sequence[GridCell] = ()
    repeats: int | None = None
    tasks: int | None = None
    generation_s: float | None = None
    capacity: float | None = None
    draft_load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """The slice in real time, all times scaled."""

    rows: Sequence[RealCell] = ()
    scale: float | None = None
    agents: int | None = None
    tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One agent to many."""

    rows: Sequence[ScaleCell] = ()
    memory: Memory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A few tasks, event by event."""

    latency_s: float
    tasks: int
    arms: Mapping[str, Sequence[Mapping[str, Any]]]
    """Events by arm, as an `EventLog` writes them."""

    def __post_init__(self) -> None:
        """Check every event."""
        for arm in self.arms:
            self.events(arm)

    def events(self, arm: str) -> list[Event]:
        """Return the events of an arm."""
        return [event_of(said) for said in self.arms[arm]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperResults:
    """All parts; None for those that were not measured."""

    benchmark: Literal["paper"] = "paper"
    note: str = ""
    date: str = ""
    python: str = ""
    wall_s: float | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    bars: Sequence[Bar] = ()
    calibration: Calibration | None = None
    slice: Slice | None = None
    sample: Sample | None = None
    grid: Grid | None = None
    real: Real | None = None
    scale: Scale | None = None


_RESULTS: Final = TypeAdapter(PaperResults)


def read_paper(found: Mapping[str, Any]) -> PaperResults:
    """Check results and return what the page shows of them.

    Raises:
        SpectoolError: They are not what `spectool bench paper --json` prints.
    """
    try:
        return _RESULTS.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        msg = f"these are not results of `spectool bench paper`: `{place}`: {first['msg']}"
        raise SpectoolError(msg) from error
