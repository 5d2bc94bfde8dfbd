"""What an event log says in figures: the log's totals, each tool's scorecard, where it fails."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from langchain_spectool._core.events import Event
from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.report_page.log_turns import LoggedCall, LoggedTurn, turns_of
from langchain_spectool.bench.report_page.tables import (
    Cell,
    Table,
    counted,
    per_cent,
    ratio,
    seconds,
    shown,
)
from langchain_spectool.bench.scoring import percentile
from langchain_spectool.telemetry.report import Report, Tally

MOST_TOOLS = 40
"""Tools that get a row of their own: those with the most seconds, hidden or wasted."""
_STALE = frozenset({"stale", "changed", "expired"})
_INVALIDATED = frozenset({"other_epoch", "fenced", "invalidated"})
_UNAUTHORISED = frozenset({"external", "gate", "gated", "untrusted"})


@dataclass(slots=True, kw_only=True)
class ToolCard:
    """The figures of one tool, or of all."""

    name: str
    early_runs: int = 0
    wasted: int = 0
    wasted_s: float = 0.0
    stale: int = 0
    invalidated: int = 0
    unauthorised: int = 0
    calls: list[tuple[LoggedTurn, LoggedCall]] = field(
        default_factory=list[tuple[LoggedTurn, LoggedCall]]
    )

    @property
    def hits(self) -> int:
        """Calls that did not have to run."""
        return sum(call.served for _, call in self.calls)

    @property
    def hidden_s(self) -> float:
        """Seconds of its work that nobody waited for."""
        return sum(call.hidden_s for _, call in self.calls)

    @property
    def leads_s(self) -> list[float]:
        """Seconds that early runs were back before the model had answered; below 0, after."""
        return [
            turn.answered_s - call.early.ended_s
            for turn, call in self.calls
            if call.early is not None and turn.answered_s is not None
        ]

    def hit_at(self, most: int) -> float | None:
        """Share of calls that were among the `most` most confident guesses of their turn."""
        keyed = [(turn, call) for turn, call in self.calls if call.key_hash]
        within = sum(
            call.key_hash in [digest for _, digest in turn.ranked[:most]] for turn, call in keyed
        )
        return ratio(within, len(keyed))

    @property
    def named(self) -> float | None:
        """Share of calls of which some guess of the turn had the tool right."""
        return ratio(len(self._named()), len(self.calls))

    @property
    def arguments(self) -> float | None:
        """Share of those of which a guess had the arguments right too."""
        named = self._named()
        right = [call for turn, call in named if (call.tool, call.key_hash) in turn.ranked]
        return ratio(len(right), len(named))

    def _named(self) -> list[tuple[LoggedTurn, LoggedCall]]:
        return [
            (turn, call)
            for turn, call in self.calls
            if call.tool in [tool for tool, _ in turn.ranked]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Everything the page says about an event log."""

    turns: Sequence[LoggedTurn]
    report: Report
    tools: Sequence[ToolCard]
    """The tools with the most seconds first."""
    total: ToolCard

    @property
    def planned(self) -> list[LoggedTurn]:
        """Turns in which an early run could answer a call: those whose times are all known."""
        return [turn for turn in self.turns if turn.calling_s is not None]

    @property
    def asked(self) -> int:
        """Calls of all answers, those of turns without a plan included."""
        return sum(turn.asked for turn in self.turns)

    @property
    def saved(self) -> float | None:
        """Share of the planned turns' serial time that was saved."""
        return ratio(self.report.saved_s, self.report.serial_s)

    @property
    def means(self) -> Client | None:
        """Where this agent is on the curves; None without a planned turn or a tool's time."""
        writing = [turn.writing_s or 0.0 for turn in self.planned]
        calls = [call for turn in self.planned for call in turn.calls]
        took = [body_s for call in calls if (body_s := _body_s(call)) is not None]
        starts = [run.began_s - turn.began_s for turn in self.planned for run in turn.early]
        if not writing or not took or min(fmean(writing), fmean(took)) <= 0:
            return None
        return Client(
            generation_s=fmean(writing),
            tool_s=fmean(took),
            guess_s=max(0.0, percentile(starts, 0.5) or 0.0),
            alpha=sum(call.served for call in calls) / len(calls),
        )


def facts_of(events: Iterable[Event]) -> LogFacts:
    """Add up an event log."""
    events = [*events]
    tally, cards = Tally(), _Cards()
    turns = turns_of(events)
    for event in events:
        tally.on_event(event)
        cards.add(event)
    for turn in turns:
        for call in turn.calls:
            if call.verdict and call.verdict != "shadow_hit":
                cards.each(call.tool, lambda card, pair=(turn, call): card.calls.append(pair))
    tools = sorted(cards.tools.values(), key=lambda card: -(card.hidden_s + card.wasted_s))
    return LogFacts(turns=turns, report=tally.report(), tools=tools, total=cards.total)


class _Cards:
    def __init__(self) -> None:
        self.tools: dict[str, ToolCard] = {}
        self.total = ToolCard(name="all tools")

    def each(self, tool: str, change: Callable[[ToolCard], object]) -> None:
        for card in (self.tools.setdefault(tool, ToolCard(name=tool)), self.total):
            change(card)

    def add(self, event: Event) -> None:
        if event.kind not in ("guess", "claim", "discarded") or not event.tool:
            return
        self.each(event.tool, lambda card: _count(card, event))


def _count(card: ToolCard, event: Event) -> None:
    if event.kind == "guess":
        card.early_runs += event.verdict == "run"
        card.unauthorised += event.verdict in _UNAUTHORISED
    elif event.kind == "discarded":
        card.wasted += 1
        card.wasted_s += event.spent_s
        card.invalidated += event.verdict == "invalidated"
    else:
        card.stale += event.verdict in _STALE
        card.invalidated += event.verdict in _INVALIDATED


def _body_s(call: LoggedCall) -> float | None:
    if call.early is not None:
        return call.early.ended_s - call.early.began_s
    if call.began_s is None or call.ended_s is None:
        return None
    return call.ended_s - call.began_s


# --- tables


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
            "Calls of planned turns: a log does not name the calls of turns in which no early run "
            "fitted. Hit@k: the exact call was among the k most confident guesses of its turn. "
            "Arguments right: of the calls whose tool was guessed. Acceptance: early runs that "
            "were not wasted."
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
    planned = facts.planned
    calls = [call for turn in planned for call in turn.calls]
    parts = {
        "the model writes": [turn.writing_s or 0.0 for turn in planned],
        "tool wait after the answer": [turn.calling_s or 0.0 for turn in planned],
        "end to end, with speculation": [turn.over_s - turn.began_s for turn in planned],
        "end to end, had every call run after the answer": [
            turn.over_s - turn.began_s + turn.hidden_s for turn in planned
        ],
        "tools, run early": [run.ended_s - run.began_s for turn in planned for run in turn.early],
        "tools, run after the answer": [
            call.ended_s - call.began_s
            for call in calls
            if not call.served and call.began_s is not None and call.ended_s is not None
        ],
        "hidden by a claim": [call.hidden_s for call in calls if call.served],
    }
    return Table(
        caption="Where the time of planned turns went",
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


# --- where it does not pay


def shortfalls(facts: LogFacts) -> list[str]:
    """Say in sentences where speculation gains nothing, or loses."""
    return [*_of_turns(facts), *_of_tools(facts)]


def _of_turns(facts: LogFacts) -> Iterator[str]:
    turns, planned = facts.turns, facts.planned
    if silent := sum(turn.asked == 0 and turn.answered_s is not None for turn in turns):
        all_turns = counted(len(turns), "turn")
        yield f"{silent} of {all_turns} called no tool: nothing can be hidden there."
    if unplanned := sum(turn.asked > 0 and turn.calling_s is None for turn in turns):
        yield (
            f"In {counted(unplanned, 'turn')} with calls no early run fitted: their calls ran as "
            "ever, and their tool time is not in the log."
        )
    serial_s = facts.report.serial_s
    tools_s = sum((turn.calling_s or 0.0) + turn.hidden_s for turn in planned)
    if share := ratio(tools_s, serial_s):
        yield (
            f"Tools are {per_cent(share)} of the planned turns' serial time. One guess a turn "
            "cannot save more than that, however good it is."
        )
    if late := sum(lead < 0 for lead in facts.total.leads_s):
        yield (
            f"{late} of {facts.total.hits} answered calls came before their early run was back "
            f"and waited {seconds(facts.report.waited_s)} in all."
        )


def _of_tools(facts: LogFacts) -> Iterator[str]:
    for card in facts.tools[:MOST_TOOLS]:
        name = shown(card.name)
        if card.early_runs and not card.hits:
            yield f"{name}: {counted(card.early_runs, 'early run')} answered no call."
        elif card.wasted_s > card.hidden_s > 0:
            yield (
                f"{name}: {seconds(card.wasted_s)} of tool work wasted for "
                f"{seconds(card.hidden_s)} hidden."
            )
