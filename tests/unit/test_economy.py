"""The economy: which guesses are worth their price, by what has become of those before."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.benefit import BenefitGate
from langchain_spectool._core.budget import Budget, Budgets, Charge
from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.economy import Economy, Judgement, Moment, Said
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.rest import PROBE_AFTER

NOW = Moment(now_s=100.0)
PAYERS = (("process", ""),)
DEAR = Contract(cost_usd=0.05)


def economy_of(gate: BenefitGate | None = BenefitGate(), **budgets: Budget) -> Economy:  # noqa: B008 - frozen
    """Return an economy that has learned nothing."""
    return Economy(gate, Budgets(**budgets))


def guess(key: str = "a", **fields: Any) -> Candidate:
    """Return a guess at a call of `look`."""
    made = Candidate(tool="look", source="draft", confidence=0.5, contract=Contract(), key=key)
    return replace(made, **fields)


def said(key: str = "a", **fields: Any) -> Said:
    """Return what was heard of such a guess."""
    return replace(Said(source="draft", tool="look", key=key, confidence=0.5), **fields)


def verdict(economy: Economy, candidate: Candidate | None = None, moment: Moment = NOW) -> str:
    """Return what becomes of a guess."""
    return economy.judge(candidate or guess(), moment).refusal or "run"


def teach(economy: Economy, news: str, **fields: Any) -> None:
    """Let one guess after the other come true, for a `+`, or not, for a `-`."""
    for each in news:
        economy.committed([said(**fields)], ["a"] if each == "+" else [])


# --- the gate


def test_a_stranger_is_taken_at_its_word() -> None:
    """Nothing is known, nothing costs anything: it runs, and its price is reserved."""
    judged = economy_of().judge(guess(), NOW)
    assert judged.refusal is None
    assert judged.reservation is not None
    assert judged.reservation.charge == Charge(calls=1, tool_s=1.0)


def test_a_dear_call_needs_a_good_source() -> None:
    """The same tool at the same price: the poor source is refused, the good one runs."""
    economy = economy_of()
    teach(economy, "-" * 10 + "+" + "-" * 8, source="poor")
    teach(economy, "+" * 20, source="good")
    candidates = [guess(source=name, contract=DEAR) for name in ("poor", "good")]
    assert [verdict(economy, each) for each in candidates] == ["not_worth", "run"]


def test_a_price_counts_only_where_the_contract_states_one() -> None:
    """A poor source may still run what costs nothing."""
    economy = economy_of()
    economy.pace.tool_took("look", 0.01)
    teach(economy, "-+" + "-" * 17)
    assert verdict(economy) == "run"
    assert verdict(economy, guess(contract=DEAR)) == "not_worth"


def test_late_in_a_turn_there_is_less_to_hide() -> None:
    """What pays at the start of a turn does not when most of it is over."""
    economy = economy_of()
    economy.pace.turn_took(10.0)
    economy.pace.tool_took("look", 10.0)
    candidate = guess(contract=Contract(cost_usd=0.05))
    assert verdict(economy, candidate) == "run"
    assert verdict(economy, candidate, replace(NOW, elapsed_s=9.0)) == "not_worth"
    assert verdict(economy, candidate, replace(NOW, elapsed_s=9.0, turns_ahead=1)) == "run"


def test_without_a_gate_every_guess_runs() -> None:
    """Only budgets and switches count; what came true is still told."""
    economy = economy_of(None)
    teach(economy, "-" * 100)
    assert verdict(economy, guess(contract=DEAR, warm_up=5)) == "run"
    assert economy.samples("draft", 3) == 3
    assert economy.committed([said()], ["a"]) == [(said(), True)]


# --- warming up, resting, recovering


@pytest.mark.parametrize(
    ("gate", "own", "needed"),
    [(BenefitGate(), 3, 3), (BenefitGate(warm_up=2), 5, 2), (BenefitGate(warm_up=0), 5, 0)],
)
def test_a_source_is_scored_before_it_runs(gate: BenefitGate, own: int, needed: int) -> None:
    """As often as it asks for itself, or as the gate says; all tools count."""
    economy = economy_of(gate)
    moment = replace(NOW, warm_up=own)
    for _ in range(needed):
        assert verdict(economy, moment=moment) == "warming_up"
        teach(economy, "+")
    assert verdict(economy, moment=moment) == "run"
    assert verdict(economy, guess(tool="find"), moment) == "run"
    assert verdict(economy, guess(source="other"), moment) == ("warming_up" if needed else "run")


def test_who_claims_little_is_not_wrong() -> None:
    """Guesses below the bar neither warm a source up nor let it rest, unless they come true."""
    economy = economy_of(BenefitGate(patience=2, warm_up=1))
    unlikely = [said(confidence=0.04)] * 1
    for _ in range(5):
        economy.committed(unlikely, [])
    assert verdict(economy) == "warming_up"
    economy.committed(unlikely, ["a"])
    assert verdict(economy) == "run"


def test_a_source_that_costs_nothing_is_always_asked() -> None:
    """It rests as any other, but being asked is how it learns."""
    economy = economy_of(BenefitGate(patience=10))
    teach(economy, "-" * 10)
    assert [economy.samples("draft", 1, free=True) for _ in range(9)] == [1] * 9
    assert verdict(economy) == "backing_off"


def test_who_is_wrong_too_often_rests_on_that_tool() -> None:
    """Its guesses are scored on, and it runs again when enough of them come true."""
    economy = economy_of(BenefitGate(patience=10))
    economy.committed([said(tool="find", key="f")] * 3, ["f"])
    teach(economy, "-" * 10)
    assert verdict(economy) == "backing_off"
    assert verdict(economy, guess(tool="find")) == "run"
    assert verdict(economy, guess(source="other")) == "run"
    teach(economy, "+++")
    assert verdict(economy) == "run"


def test_a_resting_source_is_asked_again_now_and_then() -> None:
    """It is left out of some turns, twice as many each time, and comes back by right guesses."""
    economy = economy_of(BenefitGate(patience=10))
    teach(economy, "-" * 10)
    asked = [economy.samples("draft", 2) for _ in range(15)]
    assert asked == [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]
    teach(economy, "+++")
    assert economy.samples("draft", 2) > 0


def test_a_chain_is_tried_again_by_running() -> None:
    """A call of a later turn is scored only if it ran: its probes run, and nothing warms up."""
    economy = economy_of(BenefitGate(patience=10, warm_up=3))
    ahead = replace(NOW, turns_ahead=1)
    assert verdict(economy, moment=ahead) == "run"
    teach(economy, "-" * 10)
    verdicts = [verdict(economy, moment=ahead) for _ in range(PROBE_AFTER + 1)]
    assert verdicts == ["backing_off"] * PROBE_AFTER + ["run"]
    teach(economy, "+++")
    assert verdict(economy, moment=ahead) == "run"


# --- samples


def test_samples_that_add_nothing_are_not_asked_for() -> None:
    """Two samples that say the same are one too many; a source of one is left alone."""
    economy = economy_of()
    for _ in range(8):
        assert economy.samples("draft", 2) == 2
        economy.committed([said(), said(sample=1)], ["a"])
    assert economy.samples("draft", 2) == 1
    assert economy.samples("rules", 1) == 1
    assert economy.samples("silent", 0) == 0


def test_a_last_sample_that_is_right_alone_earns_its_place() -> None:
    """Only what no other sample of its source said counts."""
    economy = economy_of()
    for _ in range(30):
        assert economy.samples("draft", 2) == 2
        economy.committed([said("b"), said("a", sample=1), said("a", source="other")], ["a"])
    assert economy.samples("draft", 2) == 2


def test_turns_in_which_a_source_is_silent_say_nothing_of_its_samples() -> None:
    """What another source said is not counted for it."""
    economy = economy_of()
    for _ in range(30):
        economy.samples("draft", 2)
        economy.committed([said(source="other")], ["a"])
    assert economy.samples("draft", 2) == 2


def test_samples_are_all_asked_for_where_they_must_be() -> None:
    """Where users say so, and where samples are those of several members."""
    fixed = economy_of(BenefitGate(adapt_samples=False))
    economy = economy_of()
    for _ in range(20):
        assert fixed.samples("draft", 2) == 2
        assert economy.samples("team", 2, alike=False) == 2
        for each in (fixed, economy):
            each.committed([said(), said(sample=1), said(source="team")], ["a"])


def test_another_maximum_begins_anew() -> None:
    """A source that now takes more samples is asked for all of them."""
    economy = economy_of()
    for _ in range(9):
        economy.samples("draft", 2)
        economy.committed([said(), said(sample=1)], ["a"])
    assert economy.samples("draft", 2) == 1
    assert economy.samples("draft", 3) == 3


# --- scores


def test_each_source_is_scored_once_for_a_call() -> None:
    """However many samples said it, with what was said first; other sources have their own."""
    heard = [
        said(confidence=0.4),
        said(confidence=0.9, sample=1),
        said("b"),
        said(source="rules"),
    ]
    scored = economy_of().committed(heard, ["a", "c"])
    assert scored == [(heard[0], True), (heard[2], False), (heard[3], True)]


# --- budgets


def test_over_budget_nothing_runs_and_nothing_is_taken() -> None:
    """The refused guess leaves the books as they were."""
    economy = economy_of(process=Budget(calls=1))
    moment = replace(NOW, payers=PAYERS)
    first = economy.judge(guess(), moment)
    assert first.reservation is not None
    assert economy.judge(guess("b"), moment) == Judgement(refusal="over_budget")
    first.reservation.settle(Charge())
    assert verdict(economy, moment=moment) == "run"


def test_a_guess_reserves_what_its_tool_usually_takes() -> None:
    """Dollars of the contract, seconds as measured."""
    economy = economy_of(process=Budget(tool_s=3.0, usd=1.0))
    economy.pace.tool_took("look", 2.0)
    moment = replace(NOW, payers=PAYERS)
    judged = economy.judge(guess(contract=Contract(cost_usd=0.001)), moment)
    assert judged.reservation is not None
    assert judged.reservation.charge.usd == 0.001
    assert judged.reservation.charge.tool_s == pytest.approx(2.0)
    assert verdict(economy, moment=moment) == "over_budget"


# --- rates


def test_a_tool_that_was_limited_is_left_alone_until_then() -> None:
    """No other is, and a shorter wish does not undo a longer one."""
    economy = economy_of()
    economy.limited("look", 130.0)
    economy.limited("look", 110.0)
    at = {now_s: verdict(economy, moment=replace(NOW, now_s=now_s)) for now_s in (100, 129, 130)}
    assert at == {100: "rate_limited", 129: "rate_limited", 130: "run"}
    assert verdict(economy, guess(tool="find")) == "run"


def test_guesses_leave_room_in_the_minute() -> None:
    """The fuller it is the dearer a guess, and at the limit none runs until calls are old."""
    economy = economy_of()
    limited = Contract(calls_per_minute=4, cost_usd=0.003)
    candidate = guess(contract=limited)
    for _ in range(3):
        economy.called("look", limited, 100.0)
    assert verdict(economy, candidate) == "not_worth"
    sure = replace(candidate, confidence=1.0)
    assert verdict(economy, sure) == "run"
    assert verdict(economy, sure) == "rate_limited"
    assert verdict(economy, sure, replace(NOW, now_s=160.0)) == "run"


@pytest.mark.parametrize(("rate", "most", "window_s"), [(0.5, 1, 120), (2.5, 3, 72), (3, 3, 60)])
def test_a_rate_is_kept_to_in_the_long_run(rate: float, most: int, window_s: float) -> None:
    """Half a call a minute is one in two minutes, not one a minute."""
    economy = economy_of(None)
    candidate = guess(contract=Contract(calls_per_minute=rate))
    runs = sum(
        verdict(economy, candidate, replace(NOW, now_s=float(second))) == "run"
        for second in range(int(10 * window_s))
    )
    assert runs == 10 * most


def test_calls_without_a_limit_are_not_counted() -> None:
    """There is nothing to remember of them."""
    economy = economy_of()
    for _ in range(100):
        economy.called("look", Contract(), 100.0)
    assert verdict(economy, guess(contract=Contract(calls_per_minute=1))) == "run"


# --- switches


def test_switches_stop_a_tool_or_a_tenant_and_no_other() -> None:
    """At once, and until they are switched on again."""
    economy = economy_of(None)
    mine, theirs = (replace(NOW, tenant=name) for name in ("me", "them"))
    economy.switch(on=False, tool="look", tenant=None)
    assert [verdict(economy), verdict(economy, guess(tool="find"))] == ["switched_off", "run"]
    economy.switch(on=True, tool="look", tenant=None)
    economy.switch(on=False, tool=None, tenant="me")
    assert [verdict(economy, moment=each) for each in (mine, theirs, NOW)] == [
        "switched_off",
        "run",
        "run",
    ]
    assert [economy.samples("draft", 2, tenant=name) for name in ("me", "them", None)] == [0, 2, 2]
    economy.switch(on=True, tool="look", tenant="me")
    assert verdict(economy, moment=mine) == "run"


# --- properties


def facts() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Draw what may happen to an economy, in any order."""
    names, tools, keys = (st.sampled_from(texts) for texts in ("pq", "xy", "abc"))
    heard = st.builds(
        Said, source=names, tool=tools, key=keys, confidence=st.floats(0, 1), sample=st.just(0)
    )
    candidates = st.builds(
        Candidate,
        source=names,
        tool=tools,
        key=keys,
        confidence=st.floats(0, 1),
        contract=st.builds(
            Contract,
            cost_usd=st.none() | st.floats(0, 0.1),
            calls_per_minute=st.none() | st.integers(1, 4),
        ),
    )
    moments = st.builds(
        Moment,
        now_s=st.floats(0, 200),
        elapsed_s=st.floats(0, 10),
        turns_ahead=st.integers(0, 1),
        payers=st.just(PAYERS),
        warm_up=st.integers(0, 3),
    )
    return st.lists(
        st.one_of(
            st.tuples(st.just("judge"), candidates, moments),
            st.tuples(st.just("samples"), names, st.integers(0, 3)),
            st.tuples(st.just("committed"), st.lists(heard, max_size=5), st.sets(keys)),
            st.tuples(st.just("limited"), tools, st.floats(0, 300)),
        ),
        max_size=40,
    )


@given(facts(), st.none() | st.builds(BenefitGate, patience=st.integers(1, 3)))
def test_the_same_facts_end_in_the_same_decisions(
    history: list[tuple[Any, ...]], gate: BenefitGate | None
) -> None:
    """Nothing is random: told twice, everything is decided twice alike."""
    tellings: list[list[Any]] = []
    for _ in range(2):
        economy = economy_of(gate, process=Budget(calls=5, usd=0.2, every_s=50))
        answers = [getattr(economy, kind)(*fact) for kind, *fact in history]
        tellings.append([each.refusal if isinstance(each, Judgement) else each for each in answers])
    assert tellings[0] == tellings[1]


@given(
    st.text("+-", max_size=19),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 0.1),
    st.floats(0, 0.1),
    st.floats(0, 6),
    st.floats(0, 6),
)
def test_a_better_guess_is_never_the_one_refused(  # noqa: PLR0913, PLR0917 - all that decides
    news: str,
    one: float,
    other: float,
    one_usd: float,
    other_usd: float,
    one_s: float,
    other_s: float,
) -> None:
    """Surer, cheaper and earlier in the turn: it runs if the other one does."""
    economy = economy_of()
    teach(economy, news)
    (low, high), (cheap, dear), (early, late) = map(
        sorted, ((one, other), (one_usd, other_usd), (one_s, other_s))
    )
    better = guess(confidence=high, contract=Contract(cost_usd=cheap))
    worse = guess(confidence=low, contract=Contract(cost_usd=dear))
    if verdict(economy, worse, replace(NOW, elapsed_s=late)) == "run":
        assert verdict(economy, better, replace(NOW, elapsed_s=early)) == "run"
