"""The timeline of a run: the model, its calls, and what ran early, as bars over time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from langchain_spectool.bench.report_page.figures import (
    BLUE,
    GREEN,
    GREY,
    HATCH,
    LONGEST_LABEL,
    ORANGE,
    PINK,
    Figure,
    plotted,
)
from langchain_spectool.bench.report_page.log_turns import EarlyRun, LoggedCall, LoggedTurn
from langchain_spectool.bench.report_page.tables import Cell, Table, counted, seconds, shown

MOST_TURNS = 150
MOST_BARS = 600
_LONGEST_IN_BAR = 16
_FIRST_VIEW = 8
"""Turns seen before anybody zooms."""


@dataclass(frozen=True, slots=True)
class _Paint:
    name: str
    colour: str
    hatched: bool = False


_MODEL = _Paint("model writes", BLUE)
_RAN = _Paint("call runs after the answer", ORANGE)
_ANSWERED = _Paint("call is answered early", GREY)
_EARLY = _Paint("early run, claimed", GREEN)
_WASTE = _Paint("early run, wasted", PINK, hatched=True)
_PAINTS = (_MODEL, _RAN, _ANSWERED, _EARLY, _WASTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    paint: _Paint
    group: str
    """Which lanes it belongs to."""
    turn: int
    what: str
    began_s: float
    ended_s: float
    note: str

    @property
    def hover(self) -> str:
        """What is seen when the pointer rests on it."""
        length = seconds(self.ended_s - self.began_s)
        return (
            f"<b>{plotted(self.what)}</b> ({self.paint.name})<br>turn {self.turn}, "
            f"{length} from {self.began_s:.3f} s<br>{plotted(self.note)}"
        )


@dataclass(frozen=True, slots=True)
class _Claim:
    bar: _Bar
    at_s: float
    verdict: str


def timeline(turns: Sequence[LoggedTurn]) -> Figure | None:
    """Draw the first turns one after another; None where no turn has a length.

    Clocks of different processes cannot be compared, and a log does not say which run a turn
    belongs to. So each turn begins where the one before was over; a pause is kept where it is no
    longer than a turn.
    """
    drawn = _laid_out(turns)
    if not drawn.bars:
        return None
    lanes = _lanes(drawn.bars)
    wasted = [bar for bar in drawn.bars if bar.paint is _WASTE]
    claims = len(drawn.claims)
    return Figure(
        id="timeline",
        title="Timeline",
        summary=(
            f"The first {len(drawn.starts)} of {counted(len(turns), 'turn')}, one after another: "
            f"early runs answered {counted(claims, 'call')}, {len(wasted)} were wasted."
        ),
        traces=[*_bar_traces(drawn.bars, lanes), _claim_trace(drawn.claims, lanes)],
        layout=_layout(drawn, lanes),
        table=_table(drawn.bars),
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    bars: list[_Bar]
    claims: list[_Claim]
    starts: list[float]


def _laid_out(turns: Sequence[LoggedTurn]) -> _Drawn:
    drawn = _Drawn([], [], [])
    at_s, before = 0.0, None
    longest_s = max((turn.over_s - turn.began_s for turn in turns), default=0.0)
    for turn in islice(turns, MOST_TURNS):
        if len(drawn.bars) >= MOST_BARS:
            break
        if before is not None:
            pause_s = turn.began_s - before.over_s
            at_s += before.over_s - before.began_s + (pause_s if 0 < pause_s <= longest_s else 0)
        drawn.starts.append(at_s)
        _add(drawn, turn, at_s - turn.began_s)
        before = turn
    del drawn.bars[MOST_BARS:]
    return drawn


def _add(drawn: _Drawn, turn: LoggedTurn, shift_s: float) -> None:
    if turn.answered_s is not None:
        note = f"asks for {counted(turn.asked, 'call')}" if turn.asked else "calls nothing"
        drawn.bars.append(
            _bar(_MODEL, "model", turn, "model", (turn.began_s, turn.answered_s), shift_s, note)
        )
    for run in turn.early:
        paint = _WASTE if run.wasted else _EARLY
        note = f"guessed by {run.source}" + (f"; {run.wasted}" if run.wasted else "")
        span = (run.began_s, run.ended_s)
        bar = _bar(paint, "early", turn, run.tool, span, shift_s, note)
        drawn.bars.append(bar)
        drawn.claims.extend(
            _Claim(bar, call.claimed_s + shift_s, call.verdict)
            for call in turn.calls
            if call.claimed_s is not None and call.early is not None and _same(call.early, run)
        )
    drawn.bars.extend(_call_bars(turn, shift_s))


def _call_bars(turn: LoggedTurn, shift_s: float) -> Iterator[_Bar]:
    for call in turn.calls:
        if call.began_s is not None and call.ended_s is not None:
            paint = _ANSWERED if call.served else _RAN
            span = (call.began_s, call.ended_s)
            yield _bar(paint, "call", turn, call.tool, span, shift_s, _call_note(call))


def _call_note(call: LoggedCall) -> str:
    waited = f", waited {seconds(call.waited_s)}" if call.waited_s > 0 else ""
    hidden = f", hid {seconds(call.hidden_s)}" if call.hidden_s > 0 else ""
    return f"{call.verdict or 'no verdict'}{waited}{hidden}"


def _bar(  # noqa: PLR0913, PLR0917 - all that a bar shows
    paint: _Paint,
    group: str,
    turn: LoggedTurn,
    what: str,
    span: tuple[float, float],
    shift_s: float,
    note: str,
) -> _Bar:
    began_s, ended_s = span[0] + shift_s, span[1] + shift_s
    return _Bar(
        paint=paint,
        group=group,
        turn=turn.number,
        what=what,
        began_s=began_s,
        ended_s=max(began_s, ended_s),
        note=note,
    )


def _same(one: EarlyRun, other: EarlyRun) -> bool:
    return (one.tool, one.began_s, one.ended_s) == (other.tool, other.began_s, other.ended_s)


# --- lanes


_GROUPS = ("model", "early", "call")


def _lanes(bars: Sequence[_Bar]) -> dict[int, str]:
    """Give each bar, by its identity, a lane of its group in which nothing overlaps it."""
    lanes: dict[int, str] = {}
    free: dict[str, list[float]] = {group: [] for group in _GROUPS}
    for bar in sorted(bars, key=lambda bar: bar.began_s):
        ends = free[bar.group]
        lane = next((i for i, end_s in enumerate(ends) if end_s <= bar.began_s + 1e-9), len(ends))
        ends[lane : lane + 1] = [bar.ended_s]
        lanes[id(bar)] = (
            bar.group if bar.group == "model" and lane == 0 else f"{bar.group} {lane + 1}"
        )
    return lanes


def _order(lanes: dict[int, str]) -> list[str]:
    used = set(lanes.values())
    return sorted(used, key=lambda lane: (_GROUPS.index(lane.split()[0]), len(lane), lane))


# --- for plotly


def _bar_traces(bars: Sequence[_Bar], lanes: dict[int, str]) -> Iterator[dict[str, Any]]:
    for paint in _PAINTS:
        painted = [bar for bar in bars if bar.paint is paint]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": paint.name,
            "y": [lanes[id(bar)] for bar in painted],
            "base": [round(bar.began_s, 4) for bar in painted],
            "x": [round(bar.ended_s - bar.began_s, 4) for bar in painted],
            "text": [plotted(_label(bar), _LONGEST_IN_BAR) for bar in painted],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "constraintext": "inside",
            "textangle": 0,
            "customdata": [bar.hover for bar in painted],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": paint.colour, "pattern": HATCH if paint.hatched else {}},
            "width": 0.8,
        }


def _label(bar: _Bar) -> str:
    return f"{bar.turn}" if bar.paint is _MODEL else bar.what


def _claim_trace(claims: Sequence[_Claim], lanes: dict[int, str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "claim",
        "x": [round(claim.at_s, 4) for claim in claims],
        "y": [lanes.get(id(claim.bar), "early 1") for claim in claims],
        "customdata": [
            f"<b>{plotted(claim.bar.what)}</b> claimed ({plotted(claim.verdict)})<br>"
            f"turn {claim.bar.turn}, at {claim.at_s:.3f} s"
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


def _layout(drawn: _Drawn, lanes: dict[int, str]) -> dict[str, Any]:
    order = _order(lanes)
    longest_s = max(bar.ended_s for bar in drawn.bars)
    seen_s = drawn.starts[_FIRST_VIEW] if len(drawn.starts) > _FIRST_VIEW else longest_s
    return {
        "barmode": "overlay",
        "bargap": 0.1,
        "height": 200 + 40 * min(len(order), 20),
        "xaxis": {
            "title": {"text": "seconds, turns one after another"},
            "range": [0, round(seen_s, 4)],
            "rangeslider": {
                "visible": len(drawn.starts) > _FIRST_VIEW,
                "range": [0, round(longest_s, 4)],
                "thickness": 0.1,
            },
        },
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": order,
            "autorange": "reversed",
            "automargin": True,
            "fixedrange": True,
        },
        "shapes": [_boundary(start_s) for start_s in drawn.starts[1:]],
    }


def _boundary(at_s: float) -> dict[str, Any]:
    line = {"color": GREY, "width": 1, "dash": "dot"}
    at_s = round(at_s, 4)
    return {"type": "line", "x0": at_s, "x1": at_s, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _table(bars: Sequence[_Bar]) -> Table:
    rows: list[list[Cell]] = [
        [
            bar.turn,
            shown(bar.what),
            bar.paint.name,
            bar.began_s,
            bar.ended_s - bar.began_s,
            bar.note,
        ]
        for bar in bars
    ]
    return Table(
        caption="What the timeline shows",
        columns=("turn", "what", "kind", "began s", "took s", "outcome"),
        rows=rows,
        longest=LONGEST_LABEL,
    )
