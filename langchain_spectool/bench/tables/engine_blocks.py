"""What was measured and proved of engines with a tool cache."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from langchain_spectool.bench.tables.schema import (
    Engine,
    EngineArm,
    EngineCell,
    EngineServer,
    Proof,
    Results,
)
from langchain_spectool.bench.tables.writing import met, paragraph, place, table

NOT_YET: Final = "Not measured yet."
_ARMS: Final[Mapping[str, str]] = {
    "round_trip_again": "round trip again",
    "early": "early run, round trip",
    "o3": "in place",
    "o3_o2": "in place, drafted",
}


def engine_bars(results: Results) -> str:
    """List the bars, and say what was measured and where."""
    found = results.engine
    if found is None:
        return NOT_YET
    rows = [
        (f"`{bar.name}`", f"{bar.value:.3g}", f"{bar.sense} {bar.limit:g}", met(bar.met))
        for bar in found.bars
    ]
    about = f"{_server(found.servers['roomy'], found)}; {found.wall_s / 60:.0f} minutes."
    return f"{table(('bar', 'value', 'must be', 'met'), rows)}\n\n{paragraph(about)}"


def engine_cells(results: Results) -> str:
    """Set the arms of every cell beside its round trip."""
    found = results.engine
    if found is None:
        return NOT_YET
    columns = (
        "cell",
        "arm",
        "prefill tokens, steps: ratio",
        "calls in place",
        "other answers",
        "preempted",
        "a question",
        "time saved (95 % interval)",
    )
    rows = [row for cell in found.cells for row in _rows(cell)]
    about = paragraph(
        "All beside the first round trip of the same questions. How far the second round trip is "
        "from 0 says how far these times can be trusted."
    )
    return f"{table(columns, rows)}\n\n{about}"


def _rows(cell: EngineCell) -> Iterator[tuple[object, ...]]:
    base = cell.arms["round_trip"]
    yield cell.name, "round trip", "1, 1", "-", "-", f"{base.preemptions:g}", _seconds(base), "-"
    for name, arm in cell.arms.items():
        if arm is base:
            continue
        yield (
            "",
            _ARMS[name],
            f"{arm.prefill_vs_round_trip:.3f}, {arm.steps_vs_round_trip:.3f}",
            f"{arm.resolved} of {arm.calls}" if name.startswith("o3") else "-",
            f"{arm.divergent} of {arm.tasks_done}",
            f"{arm.preemptions:g}",
            _seconds(arm),
            f"{arm.saved_percent:.1f} % ({arm.low:.1f} to {arm.high:.1f})",
        )


def _seconds(arm: EngineArm) -> str:
    return f"{arm.median_s:.2f} s"


def engine_measured(results: Results) -> str:
    """Say in one paragraph what going on in place saved, and what it did not."""
    found = results.engine
    if found is None:
        return NOT_YET
    bars = {bar.name: bar.value for bar in found.bars}
    tight = next(cell for cell in found.cells if cell.server == "pressure").arms
    others = "; ".join(
        f"{cell.name} s: {_whole(cell, 'o3')} % ({_whole(cell, 'early')}, "
        f"{_whole(cell, 'round_trip_again')})"
        for cell in found.cells
        if cell.server == "roomy"
    )
    guesses = [(cell.arms["o3"].guessed, cell.arms["o3"].calls) for cell in found.cells]
    right, calls = (sum(column) for column in zip(*guesses, strict=True))
    return paragraph(
        f"**Measured** on a small model, with {right} of {calls} calls foreseen: beside the round "
        "trip, a response in place "
        f"computes {bars['o3_prefill_tokens_vs_round_trip']:.2f} of the prefill tokens in "
        f"{bars['o3_steps_vs_round_trip']:.2f} of the steps, and "
        f"{bars['kv_pressure_prefill_vs_round_trip']:.2f} of the tokens where the cache is too "
        "small for the agents. A question takes less time there by "
        f"{tight['o3'].saved_percent:.0f} % ({tight['o3'].low:.0f} to {tight['o3'].high:.0f}; with "
        f"the early run alone {tight['early'].saved_percent:.0f} %). With room, for M agents and "
        "tools of T seconds (in brackets the early run alone, and a second round trip, where all "
        f"is chance): {others}. ({_server(found.servers['roomy'], found)}; "
        "[all of it](engine-benchmark.md).)"
    )


def _whole(cell: EngineCell, arm: str) -> str:
    return f"{cell.arms[arm].saved_percent:.0f}"


def _server(server: EngineServer, found: Engine) -> str:
    packages = found.server_versions or {}
    torch = f", torch {packages['torch']}" if "torch" in packages else ""
    device = found.accelerator or "no GPU"
    return (
        f"{server.engine} {server.version or ''}{torch}, {server.model.rpartition('/')[2]}, "
        f"blocks of {server.block_tokens} tokens, {server.repeats} repeats, {device}, "
        f"{place(found)}"
    )


def proof(results: Results) -> str:
    """List what was asked, and what differed."""
    found: Proof | None = results.proof
    if found is None:
        return NOT_YET
    rows = [
        (
            row.style,
            row.kind.replace("_", " "),
            row.asked,
            row.turns,
            row.continued,
            row.aa_differ,
            row.differ,
        )
        for row in found.summary
    ]
    columns = ("model", "questions", "asked", "turns", "in place", "A/A differs", "differs")
    arms = [
        (f"`{arm.arm}`", arm.asked, arm.aa_differ, arm.differ, f"{arm.p:.3g}") for arm in found.arms
    ]
    about = paragraph(
        f"{len(found.amiss)} amiss; {'proved' if found.proved else '**not proved**'} in "
        f"{found.wall_s / 60:.0f} minutes. Not run: {', '.join(found.not_run) or 'nothing'}. "
        f"{_packages(found)}, {place(found)}."
    )
    by_arm = table(("arm", "asked", "A/A differs", "differs", "p"), arms)
    return f"{by_arm}\n\n{table(columns, rows)}\n\n{about}"


def _packages(found: Proof) -> str:
    return ", ".join(
        f"{name} {version}"
        for name, version in found.versions.items()
        if name.startswith("vllm") or name == "torch"
    )


BLOCKS: Final[Mapping[str, Callable[[Results], str]]] = {
    "engine-measured": engine_measured,
    "engine-bars": engine_bars,
    "engine-cells": engine_cells,
    "proof": proof,
}
"""By the name that a document marks."""
