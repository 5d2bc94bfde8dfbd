"""`spectool model --traces`: fits the model to what an agent did, and says what it would save."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from langchain_spectool.bench.evaluate import replay
from langchain_spectool.bench.model.equations import Client, jensen_gap
from langchain_spectool.bench.model.estimate import Estimate, estimate
from langchain_spectool.bench.model.fit import by_run, fit_events, units_of
from langchain_spectool.bench.model.recorded import timed_runs, timed_turns, untimed_turns
from langchain_spectool.bench.model.settings import (
    Found,
    ModelOptions,
    break_even,
    closed_form,
    said_break_even,
)
from langchain_spectool.bench.model.turn_model import Turn, first_hit
from langchain_spectool.bench.recorded import MOST_NAMED, Recorded
from langchain_spectool.errors import SpectoolError
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.telemetry.event_log import read_events
from langchain_spectool.traces.lines import opened, values
from langchain_spectool.traces.reading import trace_files
from langchain_spectool.traces.trajectory import is_mapping, printable

_EVENT_FIELDS: Final = {"kind", "at_s"}
_FEW: Final = 30
_SHARES: Final = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


@dataclass(slots=True, kw_only=True)
class _Fit:
    """What was read, and how."""

    source: str
    units: list[list[Turn]]
    alpha: float
    alpha_from: str
    guess_s: float
    estimate: Estimate
    notes: list[str] = field(default_factory=list[str])

    @property
    def turns(self) -> list[Turn]:
        return [turn for unit in self.units for turn in unit]


def found(options: ModelOptions) -> Found:
    """Fit the model to the traces.

    Raises:
        SpectoolError: They lack what a fit needs; the message says what.
    """
    files = trace_files(options.traces)
    if not any(path.stat().st_size for path in files):
        msg = (
            f"nothing is recorded in {', '.join(map(repr, options.traces))}: with speculation off "
            "no event is told; record with `Policy(mode='shadow')`"
        )
        raise SpectoolError(msg)
    logs = [_is_event_log(path) for path in files]
    if any(logs) and not all(logs):
        msg = "event logs and recorded runs are fitted one kind at a time: give one of them"
        raise SpectoolError(msg)
    fit = _of_events(options) if any(logs) else _of_runs(options)
    if fit.estimate.units < _FEW:
        fit.notes.append(f"{fit.estimate.units} units are few: the interval is a rough one")
    return _as_json(fit, options)


def _is_event_log(path: Path) -> bool:
    """Say whether the first record that can be read is an event."""
    with opened(path) as (file, _):
        for _, value in values(file):
            if is_mapping(value):
                return value.keys() >= _EVENT_FIELDS
            if not isinstance(value, ValueError):
                return False
    return False


# --- event logs


def _of_events(options: ModelOptions) -> _Fit:
    given = (options.generation_s, options.tool_s, options.guess_s, options.alpha)
    if any(value is not None for value in given):
        msg = "an event log tells G, T, g and alpha itself: leave --G --T --g --alpha out"
        raise SpectoolError(msg)
    read = [read_events(path) for path in trace_files(options.traces)]
    fits = [fit_events(events, options.seed) for events, _ in read]
    turns = [turn for fit in fits for turn in fit.turns]
    hits_s = _hits_s(turns)
    calls = sum(len(turn.calls) for turn in turns)
    units = units_of(fits)
    return _Fit(
        source="event log",
        units=units,
        alpha=len(hits_s) / calls if calls else 0.0,
        alpha_from="guessed right, and in time",
        guess_s=fmean(hits_s) if hits_s else 0.0,
        estimate=estimate(units, cost_s=options.cost_s, seed=options.seed),
        notes=[
            *_bad([line for _, bad in read for line in bad]),
            *_imputed(sum(fit.imputed for fit in fits), calls),
            (
                f"the interval resamples {len(units)} runs"
                if by_run(fits)
                else "turns are resampled as if each stood alone: two runs cannot be told apart"
            ),
            (
                "guesses that the benefit gate would hold back count, and wrong ones cost no time: "
                f"{sum(fit.wasted for fit in fits)} of {sum(fit.scored for fit in fits)} were wrong"
            ),
        ],
    )


def _hits_s(turns: Sequence[Turn]) -> list[float]:
    """Return when each hit was guessed, from the start of its turn; 0 if that was before it."""
    firsts = [first_hit(turn, call) for turn in turns for call in turn.calls]
    return [max(0.0, first) for first in firsts if first is not None]


def _bad(lines: Sequence[str]) -> list[str]:
    named = [f"skipped {line}" for line in lines[:MOST_NAMED]]
    more = len(lines) - len(named)
    return [*named, f"skipped {more} more"] if more else named


def _imputed(count: int, calls: int) -> list[str]:
    if not count:
        return []
    said = (
        f"{count} of {calls} calls have no time in the log: they count as misses that take as "
        "long as the others"
    )
    return [said]


# --- recorded runs


def _of_runs(options: ModelOptions) -> _Fit:
    recorded = Recorded(options.traces, options.tools)
    trajectories = [*recorded]
    runs = timed_runs(options.traces)
    read_only = {each.task: each.read_only for each in trajectories}
    timed = [timed_turns(found, read_only.get(trace, frozenset())) for trace, found in runs.items()]
    units = [turns for turns in timed if turns]
    given = (options.generation_s, options.tool_s)
    if units and given != (None, None):
        msg = "the recording has times of its own: leave --G and --T out"
        raise SpectoolError(msg)
    source = "recorded runs with times"
    if not units:
        generation_s, tool_s = _needed_times(options)
        units = [untimed_turns(each, generation_s, tool_s) for each in trajectories]
        source = "recorded runs without times"
    _check_early(units)
    alpha, low, high, alpha_from = _odds(options, trajectories)
    guess_s = _guess_s(options)
    ends = [
        estimate(units, odds=(at, guess_s), cost_s=options.cost_s, seed=options.seed)
        for at in (alpha, low, high)
    ]
    return _Fit(
        source=source,
        units=units,
        alpha=alpha,
        alpha_from=alpha_from,
        guess_s=guess_s,
        estimate=_widened(*ends),
        notes=["hits are taken to be independent of each other and of the times"],
    )


def _needed_times(options: ModelOptions) -> tuple[float, float]:
    names = {"--G": options.generation_s, "--T": options.tool_s}
    missing = [name for name, value in names.items() if value is None]
    if missing or options.generation_s is None or options.tool_s is None:
        msg = (
            f"the recording holds messages without times, so that G and T cannot be fitted: add "
            f"{' and '.join(missing)}, or give an event log (`EventLog`) or an export of "
            "LangSmith's runs with `start_time` and `end_time`"
        )
        raise SpectoolError(msg)
    return options.generation_s, options.tool_s


def _check_early(units: Sequence[Sequence[Turn]]) -> None:
    calls = [call for turns in units for turn in turns for call in turn.calls]
    if not any(call.may_run_early for call in calls):
        msg = (
            f"none of the {len(calls)} recorded calls is known to be read-only, so that nothing "
            "could run early: name the tools with `x_read_only` in a list for --tools"
        )
        raise SpectoolError(msg)


def _odds(options: ModelOptions, trajectories: Sequence[Any]) -> tuple[float, float, float, str]:
    """Return alpha, the ends of its interval, and where it is from."""
    if options.alpha is not None:
        return options.alpha, options.alpha, options.alpha, "given"
    hits = replay(Patterns(), trajectories, learning=True).as_json()["read_only"]
    alpha, count = hits["hit@1"], hits["n"]
    if alpha is None or not count:
        msg = "no turn with a read-only call can be replayed: give --alpha and --g"
        raise SpectoolError(msg)
    low, high = _wilson(alpha, count)
    said = f"right first guesses of `Patterns`, learning as it goes, over {count} turns with reads"
    return alpha, low, high, said


def _guess_s(options: ModelOptions) -> float:
    if options.guess_s is not None:
        return options.guess_s
    if options.alpha is not None:
        msg = "--alpha of a source needs its time: add --g"
        raise SpectoolError(msg)
    return 0.0  # `Patterns` guesses within a millisecond


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % score interval of a share."""
    z2 = 1.96 * 1.96
    middle = share + z2 / (2 * count)
    spread = 1.96 * sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return (middle - spread) / (1 + z2 / count), (middle + spread) / (1 + z2 / count)


def _widened(at: Estimate, low: Estimate, high: Estimate) -> Estimate:
    """Return the estimate with the interval that alpha's own uncertainty adds to."""
    return Estimate(
        plain_s=at.plain_s,
        speculative_s=at.speculative_s,
        least_s=at.least_s,
        low=low.low,
        high=high.high,
        units=at.units,
    )


# --- what is printed


def _as_json(fit: _Fit, options: ModelOptions) -> Found:
    turns, at = fit.turns, fit.estimate
    times = [(turn.generation_s, call.tool_s) for turn in turns for call in turn.calls]
    form, gap, even = _at_the_means(fit, times, options)
    return {
        "source": fit.source,
        "speedup": at.speedup,
        "bound": at.bound,
        "saving": at.saving,
        "interval": [at.low, at.high],
        "turn_s": {
            "plain": at.plain_s / len(turns),
            "speculative": at.speculative_s / len(turns),
        },
        "fitted": {
            "turns": len(turns),
            "turns_without_calls": sum(not turn.calls for turn in turns),
            "calls": len(times),
            "G_s": spread([turn.generation_s for turn in turns]),
            "T_s": spread([tool_s for _, tool_s in times]),
            "g_s": spread(_hits_s(turns) or [fit.guess_s]),
            "early_share": _early_share(turns),
            "alpha": fit.alpha,
            "alpha_from": fit.alpha_from,
        },
        "break_even": even,
        "closed_form": form,
        "jensen_gap_points": gap,
        "notes": fit.notes,
    }


def _at_the_means(
    fit: _Fit, times: Sequence[tuple[float, float]], options: ModelOptions
) -> tuple[Found | None, float | None, Found | None]:
    """Return equation (2) at the means of turns with calls; nothing where a mean is 0."""
    means = [fmean(time[part] for time in times) if times else 0.0 for part in (0, 1)]
    if not all(means):
        return None, None, None
    client = Client(
        generation_s=means[0],
        tool_s=means[1],
        guess_s=fit.guess_s,
        alpha=fit.alpha * _early_share(fit.turns),
        cost_s=options.cost_s,
    )
    form = closed_form(client)
    gap = 100 * jensen_gap(times, fit.guess_s, client.alpha)
    form["gap_points"] = 100 * (client.saving - fit.estimate.saving)
    return form, gap, break_even(client, options)


def _early_share(turns: Sequence[Turn]) -> float:
    """Return the share of the calls that may run early; all of an event log count as such."""
    early = [call.may_run_early for turn in turns for call in turn.calls]
    return fmean(early) if early else 0.0


def spread(seconds: Sequence[float]) -> Found:
    """Return mean and percentiles; None where there is nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return {"mean": None, **dict.fromkeys(_SHARES)}
    at = {name: ordered[int(share * (len(ordered) - 1) + 0.5)] for name, share in _SHARES.items()}
    return {"mean": fmean(ordered), **at}


def show(found: Found) -> None:
    """Print what `found` returned."""
    console = Console(highlight=False)
    fitted = found["fitted"]
    table = Table(title=f"{found['source']}: {fitted['turns']} turns, {fitted['calls']} calls")
    for heading in ("seconds", "mean", "p10", "p50", "p90"):
        table.add_column(heading, justify="left" if heading == "seconds" else "right")
    for name in ("G_s", "T_s", "g_s"):
        cells = ("-" if value is None else f"{value:.3f}" for value in fitted[name].values())
        table.add_row(name.removesuffix("_s"), *cells)
    console.print(table)
    lines = [
        (
            f"{100 * fitted['early_share']:.0f} % of the calls may run early; of these, alpha "
            f"{fitted['alpha']:.3f}: {fitted['alpha_from']}"
        ),
        _headline(found),
    ]
    if (form := found["closed_form"]) is not None:
        lines.append(
            f"Equation (2) at the means says {100 * form['saving']:.1f} %, "
            f"{form['gap_points']:+.1f} points from that; its Jensen gap is "
            f"{found['jensen_gap_points']:.1f} points."
        )
        lines.append(said_break_even(found["break_even"]))
    for line in (*lines, *(f"note: {note}" for note in found["notes"])):
        console.print(printable(line), soft_wrap=True, markup=False)


def _headline(found: Found) -> str:
    low, high = found["interval"]
    interval = "" if low is None else f" (95 %: {100 * low:.1f} to {100 * high:.1f} %)"
    return (
        f"Speculation would save {100 * found['saving']:.1f} % of the time{interval}: "
        f"{found['speedup']:.3f} times as fast, {found['bound']:.3f} if every early call were "
        "guessed at once."
    )
