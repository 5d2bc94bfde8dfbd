"""Draws the timelines of a plain and a speculative run of one agent side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from langchain_spectool.bench.timeline import CallTimes, Span, TurnTimes

WIDEST = 120
"""Columns used at most."""
_NAME, _SECONDS, _NOTE, _GAPS = 14, 6, 8, 5
_BLINK_S = 0.005
"""Waits shorter than this are not drawn."""


@dataclass(frozen=True, slots=True)
class _Paint:
    glyph: str
    ascii_glyph: str
    style: str
    meaning: str


_MODEL = _Paint("█", "#", "blue", "model writes")
_WAIT = _Paint("▒", "=", "yellow", "agent waits")
_EARLY = _Paint("▓", "+", "green", "runs early")
_WASTE = _Paint("░", ".", "red", "early, wasted")

_Stroke = tuple[Span, _Paint]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """One arm's part of a row: what to draw, and what to say beside it."""

    strokes: Sequence[_Stroke] = ()
    seconds: float | None = None
    note: str = ""


class _Canvas:
    """Turns strokes into bars of one width and one scale."""

    def __init__(self, console: Console, longest_s: float) -> None:
        fixed = _NAME + 2 * _SECONDS + _NOTE + _GAPS
        self._width = max(8, (min(console.width, WIDEST) - fixed) // 2)
        self.cell_s = longest_s / self._width
        self.ascii = console.options.ascii_only

    def bar(self, cells: _Cells) -> Text:
        glyphs = [(" ", "")] * self._width
        for (began_s, ended_s), paint in cells.strokes:
            first = min(round(began_s / self.cell_s), self._width - 1)
            last = max(first + 1, min(round(ended_s / self.cell_s), self._width))
            glyphs[first:last] = [(self.glyph(paint), paint.style)] * (last - first)
        return Text.assemble(*glyphs, no_wrap=True)

    def glyph(self, paint: _Paint) -> str:
        return paint.ascii_glyph if self.ascii else paint.glyph


def drawn(
    console: Console, plain: Sequence[TurnTimes], speculative: Sequence[TurnTimes]
) -> RenderableType:
    """Return the turns of both arms, one below the other, each from its own start."""
    lengths = [turn.ended_s - turn.began_s for turn in (*plain, *speculative)]
    canvas = _Canvas(console, max(lengths, default=1.0))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("turn", width=_NAME, no_wrap=True)
    table.add_column("speculation off", no_wrap=True)
    table.add_column("s", width=_SECONDS, justify="right")
    table.add_column("speculation on", no_wrap=True)
    table.add_column("s", width=_SECONDS, justify="right")
    table.add_column("", width=_NOTE, no_wrap=True)
    for number, (off, on) in enumerate(zip_longest(plain, speculative), start=1):
        for name, left, right in _rows(number, off, on):
            table.add_row(
                name,
                canvas.bar(left),
                _seconds(left),
                canvas.bar(right),
                _seconds(right),
                right.note,
            )
    return Group(table, _legend(canvas))


def _rows(
    number: int, plain: TurnTimes | None, speculative: TurnTimes | None
) -> Iterator[tuple[str, _Cells, _Cells]]:
    yield f"{number} model", _model(plain), _model(speculative)
    nothing = _Cells()
    for off, on in zip_longest(_calls(plain), _calls(speculative)):
        name = (on or off or ("", nothing))[0]
        yield f"  {name}", off[1] if off else nothing, on[1] if on else nothing
    if speculative is not None:
        for tool, span in speculative.wasted:
            stroke = (_since(speculative, span), _WASTE)
            yield f"  {tool}", nothing, _Cells(strokes=[stroke], note="wasted")


def _model(turn: TurnTimes | None) -> _Cells:
    if turn is None or turn.answered_s is None:
        return _Cells()
    length_s = turn.answered_s - turn.began_s
    return _Cells(strokes=[((0.0, length_s), _MODEL)], seconds=length_s)


def _calls(turn: TurnTimes | None) -> list[tuple[str, _Cells]]:
    return [] if turn is None else [(c.tool, _call(turn, c)) for c in turn.calls.values()]


def _call(turn: TurnTimes, call: CallTimes) -> _Cells:
    strokes: list[_Stroke] = []
    answered_s = turn.began_s if turn.answered_s is None else turn.answered_s
    if call.early is not None:
        began_s, landed_s = call.early
        strokes.append((_since(turn, (began_s, min(landed_s, answered_s))), _EARLY))
    waited_s = None
    if call.ended_s is not None:
        waited_s = call.ended_s - answered_s
        if waited_s > _BLINK_S and (call.early is None or call.early[1] > answered_s):
            strokes.append((_since(turn, (answered_s, call.ended_s)), _WAIT))
    return _Cells(strokes=strokes, seconds=waited_s, note=call.verdict.replace("_", " "))


def _since(turn: TurnTimes, span: Span) -> Span:
    return max(0.0, span[0] - turn.began_s), max(0.0, span[1] - turn.began_s)


def _seconds(cells: _Cells) -> str:
    return "" if cells.seconds is None else f"{cells.seconds:.2f}"


def _legend(canvas: _Canvas) -> Text:
    text = Text()
    for paint in (_MODEL, _WAIT, _EARLY, _WASTE):
        text.append(canvas.glyph(paint) * 2, style=paint.style)
        text.append(f" {paint.meaning}  ")
    text.append(f"1 char {canvas.cell_s:.2f} s", style="dim")
    return text
