"""Budgets: what speculation may use up, reserved before a guess starts and settled after it."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, cast

from cachetools import LRUCache

Level = Literal["turn", "run", "tenant", "process"]

MOST_ACCOUNTS = 4096
"""Most accounts of a level that are remembered at once; the least recently used go first."""
ROUNDING = 1e-9
"""Share of a limit that may be exceeded: ten times 0.1 dollars are not quite one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that guesses may use; None leaves a measure without limit.

    Only speculation counts: early runs, and the tokens of draft models. Committed calls are never
    held back, whatever has been used.

    Raises:
        ValueError: A value is below 0, or `every_s` is not above it.
    """

    calls: int | None = None
    """Early runs, and requests to draft models."""
    usd: float | None = None
    """Dollars: `cost_usd` of contracts, and tokens at the prices the Speculation was given."""
    tokens: int | None = None
    """Input and output tokens of draft models together."""
    tool_s: float | None = None
    """Seconds that early runs take, abandoned ones included."""
    every_s: float | None = None
    """Seconds after which a budget is full again. None: never. Not for a turn, which has an account
    of its own and is over before long."""

    def __post_init__(self) -> None:
        """Check every field once."""
        for each in fields(self):
            value = cast("object", getattr(self, each.name))
            if value is None:
                continue
            amount = math.nan
            if isinstance(value, int | float) and not isinstance(value, bool):
                amount = value
            if not 0 <= amount < math.inf or (each.name == "every_s" and amount == 0):
                least = "more than 0" if each.name == "every_s" else "0 or more"
                msg = f"`{each.name}` of a budget must be {least}, or None; got {value!r}"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """One budget per level; a guess must fit into all of them. None: no limit at that level.

    Raises:
        ValueError: A level has something else, or the turn's budget has an `every_s`.
    """

    turn: Budget | None = None
    run: Budget | None = None
    tenant: Budget | None = None
    process: Budget | None = None

    def __post_init__(self) -> None:
        """Check that each level has a budget or none."""
        for each in fields(self):
            value = cast("object", getattr(self, each.name))
            if value is not None and not isinstance(value, Budget):
                msg = f"`{each.name}` of the budgets must be a Budget(...), or None; got {value!r}"
                raise ValueError(msg)
        if self.turn is not None and self.turn.every_s is not None:
            msg = (
                "every turn starts with a full budget, so `turn` takes no `every_s`, got "
                f"{self.turn.every_s!r}: leave it out, or limit `run`, `tenant` or `process`"
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one guess, or one request to a draft model, uses."""

    calls: int = 0
    usd: float = 0.0
    tokens: int = 0
    tool_s: float = 0.0

    def plus(self, other: "Charge") -> "Charge":
        """Return the sum."""
        return Charge(
            calls=self.calls + other.calls,
            usd=self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            tool_s=self.tool_s + other.tool_s,
        )

    def less(self, other: "Charge") -> "Charge":
        """Return what is left without `other`; rounding makes nothing negative."""
        return Charge(
            calls=max(0, self.calls - other.calls),
            usd=max(0.0, self.usd - other.usd),
            tokens=max(0, self.tokens - other.tokens),
            tool_s=max(0.0, self.tool_s - other.tool_s),
        )

    def within(self, budget: Budget) -> bool:
        """Say whether it goes over none of the budget's limits."""
        pairs = (
            (self.calls, budget.calls),
            (self.usd, budget.usd),
            (self.tokens, budget.tokens),
            (self.tool_s, budget.tool_s),
        )
        return all(limit is None or amount <= limit * (1 + ROUNDING) for amount, limit in pairs)


@dataclass(slots=True, eq=False)
class _Account:
    budget: Budget
    since_s: float
    spent: Charge = field(default_factory=Charge)
    reserved: Charge = field(default_factory=Charge)
    open: int = 0
    """Reservations that are not settled."""

    def has_room(self, charge: Charge, now_s: float) -> bool:
        every_s = self.budget.every_s
        if every_s is not None and now_s - self.since_s >= every_s:
            self.spent, self.since_s = Charge(), now_s
        return self.spent.plus(self.reserved).plus(charge).within(self.budget)

    def hold(self, charge: Charge) -> None:
        self.open += 1
        self.reserved = self.reserved.plus(charge)

    def settle(self, charge: Charge, actual: Charge) -> None:
        self.open -= 1
        self.reserved = self.reserved.less(charge) if self.open else Charge()
        self.spent = self.spent.plus(actual)


@dataclass(slots=True, eq=False)
class Reservation:
    """Room held for something that is about to start; settled once."""

    charge: Charge
    accounts: Sequence[_Account] = ()
    settled: bool = False

    def settle(self, actual: Charge | None) -> None:
        """Book what it really used; None, unknown, books what was reserved."""
        if self.settled:
            return
        self.settled = True
        for account in self.accounts:
            account.settle(self.charge, self.charge if actual is None else actual)


class Ledger:
    """Keeps one account per turn, run, tenant and process; without budgets it keeps none."""

    def __init__(self, budgets: Budgets) -> None:
        """Start with nothing used."""
        levels: dict[Level, Budget | None] = {
            "turn": budgets.turn,
            "run": budgets.run,
            "tenant": budgets.tenant,
            "process": budgets.process,
        }
        self._budgets: dict[Level, Budget] = {
            level: each for level, each in levels.items() if each is not None
        }
        # Apart, so that many short turns do not push out what a tenant has used.
        self._accounts: dict[Level, LRUCache[Hashable, _Account]] = {
            level: LRUCache(MOST_ACCOUNTS) for level in self._budgets
        }

    def reserve(
        self, charge: Charge, names: Iterable[tuple[Level, Hashable]], now_s: float
    ) -> Reservation | None:
        """Hold room for `charge` in the account of each of `names`; None if one is too full.

        `names` tell which turn, run, tenant and process it is for.
        """
        accounts = self._find(names, now_s)
        if not all(account.has_room(charge, now_s) for account in accounts):
            return None
        return self._hold(charge, accounts)

    def spend(self, charge: Charge, names: Iterable[tuple[Level, Hashable]], now_s: float) -> None:
        """Book what was used unasked, whether there was room for it or not."""
        self._hold(charge, self._find(names, now_s)).settle(charge)

    def forget(self, level: Level, name: Hashable) -> None:
        """Drop an account whose turn or run is over."""
        if level in self._accounts:
            self._accounts[level].pop(name, None)

    def _hold(self, charge: Charge, accounts: Sequence[_Account]) -> Reservation:
        for account in accounts:
            account.hold(charge)
        return Reservation(charge, accounts)

    def _find(self, names: Iterable[tuple[Level, Hashable]], now_s: float) -> list[_Account]:
        return [
            self._account(level, name, now_s) for level, name in names if level in self._budgets
        ]

    def _account(self, level: Level, name: Hashable, now_s: float) -> _Account:
        accounts = self._accounts[level]
        account = accounts.get(name)
        if account is None:
            account = accounts[name] = _Account(self._budgets[level], now_s)
        return account
