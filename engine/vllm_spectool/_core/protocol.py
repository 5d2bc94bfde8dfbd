"""The words on the wire. `engine/PROTOCOL.md` explains them."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_spectool._core.entries import Entry
from vllm_spectool._core.params import Call

VERSION = 1
KEY_HEADER = "X-Spectool-Key"
REQUEST_ID_HEADER = "X-Request-Id"
CONTINUATION = "spectool.continuation"
"""`object` of the marker between two turns of a stream."""
PATHS = ("/cache-tool-output", "/v1/cache-tool-output")
"""Where outputs are posted, each followed by `/{response_id}`."""
STATUS_PATH = "/v1/cache-tool-output"


def response_id(request_id: str) -> str:
    """Return the id of the response to a request with this `X-Request-Id`."""
    return f"chatcmpl-{request_id}"


def turn_id(response: str, turn: int) -> str:
    """Return the id of a turn, counted from 0: the response's own, then `<id>.1`."""
    return f"{response}.{turn}" if turn else response


def resolved(calls: Sequence[Call], outputs: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return one record for each call the server answered, in order."""
    return [
        {
            "tool_call_id": call.id,
            "name": call.name,
            "params": dict(call.params),
            "output_sha256": output.output_sha256,
        }
        for call, output in zip(calls, outputs, strict=True)
    ]


def marker(
    response: str, *, created: int, model: str, turn: int, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what stands in a stream before turn `turn`, which is 1 or more."""
    return {
        "id": response,
        "object": CONTINUATION,
        "created": created,
        "model": model,
        "choices": [],
        "spectool": continuation(turn, records),
    }


def continuation(turn: int, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is said of the calls answered before turn `turn`."""
    return {"version": VERSION, "turn": turn, "resolved": [dict(record) for record in records]}


def with_continuations(
    turns: Sequence[Mapping[str, Any]], records: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Fold ordinary responses, one for each turn, into the one of a request that does not stream.

    Args:
        turns: At least one; each is what a round trip would have answered.
        records: What was resolved after each turn but the last.
    """
    answered: list[dict[str, Any]] = [
        {**response, "spectool": continuation(index + 1, records[index])}
        if index < len(records)
        else dict(response)
        for index, response in enumerate(turns)
    ]
    first, *rest = answered
    if rest:
        first["spectool"]["continuations"] = rest
    return first


def status(*, on: Sequence[str], reason: str | None, limits: Mapping[str, float]) -> dict[str, Any]:
    """Return the answer to `GET /v1/cache-tool-output`.

    Args:
        on: `o3` where responses go on in place, `o2` where arguments are drafted.
        reason: Why something that was asked for is not on.
        limits: What `EntryLimits.on_the_wire` returns.
    """
    return {"version": VERSION, "on": list(on), "reason": reason, "limits": dict(limits)}
