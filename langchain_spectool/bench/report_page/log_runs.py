"""The graph runs of an event log: how long they took, what they cost, how held-out ones fared."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page.log_turns import LoggedTurn
from langchain_spectool.bench.report_page.tables import Cell, Table, seconds
from langchain_spectool.telemetry.arms import ArmReport, Arms, Comparison, RunSample
from langchain_spectool.telemetry.bootstrap import Difference

_TOO_FEW = "too few runs"
_MIXED = "mixed"
"""The arm of a run that one Speculation held out and another did not: it counts in neither."""


@dataclass(slots=True, kw_only=True)
class LoggedRun:
    """One graph run, as far as the log tells of it."""

    name: str
    turns: list[LoggedTurn] = field(default_factory=list[LoggedTurn])
    ended: Event | None = None
    """None while it goes on, and where nobody could tell its end."""

    @property
    def took_s(self) -> float | None:
        """Seconds end to end."""
        if self.ended is None or self.ended.started_s is None:
            return None
        return max(0.0, self.ended.at_s - self.ended.started_s)

    @property
    def sample(self) -> RunSample | None:
        """What it adds to a comparison."""
        if self.ended is None or self.took_s is None or self.ended.arm == _MIXED:
            return None
        starts_s = sorted(turn.began_s for turn in self.turns)
        ends_s = pairwise((*starts_s, max(self.ended.at_s, *starts_s, 0.0)))
        cost_usd = self.ended.cost_usd
        return RunSample(
            arm="holdout" if self.ended.arm == "holdout" else "treated",
            took_s=self.took_s,
            turns=len(self.turns),
            turn_s=tuple(end - start for start, end in ends_s),
            cost_usd=None if cost_usd is None else max(0.0, cost_usd),
            success=self.ended.verdict == "done",
        )


def runs_of(events: Iterable[Event], turns: Iterable[LoggedTurn]) -> list[LoggedRun]:
    """Return the runs that the log names, in the order in which they come up."""
    runs: dict[str, LoggedRun] = {}
    for turn in turns:
        if turn.run:
            runs.setdefault(turn.run, LoggedRun(name=turn.run)).turns.append(turn)
    for event in events:
        if event.kind == "run_ended" and (run := runs.get(event.run)) is not None:
            run.ended = event if run.ended is None else _joined(run.ended, event)
    return [*runs.values()]


def _joined(one: Event, other: Event) -> Event:
    """Return what two Speculations in one graph tell of the end of a run, as one."""
    arms = {event.arm for event in (one, other)} - {""}
    starts_s = [event.started_s for event in (one, other) if event.started_s is not None]
    costs = [event.cost_usd for event in (one, other) if event.cost_usd is not None]
    return replace(
        other,
        at_s=max(one.at_s, other.at_s),
        started_s=min(starts_s, default=None),
        arm=_MIXED if len(arms) > 1 else "".join(arms),
        verdict="failed" if "failed" in (one.verdict, other.verdict) else other.verdict,
        cost_usd=sum(costs) if len(costs) == 2 else None,  # noqa: PLR2004 - both are known
    )


def compared(runs: Iterable[LoggedRun]) -> Comparison:
    """Compare the finished runs that were held out with the others."""
    arms = Arms(seed=0)
    for run in runs:
        if (sample := run.sample) is not None:
            arms.add(sample)
    return arms.compare()


def run_table(runs: Sequence[LoggedRun]) -> Table:
    """Say how long runs took and what a success cost; where some were held out, the difference."""
    found = compared(runs)
    return Table(
        caption="Runs, end to end",
        columns=("runs", "finished", "p50", "p95", "per turn", "$ per success"),
        rows=[*_rows(found)] if found.treated.n + found.holdout.n else [],
        note=(
            "A run is one call of the graph, nested agents included. Costs are known where the "
            "policy has a holdout or a budget per run, and prices. Differences are treated less "
            "held out, with their 95 % interval: below 0 speaks for speculation."
        ),
    )


def _rows(found: Comparison) -> Iterator[Sequence[Cell]]:
    if not found.holdout.n:
        yield _row("all", found.treated)
        return
    yield _row("with speculation", found.treated)
    yield _row("held out", found.holdout)
    differences = (found.p50_s, found.p95_s, found.turn_s, found.cost_per_success_usd)
    yield ["difference", None, *(_difference(each) for each in differences)]


def _row(name: str, arm: ArmReport) -> Sequence[Cell]:
    usd = arm.cost_per_success_usd
    times = [seconds(each) for each in (arm.p50_s, arm.p95_s, arm.turn_s)]
    return [name, arm.n, *times, None if usd is None else f"{usd:.4g}"]


def _difference(found: Difference | None) -> str:
    if found is None:
        return _TOO_FEW
    return f"{found.value:+.3g} ({found.low:+.3g} to {found.high:+.3g})"
