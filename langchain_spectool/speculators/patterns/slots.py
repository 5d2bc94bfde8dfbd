"""Where each value that a source offers stands: the grounds on which sources are compared."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from langchain_spectool.speculators.patterns.history import History
from langchain_spectool.speculators.patterns.schema import ArgSchema
from langchain_spectool.speculators.patterns.sources import (
    MAX_VALUES,
    Offer,
    Source,
    given_last,
    offers,
)

RANKS = 6
"""Ranks that are told apart; an argument on its own is not followed further down."""
_RANKS_USED = 2
_TEXTS = frozenset({"user", "model", "text"})
_NOTHING: frozenset[str] = frozenset()

Slotted = Sequence[tuple[str, Offer]]


@dataclass(frozen=True, slots=True)
class Question:
    """Which values an argument may take in this turn."""

    tool: str
    arg: str
    schema: ArgSchema | None
    history: History
    said: Sequence[str]
    """Public words of the user's last messages."""
    wide: bool = False
    """Whether to follow sources down, for arguments that are found together."""


def slotted(question: Question, sources: Iterable[Source]) -> Iterator[tuple[Source, Slotted]]:
    """Yield what each source offers, with the slot of each offer.

    A slot is the rank among the values not used yet, then `n`; `a` after and `b` before the value
    used last, if the same source offers that too; `z` for the last of a list, `u` for values used
    before. Then `l` for values of the latest message, `e` for earlier ones, and `+` if both a
    text and an output offer the value.
    """
    history = question.history
    asked = [(source, found) for source in sources if (found := offers(source, history))]
    sides = _sides(asked)
    used = history.used.get((question.tool, question.arg), _NOTHING)
    last = given_last(question.tool, question.arg, history)
    most = MAX_VALUES if question.wide else RANKS
    for source, found in asked:
        yield source, _numbered(found, used, last, most, history.serial, sides)


def _sides(asked: Iterable[tuple[Source, Sequence[Offer]]]) -> Mapping[str, str]:
    """Return which values are offered by texts, by outputs, or by both."""
    sides: dict[str, str] = {}
    for source, found in asked:
        side = "text" if source[0] in _TEXTS else "data"
        for offer in found:
            if sides.setdefault(offer.text, side) != side:
                sides[offer.text] = "both"
    return sides


def _numbered(  # noqa: PLR0913, PLR0917 - called once, and too often for an object of its own
    found: Sequence[Offer],
    used: Collection[str],
    last: str | None,
    most: int,
    serial: int,
    sides: Mapping[str, str],
) -> Slotted:
    ranks = {"n": 0, "a": 0, "b": 0, "u": 0}
    final = found[-1] if len(found) < MAX_VALUES else None
    numbered: list[tuple[str, Offer]] = []
    for place, offers_there in _in_order(found, last):
        for offer in offers_there:
            code = "u" if offer.text in used else place
            rank = ranks[code]
            ranks[code] = rank + 1
            if rank > most:
                continue
            shown = min(rank, _RANKS_USED if code == "u" else RANKS)
            if rank and offer is final:
                code = "z"
            age = "l" if offer.serial == serial else "e"
            both = "+" if sides[offer.text] == "both" else ""
            numbered.append((f"{shown}{code}{age}{both}", offer))
    return numbered


def _in_order(found: Sequence[Offer], last: str | None) -> Sequence[tuple[str, Sequence[Offer]]]:
    """Return the offers as they come, or from the one used last on, the oldest message first."""
    if last is None or all(offer.text != last for offer in found):
        return [("n", found)]
    order = sorted(found, key=lambda offer: offer.serial)
    cut = next(index for index, offer in enumerate(order) if offer.text == last)
    return [("a", order[cut:]), ("b", order[:cut])]
