"""Renders conversations as one style writes them."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vllm_spectool._core.params import parse_arguments
from vllm_spectool.errors import RenderingError
from vllm_spectool.reference.styles import Style
from vllm_spectool.reference.tokenizer import Tokenizer


class ChatTemplate:
    """Renders and encodes the conversation of one request."""

    def __init__(
        self, style: Style, tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]]
    ) -> None:
        self._style = style
        self._tokenizer = tokenizer
        self._tools = list(tools)

    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the tokens of a conversation and of the opening of the answer.

        Raises:
            RenderingError: A message is not of the shape that the template reads.
        """
        try:
            said = [_message(message) for message in messages]
            text = _compiled(self._style.source).render(messages=said, tools=self._tools)
        except (TemplateError, AttributeError, TypeError) as error:
            msg = f"the chat template {self._style.name!r} cannot write this: {error}"
            raise RenderingError(msg) from error
        return self._tokenizer.encode(text, special=True)


@cache
def _compiled(source: str) -> JinjaTemplate:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _to_json
    return environment.from_string(source)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Read a message as vLLM does before it renders: content as text, arguments parsed."""
    made = {**message, "content": _content(message.get("content"))}
    if message.get("tool_calls"):
        made["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    return made


def _content(content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content
    blocks = cast("list[Mapping[str, Any]]", content)
    if not isinstance(content, list) or any(block.get("type") != "text" for block in blocks):
        msg = "content must be text or a list of text blocks"
        raise RenderingError(msg)
    return "\n".join(str(block.get("text", "")) for block in blocks)


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = cast("Mapping[str, Any]", call.get("function") or {})
    arguments = parse_arguments(str(function.get("arguments") or "{}"))
    if arguments is None or not isinstance(function.get("name"), str):
        msg = "a tool call must have a name, and a JSON object as its arguments"
        raise RenderingError(msg)
    return {**call, "function": {**function, "arguments": arguments}}
