"""The real package in virtual time, all arms on the same draws, and the paper's own column."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from langchain_spectool.bench.paper.actors import ARMS, TOKENS_PER_S
from langchain_spectool.bench.paper.cells import Job, Played, Setup, play
from langchain_spectool.bench.paper.draft import DRAFT_S, Draft
from langchain_spectool.bench.paper.figures import (
    Interval,
    mean_interval,
    saved_percent,
    usd_per_100_turns,
)
from langchain_spectool.bench.paper.latencies import LATENCIES_S
from langchain_spectool.bench.paper.parallel import WORKERS, run_all
from langchain_spectool.bench.paper.peers import PEERS
from langchain_spectool.bench.paper.predicted import (
    PAPER_8B,
    Drawn,
    drawn,
    fitted_generation_s,
    model_s_per_tool_turn,
    saved,
)
from langchain_spectool.telemetry.bootstrap import quantile

ACCURACY: Final = 0.8
"""Of the draft that stands for the paper's largest."""
GAINING: Final = ("early_dispatch", "chain")
LABEL: Final = "calibrated reproduction"
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the slice plays; the fields' values are the ones that were fixed."""

    seed: int
    agents: int = 32
    tasks: int = 8
    column_tasks: int = 32
    """Of each agent, for the paper's column: as many as in the paper."""
    latencies_s: Sequence[float] = LATENCIES_S
    peers_s: Sequence[float] = (0.5, 1.0, 2.0)
    other_s: float = 1.0
    """Where other drafts and numbers of samples are tried."""
    workers: int = WORKERS

    def draft(self, accuracy: float = ACCURACY) -> Draft:
        """Return the draft of an accuracy."""
        return Draft(accuracy=accuracy, mean_s=DRAFT_S[accuracy], seed=self.seed)

    def setup(self, generation_s: float, tasks: int) -> Setup:
        """Return what the arms of a comparison share."""
        return Setup(agents=self.agents, tasks=tasks, seed=self.seed, generation_s=generation_s)

    def jobs(self) -> list[Job]:
        """Return what is played by `tasks` each."""
        halves = [half for half in (self.latencies_s[::2], self.latencies_s[1::2]) if half]
        best, other = self.draft(), (self.other_s,)
        return [
            *(Job(arm=arm, latencies_s=half, draft=best) for arm in ARMS for half in halves),
            Job(arm="client_side", latencies_s=other, draft=best, samples=9),
            *(
                Job(arm="client_side", latencies_s=other, draft=self.draft(0.6), samples=samples)
                for samples in (1, 9)
            ),
            *(
                Job(arm=name, latencies_s=self.peers_s, draft=best)
                for name, peer in PEERS.items()
                if peer.installed
            ),
        ]

    def column_jobs(self) -> list[Job]:
        """Return what is played by `column_tasks` each."""
        latencies = tuple(PAPER_8B)
        return [
            Job(arm=arm, latencies_s=part, draft=self.draft())
            for arm in ("plain", "client_side")
            for part in (latencies[:3], latencies[3:])
        ]

    @property
    def steps(self) -> int:
        """How often `measure` calls `advance`."""
        return 1 + len(self.jobs()) + len(self.column_jobs())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm at one latency; see docs/benchmarks.md."""

    arm: str
    latency_s: float
    samples: int
    accuracy: float
    saved: float
    low: float
    high: float
    model_saved: float | None
    gap_points: float | None
    gap_low: float | None
    gap_high: float | None
    tokens_per_s: float
    hit_share: float | None
    turns_fully_hit: float | None
    lead_s: float | None
    early_runs: int
    wasted_calls: int
    wasted_s: float
    tool_runs: int
    task_p50_s: float
    task_p95_s: float
    usd_per_100_turns: float


def fitted(plan: Plan) -> tuple[float, Drawn]:
    """Return the generation time that is fitted to the paper, and the draws it is fitted on."""
    dealt = plan.setup(1.0, plan.column_tasks).dealt()
    draws = drawn(dealt, plan.draft(), 1)
    return fitted_generation_s(draws), draws


def measure(plan: Plan, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Play everything; return the JSON's `calibration` and `slice`.

    Raises:
        MissingPackages: `bfcl-eval` is not installed.
        RuntimeError: An arm said other things than plain: then its times mean nothing.
    """
    generation_s, draws = fitted(plan)
    advance()
    setups = [plan.setup(generation_s, plan.tasks), plan.setup(generation_s, plan.column_tasks)]
    jobs = [(setups[0], job) for job in plan.jobs()]
    jobs += [(setups[1], job) for job in plan.column_jobs()]
    results = run_all([(play, each) for each in jobs], advance, plan.workers)
    cells = [
        (setup, played) for (setup, _), each in zip(jobs, results, strict=True) for played in each
    ]
    own, column = ([played for at, played in cells if at is setup] for setup in setups)
    return {
        "calibration": _calibration(generation_s, draws, column),
        "slice": {
            "rows": _sorted(_rows(plan, setups[0], own)),
            "column_rows": _sorted(_rows(plan, setups[1], column)),
            "gains": [_gain(arm, own) for arm in GAINING],
            "peers": [peer.as_json(name) for name, peer in PEERS.items()],
        },
    }


def _sorted(rows: Iterable[Row]) -> list[dict[str, Any]]:
    names = [*ARMS, *PEERS]
    ordered = sorted(
        rows, key=lambda row: (row.latency_s, names.index(row.arm), -row.accuracy, row.samples)
    )
    return [asdict(row) for row in ordered]


def _rows(plan: Plan, setup: Setup, cells: Sequence[Played]) -> Iterator[Row]:
    plain = {each.latency_s: each for each in cells if each.arm == "plain"}
    dealt = setup.dealt()
    draws: dict[tuple[float, int], Drawn] = {}
    for each in cells:
        base = plain[each.latency_s]
        if each.said != base.said:
            msg = f"with {each.arm!r} at {each.latency_s} s the agents said other things than plain"
            raise RuntimeError(msg)
        key = each.accuracy, each.samples
        if key not in draws:
            draws[key] = drawn(dealt, plan.draft(each.accuracy), each.samples)
        percent = saved_percent(base.agents_s, each.agents_s)
        model = _model(each, draws[key], setup.generation_s)
        yield _row(each, percent, model)


def _model(played: Played, draws: Drawn, generation_s: float) -> list[float] | None:
    if played.arm not in ARMS or played.arm == "plain":
        return None
    return saved(draws, generation_s, played.latency_s, played.arm)


def _row(played: Played, percent: Sequence[float], model: Sequence[float] | None) -> Row:
    of_agents = mean_interval(percent)
    gap = None
    if model is not None:
        gap = mean_interval([ours - theirs for ours, theirs in zip(percent, model, strict=True)])
    ordered = sorted(played.tasks_s)
    return Row(
        arm=played.arm,
        latency_s=played.latency_s,
        samples=played.samples,
        accuracy=played.accuracy,
        saved=_round(of_agents.value),
        low=_round(of_agents.low),
        high=_round(of_agents.high),
        model_saved=None if model is None else _round(sum(model) / len(model)),
        gap_points=None if gap is None else _round(gap.value),
        gap_low=None if gap is None else _round(gap.low),
        gap_high=None if gap is None else _round(gap.high),
        tokens_per_s=_round(played.main_tokens[1] / sum(played.agents_s)),
        hit_share=None if played.arm in PEERS else _round(played.hits / played.calls),
        turns_fully_hit=None if played.arm in PEERS else _round(played.fully_hit / played.asking),
        lead_s=None if played.lead_s is None else _round(played.lead_s),
        early_runs=played.early_runs,
        wasted_calls=played.wasted_calls,
        wasted_s=_round(played.wasted_s),
        tool_runs=played.calls + played.wasted_calls,
        task_p50_s=_round(quantile(ordered, 0.5)),
        task_p95_s=_round(quantile(ordered, 0.95)),
        usd_per_100_turns=round(
            usd_per_100_turns(played.main_tokens, played.draft_tokens, played.turns), 4
        ),
    )


def _calibration(generation_s: float, draws: Drawn, cells: Sequence[Played]) -> Mapping[str, Any]:
    by = {(each.arm, each.latency_s): each.agents_s for each in cells}
    points: list[Mapping[str, float]] = []
    for latency_s, paper in PAPER_8B.items():
        model = saved(draws, generation_s, latency_s)
        model_mean = sum(model) / len(model)
        percent = saved_percent(by["plain", latency_s], by["client_side", latency_s])
        found = mean_interval(percent)
        points.append(
            {
                "latency_s": latency_s,
                "paper": paper,
                "fitted": _round(model_mean),
                "residual": _round(model_mean - paper),
                "package": _round(found.value),
                "low": _round(found.low),
                "high": _round(found.high),
                "gap_points": _round(found.value - paper),
            }
        )
    return {
        "label": LABEL,
        "generation_s": generation_s,
        "model_s_per_tool_turn": _round(model_s_per_tool_turn(draws, generation_s)),
        "tokens_per_s": TOKENS_PER_S,
        "points": points,
    }


def _gain(arm: str, cells: Sequence[Played]) -> Mapping[str, Any]:
    """Return what an arm saves beyond the client side, of plain's time, over all latencies."""
    best = {
        (each.arm, each.latency_s): each.agents_s
        for each in cells
        if (each.samples, each.accuracy) == (1, ACCURACY)
    }
    latencies = sorted(latency_s for name, latency_s in best if name == arm)
    by_latency = [
        [
            100 * (before_s - ours_s) / plain_s
            for before_s, ours_s, plain_s in zip(
                best["client_side", latency_s],
                best[arm, latency_s],
                best["plain", latency_s],
                strict=True,
            )
        ]
        for latency_s in latencies
    ]
    of_agents = [sum(each) / len(each) for each in zip(*by_latency, strict=True)]
    found: Interval = mean_interval(of_agents)
    return {
        "arm": arm,
        "points": _round(found.value),
        "low": _round(found.low),
        "high": _round(found.high),
        "by_latency": [
            {"latency_s": latency_s, "points": _round(sum(each) / len(each))}
            for latency_s, each in zip(latencies, by_latency, strict=True)
        ],
    }


def _round(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no negative zero
