"""Figures of the paper's experiment."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from langchain_spectool.bench.report_page.curves import LATENCY, paper_lines
from langchain_spectool.bench.report_page.figures import Axes, Figure, Line, lines_figure
from langchain_spectool.bench.report_page.paper_results import (
    Cell,
    GridCell,
    PaperResults,
    ScaleCell,
)
from langchain_spectool.bench.report_page.tables import counted, shown

MAIN = "client_side"
"""The arm that is the paper's algorithm."""
_ACCURACY, _SAMPLES = 0.8, 1
_MOST_LINES = 7


def main_cells(results: PaperResults, arm: str | None) -> list[Cell]:
    """Return the cells of one arm, or all, with one sample of the main accuracy."""
    return [
        cell
        for cell in (results.slice.rows if results.slice else ())
        if arm in (None, cell.arm) and cell.samples == _SAMPLES and cell.accuracy == _ACCURACY
    ]


def typical(results: PaperResults) -> Cell | None:
    """Return the client side at the latency nearest to one second."""
    return min(main_cells(results, MAIN), key=lambda each: abs(each.latency_s - 1), default=None)


def saved_by_latency(results: PaperResults) -> Figure | None:
    """Plot the package, the turn model and the paper."""
    cells = sorted(main_cells(results, MAIN), key=lambda cell: cell.latency_s)
    if not cells:
        return None
    best = max(cells, key=lambda cell: cell.saved)
    modelled = [cell for cell in cells if cell.model_saved is not None]
    gap = max((abs(cell.saved - (cell.model_saved or 0.0)) for cell in modelled), default=0.0)
    return lines_figure(
        "paper-saved-by-latency",
        "Time saved against tool latency",
        summary=(
            f"The package saves up to {best.saved:.1f} %, with tools of {best.latency_s:g} s, and "
            f"stays within {gap:.2f} points of the turn-by-turn model on the same drawn times."
        ),
        axes=LATENCY,
        lines=[
            _measured(f"package, {MAIN}", cells),
            Line(
                name="turn-by-turn model",
                x=[cell.latency_s for cell in modelled],
                y=[cell.model_saved or 0.0 for cell in modelled],
                dash="dash",
            ),
            *paper_lines(),
        ],
    )


def calibrated(results: PaperResults) -> Figure | None:
    """Plot the fit to the paper's 8B column, and the package at that fit."""
    fitted = results.calibration
    if fitted is None or not fitted.points:
        return None
    points = fitted.points
    x = [point.latency_s for point in points]
    worst = max(points, key=lambda point: abs(point.gap_points))
    return lines_figure(
        "calibration",
        "The paper's 8B column, reproduced",
        summary=(
            f"{shown(fitted.label).capitalize()}: with one generation time fitted to the column, "
            f"the package is at most {abs(worst.gap_points):.2f} points from it."
        ),
        axes=LATENCY,
        lines=[
            Line(
                name="package",
                x=x,
                y=[point.package for point in points],
                spread=([point.low for point in points], [point.high for point in points]),
                marks=True,
            ),
            Line(name="fitted model", x=x, y=[point.fitted for point in points]),
            Line(name="paper, draft of 8B", x=x, y=[p.paper for p in points], marks=True),
        ],
    )


def arms_by_latency(results: PaperResults) -> Figure | None:
    """Plot all arms, peers included."""
    arms = {cell.arm: main_cells(results, cell.arm) for cell in main_cells(results, None)}
    arms.pop("plain", None)
    if not arms:
        return None
    most = max(map(len, arms.values()))  # a mean over fewer latencies is no rival
    means = {
        arm: fmean(cell.saved for cell in cells)
        for arm, cells in arms.items()
        if len(cells) == most
    }
    first = max(means, key=means.__getitem__)
    realistic = [arm for arm in means if arm != "oracle"] or [first]
    best = max(realistic, key=means.__getitem__)
    return lines_figure(
        "arms",
        "All arms against tool latency",
        summary=(
            f"Over all latencies {shown(best)} saves most of what can be built, "
            f"{means[best]:.1f} % on average; {shown(first)} saves {means[first]:.1f} %."
        ),
        axes=LATENCY,
        lines=[
            _measured(arm, sorted(cells, key=lambda cell: cell.latency_s))
            for arm, cells in [*arms.items()][:_MOST_LINES]
        ],
    )


def _measured(name: str, cells: Sequence[Cell]) -> Line:
    return Line(
        name=name,
        x=[cell.latency_s for cell in cells],
        y=[cell.saved for cell in cells],
        spread=([cell.low for cell in cells], [cell.high for cell in cells]),
        marks=True,
    )


def by_samples(results: PaperResults) -> Figure | None:
    """Plot the grid at one latency: samples, accuracy and the load of many agents."""
    grid = results.grid
    if grid is None or not grid.rows:
        return None
    latency_s = min(sorted({row.latency_s for row in grid.rows}), key=lambda each: abs(each - 1))
    rows = [row for row in grid.rows if row.latency_s == latency_s]
    ends = sorted({row.agents for row in rows})
    lines = {
        (accuracy, agents): _of_grid(rows, accuracy, agents)
        for accuracy in sorted({row.accuracy for row in rows})
        for agents in dict.fromkeys((ends[0], ends[-1]))
    }
    return lines_figure(
        "samples",
        "Time saved against samples of the draft model",
        summary=f"Discrete-event model, tools of {latency_s:g} s: {_more_samples(lines)}.",
        axes=Axes(x="samples a turn, lambda", y="time saved, %"),
        lines=[
            _grid_line(accuracy, agents, cells, alone=agents == ends[0])
            for (accuracy, agents), cells in lines.items()
        ][:_MOST_LINES],
    )


def _of_grid(rows: Sequence[GridCell], accuracy: float, agents: int) -> list[GridCell]:
    fitting = [row for row in rows if (row.accuracy, row.agents) == (accuracy, agents)]
    return sorted(fitting, key=lambda row: row.samples)


def _more_samples(lines: Mapping[tuple[float, int], Sequence[GridCell]]) -> str:
    """Say what more samples change where the draft is least accurate."""
    least = min(accuracy for accuracy, _ in lines)
    said = [
        f"{counted(agents, 'agent')} {'saves' if agents == 1 else 'save'} {cells[0].saved:.1f} % "
        f"with {counted(cells[0].samples, 'sample')} and {cells[-1].saved:.1f} % with "
        f"{cells[-1].samples}"
        for (accuracy, agents), cells in lines.items()
        if accuracy == least and cells
    ]
    return f"with accuracy {least:g} {', '.join(said)}"


def _grid_line(accuracy: float, agents: int, cells: Sequence[GridCell], *, alone: bool) -> Line:
    return Line(
        name=f"accuracy {accuracy:g}, {counted(agents, 'agent')}",
        x=[cell.samples for cell in cells],
        y=[cell.saved for cell in cells],
        spread=([cell.low for cell in cells], [cell.high for cell in cells]),
        marks=True,
        dash="solid" if alone else "dot",
    )


def _at_once(rows: Sequence[ScaleCell]) -> str:
    known = [row.most_at_once for row in rows if row.most_at_once is not None]
    return f" (most at once: {max(known):,})" if known else ""


def saved_by_agents(results: PaperResults) -> Figure | None:
    """Plot the saving of many agents, those above saturation left out."""
    rows = [row for row in (results.scale.rows if results.scale else ()) if not row.saturated]
    clocks = [*dict.fromkeys(row.clock for row in rows)][:_MOST_LINES]
    if not clocks:
        return None
    ends = (rows[0], rows[-1])
    lines: list[Line] = []
    for clock in clocks:
        of_clock = [row for row in rows if row.clock == clock]
        lines.append(
            Line(
                name=f"{clock} time",
                x=[row.agents for row in of_clock],
                y=[row.saved for row in of_clock],
                spread=([row.low for row in of_clock], [row.high for row in of_clock]),
                marks=True,
            )
        )
    return lines_figure(
        "agents",
        "Time saved of so many agents, arriving one after another",
        summary=(
            f"{ends[0].saved:.1f} % with {counted(ends[0].agents, 'agent')}, {ends[1].saved:.1f} % "
            f"with {counted(ends[1].agents, 'agent')}, arriving one after another{_at_once(rows)}; "
            "what was measured on a saturated machine is left out."
        ),
        axes=Axes(x="agents, arriving one after another", y="time saved, %", logarithmic=True),
        lines=lines,
    )
