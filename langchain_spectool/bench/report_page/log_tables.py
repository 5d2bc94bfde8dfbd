"""Tables of an event log: how calls were guessed, what it cost, where the time went."""

from collections.abc import Callable, Iterator
from typing import Final

from langchain_spectool.bench.model.early_calls import NO_TOOL
from langchain_spectool.bench.report_page.scorecard import MOST_TOOLS, LogFacts, ToolCard
from langchain_spectool.bench.report_page.tables import Cell, Table, per_cent, ratio, seconds
from langchain_spectool.bench.scoring import percentile

_OF_EARLY_RUNS: Final = (
    "turn, had every call run after the answer",
    "tools, run early",
    "hidden by a claim",
)
_BARRED: Final = {
    "undeclared": "not declared: cannot run early",
    "not_early": "declared `early=False`",
    "gated": "needs an approval",
    "external": "third parties see its arguments",
    "structure": "cannot run early as it is built",
}


def guessing(facts: LogFacts) -> Table:
    """Say how well each tool's calls were guessed; in shadow mode no more than that."""
    columns: dict[str, Callable[[ToolCard], Cell]] = {
        "tool": lambda card: card.name,
        "calls": lambda card: len(card.calls),
        "answered early": lambda card: card.hits,
        "exact Hit@1": lambda card: per_cent(card.hit_at(1)),
        "exact Hit@3": lambda card: per_cent(card.hit_at(3)),
        "tool right": lambda card: per_cent(card.named),
        "arguments right": lambda card: per_cent(card.arguments),
        "early runs": lambda card: card.early_runs,
        "acceptance": lambda card: per_cent(
            ratio(max(0, card.early_runs - card.wasted), card.early_runs)
        ),
    }
    if facts.shadow:
        for name in ("answered early", "early runs", "acceptance"):
            del columns[name]
    if facts.early.tools:
        columns["may run early"] = lambda card: _may(facts, card)
    accepted = "" if facts.shadow else " Acceptance: early runs that were not wasted."
    return Table(
        caption="How well calls were guessed, by tool",
        columns=[*columns],
        rows=[[cell(card) for cell in columns.values()] for card in _cards(facts)],
        note=(
            "All committed calls. Hit@k: the exact call was among the k most confident guesses of "
            "its turn, whether they ran or were only scored. Tool right: some guess of the turn "
            f"named it. Arguments right: of those calls.{accepted}"
        ),
    )


def _may(facts: LogFacts, card: ToolCard) -> Cell:
    if card is facts.total:
        return None
    if card.name == NO_TOOL:
        return "no such tool"
    reason = facts.early.tools.get(card.name)
    return "yes" if reason is None else _BARRED.get(reason, reason)


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
    if facts.shadow:
        for name in _OF_EARLY_RUNS:
            del parts[name]
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
        note="The model and turns are counted by turn, tools by run; parallel ones are added up.",
    )


def reasons(facts: LogFacts) -> Table:
    """Count why guesses did not run, calls were not answered and early runs were dropped."""
    report = facts.report
    groups = (
        ("guess", report.verdicts),
        ("call", report.claims),
        ("early run dropped", report.discards),
    )
    others = " and calls" if facts.shadow else ", calls and early runs"
    return Table(
        caption=f"What became of guesses{others}",
        columns=("of a", "verdict", "count"),
        rows=[
            [group, verdict or "none", count]
            for group, counts in groups
            for verdict, count in sorted(counts.items(), key=lambda item: -item[1])[:MOST_TOOLS]
        ],
    )
