"""The model: a plain function from what it reads to what it says next."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_spectool._core.params import Call
from vllm_spectool.reference.styles import Style
from vllm_spectool.reference.tokenizer import Tokenizer

_RESPONSE = re.compile(r"\n?<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """One message, as it stands in the prompt."""

    role: str
    """`tool` for an output, whatever the template calls it."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a model reads at the start of a turn: the tokens, and readings of them."""

    token_ids: tuple[int, ...]
    text: str
    said: tuple[Said, ...]
    """Messages, told apart by special tokens alone: their texts within a message change nothing."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools of the request, as it names them."""

    @property
    def last(self) -> Said:
        """The newest message; an empty one of `system` if there is none."""
        return self.said[-1] if self.said else Said("system", "")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Texts of the tool messages since the newest message that is none, in order."""
        found: list[str] = []
        for each in reversed(self.said):
            if each.role != "tool":
                break
            found.append(each.text)
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a model says: content, then calls."""

    content: str = ""
    calls: Sequence[Call] = field(default_factory=tuple[Call, ...])


Model = Callable[[Prompt], Turn | str]
"""Deterministic. A string is the turn's raw text, tags and all; the stop token follows by itself.
Whatever it raises ends the request with an error."""


def call(name: str, **params: Any) -> Turn:
    """Return a turn that is one call."""
    return Turn(calls=(Call(name=name, params=params),))


def scripted(*turns: Turn | str) -> Model:
    """Return a model that says `turns[k]` after k turns of its own, and "Done." after the last."""

    def say(prompt: Prompt) -> Turn | str:
        own = sum(each.role == "assistant" for each in prompt.said)
        return turns[own] if own < len(turns) else "Done."

    return say


def laptop_model(prompt: Prompt) -> Turn | str:
    """Call the tool that a user's message names, or else the first; answer with its output.

    Arguments that are required are filled from the message: text in quotes, numbers, else its
    last word. Without tools, it repeats what it was told.
    """
    if prompt.outputs:
        return f"The answer is: {'; '.join(prompt.outputs)}"
    functions = [tool["function"] for tool in prompt.tools]
    if not functions or prompt.last.role != "user":
        return f"You said: {prompt.last.text}"
    named = [each for each in functions if each["name"] in prompt.last.text]
    chosen = (named or functions)[0]
    return Turn(calls=(Call(name=chosen["name"], params=_filled(chosen, prompt.last.text)),))


def read_prompt(
    token_ids: Sequence[int],
    *,
    tokenizer: Tokenizer,
    style: Style,
    tools: Sequence[Mapping[str, Any]],
) -> Prompt:
    """Read back the messages that stand in `token_ids`."""
    header_end = "<|end_header_id|>" if "<|end_header_id|>" in style.special_tokens else None
    said: list[Said] = []
    role = ""
    for token, text in _stretches(token_ids, tokenizer):
        if token == header_end and header_end is not None:
            said += _split(role, text.removeprefix("\n\n"))
        elif token in {"<|im_start|>", "<|start_header_id|>"}:
            role, _, rest = text.partition("\n")
            said += [] if header_end else _split(role, rest)
    if said and said[-1].role == "assistant" and not said[-1].text:
        said.pop()  # the opening of the answer
    return Prompt(
        token_ids=tuple(token_ids),
        text=tokenizer.decode(token_ids),
        said=tuple(said),
        tools=tuple(tools),
    )


def _stretches(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Return each special token with the text up to the next one."""
    starts = [index for index, each in enumerate(token_ids) if tokenizer.is_special(each)]
    ends = [*starts[1:], len(token_ids)]
    return [
        (
            tokenizer.decode(token_ids[start : start + 1]),
            tokenizer.decode(token_ids[start + 1 : end]),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _split(role: str, text: str) -> list[Said]:
    outputs = _RESPONSE.findall(text) if role == "user" else []
    if outputs:
        return [Said("tool", output) for output in outputs]
    return [Said("tool" if role == "ipython" else role, text)]


def _filled(function: Mapping[str, Any], text: str) -> dict[str, Any]:
    schema: Mapping[str, Any] = function.get("parameters") or {}
    quoted = re.findall(r"[\"'“]([^\"'”]+)[\"'”]", text)
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
    words = re.findall(r"\w+", text) or [""]
    filled: dict[str, Any] = {}
    for name in schema.get("required", ()):
        kind = schema.get("properties", {}).get(name, {}).get("type", "string")
        filled[name] = _value(kind, quoted, numbers, words[-1])
    return filled


def _value(kind: str, quoted: list[str], numbers: list[str], word: str) -> object:
    if kind in {"integer", "number"}:
        number = float(numbers.pop(0)) if numbers else 0.0
        return int(number) if kind == "integer" else number
    if kind == "boolean":
        return True
    empty: dict[str, object] = {"array": [], "object": {}}
    return empty.get(kind, quoted.pop(0) if quoted else word)
