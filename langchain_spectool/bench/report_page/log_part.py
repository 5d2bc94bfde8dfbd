"""What the page says about an event log."""

from dataclasses import replace

from langchain_spectool.bench.report_page.curves import log_saved_by_latency, seconds_by_tool
from langchain_spectool.bench.report_page.log_runs import run_table
from langchain_spectool.bench.report_page.log_shortfalls import shortfalls
from langchain_spectool.bench.report_page.log_tables import costs, guessing, reasons, times
from langchain_spectool.bench.report_page.parts import Headline, Part
from langchain_spectool.bench.report_page.scorecard import LogFacts
from langchain_spectool.bench.report_page.tables import counted, per_cent, ratio, seconds, shown
from langchain_spectool.bench.report_page.timeline_figure import HOW_TO_READ, timeline
from langchain_spectool.bench.scoring import percentile

_BANNER = (
    "Shadow mode: nothing ran early. Every call ran after the model's answer, as ever, and was "
    "only compared with the guesses."
)
_MOST_SOURCES = 20


def log_headline(facts: LogFacts, about: str = "This event log") -> Headline:
    """Say what was saved, or in shadow mode would have been, and in what."""
    if facts.shadow:
        return _shadow(facts, about)
    if facts.shadow_part is not None:
        banner = _mixed(facts, facts.shadow_part)
        return replace(_measured(facts.live, about), banner=banner)
    return _measured(facts, about)


def _mixed(facts: LogFacts, shadow: LogFacts) -> str:
    """Say which turns the headline leaves out, and what is promised of them."""
    said = (
        "Two modes in one log. In shadow mode, where nothing runs early: "
        f"{counted(len(shadow.turns), 'turn')} of {len(facts.turns)}. The headline and what the "
        f"log saved are of the other {len(facts.live.turns)}; tables are of all. "
    )
    found = shadow.promise
    if found.saving is None:
        return f"{said}What the turns in shadow mode would save cannot be said: {found.missing}."
    return (
        f"{said}Of the turns in shadow mode, {per_cent(found.saving)} of the time would have been "
        f"saved ({found.interval}). {found.without_held}"
    )


def _measured(facts: LogFacts, about: str) -> Headline:
    report, total = facts.report, facts.total
    early = facts.asked - len(facts.early.barred)
    saved = facts.saved
    return Headline(
        about=about,
        value=f"{per_cent(saved)} of the time saved" if saved else "no time saved",
        setup=(
            f"{_what(facts)}: {seconds(facts.observed_s)} instead of {seconds(facts.serial_s)}, "
            "had every call run after the model's answer. That is a counterfactual, computed "
            "from the same turns; measure with speculation off to be sure."
        ),
        tiles=(
            ("calls answered early", f"{report.hits} of {facts.asked}"),
            (_early(facts), f"{early} of {facts.asked}"),
            (
                f"share of these{'' if facts.early.known else ', at least'}",
                per_cent(ratio(report.hits, early)),
            ),
            ("early runs wasted", f"{report.wasted} of {report.guesses}"),
            ("tool time wasted", seconds(report.wasted_s)),
            ("tool time hidden", seconds(report.hidden_s)),
            ("lead, median", seconds(percentile(total.leads_s, 0.5))),
            *_spent(facts),
        ),
    )


def _shadow(facts: LogFacts, about: str) -> Headline:
    found, total = facts.promise, facts.total
    right = sum(call.guessed for _, call in total.calls)
    scored = [source for _, source in facts.report.sources.items()]
    guesses = sum(source.guesses for source in scored)
    if found.saving is None:
        value, setup = "nothing ran early", f"What it would save cannot be said: {found.missing}."
        banner = _BANNER
    else:
        banner = f"{_BANNER} {found.without_held}"
        value = f"{per_cent(found.saving)} of the time would have been saved"
        setup = (
            f"{found.interval.capitalize()}. {_what(facts)}, taken through the turn-by-turn model "
            "with the guesses that were right when they came; wrong ones cost no time."
        )
    return Headline(
        about=about,
        banner=banner,
        value=value,
        setup=setup,
        tiles=(
            ("calls guessed to the letter", f"{right} of {facts.asked}"),
            (_early(facts), f"{facts.asked - len(facts.early.barred)} of {facts.asked}"),
            ("exact Hit@1", per_cent(total.hit_at(1))),
            ("exact Hit@3", per_cent(total.hit_at(3))),
            ("guesses that were right", f"{sum(each.right for each in scored)} of {guesses}"),
            *_spent(facts),
        ),
    )


def _early(facts: LogFacts) -> str:
    return "calls that may run early" + ("" if facts.early.known else ", at most")


def _what(facts: LogFacts) -> str:
    runs = f" of {counted(len(facts.runs), 'run')}" if facts.runs else ""
    return f"{len(facts.timed)} of {counted(len(facts.turns), 'turn')}{runs} with all their times"


def _spent(facts: LogFacts) -> tuple[tuple[str, str], ...]:
    report = facts.report
    tokens = [sum(pair) for pair in zip(*report.usage.values(), strict=True)] or [0, 0]
    return (
        (
            "tokens of speculative models",
            f"{tokens[0]:,} in, {tokens[1]:,} out" if facts.usage_known else "not reported",
        ),
        ("failures of speculation", f"{report.errors}"),
    )


def _over_time(facts: LogFacts) -> Part:
    figure = timeline(facts.turns)
    return Part(
        id="timeline-part",
        title="A run over time",
        sentences=(HOW_TO_READ,),
        figures=[] if figure is None else [figure],
    )


def log_parts(facts: LogFacts) -> list[Part]:
    """Return the sections about an event log."""
    gains = [
        figure
        for figure in (log_saved_by_latency(facts), seconds_by_tool(facts))
        if figure is not None
    ]
    return [
        _over_time(facts),
        Part(
            id="log-gains",
            title="What this log would save" if facts.shadow else "What this log saved",
            sentences=_modelled(facts),
            figures=gains,
            tables=[times(facts), run_table(facts.runs)],
        ),
        Part(
            id="scorecard",
            title="Scorecard by tool",
            tables=[guessing(facts), *([] if facts.shadow else [costs(facts)]), reasons(facts)],
        ),
        Part(
            id="log-shortfalls",
            title="Where it does not pay, in this log",
            points=[*shortfalls(facts), *_wrong(facts)],
        ),
    ]


def _modelled(facts: LogFacts) -> tuple[str, ...]:
    """Set the turn-by-turn model beside what was observed."""
    facts = facts.live
    found = facts.promise
    if found.estimate is None:
        return (f"The turn-by-turn model cannot be fitted: {found.missing}.",)
    bound = 1 - 1 / found.estimate.bound
    said = (
        f"The turn-by-turn model says {per_cent(found.saving)} of all turns' time "
        f"({found.interval}); had every call that may run early been guessed as its turn began, "
        f"{'' if facts.early.known else 'at most '}{per_cent(bound)}."
    )
    return (said,)


def _wrong(facts: LogFacts) -> list[str]:
    """Say which sources guessed wrong, and how often."""
    wrong = [
        f"{shown(name)} {source.guesses - source.right} of {source.guesses}"
        for name, source in sorted(facts.report.sources.items())[:_MOST_SOURCES]
        if source.right < source.guesses
    ]
    if not wrong:
        return []
    return [f"Wrong guesses, those that were only scored included: {', '.join(wrong)}."]
