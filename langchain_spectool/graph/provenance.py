"""Where a guess's arguments come from, and which of them third parties must not see early.

Values are looked for in the conversation, upper and lower case, spacing and Unicode forms aside.
What speaks against a value (the output of a tool whose author does not vouch for it) counts
wherever it holds the value, inside longer words and behind base64, hexadecimal or URL encoding on
either side; what speaks for it counts only where it says the value as whole words. Of those who
are not the user, whoever had the value first decides: a model that repeats what a page says does
not make it its own.

Not seen: paraphrase and translation, encryption, other encodings, text in images and files,
values of fewer than three characters or digits, the parts of a value in another order, and what
was said in messages that the request no longer holds. What only a system message says is the
operator's own word.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from langchain_core.tools import BaseTool
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from langchain_spectool._core.contracts import Contract
from langchain_spectool._core.encoding import attempt
from langchain_spectool._core.guess import Guess, Origin
from langchain_spectool.graph.sayings import sayings
from langchain_spectool.graph.wording import (
    Leaf,
    Piece,
    Text,
    holds,
    leaves,
    pieces,
    plain,
    says,
)

_CAREFUL: Final[tuple[Origin, ...]] = (
    "constant",
    "user",
    "reasoning",
    "trusted_output",
    "untrusted_output",
)
"""From the least to the most suspicious."""
_MOST_PIECES: Final = 400
_MOST_CHARACTERS: Final = 10_000


def origins(
    args: Mapping[str, Any],
    messages: Sequence[Any],
    trusted: Collection[str],
    *,
    tool: BaseTool | None = None,
) -> dict[str, Origin]:
    """Return where the value of each argument was found, the most suspicious part deciding.

    Args:
        args: A guess's arguments, as a model would write them.
        messages: LangChain messages of the request.
        trusted: Names of the tools whose authors vouch for what they return.
        tool: The guessed tool: the choices and defaults that its schema names are constants.

    Raises:
        ValueError: Arguments or outputs are more than 50 levels deep.
    """
    trail = _Trail(messages, trusted)
    found: dict[str, Origin] = dict.fromkeys(args, "constant")
    told = _pieces(args, tool)
    if told is None:
        return dict.fromkeys(args, "untrusted_output")
    for piece in told:
        origin = trail.origin(piece)
        for name in piece.owners:
            if _CAREFUL.index(origin) > _CAREFUL.index(found[name]):
                found[name] = origin
    return found


def blocked(
    contract: Contract,
    guess: Guess,
    messages: Sequence[Any],
    trusted: Collection[str],
    *,
    tool: BaseTool | None = None,
) -> str | None:
    """Say why a guess may not be sent; None if it may.

    Only tools whose arguments third parties see are held back, and only from what another tool
    said. What the guess itself says of its origins can add a reason, never take one away. The
    reason names arguments, never values. `messages`, `trusted` and `tool` are as for `origins`.

    Raises:
        ValueError: Arguments or outputs are more than 50 levels deep.
    """
    if contract.audience != "external":
        return None
    for name, origin in guess.origins.items():
        if origin == "untrusted_output":
            return _reason(name)
    trail = _Trail(messages, trusted)
    if not trail.against:
        return None
    told = _pieces(guess.args, tool)
    if told is None:
        return "the arguments are too long to tell where they come from"
    piece = trail.tainted(told)
    return None if piece is None else _reason(piece.owners[0])


def _reason(name: str) -> str:
    return (
        f"`{name}` holds what another tool returned, and third parties would see it before the "
        "model decides to send it: if that tool returns only what you vouch for, declare it with "
        "`trusted_output=True`"
    )


# --- the arguments


def _pieces(args: Mapping[str, Any], tool: BaseTool | None) -> list[Piece] | None:
    """Return what to look for; None for more than can be looked for in time."""
    known = _known(tool)
    values = [
        Leaf(owner, raw, number=number)
        for owner, value in args.items()
        for raw, number in leaves(value)
        if plain(raw) not in known
    ]
    if sum(len(leaf.raw) for leaf in values) > _MOST_CHARACTERS:
        return None
    found = dict.fromkeys(islice(pieces(values), _MOST_PIECES + 1))
    return [*found] if len(found) <= _MOST_PIECES else None


class _Quiet(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - theirs


_constants: WeakKeyDictionary[type[BaseModel], frozenset[str]] = WeakKeyDictionary()


def _known(tool: BaseTool | None) -> frozenset[str]:
    """Return the choices, defaults and names that a tool's schema holds, made plain."""
    schema = None if tool is None else cast("object", tool.args_schema)
    if isinstance(schema, Mapping):
        return frozenset(_named(cast("Mapping[str, object]", schema)))
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return frozenset()
    found = _constants.get(schema)
    if found is None:
        made = attempt(lambda: schema.model_json_schema(schema_generator=_Quiet))
        found = _constants[schema] = frozenset(_named(made or {}))
    return found


def _named(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, object]", schema)
        yield from map(plain, cast("Mapping[str, object]", fields.get("properties") or ()))
        for key, value in fields.items():
            if key in {"enum", "const", "default"}:
                yield from (plain(text) for text, _ in leaves(value))
            else:
                yield from _named(value)
    elif isinstance(schema, list):
        for item in cast("list[object]", schema):
            yield from _named(item)


# --- the conversation


class _Trail:
    """Who said what, in order."""

    def __init__(self, messages: Sequence[Any], trusted: Collection[str]) -> None:
        self._steps = [*sayings(messages, trusted)]
        self._user = [text for origin, text in self._steps if origin == "user"]
        untrusted = [text for origin, text in self._steps if origin == "untrusted_output"]
        # One search in all of them is faster than one in each, and most pieces are in none.
        self.against = "\n".join(text.holds for text in untrusted)
        self._letters_against = "\n".join(text.letters for text in untrusted)

    def origin(self, piece: Piece) -> Origin:
        """Return who said `piece` first; the user, if it was the user at all."""
        if self._spoken(piece, self._user):
            return "user"
        for origin, text in self._steps:
            if origin == "untrusted_output":
                if holds(text.letters if piece.words else text.holds, piece.text):
                    return origin
            elif origin != "user" and self._spoken(piece, [text]):
                return origin
        return "constant"

    def tainted(self, told: Sequence[Piece]) -> Piece | None:
        """Return one of the pieces whose origin is a tool that nobody vouches for."""
        absent: dict[bool, list[str]] = {True: [], False: []}
        for piece in sorted(told, key=lambda piece: len(piece.text)):
            joined = bool(piece.words)
            if any(part in piece.text for part in absent[joined]):
                continue  # nobody says the whole who does not say its part
            if not holds(self._letters_against if joined else self.against, piece.text):
                if not piece.text.isdigit():  # a part of one number may be another number
                    absent[joined].append(piece.text)
            elif self.origin(piece) == "untrusted_output":
                return piece
        return None

    def _spoken(self, piece: Piece, texts: Sequence[Text]) -> bool:
        """Say whether `texts` say all words of `piece`, those aside that say nothing."""
        words = [word for word in piece.words if len(word) > 1] or [piece.text]
        return all(any(says(text.said, word) for text in texts) for word in words)
