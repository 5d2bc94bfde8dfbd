"""JSON outputs as flat lists under wildcard paths."""

import json

import pytest

from langchain_spectool.speculators.patterns.paths import flat, names_of, parsed


def test_lists_and_fields_become_paths() -> None:
    """Elements of a list share one path."""
    found = flat({"orders": [{"id": "a"}, {"id": "b"}], "open": True})
    assert [leaf.text for leaf in found.leaves["$.orders[*].id"]] == ["a", "b"]
    assert found.leaves["$.open"][0].value is True


@pytest.mark.parametrize(
    "value",
    [
        {"9690244451": {"price": 3}, "7706410293": {"price": 4}},
        {"anna@example.org": {"price": 3}, "bob@example.org": {"price": 4}},
        {"Action Camera": {"price": 3}, "Tea Kettle": {"price": 4}},
        {chr(97 + n): {"price": n} for n in range(20)},
    ],
)
def test_keys_that_are_data_become_wildcards(value: dict[str, object]) -> None:
    """No path spells out an id, an address or an entry's name."""
    found = flat(value)
    assert set(found.leaves) == {"${key}", "${*}.price"}
    assert [leaf.text for leaf in found.leaves["${key}"]] == list(value)


def test_values_of_one_record_share_its_number() -> None:
    """Origin and date of one flight belong together, those of two flights do not."""
    found = flat([{"from": "x", "day": "1"}, {"from": "y", "day": "2"}])
    starts, days = found.leaves["$[*].from"], found.leaves["$[*].day"]
    assert [leaf.record for leaf in starts] == [leaf.record for leaf in days]
    assert starts[0].record != starts[1].record


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$.order_id", "order_id"),
        ("$.orders[*]", "order_id"),
        ("$.user.id", "user_id"),
        ("$.productId", "product_id"),
        ("$.categories[*]", "category_id"),
    ],
)
def test_paths_suggest_argument_names(path: str, name: str) -> None:
    """A key, its singular, and a key with its parent's name may fill an argument."""
    assert name in names_of(path)


@pytest.mark.parametrize("text", ["", "plain", "{", "[" * 100_000, "{}" * 200_001])
def test_what_is_no_json_is_none(text: str) -> None:
    """Broken, deep and endless outputs are taken as text, not as an error."""
    assert parsed(text) is None


def test_sizes_are_capped() -> None:
    """A huge or deep output keeps only part of its values, and NaN none."""
    deep: object = "x"
    for _ in range(50):
        deep = {"a": deep}
    found = flat([*range(5_000), deep, json.loads("NaN"), "y" * 10_000])
    assert sum(map(len, found.leaves.values())) <= 1_500
