"""Tables of the paper's experiment."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from langchain_spectool.bench.report_page.paper_figures import main_cells, typical
from langchain_spectool.bench.report_page.paper_results import PaperResults
from langchain_spectool.bench.report_page.tables import (
    Table,
    interval,
    per_cent,
    seconds,
)

_LONGEST = 600
"""Characters of a setting that are shown."""


def bars(results: PaperResults) -> Table:
    """List the bars and what was measured."""
    return Table(
        caption="Bars",
        columns=("bar", "value", "must be", "met"),
        rows=[
            [bar.name, bar.value, f"{bar.sense} {bar.limit:g}", _yes(bar.met)]
            for bar in results.bars
        ],
        note="The value is the end of the 95 % interval farther from 0; of a gain, the lower end.",
    )


def _yes(met: bool | None) -> str:  # noqa: FBT001 - a value to be written
    return "not measured" if met is None else "yes" if met else "no"


def calibration(results: PaperResults) -> Iterator[Table]:
    """Set the reproduction beside the paper, where it was made."""
    fitted = results.calibration
    if fitted is None:
        return
    yield Table(
        caption="Calibrated reproduction of the paper's 8B column, % of time saved",
        columns=("tool latency, s", "paper", "fitted", "residual", "package", "interval", "gap"),
        rows=[
            [
                f"{point.latency_s:g}",
                point.paper,
                point.fitted,
                point.residual,
                point.package,
                interval(point.low, point.high),
                point.gap_points,
            ]
            for point in fitted.points
        ],
        note=(
            f"One number is fitted: the mean generation, {fitted.generation_s:.2f} s"
            + (
                f", or {fitted.model_s_per_tool_turn:.2f} s of the model per turn with tools."
                if fitted.model_s_per_tool_turn
                else "."
            )
        ),
    )


def arms(results: PaperResults) -> Iterator[Table]:
    """Set all arms side by side at the typical latency."""
    near = typical(results)
    if near is None:
        return
    cells = [c for c in main_cells(results, None) if c.latency_s == near.latency_s]
    yield Table(
        caption=f"All arms with tools of {near.latency_s:g} s on average",
        columns=(
            "arm",
            "saved %",
            "interval",
            "alpha",
            "turns fully hit",
            "lead",
            "early runs",
            "wasted calls",
            "wasted s",
            "task p50",
            "task p95",
            "tokens/s per agent",
            "$ per 100 turns",
        ),
        rows=[
            [
                cell.arm,
                cell.saved,
                interval(cell.low, cell.high),
                per_cent(cell.hit_share),
                per_cent(cell.turns_fully_hit),
                seconds(cell.lead_s),
                cell.early_runs,
                cell.wasted_calls,
                cell.wasted_s,
                seconds(cell.task_p50_s),
                seconds(cell.task_p95_s),
                cell.tokens_per_s,
                cell.usd_per_100_turns,
            ]
            for cell in cells
        ],
        note="Workloads and arms were fixed before measuring; all are shown. Prices are assumed.",
    )


def peers(results: PaperResults) -> Iterator[Table]:
    """Say which other projects ran, and which could not be installed."""
    peers = results.slice.peers if results.slice else ()
    if peers:
        yield Table(
            caption="Peers",
            columns=("name", "installed", "version", "note"),
            rows=[[each.name, _yes(each.installed), each.version, each.note] for each in peers],
            longest=_LONGEST,
        )


def real_time(results: PaperResults) -> Iterator[Table]:
    """List what was measured in real time."""
    real = results.real
    if real is None:
        return
    yield Table(
        caption=f"In real time, all times scaled by {real.scale or 1:g}",
        columns=("arm", "tool latency, s", "saved %", "interval", "virtual %", "CPU", "valid"),
        rows=[
            [
                row.arm,
                row.latency_s,
                row.saved,
                interval(row.low, row.high),
                row.virtual_saved,
                per_cent(row.cpu_share),
                "void" if row.void else "yes",
            ]
            for row in real.rows
        ],
        note="Arms in turns; a cell above half a core means nothing and is void.",
    )


def scale(results: PaperResults) -> Iterator[Table]:
    """List what was measured with many agents at once."""
    scale = results.scale
    if scale is None:
        return
    memory = scale.memory
    yield Table(
        caption="Agents, arriving one after another",
        columns=(
            "agents",
            "most at once",
            "clock",
            "saved %",
            "interval",
            "CPU plain",
            "CPU",
            "CPU ratio",
            "state",
        ),
        rows=[
            [
                f"{row.agents:,}",
                row.most_at_once,
                row.clock,
                row.saved,
                interval(row.low, row.high),
                per_cent(row.plain_cpu_share),
                per_cent(row.client_side_cpu_share),
                row.cpu_ratio,
                "saturated" if row.saturated else "",
            ]
            for row in scale.rows
        ],
        note="" if memory is None else f"A turn in progress holds {memory.kb_per_turn:.1f} kB.",
    )


def settings(results: PaperResults) -> Table:
    """Say what, when, where and with what was measured."""
    measured: Mapping[str, object] = {
        "date": results.date,
        "python": results.python,
        "seconds it took": results.wall_s,
        **{f"version of {name}": value for name, value in results.versions.items()},
        **{f"machine: {name}": value for name, value in results.machine.items()},
        **results.settings,
    }
    return Table(
        caption="What was fixed before measuring",
        columns=("what", "value"),
        rows=[row for name, value in measured.items() for row in _rows(name, value)],
        longest=_LONGEST,
    )


def _rows(name: str, value: object) -> Iterator[Sequence[str]]:
    """Yield a row a setting, one level deep."""
    if isinstance(value, Mapping):
        inner: Mapping[object, object] = value  # pyright: ignore[reportUnknownVariableType]
        for key, each in inner.items():
            yield f"{name}: {key}", _text(each)
    else:
        yield name, _text(value)


def _text(value: object) -> str:
    """Write a setting for people: no quotes, no brackets."""
    match value:
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            inner: Mapping[object, object] = value  # pyright: ignore[reportUnknownVariableType]
            return ", ".join(f"{key}: {_text(each)}" for key, each in inner.items())
        case list() | tuple():
            items = cast("Sequence[object]", value)
            return ", ".join(map(_text, items))
        case _:
            return str(value)
