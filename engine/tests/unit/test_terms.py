"""Opting in, and what rules a continuation out."""

from typing import Any

import pytest

from vllm_spectool._core.terms import Sampling, drafts_key, is_opted_in, key_digest, room


@pytest.mark.parametrize(
    ("fields", "bar"),
    [
        ({}, None),
        ({"seed": 0}, "seed"),
        ({"stop": ["x"]}, "stop"),
        ({"stop_token_ids": [1]}, "stop"),
        ({"n": 2}, "n"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"beam_search": True}, "beam_search"),
        ({"grammar": True}, "grammar"),
    ],
)
def test_what_cannot_be_kept_bars(fields: dict[str, Any], bar: str | None) -> None:
    """Each by its name, 0 being a value like any other."""
    assert Sampling(**fields).bar == bar


@pytest.mark.parametrize(
    "key", [None, 7, "", "k" * 21, "k" * 257, "k" * 30 + " ", "é" * 30, "k" * 30 + "\n"]
)
def test_what_is_no_key_has_no_digest(key: object) -> None:
    """Too short, too long, no string, or not what a header can carry."""
    assert key_digest(key) is None


def test_digests_tell_keys_apart() -> None:
    """And do not show them."""
    one, other = key_digest("k" * 22), key_digest("l" * 22)
    assert one is not None
    assert one != other
    assert "kkk" not in one


@pytest.mark.parametrize(
    ("extra", "opted_in"),
    [(None, False), ({}, False), ({"other": 1}, False), ({"spectool_key": None}, True)],
)
def test_naming_a_key_opts_in(extra: dict[str, Any] | None, opted_in: bool) -> None:
    """Whether it is one is another question."""
    assert is_opted_in(extra) is opted_in


@pytest.mark.parametrize(
    ("max_tokens", "prompt_tokens", "granted"),
    [(None, 6, 4), (3, 6, 3), (4, 6, 4), (5, 6, None), (None, 10, None), (1, 11, None)],
)
def test_room_is_what_a_round_trip_gets(
    max_tokens: int | None, prompt_tokens: int, granted: int | None
) -> None:
    """All of what was asked, or nothing."""
    assert room(max_tokens, prompt_tokens=prompt_tokens, context_tokens=10) == granted


@pytest.mark.parametrize("value", [0, "0"])
def test_a_request_may_do_without_drafts(value: object) -> None:
    """As a number or as text; with a key that is none it does without them anyway."""
    key = "k" * 32
    assert drafts_key({"spectool_key": key}) == key_digest(key)
    assert drafts_key({"spectool_key": key, "spectool_drafts": 1}) == key_digest(key)
    assert drafts_key({"spectool_key": key, "spectool_drafts": value}) is None
    assert drafts_key({"spectool_key": "short"}) is None
    assert drafts_key({}) is None
    assert drafts_key(None) is None
