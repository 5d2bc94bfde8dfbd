"""Checks what a Speculation is given; each function raises ValueError for what it cannot use."""

from collections.abc import Collection, Sequence
from typing import cast


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
