"""`spectool model --traces`: fits the model to what an agent did, and says what it would save."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from langchain_spectool._core.events import Event
from langchain_spectool.bench.evaluate import replay
from langchain_spectool.bench.model.equations import jensen_gap
from langchain_spectool.bench.model.estimate import Estimate, estimate
from langchain_spectool.bench.model.fit import as_if_on, by_run, fit_events, units_of
from langchain_spectool.bench.model.means import (
    at_the_means,
    early_share,
    hit_s,
    hit_share,
    hits_s,
)
from langchain_spectool.bench.model.modes import split, turns_in
from langchain_spectool.bench.model.recorded import timed_runs, timed_turns, untimed_turns
from langchain_spectool.bench.model.settings import (
    Found,
    ModelOptions,
    break_even,
    closed_form,
)
from langchain_spectool.bench.model.turn_model import Turn
from langchain_spectool.bench.recorded import MOST_NAMED, Recorded
from langchain_spectool.errors import SpectoolError
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.telemetry.event_log import read_events
from langchain_spectool.traces.lines import opened, values
from langchain_spectool.traces.reading import trace_files
from langchain_spectool.traces.trajectory import is_mapping

_EVENT_FIELDS: Final = {"kind", "at_s"}
_FEW: Final = 30
_MOST_EARLY: Final = (
    "the log does not say of every tool whether it may run early: the calls of those that cannot "
    "are too many in shares and ceilings"
)
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
    mode: str = ""
    """Of an event log, `on` or `shadow`."""
    early_known: bool = True
    """Whether it is known of all calls whether they may run early."""
    as_on: Estimate | None = None
    """With those guesses of a log alone that would have run, were speculation on."""
    shadow: "_Fit | None" = None
    """Of a log that holds both: its turns in shadow mode; all else is of the other ones."""

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
    apart = [split(events) for events, _ in read]
    live, shadow = ([log[mode] for log in apart if turns_in(log[mode])] for mode in (0, 1))
    notes = _bad([line for _, bad in read for line in bad])
    if not live or not shadow:
        logs = live or shadow or [events for events, _ in read]
        return _of_logs(logs, in_shadow=bool(shadow), options=options, notes=notes)
    aside = _of_logs(shadow, in_shadow=True, options=options, notes=[])
    try:
        fit = _of_logs(live, in_shadow=False, options=options, notes=notes)
    except SpectoolError as error:
        count = sum(map(turns_in, live))
        aside.notes[:0] = [*notes, f"the {count} turns that were not in shadow mode: {error}"]
        return aside
    fit.shadow = aside
    return fit


def _of_logs(
    logs: Sequence[Sequence[Event]], *, in_shadow: bool, options: ModelOptions, notes: list[str]
) -> _Fit:
    fits = [fit_events(events, options.seed) for events in logs]
    turns = [turn for fit in fits for turn in fit.turns]
    units, on = units_of(fits), as_if_on(fits)
    known = all(fit.early_known for fit in fits)
    return _Fit(
        source="event log",
        mode="shadow" if in_shadow else "on",
        units=units,
        alpha=hit_share(turns),
        alpha_from="guessed right, and in time",
        early_known=known,
        guess_s=hit_s(turns),
        estimate=estimate(units, cost_s=options.cost_s, seed=options.seed),
        as_on=None
        if on is None
        else estimate(units_of(on), cost_s=options.cost_s, seed=options.seed),
        notes=[
            *notes,
            *_imputed(sum(fit.imputed for fit in fits), sum(len(turn.calls) for turn in turns)),
            *([] if known else [_MOST_EARLY]),
            (
                f"the interval resamples {len(units)} runs"
                if by_run(fits)
                else "turns are resampled as if each stood alone: two runs cannot be told apart"
            ),
            (
                f"wrong guesses cost no time: {sum(fit.wasted for fit in fits)} of "
                f"{sum(fit.scored for fit in fits)} were wrong"
            ),
        ],
    )


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


# --- what was found


def _as_json(fit: _Fit, options: ModelOptions) -> Found:
    turns, at = fit.turns, fit.estimate
    times = [(turn.generation_s, call.tool_s) for turn in turns for call in turn.calls]
    form, gap, even = _at_the_means(fit, times, options)
    return {
        "source": fit.source,
        "mode": fit.mode,
        "speedup": at.speedup,
        "bound": at.bound,
        **_saved(fit),
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
            "g_s": spread(hits_s(turns) or [fit.guess_s]),
            "early_share": early_share(turns),
            "early_share_known": fit.early_known,
            "alpha": fit.alpha,
            "alpha_from": fit.alpha_from,
        },
        "shadow": None
        if fit.shadow is None
        else {"turns": len(fit.shadow.turns), **_saved(fit.shadow)},
        "break_even": even,
        "closed_form": form,
        "jensen_gap_points": gap,
        "notes": fit.notes,
    }


def _saved(fit: _Fit) -> Found:
    return {
        "saving": fit.estimate.saving,
        "interval": [fit.estimate.low, fit.estimate.high],
        "saving_as_on": None if fit.as_on is None else fit.as_on.saving,
    }


def _at_the_means(
    fit: _Fit, times: Sequence[tuple[float, float]], options: ModelOptions
) -> tuple[Found | None, float | None, Found | None]:
    """Return equation (2) at the means of turns with calls; nothing where a mean is 0."""
    client = at_the_means(fit.turns, alpha=fit.alpha, guess_s=fit.guess_s, cost_s=options.cost_s)
    if client is None:
        return None, None, None
    calling = [[turn for turn in fit.turns if turn.calls]]
    odds = None if fit.mode else (fit.alpha, fit.guess_s)
    form = closed_form(client)
    form["turn_by_turn"] = estimate(calling, odds=odds, cost_s=options.cost_s).saving
    form["gap_points"] = 100 * (client.saving - form["turn_by_turn"])
    gap = 100 * jensen_gap(times, fit.guess_s, client.alpha)
    return form, gap, break_even(client, options)


def spread(seconds: Sequence[float]) -> Found:
    """Return mean and percentiles; None where there is nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return {"mean": None, **dict.fromkeys(_SHARES)}
    at = {name: ordered[int(share * (len(ordered) - 1) + 0.5)] for name, share in _SHARES.items()}
    return {"mean": fmean(ordered), **at}
