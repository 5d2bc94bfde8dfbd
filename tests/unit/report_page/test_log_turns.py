"""Events become turns with spans, whatever order and gaps a log has."""

from page_data import closing, turn

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page.log_turns import turns_of


def test_a_hit() -> None:
    """The model's time, the call and the early run that answered it are known."""
    (found,) = turns_of(turn(1))
    assert (found.began_s, found.answered_s, found.ended_s) == (100.0, 101.0, 102.25)
    assert (found.writing_s, found.calling_s) == (1.0, 1.25)
    (call,) = found.calls
    assert call.served
    assert (call.began_s, call.ended_s, call.claimed_s) == (101.0, 102.25, 101.0)
    (early,) = found.early
    assert early == call.early
    assert (early.began_s, early.ended_s, early.wasted) == (100.25, 102.25, "")


def test_a_miss() -> None:
    """The early run is wasted, the call ran."""
    (found,) = turns_of(turn(1, hit=False))
    (call,) = found.calls
    assert (call.served, call.early, call.verdict) == (False, None, "mismatch")
    (early,) = found.early
    assert (early.began_s, early.ended_s, early.wasted) == (100.25, 101.0, "mismatch")


def test_turns_without_a_plan() -> None:
    """A turn that calls nothing has a model's time, and no seconds of calls."""
    (found,) = turns_of(closing(3))
    assert (found.number, found.asked, found.writing_s, found.calling_s) == (3, 0, 1.0, 0.0)
    assert found.over_s == 301.0


def test_an_unfinished_log() -> None:
    """Of a turn whose answer is not in the log, the first event is the start."""
    (found,) = turns_of([event for event in turn(1) if event.kind == "guess"])
    assert (found.began_s, found.answered_s, found.over_s) == (100.25, None, 100.25)
    assert found.writing_s is None


def test_one_early_run_for_two_calls() -> None:
    """A shared run is drawn once."""
    claims = [
        Event(
            kind="claim",
            at_s=2.0,
            turn=1,
            verdict=verdict,
            tool="look",
            position=position,
            started_s=0.5,
            spent_s=1.0,
        )
        for position, verdict in enumerate(("hit", "shared"))
    ]
    (found,) = turns_of(claims)
    assert [call.served for call in found.calls] == [True, True]
    assert len(found.early) == 1


def test_shadow_guesses_are_no_early_runs() -> None:
    """What was only scored took no time and is not drawn."""
    gone = Event(kind="discarded", at_s=1.0, turn=1, verdict="unclaimed", tool="a", started_s=0.5)
    (found,) = turns_of([gone])
    assert found.early == []


def test_events_of_no_turn_are_left_out() -> None:
    """Turn 0 is no turn; turns keep the order of the log."""
    told = [Event(kind="error", at_s=0.0), *turn(2), *turn(1)]
    assert [found.number for found in turns_of(told)] == [2, 1]


def test_a_failed_model() -> None:
    """A turn that failed has no end and hid nothing."""
    (found,) = turns_of([Event(kind="turn_ended", at_s=1.0, turn=1, verdict="failed", hidden_s=9)])
    assert (found.ended_s, found.hidden_s) == (None, 0.0)


def test_guesses_are_ranked_by_confidence() -> None:
    """The most confident comes first, equal ones once."""
    scored = [
        Event(kind="scored", at_s=1, turn=1, tool=tool, key_hash=key, confidence=confidence)
        for tool, key, confidence in (
            ("a", "1", 0.2),
            ("b", "2", 0.9),
            ("a", "1", 0.1),
            ("c", "3", None),
        )
    ]
    (found,) = turns_of(scored)
    assert found.ranked == [("b", "2"), ("a", "1"), ("c", "3")]
