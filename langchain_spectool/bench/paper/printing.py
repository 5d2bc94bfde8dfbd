"""The tables that a person reads."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

_Columns = Sequence[tuple[str, tuple[str, ...], str]]
_INTERVAL: Final = ("95 %", ("low", "high"), "{:.1f} to {:.1f}")
_SAVED: Final = ("saved", ("saved",), "{:.1f}%")
_LATENCY: Final = ("latency", ("latency_s",), "{:g} s")
_ARM: Final = ("arm", ("arm",), "{}")
_SLICE: Final[_Columns] = (
    _LATENCY,
    _ARM,
    ("draft", ("samples", "accuracy"), "{} x {:g}"),
    _SAVED,
    _INTERVAL,
    ("model", ("model_saved",), "{:.1f}%"),
    ("alpha", ("hit_share",), "{:.2f}"),
    ("wasted", ("wasted_calls",), "{}"),
    ("tok/s", ("tokens_per_s",), "{:.1f}"),
    ("$/100", ("usd_per_100_turns",), "{:.3f}"),
)
_COLUMN: Final[_Columns] = (
    _LATENCY,
    ("paper", ("paper",), "{:.0f}%"),
    ("fitted", ("fitted",), "{:.1f}%"),
    ("residual", ("residual",), "{:+.1f}"),
    ("package", ("package",), "{:.1f}%"),
    _INTERVAL,
)
_REAL: Final[_Columns] = (
    _LATENCY,
    _ARM,
    _SAVED,
    _INTERVAL,
    ("virtual", ("virtual_saved",), "{:.1f}%"),
    ("CPU", ("cpu_share",), "{:.0%}"),
    ("void", ("void",), "{}"),
)
_SCALE: Final[_Columns] = (
    ("agents", ("agents",), "{}"),
    ("clock", ("clock",), "{}"),
    _SAVED,
    _INTERVAL,
    ("CPU plain", ("plain_cpu_share",), "{:.0%}"),
    ("ours", ("client_side_cpu_share",), "{:.0%}"),
    ("ratio", ("cpu_ratio",), "{:.2f}"),
    ("at once", ("most_at_once",), "{}"),
)
_GRID: Final[_Columns] = (
    ("agents", ("agents",), "{}"),
    _LATENCY,
    ("draft", ("samples", "accuracy"), "{} x {:g}"),
    _SAVED,
    _INTERVAL,
    ("uncontended", ("model_saved",), "{:.1f}%"),
    ("stretch", ("stretch",), "{:.2f}"),
)
_WORDS: Final = frozenset({"arm", "clock"})
_BEST: Final = 0.8
"""Accuracy of the draft whose cells are printed."""
_WIDTH: Final = 110
"""Columns of a pipe, which knows none."""
_SHOWN_OF_GRID: Final = (0.5, 1.0, 2.0)


def print_tables(found: Mapping[str, Any]) -> None:
    """Print everything that was measured; of the grid only a part."""
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    if found["slice"] is not None:
        _print_slice(console, found)
    if found["grid"] is not None:
        _print_grid(console, found["grid"])
    if found["real"] is not None:
        real = found["real"]
        title = f"real time, all times x {real['scale']}: {real['agents']} agents"
        console.print(_table(title, _REAL, real["rows"]))
    if found["scale"] is not None:
        console.print(_table("many agents in one process", _SCALE, found["scale"]["rows"]))
        held = ", ".join(f"{name} {value}" for name, value in found["scale"]["memory"].items())
        console.print(f"memory of a turn in progress: {held}")
    print_bars(console, found)


def _print_slice(console: Console, found: Mapping[str, Any]) -> None:
    console.print(_table("the package in virtual time", _SLICE, found["slice"]["rows"]))
    for peer in found["slice"]["peers"]:
        state = peer["version"] or "ran" if peer["installed"] else "not installed, did not run"
        console.print(f"{peer['name']}: {state} ({peer['note']})")
    fit = found["calibration"]
    title = (
        f"{fit['label']}: {fit['generation_s']} s a model turn, "
        f"{fit['model_s_per_tool_turn']:.1f} s of model per turn with tools"
    )
    console.print(_table(title, _COLUMN, fit["points"]))
    for gain in found["slice"]["gains"]:
        console.print(
            f"{gain['arm']} saves {gain['points']:+.2f} points [{gain['low']:+.2f}, "
            f"{gain['high']:+.2f}] beyond client_side, mean over latencies"
        )


def _print_grid(console: Console, grid: Mapping[str, Any]) -> None:
    rows = [
        row
        for row in grid["rows"]
        if row["latency_s"] in _SHOWN_OF_GRID
        and row["samples"] in {1, 9}
        and row["accuracy"] == 0.8  # noqa: PLR2004 - the best draft
    ]
    title = (
        f"discrete-event model, {len(rows)} of {len(grid['rows'])} cells: a server for "
        f"{grid['capacity']:g} generations, a sample loads it with {grid['draft_load']:g}"
    )
    console.print(_table(title, _GRID, rows))


def print_bars(console: Console, found: Mapping[str, Any]) -> None:
    """Print the bars of a benchmark that follows the paper's, and what it was run with."""
    table = Table(title="bars", box=SIMPLE)
    for heading in ("bar", "value", "limit", ""):
        table.add_column(heading, justify="left" if heading in {"bar", ""} else "right")
    for bar in found["bars"]:
        met = "[green]met[/]" if bar["met"] else "[red]missed[/]"
        table.add_row(bar["name"], f"{bar['value']:.3f}", f"{bar['sense']} {bar['limit']:g}", met)
    console.print(table)
    console.print(f"seed {found['settings']['seed']}; {found['wall_s']} s of real time")
    console.print(found["note"])


def _table(title: str, columns: _Columns, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading, _, _ in columns:
        table.add_column(heading, justify="left" if heading in _WORDS else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_shown([row[key] for key in keys], form) for _, keys, form in columns))
    return table


def _shown(values: Sequence[object], form: str) -> str:
    return "-" if None in values else form.format(*values)
