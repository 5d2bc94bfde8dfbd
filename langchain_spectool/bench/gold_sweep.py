"""Plays the same gold tasks with every source at every latency, and adds up what came of it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from langchain_spectool.bench.gold import DataSet, GoldTask, count_reads
from langchain_spectool.bench.gold_agent import Pace, Player, TaskRun
from langchain_spectool.bench.gold_sources import DRAFT_USD_PER_MILLION, SOURCES, Arm
from langchain_spectool.telemetry.report import Report
from langchain_spectool.testing import VirtualTimeLoop

BASELINE = "off"
_DIGITS = 4
_Played = tuple[Sequence[TaskRun], Report]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One source at one latency on one data set: sums over its test tasks."""

    data_set: str
    source: str
    latency_s: float
    seconds: float
    """End to end, virtual."""
    time_saved: float
    """Share of the seconds that the same agents take with speculation off."""
    hits: int
    """Committed calls that an early run answered."""
    hit_rate: float | None
    """Hits per committed read-only call; None without such calls."""
    predictions_per_turn: float
    """Guesses per turn of the main model, whatever became of them."""
    early_runs: int
    wasted_calls: int
    wasted_s: float
    tool_runs: int
    """Tool bodies started, early or not."""
    input_tokens: int
    """Of speculative model calls, estimated from characters."""
    output_tokens: int
    token_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is compared, and on what sample."""

    data_sets: Sequence[str]
    sources: Sequence[str]
    latencies_s: Sequence[float]
    tasks: int
    """Most test tasks of each data set."""
    seed: int
    pace: Pace
    accuracy: float
    """Chance that the simulated draft is right about a turn."""

    @property
    def arms(self) -> int:
        """How many there are, the baseline of each latency included."""
        return len(self.data_sets) * len(self.latencies_s) * len({BASELINE, *self.sources})

    def sample(self, data_set: DataSet) -> Sequence[GoldTask]:
        """Return the test tasks that are played."""
        return data_set.test[: self.tasks]


def sweep_rows(
    data_set: DataSet, sweep: Sweep, advance: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    """Yield a row per latency and source; `advance` is called after each arm.

    Raises:
        RuntimeError: An arm said other things than the agent with speculation off: then its
            times mean nothing.
    """
    for latency_s in sweep.latencies_s:
        plain = _play(data_set, BASELINE, sweep, latency_s)
        advance()
        for source in sweep.sources:
            if source == BASELINE:
                yield _row(data_set, sweep, source, latency_s, plain, plain)
                continue
            played = _play(data_set, source, sweep, latency_s)
            _check_said(source, played, plain)
            yield _row(data_set, sweep, source, latency_s, played, plain)
            advance()


def _play(data_set: DataSet, source: str, sweep: Sweep, latency_s: float) -> _Played:
    player = Player(pace=sweep.pace, latency_s=latency_s, seed=sweep.seed)
    arm = Arm(
        data_set=data_set,
        current=lambda: player.task,
        seed=sweep.seed,
        accuracy=sweep.accuracy,
    )
    speculation = SOURCES[source].make(arm)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runs = [runner.run(player.play(task, speculation)) for task in sweep.sample(data_set)]
    return runs, speculation.report()


def _check_said(source: str, played: _Played, plain: _Played) -> None:
    for ours, stock in zip(played[0], plain[0], strict=True):
        if ours.said != stock.said:
            msg = f"with {source!r} the agent said {ours.said!r} instead of {stock.said!r}"
            raise RuntimeError(msg)


def _row(  # noqa: PLR0913, PLR0917 - one row's whole provenance
    data_set: DataSet,
    sweep: Sweep,
    source: str,
    latency_s: float,
    played: _Played,
    plain: _Played,
) -> Row:
    runs, report = played
    tasks = sweep.sample(data_set)
    seconds, plain_s = (sum(run.seconds for run in each) for each in (runs, plain[0]))
    reads, turns = count_reads(tasks), sum(len(task.answers) for task in tasks)
    tokens = [sum(each) for each in zip(*report.usage.values(), strict=True)] or [0, 0]
    prices = DRAFT_USD_PER_MILLION
    return Row(
        data_set=data_set.name,
        source=source,
        latency_s=latency_s,
        seconds=round(seconds, _DIGITS),
        time_saved=round(1 - seconds / plain_s, _DIGITS),
        hits=report.hits,
        hit_rate=round(report.hits / reads, _DIGITS) if reads else None,
        predictions_per_turn=round(sum(report.verdicts.values()) / turns, _DIGITS),
        early_runs=report.guesses,
        wasted_calls=report.wasted,
        wasted_s=round(report.wasted_s, _DIGITS),
        tool_runs=sum(run.tool_runs for run in runs),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        token_usd=round(sum(map(_dollars, tokens, prices)), 6),
    )


def _dollars(tokens: int, usd_per_million: float) -> float:
    return tokens * usd_per_million / 1e6
