"""Texts made comparable, and the pieces of a value that would give away where it is from."""

import base64
import binascii
import html
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast
from urllib.parse import unquote_plus

from langchain_spectool._core.encoding import attempt

SHORTEST: Final = 3
"""Fewest characters, or digits of a number, that tell where a value is from."""
_TELLING: Final = 6
"""Fewest characters of a word, or of whole values joined, that tell where they are from."""
_PHRASE: Final = 12
"""Fewest characters of short words in a row that do so: fewer are in every text."""
_DEPTH: Final = 2
_MOST_LEVELS: Final = 50
_MOST_CHARACTERS: Final = 8_000_000

# Soft hyphens, joiners, marks of direction: nobody sees them, and they would part a word.
_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_GROUPING: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_WORD: Final = re.compile(r"[^\W_]+")
_NAME: Final = re.compile(r"[\w.@+-]+")  # hosts, addresses, file names, identifiers
_SIXTYFOUR: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_MIXED: Final = re.compile(r"[A-Z0-9]")  # what plain words do not have inside
_HEXADECIMAL: Final = re.compile(
    r"(?:[0-9A-Fa-f]{2}){4,}|(?<![0-9A-Za-z])(?:(?:0x|\\x)?[0-9A-Fa-f]{2}[ :,-]{0,2}){4,}"
)
_HEX_PARTS: Final = re.compile(r"0x|\\x|[ :,-]")
_ESCAPED: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+|\\[^u]")
_ESCAPED_ALONE: Final = '"\\/'
_EDGES: Final = " .,;:!?\"'()[]{}<>"


def plain(text: str) -> str:
    """Return `text` in lower case, with single spaces, in one Unicode form and nothing unseen."""
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(text.casefold().split())


def compact(text: str) -> str:
    """Return the letters and digits of a plain text."""
    return "".join(_WORD.findall(text))


class Text(NamedTuple):
    """What somebody said."""

    said: str
    """As it stands, made plain."""
    holds: str
    """The same and, on lines of their own, what it holds in another encoding."""
    letters: str
    """The letters and digits of all that."""


class _Texts:
    """Keeps the texts read last: every turn reads the whole conversation again."""

    def __init__(self) -> None:
        self._kept: dict[str, Text] = {}
        self._characters = 0
        self._lock = threading.Lock()

    def read(self, raw: str) -> Text:
        """Return `raw` made comparable."""
        with self._lock:
            found = self._kept.pop(raw, None)
            if found is not None:
                self._kept[raw] = found  # the last in order is the last to go
                return found
        made = _made(raw)
        with self._lock:
            if raw not in self._kept:
                self._characters += len(raw)
            self._kept[raw] = made
            while self._characters > _MOST_CHARACTERS:
                oldest = next(iter(self._kept))
                del self._kept[oldest]
                self._characters -= len(oldest)
        return made


read: Final = _Texts().read
"""Returns a raw text made comparable. Any thread may call it; what it keeps is bounded."""


def _made(raw: str) -> Text:
    said = plain(raw)
    if _GROUPING.search(said):
        said += "\n" + _GROUPING.sub("", said)
    forms = dict.fromkeys([said, *map(plain, decoded(raw))])
    return Text(said=said, holds="\n".join(forms), letters="\n".join(map(compact, forms)))


def decoded(raw: str, depth: int = _DEPTH) -> Iterator[str]:
    """Yield what `raw` and its parts stand for in URLs, HTML, JSON, base64 and hexadecimal."""
    found: list[str | None] = []
    if "%" in raw:
        found.append(unquote_plus(raw))
    if "&" in raw:
        found.append(html.unescape(raw))
    if "\\" in raw:
        found.append(_ESCAPED.sub(_unescaped, raw))
    for match in _SIXTYFOUR.finditer(raw):
        token = match[0]
        if _MIXED.search(token, 1):
            # A slash may be a digit of base64, or part it from the rest of a path.
            parts = [token, *token.split("/")] if "/" in token else [token]
            found += (_readable(_from_base64, part) for part in parts)
    found += (_readable(_from_hex, match[0]) for match in _HEXADECIMAL.finditer(raw))
    for text in found:
        if text and text != raw:
            yield text
            if depth > 1:
                yield from decoded(text, depth - 1)


def _from_hex(text: str) -> bytes:
    return bytes.fromhex(_HEX_PARTS.sub("", text))


def _unescaped(match: re.Match[str]) -> str:
    if len(match[0]) == len(r"\n"):
        return match[0][1] if match[0][1] in _ESCAPED_ALONE else " "
    # Beyond the first 65,536 characters JSON writes two escapes for one.
    units = bytes.fromhex(match[0].replace(r"\u", ""))
    return units.decode("utf-16-be", "replace")


def _from_base64(token: str) -> bytes:
    padded = token + "=" * (-len(token) % 4)
    return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)


def _readable(decode: Callable[[str], bytes], token: str) -> str | None:
    try:
        text = decode(token).decode()
    except (binascii.Error, ValueError):
        return None
    return text if len(text) > SHORTEST and "".join(text.split()).isprintable() else None


def leaves(value: object, level: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield each value inside `value` as text, and whether it is a number; keys count too.

    Raises:
        ValueError: It is more than 50 levels deep.
    """
    if level > _MOST_LEVELS:
        msg = f"values of more than {_MOST_LEVELS} levels cannot be searched"
        raise ValueError(msg)
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield from leaves(key, level + 1)
            yield from leaves(item, level + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in cast("Iterable[object]", value):
            yield from leaves(item, level + 1)
    elif isinstance(value, str):
        yield value, False
    elif isinstance(value, bytes | bytearray):
        yield value.decode(errors="replace"), False
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"{abs(value):.15g}" if isinstance(value, float) else str(abs(value)), True
    elif value is not None and not isinstance(value, bool):
        yield attempt(str, value) or "", False


class Piece(NamedTuple):
    """A part of a guess's arguments that is looked for as a whole."""

    text: str
    owners: tuple[str, ...]
    """Names of the arguments it is part of."""
    words: tuple[str, ...] = ()
    """Of a piece joined from several: what it was joined from; it is looked for in the letters."""


class Leaf(NamedTuple):
    """A single value somewhere in an argument."""

    owner: str
    raw: str
    number: bool


def pieces(values: Sequence[Leaf]) -> Iterator[Piece]:
    """Yield all pieces of `values` that are long enough to tell where they are from."""
    for leaf in values:
        yield from _parts(leaf)
    words = [(leaf.owner, word) for leaf in values for word in _WORD.findall(plain(leaf.raw))]
    whole = [(leaf.owner, plain(leaf.raw)) for leaf in values]
    yield from _joined(whole, _TELLING, 1)
    yield from _joined(words, _PHRASE, 2)


def _parts(leaf: Leaf) -> Iterator[Piece]:
    owners = (leaf.owner,)
    if leaf.number:
        if sum(map(str.isdigit, leaf.raw)) >= SHORTEST:
            yield Piece(leaf.raw, owners)
        return
    for raw in (leaf.raw, *decoded(leaf.raw)):
        text = plain(raw)
        if len(text) < SHORTEST:
            continue
        chunks = [chunk.strip(_EDGES) for chunk in text.split(" ")]
        words = [*chunks, *_NAME.findall(text), *_WORD.findall(text)]
        for part in dict.fromkeys([text, *filter(_tells, words)]):
            yield Piece(part, owners)


def _tells(word: str) -> bool:
    """Say whether a word is long enough, or enough like an identifier, to tell where it is from."""
    digits = sum(map(str.isdigit, word))
    mixed = digits > 0 or "." in word[1:-1] or "@" in word[1:-1]
    return len(word) >= _TELLING or digits >= SHORTEST or (mixed and len(word) > SHORTEST)


def _joined(values: list[tuple[str, str]], least: int, fewest: int) -> Iterator[Piece]:
    """Yield, from each value on, just so many in a row as have `least` letters and digits.

    Whatever of an untrusted text is spread over values in a row holds one of these.
    """
    for start in range(len(values)):
        letters, count = "", 0
        for _, value in values[start:]:
            letters, count = letters + compact(value), count + 1
            if len(letters) >= least:
                break
        row = values[start : start + count]
        if len(letters) >= least and count >= fewest:
            owners, words = zip(*row, strict=True)
            yield Piece(letters, tuple(dict.fromkeys(owners)), words)


def holds(text: str, piece: str) -> bool:
    """Say whether `text` has `piece` anywhere; a short number only if it is no part of another."""
    if piece.isdigit() and len(piece) < _TELLING:
        return _alone(piece, text, str.isdigit)
    return piece in text


def says(text: str, piece: str) -> bool:
    """Say whether `text` has `piece` as whole words."""
    return _alone(piece, text, str.isalnum)


def _alone(piece: str, text: str, joins: Callable[[str], bool]) -> bool:
    at = text.find(piece)
    while at >= 0:
        end = at + len(piece)
        before, after = text[max(at - 1, 0) : at], text[end : end + 1]
        if not (joins(before) and joins(piece[0])) and not (joins(after) and joins(piece[-1])):
            return True
        at = text.find(piece, at + 1)
    return False
