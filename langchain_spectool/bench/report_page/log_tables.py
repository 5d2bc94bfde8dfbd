"""Tables of an event log: how calls were guessed, what it cost, where the time went."""

from collections.abc import Iterator

from langchain_spectool.bench.report_page.scorecard import MOST_TOOLS, LogFacts, ToolCard
from langchain_spectool.bench.report_page.tables import Cell, Table, per_cent, ratio, seconds
from langchain_spectool.bench.scoring import percentile


def guessing(facts: LogFacts) -> Table:
    """Say how well each tool's calls were guessed."""
    return Table(
        caption="How well calls were guessed, by tool",
        columns=(
            "tool",
            "calls",
            "answered early",
            "exact Hit@1",
            "exact Hit@3",
            "tool right",
            "arguments right",
            "early runs",
            "acceptance",
        ),
        rows=[_guessed(card) for card in _cards(facts)],
        note=(
            "All committed calls. Hit@k: the exact call was among the k most confident guesses of "
            "its turn, whether they ran or were only scored. Tool right: some guess of the turn "
            "named it. Arguments right: of those calls. Acceptance: early runs that were not "
            "wasted."
        ),
    )


def _guessed(card: ToolCard) -> list[Cell]:
    return [
        card.name,
        len(card.calls),
        card.hits,
        per_cent(card.hit_at(1)),
        per_cent(card.hit_at(3)),
        per_cent(card.named),
        per_cent(card.arguments),
        card.early_runs,
        per_cent(ratio(max(0, card.early_runs - card.wasted), card.early_runs)),
    ]


def costs(facts: LogFacts) -> Table:
    """Say what each tool's early runs saved and wasted, and what was refused."""
    return Table(
        caption="What early runs saved and wasted, by tool",
        columns=(
            "tool",
            "hidden s",
            "wasted calls",
            "wasted s",
            "lead, median",
            "back in time",
            "stale",
            "not authorised",
            "invalidated",
        ),
        rows=[_cost(card) for card in _cards(facts)],
        note=(
            "Lead: how long before the model's answer the early run was back; below 0, after it. "
            "The last three count refusals: a result too old or changed, a guess that needs an "
            "approval or may not leave, a result from before a write."
        ),
    )


def _cost(card: ToolCard) -> list[Cell]:
    leads = card.leads_s
    return [
        card.name,
        card.hidden_s,
        card.wasted,
        card.wasted_s,
        seconds(percentile(leads, 0.5)),
        per_cent(ratio(sum(lead >= 0 for lead in leads), len(leads))),
        card.stale,
        card.unauthorised,
        card.invalidated,
    ]


def _cards(facts: LogFacts) -> Iterator[ToolCard]:
    yield from facts.tools[:MOST_TOOLS]
    yield facts.total


def times(facts: LogFacts) -> Table:
    """Say where the time of the turns went."""
    timed = facts.timed
    calls = [call for turn in timed for call in turn.calls]
    parts = {
        "the model writes": [turn.writing_s or 0.0 for turn in timed],
        "tool wait after the answer": [turn.calling_s or 0.0 for turn in facts.calling],
        "turn, end to end": [turn.over_s - turn.began_s for turn in timed],
        "turn, had every call run after the answer": [
            turn.over_s - turn.began_s + turn.hidden_s for turn in timed
        ],
        "tools, run early": [run.ended_s - run.began_s for turn in timed for run in turn.early],
        "tools, run after the answer": [
            call.ended_s - call.began_s
            for call in calls
            if not call.served and call.began_s is not None and call.ended_s is not None
        ],
        "hidden by a claim": [call.hidden_s for call in calls if call.served],
    }
    return Table(
        caption="Where the time went",
        columns=("part", "count", "p50", "p95", "sum"),
        rows=[
            [
                name,
                len(values),
                seconds(percentile(values, 0.5)),
                seconds(percentile(values, 0.95)),
                seconds(sum(values)),
            ]
            for name, values in parts.items()
        ],
        note="The first four count turns, the others tool runs; parallel ones are added up.",
    )


def reasons(facts: LogFacts) -> Table:
    """Count why guesses did not run, calls were not answered and early runs were dropped."""
    report = facts.report
    groups = (
        ("guess", report.verdicts),
        ("call", report.claims),
        ("early run dropped", report.discards),
    )
    return Table(
        caption="What became of guesses, calls and early runs",
        columns=("of a", "verdict", "count"),
        rows=[
            [group, verdict or "none", count]
            for group, counts in groups
            for verdict, count in sorted(counts.items(), key=lambda item: -item[1])[:MOST_TOOLS]
        ],
    )
