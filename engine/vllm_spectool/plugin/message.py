"""Reads a turn back from what the client was sent: the message it will send with its results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from vllm_spectool._core.messages import assistant_message
from vllm_spectool._core.params import Call, parse_arguments

DATA = "data: "


@dataclass(slots=True)
class TurnReader:
    """Puts the chunks of one turn's stream together."""

    content: str = ""
    tool_calls: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    whole: bool = True
    """Whether no error was sent."""
    created: int = 0
    """When vLLM began the turn, in seconds since 1970."""
    model: str = ""

    def feed(self, event: str) -> None:
        """Read one server-sent event; what is no chunk of a choice is passed over."""
        if not event.startswith(DATA) or event.startswith(f"{DATA}[DONE]"):
            return
        chunk: dict[str, Any] = json.loads(event.removeprefix(DATA))
        self.whole = self.whole and "error" not in chunk
        self.created = chunk.get("created", self.created)
        self.model = chunk.get("model", self.model)
        for choice in chunk.get("choices") or ():
            self._take(choice.get("delta") or {})

    @property
    def message(self) -> dict[str, Any] | None:
        """The assistant's message; None where the stream broke off."""
        if not self.whole:
            return None
        calls = [self.tool_calls[index] for index in sorted(self.tool_calls)]
        return assistant_message(self.content, calls)

    def _take(self, delta: Mapping[str, Any]) -> None:
        self.content += delta.get("content") or ""
        for part in delta.get("tool_calls") or ():
            call = self.tool_calls.setdefault(
                part["index"], {"id": "", "name": "", "arguments": ""}
            )
            function: Mapping[str, Any] = part.get("function") or {}
            call["id"] = part.get("id") or call["id"]
            call["name"] += function.get("name") or ""
            call["arguments"] += function.get("arguments") or ""


def message_of(response: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the assistant's message of a response that was not streamed."""
    choices = cast("list[dict[str, Any]]", response.get("choices") or [])
    if len(choices) != 1:
        return None
    message = choices[0]["message"]
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()]
    return assistant_message(message.get("content") or "", calls)


def calls_of(message: Mapping[str, Any]) -> list[Call] | None:
    """Return the calls of a message; None where one has no arguments that could be compared."""
    calls: list[Call] = []
    for each in message.get("tool_calls") or ():
        params = parse_arguments(each["function"]["arguments"])
        if params is None:
            return None
        calls.append(Call(id=each["id"], name=each["function"]["name"], params=params))
    return calls
