"""Where speculation gains nothing, or loses, in an event log."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from langchain_spectool.bench.model.early_calls import NO_TOOL, UNDECLARED
from langchain_spectool.bench.report_page.log_turns import LoggedTurn
from langchain_spectool.bench.report_page.scorecard import MOST_TOOLS, LogFacts
from langchain_spectool.bench.report_page.tables import counted, per_cent, ratio, seconds, shown


def shortfalls(facts: LogFacts) -> list[str]:
    """Say in sentences where speculation gains nothing, or loses."""
    return [*_of_turns(facts), *_of_barred(facts), *_of_tools(facts)]


def _of_turns(facts: LogFacts) -> Iterator[str]:
    turns = facts.turns
    if silent := sum(turn.asked == 0 and turn.answered_s is not None for turn in turns):
        all_turns = counted(len(turns), "turn")
        yield f"{silent} of {all_turns} called no tool: nothing can be hidden there."
    if unplanned := sum(
        turn.asked > 0 and not any(call.guessed for call in turn.calls) for turn in turns
    ):
        yield (
            f"In {counted(unplanned, 'turn')} with calls no guess fitted: their calls ran as ever."
        )
    if untimed := len(turns) - len(facts.timed):
        yield (
            f"Of {counted(untimed, 'turn')} the log does not have all times: the model failed, or "
            "calls ended elsewhere or not at all. They count in no time."
        )
    if inside := _inside(facts.timed):
        yield (
            f"{counted(inside, 'turn')} ran inside another turn of their run, as those of nested "
            "agents do: that time counts twice, and the share saved is lower than that of the run."
        )
    tools_s = sum((turn.calling_s or 0.0) + turn.hidden_s for turn in facts.timed)
    if share := ratio(tools_s, facts.serial_s):
        yield (
            f"Tools are {per_cent(share)} of the turns' serial time. One guess a turn cannot save "
            "more than that, however good it is."
        )
    if late := sum(lead < 0 for lead in facts.total.leads_s):
        yield (
            f"{late} of {facts.total.hits} answered calls came before their early run was back "
            f"and waited {seconds(facts.report.waited_s)} in all."
        )


def _inside(turns: Sequence[LoggedTurn]) -> int:
    """Count the turns that another one of their run spans."""
    known = [turn for turn in turns if turn.run]
    known.sort(key=lambda turn: (turn.run, turn.began_s, -turn.over_s))
    inside = 0
    for _, run in groupby(known, key=lambda turn: turn.run):
        over_s = float("-inf")
        for turn in run:
            inside += turn.over_s <= over_s and turn.over_s > turn.began_s
            over_s = max(over_s, turn.over_s)
    return inside


def _of_barred(facts: LogFacts) -> Iterator[str]:
    """Name the tools that are not declared, and how often that was in the way."""
    for card in facts.tools[:MOST_TOOLS]:
        declared = facts.early.tools.get(card.name) != UNDECLARED
        if declared or card.name == NO_TOOL or not card.calls:
            continue
        called = {turn.number for turn, _ in card.calls}
        named = len(called & card.barred_turns)
        refused = (
            f" In {counted(named, 'turn')} that called it, a guess had named it and was refused."
            if named
            else ""
        )
        yield (
            f"{shown(card.name)}: not declared, so that {counted(len(card.calls), 'call')} could "
            f"not run early.{refused} If it only reads, declare it with @speculatable; if it "
            "changes anything, leave it as it is."
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
