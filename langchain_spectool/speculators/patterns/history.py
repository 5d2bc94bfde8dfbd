"""What has happened in one conversation so far, kept up message by message."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from cachetools import LRUCache

from langchain_spectool.speculators.patterns.parsing import (
    Fingerprint,
    ParseCache,
    Parsed,
    fingerprint,
    size_of,
)
from langchain_spectool.speculators.patterns.paths import Leaf, names_of, singular
from langchain_spectool.speculators.patterns.shapes import Text
from langchain_spectool.speculators.patterns.values import key_of, text_of

START = "^"
USER = "U"
ERROR = "!"
MAX_MESSAGES = 400
"""Most messages of a conversation that are looked at."""
MAX_HELD = 6_000_000
"""Most characters of conversations that are held, all tenants together."""
_STEP = 100
_OVERHEAD = 2_000
"""Characters that a conversation counts for on top of its messages."""


class Output:
    """What a tool brought back, and in which call of the conversation."""

    __slots__ = ("parsed", "serial", "tool")

    def __init__(self, tool: str, parsed: Parsed, serial: int) -> None:
        """Hold a parsed tool message."""
        self.tool = tool
        self.parsed = parsed
        self.serial = serial

    def leaves(self, path: str) -> Sequence[Leaf]:
        """Return the values under `path`."""
        flat = self.parsed.flat
        return flat.leaves.get(path, ()) if flat else ()


class History:
    """A conversation up to a point, as the predictor reads it."""

    def __init__(self) -> None:
        """Start before the first message."""
        self.fingerprints: list[Fingerprint] = []
        self.size = _OVERHEAD
        """Characters that it counts for."""
        self.serial = 0
        self.events: list[str] = [START]
        self.users: list[tuple[Text, int]] = []
        """What the user said, and the serial of each message."""
        self.model_text: Text | None = None
        self.outputs: list[Output] = []
        self.last_output: dict[str, Output] = {}
        self.by_name: dict[str, list[tuple[Output, str]]] = {}
        self.args: dict[tuple[str, str], list[tuple[object, int]]] = {}
        """Every value the model gave an argument, oldest first, and the serial of its call."""
        self.used: dict[tuple[str, str], set[str]] = {}
        self.last_call: Mapping[str, Any] | None = None
        self.last_args: dict[str, Mapping[str, Any]] = {}
        self.called: dict[str, int] = {}
        """Serial of the last call that equalled this key."""
        self.tools_called: set[str] = set()
        self.year: str | None = None
        self.model_serial = 0
        self._pending: dict[str, str] = {}
        self.notes: dict[object, Any] = {}
        """What readers worked out about this very state; emptied by the next message."""

    @property
    def last_event(self) -> str:
        """The event before this turn."""
        return self.events[-1]

    @property
    def after_user(self) -> bool:
        """Whether the user spoke last."""
        return self.events[-1] in {USER, START}

    @property
    def latest_user(self) -> Text | None:
        """What the user just said; None if someone else spoke last."""
        return self.users[-1][0] if self.users and self.after_user else None

    def feed(self, message: Parsed) -> None:
        """Take the next message."""
        self.serial += 1
        self.notes.clear()
        if message.kind == "user":
            self.users.append((message.text, self.serial))
            self.events.append(USER)
        elif message.kind == "model":
            self._feed_model(message)
        elif message.kind == "tool":
            self._feed_output(message)
        dates = message.text.find("date") if message.kind != "model" else ()
        for date in dates:
            self.year = date[:4]

    def _feed_model(self, message: Parsed) -> None:
        if message.text.raw:
            self.model_text = message.text
            self.model_serial = self.serial
        for call in message.calls:
            if call.id is not None:
                self._pending[call.id] = call.tool
            self.called[key_of(call.tool, call.args)] = self.serial
            self.tools_called.add(call.tool)
            self.last_args[call.tool] = self.last_call = call.args
            for arg, value in call.args.items():
                self.used.setdefault((call.tool, arg), set()).add(text_of(value))
                self.args.setdefault((call.tool, arg), []).append((value, self.serial))

    def _feed_output(self, message: Parsed) -> None:
        tool = self._pending.pop(message.call_id or "", None) or message.name or "?"
        output = Output(tool, message, self.serial)
        self.outputs.append(output)
        self.last_output[tool] = output
        self.events.append(tool + ERROR if message.error else tool)
        if message.flat is None:
            return
        for path in message.flat.leaves:
            names = names_of(path) if path != "$" else _names_in(tool)
            for name in names:
                self.by_name.setdefault(name, []).append((output, path))


def _names_in(tool: str) -> Sequence[str]:
    """Return the arguments that a tool's plain answer may fill: `find_user_id` gives `user_id`."""
    parts = [singular(part) for part in tool.split("_")]
    pairs = ["_".join(parts[at : at + 2]) for at in range(len(parts) - 1)]
    return [singular(tool), *pairs]


class Histories:
    """The conversations seen last, each kept up to its newest message.

    They are bounded by characters, not by number: a few huge ones weigh as much as many small ones.
    """

    def __init__(self, size: int = MAX_HELD) -> None:
        """Keep conversations of `size` characters in all."""
        self._longest = size // 2
        self._cache = ParseCache()
        self._histories: LRUCache[Hashable, History] = LRUCache(size, lambda held: held.size)

    def at(self, messages: Sequence[object], owner: Hashable = None) -> History:
        """Return the conversation of `owner` as it stands after `messages`.

        It is valid until the next call: a longer conversation continues in the same object.
        Nothing of one owner is ever read for another.
        """
        messages = messages[max(0, (len(messages) - MAX_MESSAGES + _STEP - 1) // _STEP * _STEP) :]
        prints = [fingerprint(message) for message in messages]
        start = _start(prints, self._longest)
        messages, prints = messages[start:], prints[start:]
        key = owner, _name(prints)
        history = self._histories.get(key)
        if history is None or history.fingerprints != prints[: len(history.fingerprints)]:
            history = History()
        known = len(history.fingerprints)
        for print_, message in zip(prints[known:], messages[known:], strict=True):
            history.feed(self._cache.get(owner, print_, message))
            history.fingerprints.append(print_)
            history.size += size_of(print_)
        self._keep(key, history)
        return history

    def _keep(self, key: Hashable, history: History) -> None:
        """Hold it at its present size; those unused longest make room."""
        self._histories.pop(key, None)
        if history.size <= self._histories.maxsize:
            self._histories[key] = history


def _start(prints: Sequence[Fingerprint], most: int) -> int:
    """Return from which message on a conversation is read, so that it has `most` characters.

    Each time it is longer it is cut to half of that: the start stays for many turns.
    """
    start = held = 0
    for print_ in prints:
        held += size_of(print_)
        if held > most:
            while held > most // 2:
                held -= size_of(prints[start])
                start += 1
    return start


def _name(prints: Sequence[Fingerprint]) -> Fingerprint:
    """Return what tells conversations apart: what the user said first."""
    return next((print_ for print_ in prints if print_[0] == "user"), ("none",))
