"""Figures of the report: data for plotly, each with its sentence and its table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from langchain_spectool.bench.report_page.tables import Cell, Table, interval, shown

BLUE, ORANGE, GREEN, PINK, VIOLET, GREY, GOLD = (
    "#2f7de0",
    "#c8641b",
    "#1f9152",
    "#c9447e",
    "#8a63d2",
    "#7c8490",
    "#a47a00",
)
"""Each is told from white and from the dark page with a contrast of 3 or more."""
_COLOURS = (BLUE, ORANGE, GREEN, PINK, VIOLET, GREY, GOLD)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x", "star")
LONGEST_LABEL = 40
_MANY = 1_000
HATCH = {"shape": "/", "fgcolor": "#ffffff", "fgopacity": 0.45, "fillmode": "overlay", "size": 6}
"""What is wasted is told by more than its colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One plot. Foreign texts in `traces` and `layout` went through `plotted`."""

    id: str
    title: str
    summary: str
    """What it shows, in one sentence."""
    traces: Sequence[Mapping[str, Any]]
    table: Table
    layout: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series of a plot of lines."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: tuple[Sequence[float], Sequence[float]] | None = None
    """Lower and upper ends of the intervals of `y`."""
    marks: bool = False
    """Whether its points were measured, and are marked."""
    colour: str = ""
    dash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What the two axes of a plot say."""

    x: str
    y: str
    logarithmic: bool = False
    """Whether x is."""
    from_zero: bool = True
    """Whether y begins at 0 at the latest, so that lengths can be compared."""


def plotted(text: str, longest: int = LONGEST_LABEL) -> str:
    """Return a foreign text as plotly shows it to the letter, no longer than `longest`.

    It reads some HTML in labels, and formulas between dollars.
    """
    return escape(shown(text, longest), quote=False).replace("$", "&#36;")


def lines_figure(
    name: str, title: str, *, summary: str, axes: Axes, lines: Sequence[Line]
) -> Figure:
    """Return a plot of lines, told apart by colour and by dashes or marks."""
    x_axis: dict[str, Any] = {"title": {"text": axes.x}}
    if axes.logarithmic:
        x_axis |= {"type": "log", "dtick": 1}
    return Figure(
        id=name,
        title=title,
        summary=summary,
        traces=[_trace(line, index) for index, line in enumerate(lines)],
        layout={
            "xaxis": x_axis,
            "yaxis": {
                "title": {"text": axes.y},
                "rangemode": "tozero" if axes.from_zero else "normal",
            },
        },
        table=Table(
            caption=title,
            columns=(axes.x, *(shown(line.name) for line in lines)),
            rows=_by_x(lines),
            note=f"{axes.y}; in brackets the 95 % interval, where there is one.",
        ),
    )


def _trace(line: Line, index: int) -> dict[str, Any]:
    colour = line.colour or _COLOURS[index % len(_COLOURS)]
    alone = len(line.x) == 1
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": plotted(line.name),
        "x": _rounded(line.x),
        "y": _rounded(line.y),
        "cliponaxis": False,
        "mode": "lines" if not line.marks else "markers" if alone else "lines+markers",
        "line": {"color": colour, "dash": line.dash or _DASHES[index % len(_DASHES)], "width": 2},
        "marker": {
            "color": colour,
            "size": 13 if alone else 8,
            "symbol": _SYMBOLS[index % len(_SYMBOLS)],
        },
    }
    if line.spread is not None:
        low, high = line.spread
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": _rounded([max(0.0, top - y) for top, y in zip(high, line.y, strict=True)]),
            "arrayminus": _rounded([max(0.0, y - end) for end, y in zip(low, line.y, strict=True)]),
            "thickness": 1.2,
            "width": 4,
        }
    return trace


def _by_x(lines: Sequence[Line]) -> list[list[Cell]]:
    """Return one row for each x that some line has, with a cell for each line."""
    cells = [dict(zip(line.x, _cells(line), strict=True)) for line in lines]
    places = sorted({x for each in cells for x in each})
    return [[_place(x), *(each.get(x) for each in cells)] for x in places]


def _place(x: float) -> str:
    return f"{x:,.0f}" if x >= _MANY else f"{x:.4g}"


def _cells(line: Line) -> list[Cell]:
    if line.spread is None:
        return [round(y, 2) for y in line.y]
    ends = zip(line.y, *line.spread, strict=True)
    return [f"{y:.2f} ({interval(low, high)})" for y, low, high in ends]


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 4) for value in values]


def bars(
    name: str,
    labels: Sequence[str],
    values: Sequence[float],
    *,
    colour: str,
    hatched: bool = False,
) -> dict[str, Any]:
    """Return a trace of horizontal bars, one a label."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [plotted(label) for label in labels],
        "x": _rounded(values),
        "marker": {"color": colour, "pattern": HATCH if hatched else {}},
    }
