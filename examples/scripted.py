"""Stands in for a language model: follows a script, at a stated number of tokens a second.

Only the words are scripted. What a turn says is computed from the messages so far, that is from
what the tools really returned. With a key, pass `--model provider:name` and none of this runs.
"""

import json
import re
from collections.abc import Callable, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from langchain_spectool.testing import ScriptedModel, Turn

TOKENS_PER_S = 60.0
"""Pace of the main model."""
DRAFT_TOKENS_PER_S = 300.0
"""Pace of the draft model."""

Script = Callable[[Sequence[BaseMessage]], AIMessage]
"""Computes an agent's next message from all messages before it."""

_TOKEN = re.compile(r"\w{1,5}|[^\w\s]{1,2}")
"""About what a tokenizer does to English and JSON: pieces of up to five characters."""


def paced(script: Script, tokens_per_s: float) -> ScriptedModel:
    """Make a chat model that takes the time each of its messages would take to write."""

    def turn(messages: list[BaseMessage]) -> Turn:
        message = script(messages)
        number = len(exchanges(messages))
        for position, made in enumerate(message.tool_calls):
            made["id"] = f"call_{number}_{position}"
        written = message.text + json.dumps([[m["name"], m["args"]] for m in message.tool_calls])
        return Turn(message=message, generation_s=len(_TOKEN.findall(written)) / tokens_per_s)

    return ScriptedModel(script=turn)


def say(text: str, *calls: ToolCall) -> AIMessage:
    """Make a message of a text and tool calls."""
    return AIMessage(text, tool_calls=list(calls))


def call(name: str, **args: object) -> ToolCall:
    """Make a tool call; `paced` numbers it."""
    return ToolCall(name=name, args=args, id=None, type="tool_call")


def exchanges(messages: Sequence[BaseMessage]) -> list[list[tuple[ToolCall, str]]]:
    """Pair, turn by turn, each call the model made with the text its tool returned."""
    texts = {each.tool_call_id: each.text for each in messages if isinstance(each, ToolMessage)}
    return [
        [(made, texts[made["id"] or ""]) for made in each.tool_calls]
        for each in messages
        if isinstance(each, AIMessage)
    ]
