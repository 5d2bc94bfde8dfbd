"""What the page says about an event log."""

from langchain_spectool.bench.report_page.curves import log_saved_by_latency, seconds_by_tool
from langchain_spectool.bench.report_page.parts import Headline, Part
from langchain_spectool.bench.report_page.scorecard import (
    LogFacts,
    costs,
    guessing,
    reasons,
    shortfalls,
    times,
)
from langchain_spectool.bench.report_page.tables import per_cent, ratio, seconds, shown
from langchain_spectool.bench.report_page.timeline_figure import timeline
from langchain_spectool.bench.scoring import percentile

_NOT_HERE = (
    "A log of events does not say what a success cost, nor how runs that were held out fared: "
    "Speculation.report().comparison does, with an interval."
)

_HOW_TO_READ = (
    "Drag over the bars to zoom in, double-click to see all, rest on a bar for what it was. Turns "
    "of agents that ran side by side are drawn one after another."
)
_MOST_SOURCES = 20


def log_headline(facts: LogFacts) -> Headline:
    """Say what was saved, and in what."""
    report = facts.report
    total = facts.total
    tokens = [sum(pair) for pair in zip(*report.usage.values(), strict=True)] or [0, 0]
    return Headline(
        about="This event log",
        value=f"{per_cent(facts.saved)} of the time saved" if facts.saved else "no time saved",
        setup=(
            f"In the {len(facts.planned)} of {len(facts.turns)} turns in which an early run could "
            f"answer a call: {seconds(report.observed_s)} instead of {seconds(report.serial_s)}, "
            "had every call run after the model's answer. That is a counterfactual, computed "
            "from the same turns; measure with speculation off to be sure."
        ),
        tiles=(
            ("calls answered early", f"{report.hits} of {facts.asked}"),
            ("share of all calls", per_cent(ratio(report.hits, facts.asked))),
            ("early runs wasted", f"{report.wasted} of {report.guesses}"),
            ("tool time wasted", seconds(report.wasted_s)),
            ("tool time hidden", seconds(report.hidden_s)),
            ("lead, median", seconds(percentile(total.leads_s, 0.5))),
            ("tokens of speculative models", f"{tokens[0]:,} in, {tokens[1]:,} out"),
            ("failures of speculation", f"{report.errors}"),
        ),
    )


def log_parts(facts: LogFacts) -> list[Part]:
    """Return the sections about an event log."""
    figures = [figure for figure in (timeline(facts.turns),) if figure is not None]
    gains = [
        figure
        for figure in (log_saved_by_latency(facts), seconds_by_tool(facts))
        if figure is not None
    ]
    missing = "No planned turn is in the log, so there is nothing to compare with the model."
    return [
        Part(
            id="timeline-part",
            title="A run over time",
            sentences=(_HOW_TO_READ,),
            figures=figures,
        ),
        Part(
            id="log-gains",
            title="What this log saved",
            sentences=() if gains else (missing,),
            figures=gains,
            tables=[times(facts)],
        ),
        Part(
            id="scorecard",
            title="Scorecard by tool",
            sentences=(_NOT_HERE,),
            tables=[guessing(facts), costs(facts), reasons(facts)],
        ),
        Part(
            id="log-shortfalls",
            title="Where it does not pay, in this log",
            points=[*shortfalls(facts), *_wrong(facts)],
        ),
    ]


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
