"""What values look like: shapes of ids, dates, names and the like in running text.

A shape says how a value is written and nothing of what it says, so it may be stored.
"""

import re
from collections.abc import Callable
from functools import lru_cache

MAX_TEXT = 8_000
"""Characters of one text that are searched: half of them at its start, half at its end."""
MAX_TOKEN = 120
"""Longest token, in characters, that has a shape."""
_MAX_FOUND = 40
"""Most values of one shape that are kept from one text."""

_TOKEN = re.compile(r"https?://[^\s\"'<>)\]]+|(?:[#@$~]|\.{0,2}/)?\w(?:[\w.+@/-]*\w)?")
_PLAIN_WORD = re.compile(r"[^\W\d_]{3,20}")
# A word on its own: the parts of an address, an id or a path are none.
_WORD = re.compile(r"(?<![\w@#+/.-])[^\W\d_]{3,20}(?![\w@+/]|[.-]\w)")
_RUN = re.compile(r"\d+|[^\W\d_]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_FILE = re.compile(r"[\w./~-]+\.[A-Za-z]\w{0,4}")
_QUOTED = re.compile(
    "[\"'`\u201c\u2018]([^\"'`\u201c\u201d\u2018\u2019\n]{1,80})[\"'`\u201d\u2019]"
)
_PHRASE = re.compile(
    r"\b[^\W\d_a-z][^\W\d_]+(?:[ ](?:of |the |and |in |de )?[^\W\d_a-z][^\W\d_]*)+"
)
_MONTHS: tuple[str, ...] = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_MONTH_DAY = re.compile(
    rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (\d{{4}}))?"
    rf"|\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? (\d{{4}}))?\b",
    re.IGNORECASE,
)


class Text:
    """A text, and what can be found in it; searched once, when first asked."""

    __slots__ = ("_found", "_mentions", "_words", "raw")

    def __init__(self, raw: str) -> None:
        """Look at no more than `MAX_TEXT` characters of `raw`."""
        half = MAX_TEXT // 2
        self.raw = raw if len(raw) <= MAX_TEXT else f"{raw[:half]}\n{raw[-half:]}"
        self._found: dict[str, dict[str, None]] | None = None
        self._words: frozenset[str] | None = None
        self._mentions: frozenset[str] | None = None

    def find(self, shape: str) -> dict[str, None]:
        """Return the values of `shape` in the order of the text, each once."""
        return self.found.get(shape, _NOTHING)

    @property
    def found(self) -> dict[str, dict[str, None]]:
        """Every shape of this text with its values, in the order of the text."""
        if self._found is None:
            self._found = _search(self.raw)
        return self._found

    @property
    def words(self) -> frozenset[str]:
        """The lower-case words of this text, those inside addresses and ids left out."""
        if self._words is None:
            self._words = frozenset(_WORD.findall(self.raw.lower()))
        return self._words

    @property
    def mentions(self) -> frozenset[str]:
        """All lower-case words of this text, by which it may refer to something."""
        if self._mentions is None:
            self._mentions = words_of(self.raw)
        return self._mentions


_NOTHING: dict[str, None] = {}


def words_of(text: str) -> frozenset[str]:
    """Return all lower-case words of `text`, of 3 to 20 letters."""
    return frozenset(_PLAIN_WORD.findall(text.lower()))


def _search(text: str) -> dict[str, dict[str, None]]:
    found: dict[str, dict[str, None]] = {}
    for token in _TOKEN.findall(text):
        for shape in token_shapes(token):
            _keep(found, shape, token)
    for quoted in _QUOTED.findall(text):
        _keep(found, "quoted", quoted)
    for phrase in _PHRASE.findall(text):
        parts = phrase.split()
        _keep(found, "phrase", phrase)
        _keep(found, "phrase:first", parts[0])
        _keep(found, "phrase:last", parts[-1])
    for match in _MONTH_DAY.finditer(text):
        _keep(found, "monthday", _month_day(match))
    whole = text.strip()
    if 0 < len(whole) <= MAX_TOKEN:
        _keep(found, "whole", whole)
    return found


def _keep(found: dict[str, dict[str, None]], shape: str, value: str) -> None:
    values = found.setdefault(shape, {})
    if len(values) < _MAX_FOUND:
        values[value] = None


def _month_day(match: re.Match[str]) -> str:
    """Return `YYYY-MM-DD`, with `????` for a year that the text leaves out."""
    month, day, year, day_first, month_after, year_after = match.groups()
    number = _MONTHS.index(str(month or month_after)[:3].lower()) + 1
    return f"{year or year_after or '????'}-{number:02}-{int(day or day_first):02}"


@lru_cache(maxsize=16_384)
def token_shapes(token: str) -> tuple[str, ...]:
    """Return the shapes of one token, the most telling first; none for a plain word."""
    if len(token) > MAX_TOKEN or (token.isalpha() and token.islower()):
        return ()
    if token.isalpha() and token[1:].islower():
        return ("name",)
    shapes: list[str] = [_mask(token)]
    if not token.isdigit():
        shapes.append(_RUN.sub(_class_only, token))
    if _is_code(token):
        shapes.append(f"code{len(token)}")
    shapes += [name for name, fits in _SPECIAL if fits(token)]
    return tuple(dict.fromkeys(shapes))


def value_shapes(value: str) -> tuple[str, ...]:
    """Return every shape under which `Text.find` may show `value`."""
    if not value or len(value) > MAX_TOKEN:
        return ()
    shapes = token_shapes(value) if _TOKEN.fullmatch(value) else ()
    return (*shapes, "quoted", "phrase", "phrase:first", "phrase:last", "whole", "monthday")


def _mask(token: str) -> str:
    return _RUN.sub(_class_and_length, token)


def _class_only(match: re.Match[str]) -> str:
    run = match.group()
    if run.isdigit():
        return "9"
    return "A" if run.isupper() else "a" if run.islower() else "Aa"


def _class_and_length(match: re.Match[str]) -> str:
    kind = _class_only(match)
    return f"{kind}{{{len(match.group())}}}" if kind in "9A" else kind


def _is_code(token: str) -> bool:
    return token.isalnum() and token.upper() == token and not token.isdigit()


_SPECIAL: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("email", lambda token: "@" in token and _EMAIL.fullmatch(token) is not None),
    ("date", lambda token: _DATE.fullmatch(token) is not None),
    ("number", lambda token: token[-1:].isdigit() and token.replace(".", "", 1).isdigit()),
    ("url", lambda token: "://" in token),
    ("path", lambda token: "/" in token and "://" not in token),
    ("file", lambda token: "." in token and _FILE.fullmatch(token) is not None),
)
