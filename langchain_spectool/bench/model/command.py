"""`spectool model`: what speculation saves at given times, and what it would save on your agent."""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from langchain_spectool.bench.model import fitted, told
from langchain_spectool.bench.model.equations import Client, jensen_gap
from langchain_spectool.bench.model.settings import (
    Found,
    ModelOptions,
    break_even,
    closed_form,
    said_break_even,
)
from langchain_spectool.bench.model.workload import Workload, hit_rate, mean_of

DRAWS: Final = 20_000
"""Turns that are drawn for the turn model."""


def show(options: ModelOptions, *, as_json: bool = False) -> int:
    """Print what the model says.

    Raises:
        SpectoolError: A value is out of range, or the traces lack what a fit needs.
    """
    found = fitted.found(options) if options.traces else _found(options)
    if as_json:
        print(json.dumps(rounded(found)))
    elif options.traces:
        told.show(found)
    else:
        _print(found)
    return 0


def rounded(found: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return the same figures with six decimals at most."""
    if isinstance(found, Mapping):
        return {key: rounded(value) for key, value in found.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(found, list | tuple):
        return [rounded(value) for value in found]  # pyright: ignore[reportUnknownVariableType]
    return round(found, 6) if isinstance(found, float) else found


def _found(options: ModelOptions) -> Found:
    workload = options.workload
    alpha = options.alpha or 0.0
    client = Client(
        generation_s=workload.generation_s,
        tool_s=workload.tool_s,
        guess_s=workload.guess_s,
        alpha=alpha,
        cost_s=options.cost_s,
    )
    client = replace(client, alpha=hit_rate(alpha, workload.samples, workload.likeness))
    return {
        "given": {
            "G_s": client.generation_s,
            "T_s": client.tool_s,
            "g_s": client.guess_s,
            "alpha": alpha,
            "cost_s": client.cost_s,
        },
        "alpha": client.alpha,
        **closed_form(client),
        "break_even": break_even(client, options),
        "turn_model": _drawn(workload, client, options),
    }


def _drawn(workload: Workload, client: Client, options: ModelOptions) -> Found:
    """Return the mean of drawn turns, and how far from it equation (2) is, in points."""
    drawn = mean_of(workload, max(1, DRAWS // workload.turns), options.seed)
    count = workload.turns + workload.closing
    plain_s = drawn.plain_s / count
    speculative_s = drawn.speculative_s / count + client.cost_s
    saving = 1 - speculative_s / plain_s
    dice = Random(options.seed)  # noqa: S311 - fair draws, no secret
    turns = (turn for _ in range(DRAWS // workload.turns + 1) for turn in workload.draw(dice))
    times = [(turn.generation_s, call.tool_s) for turn in turns for call in turn.calls]
    return {
        "speedup": plain_s / speculative_s,
        "saving": saving,
        "standard_error": drawn.error,
        "turn_s": {"plain": plain_s, "speculative": speculative_s},
        "gap_points": 100 * (client.saving - saving),
        "jensen_gap_points": 100 * jensen_gap(times, client.guess_s, client.alpha),
        "spread": {"G": workload.generation_spread, "T": workload.tool_spread},
        "calls": workload.calls,
        "samples": workload.samples,
        "likeness": workload.likeness,
        "closed_at": workload.closed_at,
        "turns": workload.turns,
        "closing_turn": workload.closing,
        "depth": workload.depth,
    }


def _print(found: Found) -> None:
    drawn = found["turn_model"]
    table = Table()
    for heading in ("", "equation (2)", "turn by turn"):
        table.add_column(heading, justify="right" if heading else "left")
    columns = (found, drawn)
    table.add_row("speed-up", *(f"{each['speedup']:.3f}" for each in columns))
    table.add_row("time saved", *(f"{100 * each['saving']:.1f} %" for each in columns))
    for name in ("plain", "speculative"):
        table.add_row(f"{name} turn", *(f"{each['turn_s'][name]:.3f} s" for each in columns))
    table.add_row("bound (alpha = 1)", f"{found['bound']:.3f}", "")
    console = Console(highlight=False)
    console.print(table)
    even = said_break_even(found["break_even"], found["saving"], drawn["saving"])
    console.print(even, soft_wrap=True)
    gap = drawn["jensen_gap_points"]
    much = (
        "much (Jensen)" if gap >= 0 else "little (a guess that is late at the means is not always)"
    )
    console.print(
        f"Equation (2) takes all turns to be the same. With times that vary as recorded ones do, "
        f"it promises {abs(gap):.1f} points too {much}; in all it is "
        f"{drawn['gap_points']:+.1f} points from the model turn by turn.",
        soft_wrap=True,
    )
