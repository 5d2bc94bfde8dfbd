"""Figures of the paper's equations, and of what the paper reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.report_page.figures import GREEN as HIDDEN
from langchain_spectool.bench.report_page.figures import (
    GREY,
    PINK,
    VIOLET,
    Axes,
    Figure,
    Line,
    bars,
    lines_figure,
)
from langchain_spectool.bench.report_page.figures import PINK as WASTED
from langchain_spectool.bench.report_page.scorecard import LogFacts
from langchain_spectool.bench.report_page.tables import Table, per_cent, seconds, shown

PAPER_LATENCIES_S = (0.5, 1.0, 1.5, 2.0, 2.5)
PAPER_SAVED: Mapping[str, Sequence[float]] = {
    "1B": (4, 8, 12, 15, 17),
    "3B": (5, 10, 14, 17, 19),
    "8B": (6, 12, 16, 19, 21),
}
"""Per cent of time saved by average tool latency and draft model (xLAM-2), with 32 agents and one
sample, read off the figures of arXiv 2512.15834."""
_PAPER_PAINT = {"1B": GREY, "3B": PINK, "8B": VIOLET}
_RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75)
_MOST_BARS = 20
_STEPS = 80

LATENCY = Axes(x="average tool latency, s", y="time saved, %")


def paper_lines() -> list[Line]:
    """Return what the paper reports, by its draft models."""
    return [
        Line(
            name=f"paper, draft of {size}",
            x=PAPER_LATENCIES_S,
            y=column,
            marks=True,
            colour=_PAPER_PAINT[size],
            dash="dot",
        )
        for size, column in PAPER_SAVED.items()
    ]


def speedup_by_alpha() -> Figure:
    """Plot equation (2) for several speeds of the draft model."""
    alphas = [step / 20 for step in range(21)]
    lines = [
        Line(
            name=f"g/G = {ratio:g}",
            x=alphas,
            y=[
                Client(generation_s=1, tool_s=1, guess_s=ratio, alpha=alpha).speedup
                for alpha in alphas
            ],
        )
        for ratio in _RATIOS
    ]
    return lines_figure(
        "speedup-by-alpha",
        "Speed-up against the share of calls guessed right",
        summary=(
            "With tools as slow as the model (T = G, the best case) the speed-up rises with the "
            "share of right guesses and never exceeds 2; a slower draft model, with a larger g/G, "
            "lowers it."
        ),
        axes=Axes(x="share of calls guessed right, alpha", y="speed-up", from_zero=False),
        lines=lines,
    )


def log_saved_by_latency(facts: LogFacts) -> Figure | None:
    """Plot equation (2) at the log's own means, its measured point, and the paper's columns."""
    facts = facts.live
    means = facts.means
    if means is None or facts.saved_calling is None:
        return None
    longest_s = max(2 * means.generation_s, 1.5 * means.tool_s, PAPER_LATENCIES_S[-1])
    latencies = [longest_s * step / _STEPS for step in range(1, _STEPS + 1)]
    lines = [
        _curve("model, at this log's hit rate", means, latencies),
        _curve(
            "model, if all that may were guessed",
            replace(means, alpha=facts.promise.early_share),
            latencies,
        ),
        Line(name="this log", x=[means.tool_s], y=[100 * facts.saved_calling], marks=True),
        *paper_lines(),
    ]
    return lines_figure(
        "saved-by-latency",
        "Time saved against tool latency, this log",
        summary=(
            f"This log's turns with calls saved {per_cent(facts.saved_calling)} with tools of "
            f"{seconds(means.tool_s)} on average; equation (2) at the means "
            f"(G = {seconds(means.generation_s)}, g = {seconds(means.guess_s)} of right guesses, "
            f"alpha = {means.alpha:.2f} of all calls) says {per_cent(means.saving)}."
        ),
        axes=LATENCY,
        lines=lines,
    )


def _curve(name: str, means: Client, latencies: Sequence[float]) -> Line:
    saved = [100 * replace(means, tool_s=tool_s).saving for tool_s in latencies]
    return Line(name=name, x=latencies, y=saved)


def seconds_by_tool(facts: LogFacts) -> Figure | None:
    """Plot what each tool's early runs hid and wasted."""
    cards = [card for card in facts.tools if card.hidden_s or card.wasted_s][:_MOST_BARS]
    if not cards:
        return None
    best = max(cards, key=lambda card: card.hidden_s)
    names = [card.name for card in cards]
    hidden, wasted = [card.hidden_s for card in cards], [card.wasted_s for card in cards]
    title = "Seconds hidden and wasted, by tool"
    return Figure(
        id="seconds-by-tool",
        title=title,
        summary=(
            f"Early runs hid {seconds(sum(hidden))} of these tools' work and wasted "
            f"{seconds(sum(wasted))}; most was hidden for {shown(best.name)}."
        ),
        traces=[
            bars("hidden", names, hidden, colour=HIDDEN),
            bars("wasted", names, wasted, colour=WASTED, hatched=True),
        ],
        layout={
            "barmode": "group",
            "height": 180 + 44 * len(cards),
            "xaxis": {"title": {"text": "seconds of tool work"}},
            "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        },
        table=Table(
            caption=title,
            columns=("tool", "hidden s", "wasted s"),
            rows=[[*row] for row in zip(names, hidden, wasted, strict=True)],
        ),
    )
