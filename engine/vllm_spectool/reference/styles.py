"""Three ways to write a conversation, as models differ in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from vllm_spectool._core.params import Call
from vllm_spectool.reference.calls import (
    Parsed,
    hermes_read,
    hermes_write,
    json_read,
    json_write,
)

_CHATML = """\
{%- if tools %}{{ '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}
{{- '# Tools\n' }}{% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{{ '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}{{ '<|im_start|>assistant\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{ '\n' }}{% endif %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- ARGUMENTS + '}\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}
{%- endif %}{{ '\n<tool_response>\n' + (message.content or '') + '\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
{%- elif not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}{{ '<|im_start|>assistant\n' }}"""

_LLAMA = """\
{{- '<|begin_of_text|>' }}
{%- if tools %}{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{{ '<|eot_id|>' }}{% endif %}
{%- for message in messages %}
{%- set role = 'ipython' if message.role == 'tool' else message.role %}
{{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
{%- if message.role == 'tool' %}{{ message.content | tojson }}
{%- elif message.tool_calls %}
{%- for call in message.tool_calls %}{% if not loop.first %}{{ '; ' }}{% endif %}
{{- '{"name": "' + call.function.name + '", "parameters": ' }}
{{- call.function.arguments | tojson + '}' }}{% endfor %}
{%- else %}{{ message.content or '' }}{% endif %}{{ '<|eot_id|>' }}
{%- endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """A chat template, its special tokens, and how its model writes and a server reads calls."""

    name: str
    source: str
    special_tokens: tuple[str, ...]
    stop_token: str
    opening: str
    """What begins the text of a call: from there on, a stream waits for the end of the turn."""
    write: Callable[[str, Sequence[Call]], str]
    """Write a turn as its model does, without the stop token."""
    read: Callable[[str], Parsed]
    """Read a turn as its server does."""


_HERMES = {
    "special_tokens": ("<|im_start|>", "<|im_end|>"),
    "stop_token": "<|im_end|>",
    "opening": "<tool_call>",
    "write": hermes_write,
    "read": hermes_read,
}
CHATML = Style(
    name="chatml",
    source=_CHATML.replace("ARGUMENTS", "call.function.arguments | tojson"),
    **cast("dict[str, Any]", _HERMES),
)
"""ChatML with Hermes calls: never drifts from what its model wrote."""
DRIFTING = Style(
    name="drifting",
    source=_CHATML.replace("ARGUMENTS", "call.function.arguments | tojson(indent=2)"),
    **cast("dict[str, Any]", _HERMES),
)
"""Writes arguments otherwise than its model: every continuation is a `template_drift`."""
LLAMA = Style(
    name="llama",
    source=_LLAMA,
    special_tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    stop_token="<|eot_id|>",  # noqa: S106 - a token of a text
    opening='{"name"',
    write=json_write,
    read=json_read,
)
"""Llama 3 headers and JSON calls: writes outputs as JSON strings, so it changes some of them."""
STYLES: Mapping[str, Style] = {style.name: style for style in (CHATML, LLAMA, DRIFTING)}
