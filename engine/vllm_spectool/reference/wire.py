"""What a client reads: chat completions in the shapes that vLLM gives them."""

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_spectool._core.protocol import turn_id
from vllm_spectool.reference.calls import Parsed
from vllm_spectool.reference.request import ChatRequest, Output, call_id
from vllm_spectool.reference.styles import Style
from vllm_spectool.reference.tokenizer import Tokenizer

DONE = "data: [DONE]\n\n"
_FRAGMENT = 12
"""Characters of a call's arguments that one chunk carries."""


def event(data: Mapping[str, Any]) -> str:
    """Write one event of a stream."""
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def error_body(message: str, *, kind: str = "BadRequestError", code: int = 400) -> dict[str, Any]:
    """Return an error as vLLM words it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@dataclass(slots=True, kw_only=True)
class TurnText:
    """Reads one turn out of its tokens, as far as they have come."""

    style: Style
    tokenizer: Tokenizer
    stop_id: int
    reads_calls: bool
    """Whether calls are read out of the text at all."""
    text: str = ""
    tokens: int = 0
    _sent: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, token_ids: tuple[int, ...], *, ended: bool) -> None:
        """Take the next tokens."""
        self.tokens += len(token_ids)
        data = self.tokenizer.bytes_of(each for each in token_ids if each != self.stop_id)
        self.text += self._decoder.decode(data, final=ended)

    def content(self) -> str:
        """Return content that is certain to be content, and was not returned before."""
        upto = len(self.text)
        if self.reads_calls:
            opening = self.style.opening
            found = self.text.find(opening)
            upto = found if found >= 0 else upto - _overlap(self.text, opening)
            # A line break before a call belongs to it.
            upto -= self.text[:upto].endswith("\n")
        new = self.text[self._sent : upto]
        self._sent = max(self._sent, upto)
        return new

    def parsed(self) -> Parsed:
        """Read the whole turn."""
        return self.style.read(self.text) if self.reads_calls else Parsed(self.text, ())

    def rest(self) -> str:
        """Return the content that `content` held back and that the whole turn has after all."""
        whole = self.parsed().content or ""
        return whole[self._sent :]


def _overlap(text: str, opening: str) -> int:
    """Return how many of the last characters may be the start of `opening`."""
    sizes = range(min(len(opening) - 1, len(text)), 0, -1)
    return next((size for size in sizes if opening.startswith(text[-size:])), 0)


@dataclass(slots=True, kw_only=True)
class TurnWriter:
    """Writes one turn: as chunks while it comes, or as one response."""

    request: ChatRequest
    turn: int
    prompt_tokens: int
    created: int
    model: str
    text: TurnText

    def opening(self) -> str:
        """Return the chunk that names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def feed(self, output: Output) -> None:
        """Take tokens without writing anything."""
        self.text.feed(output.token_ids, ended=output.end != "open")

    def stream(self, output: Output) -> Iterator[str]:
        """Take tokens; return chunks, with the end of the turn if this is it."""
        self.feed(output)
        content = self.text.content()
        if content:
            yield self._chunk({"content": content})
        if output.end != "open":
            yield from self._ending(output.finish_reason)

    def response(self, finish_reason: str) -> dict[str, Any]:
        """Return the turn as one response."""
        parsed = self.text.parsed()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": parsed.content if parsed.calls else parsed.content or "",
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if parsed.calls:
            message["tool_calls"] = list(self._calls(parsed))
        choice = {
            "index": 0,
            "message": {**message, "reasoning": None},
            "logprobs": None,
            "finish_reason": self._reason(finish_reason, parsed),
            "stop_reason": None,
            "token_ids": None,
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def _ending(self, finish_reason: str) -> Iterator[str]:
        parsed = self.text.parsed()
        rest = self.text.rest()
        if rest:
            yield self._chunk({"content": rest})
        for index, call in enumerate(self._calls(parsed)):
            function = call.pop("function")
            named = {"name": function["name"], "arguments": ""}
            yield self._chunk({"tool_calls": [{"index": index, **call, "function": named}]})
            for start in range(0, len(function["arguments"]), _FRAGMENT):
                fragment = {"arguments": function["arguments"][start : start + _FRAGMENT]}
                yield self._chunk({"tool_calls": [{"index": index, "function": fragment}]})
        reason = self._reason(finish_reason, parsed)
        yield self._chunk({}, {"finish_reason": reason, "stop_reason": None, "token_ids": None})
        if self.request.include_usage:
            head = self._head("chat.completion.chunk")
            yield event({**head, "choices": [], "usage": self._usage()})
        yield DONE

    def _calls(self, parsed: Parsed) -> Iterator[dict[str, Any]]:
        for index, call in enumerate(parsed.calls or ()):
            yield {
                "id": call_id(self.request.id, self.turn, index),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }

    def _reason(self, finish_reason: str, parsed: Parsed) -> str:
        return "tool_calls" if parsed.calls and finish_reason == "stop" else finish_reason

    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.text.tokens,
            "completion_tokens": self.text.tokens,
            "prompt_tokens_details": None,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": turn_id(self.request.id, self.turn),
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def _chunk(self, delta: Mapping[str, Any], ending: Mapping[str, Any] | None = None) -> str:
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": None}
        choice |= ending or {}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})
