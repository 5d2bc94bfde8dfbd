"""Keys are equal exactly when the bodies of the tools receive equal values."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
)

from langchain_spectool._core.keys import call_key, prepared
from tests.unit.keyed_tools import (
    BY_NAME,
    anything,
    body_values,
    configured,
    leaves,
    lookup,
    names,
    nothing,
    number,
    served,
    shaped,
    values,
    variadic,
    zerodef,
)


def same(one: Any, other: Any) -> bool:
    """Say by hand what equal in value and type means."""
    if type(one) is not type(other):
        return False
    if isinstance(one, BaseModel):
        return same(vars(one), vars(other))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return repr(one) == repr(other) or (isinstance(one, set) and one == other)


FITTING: dict[str, st.SearchStrategy[Any]] = {
    "lookup": st.fixed_dictionaries(
        {"order_id": leaves}, optional={"unit": values, "note": values}
    ),
    "shaped": st.fixed_dictionaries(
        {
            "place": st.fixed_dictionaries({"city": values}, optional={"zip_code": values}),
            "units": st.lists(st.sampled_from(["c", "f", "x"]), max_size=2),
        },
        optional={"kind": values},
    ),
    "zerodef": st.fixed_dictionaries({"n": leaves}, optional={"k": leaves}),
    "number": st.fixed_dictionaries({"x": leaves}),
    "anything": st.fixed_dictionaries({"x": values}),
    "collected": st.fixed_dictionaries({"x": st.lists(leaves, max_size=3)}),
    "single": st.dictionaries(names, values, min_size=1, max_size=1),
}
few = st.dictionaries(st.sampled_from(["x", "n", "unit"]), leaves, max_size=3)
many = st.dictionaries(names, values, max_size=4)


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=60)
@given(data=st.data())
def test_keys_are_equal_exactly_when_bodies_receive_equal_values(name: str, data: Any) -> None:
    """For any two argument dicts, the key agrees with two real runs of the tool."""
    each = BY_NAME[name]
    drawn = FITTING.get(name, few) | few | many
    one, other = data.draw(drawn), data.draw(drawn)
    before = copy.deepcopy([one, other])
    keys = [call_key(each, args) for args in (one, other)]
    assert [one, other] == before
    bodies = [body_values(each, args) for args in (one, other)]
    for args, key, body in zip((one, other), keys, bodies, strict=True):
        predicted = prepared(each).values(args)
        if body is None:
            # Raw arguments may miss the signature, which only the body itself can tell.
            assert key is None or each.name in {"by_json_schema", "raw"}
        else:
            assert predicted is not None
            assert same(predicted, body)
    if None not in bodies:
        assert (keys[0] == keys[1]) == same(*bodies)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_tool_runs_for_some_arguments(name: str) -> None:
    """The property above is not empty for any of the tools."""
    tried = [{}, {"x": 1}, {"n": 1}, {"order_id": 1}, {"place": {"city": "a"}, "units": ["c"]}]
    tried.append({"x": [1]})
    assert any(body_values(BY_NAME[name], args) is not None for args in tried)


SAME = {
    "B01 whole float": (lookup, {"order_id": 1}, {"order_id": 1.0}),
    "B01 digits": (lookup, {"order_id": 1}, {"order_id": "1"}),
    "B01 digits of a whole float": (lookup, {"order_id": 1}, {"order_id": "1.0"}),
    "B01 boolean": (lookup, {"order_id": 1}, {"order_id": True}),
    "B03 default given": (lookup, {"order_id": 5}, {"order_id": 5, "unit": "c"}),
    "B03 null default given": (lookup, {"order_id": 5}, {"order_id": 5, "note": None}),
    "B03 falsy default given": (zerodef, {"n": 1}, {"n": 1, "k": 0}),
    "B03 unknown argument": (lookup, {"order_id": 5}, {"order_id": 5, "bogus": 1}),
    "B04 key order": (lookup, {"order_id": 5, "unit": "f"}, {"unit": "f", "order_id": 5}),
    "B04 nested key order": (
        anything,
        {"x": {"a": 1, "b": [1, {"c": 1, "d": 2}]}},
        {"x": {"b": [1, {"d": 2, "c": 1}], "a": 1}},
    ),
    "B05 null": (nothing, None, {}),
    "B05 empty string": (nothing, "", {}),
    "B05 null beside a default": (variadic, None, {"n": 1}),
    "no parameters": (nothing, {"bogus": 1}, {}),
    "no fields": (BY_NAME["Empty"], {"bogus": 1}, {}),
    "B18 forged injected value": (served, {"n": 1}, {"n": 1, "runtime": "forged"}),
    "what the framework adds": (configured, {"n": 1}, {"n": 1, "config": 2, "callbacks": 3}),
}


@pytest.mark.parametrize("case", SAME)
def test_same(case: str) -> None:
    """Two spellings of one call have one key."""
    each, one, other = SAME[case]
    assert call_key(each, one) is not None
    assert call_key(each, one) == call_key(each, other)


DIFFERENT = {
    "B01 any float": (anything, {"x": 1}, {"x": 1.0}),
    "B01 any boolean": (anything, {"x": 1}, {"x": True}),
    "B01 any false": (anything, {"x": 0}, {"x": False}),
    "B01 any string": (anything, {"x": 1}, {"x": "1"}),
    "B03 the word None": (lookup, {"order_id": 5}, {"order_id": 5, "note": "None"}),
    "B03 empty string": (lookup, {"order_id": 5}, {"order_id": 5, "note": ""}),
    "B03 null for a falsy default": (zerodef, {"n": 1}, {"n": 1, "k": None}),
    "B04 list order": (anything, {"x": {"b": [1, 2]}}, {"x": {"b": [2, 1]}}),
    "B04 mapping and pairs": (anything, {"x": {"a": 1}}, {"x": [["a", 1]]}),
    "B04 number as key": (anything, {"x": {"1": 1}}, {"x": {1: 1}}),
    "B07 composed and decomposed": (anything, {"x": "Z\u00fcrich"}, {"x": "Zu\u0308rich"}),
    "B07 trailing space": (anything, {"x": "a"}, {"x": "a "}),
    "B07 lone surrogates": (anything, {"x": "\ud83d"}, {"x": "\ud83e"}),
    "B07 zero width": (anything, {"x": "\u200bpay"}, {"x": "pay"}),
    "B43 joined strings": (anything, {"x": ["web", 12, 3]}, {"x": ["web", 1, 23]}),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_different(case: str) -> None:
    """Two calls that a body can tell apart have two keys."""
    each, one, other = DIFFERENT[case]
    keys = call_key(each, one), call_key(each, other)
    assert None not in keys
    assert keys[0] != keys[1]


NOT_A_CALL = {
    "B01 not whole": (lookup, {"order_id": 1.5}),
    "B03 null for a string": (lookup, {"order_id": 5, "unit": None}),
    "missing": (lookup, {}),
    "B05 list": (nothing, []),
    "B05 scalar": (nothing, 3),
    "B05 doubly encoded": (lookup, '{"order_id": 5}'),
    "B05 false": (nothing, False),
    "not a number": (number, {"x": float("nan")}),
    "opaque": (anything, {"x": object()}),
    "number as name": (BY_NAME["by_json_schema"], {1: 1}),
    "two for one": (BY_NAME["single"], {"a": 1, "b": 2}),
    "none for one": (BY_NAME["single"], {}),
    "no tool": (object(), {}),
}


@pytest.mark.parametrize("case", NOT_A_CALL)
def test_not_a_call(case: str) -> None:
    """What cannot be a call, or not be written exactly, has no key."""
    each, args = NOT_A_CALL[case]
    assert call_key(each, args) is None


def test_values_of_a_body_have_the_key_of_the_call() -> None:
    """The key of what arrived equals the key of what was asked, whatever the order."""
    found = prepared(lookup)
    values = {"note": None, "unit": "c", "order_id": 5}
    assert found.values_key(values) == call_key(lookup, {"order_id": "5"})
    assert found.values_key({"order_id": object()}) is None
    assert found.values_key(3) is None  # type: ignore[arg-type]


def test_exact_keys_tell_set_fields_apart() -> None:
    """A nested model whose default was spelled out is equal, but not exactly."""
    found = prepared(shaped)
    one, other = (
        found.values({"place": place, "units": []})
        for place in ({"city": "a"}, {"city": "a", "zip_code": None})
    )
    assert one is not None
    assert other is not None
    assert found.values_key(one) == found.values_key(other)
    assert found.values_key(one, exact=True) != found.values_key(other, exact=True)
