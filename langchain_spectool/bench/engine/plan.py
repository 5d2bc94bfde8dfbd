"""What is played, on which servers, and for how long."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from langchain_spectool.bench.engine.cells import Cell, Where
from langchain_spectool.bench.engine.server import Start

_SHARES: Final[Mapping[Where, float]] = {"roomy": 0.6, "pressure": 0.25, "drafts": 0.15}
"""Of the time there is for playing, what each server gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is played."""

    repeats: int = 3
    quick: bool = False
    seed: int = 0
    drafts: bool = False
    """Whether a server that drafts arguments is measured as well."""
    until_s: float = math.inf
    """By `time.monotonic`: no repeat after the first begins that would not be over by then."""

    @property
    def servers(self) -> Sequence[Where]:
        """Return the servers that are measured, in this order."""
        return ("roomy", "pressure", "drafts") if self.drafts else ("roomy", "pressure")

    @property
    def cells(self) -> list[Cell]:
        """Return all cells."""
        few, many, crowd, tasks = (1, 2, 4, 2) if self.quick else (1, 8, 32, 4)
        wait_s = 0.05 if self.quick else 0.5
        grid = [
            Cell(agents=agents, tool_s=tool_s, tasks=tasks if agents == few else 1)
            for agents in (few, many)
            for tool_s in (0.0, wait_s)
        ]
        cells = [
            *grid,
            Cell(agents=crowd, tool_s=wait_s),
            Cell(agents=8, tool_s=wait_s, server="pressure"),
        ]
        # How long a tool takes changes nothing about the price of drafting.
        drafting = (replace(each, server="drafts") for each in grid if not each.tool_s)
        return [*cells, *drafting] if self.drafts else cells

    def until(self, server: Where, start_s: float) -> float:
        """Return when to stop playing on a server, if those after it take `start_s` to start."""
        later = self.servers[self.servers.index(server) + 1 :]
        now_s = time.monotonic()
        left_s = self.until_s - now_s - start_s * len(later)
        share = _SHARES[server] / sum(_SHARES[each] for each in (server, *later))
        return now_s + share * left_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which servers there are, or how to start them."""

    url: str | None = None
    pressure_url: str | None = None
    start: Start | None = None
    api_key: str | None = None
