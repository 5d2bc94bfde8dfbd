"""Where the values of a guess come from, for those who must not send them everywhere."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_spectool._core.contracts import declared
from langchain_spectool._core.guess import Origin
from langchain_spectool.speculators.patterns.bindings import Choice
from langchain_spectool.speculators.patterns.history import History
from langchain_spectool.speculators.patterns.values import text_of


def trusted_tools(tools: Sequence[Any]) -> frozenset[str]:
    """Return the names of the tools whose authors vouch for their output."""
    return frozenset(
        str(tool.name) for tool in tools if getattr(declared(tool), "trusted_output", False)
    )


def origins_of(
    choices: Mapping[str, Choice], history: History, trusted: Collection[str]
) -> dict[str, Origin]:
    """Return the origin of each argument's value.

    What the user said is the user's, whoever else says it too. What any untrusted output holds
    is untrusted, even where the model has repeated it.
    """
    return {name: _origin(choice, history, trusted) for name, choice in choices.items()}


def _origin(choice: Choice, history: History, trusted: Collection[str]) -> Origin:
    text = choice.text
    if choice.source[0] == "user" or any(_holds(said.raw, text) for said, _ in history.users):
        return "user"
    holder = _holder(text, history, trusted)
    if holder is not None:
        return holder
    if choice.source[0] in {"model", "arg", "same"} or _was_given(text, history):
        return "reasoning"
    return "constant"


def _holder(text: str, history: History, trusted: Collection[str]) -> Origin | None:
    """Return whose output holds `text`: one that nobody vouches for decides."""
    held = history.notes.get(("holder", text), False)
    if held is False:
        held = None
        for output in reversed(history.outputs):  # most values come from a late one
            if (held is None or output.tool not in trusted) and _shows(output.parsed.raw, text):
                held = "trusted_output" if output.tool in trusted else "untrusted_output"
                if held == "untrusted_output":
                    break
        history.notes["holder", text] = held
    return held


def _shows(raw: str, text: str) -> bool:
    """Whether an output holds `text`, as it is or as JSON would write it."""
    return text in raw or (not text.isascii() and text_of([text])[2:-2] in raw)


def _holds(raw: str, text: str) -> bool:
    """Whether `text` stands in `raw` as a word of its own."""
    at = raw.find(text)
    while at >= 0:
        before, after = raw[at - 1 : at], raw[at + len(text) : at + len(text) + 1]
        if not (before.isalnum() or after.isalnum()):
            return True
        at = raw.find(text, at + 1)
    return False


def _was_given(text: str, history: History) -> bool:
    return any(text in used for used in history.used.values())
