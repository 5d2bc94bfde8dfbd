"""The tables that a person reads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from langchain_spectool.bench.paper.printing import print_bars

_WIDTH: Final = 120
"""Columns of a pipe, which knows none."""
_COLUMNS: Final[Sequence[tuple[str, str]]] = (
    ("arm", "{name}"),
    ("prefill", "{prefill_tokens:.0f}"),
    ("ratio", "{prefill_vs_round_trip:.3f}"),
    ("steps", "{steps:.0f}"),
    ("ratio", "{steps_vs_round_trip:.3f}"),
    ("resolved", "{resolved}/{calls}"),
    ("differ", "{divergent}/{tasks_done}"),
    ("doubles", "{doubles}"),
    ("median", "{median_s:.3f} s"),
    ("saved", "{saved_percent:+.1f}%"),
    ("95 %", "{low:+.1f} to {high:+.1f}"),
)


def print_tables(found: Mapping[str, Any]) -> None:
    """Print everything that was measured."""
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    for name, server in found["servers"].items():
        console.print(f"{name}: {_server(server)}", highlight=False)
    for cell in found["cells"]:
        rows = ({"name": name, **row} for name, row in cell["arms"].items())
        console.print(_table(f"{cell['name']} s, {cell['tasks']} tasks an agent", rows))
    for name, reason in found["not_run"].items():
        console.print(f"{name} was not run: {reason}")
    for row in found["divergence"]:
        console.print(
            f"{row['arm']} differs from the round trip in {row['divergent']} of {row['tasks']} "
            f"tasks, a second round trip in {row['again_divergent']}: p {row['p']:g}"
        )
    print_bars(console, found)


def _server(server: Mapping[str, Any]) -> str:
    caching = "on" if server["prefix_caching"] else "off"
    return (
        f"{server['engine']} {server['version'] or ''} with {server['model']}, prefix caching "
        f"{caching}, blocks of {server['block_tokens'] or '?'} tokens: {server['blocks'] or '?'}; "
        f"counted by {server['counted_by']}"
    )


def _table(title: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(title=title, box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="left" if heading == "arm" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(form.format(**row) for _, form in _COLUMNS))
    return table
