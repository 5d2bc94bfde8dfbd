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


class EngineServer(_Strict):
    """A server that was measured."""

    engine: str
    version: str | None
    model: str
    context_tokens: int | None
    block_tokens: int | None
    blocks: int | None
    prefix_caching: bool
    counted_by: str
    repeats: int
    flags: Sequence[str] | None


class EngineArm(_Strict):
    """One way for outputs to get to the model, in one cell."""

    tasks_done: int
    median_s: float
    span_s: float
    saved_percent: float
    low: float
    high: float
    prefill_tokens: float
    prefill_vs_round_trip: float
    steps: float
    steps_vs_round_trip: float
    shown_prefill_tokens: float
    shown_steps: float
    decoded_tokens: float
    preemptions: float
    calls: int
    guessed: int
    resolved: int
    outcomes: Mapping[str, float]
    executions: int
    doubles: int
    wasted: int
    divergent: int


class EngineCell(_Strict):
    """One load, on one server."""

    name: str
    agents: int
    tool_s: float
    tasks: int
    server: Literal["roomy", "pressure", "drafts"]
    arms: Mapping[str, EngineArm]


class EngineDivergence(_Strict):
    """How often an arm said other things than the round trip."""

    arm: str
    tasks: int
    divergent: int
    again_divergent: int
    alone: int
    again_alone: int
    p: float


class Engine(Measured):
    """Of `spectool bench engine`."""

    benchmark: Literal["engine"]
    note: str
    wall_s: float
    accelerator: str | None
    load_before: float
    server_versions: Mapping[str, str] | None
    settings: Mapping[str, Any]
    servers: Mapping[str, EngineServer]
    not_run: Mapping[str, str]
    cells: Sequence[EngineCell]
    divergence: Sequence[EngineDivergence]
    bars: Sequence[PaperBar]


class ProofRow(BaseModel):
    """What came of the questions of one kind."""

    model_config = ConfigDict(frozen=True)

    style: str
    kind: str
    asked: int
    turns: int
    continued: int
    aa_differ: int
    differ: int


class ProofArm(BaseModel):
    """What came of one arm, over all parts."""

    model_config = ConfigDict(frozen=True)

    arm: str
    asked: int
    aa_differ: int
    differ: int
    p: float


class Proof(BaseModel):
    """Of `make proof-engine`: what is shown of it."""

    model_config = ConfigDict(frozen=True)

    date: str
    python: str
    machine: Machine
    versions: Mapping[str, str]
    summary: Sequence[ProofRow]
    arms: Sequence[ProofArm]
    amiss: Sequence[Mapping[str, Any]]
    not_run: Mapping[str, str]
    proved: bool
    wall_s: float


class Results(BaseModel):
    """All that is committed; None for what is not yet."""

    model_config = ConfigDict(frozen=True)

    paper: Paper
    sources: Sources
    overhead: Timed
    turns: Timed
    engine: Engine | None = None
    proof: Proof | None = None


FILES: Final[Mapping[str, type[BaseModel]]] = {
    "paper": Paper,
    "sources": Sources,
    "overhead": Timed,
    "turns": Timed,
    "engine": Engine,
    "proof": Proof,
}
RESULTS: Final = Path("benchmarks") / "results"
_PROOF: Final = Path("engine") / "proof" / "result.json"
_MAY_LACK: Final = frozenset({"engine", "proof"})
"""These need an environment with vLLM, and minutes of a quiet machine."""


def path_of(root: Path, name: str) -> Path:
    """Return where a result is kept."""
    return root / (_PROOF if name == "proof" else RESULTS / f"{name}.json")


def read_results(root: Path) -> Results:
    """Read and check the results of a checkout.

    Raises:
        SpectoolError: A file is missing, or holds something else; the message says where.
    """
    found: dict[str, Any] = {}
    for name, model in FILES.items():
        path = path_of(root, name)
        if name in _MAY_LACK and not path.exists():
            continue
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
            command = "make proof-engine" if name == "proof" else f"spectool bench {name}"
            msg = f"{str(path)!r} is no result of `{command}`: `{place}`: {first['msg']}"
            raise SpectoolError(msg) from error
    return Results(**found)
