"""Budgets: nothing goes over a limit, nothing leaks, and what is unknown stays charged."""

import math
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_spectool._core.budget import (
    MOST_ACCOUNTS,
    Budget,
    Budgets,
    Charge,
    Ledger,
    Level,
    Reservation,
)

MEASURES = ("calls", "usd", "tokens", "tool_s")
LEVELS: tuple[Level, ...] = get_args(Level)
ALL = [(level, f"one {level}") for level in LEVELS]
ONE = Charge(calls=1)


def charge_of(amounts: tuple[int, float, int, float]) -> Charge:
    """Return a charge of the four measures."""
    return Charge(**dict(zip(MEASURES, amounts, strict=True)))


CHARGES = st.tuples(st.integers(0, 3), st.floats(0, 2), st.integers(0, 500), st.floats(0, 5)).map(
    charge_of
)
LIMITS = st.builds(
    Budget,
    calls=st.none() | st.integers(0, 8),
    usd=st.none() | st.floats(0, 4),
    tokens=st.none() | st.integers(0, 1500),
    tool_s=st.none() | st.floats(0, 10),
)
WINDOWS = st.builds(replace, LIMITS, every_s=st.none() | st.floats(1, 20))
LEVELS_LIMITED = st.tuples(st.none() | LIMITS, *[st.none() | WINDOWS] * 3).map(list)
"""One for each level; a turn's has no window."""
STEPS = st.tuples(
    st.sampled_from(["reserve", "reserve", "spend", "settle", "unknown", "give back", "wait"]),
    st.integers(0, 20),
    CHARGES,
    st.floats(0, 15),
)


def ledger_of(**limits: Any) -> Ledger:
    """Return a ledger in which every level has the same limits."""
    return Ledger(Budgets(**dict.fromkeys(LEVELS, Budget(**limits))))


def in_books(ledger: Ledger) -> list[Any]:
    """Return the accounts a ledger keeps."""
    return [account for each in ledger._accounts.values() for account in each.values()]


# --- settings


@pytest.mark.parametrize("name", [*MEASURES, "every_s"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "much"])
def test_bad_limits_are_named(name: str, value: Any) -> None:
    """The message says which field, and what it was given."""
    with pytest.raises(
        ValueError, match=rf"`{name}` of a budget must be .* or None; got {value!r}"
    ):
        Budget(**{name: value})


def test_a_window_takes_time() -> None:
    """A budget of 0 is one that lets nothing run; a window of 0 s is nonsense."""
    assert Budget(calls=0, usd=0, tokens=0, tool_s=0).calls == 0
    with pytest.raises(ValueError, match="`every_s` of a budget must be more than 0"):
        Budget(every_s=0)


def test_a_turn_has_no_window() -> None:
    """A turn's account is new with the turn: a window that would never count is refused."""
    with pytest.raises(ValueError, match="`turn` takes no `every_s`, got 60: leave it out, or"):
        Budgets(turn=Budget(calls=4, every_s=60))
    window = Budget(calls=4, every_s=60)
    assert Budgets(run=window, tenant=window, process=window).turn is None


# --- charges


@given(CHARGES, CHARGES)
def test_charges_add_up_and_never_go_below_nothing(one: Charge, other: Charge) -> None:
    """What is taken off again leaves what was there, to within rounding."""
    back = one.plus(other).less(other)
    for name in MEASURES:
        assert getattr(back, name) == pytest.approx(getattr(one, name))
        assert getattr(one.less(other), name) >= 0


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_counts(name: str) -> None:
    """A charge has to be within all limits that are set, and no others count."""
    much = replace(Charge(), **{name: 3})
    assert much.within(Budget(**{name: 3}))
    assert not much.within(Budget(**{name: 2}))
    assert much.within(Budget(**{other: 0 for other in MEASURES if other != name}))


# --- the ledger


def test_without_budgets_there_are_no_books() -> None:
    """Whatever is asked for is granted, and nothing is remembered."""
    ledger = Ledger(Budgets())
    reservation = ledger.reserve(Charge(calls=10**9), ALL, 0.0)
    assert reservation is not None
    reservation.settle(None)
    ledger.spend(ONE, ALL, 0.0)
    ledger.forget("turn", "one turn")
    assert in_books(ledger) == []


@pytest.mark.parametrize("tight", LEVELS)
def test_a_charge_must_fit_into_every_level(tight: Level) -> None:
    """One full account is enough, and then no other account is touched."""
    roomy = dict.fromkeys(LEVELS, Budget(calls=10))
    ledger = Ledger(Budgets(**{**roomy, tight: Budget(calls=1)}))
    assert ledger.reserve(ONE, ALL, 0.0) is not None
    before = [account.reserved for account in in_books(ledger)]
    assert ledger.reserve(ONE, ALL, 0.0) is None
    assert [account.reserved for account in in_books(ledger)] == before == [ONE] * 4


def test_accounts_are_kept_apart_by_name() -> None:
    """What one tenant has used is not missing to another."""
    ledger = ledger_of(calls=1)
    assert ledger.reserve(ONE, [("tenant", "a")], 0.0) is not None
    assert ledger.reserve(ONE, [("tenant", "a")], 0.0) is None
    assert ledger.reserve(ONE, [("tenant", "b")], 0.0) is not None
    assert ledger.reserve(ONE, [("run", "a")], 0.0) is not None


def test_tenths_add_up_to_the_limit() -> None:
    """Ten times 0.1 dollars are a dollar, whatever floats say; eleven times are not."""
    ledger = ledger_of(usd=1.0)
    granted = [ledger.reserve(Charge(usd=0.1), ALL, 0.0) is not None for _ in range(11)]
    assert granted == [True] * 10 + [False]


def test_unknown_usage_stays_charged_as_reserved() -> None:
    """Only a known usage gives room back."""
    ledger = ledger_of(tokens=100)
    asked = Charge(tokens=60)
    for actual, left in ((None, False), (Charge(tokens=10), True)):
        ledger.forget("run", "r")
        reservation = ledger.reserve(asked, [("run", "r")], 0.0)
        assert reservation is not None
        reservation.settle(actual)
        assert (ledger.reserve(asked, [("run", "r")], 0.0) is not None) is left


def test_a_reservation_is_settled_once() -> None:
    """The first word counts: what is settled twice is not booked twice."""
    ledger = ledger_of(calls=2)
    reservation = ledger.reserve(ONE, [("process", "")], 0.0)
    assert reservation is not None
    for actual in (None, Charge(calls=5), None):
        reservation.settle(actual)
    (account,) = in_books(ledger)
    assert (account.spent, account.reserved) == (ONE, Charge())


def test_a_window_refills_what_was_spent_but_not_what_is_out() -> None:
    """At `every_s` the spent is forgotten; what still runs goes on counting."""
    ledger = Ledger(Budgets(process=Budget(calls=2, every_s=60)))
    first, second = (ledger.reserve(ONE, [("process", "")], 0.0) for _ in range(2))
    assert first is not None
    assert second is not None
    first.settle(None)
    assert ledger.reserve(ONE, [("process", "")], 59.9) is None
    assert ledger.reserve(ONE, [("process", "")], 60.0) is not None
    assert ledger.reserve(ONE, [("process", "")], 60.0) is None
    second.settle(None)
    assert ledger.reserve(ONE, [("process", "")], 119.9) is None
    assert ledger.reserve(ONE, [("process", "")], 120.0) is not None


def test_what_was_spent_unasked_is_booked_over_the_limit() -> None:
    """There is no refusing what has happened, but nothing follows it."""
    ledger = ledger_of(tokens=10)
    ledger.spend(Charge(tokens=50), ALL, 0.0)
    assert ledger.reserve(Charge(tokens=1), ALL, 0.0) is None
    assert all(account.reserved == Charge() for account in in_books(ledger))


def test_many_turns_do_not_push_out_a_tenant() -> None:
    """What a tenant has used is remembered however many turns others take."""
    ledger = ledger_of(calls=1)
    ledger.reserve(ONE, [("tenant", "a")], 0.0)
    for number in range(MOST_ACCOUNTS + 1):
        ledger.reserve(ONE, [("turn", number)], 0.0)
    assert ledger.reserve(ONE, [("tenant", "a")], 0.0) is None
    assert len(in_books(ledger)) == MOST_ACCOUNTS + 1


def test_a_forgotten_account_starts_anew() -> None:
    """What was reserved in it may still be settled, and counts nowhere else."""
    ledger = ledger_of(calls=1)
    names = [("turn", 1), ("tenant", "a")]
    reservation = ledger.reserve(ONE, names, 0.0)
    assert reservation is not None
    ledger.forget("turn", 1)
    ledger.forget("turn", 2)
    assert ledger.reserve(ONE, [("turn", 1)], 0.0) is not None
    reservation.settle(Charge())
    assert ledger.reserve(ONE, [("tenant", "a")], 0.0) is not None


# --- any order of things


class Books:
    """A ledger in use, and what its reservations turned out to be exceeded by."""

    def __init__(self, limits: list[Budget | None]) -> None:
        self.ledger = Ledger(Budgets(**dict(zip(LEVELS, limits, strict=True))))
        self.out: list[Reservation] = []
        self.over = Charge()
        self.now_s = 0.0

    def do(self, kind: str, place: int, charge: Charge, seconds: float) -> None:
        """Do the next thing; what is settled is the reservation at `place` of those out."""
        match kind:
            case "reserve":
                reservation = self.ledger.reserve(charge, ALL, self.now_s)
                self.out += [] if reservation is None else [reservation]
            case "spend":
                self.ledger.spend(charge, ALL, self.now_s)
                self.over = self.over.plus(charge)
            case "wait":
                self.now_s += seconds
            case _ if self.out:
                settled = {"settle": charge, "unknown": None, "give back": Charge()}
                self.settle(self.out.pop(place % len(self.out)), settled[kind])

    def settle(self, reservation: Reservation, actual: Charge | None) -> None:
        """Settle; what is known is booked as it was, what is unknown as it was reserved."""
        booked = reservation.charge if actual is None else actual
        expected = [account.spent.plus(booked) for account in in_books(self.ledger)]
        reservation.settle(actual)
        assert [account.spent for account in in_books(self.ledger)] == expected
        self.over = self.over.plus(booked.less(reservation.charge))

    def check(self) -> None:
        """Look into every account."""
        for account in in_books(self.ledger):
            for name in MEASURES:
                spent, reserved = getattr(account.spent, name), getattr(account.reserved, name)
                assert spent >= 0
                assert reserved >= 0
                if (limit := getattr(account.budget, name)) is not None:
                    assert spent + reserved <= limit + getattr(self.over, name) + 1e-6
            assert account.open == len(self.out)


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=60), LEVELS_LIMITED)
def test_no_interleaving_overspends_or_leaks(
    steps: list[tuple[str, int, Charge, float]], limits: list[Budget | None]
) -> None:
    """What is spent and reserved exceeds a limit by no more than reservations were exceeded by.

    Nothing goes below zero, unknown usage stays charged, and once all is settled nothing is held.
    """
    books = Books(limits)
    for step in steps:
        books.do(*step)
        books.check()
    for reservation in books.out:
        reservation.settle(None)
    assert all(account.reserved == Charge() for account in in_books(books.ledger))


@pytest.mark.parametrize("value", [1, "1", {"calls": 1}])
def test_level_has_a_budget_or_none(value: Any) -> None:
    """A limit given without its Budget is refused by name."""
    with pytest.raises(ValueError, match="`run` of the budgets must be a Budget"):
        Budgets(run=value)
