"""The figures of a log: totals, each tool's, and where speculation gained nothing."""

from dataclasses import replace
from typing import Any

import pytest
from page_data import closing, shadow_turn, turn

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page.log_shortfalls import shortfalls
from langchain_spectool.bench.report_page.log_tables import costs, guessing, reasons, times
from langchain_spectool.bench.report_page.scorecard import MOST_TOOLS, LogFacts, facts_of


@pytest.fixture
def facts() -> LogFacts:
    """Return the facts of two hits and a miss of `look`, a miss of `grep`, and a closing turn."""
    misses = [*turn(3, hit=False), *turn(4, "grep", hit=False)]
    return facts_of([*turn(1), *turn(2), *misses, *closing(5)])


def test_totals(facts: LogFacts) -> None:
    """Observed 2 x 2.25 + 2 x 3 s and 1 s for the last word, where each hit hid 0.75 s."""
    assert facts.report.observed_s == pytest.approx(10.5)
    assert facts.observed_s == pytest.approx(11.5)
    assert facts.saved == pytest.approx(1.5 / 13)
    assert facts.saved_calling == pytest.approx(1.5 / 12)
    assert facts.asked == 4
    assert [card.name for card in facts.tools] == ["look", "grep"]


def test_the_means(facts: LogFacts) -> None:
    """Where the agent is on the curves: G 1 s, T 2 s, g 0.25 s, half of the calls hit."""
    means = facts.means
    assert means is not None
    assert means.generation_s == pytest.approx(1.0)
    assert means.tool_s == pytest.approx(2.0)
    assert means.guess_s == pytest.approx(0.25)
    assert means.alpha == pytest.approx(0.5)


def test_no_means_without_a_plan() -> None:
    """A log in which nothing ran early is on no curve, and saved nothing."""
    facts = facts_of(closing(1))
    assert facts.means is None
    assert facts.saved == 0


def test_guessing(facts: LogFacts) -> None:
    """Calls, hits, exact hits within k guesses, right tools, right arguments, acceptance."""
    rows = {row[0]: list(row[1:]) for row in guessing(facts).rows}
    share = "66.7\u00a0%"
    assert rows["look"] == [3, 2, share, share, "100.0\u00a0%", share, 3, share]
    assert rows["grep"][-1] == "0.0\u00a0%"
    assert rows["all tools"][:2] == [4, 2]


def test_hit_at_k() -> None:
    """A call that was the second guess is a hit at 3 and not at 1."""
    told = turn(1)
    better = Event(kind="scored", at_s=101, turn=1, tool="x", key_hash="z", confidence=0.9)
    card = facts_of([*told, better]).total
    assert (card.hit_at(1), card.hit_at(2), card.hit_at(3)) == (0.0, 1.0, 1.0)


def test_costs(facts: LogFacts) -> None:
    """Hidden and wasted seconds, and how early the early runs were back."""
    rows = {row[0]: list(row[1:]) for row in costs(facts).rows}
    assert rows["look"] == [1.5, 1, 0.75, "-1.25\u00a0s", "0.0\u00a0%", 0, 0, 0]
    assert rows["grep"][:4] == [0.0, 1, 0.75, "\u2013"]


@pytest.mark.parametrize(
    ("kind", "verdict", "column"),
    [
        ("claim", "stale", -3),
        ("claim", "changed", -3),
        ("guess", "external", -2),
        ("guess", "gated", -2),
        ("claim", "other_epoch", -1),
        ("discarded", "invalidated", -1),
    ],
)
def test_refusals(kind: str, verdict: str, column: int) -> None:
    """Each refusal counts in its column, and in that alone."""
    event = Event(kind="guess", at_s=1.0, turn=1, verdict=verdict, tool="look", position=0)
    (row, _) = costs(facts_of([replace(event, kind=kind)])).rows
    counts = list(row[-3:])
    assert counts[column] == 1
    assert sum(map(int, counts)) == 1


def test_times(facts: LogFacts) -> None:
    """The parts of a turn, in count, median and sum."""
    rows = {row[0]: list(row[1:]) for row in times(facts).rows}
    second = "\u00a0s"
    assert rows["the model writes"] == [5, f"1.00{second}", f"1.00{second}", f"5.00{second}"]
    assert rows["turn, end to end"][-1] == f"11.5{second}"
    assert rows["turn, had every call run after the answer"][-1] == f"13.0{second}"
    assert rows["tools, run after the answer"][0] == 2
    assert rows["hidden by a claim"][-1] == f"1.50{second}"


def test_reasons(facts: LogFacts) -> None:
    """Verdicts are counted by what they were said of."""
    assert ["call", "joined", 2] in [[*row] for row in reasons(facts).rows]
    assert ["early run dropped", "mismatch", 2] in [[*row] for row in reasons(facts).rows]


def test_shortfalls(facts: LogFacts) -> None:
    """Turns without calls, the share of tools, late runs, and tools that only waste are named."""
    said = "\n".join(shortfalls(facts)).replace("\u00a0", " ")
    assert "1 of 5 turns called no tool" in said
    assert "Tools are 61.5 % of the turns' serial time" in said
    assert "2 of 2 answered calls came before" in said
    assert "grep: 1 early run answered no call." in said
    assert "look:" not in said


def test_a_tool_that_wastes_more_than_it_hides() -> None:
    """It is named with both sums."""
    told = [*turn(1), *turn(2, hit=False), *turn(3, hit=False)]
    assert any(said.startswith("look: 1.50") for said in shortfalls(facts_of(told)))


def test_turns_in_which_nothing_fitted() -> None:
    """A turn with calls that nobody guessed is told, and that its times are not all there."""
    committed = Event(kind="turn_committed", at_s=2.0, turn=1, started_s=1.0, position=2)
    said = "\n".join(shortfalls(facts_of([committed])))
    assert "no guess fitted" in said
    assert "the log does not have all times" in said


def test_shadow_hits_are_no_hits() -> None:
    """In shadow mode every call runs: no card counts one as answered, but as guessed."""
    facts = facts_of(shadow_turn(1))
    assert facts.shadow
    assert facts.total.hits == 0
    assert (facts.total.hit_at(1), facts.total.arguments) == (1.0, 1.0)
    assert facts.saved == 0


def test_a_shadow_log_promises() -> None:
    """G 1 s, T 2 s, g 0.25 s, hit in one of two turns of equal length: 0.75 of 6 s."""
    facts = facts_of([*shadow_turn(1), *shadow_turn(2, hit=False)])
    assert facts.promise.saving == pytest.approx(0.75 / 6)
    assert facts.promise.interval.endswith("from 2 resampled turns")


def with_mail(told: list[Event], barred: tuple[str, ...] | None) -> list[Event]:
    """Add a turn that calls the undeclared `mail`, which a guess had named."""
    last: dict[str, Any] = {"turn": 9, "tool": "mail"}
    return [
        *told,
        Event(kind="guess", at_s=900.5, verdict="undeclared", source="draft", **last),
        Event(
            kind="turn_committed", at_s=901, turn=9, started_s=900, position=1, tools=("mail",),
            barred=barred, arm="shadow" if told[0].verdict == "shadow" else "",
        ),
        Event(kind="call_ended", at_s=902, position=0, started_s=901, spent_s=1.0, **last),
    ]  # fmt: skip


@pytest.mark.parametrize("barred", [("undeclared",), None])
@pytest.mark.parametrize("told", [turn(1), shadow_turn(1)], ids=["on", "shadow"])
def test_undeclared_tools_are_marked(told: list[Event], barred: tuple[str, ...] | None) -> None:
    """In their row, and where it does not pay, with what to do; they are in no ceiling."""
    facts = facts_of(with_mail(told, barred))
    table = guessing(facts)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["mail"]["may run early"] == "not declared: cannot run early"
    assert rows["look"]["may run early"] == "yes"
    said = "\n".join(shortfalls(facts)).replace("\u00a0", " ")
    assert "mail: not declared, so that 1 call could not run early. In 1 turn that called" in said
    assert "declare it with @speculatable" in said
    assert facts.promise.estimate is not None
    assert facts.promise.estimate.least_s == pytest.approx(2 + 1 + 1)


def test_a_tool_that_nobody_has_is_not_to_be_declared() -> None:
    """A name that a model made up is called `other`."""
    committed = Event(
        kind="turn_committed", at_s=2.0, turn=1, started_s=1.0, position=1, tools=("other",),
        barred=("undeclared",),
    )  # fmt: skip
    ended = Event(kind="call_ended", at_s=3.0, turn=1, position=0, tool="other", started_s=2.0)
    facts = facts_of([committed, ended])
    assert "not declared" not in "\n".join(shortfalls(facts))
    assert guessing(facts).rows[0][-1] == "no such tool"


def test_the_means_are_those_of_right_guesses() -> None:
    """A wrong guess that started late does not move g."""
    late = [
        replace(event, started_s=200.9) if event.kind == "discarded" else event
        for event in turn(2, hit=False)
    ]
    means = facts_of([*turn(1), *late]).means
    assert means is not None
    assert means.guess_s == pytest.approx(0.25)


def test_a_log_of_both_modes_has_parts() -> None:
    """What was saved is of the live turns, what is promised of the others."""
    facts = facts_of([*shadow_turn(1), *turn(2), *turn(3)])
    assert not facts.shadow
    assert facts.shadow_part is not None
    assert facts.shadow_part.shadow
    assert facts.live.saved == pytest.approx(0.25)
    assert (len(facts.live.turns), len(facts.shadow_part.turns)) == (2, 1)
    assert facts_of(turn(1)).live.live_part is None


def test_calls_that_nobody_planned_for_count() -> None:
    """They are in the tool's calls; one whose right guess was held back is an exact hit."""
    held = Event(
        kind="scored", at_s=2.0, turn=1, verdict="right", tool="look", source="draft",
        key_hash="a", confidence=0.5,
    )  # fmt: skip
    told = [
        held,
        replace(held, source="patterns"),
        Event(
            kind="turn_committed", at_s=2.0, turn=1, started_s=1.0, position=2,
            tools=("look", "look"),
        ),
        *(Event(kind="call_ended", at_s=3.0, turn=1, tool="look", position=n, started_s=2.0)
          for n in (0, 1)),
    ]  # fmt: skip
    facts = facts_of(told)
    assert (len(facts.total.calls), facts.total.hit_at(1)) == (2, 0.5)
    assert facts.observed_s == 2.0


def test_many_tools_end_in_a_total() -> None:
    """A log of a thousand tools has a table of bounded length."""
    told = [event for number in range(1, 101) for event in turn(number, f"tool {number}")]
    assert len(guessing(facts_of(told)).rows) == MOST_TOOLS + 1


def test_turns_of_nested_agents_are_told() -> None:
    """A turn inside another one of its run counts twice, and the page says so."""
    spans = {1: (0.0, 1.0, "1"), 2: (1.2, 2.0, "1"), 3: (5.0, 6.0, "1"), 4: (1.2, 2.0, "2")}
    told = [
        Event(
            kind="turn_committed",
            at_s=answered_s,
            started_s=began_s,
            turn=number,
            run=run,
            position=1 if number == 1 else 0,
            tools=("ask",) if number == 1 else (),
        )
        for number, (began_s, answered_s, run) in spans.items()
    ]
    ended = Event(kind="call_ended", at_s=4.0, turn=1, position=0, tool="ask", started_s=1.0)
    said = "\n".join(shortfalls(facts_of([*told, ended]))).replace("\u00a0", " ")
    assert "1 turn ran inside another turn of their run" in said
    assert "inside another turn" not in "\n".join(shortfalls(facts_of(told)))
