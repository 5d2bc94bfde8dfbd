"""What an event log says in figures: the log's totals, and each tool's scorecard."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from langchain_spectool._core.events import Event
from langchain_spectool.bench.model.early_calls import UNDECLARED, EarlyCalls, early_calls
from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.model.modes import split, turns_in
from langchain_spectool.bench.report_page.log_runs import LoggedRun, runs_of
from langchain_spectool.bench.report_page.log_turns import LoggedCall, LoggedTurn, turns_of
from langchain_spectool.bench.report_page.promise import Promise, promise_of
from langchain_spectool.bench.report_page.tables import ratio
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
    barred_turns: set[int] = field(default_factory=set[int])
    """Turns in which a guess was refused because nobody had declared the tool."""
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
        within = sum(
            call.key_hash in [digest for _, digest in turn.ranked[:most]]
            for turn, call in self.calls
        )
        return ratio(within, len(self.calls))

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
    runs: Sequence[LoggedRun]
    report: Report
    promise: Promise
    tools: Sequence[ToolCard]
    """The tools with the most seconds first, then those with the most calls."""
    total: ToolCard
    early: EarlyCalls
    """Which calls may run early."""
    usage_known: bool
    """Whether a speculative model reported its tokens, or none was asked."""
    shadow: bool
    """Whether all turns were in shadow mode: guesses were only scored, and nothing ran early."""
    live_part: "LogFacts | None" = None
    """Of a log that holds both: the facts of its turns in which speculation was on."""
    shadow_part: "LogFacts | None" = None
    """The same of its turns in shadow mode."""

    @property
    def live(self) -> "LogFacts":
        """What figures of time saved are of: all turns, or those in which speculation was on."""
        return self.live_part or self

    @property
    def timed(self) -> list[LoggedTurn]:
        """Turns whose times are all known, closing ones without a call included."""
        return [turn for turn in self.turns if turn.calling_s is not None]

    @property
    def calling(self) -> list[LoggedTurn]:
        """Those of them that call something."""
        return [turn for turn in self.timed if turn.asked]

    @property
    def observed_s(self) -> float:
        """Seconds of the timed turns, as they were."""
        return sum(turn.over_s - turn.began_s for turn in self.timed)

    @property
    def serial_s(self) -> float:
        """The same, had every call run after the answer: the serial counterfactual."""
        return self.observed_s + sum(turn.hidden_s for turn in self.timed)

    @property
    def asked(self) -> int:
        """Calls of all answers."""
        return sum(turn.asked for turn in self.turns)

    @property
    def saved(self) -> float | None:
        """Share of the timed turns' serial time that was saved."""
        return ratio(self.serial_s - self.observed_s, self.serial_s)

    @property
    def saved_calling(self) -> float | None:
        """The same of the turns that call something."""
        spans = [(turn.hidden_s, turn.over_s - turn.began_s) for turn in self.calling]
        hidden_s = sum(hidden for hidden, _ in spans)
        return ratio(hidden_s, hidden_s + sum(span for _, span in spans))

    @property
    def means(self) -> Client | None:
        """Where this agent is on the curves; None without an early run, or a tool's time."""
        return self.promise.means if any(turn.early for turn in self.calling) else None


def facts_of(events: Iterable[Event]) -> LogFacts:
    """Add up an event log; of one that holds turns of both modes, each of them too."""
    events = [*events]
    live, shadow = split(events)
    if not turns_in(live) or not turns_in(shadow):
        return _facts(events, shadow=bool(turns_in(shadow)))
    return replace(
        _facts(events, shadow=False),
        live_part=_facts(live, shadow=False),
        shadow_part=_facts(shadow, shadow=True),
    )


def _facts(events: Sequence[Event], *, shadow: bool) -> LogFacts:
    usages = [event.usage for event in events if event.kind == "usage"]
    tally, cards = Tally(), _Cards()
    turns = turns_of(events)
    for event in events:
        tally.on_event(event)
        cards.add(event)
    for turn in turns:
        for call in turn.calls:
            cards.each(call.tool, lambda card, pair=(turn, call): card.calls.append(pair))
    tools = sorted(
        cards.tools.values(), key=lambda card: (-(card.hidden_s + card.wasted_s), -len(card.calls))
    )
    return LogFacts(
        turns=turns,
        runs=runs_of(events, turns),
        report=tally.report(),
        promise=promise_of(events),
        tools=tools,
        total=cards.total,
        early=early_calls(events),
        usage_known=not usages or any(usage is not None for usage in usages),
        shadow=shadow,
    )


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
        if event.verdict == UNDECLARED:
            card.barred_turns.add(event.turn)
    elif event.kind == "discarded":
        card.wasted += 1
        card.wasted_s += event.spent_s
        card.invalidated += event.verdict == "invalidated"
    else:
        card.stale += event.verdict in _STALE
        card.invalidated += event.verdict in _INVALIDATED
