"""What a benchmark found, as JSON or as a table."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from langchain_spectool.bench.measure import Arm

_PACKAGES = ("langchain-spectool", "langchain", "langchain-core", "langgraph", "pydantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A measured value and what it may be at most."""

    name: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the value is within its limit."""
        return self.value <= self.limit


def options(
    argv: Sequence[str], *, name: str, about: str, repeats: int, fewest: int
) -> argparse.Namespace:
    """Parse the arguments of a benchmark; exits with status 2 on bad ones."""
    parser = argparse.ArgumentParser(
        prog=f"spectool bench {name}",
        description=f"{about} Exits with status 1 if a value is over its limit.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--repeats",
        type=int,
        default=repeats,
        metavar="N",
        help=f"runs of each arm, {fewest} or more (default: {repeats})",
    )
    given = parser.parse_args(argv)
    if given.repeats < fewest:
        parser.error(f"--repeats must be {fewest} or more, got {given.repeats}")
    return given


@contextmanager
def progress(name: str, steps: int) -> Generator[Callable[[], None]]:
    """Show a bar on stderr, where that is a terminal; yields what moves it by one step."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(name, total=steps)
        yield lambda: shown.advance(task)


def publish(
    bars: Sequence[Bar], arms: Sequence[Arm], *, name: str, repeats: int, as_json: bool
) -> int:
    """Print what was found on stdout; return the exit status."""
    found = _found(bars, arms, name, repeats)
    if as_json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        _print_tables(bars, arms, found)
    return 0 if all(bar.met for bar in bars) else 1


def _found(bars: Sequence[Bar], arms: Sequence[Arm], name: str, repeats: int) -> dict[str, Any]:
    return {
        "bars": [asdict(bar) for bar in bars],
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": versions(),
        "machine": machine(),
        "repeats": repeats,
        "arms": {
            arm.name: {"median_ms": _ms(arm.median_s), "p10_ms": _ms(arm.p10_s)} for arm in arms
        },
    }


def versions(*more: str) -> dict[str, str | None]:
    """Return the versions of what a measurement depends on, of `more` too."""
    return {package: _version(package) for package in (*_PACKAGES, *more)}


def machine() -> dict[str, Any]:
    """Return where it is measured."""
    return {"system": platform.platform(), "cores": os.cpu_count()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout
        return None


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _print_tables(bars: Sequence[Bar], arms: Sequence[Arm], found: dict[str, Any]) -> None:
    console = Console()
    table = Table(title=f"{found['benchmark']}: {found['repeats']} runs of each arm")
    table.add_column("bar")
    for heading in ("value", "limit"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for bar in bars:
        met = "[green]met[/]" if bar.met else "[red]over[/]"
        table.add_row(bar.name, f"{bar.value:.3f}", f"{bar.limit:g}", met)
    console.print(table)
    times = Table()
    times.add_column("arm")
    for heading in ("median ms", "p10 ms"):
        times.add_column(heading, justify="right")
    for arm in arms:
        times.add_row(arm.name, f"{1000 * arm.median_s:.2f}", f"{1000 * arm.p10_s:.2f}")
    console.print(times)
