"""Counts what a committed call costs, when its body runs for real."""

from dataclasses import dataclass

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.ports import Clock
from langchain_spectool._runtime.run_watch import WatchedRun
from langchain_spectool._runtime.shared_economy import SharedEconomy


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Tells the economy, and the run, of one committed call of a declared tool."""

    tool: str
    contract: Contract
    economy: SharedEconomy
    clock: Clock
    run: WatchedRun | None = None

    def ran(self) -> None:
        """Note that its body begins to run: nobody has done so before."""
        self.economy.called(self.tool, self.contract, self.clock())
        if self.run is not None:
            self.run.cost(self.contract.cost_usd or 0.0)

    def took(self, seconds: float) -> None:
        """Note how long that took."""
        self.economy.tool_took(self.tool, seconds)
