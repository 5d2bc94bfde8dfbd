"""What the page says about the paper's experiment."""

from collections.abc import Iterator

from langchain_spectool.bench.report_page import paper_tables as tables
from langchain_spectool.bench.report_page.log_turns import turns_of
from langchain_spectool.bench.report_page.paper_figures import (
    MAIN,
    arms_by_latency,
    by_samples,
    calibrated,
    main_cells,
    saved_by_agents,
    saved_by_latency,
    typical,
)
from langchain_spectool.bench.report_page.paper_results import Cell, PaperResults, Point
from langchain_spectool.bench.report_page.parts import Headline, Part
from langchain_spectool.bench.report_page.tables import (
    counted,
    per_cent,
    seconds,
    shown,
)
from langchain_spectool.bench.report_page.timeline_figure import HOW_TO_READ, timeline

_LOSS_POINTS = 2.0
"""A contended cell this far below its uncontended twin is told."""
_MOST_POINTS = 12
_LONGEST_NOTE = 2_000
_MOST_TIMELINES = 5
_MOST_PLAIN_SHARE = 0.3
"""Share of a core that arrivals leave plain, so that times are those of the package."""


def paper_headline(results: PaperResults) -> Headline:
    """Say what the package saved at one set-up, and what was measured beside it."""
    met = sum(bool(bar.met) for bar in results.bars)
    bars = ("bars met", f"{met} of {len(results.bars)}")
    cell = typical(results)
    if cell is None:
        return Headline(
            about="The paper's experiment",
            value="no time measured",
            setup="The part `slice`, the package itself in virtual time, was not run.",
            tiles=(bars,),
        )
    best = max(main_cells(results, MAIN), key=lambda each: each.saved)
    point = _column(results)
    said = cell if point is None else point
    saved = said.saved if isinstance(said, Cell) else said.package
    return Headline(
        about="The paper's experiment",
        value=f"{saved:.1f} % of the time saved",
        setup=(
            f"95 % interval {said.low:.1f} to {said.high:.1f} %. The package itself in virtual "
            "time, on BFCL tasks: one simulated draft sample a turn that guesses a call right "
            f"with accuracy {cell.accuracy:g}, tools of {said.latency_s:g} s on average."
            f"{_generation(results)}{_sample(cell, point)}"
        ),
        tiles=(
            ("most, at any latency", f"{best.saved:.1f} % at {best.latency_s:g} s"),
            ("calls answered early", per_cent(cell.hit_share)),
            ("turns fully hit", per_cent(cell.turns_fully_hit)),
            ("lead, mean", seconds(cell.lead_s)),
            ("tool time wasted", seconds(cell.wasted_s)),
            bars,
        ),
    )


def _column(results: PaperResults) -> Point | None:
    """Return the point of the calibrated column nearest to one second."""
    points = results.calibration.points if results.calibration else ()
    return min(points, key=lambda each: abs(each.latency_s - 1), default=None)


def _sample(cell: Cell, point: Point | None) -> str:
    """Say which sample the headline is of, where there are two."""
    if point is None:
        return ""
    return (
        f" That is the sample of the paper's column, where the paper has {point.paper:g} %; the "
        f"smaller one that all arms share, and the figures below are of, has {cell.saved:.1f} % "
        f"({cell.low:.1f} to {cell.high:.1f} %) at {cell.latency_s:g} s."
    )


def _generation(results: PaperResults) -> str:
    fitted = results.calibration
    if fitted is None:
        return ""
    return (
        f" The model's turns take {fitted.generation_s:.2f} s on average, fitted to the paper's "
        f"8B column: a {shown(fitted.label)}."
    )


def paper_parts(results: PaperResults) -> list[Part]:
    """Return the sections about the paper's experiment."""
    found = (saved_by_latency(results), calibrated(results))
    arms = (arms_by_latency(results),)
    beyond = (by_samples(results), saved_by_agents(results))
    return [
        Part(
            id="paper",
            title="The paper's experiment",
            sentences=[shown(results.note, _LONGEST_NOTE)] if results.note else [],
            figures=[figure for figure in found if figure is not None],
            tables=[tables.bars(results), *tables.calibration(results)],
        ),
        Part(
            id="arms",
            title="Ways to guess, and peers",
            figures=[figure for figure in arms if figure is not None],
            tables=[*tables.arms(results), *tables.peers(results)],
        ),
        *_told(results),
        Part(
            id="beyond",
            title="More samples, more agents, real time",
            figures=[figure for figure in beyond if figure is not None],
            tables=[*tables.real_time(results), *tables.scale(results)],
        ),
        Part(
            id="paper-shortfalls",
            title="Where it does not pay, in the paper's experiment",
            points=[*shortfalls(results)] or ["Nothing that was measured fell short."],
        ),
        Part(id="setup", title="Set-up", tables=[tables.settings(results)]),
    ]


def _told(results: PaperResults) -> Iterator[Part]:
    """Show a few tasks over time, in several arms."""
    sample = results.sample
    if sample is None:
        return
    figures = [
        timeline(turns_of(sample.events(arm)), f"timeline-{place}", f"Timeline: {shown(arm)}")
        for place, arm in enumerate([*sample.arms][:_MOST_TIMELINES], 1)
    ]
    yield Part(
        id="paper-timeline",
        title="A run over time, in the paper's experiment",
        sentences=(
            (
                f"{counted(sample.tasks, 'task')}, chosen because they call several tools, with "
                f"tools of {sample.latency_s:g} s on average and the same draws in every arm."
            ),
            HOW_TO_READ,
        ),
        figures=[figure for figure in figures if figure is not None],
    )


# --- where it does not pay


def shortfalls(results: PaperResults) -> Iterator[str]:
    """Say in sentences what was missed, gained nothing, or lost."""
    for bar in results.bars:
        if bar.met is False:
            value = "no value" if bar.value is None else f"{bar.value:.3g}"
            limit = f"{shown(bar.sense)} {bar.limit:g}"
            yield f"Bar missed: {shown(bar.name)} is {value}, it must be {limit}."
    yield from _idle_cells(results)
    yield from _no_gain(results)
    yield from _contended(results)
    yield from _void(results)


def _idle_cells(results: PaperResults) -> Iterator[str]:
    arms: dict[str, list[float]] = {}
    for cell in main_cells(results, None):
        if cell.arm != "plain" and cell.low <= 0:
            arms.setdefault(cell.arm, []).append(cell.latency_s)
    for arm, latencies in [*arms.items()][:_MOST_POINTS]:
        at = ", ".join(f"{latency:g}" for latency in sorted(latencies))
        yield f"{shown(arm)} saves nothing that could be told from 0 with tools of {at} s."


def _no_gain(results: PaperResults) -> Iterator[str]:
    for gain in results.slice.gains if results.slice else ():
        if gain.low <= 0:
            yield (
                f"{shown(gain.arm)} gains {gain.points:.2f} points over the client side "
                f"({gain.low:.2f} to {gain.high:.2f}): not certainly anything."
            )


def _contended(results: PaperResults) -> Iterator[str]:
    rows = results.grid.rows if results.grid else ()
    behind = [
        row
        for row in rows
        if row.model_saved is not None and row.saved < row.model_saved - _LOSS_POINTS
    ]
    if behind:
        worst = min(behind, key=lambda row: row.saved)
        yield (
            f"{len(behind)} of {len(rows)} cells of the grid save {_LOSS_POINTS:g} points less "
            f"than without contention for the server; the least, {worst.saved:.1f} %, with "
            f"{counted(worst.agents, 'agent')}, {counted(worst.samples, 'sample')}, tools of "
            f"{worst.latency_s:g} s."
        )
    if losing := sum(row.high < 0 for row in rows):
        yield f"{losing} of {len(rows)} cells of the grid lose time: drafts take the model's place."


def _void(results: PaperResults) -> Iterator[str]:
    cells = results.real.rows if results.real else ()
    if void := sum(cell.void for cell in cells):
        yield f"{void} of {len(cells)} real-time cells are void: the machine was too busy."
    scale = results.scale.rows if results.scale else ()
    if full := [f"{cell.agents:,}" for cell in scale if cell.saturated]:
        yield f"The machine was saturated with {', '.join(full)} agents: no saving is told there."
    for cell in scale:
        if (share := cell.plain_cpu_share or 0.0) > _MOST_PLAIN_SHARE:
            yield (
                f"With {cell.agents:,} agents plain took {per_cent(share)} of a core; it was to be "
                f"{per_cent(_MOST_PLAIN_SHARE)} at most."
            )
