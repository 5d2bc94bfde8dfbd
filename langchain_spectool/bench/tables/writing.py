"""How what stands in documents is written."""

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Final

from langchain_spectool.bench.tables.schema import Measured, Proof

_WIDTH: Final = 120


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in (columns, *rows)]
    return "\n".join([head, f"|{'---|' * len(columns)}", *body])


def place(found: Measured | Proof) -> str:
    """Say when and where."""
    machine = found.machine
    system = machine.system.partition("-")[0]
    return f"{found.date[:10]}, {system}, {machine.cores} cores, Python {found.python}"


def where(found: Measured) -> str:
    """Say when, where and with what."""
    packages = (f"{name} {found.versions.get(name)}" for name in ("langchain", "langgraph"))
    return ", ".join((place(found), *packages))


def paragraph(text: str) -> str:
    """Break a text into lines."""
    return fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def interval(low: float, high: float) -> str:
    """Write an interval."""
    return f"{low:.1f} to {high:.1f}"


def met(holds: bool) -> str:  # noqa: FBT001 - a value to be written
    """Say whether a bar is met."""
    return "yes" if holds else "**no**"


def share(part: float | None) -> str:
    """Write a share in per cent."""
    return "-" if part is None else f"{100 * part:.0f} %"
