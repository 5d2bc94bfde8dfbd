"""The tables and sentences of the documents, each from the committed results."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from langchain_spectool.bench.paper.package_slice import Row
from langchain_spectool.bench.report_page.paper_part import shortfalls
from langchain_spectool.bench.report_page.paper_results import read_paper
from langchain_spectool.bench.tables import engine_blocks
from langchain_spectool.bench.tables.schema import Paper, Results, Sources, Timed
from langchain_spectool.bench.tables.writing import (
    interval,
    met,
    paragraph,
    share,
    table,
    where,
)
from langchain_spectool.errors import SpectoolError

_ARMS_AT: Final = (0.5, 1.0, 2.0)
_SHORT_S: Final = 0.2
"""A tool so short that it is not worth much to hide."""
_GRID_AT: Final = (0.5, 1.0, 2.0)
_GRID_SAMPLES: Final = (1, 9)
_ACCURACY: Final = 0.8
_SAVED_AT: Final = (0.1, 0.5, 1.0, 2.0)
_RATE_AT: Final = 1.0


def _part(part: Any, name: str) -> Any:  # noqa: ANN401 - what was given, if it is there
    if part is None:
        msg = f"the committed results of the paper's experiment lack {name!r}: run all of it"
        raise SpectoolError(msg)
    return part


# --- overhead and turns


def measured(results: Results) -> str:
    """Say in one paragraph what a hit, a miss and a turn without guesses cost."""
    turns, overhead = results.turns, results.overhead
    plain, noop, ours = (overhead.arms[f"{arm}_1"].p10_ms for arm in ("plain", "noop", "ours"))
    return paragraph(
        "**Measured:** where the model writes for 0.5 s and the tool takes 0.5 s, a turn takes "
        f"{turns.value('hit'):.2f} of its plain time when a draft model guesses the call in 0.1 s, "
        f"and {turns.value('miss_short'):.3f} of it when the guess is wrong. Where model and tool "
        f"take no time and nobody guesses, a turn takes {ours:.1f} ms, where stock takes "
        f"{plain:.1f} ms and a middleware that does nothing {noop:.1f} ms. (`make bench`: "
        f"`create_agent`, scripted models, medians of {turns.repeats} runs, the milliseconds 10th "
        f"percentiles of {overhead.repeats}; {where(turns)}. How often a guess is right depends "
        "on your agent and your draft; [shadow mode](#modes) counts it without running anything.)"
    )


def timed(name: str, results: Results) -> str:
    """List the bars of a benchmark in real time."""
    found: Timed = getattr(results, name)
    rows = [
        (f"`{bar.name}`", f"{bar.value:.3f}", f"{bar.limit:g}", met(bar.value <= bar.limit))
        for bar in found.bars
    ]
    bars = table(("bar", "value", "at most", "met"), rows)
    return f"{bars}\n\n{found.repeats} runs of each arm, {where(found)}."


# --- the paper's experiment


def _of(paper: Paper, arm: str, latency_s: float) -> Row:
    """Return the row of an arm with one sample of the main accuracy."""
    rows: Sequence[Row] = _part(paper.slice, "slice").rows
    for row in rows:
        if (row.arm, row.latency_s, row.samples, row.accuracy) == (arm, latency_s, 1, _ACCURACY):
            return row
    msg = f"the committed results lack {arm!r} with tools of {latency_s:g} s: run all of them"
    raise SpectoolError(msg)


def paper_latency(results: Results) -> str:
    """Set the package beside the model and the paper."""
    fit = _part(results.paper.calibration, "calibration")
    rows = [
        (
            f"{point.latency_s:g} s",
            f"{point.package:.1f} % ({interval(point.low, point.high)})",
            f"{point.fitted:.1f} %",
            f"{point.paper:.0f} %",
        )
        for point in fit.points
    ]
    columns = (
        "average tool latency",
        "time saved, package (95 % interval)",
        "turn-by-turn model",
        "the paper, draft of 8B",
    )
    about = paragraph(
        f"{fit.label.capitalize()}: one number is fitted to the paper's column, the model's mean "
        f"turn of {fit.generation_s:.2f} s. The draft is simulated and the calls are gold calls: "
        "this shows mechanism and latency, no hit rate of any model. Virtual time; "
        f"{where(results.paper)}."
    )
    return f"{table(columns, rows)}\n\n{about}"


def paper_losses(results: Results) -> str:
    """Say in one paragraph where it does not pay."""
    paper = results.paper
    short = _of(paper, "oracle", _SHORT_S)
    grid = _part(paper.grid, "grid")
    full = max(
        (row for row in grid.rows if (row.latency_s, row.accuracy) == (_RATE_AT, _ACCURACY)),
        key=lambda row: (row.agents, row.samples),
    )
    ratios = [row.cpu_ratio for row in _part(paper.scale, "scale").rows]
    return paragraph(
        f"**Where it does not pay:** with tools of {_SHORT_S:g} s not even a source that is always "
        f"right saves more than {short.saved:.1f} %. Where {full.agents} agents share a model "
        f"server for {grid.capacity:g} generations, {full.samples} samples a turn with tools of "
        f"{full.latency_s:g} s {_saved(full.saved)}; each with a server of its own would save "
        f"{full.model_saved:.1f} %. And a speculating turn takes {min(ratios):.1f} to "
        f"{max(ratios):.1f} times the processor time of a plain one, so that a process which is "
        "full serves fewer agents."
    )


def _saved(percent: float) -> str:
    return f"save {percent:.1f} %" if percent >= 0 else f"lose {-percent:.1f} %"


def paper_points(results: Results) -> str:
    """List what fell short, as the report does."""
    found = read_paper(results.paper.model_dump())
    said = [point.replace("\u00a0", " ") for point in shortfalls(found)]
    return "\n".join(f"- {point}" for point in said) or "Nothing that was measured fell short."


def paper_bars(results: Results) -> str:
    """List the bars."""
    rows = [
        (f"`{bar.name}`", f"{bar.value:.3g}", f"{bar.sense} {bar.limit:g}", met(bar.met))
        for bar in results.paper.bars
    ]
    bars = table(("bar", "value", "must be", "met"), rows)
    return f"{bars}\n\n{results.paper.wall_s:.0f} s of real time, {where(results.paper)}."


def paper_arms(results: Results) -> str:
    """Set all arms and peers side by side."""
    rows = _part(results.paper.slice, "slice").rows
    arms = dict.fromkeys(row.arm for row in rows if row.arm != "plain")
    columns = (
        "arm",
        f"time saved at {' / '.join(f'{at:g}' for at in _ARMS_AT)} s",
        "alpha",
        "turns fully hit",
        "lead",
        "wasted calls, tool seconds",
        "task p50 / p95",
        "$ per 100 turns",
    )
    plain = _of(results.paper, "plain", _RATE_AT)
    return (
        table(columns, [_arm(results.paper, arm) for arm in ("plain", *arms)])
        + f"\n\nAll but the first column with tools of {_RATE_AT:g} s; {plain.tool_runs} calls. "
        "alpha: share of the calls that an early run answered."
    )


def _arm(paper: Paper, arm: str) -> Sequence[str]:
    saved = [_of(paper, arm, at).saved for at in _ARMS_AT]
    row = _of(paper, arm, _RATE_AT)
    return (
        f"`{arm}`",
        " / ".join(f"{each:.1f}" for each in saved) + " %",
        share(row.hit_share),
        share(row.turns_fully_hit),
        "-" if row.lead_s is None else f"{row.lead_s:.2f} s",
        f"{row.wasted_calls}, {row.wasted_s:.0f} s",
        f"{row.task_p50_s:.1f} / {row.task_p95_s:.1f} s",
        f"{row.usd_per_100_turns:.3f}",
    )


def paper_grid(results: Results) -> str:
    """Show a part of the grid: agents by samples, at some latencies."""
    grid = _part(results.paper.grid, "grid")
    cells = {
        (row.agents, row.samples, row.latency_s): row
        for row in grid.rows
        if row.accuracy == _ACCURACY
    }
    agents = sorted({key[0] for key in cells})
    rows = [
        (
            count,
            samples,
            *(
                f"{(cell := cells[count, samples, at]).saved:.1f} % ({cell.model_saved:.1f})"
                for at in _GRID_AT
            ),
            f"{max(cells[count, samples, at].stretch for at in _GRID_AT):.2f}",
        )
        for count in agents
        for samples in _GRID_SAMPLES
    ]
    columns = ("agents", "samples", *(f"saved at {at:g} s" for at in _GRID_AT), "stretch")
    about = paragraph(
        "In brackets without contention. Stretch: how much longer a generation took than alone, at "
        f"most. A server for {grid.capacity:g} generations, to which a sample is a load of "
        f"{grid.draft_load:g}; accuracy {_ACCURACY:g}."
    )
    return f"{table(columns, rows)}\n\n{about}"


def paper_scale(results: Results) -> str:
    """List the crowds."""
    found = _part(results.paper.scale, "scale")
    rows = [
        (
            f"{row.agents:,}",
            row.clock,
            "saturated" if row.saturated else f"{row.saved:.1f} % ({interval(row.low, row.high)})",
            share(row.plain_cpu_share),
            share(row.client_side_cpu_share),
            f"{row.cpu_ratio:.2f}",
            f"{row.most_at_once:,}",
        )
        for row in found.rows
    ]
    columns = (
        "agents",
        "clock",
        "time saved (95 % interval)",
        "core, plain",
        "core, client side",
        "processor time, ratio",
        "most at once",
    )
    memory = found.memory
    return (
        f"{table(columns, rows)}\n\nA turn in progress holds {memory['kb_per_turn']:.0f} KB with "
        f"an early run in the air, {memory['kb_per_turn_landed']:.0f} once it has landed, "
        f"{memory['kb_per_turn_without_guess']:.0f} without a guess."
    )


def paper_real(results: Results) -> str:
    """List the cells in real time."""
    found = _part(results.paper.real, "real")
    rows = [
        (
            f"`{row.arm}`",
            f"{row.latency_s:g} s",
            f"{row.saved:.1f} % ({interval(row.low, row.high)})",
            f"{row.virtual_saved:.1f} %",
            share(row.cpu_share),
            "void" if row.void else "",
        )
        for row in found.rows
    ]
    columns = (
        "arm",
        "tool latency",
        "time saved (95 % interval)",
        "in virtual time",
        "core",
        "",
    )
    return f"{table(columns, rows)}\n\n{found.agents} agents, all times x {found.scale:g}."


# --- sources


def sources(name: str, results: Results) -> str:
    """Compare the sources of guesses on one data set."""
    found: Sources = results.sources
    data = found.data_sets[name]
    by = {(row.source, row.latency_s): row for row in found.rows if row.data_set == name}
    rows = [
        (
            source,
            share((row := by[source, _RATE_AT]).hit_rate),
            " / ".join(f"{100 * by[source, at].time_saved:.1f}" for at in _SAVED_AT) + " %",
            f"{row.wasted_calls}, {row.wasted_s:.0f} s",
            f"{row.predictions_per_turn:.2f}",
            f"{row.token_usd:.3f}",
        )
        for source in found.sources
        if source != "off"
    ]
    columns = (
        "source",
        f"hit rate at {_RATE_AT:g} s",
        f"time saved at {' / '.join(f'{at:g}' for at in _SAVED_AT)} s",
        f"wasted calls, tool seconds at {_RATE_AT:g} s",
        "guesses a turn",
        "token dollars",
    )
    return (
        f"`{name}` ({data.package}): {data.tasks} tasks, {data.turns} turns, "
        f"{data.read_only_calls} of {data.calls} calls read-only, {data.batched_tool_turns} of "
        f"{data.tool_turns} tool turns batches.\n\n{table(columns, rows)}"
    )


def sources_run(results: Results) -> str:
    """Say how and when the sources were compared."""
    found = results.sources
    return (
        f"`spectool bench sources` with seed {found.settings['seed']}: {found.wall_s:.0f} s of "
        f"real time, {where(found)}."
    )


BLOCKS: Final[Mapping[str, Callable[[Results], str]]] = {
    "measured": measured,
    "overhead": partial(timed, "overhead"),
    "turns": partial(timed, "turns"),
    "paper-latency": paper_latency,
    "paper-losses": paper_losses,
    "paper-points": paper_points,
    "paper-bars": paper_bars,
    "paper-arms": paper_arms,
    "paper-grid": paper_grid,
    "paper-scale": paper_scale,
    "paper-real": paper_real,
    "sources-run": sources_run,
    "sources-bfcl": partial(sources, "bfcl_multi_turn"),
    "sources-tau2": partial(sources, "tau2_retail"),
    **engine_blocks.BLOCKS,
}
"""By the name that a document marks."""
