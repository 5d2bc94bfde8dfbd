"""Where an argument's value can come from, and which values each place offers now."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from langchain_spectool.speculators.patterns.history import History, Output
from langchain_spectool.speculators.patterns.paths import Leaf
from langchain_spectool.speculators.patterns.shapes import Text, value_shapes
from langchain_spectool.speculators.patterns.values import MAX_TEXT, only, text_of

MAX_VALUES = 24
"""Most values that one source offers."""
_MAX_PLACES = 32
RECORDS = 10_000
"""More than any message has records; a place is message times this plus record."""

Source = tuple[str, ...]
"""A kind and what it needs to find values:

```text
("all", tool, path)    values under a path of the tool's outputs, the newest first
("said", tool, path)   the same, whose record the user mentioned, the best match first
("user", shape)        values of a shape in the user's messages, the newest first
("model", shape)       the same in the model's own last text
("text", tool, shape)  the same in the plain-text output of a tool
("arg", tool, arg)     what the model gave an argument before, the newest first
("name", arg)          values whose JSON key reads like the argument (cold start)
("named", arg)         the same, whose record the user mentioned
("same", arg)          what the model gave an argument of that name in any call (cold start)
("const",)             values that many runs gave this argument, the likeliest first
```
"""


class Offer(NamedTuple):
    """A value on offer."""

    text: str
    value: object
    places: list[int]
    """Where it was found, the newest place first: values of one place belong together."""
    serial: int
    """Number of the message it was found in; 0: in none."""


def offers(source: Source, history: History) -> Sequence[Offer]:
    """Return what `source` offers now, the likeliest first, each value once."""
    found = history.notes.get(source)
    if found is None:
        found = history.notes[source] = _read(source, history)
    return found


def _read(source: Source, history: History) -> Sequence[Offer]:
    reader = _READERS.get(source[0])
    if reader is None:
        return ()
    found: dict[str, Offer] = {}
    for offer in reader(source, history):
        earlier = found.get(offer.text)
        if earlier is not None:
            if len(earlier.places) < _MAX_PLACES:
                earlier.places.extend(offer.places)
        elif len(found) < MAX_VALUES:
            found[offer.text] = offer
        else:
            break
    return tuple(found.values())


def _all_outputs(source: Source, history: History) -> Iterator[Offer]:
    for output in reversed(history.outputs):
        if output.tool == source[1]:
            yield from _leaf_offers(output, source[2])


def _leaf_offers(output: Output, path: str) -> Iterator[Offer]:
    return (_offer(output, leaf) for leaf in output.leaves(path))


def _offer(output: Output, leaf: Leaf) -> Offer:
    return Offer(leaf.text, leaf.value, [output.serial * RECORDS + leaf.record], output.serial)


def _mentioned(source: Source, history: History) -> Iterator[Offer]:
    pairs = [(out, source[2]) for out in reversed(history.outputs) if out.tool == source[1]]
    return _by_mention(pairs, history)


def _named(source: Source, history: History) -> Iterator[Offer]:
    return _by_mention(list(reversed(history.by_name.get(source[1], ()))), history)


def _by_mention(pairs: Sequence[tuple[Output, str]], history: History) -> Iterator[Offer]:
    said = _said(history)
    if not said:
        return iter(())
    found: list[tuple[float, int, Offer]] = []
    for output, path in pairs[:8]:
        leaves = output.leaves(path)[:100]
        words = [_record_words(output, leaf.record) for leaf in leaves]
        rarity: dict[str, int] = {}
        for word in (word for of_leaf in words for word in of_leaf & said):
            rarity[word] = rarity.get(word, 0) + 1
        for leaf, of_leaf in zip(leaves, words, strict=True):
            score = sum(1 / rarity[word] for word in of_leaf & said)
            if score:
                found.append((-score, len(found), _offer(output, leaf)))
    found.sort(key=lambda entry: entry[:2])
    return (offer for _, _, offer in found)


def _said(history: History) -> frozenset[str]:
    found = history.notes.get("said")
    if found is None:
        words = frozenset[str]().union(*(text.mentions for text, _ in history.users[-4:]))
        found = history.notes["said"] = words
    return found


def _record_words(output: Output, record: int) -> frozenset[str]:
    flat = output.parsed.flat
    return flat.words(record) if flat else frozenset()


def _users(source: Source, history: History) -> Iterator[Offer]:
    for text, serial in reversed(history.users):
        yield from _text_offers(text, source[1], serial, history)


def _model(source: Source, history: History) -> Iterator[Offer]:
    text = history.model_text
    return _text_offers(text, source[1], history.model_serial, history) if text else iter(())


def _plain_output(source: Source, history: History) -> Iterator[Offer]:
    output = history.last_output.get(source[1])
    if output is None:
        return iter(())
    return _text_offers(output.parsed.text, source[2], output.serial, history)


def _text_offers(text: Text, shape: str, serial: int, history: History) -> Iterator[Offer]:
    place = serial * RECORDS
    for value in text.find(shape):
        if value.startswith("????"):
            if history.year is None:
                continue
            value = history.year + value[4:]  # noqa: PLW2901 - the same value, completed
        yield Offer(value, value, [place], serial)


def _earlier_args(source: Source, history: History) -> Iterator[Offer]:
    for value, serial in reversed(history.args.get((source[1], source[2]), ())):
        yield Offer(text_of(value), value, [serial * RECORDS], serial)


def _same_name(source: Source, history: History) -> Iterator[Offer]:
    for (_, arg), values in history.args.items():
        if arg == source[1]:
            for value, serial in reversed(values):
                yield Offer(text_of(value), value, [serial * RECORDS], serial)


def _by_name(source: Source, history: History) -> Iterator[Offer]:
    for output, path in reversed(history.by_name.get(source[1], ())):
        yield from _leaf_offers(output, path)


_READERS: Mapping[str, Callable[[Source, History], Iterator[Offer]]] = {
    "all": _all_outputs,
    "said": _mentioned,
    "named": _named,
    "user": _users,
    "model": _model,
    "text": _plain_output,
    "arg": _earlier_args,
    "same": _same_name,
    "name": _by_name,
}


def given_last(tool: str, arg: str, history: History) -> str | None:
    """Return the text of the value that the argument was given last."""
    given = history.args.get((tool, arg))
    return text_of(only(given[-1][0])) if given else None


def explanations(value: object, history: History) -> set[Source]:
    """Return every learnable source that offers `value` now."""
    text = text_of(value)
    if not text or len(text) > MAX_TEXT:
        return set()
    found = set(_in_outputs(text, history))
    for (tool, arg), values in history.args.items():
        if any(text_of(earlier) == text for earlier, _ in values):
            found.add(("arg", tool, arg))
    found.update(_in_texts(text, history))
    return found


def _in_outputs(text: str, history: History) -> Iterator[Source]:
    for output in history.outputs:
        for path in output.parsed.index.get(text, ()):
            yield ("all", output.tool, path)


def _in_texts(text: str, history: History) -> Iterator[Source]:
    for shape in value_shapes(text):
        wanted = f"????{text[4:]}" if shape == "monthday" else text
        for user, _ in history.users:
            if wanted in user.find(shape) or text in user.find(shape):
                yield ("user", shape)
        if history.model_text and text in history.model_text.find(shape):
            yield ("model", shape)
        for output in history.last_output.values():
            if text in output.parsed.text.find(shape):
                yield ("text", output.tool, shape)
