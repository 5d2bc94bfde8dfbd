"""What the turn-by-turn model makes of an event log: for a shadow log, what would be saved."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_spectool._core.events import Event
from langchain_spectool.bench.model.estimate import Estimate, estimate
from langchain_spectool.bench.model.fit import fit_events
from langchain_spectool.bench.report_page.tables import per_cent
from langchain_spectool.errors import SpectoolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The model's estimate, or why there is none."""

    estimate: Estimate | None = None
    by_run: bool = False
    missing: str = ""

    @property
    def saving(self) -> float | None:
        """Share of the time that the model says is saved."""
        return None if self.estimate is None else self.estimate.saving

    @property
    def interval(self) -> str:
        """Its interval in words."""
        found = self.estimate
        if found is None or found.low is None or found.high is None:
            return "too few turns for an interval"
        what = "runs" if self.by_run else "turns"
        return (
            f"95 % interval {per_cent(found.low)} to {per_cent(found.high)}, "
            f"from {found.units} resampled {what}"
        )


def promise_of(events: Sequence[Event]) -> Promise:
    """Fit the turn-by-turn model to the log's own turns."""
    try:
        fit = fit_events(events)
    except SpectoolError as error:
        return Promise(missing=str(error))
    return Promise(estimate=estimate(fit.units), by_run=fit.by_run)
