"""Contracts check themselves, and declarations bind to one body."""

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args, get_type_hints

import pytest

from langchain_spectool._core.contracts import (
    Contract,
    ContractFields,
    Declaration,
    Reuse,
    contract_from,
    declaration,
    declare,
    declared,
)
from langchain_spectool.errors import ContractError, NotAvailableYet, SpectoolError, TaintedError


class FakeTool:
    """What `contracts` looks at in a tool, and nothing else."""

    def __init__(self, func: object = None, coroutine: object = None, name: str = "search") -> None:
        self.func, self.coroutine, self.name = func, coroutine, name

    def _run(self) -> str:
        return "run"

    async def _arun(self) -> str:
        return "arun"


class OtherBody(FakeTool):
    def _run(self) -> str:
        return "other"


class OtherAsyncBody(FakeTool):
    async def _arun(self) -> str:
        return "other"


class SameBody(FakeTool):
    pass


def _body(query: str) -> str:
    return query


async def _asynchronous(_: Any) -> bool:
    return True


def test_contract_defaults() -> None:
    """A contract without arguments allows early runs and nothing that needs another word."""
    contract = Contract()
    assert contract.early
    assert not contract.deterministic
    assert (contract.reuse, contract.audience, contract.inner_runs) == ("turn", "internal", "taint")
    assert contract.fresh_for_s is contract.timeout_s is contract.max_concurrency is None
    assert contract.tags == frozenset()


def test_contract_is_frozen() -> None:
    """What was checked once cannot change afterwards."""
    with pytest.raises(FrozenInstanceError):
        Contract().early = False  # type: ignore[misc]


def test_contract_accepts_every_field() -> None:
    """All fields of an early tool go together, and tags come from any iterable."""
    contract = contract_from(
        {
            "deterministic": True,
            "fresh_for_s": 5,
            "freshness": lambda args: 1,
            "reuse": "run",
            "audience": "local",
            "gate": lambda args: True,
            "key": lambda args: args,
            "tags": ["docs", "docs"],
            "timeout_s": 0.5,
            "max_concurrency": 2,
            "version": "2",
            "inner_runs": "omit",
        }
    )
    assert contract.tags == frozenset({"docs"})
    assert contract.fresh_for_s == 5


def test_contract_fields_name_the_fields_of_contract() -> None:
    """The typed keyword arguments never drift from the contract itself."""
    assert set(get_type_hints(ContractFields)) == {field.name for field in fields(Contract)}


@pytest.mark.parametrize("name", ["fresh_for_s", "timeout_s"])
@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), float("inf"), True, "5"], ids=repr)
def test_limits_in_seconds_are_positive_and_finite(name: str, value: object) -> None:
    """A limit that is no time is named with its value and the remedy."""
    with pytest.raises(ValueError, match=rf"`{name}` must be seconds above 0, or None") as raised:
        Contract(**{name: value})
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", float("nan")], ids=repr)
def test_max_concurrency_is_a_whole_number_from_1(value: Any) -> None:
    """Zero, fractions and flags are no number of runs."""
    with pytest.raises(ValueError, match="`max_concurrency` must be a whole number from 1"):
        Contract(max_concurrency=value)


def test_zero_concurrency_names_the_way_to_say_never() -> None:
    """Whoever writes 0 most likely wants `early=False`."""
    with pytest.raises(ValueError, match="early=False"):
        Contract(max_concurrency=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("reuse", "forever"), ("audience", "everyone"), ("inner_runs", True), ("reuse", [])],
)
def test_unknown_words_list_the_known_ones(name: str, value: object) -> None:
    """A wrong word is answered with the right ones."""
    with pytest.raises(ValueError, match=rf"`{name}` must be one of \w+, \w+.*got") as raised:
        Contract(**{name: value})
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("name", ["early", "deterministic"])
@pytest.mark.parametrize("value", ["no", 0, None], ids=repr)
def test_flags_are_booleans(name: str, value: object) -> None:
    """`early="no"` would be true, so only booleans count."""
    with pytest.raises(ValueError, match=f"`{name}` must be True or False"):
        Contract(**{name: value})


@pytest.mark.parametrize("value", ["docs", b"docs", [""], [1], [["a"]], 7, None], ids=repr)
def test_tags_are_strings_in_an_iterable(value: Any) -> None:
    """A bare string would become one tag per letter."""
    with pytest.raises(ValueError, match="`tags` must be non-empty strings"):
        Contract(tags=value)


def test_version_is_a_string() -> None:
    """`version=2` and `version="2"` must not be two versions."""
    with pytest.raises(ValueError, match="`version` must be a string, got 2"):
        Contract(version=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["freshness", "gate", "key"])
@pytest.mark.parametrize("value", ["mtime", _asynchronous], ids=["string", "coroutine"])
def test_functions_are_plain_functions(name: str, value: object) -> None:
    """A coroutine function would only ever return a coroutine, which is true."""
    with pytest.raises(ValueError, match=f"`{name}` must be a plain function"):
        Contract(**{name: value})


@pytest.mark.parametrize("reuse", ["thread", "tenant", "global"])
def test_later_reuse_is_not_available_yet(reuse: Reuse) -> None:
    """The names are known, the work is not done."""
    with pytest.raises(NotAvailableYet, match=f"`reuse='{reuse}'` is not available yet"):
        Contract(reuse=reuse)


def test_every_word_of_reuse_is_either_available_or_announced() -> None:
    """No word falls between the two."""
    assert get_args(Reuse) == ("turn", "run", "thread", "tenant", "global")


@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, True, "1"])
def test_price_is_dollars(value: Any) -> None:
    """A price that cannot be one is refused by name; nothing, and a price of 0, are fine."""
    with pytest.raises(ValueError, match="`cost_usd` must be dollars from 0"):
        Contract(cost_usd=value)
    assert [Contract(cost_usd=usd).cost_usd for usd in (None, 0, 0.01)] == [None, 0, 0.01]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "60"])
def test_rate_is_above_zero(value: Any) -> None:
    """A limit of calls per minute is a number above 0."""
    with pytest.raises(ValueError, match="`calls_per_minute` must be a number above 0"):
        Contract(calls_per_minute=value)


EARLY_FIELDS: dict[str, object] = {
    "deterministic": True,
    "fresh_for_s": 5.0,
    "freshness": len,
    "reuse": "run",
    "audience": "external",
    "gate": bool,
    "key": dict,
    "timeout_s": 1.0,
    "max_concurrency": 1,
    "cost_usd": 0.01,
    "calls_per_minute": 60.0,
    "inner_runs": "omit",
}


@pytest.mark.parametrize("name", EARLY_FIELDS)
def test_early_false_contradicts_what_only_early_runs_need(name: str) -> None:
    """A limit on runs that never happen is a mistake somewhere."""
    with pytest.raises(ValueError, match=f"`{name}=.*early=False"):
        Contract(early=False, **{name: EARLY_FIELDS[name]})


def test_early_false_keeps_its_description() -> None:
    """What a tool reads and its version describe it either way."""
    contract = Contract(early=False, tags=frozenset({"docs"}), version="2")
    assert not contract.early
    described = {"early", "tags", "version", "trusted_output"}
    assert EARLY_FIELDS.keys() == {field.name for field in fields(Contract)} - described


def test_errors_form_one_tree() -> None:
    """Each leaf is a SpectoolError and the built-in error a caller expects."""
    assert issubclass(ContractError, SpectoolError)
    assert issubclass(ContractError, TypeError)
    assert issubclass(NotAvailableYet, SpectoolError)
    assert issubclass(NotAvailableYet, NotImplementedError)
    assert issubclass(TaintedError, SpectoolError)


def test_undeclared_by_default() -> None:
    """Nothing is declared: no tool, no class, no other object."""
    for thing in (FakeTool(_body), FakeTool, object(), None, "search", int):
        assert declared(thing) is None


def test_declare_binds_to_the_object() -> None:
    """A twin with the same name and body stays undeclared."""
    tool, twin = FakeTool(_body), FakeTool(_body)
    declare(tool, Contract(version="1"))
    assert declared(tool) == Contract(version="1")
    assert declared(twin) is None
    assert declared(FakeTool) is None


def test_declaring_again_replaces() -> None:
    """The last word counts."""
    tool = FakeTool(_body)
    declare(tool, Contract())
    declare(tool, Contract(early=False))
    assert declared(tool) == Contract(early=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda tool: setattr(tool, "func", lambda query: query),
        lambda tool: setattr(tool, "coroutine", _asynchronous),
        lambda tool: setattr(tool, "name", "other"),
        lambda tool: setattr(tool, "__class__", OtherBody),
        lambda tool: setattr(tool, "__class__", OtherAsyncBody),
        lambda tool: setattr(tool, "_run", _body),
    ],
    ids=["func", "coroutine", "name", "_run of the class", "_arun of the class", "_run of its own"],
)
def test_another_body_or_name_loses_the_declaration(change: Callable[[FakeTool], None]) -> None:
    """Whatever runs now is not what was declared; the record is still there to be explained."""
    tool = FakeTool(_body)
    declare(tool, Contract())
    change(tool)
    assert declared(tool) is None
    assert isinstance(declaration(tool), Declaration)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_with_the_same_body_keeps_the_declaration(
    duplicate: Callable[[FakeTool], FakeTool],
) -> None:
    """Frameworks copy tools; what runs is still what was declared."""
    tool = FakeTool(_body)
    declare(tool, Contract())
    assert declared(duplicate(tool)) == Contract()


def test_a_bound_method_as_body_keeps_the_declaration() -> None:
    """The tool holds one method object, and that is the one that was declared."""
    tool = FakeTool(FakeTool()._run)
    declare(tool, Contract())
    assert declared(tool) == Contract()
    assert declared(copy.deepcopy(tool)) == Contract()


def test_a_pickled_tool_keeps_the_declaration() -> None:
    """The record adds nothing that cannot travel with the tool."""
    tool = FakeTool(_body)
    declare(tool, Contract(version="1"))
    assert declared(pickle.loads(pickle.dumps(tool))) == Contract(version="1")  # noqa: S301


def test_class_declaration_holds_for_instances_and_same_bodied_subclasses() -> None:
    """Instances may choose their name; the class's body is what was declared."""

    class Tool(FakeTool):
        pass

    class Sub(Tool):
        pass

    declare(Tool, Contract(version="1"))
    for thing in (Tool, Sub, Tool(), Tool(name="other"), Sub()):
        assert declared(thing) == Contract(version="1")
    assert declared(FakeTool()) is None


@pytest.mark.parametrize("name", ["_run", "_arun"])
def test_subclass_with_another_body_loses_the_class_declaration(name: str) -> None:
    """An overriding body was never declared, sync or async."""

    class Tool(FakeTool):
        pass

    declare(Tool, Contract())
    sub = type("Sub", (Tool,), {name: lambda self: "other"})
    assert declared(sub) is None
    assert declared(sub()) is None
    declare(sub, Contract(version="2"))
    assert declared(sub()) == Contract(version="2")


def test_class_body_replaced_later_loses_the_class_declaration() -> None:
    """Patching the class changes what runs."""

    class Tool(FakeTool):
        def _run(self) -> str:
            return "declared"

    declare(Tool, Contract())
    Tool._run = lambda self: "patched"  # type: ignore[method-assign]
    assert declared(Tool) is None
    assert declared(Tool()) is None


def test_object_stands_before_class_even_when_it_no_longer_fits() -> None:
    """A lost narrow declaration must not fall back to a wide one."""

    class Tool(FakeTool):
        pass

    declare(Tool, Contract())
    tool = Tool()
    declare(tool, Contract(early=False))
    assert declared(tool) == Contract(early=False)
    tool.name = "other"
    assert declared(tool) is None


def test_a_forged_record_is_no_declaration() -> None:
    """Only `declare` makes records."""
    tool = FakeTool(_body)
    declare(FakeTool(_body), Contract())
    tool.__dict__["_spectool_declaration"] = Contract()
    assert declared(tool) is None
