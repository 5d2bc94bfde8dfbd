"""What an engine answered, and whether a request goes on from it exactly: pure functions of JSON.

A request goes on from an answer if it is the request before, plus the assistant's message as the
engine wrote it, plus one tool message per call whose content is the output the engine already
has. Nothing else may differ: then the engine's next answer is what the request would get.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_spectool._core.encoding import attempt
from langchain_spectool.engines.sse import data_of, is_done

CONTINUATION = "spectool.continuation"
VERSION = 1

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A call as the engine wrote it."""

    id: str
    name: str
    params: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An assistant's message as the engine wrote it."""

    content: str
    calls: tuple[AnsweredCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCall:
    """A call whose output the engine has put in place."""

    tool_call_id: str
    name: str
    params: Json
    output_sha256: str


def sha256_of(content: str) -> str:
    """Return the digest by which the engine names an output."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def same_json(one: object, other: object) -> bool:
    """Say whether two JSON values are equal in value and type; the order of keys is no matter."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# --- what the engine wrote


def marker_in(event: bytes) -> tuple[ResolvedCall, ...] | None:
    """Return the resolved calls of the event that announces another turn; None for any other."""
    data = data_of(event)
    if data is None or CONTINUATION.encode() not in data:
        return None
    said = _object(attempt(json.loads, data))
    return resolved_in(said.get("spectool")) if said.get("object") == CONTINUATION else None


def resolved_in(report: object) -> tuple[ResolvedCall, ...] | None:
    """Return the resolved calls that a `spectool` field lists; None if it is not understood."""
    fields = _object(report)
    records = [_record(each) for each in _objects(fields.get("resolved"))]
    known = [record for record in records if record is not None]
    understood = fields.get("version") == VERSION and known and len(known) == len(records)
    return (*known,) if understood else None


def _record(fields: Json) -> ResolvedCall | None:
    call_id, name = fields.get("tool_call_id"), fields.get("name")
    params, digest = fields.get("params"), fields.get("output_sha256")
    if isinstance(call_id, str) and isinstance(name, str) and isinstance(digest, str):
        return ResolvedCall(
            tool_call_id=call_id, name=name, params=_object(params), output_sha256=digest
        )
    return None


def answer_in_stream(events: Iterable[bytes]) -> Answer | None:
    """Put together the one answer that `events` stream; None if it is not a plain one."""
    return attempt(_answer_in_stream, events)


def _answer_in_stream(events: Iterable[bytes]) -> Answer | None:
    text: list[str] = []
    calls: dict[int, list[str]] = {}
    for event in events:
        data = data_of(event)
        if data is None or is_done(event):
            continue
        for choice in _objects(_object(json.loads(data)).get("choices")):
            if choice["index"] != 0:
                return None
            delta = _object(choice.get("delta"))
            text.append(delta.get("content") or "")
            for part in _objects(delta.get("tool_calls")):
                _add(calls.setdefault(part["index"], ["", "", ""]), part)
    return _answer("".join(text), [calls[index] for index in sorted(calls)])


def _add(call: list[str], part: Json) -> None:
    function = _object(part.get("function"))
    call[0] += part.get("id") or ""
    call[1] += function.get("name") or ""
    call[2] += function.get("arguments") or ""


def answer_in_response(response: Mapping[str, Any]) -> Answer | None:
    """Return the one answer of a whole response; None if it is not a plain one."""
    return attempt(_answer_in_response, response)


def _answer_in_response(response: Mapping[str, Any]) -> Answer | None:
    choices = cast("Sequence[Json]", response["choices"])
    if len(choices) != 1:
        return None
    message = cast("Json", choices[0]["message"])
    calls = [
        [call["id"], call["function"]["name"], call["function"]["arguments"]]
        for call in message.get("tool_calls") or ()
    ]
    return _answer(message.get("content") or "", calls)


def _answer(content: str, calls: Iterable[Sequence[str]]) -> Answer:
    return Answer(
        content=content,
        calls=tuple(
            AnsweredCall(id=call_id, name=name, params=_parsed(arguments))
            for call_id, name, arguments in calls
        ),
    )


def _parsed(arguments: str) -> Json:
    found = json.loads(arguments)
    if not isinstance(found, dict):
        raise TypeError(arguments)
    return cast("Json", found)


# --- what is asked next


def goes_on(asked: bytes, answer: Answer, resolved: Sequence[ResolvedCall], request: bytes) -> bool:
    """Say whether `request` is `asked` plus `answer` plus exactly the outputs in `resolved`."""
    return attempt(_goes_on, asked, answer, resolved, request) is True


def may_go_on(asked: bytes, answer: Answer, request: bytes) -> bool:
    """Say the same as far as can be told before it is known what was resolved."""
    return attempt(_tool_messages, asked, answer, request) is not None


def is_about(asked: bytes, request: bytes) -> bool:
    """Say whether `request` is a later one of the conversation of `asked`."""
    return attempt(_is_about, asked, request) is True


def _is_about(asked: bytes, request: bytes) -> bool:
    before, after = json.loads(asked)["messages"], json.loads(request)["messages"]
    return len(after) > len(before) and same_json(after[: len(before)], before)


def _goes_on(
    asked: bytes, answer: Answer, resolved: Sequence[ResolvedCall], request: bytes
) -> bool:
    outputs = _tool_messages(asked, answer, request)
    by_id = {record.tool_call_id: record for record in resolved}
    return outputs is not None and all(
        _is_resolved(call, output, by_id.get(call.id))
        for call, output in zip(answer.calls, outputs, strict=True)
    )


def _is_resolved(call: AnsweredCall, output: str, record: ResolvedCall | None) -> bool:
    return (
        record is not None
        and record.name == call.name
        and same_json(record.params, call.params)
        and record.output_sha256 == sha256_of(output)
    )


def _tool_messages(asked: bytes, answer: Answer, request: bytes) -> list[str] | None:
    """Return the outputs, in order, with which `request` goes on; None if it differs in more."""
    before, after = cast("Json", json.loads(asked)), cast("Json", json.loads(request))
    old, new = cast("list[Json]", before.pop("messages")), cast("list[Json]", after.pop("messages"))
    added = new[len(old) :]
    fits = (
        answer.calls
        and len(added) == 1 + len(answer.calls)
        and same_json(before, after)
        and same_json(old, new[: len(old)])
        and _is_answer(added[0], answer)
    )
    if not fits:
        return None
    return [_output(*pair) for pair in zip(added[1:], answer.calls, strict=True)]


def _output(message: Json, call: AnsweredCall) -> str:
    content = message.get("content")
    plain = {"role": "tool", "content": content, "tool_call_id": call.id}
    if not isinstance(content, str) or message != plain:
        raise ValueError(message)
    return content


def _is_answer(message: Json, answer: Answer) -> bool:
    """Say whether the client's words for the answer are the engine's: no field more."""
    content = message.get("content")
    plain = {"role": "assistant", "content": content, "tool_calls": message.get("tool_calls")}
    calls = _objects(message.get("tool_calls"))
    return (
        {"content": None, **message} == plain
        and (content or "") == answer.content
        and len(calls) == len(answer.calls)
        and all(map(_is_call, calls, answer.calls))
    )


def _is_call(said: Json, call: AnsweredCall) -> bool:
    function = _object(said.get("function"))
    plain = {"id": call.id, "type": "function", "function": function}
    arguments = {"name": call.name, "arguments": function.get("arguments")}
    return (
        said == plain
        and function == arguments
        and same_json(_parsed(function["arguments"]), call.params)
    )


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return (
        [_object(each) for each in cast("list[object]", value)] if isinstance(value, list) else []
    )
