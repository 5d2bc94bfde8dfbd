"""What a tool's author declares, and which tool the declaration binds to."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from operator import is_
from typing import Literal, TypedDict, cast, get_args

from langchain_spectool.errors import NotAvailableYet

Audience = Literal["local", "internal", "external"]
"""Who sees a call's arguments: this process, the operator's own systems, or third parties."""
Reuse = Literal["turn", "run", "thread", "tenant", "global"]
"""How long a result that no call has taken is kept."""
InnerRuns = Literal["taint", "omit"]
"""What becomes of an early run that started runs of its own, such as a model or a retriever."""

Arguments = Mapping[str, object]
"""A call's arguments, after the tool's own schema coerced and defaulted them."""
Freshness = Callable[[Arguments], object]
Gate = Callable[[Arguments], bool | str]
Key = Callable[[Arguments], Arguments]

_LATER_REUSE = frozenset({"thread", "tenant", "global"})
_WORDS = {
    "reuse": get_args(Reuse),
    "audience": get_args(Audience),
    "inner_runs": get_args(InnerRuns),
}
# These describe the tool itself; every other field only says how an early run is treated.
_DESCRIPTIVE = frozenset({"early", "tags", "version", "trusted_output"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The author's word that a tool is read-only, harmless to repeat and fine to run unasked.

    Raises:
        ValueError: A value is outside the range its field states, or contradicts another.
        NotAvailableYet: `reuse` beyond `run`.
    """

    early: bool = True
    """Whether guesses may run. False: the tool is read-only and runs only when the model calls
    it, so other early results stay valid across it."""
    deterministic: bool = False
    """Whether equal calls in one turn may share one run, and a committed result may answer a
    later equal call. False: one early run answers one call."""
    fresh_for_s: float | None = None
    """Seconds, above 0, that a result stays true, counted from the start of the early run.
    None: no limit of its own, it lives as long as `reuse` says."""
    freshness: Freshness | None = None
    """From the arguments to a token, such as a file's modification time. Taken before the early
    run and again at the claim, off the event loop: a changed token, or an error, is a miss.
    A plain function. None: no token."""
    reuse: Reuse = "turn"
    """How long an unclaimed result is kept: `turn`, or `run` for the rest of the graph run.
    `thread`, `tenant` and `global` are not available yet."""
    audience: Audience = "internal"
    """Who sees the arguments. `external` runs early only where the policy allows it: a guess
    that no call takes has still told someone."""
    gate: Gate | None = None
    """From the arguments to whether this very guess may run: True, or False, or the reason why
    not. An error is a no. A plain function. None: every guess may."""
    key: Key | None = None
    """From the arguments to those that tell calls apart, such as a normalised path. A plain
    function. None: all arguments as they are."""
    tags: frozenset[str] = frozenset()
    """What the tool reads, for invalidation by name. Any iterable of strings; empty: nothing
    that has a name."""
    timeout_s: float | None = None
    """Seconds, above 0, that an early run may take. None: the policy's limit."""
    max_concurrency: int | None = None
    """Most early runs of this tool at once, from 1. None: only the policy's limits."""
    cost_usd: float | None = None
    """Dollars, from 0, that one run costs; weighed before a guess runs, and charged to the
    budgets. None: free."""
    calls_per_minute: float | None = None
    """Calls a minute, above 0, that the service behind the tool allows. Guesses leave room: the
    fuller the minute, the dearer a guess, and at the limit none runs. None: no limit."""
    trusted_output: bool = False
    """Whether the author vouches for what the tool returns, as of one's own database. What any
    other tool returned is never sent to an `external` tool by a guess."""
    version: str = ""
    """Part of the tool's identity: results of another version are never served."""
    inner_runs: InnerRuns = "taint"
    """`taint` drops an early run that started runs of its own. `omit` keeps it and accepts that
    a hit shows no events of those."""

    def __post_init__(self) -> None:
        """Check every field once."""
        object.__setattr__(self, "tags", _tags(self.tags))
        _check_types(self)
        _check_limits(self)
        _check_functions(self)
        _check_available(self)
        _check_early(self)


class ContractFields(TypedDict, total=False):
    """The fields of `Contract`, as keyword arguments; each means what it means there."""

    early: bool
    deterministic: bool
    fresh_for_s: float | None
    freshness: Freshness | None
    reuse: Reuse
    audience: Audience
    gate: Gate | None
    key: Key | None
    tags: Iterable[str]
    timeout_s: float | None
    max_concurrency: int | None
    cost_usd: float | None
    calls_per_minute: float | None
    trusted_output: bool
    version: str
    inner_runs: InnerRuns


def contract_from(values: ContractFields) -> Contract:
    """Return the contract that `values` spell.

    Raises:
        ValueError: As `Contract`.
        NotAvailableYet: As `Contract`.
    """
    return Contract(**cast("dict[str, object]", values))  # pyright: ignore[reportArgumentType]


def _tags(value: object) -> frozenset[str]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        tags = tuple(cast("Iterable[object]", value))
        words = [tag for tag in tags if isinstance(tag, str) and tag]
        if len(words) == len(tags):
            return frozenset(words)
    msg = f"`tags` must be non-empty strings in a set or list, got {value!r}"
    raise ValueError(msg)


def _check_types(contract: Contract) -> None:
    for name in ("early", "deterministic", "trusted_output"):
        value: object = getattr(contract, name)
        if not isinstance(value, bool):
            msg = f"`{name}` must be True or False, got {value!r}"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other field
    for name, words in _WORDS.items():
        value = getattr(contract, name)
        if value not in words:
            msg = f"`{name}` must be one of {', '.join(words)}; got {value!r}"
            raise ValueError(msg)
    value = cast("object", contract.version)
    if not isinstance(value, str):
        msg = f"`version` must be a string, got {value!r}"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other field


def _check_limits(contract: Contract) -> None:
    for name in ("fresh_for_s", "timeout_s"):
        seconds: object = getattr(contract, name)
        if seconds is not None and not _is_positive(seconds):
            msg = f"`{name}` must be seconds above 0, or None for no limit; got {seconds!r}"
            raise ValueError(msg)
    _check_prices(contract)
    most = cast("object", contract.max_concurrency)
    if most is not None and not (isinstance(most, int) and _is_positive(most)):
        msg = f"`max_concurrency` must be a whole number from 1, or None; got {most!r}"
        if most == 0:
            msg += " (to keep the tool from running early, declare `early=False`)"
        raise ValueError(msg)


def _check_prices(contract: Contract) -> None:
    cost_usd = cast("object", contract.cost_usd)
    if cost_usd is not None and not (cost_usd == 0 or _is_positive(cost_usd)):
        msg = f"`cost_usd` must be dollars from 0, or None for free; got {cost_usd!r}"
        raise ValueError(msg)
    rate = cast("object", contract.calls_per_minute)
    if rate is not None and not _is_positive(rate):
        msg = f"`calls_per_minute` must be a number above 0, or None for no limit; got {rate!r}"
        raise ValueError(msg)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value is not True and 0 < value < math.inf


def _check_functions(contract: Contract) -> None:
    for name in ("freshness", "gate", "key"):
        function: object = getattr(contract, name)
        if function is None:
            continue
        if not callable(function) or inspect.iscoroutinefunction(function):
            msg = f"`{name}` must be a plain function of the arguments, got {function!r}"
            raise ValueError(msg)


def _check_available(contract: Contract) -> None:
    if contract.reuse in _LATER_REUSE:
        msg = f"`reuse={contract.reuse!r}` is not available yet: use 'turn' or 'run'"
        raise NotAvailableYet(msg)


def _check_early(contract: Contract) -> None:
    if contract.early:
        return
    for field in fields(contract):
        value: object = getattr(contract, field.name)
        if field.name not in _DESCRIPTIVE and value != field.default:
            msg = (
                f"`{field.name}={value!r}` says how early runs are treated, but `early=False` "
                "allows none: leave one of the two out"
            )
            raise ValueError(msg)


_KEY = "_spectool_declaration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A contract, and the very bodies it was given for."""

    contract: Contract
    name: str | None
    """The tool's name; None for a class, whose instances may choose theirs."""
    bodies: tuple[object, ...]
    """`_run` and `_arun`, then for a tool object its `func` and `coroutine`."""

    def fits(self, tool: object) -> bool:
        """Say whether `tool` still has the name and the bodies that were declared."""
        if self.name is not None and self.name != getattr(tool, "name", None):
            return False
        return same_bodies(self.bodies, bodies_of(tool))


def declare(tool: object, contract: Contract) -> None:
    """Record `contract` on the tool object or tool class itself, in place of an earlier one.

    Nothing else of `tool` changes. Copies made by `model_copy` carry the record along; it holds
    for those that kept the name and the bodies.
    """
    if isinstance(tool, type):
        type.__setattr__(tool, _KEY, _record(tool, contract))
    else:
        object.__setattr__(tool, _KEY, _record(tool, contract))


def _record(tool: object, contract: Contract) -> Declaration:
    if isinstance(tool, type):
        return Declaration(contract=contract, name=None, bodies=bodies_of(tool)[: len(_METHODS)])
    name: str | None = getattr(tool, "name", None)
    return Declaration(contract=contract, name=name, bodies=bodies_of(tool))


def declared(tool: object) -> Contract | None:
    """Return the contract `tool` was declared with, or None.

    A record on the object stands before one on its class, and only the nearest record counts:
    where it no longer fits, the tool is undeclared. Names and `metadata` are never looked at.
    """
    record = declaration(tool)
    return record.contract if record is not None and record.fits(tool) else None


def declaration(tool: object) -> Declaration | None:
    """Return the nearest record on `tool` or its class, whether it still fits or not."""
    kind = cast("type[object]", tool) if isinstance(tool, type) else type(tool)
    holders: tuple[object, ...] = kind.__mro__ if kind is tool else (tool, *kind.__mro__)
    for holder in holders:
        record = getattr(holder, "__dict__", {}).get(_KEY)
        if isinstance(record, Declaration):
            return record
    return None


_METHODS = ("_run", "_arun", "run", "arun", "invoke", "ainvoke", "_to_args_and_kwargs")


def bodies_of(tool: object) -> tuple[object, ...]:
    """Return what runs when `tool` is called: its methods, its `func` and its `coroutine`."""
    own = (getattr(tool, name, None) for name in _METHODS)
    # A method is made anew at each look; the function below it stays the same object.
    functions = (getattr(body, "__func__", body) for body in own)
    return (*functions, getattr(tool, "func", None), getattr(tool, "coroutine", None))


def same_bodies(were: tuple[object, ...], are: tuple[object, ...]) -> bool:
    """Say whether the bodies in `were` are the very same objects at the start of `are`."""
    return all(map(is_, were, are))
