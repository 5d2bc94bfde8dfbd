"""Lays the turns of a log out in time: bars, claims, and where each run begins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from langchain_spectool.bench.report_page.figures import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    plotted,
)
from langchain_spectool.bench.report_page.log_turns import EarlyRun, LoggedCall, LoggedTurn
from langchain_spectool.bench.report_page.tables import counted, seconds

MOST_TURNS = 150
MOST_BARS = 600
_FIRST_VIEW = {True: 4, False: 8}
"""Runs, or turns of unknown runs, that are seen before anybody zooms."""


@dataclass(frozen=True, slots=True)
class Paint:
    """What one kind of bar looks like."""

    name: str
    colour: str
    hatched: bool = False


MODEL = Paint("model writes", BLUE)
_RAN = Paint("call runs after the answer", ORANGE)
GUESSED = Paint("call was guessed (shadow), runs after the answer", GOLD)
_ANSWERED = Paint("call is answered early", GREY)
_EARLY = Paint("early run, claimed", GREEN)
WASTE = Paint("early run, wasted", PINK, hatched=True)
PAINTS = (MODEL, _RAN, GUESSED, _ANSWERED, _EARLY, WASTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that took time, on the time of the figure."""

    paint: Paint
    group: str
    """Which lanes it belongs to."""
    turn: int
    run: str
    what: str
    began_s: float
    ended_s: float
    note: str

    @property
    def hover(self) -> str:
        """What is seen when the pointer rests on it."""
        length = seconds(self.ended_s - self.began_s)
        return (
            f"<b>{plotted(self.what)}</b> ({self.paint.name})<br>{self.where}, "
            f"{length} from {self.began_s:.3f} s<br>{plotted(self.note)}"
        )

    @property
    def where(self) -> str:
        """Its turn and run, for reading."""
        return f"turn {self.turn}" + (f" of run {plotted(self.run)}" if self.run else "")


@dataclass(frozen=True, slots=True)
class Claim:
    """The moment at which a call asked for an early run."""

    bar: Bar
    at_s: float
    verdict: str


@dataclass(slots=True)
class Drawn:
    """All that is drawn."""

    bars: list[Bar]
    claims: list[Claim]
    starts: list[tuple[float, str]]
    """Where each run, or turn of no known run, begins, and what to call it there."""
    turns: int = 0
    runs: int = 0

    @property
    def over_s(self) -> float:
        """When the last bar ends."""
        return max(bar.ended_s for bar in self.bars)

    @property
    def seen_s(self) -> float:
        """How far is seen before anybody zooms."""
        first = _FIRST_VIEW[self.runs > 0]
        return self.starts[first][0] if len(self.starts) > first else self.over_s


def laid_out(turns: Sequence[LoggedTurn]) -> Drawn:
    """Place the first turns in time.

    Clocks of different processes cannot be compared, so each run begins where the one before was
    over. Of turns whose run is not known each begins where the one before was over; a pause is
    kept where it is no longer than a turn.
    """
    drawn = Drawn([], [], [])
    order = {run: place for place, run in reversed([*enumerate(turn.run for turn in turns)])}
    by_run = sorted(turns, key=lambda turn: (order[turn.run], turn.began_s if turn.run else 0.0))
    longest_s = max((turn.over_s - turn.began_s for turn in turns), default=0.0)
    at_s = 0.0
    for run, group in groupby(by_run[:MOST_TURNS], key=lambda turn: turn.run):
        lay = _lay_run if run else _lay_turns
        at_s = lay(drawn, [*group], at_s, longest_s)
    del drawn.bars[MOST_BARS:]
    left = {*map(id, drawn.bars)}
    drawn.claims = [claim for claim in drawn.claims if id(claim.bar) in left]
    return drawn


def _lay_run(drawn: Drawn, turns: Sequence[LoggedTurn], at_s: float, _: float) -> float:
    """Draw the turns of a run as they were; return where the next may begin."""
    if len(drawn.bars) >= MOST_BARS:
        return at_s
    began_s = min(turn.began_s for turn in turns)
    drawn.starts.append((at_s, f"run {turns[0].run}"))
    for turn in turns:
        _add(drawn, turn, at_s - began_s)
    drawn.turns += len(turns)
    drawn.runs += 1
    return at_s + max(turn.over_s for turn in turns) - began_s


def _lay_turns(drawn: Drawn, turns: Sequence[LoggedTurn], at_s: float, longest_s: float) -> float:
    """Draw turns of unknown runs one after another; return where the next may begin."""
    before: LoggedTurn | None = None
    for turn in turns:
        if len(drawn.bars) >= MOST_BARS:
            break
        if before is not None:
            pause_s = turn.began_s - before.over_s
            at_s += pause_s if 0 < pause_s <= longest_s else 0
        drawn.starts.append((at_s, ""))
        _add(drawn, turn, at_s - turn.began_s)
        at_s += turn.over_s - turn.began_s
        drawn.turns += 1
        before = turn
    return at_s


def _add(drawn: Drawn, turn: LoggedTurn, shift_s: float) -> None:
    if turn.answered_s is not None:
        note = f"asks for {counted(turn.asked, 'call')}" if turn.asked else "calls nothing"
        drawn.bars.append(
            _bar(MODEL, "model", turn, "model", (turn.began_s, turn.answered_s), shift_s, note)
        )
    for run in turn.early:
        paint = WASTE if run.wasted else _EARLY
        note = f"guessed by {run.source}" + (f"; {run.wasted}" if run.wasted else "")
        span = (run.began_s, run.ended_s)
        bar = _bar(paint, "early", turn, run.tool, span, shift_s, note)
        drawn.bars.append(bar)
        drawn.claims.extend(
            Claim(bar, call.claimed_s + shift_s, call.verdict)
            for call in turn.calls
            if call.claimed_s is not None and call.early is not None and _same(call.early, run)
        )
    drawn.bars.extend(_call_bars(turn, shift_s))


def _call_bars(turn: LoggedTurn, shift_s: float) -> Iterator[Bar]:
    for call in turn.calls:
        if call.began_s is not None and call.ended_s is not None:
            paint = _ANSWERED if call.served else GUESSED if call.guessed else _RAN
            span = (call.began_s, call.ended_s)
            yield _bar(paint, "call", turn, call.tool, span, shift_s, _call_note(call))


def _call_note(call: LoggedCall) -> str:
    waited = f", waited {seconds(call.waited_s)}" if call.waited_s > 0 else ""
    hidden = f", hid {seconds(call.hidden_s)}" if call.hidden_s > 0 else ""
    return f"{call.verdict or 'no guess fitted'}{waited}{hidden}"


def _bar(  # noqa: PLR0913, PLR0917 - all that a bar shows
    paint: Paint,
    group: str,
    turn: LoggedTurn,
    what: str,
    span: tuple[float, float],
    shift_s: float,
    note: str,
) -> Bar:
    began_s, ended_s = span[0] + shift_s, span[1] + shift_s
    return Bar(
        paint=paint,
        group=group,
        turn=turn.number,
        run=turn.run,
        what=what,
        began_s=began_s,
        ended_s=max(began_s, ended_s),
        note=note,
    )


def _same(one: EarlyRun, other: EarlyRun) -> bool:
    return (one.tool, one.began_s, one.ended_s) == (other.tool, other.began_s, other.ended_s)
