"""What each source of guesses saves on gold trajectories, by tool latency, in virtual time.

The agents are real LangGraph agents and their tools execute; the main model plays the gold calls
at a drawn pace. Gold calls are not what a model does: this measures mechanism and latency, and a
source's hit rate here says nothing about its hit rate on a model's calls.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import zip_longest
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from langchain_spectool.bench import gold_bfcl, gold_tau2
from langchain_spectool.bench.gold import DataSet, GoldTask, count_reads
from langchain_spectool.bench.gold_agent import PACES
from langchain_spectool.bench.gold_sources import DRAFT_PACE, DRAFT_USD_PER_MILLION, SOURCES
from langchain_spectool.bench.gold_sweep import Sweep, sweep_rows
from langchain_spectool.bench.report import machine, progress, versions
from langchain_spectool.errors import SpectoolError

NOTE = (
    "Gold calls are not a model's behaviour: this shows mechanism and latency and claims no hit "
    "rate for any model. The draft is simulated, its price assumed, all times are virtual."
)
DATA_SETS = {gold_bfcl.NAME: gold_bfcl.load, gold_tau2.NAME: gold_tau2.load}
TASKS = 25
LATENCIES_S = (0.1, 0.5, 1.0, 2.0)
ACCURACY = 0.6
TRAIN_SHARE = 0.7


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status: 2 where it cannot be measured."""
    as_json, sweep = _options(argv)
    try:
        _check_mode()
        found = measure(sweep)
    except SpectoolError as error:
        print(f"spectool bench sources: {error}", file=sys.stderr)
        return 2
    if as_json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        _print_tables(found)
    return 0


def measure(sweep: Sweep) -> dict[str, Any]:
    """Run the sweep; return what docs/benchmarks.md describes, as JSON values.

    Raises:
        MissingPackages: A data set's package is not installed.
        RuntimeError: An arm said other things than the agent with speculation off.
    """
    began_s = time.perf_counter()
    data_sets = [
        DATA_SETS[name](seed=sweep.seed, train_share=TRAIN_SHARE) for name in sweep.data_sets
    ]
    with progress("sources", sweep.arms) as advance:
        rows = [asdict(row) for each in data_sets for row in sweep_rows(each, sweep, advance)]
    return {
        "benchmark": "sources",
        "note": NOTE,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": versions(),
        "machine": machine(),
        "wall_s": round(time.perf_counter() - began_s, 1),
        "settings": _settings(sweep),
        "data_sets": {each.name: _data(each, sweep.sample(each)) for each in data_sets},
        "sources": {name: SOURCES[name].about for name in sweep.sources},
        "rows": rows,
    }


def _settings(sweep: Sweep) -> dict[str, Any]:
    price_in, price_out = DRAFT_USD_PER_MILLION
    return {
        "seed": sweep.seed,
        "tasks": sweep.tasks,
        "train_share": TRAIN_SHARE,
        "latencies_s": [*sweep.latencies_s],
        "pace": asdict(sweep.pace),
        "draft": {
            "simulated": True,
            "accuracy": sweep.accuracy,
            "pace": asdict(DRAFT_PACE),
            "usd_per_million_input_tokens": price_in,
            "usd_per_million_output_tokens": price_out,
        },
    }


def _data(data_set: DataSet, tasks: Sequence[GoldTask]) -> dict[str, Any]:
    answers = [batch for task in tasks for batch in task.answers]
    asking = [batch for batch in answers if batch]
    return {
        "about": data_set.about,
        "package": f"{data_set.package} {version(data_set.package)}",
        "train_tasks": len(data_set.train),
        "test_tasks": len(data_set.test),
        "tasks": len(tasks),
        "turns": len(answers),
        "tool_turns": len(asking),
        "batched_tool_turns": sum(len(batch) > 1 for batch in asking),
        "calls": sum(map(len, answers)),
        "read_only_calls": count_reads(tasks),
    }


def _check_mode() -> None:
    mode = os.environ.get("SPECTOOL_MODE")
    if mode not in (None, "", "on"):
        msg = f"SPECTOOL_MODE is {mode!r}, so that nothing would run early: unset it"
        raise SpectoolError(msg)


def _options(argv: Sequence[str]) -> tuple[bool, Sweep]:
    """Parse the arguments; exits with status 2 on bad ones."""
    parser = argparse.ArgumentParser(
        prog="spectool bench sources",
        description="Compares the sources of guesses on gold trajectories whose tools execute, "
        "with injected tool latency, in virtual time. Needs `make bench-sources` once.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    names = [*DATA_SETS, *SOURCES]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=[],
        metavar="NAME",
        help=f"only these data sets and sources, of {', '.join(names)}",
    )
    parser.add_argument(
        "--tasks",
        type=_whole,
        default=TASKS,
        metavar="N",
        help=f"most test tasks of each data set, drawn by the seed (default: {TASKS})",
    )
    parser.add_argument("--seed", type=int, default=0, help="decides all that is drawn")
    parser.add_argument(
        "--latencies",
        type=_seconds,
        nargs="+",
        default=LATENCIES_S,
        metavar="SECONDS",
        help="what each tool call takes (default: 0.1 0.5 1 2)",
    )
    parser.add_argument(
        "--pace", choices=PACES, default="haiku-4.5", help="whose measured turns the model takes"
    )
    parser.add_argument(
        "--draft-accuracy",
        type=_share,
        default=ACCURACY,
        metavar="P",
        help=f"chance that the simulated draft is right about a turn (default: {ACCURACY})",
    )
    given = parser.parse_args(argv)
    sweep = Sweep(
        data_sets=_chosen(DATA_SETS, given.only),
        sources=_chosen(SOURCES, given.only),
        latencies_s=given.latencies,
        tasks=given.tasks,
        seed=given.seed,
        pace=PACES[given.pace],
        accuracy=given.draft_accuracy,
    )
    return given.json, sweep


def _chosen(names: Mapping[str, object], only: Sequence[str]) -> list[str]:
    """Return those of `names` that are asked for; all, where none is."""
    return [name for name in names if name in only] or [*names]


def _whole(text: str) -> int:
    return int(_between(text, 1, math.inf))


def _seconds(text: str) -> float:
    return _between(text, 0, math.inf)


def _share(text: str) -> float:
    return _between(text, 0, 1)


def _between(text: str, least: float, most: float) -> float:
    value = float(text)
    if not (least <= value <= most and math.isfinite(value)):
        msg = f"must be a finite number from {least} to {most}, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return value


_COLUMNS = (
    ("latency", "latency_s", "{:g} s"),
    ("source", "source", "{}"),
    ("hit rate", "hit_rate", "{:.1%}"),
    ("saved", "time_saved", "{:.1%}"),
    ("wasted", "wasted_calls", "{}"),
    ("wasted s", "wasted_s", "{:.1f}"),
    ("a turn", "predictions_per_turn", "{:.2f}"),
    ("tokens", "token_usd", "${:.3f}"),
)


def _print_tables(found: Mapping[str, Any]) -> None:
    console = Console()
    for name, data in found["data_sets"].items():
        console.print(
            f"[bold]{name}[/bold] ({data['package']}): {data['tasks']} tasks, {data['turns']} "
            f"turns, {data['read_only_calls']} of {data['calls']} calls read-only"
        )
        console.print(_table([row for row in found["rows"] if row["data_set"] == name]))
    for name, about in found["sources"].items():
        console.print(f"[bold]{name}[/bold]: {about}")
    settings = found["settings"]
    console.print(
        f"seed {settings['seed']}, model pace {settings['pace']['model']}, draft accuracy "
        f"{settings['draft']['accuracy']}; {found['wall_s']} s of real time"
    )
    console.print(found["note"])


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading, key, _ in _COLUMNS:
        table.add_column(heading, justify="left" if key == "source" else "right", no_wrap=True)
    for row, after in zip_longest(rows, rows[1:]):
        last = after is None or after["latency_s"] != row["latency_s"]
        shown = (_shown(row[key], form) for _, key, form in _COLUMNS)
        table.add_row(*shown, end_section=last)
    return table


def _shown(value: object, form: str) -> str:
    return "-" if value is None else form.format(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
