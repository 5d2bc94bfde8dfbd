"""`spectool replay`: how well a speculator guesses what recorded runs called."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from langchain_spectool._core.ports import Speculator
from langchain_spectool.bench.evaluate import Replay, fit, replay, split_by_task
from langchain_spectool.bench.learn import load_patterns
from langchain_spectool.bench.recorded import Recorded
from langchain_spectool.bench.report import progress
from langchain_spectool.errors import SpectoolError
from langchain_spectool.graph.doctor import load
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.traces.trajectory import is_list, is_mapping

PATTERNS = "patterns"
"""The source that needs no import."""
_SETTINGS: Final[Mapping[str, Any]] = {"candidates": 9, "min_confidence": 0.0}
"""As many guesses as the deepest figure counts, whatever their confidence: gates come later."""
Make = Callable[[], Speculator]
Found = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is replayed, and who guesses.

    Raises:
        SpectoolError: Two of them contradict each other.
    """

    traces: Sequence[str]
    """Files and folders, as `read_traces` takes them."""
    tools: str | None = None
    """A list of tools for all of them."""
    patterns: str | None = None
    """A file that `Patterns` loads instead of learning."""
    source: str = PATTERNS
    """`patterns`, or what to import as `module:attribute`."""
    seeds: Sequence[int] = ()
    """Of each split by task; none to ask about all runs."""
    online: bool | None = None
    """Whether it learns from each turn after it was asked about it. None: only where it starts
    empty and nothing is split off to learn from."""

    def __post_init__(self) -> None:
        """Check what goes together."""
        if self.patterns is not None and self.source != PATTERNS:
            msg = f"a patterns file is for the source {PATTERNS!r}, got {self.source!r}"
            raise SpectoolError(msg)

    @property
    def learning(self) -> bool:
        """Whether it learns from the turns that are replayed."""
        return not (self.seeds or self.patterns) if self.online is None else self.online


def show(options: ReplayOptions, *, as_json: bool = False) -> int:
    """Replay recorded runs and print the figures.

    Raises:
        SpectoolError: The traces, the source or the patterns file cannot be used.
    """
    make = _maker(options.source, options.patterns)
    recorded = Recorded(options.traces, options.tools)
    if options.seeds:
        runs = _split(make, recorded, options)
    else:
        runs = [replay(make(), recorded, learning=options.learning)]
    each = [run.as_json() for run in runs]
    found: Found = {**mean(each), "bad_lines": recorded.bad_lines}
    if options.seeds:
        numbered = zip(options.seeds, each, strict=True)
        found["seeds"] = [{"seed": seed, **one} for seed, one in numbered]
    if as_json:
        print(json.dumps(rounded(found)))
    else:
        _print(found, each, options.seeds)
    return 0


def _maker(source: str, patterns: str | None) -> Make:
    if source != PATTERNS:
        return lambda: _speculator(source)
    if patterns is None:
        return lambda: Patterns(**_SETTINGS)
    return lambda: load_patterns(patterns, **_SETTINGS)


def _speculator(target: str) -> Speculator:
    if ":" not in target:
        msg = f"a source is {PATTERNS!r} or named as `module:speculator`, got {target!r}"
        raise SpectoolError(msg)
    found = load(target)
    if isinstance(found, type):
        found = found()
    if not isinstance(found, Speculator):
        msg = (
            f"{target!r} is of type {type(found).__name__}: name a speculator that has `samples` "
            "and `guess`, its class, or a function that returns one"
        )
        raise SpectoolError(msg)
    return found


def _split(make: Make, recorded: Recorded, options: ReplayOptions) -> list[Replay]:
    trajectories = [*recorded]
    parts = [split_by_task(trajectories, seed) for seed in options.seeds]
    runs: list[Replay] = []
    with progress("replaying", sum(len(test) for _, test in parts)) as advance:
        for train, test in parts:
            speculator = make()
            fit_s = 0.0 if options.patterns else fit(speculator, train)
            run = replay(speculator, test, learning=options.learning, advance=advance)
            run.fit_s = fit_s
            runs.append(run)
    return runs


def mean(found: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON in, JSON of the same shape out
    """Return the mean of figures of one shape; what is None in some counts for nothing."""
    first = found[0]
    if is_mapping(first):
        return {key: mean([each[key] for each in found]) for key in first}
    if is_list(first):
        return [mean(group) for group in zip(*found, strict=True)]
    known = [value for value in found if value is not None]
    if not known or all(value == known[0] for value in known):
        return known[0] if known else None
    value = fmean(known)
    return round(value) if all(isinstance(each, int) for each in known) else value


def rounded(found: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return the same figures with four decimals at most."""
    if is_mapping(found):
        return {key: rounded(value) for key, value in found.items()}
    if is_list(found):
        return [rounded(value) for value in found]
    return round(found, 4) if isinstance(found, float) else found


def _print(found: Found, each: Sequence[Found], seeds: Sequence[int]) -> None:
    console = Console(highlight=False)
    table = Table()
    table.add_column("turns with calls")
    names = [f"seed {seed}" for seed in seeds] or [""]
    columns = [("mean", found)] * (len(each) > 1) + [*zip(names, each, strict=True)]
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    for kind in ("read_only", "all"):
        for name in found[kind]:
            table.add_row(f"{kind} {name}", *(_shown(one[kind][name]) for _, one in columns))
    console.print(table)
    _print_gates(found, console)
    console.print(_fine_print(found), soft_wrap=True)


def _fine_print(found: Found) -> str:
    micro = found["predict_us"]
    return (
        f"calibration error {_shown(found['ece'])}, predict p50 {_shown(micro['p50'])} us, "
        f"p99 {_shown(micro['p99'])} us, fit {found['fit_s']:.2f} s; "
        f"{found['trajectories']} runs, {found['turns']} turns, {found['errors']} errors, "
        f"{found['bad_lines']} bad lines"
    )


def _print_gates(found: Found, console: Console) -> None:
    table = Table()
    for heading in ("gate", "turns %", "precision", "guesses a turn"):
        table.add_column(heading, justify="right")
    for gate in found["gates"]:
        table.add_row(*(_shown(value) for value in gate.values()))
    console.print(table)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
