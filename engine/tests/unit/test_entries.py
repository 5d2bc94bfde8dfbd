"""What is read out of a post; the contract suite has the refusals."""

import json
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_spectool._core.entries import EntryLimits, parse_entries
from vllm_spectool.errors import MalformedError, RejectedError, TooLargeError

LIMITS = EntryLimits(body_bytes=10_000, entry_bytes=500, entries=3, keep_alive_s=100)


def parsed(*entries: Any) -> Any:
    """Read the first of `entries` as posted."""
    return parse_entries(json.dumps(entries).encode(), LIMITS)[0]


def test_an_entry_has_defaults() -> None:
    """No arguments, the server's time to live, any number of uses."""
    entry = parsed({"name": "a", "output": "x"})
    assert (entry.params, entry.keep_alive_s, entry.uses) == ({}, 60.0, None)
    assert entry.key == parsed({"name": "a", "params": {}, "output": "y"}).key


@pytest.mark.parametrize(
    ("output", "content", "message_content"),
    [
        ("x", "x", "x"),
        ("", "", ""),
        (None, "null", "null"),
        ({"é": 1.0}, '{"é": 1.0}', '{"é": 1.0}'),
        (["x"], '["x"]', '["x"]'),
        ([], "[]", []),
        (
            [{"type": "text", "text": "x"}],
            '[{"type": "text", "text": "x"}]',
            [{"type": "text", "text": "x"}],
        ),
        ([{"type": "mine"}], '[{"type": "mine"}]', '[{"type": "mine"}]'),
    ],
)
def test_content_is_what_a_tool_message_carries(
    output: Any, content: str, message_content: Any
) -> None:
    """A string is itself, blocks are blocks, all else is its JSON text."""
    entry = parsed({"name": "a", "output": output})
    assert (entry.content, entry.message_content) == (content, message_content)
    assert entry.output_sha256 == sha256(content.encode()).hexdigest()
    assert entry.texts


def test_an_image_is_no_text() -> None:
    """So it cannot be written in place."""
    text, image = {"type": "text", "text": "x"}, {"type": "image_url", "image_url": "u"}
    assert parsed({"name": "a", "output": [text, text]}).texts == ("x", "x")
    for output in ([image], [text, image], [{"type": "text"}], [{"type": "text", "text": 1}]):
        assert parsed({"name": "a", "output": output}).texts == ()


def test_keep_alive_is_cut_to_the_limit() -> None:
    """A client need not know it."""
    assert parsed({"name": "a", "output": 1, "keep_alive": 1e9}).keep_alive_s == 100
    assert parsed({"name": "a", "output": 1, "keep_alive": 0.5}).keep_alive_s == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [("keep_alive", True), ("keep_alive", "1"), ("uses", True), ("uses", 1.0), ("uses", None)],
)
def test_a_number_is_a_number(name: str, value: Any) -> None:
    """True is none in JSON, whatever Python says."""
    with pytest.raises(MalformedError) as refused:
        parsed({"name": "a", "output": 1, name: value})
    assert refused.value.field == f"[0].{name}"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([{"name": "a", "output": "x" * 500}]),
        json.dumps([{"name": "a", "output": 1}] * 4),
        " " * 10_001,
    ],
)
def test_too_large_is_told_from_malformed(body: str) -> None:
    """By its own error, which has its own status."""
    with pytest.raises(TooLargeError) as refused:
        parse_entries(body.encode(), LIMITS)
    assert refused.value.status == 413


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_raises_anything_else(body: bytes) -> None:
    """A server answers, whatever it is sent."""
    with suppress(RejectedError):
        parse_entries(body, LIMITS)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2) | st.just({})
            for name in ("name", "params", "output", "keep_alive", "uses", "other")
        },
    )
)
def test_a_refused_field_is_named(fields: dict[str, Any]) -> None:
    """The field that is named is one that is wrong: with it mended, another is named, or none."""
    good: dict[str, Any] = {"name": "a", "params": {}, "output": 1, "keep_alive": 2, "uses": 2}
    for _ in range(len(good) + 2):
        try:
            parsed(fields)
        except MalformedError as refused:
            name = str(refused.field).removeprefix("[0].")
            assert name not in good or fields.get(name) != good[name]
            fields = {key: value for key, value in fields.items() if key != name}
            fields |= {name: good[name]} if name in good else {}
        else:
            return
    pytest.fail("never right")
