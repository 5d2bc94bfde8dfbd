"""The words on the wire; the contract suite has the rest."""

from typing import Any

import pytest

from vllm_spectool._core.protocol import response_id, turn_id, with_continuations
from vllm_spectool.errors import MalformedError, TooLargeError, UnableError, UnauthorizedError


def test_ids_are_the_requests() -> None:
    """So a client can post before it has asked."""
    assert response_id("abc") == "chatcmpl-abc"
    assert [turn_id("chatcmpl-abc", turn) for turn in range(3)] == [
        *("chatcmpl-abc", "chatcmpl-abc.1", "chatcmpl-abc.2")
    ]


def test_one_turn_is_an_ordinary_response() -> None:
    """Nothing is added to it."""
    assert with_continuations([{"id": "a"}], []) == {"id": "a"}


def test_each_resolved_turn_says_what_was_resolved() -> None:
    """The first has the others, too."""
    one, two = [{"tool_call_id": "x"}], [{"tool_call_id": "y"}]
    folded = with_continuations([{"id": "a"}, {"id": "a.1"}, {"id": "a.2"}], [one, two])
    assert folded == {
        "id": "a",
        "spectool": {
            "version": 1,
            "turn": 1,
            "resolved": one,
            "continuations": [
                {"id": "a.1", "spectool": {"version": 1, "turn": 2, "resolved": two}},
                {"id": "a.2"},
            ],
        },
    }


@pytest.mark.parametrize(
    ("error", "status"), [(MalformedError, 400), (TooLargeError, 413), (UnableError, 501)]
)
def test_refusals_are_worded_as_vllms(error: Any, status: int) -> None:
    """With the field at fault."""
    refused = error("why", field="[0].name")
    assert refused.status == status
    assert (
        refused.body["error"].items()
        >= {
            "message": "why",
            "param": "[0].name",
            "code": status,
        }.items()
    )


def test_a_missing_key_of_the_server_is_refused_as_vllm_does() -> None:
    """Its own words."""
    assert UnauthorizedError("Unauthorized").body == {"error": "Unauthorized"}
