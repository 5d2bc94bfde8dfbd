"""What the turn-by-turn model makes of an event log: for a shadow log, what would be saved."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_spectool._core.events import Event
from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.model.estimate import Estimate, estimate
from langchain_spectool.bench.model.fit import as_if_on, fit_events, units_of
from langchain_spectool.bench.model.means import at_the_means, early_share
from langchain_spectool.bench.report_page.tables import per_cent
from langchain_spectool.errors import SpectoolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The model's estimate, or why there is none."""

    estimate: Estimate | None = None
    as_on: Estimate | None = None
    """With the guesses alone that would have run, had speculation been on; None where the log
    does not tell."""
    means: Client | None = None
    """Equation (2) at the means of the log's calls."""
    early_share: float = 0.0
    """Share of the calls that may run early: what alpha can be at most."""
    by_run: bool = False
    missing: str = ""

    @property
    def saving(self) -> float | None:
        """Share of the time that the model says is saved."""
        return None if self.estimate is None else self.estimate.saving

    @property
    def without_held(self) -> str:
        """What is left of a promise made in shadow mode without the guesses held back when on."""
        held = "(warming_up, not_worth, ...), were speculation on"
        if self.as_on is None:
            return (
                "At most that: the log does not say which guesses would have been held back "
                f"{held}."
            )
        return (
            f"Without the guesses that would have been held back {held}: "
            f"{per_cent(self.as_on.saving)}."
        )

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
    on = as_if_on([fit])
    return Promise(
        estimate=estimate(fit.units),
        as_on=None if on is None else estimate(units_of(on)),
        means=at_the_means(fit.turns),
        early_share=early_share(fit.turns),
        by_run=fit.by_run,
    )
