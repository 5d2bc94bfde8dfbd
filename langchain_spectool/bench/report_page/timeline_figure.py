"""The timeline of a run: the model, its calls, and what ran early, as bars over time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_spectool.bench.report_page.figures import (
    GREY,
    HATCH,
    LONGEST_LABEL,
    Figure,
    plotted,
)
from langchain_spectool.bench.report_page.log_turns import LoggedTurn
from langchain_spectool.bench.report_page.tables import Cell, Table, counted, shown
from langchain_spectool.bench.report_page.timeline_layout import (
    GUESSED,
    MODEL,
    PAINTS,
    WASTE,
    Bar,
    Claim,
    Drawn,
    laid_out,
)

HOW_TO_READ = (
    "Drag over the bars to zoom in, double-click to see all, rest on a bar for what it was. "
    "Within a run times are as they were; runs are drawn one after another."
)
_LONGEST_IN_BAR = 16
_WIDE = 160
"""Characters in the width of the plot."""
_LABEL_PX = 56
"""Room to the right for the name of a run that begins at the edge."""
_THIN = 1 / 2000
"""Share of what is seen first that is less than a pixel wide."""
_NAMES_PX = 20
"""Height of the line that names the runs, above the bars and below the legend."""


def timeline(
    turns: Sequence[LoggedTurn], name: str = "timeline", title: str = "Timeline"
) -> Figure | None:
    """Draw the first runs one after another; None where no turn has a length."""
    drawn = laid_out(turns)
    if not drawn.bars:
        return None
    lanes = _lanes(drawn.bars, drawn.seen_s)
    return Figure(
        id=name,
        title=title,
        summary=(
            f"The first {drawn.turns} of {counted(len(turns), 'turn')}{_of_runs(drawn)}: "
            f"{_outcome(drawn)}."
        ),
        traces=[*_bar_traces(drawn.bars, lanes, drawn.seen_s), _claim_trace(drawn.claims, lanes)],
        layout=_layout(drawn, lanes),
        table=_table(drawn.bars, title),
    )


def _of_runs(drawn: Drawn) -> str:
    return f", {counted(drawn.runs, 'run')} one after another" if drawn.runs else ""


def _outcome(drawn: Drawn) -> str:
    counts = Counter(bar.paint for bar in drawn.bars)
    if counts[GUESSED]:
        return f"{counted(counts[GUESSED], 'call')} had been guessed, and nothing ran early"
    answered = counted(len(drawn.claims), "call")
    return f"early runs answered {answered}, {counts[WASTE]} were wasted"


# --- lanes


_GROUPS = ("model", "early", "call")
_ROWS = {"model": "model", "early 1": "early", "call 1": "calls"}
"""A name for the first lane of each group: the others may be empty where one looks."""


def _lanes(bars: Sequence[Bar], seen_s: float) -> dict[int, str]:
    """Give each bar, by its identity, a lane of its group in which nothing overlaps it.

    What is too short to be seen lies over the first: a lane of its own would look empty.
    """
    lanes: dict[int, str] = {}
    free: dict[str, list[float]] = {group: [] for group in _GROUPS}
    for bar in sorted(bars, key=lambda bar: bar.began_s):
        ends = free[bar.group]
        lane = next((i for i, end_s in enumerate(ends) if end_s <= bar.began_s + 1e-9), len(ends))
        if bar.ended_s - bar.began_s < _THIN * seen_s:
            lane = 0
        else:
            ends[lane : lane + 1] = [bar.ended_s]
        lanes[id(bar)] = (
            bar.group if bar.group == "model" and lane == 0 else f"{bar.group} {lane + 1}"
        )
    return lanes


def _order(lanes: dict[int, str]) -> list[str]:
    used = set(lanes.values())
    return sorted(used, key=lambda lane: (_GROUPS.index(lane.split()[0]), len(lane), lane))


# --- for plotly


def _bar_traces(
    bars: Sequence[Bar], lanes: dict[int, str], seen_s: float
) -> Iterator[dict[str, Any]]:
    for paint in PAINTS:
        painted = [bar for bar in bars if bar.paint is paint]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": paint.name,
            "y": [lanes[id(bar)] for bar in painted],
            "base": [round(bar.began_s, 4) for bar in painted],
            "x": [round(bar.ended_s - bar.began_s, 4) for bar in painted],
            "text": [_label(bar, seen_s) for bar in painted],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "constraintext": "inside",
            "textangle": 0,
            "customdata": [bar.hover for bar in painted],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": paint.colour, "pattern": HATCH if paint.hatched else {}},
            "width": 0.8,
        }


def _label(bar: Bar, seen_s: float) -> str:
    """Return what is written in a bar; nothing where it could not be read at first sight."""
    text = f"{bar.turn}" if bar.paint is MODEL else bar.what
    fits = (bar.ended_s - bar.began_s) * _WIDE >= min(len(text), _LONGEST_IN_BAR) * seen_s
    return plotted(text, _LONGEST_IN_BAR) if fits else ""


def _claim_trace(claims: Sequence[Claim], lanes: dict[int, str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "claim",
        "x": [round(claim.at_s, 4) for claim in claims],
        "y": [lanes[id(claim.bar)] for claim in claims],
        "customdata": [
            f"<b>{plotted(claim.bar.what)}</b> claimed ({plotted(claim.verdict)})<br>"
            f"{claim.bar.where}, at {claim.at_s:.3f} s"
            for claim in claims
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {
            "symbol": "diamond",
            "size": 11,
            "color": "#f2c230",
            "line": {"color": "#333333", "width": 1},
        },
    }


def _layout(drawn: Drawn, lanes: dict[int, str]) -> dict[str, Any]:
    order = _order(lanes)
    bars_px = 90 + 40 * min(len(order), 20)
    return {
        "barmode": "overlay",
        "bargap": 0.1,
        "height": bars_px + 110 + _NAMES_PX,
        "margin": {"l": 60, "r": _LABEL_PX, "t": 64 + _NAMES_PX, "b": 50},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1 + _NAMES_PX / bars_px,
            "yanchor": "bottom",
        },
        "xaxis": {
            "title": {"text": f"seconds, {'runs' if drawn.runs else 'turns'} one after another"},
            "range": [0, round(drawn.seen_s, 4)],
            "rangeslider": {
                "visible": drawn.seen_s < drawn.over_s,
                "range": [0, round(drawn.over_s, 4)],
                "thickness": 0.1,
            },
        },
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": order,
            "tickvals": order,
            "ticktext": [_ROWS.get(lane, "") for lane in order],
            "autorange": "reversed",
            "automargin": True,
            "fixedrange": True,
        },
        "shapes": [_boundary(start_s) for start_s, _ in drawn.starts[1:]],
        "annotations": [_name_of(*start) for start in drawn.starts if start[1]],
    }


def _name_of(at_s: float, name: str) -> dict[str, Any]:
    """Write a run's name where it begins, above the bars."""
    return {
        "x": round(at_s, 4),
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "text": plotted(name),
        "font": {"color": GREY, "size": 11},
    }


def _boundary(at_s: float) -> dict[str, Any]:
    line = {"color": GREY, "width": 1, "dash": "dot"}
    at_s = round(at_s, 4)
    return {"type": "line", "x0": at_s, "x1": at_s, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _table(bars: Sequence[Bar], title: str) -> Table:
    rows: list[list[Cell]] = [
        [
            bar.turn,
            bar.run or None,
            shown(bar.what),
            bar.paint.name,
            bar.began_s,
            bar.ended_s - bar.began_s,
            bar.note,
        ]
        for bar in bars
    ]
    return Table(
        caption=f"{title}: the bars",
        columns=("turn", "run", "what", "kind", "began s", "took s", "outcome"),
        rows=rows,
        longest=LONGEST_LABEL,
    )
