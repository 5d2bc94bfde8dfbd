"""Answers as an engine writes them, byte by byte, and a network that plays them."""

import asyncio
import functools
import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_spectool.engines.answers import sha256_of
from langchain_spectool.engines.libraries import library_of

URL = "http://engine/v1/chat/completions"
CALL = ("c1", "weather", {"city": "Rome"})
OUTPUT = "18C"

Json = dict[str, Any]


def event(data: object, end: str = "\n") -> bytes:
    """Write one event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"data: {text}{end}{end}".encode()


def chunk(answer_id: str, delta: Json, finish: str | None = None) -> Json:
    """Write a chunk of an answer."""
    return {
        "id": answer_id,
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def usage(answer_id: str, prompt: int, completion: int) -> Json:
    """Write the chunk that counts tokens."""
    tokens = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return {
        "id": answer_id,
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": tokens,
    }


def calling(answer_id: str = "chatcmpl-a", *calls: tuple[str, str, Json], end: str = "\n") -> bytes:
    """Stream an answer that makes calls."""
    parts = [chunk(answer_id, {"role": "assistant", "content": ""})]
    for index, (call_id, name, args) in enumerate(calls or (CALL,)):
        text = json.dumps(args)
        head = {"index": index, "id": call_id, "type": "function"}
        named = {**head, "function": {"name": name, "arguments": text[:5]}}
        parts.append(chunk(answer_id, {"tool_calls": [named]}))
        more = {"index": index, "function": {"arguments": text[5:]}}
        parts.append(chunk(answer_id, {"tool_calls": [more]}))
    parts += [chunk(answer_id, {}, "tool_calls"), usage(answer_id, 10, 5)]
    return b"".join(event(part, end) for part in parts) + event("[DONE]", end)


def saying(text: str = "sunny", answer_id: str = "chatcmpl-a.1", end: str = "\n") -> bytes:
    """Stream an answer that says something."""
    parts = [
        chunk(answer_id, {"role": "assistant", "content": ""}),
        chunk(answer_id, {"content": text}),
        chunk(answer_id, {}, "stop"),
        usage(answer_id, 30, 2),
    ]
    return b"".join(event(part, end) for part in parts) + event("[DONE]", end)


def record(call: tuple[str, str, Json] = CALL, output: str = OUTPUT) -> Json:
    """Say that a call was resolved with an output."""
    call_id, name, params = call
    digest = sha256_of(output)
    return {"tool_call_id": call_id, "name": name, "params": params, "output_sha256": digest}


def marker(*records: Json, turn: int = 1, end: str = "\n") -> bytes:
    """Announce that another answer follows."""
    report = {"version": 1, "turn": turn, "resolved": [*(records or (record(),))]}
    said = {
        "id": "chatcmpl-a",
        "object": "spectool.continuation",
        "created": 1,
        "model": "m",
        "choices": [],
        "spectool": report,
    }
    return event(said, end)


ASKED: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def assistant(*calls: tuple[str, str, Json]) -> Json:
    """Write the assistant's message as ChatOpenAI sends it back."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "type": "function",
                "id": call_id,
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for call_id, name, args in calls or (CALL,)
        ],
    }


def tool_message(call_id: str = "c1", content: Any = OUTPUT) -> Json:
    """Write the tool's message as ChatOpenAI sends it."""
    return {"role": "tool", "content": content, "tool_call_id": call_id}


def next_request(asked: Json = ASKED, *added: Json, **fields: Any) -> Json:
    """Return the request that goes on from `asked`."""
    more = [*added] or [assistant(), tool_message()]
    return {**asked, "messages": [*asked["messages"], *more], **fields}


BOTH = calling() + marker() + saying()
"""Two turns in one response."""
JSON: Mapping[str, str] = {"content-type": "application/json"}
PLAIN = {key: value for key, value in ASKED.items() if key != "stream"}
"""Asks for an answer in one piece."""


def whole(message: Json, answer_id: str = "chatcmpl-a", **fields: Any) -> Json:
    """Write an answer in one piece."""
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": answer_id, "object": "chat.completion", "choices": [choice], **fields}


@dataclass
class Play:
    """One response of the network."""

    chunks: Sequence[bytes | float | Exception] = ()
    """What arrives: bytes, seconds of waiting (awaited ones only), or what is raised."""
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"content-type": "text/event-stream; charset=utf-8"}
    )
    pulled: int = 0
    ended: bool = False
    closed: bool = False


class _Chunks:
    """A body that notes how far it was read."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def __iter__(self) -> Iterator[bytes]:
        for part in self._play.chunks:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, bytes):
                self._play.pulled += 1
                yield part
        self._play.ended = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._play.chunks:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, bytes):
                self._play.pulled += 1
                yield part
            else:
                await asyncio.sleep(part)
        self._play.ended = True

    def close(self) -> None:
        self._play.closed = True

    async def aclose(self) -> None:
        self._play.closed = True


class Network:
    """A transport of either library that plays responses in turn, and notes what was asked."""

    def __init__(self, *plays: Play) -> None:
        self.plays = [*plays]
        self.bodies: list[Json] = []
        self.closed = 0
        self.contents: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []

    def _play(self, request: Any) -> Any:
        self.contents.append(request.content)
        self.bodies.append(json.loads(request.content))
        self.headers.append(dict(request.headers))
        play = self.plays[len(self.bodies) - 1]
        body = _body_of(type(request).__module__.partition(".")[0])(play)
        return library_of(request).response(play.status, headers=play.headers, stream=body)

    def handle_request(self, request: Any) -> Any:
        return self._play(request)

    async def handle_async_request(self, request: Any) -> Any:
        return self._play(request)

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


@functools.cache
def _body_of(name: str) -> Callable[[Play], Any]:
    module: Any = importlib.import_module(name)
    return type("Body", (_Chunks, module.SyncByteStream, module.AsyncByteStream), {})
