"""What the operator allows."""

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, cast, get_args

from langchain_spectool._core.benefit import BenefitGate
from langchain_spectool._core.budget import Budgets

Mode = Literal["on", "shadow", "off"]
"""`on` runs guesses early, `shadow` only scores them, `off` does nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits on which guesses run ahead of the model.

    Raises:
        ValueError: A value is outside the range its field states.
    """

    mode: Mode = "on"
    """What speculation may do. `SPECTOOL_MODE` in the environment and
    `config={"configurable": {"speculation": ...}}` of one run can only lower it."""
    min_confidence: float = 0.0
    """Lowest confidence that runs, from 0 to 1."""
    guesses_per_turn: int = 16
    """Most guesses that start in one turn; 0 turns speculation off."""
    in_flight_per_run: int = 16
    """Most early runs in the air at once in one graph run."""
    in_flight: int = 64
    """Most early runs in the air at once in this process, for this Speculation."""
    timeout_s: float = 30.0
    """Seconds an unclaimed early run may take; a contract's `timeout_s` overrides it."""
    allow_external: bool = False
    """Whether tools whose arguments third parties see (`audience="external"`) may run early."""
    benefit: BenefitGate | None = field(default_factory=BenefitGate)
    """When a guess pays. None: every guess that is allowed runs."""
    budgets: Budgets = field(default_factory=Budgets)
    """The most that guesses may use up per turn, run, tenant and process."""
    holdout: float = 0.0
    """Share of runs, from 0 to 1, left without speculation so that `report()` can compare."""
    seed: int = 0
    """Decides which runs are held out; equal seeds decide alike."""

    def __post_init__(self) -> None:
        """Check every field once."""
        mode_of(self.mode)
        if not (isinstance(self.min_confidence, Real) and 0 <= self.min_confidence <= 1):
            msg = f"`min_confidence` must be from 0 to 1, got {self.min_confidence!r}"
            raise ValueError(msg)
        if not (isinstance(self.holdout, Real) and 0 <= self.holdout <= 1):
            msg = f"`holdout` must be from 0 to 1, got {self.holdout!r}"
            raise ValueError(msg)
        for name in ("guesses_per_turn", "in_flight_per_run", "in_flight"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                msg = f"`{name}` must be a whole number of 0 or more, got {value!r}"
                raise ValueError(msg)
        if not (isinstance(self.timeout_s, Real) and 0 < self.timeout_s < math.inf):
            msg = f"`timeout_s` must be more than 0 seconds and finite, got {self.timeout_s!r}"
            raise ValueError(msg)
        budgets, benefit = cast("object", self.budgets), cast("object", self.benefit)
        if not isinstance(budgets, Budgets):
            msg = f"`budgets` must be Budgets(turn=Budget(...), ...), got {budgets!r}"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other field
        if benefit is not None and not isinstance(benefit, BenefitGate):
            msg = f"`benefit` must be a BenefitGate(...), or None; got {benefit!r}"
            raise ValueError(msg)
        allowed = cast("object", self.allow_external)
        if not isinstance(allowed, bool):
            msg = f"`allow_external` must be True or False, got {allowed!r}"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other field


def mode_of(value: object) -> Mode:
    """Return `value` as a mode.

    Raises:
        ValueError: It is none of `on`, `shadow`, `off`.
    """
    modes: tuple[Mode, ...] = get_args(Mode)
    for mode in modes:
        if value == mode:
            return mode
    msg = f"the speculation mode must be one of {', '.join(modes)}; got {value!r}"
    raise ValueError(msg)


def lowest(*modes: Mode) -> Mode:
    """Return the most careful of `modes`: `off` before `shadow` before `on`."""
    if "off" in modes:
        return "off"
    return "shadow" if "shadow" in modes else "on"
