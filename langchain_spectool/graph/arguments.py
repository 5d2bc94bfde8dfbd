"""Checks what a Speculation is given; each function raises ValueError for what it cannot use."""

from collections.abc import Collection, Sequence
from typing import cast

from langchain_spectool._core.ports import Speculator, StreamSpeculator

Source = Speculator | StreamSpeculator


def by_kind(
    sources: Sequence[Source],
) -> tuple[tuple[Speculator, ...], tuple[StreamSpeculator, ...]]:
    """Return those of `sources` that take samples, and those that listen."""
    if isinstance(sources, str):
        msg = f"`speculators` must be a list of speculators, got {sources!r}: use `draft=`"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    for source in cast("Sequence[object]", sources):
        if not isinstance(source, (Speculator, StreamSpeculator)):
            msg = f"a speculator has `guess` and `aguess`, or `listen`; {source!r} has neither"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    return (
        tuple(s for s in sources if isinstance(s, Speculator) and s.samples > 0),
        tuple(s for s in sources if isinstance(s, StreamSpeculator)),
    )


def held_back(gated: Sequence[object]) -> frozenset[str]:
    """Return the names of the tools that `gated`, names or gate middleware, hold back."""
    if isinstance(gated, str):
        msg = f"`gated` must be a list of tools or gates, got {gated!r}: write [{gated!r}]"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    if all(isinstance(gate, str) for gate in gated):
        return frozenset(cast("Sequence[str]", gated))
    from langchain_spectool.graph.gates import gated_names  # noqa: PLC0415 - imports the agents

    return gated_names(gated)


def server_names(trust_mcp: Collection[str]) -> frozenset[str]:
    """Return `trust_mcp` as a set."""
    if isinstance(trust_mcp, str):
        msg = f"`trust_mcp` must be a list of names, got {trust_mcp!r}: write [{trust_mcp!r}]"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    return frozenset(trust_mcp)
