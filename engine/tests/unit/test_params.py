"""When two calls are the same call, and what is no JSON."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_spectool._core.params import MOST_LEVELS, Call, call_key, parse_arguments, parse_json

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)


def same(one: Any, other: Any) -> bool:
    """Compare by JSON value and type: the oracle."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and one == other == 0:
        return math.copysign(1, one) == math.copysign(1, other)
    return one == other


@given(OBJECTS, OBJECTS)
def test_keys_are_equal_where_values_and_types_are(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Neither more nor less."""
    assert (call_key("a", one) == call_key("a", other)) == same(one, other)


@given(OBJECTS)
def test_neither_order_nor_json_changes_a_key(params: dict[str, Any]) -> None:
    """Posted, sent and parsed again, a call has the key it had."""
    turned = dict(reversed(params.items()))
    assert call_key("a", parse_json(json.dumps(turned))) == call_key("a", params)
    assert call_key(
        "a", parse_arguments(Call(name="a", params=params).arguments) or {}
    ) == call_key("a", params)


@pytest.mark.parametrize(
    "others", [[1, 1.0, True, "1", [1], {"1": 1}], [0, False, None, "", [], {}], [0.0, -0.0]]
)
def test_types_tell_values_apart(others: list[Any]) -> None:
    """As JSON writes them."""
    assert len({call_key("a", {"x": each}) for each in others}) == len(others)


def test_names_tell_calls_apart() -> None:
    """And cannot be written so that they run into the arguments."""
    keys = {call_key("a", {}), call_key("a", {"a": {}}), call_key('a",{}', {}), call_key("A", {})}
    assert len(keys) == 4


DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"x": DEEP}


@pytest.mark.parametrize(
    "params",
    [{"x": math.nan}, {"x": math.inf}, {"x": "\ud800"}, {"x": object()}, {"x": {1, 2}}, DEEP],
)
def test_what_has_no_exact_text_has_no_key(params: dict[str, Any]) -> None:
    """A ValueError, whatever is wrong."""
    with pytest.raises(ValueError, match=r".+"):
        call_key("a", params)


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", "1e999", '{"a": 1, "a": 2}', '"\\ud800"', b"\xff", "[" * 10**6],
)
def test_what_is_no_strict_json_is_refused(text: str | bytes) -> None:
    """A ValueError, whatever is wrong."""
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "params"), [("", {}), ("{}", {}), ('{"a": 1}', {"a": 1}), ("[1]", None), ("{", None)]
)
def test_arguments_are_an_object(text: str, params: dict[str, Any] | None) -> None:
    """No arguments at all are an empty one."""
    assert parse_arguments(text) == params


def test_what_is_nested_too_deeply_is_refused() -> None:
    """Long before Python refuses to: what is read can be written wherever it is needed."""
    for opening, closing in (("[", "]"), ('{"a": ', "}")):
        text = opening * MOST_LEVELS + "1" + closing * MOST_LEVELS
        assert parse_json(text)
        with pytest.raises(ValueError, match=f"more than {MOST_LEVELS} levels"):
            parse_json(opening + text + closing)
