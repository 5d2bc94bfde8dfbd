"""What a log says of its turns: shadow mode or not, and which calls may run early."""

from typing import Any

import pytest

from langchain_spectool import Event
from langchain_spectool.bench.model.early_calls import early_calls
from langchain_spectool.bench.model.fit import as_if_on, fit_events
from langchain_spectool.bench.model.means import at_the_means, early_share, hit_share
from langchain_spectool.bench.model.modes import split, turns_in


def committed(number: int, *tools: str, **more: Any) -> Event:
    """Make the answer of a turn of 1 s that calls `tools`."""
    return Event(
        kind="turn_committed",
        at_s=number + 1.0,
        started_s=float(number),
        turn=number,
        position=len(tools),
        tools=tools,
        **more,
    )


def guess(number: int, verdict: str, **more: Any) -> Event:
    """Make a guess a quarter into a turn."""
    fields: dict[str, Any] = {"at_s": number + 0.25, "tool": "look", "source": "draft", **more}
    return Event(kind="guess", turn=number, verdict=verdict, **fields)


class TestEarlyCalls:
    """Shares and ceilings are of the calls that a guess could answer."""

    def test_the_answer_says_it(self) -> None:
        """Undeclared, declared not to, behind a write."""
        found = early_calls(
            [
                committed(
                    1,
                    *("look", "clock", "pay", "look"),
                    barred=("", "not_early", "undeclared", "fenced"),
                ),
                committed(2, "look", barred=("",)),
            ]
        )
        assert found.barred == {(1, 1): "not_early", (1, 2): "undeclared", (1, 3): "fenced"}
        assert found.tools == {"clock": "not_early", "pay": "undeclared"}
        assert found.known

    def test_an_early_version_does_not_say_it(self) -> None:
        """There guesses tell of their tools; of a tool that nobody guessed nothing is known."""
        told = [guess(1, "shadow"), guess(1, "undeclared", tool="pay")]
        found = early_calls([*told, committed(1, "look", "pay", "look")])
        assert found.barred == {(1, 1): "undeclared", (1, 2): "fenced"}
        assert found.known
        assert not early_calls([*told, committed(1, "mail")]).known

    def test_needed_approvals_are_told_by_guesses(self) -> None:
        """A declared tool that needs an approval has a contract, and never runs early."""
        told = [guess(1, "gated", tool="pay"), committed(1, "pay", barred=("",))]
        assert early_calls(told).tools == {"pay": "gated"}

    @pytest.mark.parametrize("barred", [(), ("", "undeclared", "x"), ("nonsense",)])
    def test_odd_lines_do_no_harm(self, barred: tuple[str, ...]) -> None:
        """What is too short, too long or unheard of is read as far as it goes."""
        found = early_calls([committed(1, "look", barred=barred)])
        assert set(found.barred) <= {(1, 0)}


class TestModes:
    """`EventLog` appends: one file may hold both."""

    def test_each_turn_says_it(self) -> None:
        """Also the one in which nobody guessed."""
        live, shadow = split(
            [committed(1, barred=(), arm="shadow", run="1"), committed(2, barred=(), run="2")]
        )
        assert ([e.turn for e in live], [e.turn for e in shadow]) == ([2], [1])

    def test_guesses_of_an_early_version_say_it(self) -> None:
        """A turn without one is like its run, or like the turn before; ends go with their run."""
        told = [
            guess(1, "shadow"),
            committed(1, "look", run="1"),
            committed(2, run="1"),
            Event(kind="run_ended", at_s=4.0, run="1"),
            guess(5, "not_worth"),
            committed(5, "look", run="2"),
            committed(6),
            Event(kind="run_ended", at_s=9.0, run="2"),
        ]
        live, shadow = split(told)
        assert live == told[4:]
        assert shadow == told[:4]
        assert (turns_in(live), turns_in(shadow)) == (2, 2)

    def test_nothing_is_known(self) -> None:
        """A log without a guess is taken to be live."""
        assert split([committed(1)])[1] == []


def shadow_log(*weighed: str) -> list[Event]:
    """Make a shadow turn of 1 s, whose call of 2 s was guessed once for each of `weighed`."""
    key: dict[str, Any] = {"tool": "look", "key_hash": "k"}
    guesses = [
        guess(
            1,
            "duplicate" if place else "shadow",
            at_s=1.1 + 0.2 * place,
            source=f"source {place}",
            key_hash="k",
            weighed=each,
        )
        for place, each in enumerate(weighed)
    ]
    return [
        *guesses,
        Event(kind="scored", at_s=2.0, turn=1, verdict="right", source="source 0", **key),
        committed(1, "look", "pay", arm="shadow", barred=("", "undeclared")),
        Event(kind="claim", at_s=2.0, turn=1, position=0, verdict="shadow_hit", **key),
        Event(kind="call_ended", at_s=4.0, turn=1, position=0, tool="look", spent_s=2.0),
        Event(kind="call_ended", at_s=5.0, turn=1, position=1, tool="pay", spent_s=1.0),
    ]


def test_undeclared_calls_are_in_no_share() -> None:
    """One of two calls may run early, and that one was hit."""
    turns = fit_events(shadow_log("run")).turns
    assert [call.may_run_early for call in turns[0].calls] == [True, False]
    assert (early_share(turns), hit_share(turns)) == (0.5, 1.0)
    means = at_the_means(turns)
    assert means is not None
    assert (means.alpha, means.guess_s, means.tool_s) == (0.5, pytest.approx(0.1), 1.5)


@pytest.mark.parametrize(
    ("weighed", "starts"),
    [(["run"], (0.1,)), (["not_worth"], ()), (["warming_up", "run"], (0.3,)), ([""], None)],
)
def test_guesses_that_would_be_held_back_are_left_out(
    weighed: list[str], starts: tuple[float, ...] | None
) -> None:
    """The next source's equal guess would have run instead; unsaid is unknown."""
    found = fit_events(shadow_log(*weighed))
    assert found.turns[0].calls[0].guesses_s == pytest.approx((0.1,))
    on = as_if_on([found])
    if starts is None:
        assert on is None
    else:
        assert on is not None
        assert on[0].turns[0].calls[0].guesses_s == pytest.approx(starts)


def test_a_guess_that_was_withheld_in_shadow_mode_answers_nothing() -> None:
    """An unsure guess at the same call came first: the hit begins with the one that counted."""
    told = shadow_log("run")
    key: dict[str, Any] = {"key_hash": "k", "source": "patterns"}
    unsure = [
        guess(1, "unsure", at_s=1.0, **key),
        Event(kind="scored", at_s=2.0, turn=1, verdict="right", tool="look", **key),
    ]
    assert fit_events([*unsure, *told]).turns[0].calls[0].guesses_s == pytest.approx((0.1,))
