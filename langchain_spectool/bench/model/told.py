"""What `spectool model --traces` prints for people."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from langchain_spectool.bench.model.settings import Found, said_break_even
from langchain_spectool.traces.trajectory import printable


def show(found: Found) -> None:
    """Print what `found` returned."""
    console = Console(highlight=False)
    fitted = found["fitted"]
    table = Table(title=f"{found['source']}: {fitted['turns']} turns, {fitted['calls']} calls")
    for heading in ("seconds", "mean", "p10", "p50", "p90"):
        table.add_column(heading, justify="left" if heading == "seconds" else "right")
    for name in ("G_s", "T_s", "g_s"):
        cells = ("-" if value is None else f"{value:.3f}" for value in fitted[name].values())
        table.add_row(name.removesuffix("_s"), *cells)
    console.print(table)
    for line in (*_lines(found), *(f"note: {note}" for note in found["notes"])):
        console.print(printable(line), soft_wrap=True, markup=False)


def _lines(found: Found) -> Iterator[str]:
    fitted = found["fitted"]
    most = "" if fitted["early_share_known"] else "at most "
    yield (
        f"{most}{100 * fitted['early_share']:.0f} % of the calls may run early; of these, alpha "
        f"{fitted['alpha']:.3f}: {fitted['alpha_from']}"
    )
    yield _headline(found)
    if found["mode"] == "shadow":
        yield _as_on(found)
    if (aside := found["shadow"]) is not None:
        yield (
            f"That is of the turns in which speculation was on. In {aside['turns']} more it was in "
            f"shadow mode: it would have saved {_share(aside)} of their time. {_as_on(aside)}"
        )
    if (form := found["closed_form"]) is not None:
        yield (
            f"Of the turns with calls, equation (2) at the means says {100 * form['saving']:.1f} %"
            f", {form['gap_points']:+.1f} points from the {100 * form['turn_by_turn']:.1f} % of "
            f"the model turn by turn; its Jensen gap is {found['jensen_gap_points']:.1f} points."
        )
        yield said_break_even(found["break_even"], form["saving"], form["turn_by_turn"])


def _share(saved: Found) -> str:
    low, high = saved["interval"]
    interval = "" if low is None else f" (95 %: {100 * low:.1f} to {100 * high:.1f} %)"
    return f"{100 * saved['saving']:.1f} %{interval}"


def _as_on(saved: Found) -> str:
    """Say what is left of the promise of a log in shadow mode without guesses held back."""
    if saved["saving_as_on"] is None:
        return (
            "At most that: the log does not say which of its guesses would have been held back "
            "(warming_up, not_worth, ...), were speculation on."
        )
    return (
        f"Without the guesses that would have been held back (warming_up, not_worth, ...), were "
        f"speculation on: {100 * saved['saving_as_on']:.1f} %."
    )


def _headline(found: Found) -> str:
    verb = "saved" if found["mode"] == "on" else "would save"
    share = _share(found).replace(" %", " % of the time", 1)
    most = "" if found["fitted"]["early_share_known"] else "at most "
    by = ", by the model of its own turns" if found["mode"] == "on" else ""
    return (
        f"Speculation {verb} {share}{by}: {found['speedup']:.3f} times as fast, "
        f"{most}{found['bound']:.3f} if every call that may run early were guessed at once."
    )
