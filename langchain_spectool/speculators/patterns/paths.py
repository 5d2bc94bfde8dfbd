"""JSON outputs as flat lists of values under wildcard paths.

`$.orders[*].id` is every `id` in the list `orders`; `$.variants{*}.price` every `price` in a
mapping whose keys are data, and `$.variants{key}` those keys. A key is data if it does not read
like a name a programmer chose, so that no path spells out an id.
"""

import json
import math
import re
from typing import NamedTuple, cast

from langchain_spectool.speculators.patterns.shapes import words_of
from langchain_spectool.speculators.patterns.values import MAX_TEXT

MAX_JSON = 200_000
"""Longest output, in characters, that is parsed as JSON."""
_MAX_DEPTH = 8
_MAX_LEAVES = 1_500
_MANY_KEYS = 12
_NAMES = 12
_NAME = re.compile(r"[A-Za-z_][A-Za-z_-]{0,39}")
_SCALARS = (str, int, float, bool)

Scalar = str | int | float | bool


class Leaf(NamedTuple):
    """One value of an output."""

    text: str
    """The value's text, by which it is compared."""
    value: Scalar
    record: int
    """Number of the JSON object it is in: values of one record belong together."""


class Flat:
    """An output's values by path, and the words that name its records."""

    __slots__ = ("_count", "_words", "leaves", "names")

    def __init__(self) -> None:
        """Start with nothing."""
        self.leaves: dict[str, list[Leaf]] = {}
        self.names: dict[int, list[str]] = {}
        self._count = 0
        self._words: dict[int, frozenset[str]] = {}

    def add(self, path: str, value: Scalar, record: int) -> None:
        """Keep a value, unless it is too long or there are too many."""
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text) <= MAX_TEXT and self._count < _MAX_LEAVES:
            self._count += 1
            self.leaves.setdefault(path, []).append(Leaf(text, value, record))

    @property
    def full(self) -> bool:
        """Whether no more values are kept."""
        return self._count >= _MAX_LEAVES

    def name(self, record: int, text: str) -> None:
        """Keep a text that tells a record from its neighbours."""
        self.names.setdefault(record, []).append(text)

    def words(self, record: int) -> frozenset[str]:
        """Return the words of the texts that name a record."""
        words = self._words.get(record)
        if words is None:
            names = self.names.get(record, ())
            words = self._words[record] = words_of(" ".join(names[:_NAMES]))
        return words


def parsed(text: str) -> object | None:
    """Return the JSON object or list that `text` is; None if it is none, or too long or deep."""
    text = text.strip()
    if text[:1] not in {"{", "["} or len(text) > MAX_JSON:
        return None
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None


def flat(value: object) -> Flat:
    """Return the values of a parsed output by wildcard path, in document order."""
    found = Flat()
    _walk(found, "$", value, 0, 0)
    return found


def _walk(found: Flat, path: str, value: object, record: int, depth: int) -> None:
    if depth > _MAX_DEPTH or found.full:
        return
    if isinstance(value, dict):
        _walk_object(found, path, cast("dict[str, object]", value), depth)
    elif isinstance(value, list):
        for item in cast("list[object]", value)[:_MAX_LEAVES]:
            _walk(found, f"{path}[*]", item, record, depth + 1)
    elif isinstance(value, _SCALARS) and not (
        isinstance(value, float) and not math.isfinite(value)
    ):
        found.add(path, value, record)
        if isinstance(value, str) and record and len(value) <= 60:  # noqa: PLR2004 - a name, not prose
            found.name(record, value)


def _walk_object(found: Flat, path: str, value: dict[str, object], depth: int) -> None:
    is_map = _is_map(value)
    here = len(found.names) + 1
    found.names[here] = []
    for key, item in list(value.items())[:_MAX_LEAVES]:
        if not is_map:
            _walk(found, f"{path}.{key}", item, here, depth + 1)
            continue
        entry = len(found.names) + 1
        found.names[entry] = [key]
        found.add(f"{path}{{key}}", key, entry)
        _walk(found, f"{path}{{*}}", item, entry, depth + 1)


def _is_map(value: dict[str, object]) -> bool:
    """Whether the keys are data rather than field names."""
    if not all(_NAME.fullmatch(key) for key in value):
        return True
    kinds = {type(item) for item in value.values()}
    return len(value) >= _MANY_KEYS and len(kinds) == 1


_ENDING = re.compile(r"(?:\[\*\]|\{\*\}|\{key\})+$")


def names_of(path: str) -> tuple[str, ...]:
    """Return the argument names that values under `path` are likely to fill.

    `$.user.id` fills `id` and `user_id`; `$.orders[*]` fills `order`, `orders` and `order_id`.
    """
    fields = [singular(_ENDING.sub("", part)) for part in path.split(".")[1:]]
    if not fields:
        return ()
    last = fields[-1]
    names = [last]
    if len(fields) > 1:
        names.append(f"{fields[-2]}_{last}")
    if not last.endswith("_id"):
        names.append(f"{last}_id")
    return tuple(names)


def singular(name: str) -> str:
    """Return `name` in lower case with underscores, without a plural's ending."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").lower()
    if name.endswith("ies") and len(name) > 4:  # noqa: PLR2004 - `ties`, but not `entries`
        return f"{name[:-3]}y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name
