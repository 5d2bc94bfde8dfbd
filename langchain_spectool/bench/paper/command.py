"""`spectool bench paper`: measures the parts, and says whether the bars are met.

The draft is simulated and the calls are gold calls: this shows mechanism and latency, and claims
no hit rate for any model.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from langchain_spectool.bench.paper import actors, draft, grid, latencies, package_slice, sample
from langchain_spectool.bench.paper import real_time as real_part
from langchain_spectool.bench.paper import scale as scale_part
from langchain_spectool.bench.paper.bars import bars_of
from langchain_spectool.bench.paper.figures import PRICES, RESAMPLES
from langchain_spectool.bench.paper.parallel import WORKERS, run_all
from langchain_spectool.bench.paper.printing import print_tables
from langchain_spectool.bench.paper.workload import CHARS_PER_TOKEN, load_tasks
from langchain_spectool.bench.report import machine, progress, versions
from langchain_spectool.errors import SpectoolError

NOTE: Final = (
    "A calibrated reproduction: one generation time is fitted to the paper. Gold calls are not a "
    "model's behaviour and the draft is simulated, so this shows mechanism and latency and claims "
    "no hit rate for any model."
)
PARTS: Final = ("slice", "grid", "real", "scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is measured."""

    parts: Sequence[str] = PARTS
    seed: int = 0
    quick: bool = False
    workers: int = WORKERS
    """Processes that share the virtual part; 0: all in this one."""

    @property
    def plan(self) -> package_slice.Plan:
        """What the slice plays."""
        if not self.quick:
            return package_slice.Plan(seed=self.seed, workers=self.workers)
        return package_slice.Plan(
            seed=self.seed,
            agents=4,
            tasks=2,
            column_tasks=2,
            latencies_s=(0.5, 1.0, 3.0),
            peers_s=(1.0,),
            workers=self.workers,
        )


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status: 1 for a missed bar, 2 for no measurement."""
    given = _parser().parse_args(argv)
    output: Path | None = given.output
    experiment = Experiment(parts=given.only or PARTS, seed=given.seed, quick=given.quick)
    try:
        _check_mode()
        render = _renderer() if output else None
        found = measure(experiment)
    except SpectoolError as error:
        print(f"spectool bench paper: {error}", file=sys.stderr)
        return 2
    if output and render:
        output.write_text(render(paper=found, events=None), "utf-8")
    if given.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        print_tables(found)
    return 0 if all(bar["met"] for bar in found["bars"]) else 1


def measure(experiment: Experiment) -> dict[str, Any]:
    """Measure; return what docs/benchmarks.md describes, as JSON values.

    Raises:
        MissingPackages: `bfcl-eval` is not installed.
        RuntimeError: An arm said other things than plain: then its times mean nothing.
    """
    began_s = time.perf_counter()
    found: dict[str, Any] = {
        "benchmark": "paper",
        "note": NOTE,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": versions("bfcl-eval"),
        "machine": machine(),
        "settings": settings(experiment),
        "calibration": None,
        "slice": None,
        "sample": None,
        "grid": None,
        "real": None,
        "scale": None,
        "part_s": {},
    }
    generation_s = package_slice.fitted(experiment.plan)[0]
    parts: Mapping[str, Callable[[Experiment, float], dict[str, Any]]] = {
        "slice": _slice,
        "grid": _grid,
        "real": _real,
        "scale": _scale,
    }
    for name in experiment.parts:
        part_began_s = time.perf_counter()
        found |= parts[name](experiment, generation_s)
        found["part_s"][name] = round(time.perf_counter() - part_began_s, 1)
    found["bars"] = [bar.as_json() for bar in bars_of(found)]
    found["wall_s"] = round(time.perf_counter() - began_s, 1)
    return found


def _slice(experiment: Experiment, generation_s: float) -> dict[str, Any]:
    plan = experiment.plan
    with progress("slice", plan.steps) as advance:
        found = package_slice.measure(plan, advance)
    return {**found, "sample": sample.recorded(plan, generation_s)}


def _grid(experiment: Experiment, generation_s: float) -> dict[str, Any]:
    shapes = tuple((*map(len, task.batches), 0) for task in load_tasks())
    plan = grid.Grid(generation_s=generation_s, shapes=shapes, seed=experiment.seed)
    if experiment.quick:
        plan = replace(plan, tasks=4, repeats=1, latencies_s=(0.5, 1.0, 3.0), samples=(1, 9))
    cells = [(agents, latency_s) for agents in plan.agents for latency_s in plan.latencies_s]
    began_s = time.perf_counter()
    with progress("grid", len(cells)) as advance:
        tasks = [(grid.grid_rows, (plan, *cell)) for cell in reversed(cells)]
        rows = run_all(tasks, advance, experiment.workers)
    return {
        "grid": {
            "repeats": plan.repeats,
            "tasks": plan.tasks,
            "generation_s": generation_s,
            "capacity": grid.CAPACITY,
            "draft_load": grid.DRAFT_LOAD,
            "wall_s": round(time.perf_counter() - began_s, 1),
            "rows": [asdict(row) for each in reversed(rows) for row in each],
        }
    }


def _real(experiment: Experiment, generation_s: float) -> dict[str, Any]:
    plan = real_part.RealPlan(
        seed=experiment.seed, generation_s=generation_s, draft=experiment.plan.draft()
    )
    if experiment.quick:
        plan = replace(plan, agents=2, tasks=1, repeats=1, latencies_s=(1.0,))
    with progress("real", plan.steps) as advance:
        return {"real": real_part.measure(plan, advance)}


def _scale(experiment: Experiment, _: float) -> dict[str, Any]:
    plan = scale_part.ScalePlan()
    if experiment.quick:
        plan = scale_part.ScalePlan(real=(1, 5), virtual=(50,), held=32, times=0.1)
    with progress("scale", plan.steps) as advance:
        return {"scale": scale_part.measure(plan, advance)}


def settings(experiment: Experiment) -> dict[str, Any]:
    """Return everything that is fixed before measuring."""
    plan = experiment.plan
    return {
        "seed": experiment.seed,
        "quick": experiment.quick,
        "parts": [*experiment.parts],
        "arms": dict(actors.ARMS),
        "agents": plan.agents,
        "tasks": plan.tasks,
        "column_tasks": plan.column_tasks,
        "latencies_s": [*plan.latencies_s],
        "distribution": {
            "name": "truncated normal",
            "relative_sd": latencies.RELATIVE_SD,
            "range_over_mean": [0, 2],
        },
        "writing_from": actors.WRITING_FROM,
        "tokens_per_s": actors.TOKENS_PER_S,
        "chars_per_token": CHARS_PER_TOKEN,
        "draft": {
            "simulated": True,
            "seconds_by_accuracy": {str(key): value for key, value in draft.DRAFT_S.items()},
            "beta_concentration": draft.CONCENTRATION,
        },
        "policy": "benefit=None, no limits on guesses: every guess runs, as in the paper",
        "prices_usd_per_million": {
            name: [price.input_usd_per_million, price.output_usd_per_million]
            for name, price in PRICES.items()
        },
        "server": {"capacity": grid.CAPACITY, "draft_load": grid.DRAFT_LOAD},
        "resamples": RESAMPLES,
    }


def _renderer() -> Callable[..., str]:
    """Return what makes the page, before minutes are spent on measuring."""
    try:
        return import_module("langchain_spectool.bench.report_page").render
    except ModuleNotFoundError as error:
        msg = f"the page needs {error.name!r}, which is not installed"
        raise SpectoolError(msg) from error


def _check_mode() -> None:
    mode = os.environ.get("SPECTOOL_MODE")
    if mode not in {None, "", "on"}:
        msg = f"SPECTOOL_MODE is {mode!r}, so that nothing would run early: unset it"
        raise SpectoolError(msg)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spectool bench paper",
        description="Repeats the client-side experiment of arXiv 2512.15834 with this package. "
        "Exits with status 1 if a bar is missed. Needs `make bench-sources` once.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also write the page of the report"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=[],
        metavar="PART",
        help=f"only these parts, of {', '.join(PARTS)}",
    )
    parser.add_argument("--seed", type=int, default=0, help="decides all that is drawn")
    parser.add_argument(
        "--quick", action="store_true", help="all of it small, to see that it works"
    )
    return parser
