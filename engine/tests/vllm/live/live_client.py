"""A client that shows everything a server says: token ids, usage, and what stands between turns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one turn said; ids are no part of its equality."""

    content: str
    calls: tuple[tuple[str, str], ...]
    finish_reason: str
    token_ids: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    usage: tuple[int, int, int]
    call_ids: tuple[str, ...] = field(compare=False)
    id: str = field(compare=False)
    logprobs: tuple[tuple[str, float], ...] = field(default=(), compare=False)


class Client:
    """Asks one server. Every request gets an id and a key of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self.http = httpx.Client(base_url=url, timeout=120, trust_env=False, **options)

    def post(
        self, request_id: str, key: str, outputs: Mapping[tuple[str, str], str], **fields: Any
    ) -> int:
        """Post an output for each call, named by tool and JSON arguments."""
        entries = [
            {"name": name, "params": json.loads(arguments), "output": output, **fields}
            for (name, arguments), output in outputs.items()
        ]
        path = f"/cache-tool-output/chatcmpl-{request_id}"
        answer = self.http.post(path, json=entries, headers={"X-Spectool-Key": key})
        answer.raise_for_status()
        return answer.json()["cached"]

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        stream: bool,
        outputs: Mapping[tuple[str, str], str] | None = None,
        **fields: Any,
    ) -> list[Turn]:
        """Send one request; with `outputs`, opted in and after posting them."""
        request_id, key = uuid4().hex, uuid4().hex
        body = {**defaults(messages, stream=stream), **fields}
        if outputs is not None:
            body["vllm_xargs"] = {"spectool_key": key}
            assert self.post(request_id, key, outputs, uses=1) == len(outputs)
        answer = self.http.post(
            "/v1/chat/completions", json=body, headers={"X-Request-Id": request_id}
        )
        assert answer.status_code == 200, answer.text
        turns = streamed(answer.text) if stream else whole(answer.json())
        assert [each.id for each in turns] == [
            f"chatcmpl-{request_id}" + (f".{index}" if index else "") for index in range(len(turns))
        ]
        return turns

    def round_trip(
        self,
        messages: Sequence[Mapping[str, Any]],
        outputs: Mapping[tuple[str, str], str],
        *,
        stream: bool,
        **fields: Any,
    ) -> list[Turn]:
        """Answer each call as an agent does, with a request for each turn."""
        history, turns = list(messages), list[Turn]()
        while True:
            (turn,) = self.ask(history, stream=stream, **fields)
            turns.append(turn)
            if not turn.calls or not all(each in outputs for each in turn.calls):
                return turns
            history += [said(turn), *results(turn, outputs)]

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry `labels`."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rsplit(" ", maxsplit=1)[1])
            for line in self.http.get("/metrics/").text.splitlines()
            if line.split("{", maxsplit=1)[0].split(" ", maxsplit=1)[0] == name
            and all(each in line for each in wanted)
        )


def defaults(messages: Sequence[Mapping[str, Any]], *, stream: bool) -> dict[str, Any]:
    """Return a greedy request whose answer names its token ids."""
    body = {
        "model": "smollm2",
        "messages": messages,
        "temperature": 0,
        "max_tokens": 80,
        "return_token_ids": True,
        "stream": stream,
    }
    return {**body, "stream_options": {"include_usage": True}} if stream else body


def said(turn: Turn) -> dict[str, Any]:
    """Return the message a client keeps of a turn that calls tools."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, (name, arguments) in zip(turn.call_ids, turn.calls, strict=True)
    ]
    return {"role": "assistant", "content": turn.content or None, "tool_calls": calls}


def results(turn: Turn, outputs: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    """Return the tools' messages for a turn."""
    return [
        {"role": "tool", "tool_call_id": call_id, "content": outputs[each]}
        for call_id, each in zip(turn.call_ids, turn.calls, strict=True)
    ]


def whole(first: Mapping[str, Any]) -> list[Turn]:
    """Read an answer that was not streamed."""
    rest = first.get("spectool", {}).get("continuations", [])
    return [_read(response) for response in (first, *rest)]


def streamed(text: str) -> list[Turn]:
    """Read a stream of turns, each closed by `[DONE]`."""
    turns, chunks, markers = list[Turn](), list[Mapping[str, Any]](), 0
    for event in filter(None, text.split("\n\n")):
        data = event.removeprefix("data: ")
        if data == "[DONE]":
            turns.append(_joined(chunks))
            chunks = []
            continue
        chunk = json.loads(data)
        assert "error" not in chunk, chunk
        if chunk["object"] == "spectool.continuation":
            markers += 1
        else:
            chunks.append(chunk)
    assert not chunks, "the stream ends without [DONE]"
    assert markers == len(turns) - 1
    return turns


def _read(response: Mapping[str, Any]) -> Turn:
    (choice,) = response["choices"]
    calls = choice["message"].get("tool_calls") or []
    usage = response["usage"]
    return Turn(
        content=choice["message"]["content"] or "",
        calls=tuple((each["function"]["name"], each["function"]["arguments"]) for each in calls),
        finish_reason=choice["finish_reason"],
        token_ids=tuple(choice["token_ids"]),
        prompt_token_ids=tuple(response["prompt_token_ids"]),
        usage=(usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
        call_ids=tuple(each["id"] for each in calls),
        id=response["id"],
        logprobs=_logprobs(choice),
    )


def _joined(chunks: Sequence[Mapping[str, Any]]) -> Turn:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    calls: dict[int, dict[str, str]] = {}
    for delta in (each for choice in choices for each in choice["delta"].get("tool_calls") or ()):
        call = calls.setdefault(delta["index"], {"id": "", "name": "", "arguments": ""})
        call["id"] += delta.get("id") or ""
        call["name"] += delta["function"].get("name") or ""
        call["arguments"] += delta["function"].get("arguments") or ""
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    usage = chunks[-1]["usage"]
    return Turn(
        content="".join(choice["delta"].get("content") or "" for choice in choices),
        calls=tuple((calls[index]["name"], calls[index]["arguments"]) for index in sorted(calls)),
        finish_reason=next(filter(None, (choice["finish_reason"] for choice in choices))),
        token_ids=tuple(each for choice in choices for each in choice.get("token_ids") or ()),
        prompt_token_ids=tuple(chunks[0]["prompt_token_ids"]),
        usage=(usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
        call_ids=tuple(calls[index]["id"] for index in sorted(calls)),
        id=chunks[0]["id"],
        logprobs=tuple(pair for choice in choices for pair in _logprobs(choice)),
    )


def _logprobs(choice: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    content = (choice.get("logprobs") or {}).get("content") or ()
    return tuple((each["token"], each["logprob"]) for each in content)
