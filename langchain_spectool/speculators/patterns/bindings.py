"""Where each argument's values came from, and how well each place predicts them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from langchain_spectool.speculators.patterns.constants import Constants
from langchain_spectool.speculators.patterns.counts import (
    KEEP,
    TOTAL,
    Cells,
    Tally,
    count,
    fading_out,
    observe,
    rate,
)
from langchain_spectool.speculators.patterns.slots import Question, slotted
from langchain_spectool.speculators.patterns.sources import Offer, Source, explanations
from langchain_spectool.speculators.patterns.values import coerced, only, text_of, type_name

CONSTANT: Source = ("const",)
_MAX_BINDINGS = 2_000
_MAX_SOURCES = 32
_MAX_CELLS = 400
_ASKED = {"all": 5, "user": 3, "model": 2, "text": 2, "arg": 3}
"""How many sources of a kind are worth asking."""
_MENTIONS = 2
"""How many lists are also asked for what the user mentioned."""
_LEAST_SHARE = 0.02
_SETTLED = 12
"""Values seen after which what the schema suggests is no longer asked."""
_LAST = 99

# How often the first offer of a kind of source is right before anything is known about it.
_FIRST = {"name": 0.5, "named": 0.5, "same": 0.3, "user": 0.3, "all": 0.4}
_FIRST_OF_OTHERS = 0.3
_LATER = 0.05
_FIRSTS = ("0n", "0a")


@dataclass(slots=True)
class Choice:
    """A value that an argument may take."""

    text: str
    value: object
    chance: float
    source: Source
    serial: int
    """Number of the message it was found in last; 0: in none."""
    places: dict[int, int]
    """Where it was found, each with the position of the source that found it there."""
    votes: int = 1
    """How many sources offer it."""


class Binding:
    """What is known about one argument of one tool."""

    __slots__ = ("_asked", "constants", "newest", "rates", "sources", "types")

    def __init__(self) -> None:
        """Know nothing."""
        self.sources: dict[Source, float] = {}
        self.rates: dict[Source, Cells] = {}
        """Hits and tries by slot, and by slot, `@` and the last event."""
        self.types: Tally = {}
        self.constants = Constants()
        self.newest: dict[str, set[Source]] = {}
        """The values learned last, and the sources that offered each."""
        self._asked: list[Source] | None = None

    @property
    def seen(self) -> float:
        """Faded number of values seen."""
        return self.types.get(TOTAL, 0.0)

    @property
    def kind(self) -> str:
        """JSON type of most values; `""` if none was seen."""
        types = self.types
        return max((name for name in types if name), key=types.__getitem__, default="")

    def support(self, found: Collection[Source]) -> None:
        """Note the sources that offered the right value."""
        for source in self.sources:
            self.sources[source] *= KEEP
        for source in found:
            self.sources[source] = self.sources.get(source, 0.0) + 1
        if len(self.sources) > _MAX_SOURCES:
            for source in sorted(self.sources, key=self.sources.__getitem__)[:-_MAX_SOURCES]:
                del self.sources[source]
                self.rates.pop(source, None)
        self.refresh()

    def score(
        self,
        source: Source,
        right: Collection[str],
        offered: Sequence[tuple[str, Offer]],
        event: str,
    ) -> None:
        """Count which of the values that `source` offered were right."""
        cells = self.rates.setdefault(source, {})
        for slot, offer in offered:
            hit = offer.text in right
            count(cells, slot, hit)
            count(cells, f"{slot}@{event}", hit)
        if len(cells) > _MAX_CELLS:
            fading_out(cells, _MAX_CELLS, lambda cell: cell[1])

    def refresh(self) -> None:
        """Drop what was worked out from the counts."""
        self._asked = None
        self.constants.refresh()

    def asked(self) -> Sequence[Source]:
        """Return the sources worth asking, the best supported first."""
        if self._asked is None:
            self._asked = self._worth_asking()
        return self._asked

    def _worth_asking(self) -> list[Source]:
        least = max(_LEAST_SHARE * self.seen, 0.5)
        weights = self.sources
        # Of sources that do equally well, the longer, more telling shape or path comes first.
        order = sorted(weights, key=lambda s: (-round(weights[s], 3), -len(s[-1]), s))
        left = dict(_ASKED)
        found: list[Source] = []
        for source in order:
            kind = source[0]
            if weights[source] < least or not left.get(kind):
                continue
            left[kind] -= 1
            found.append(source)
            listed = kind == "all" and ("[*]" in source[2] or "{" in source[2])
            if listed and left[kind] >= _ASKED[kind] - _MENTIONS:
                found.append(("said", *source[1:]))
        return found


class Bindings:
    """The bindings of all arguments."""

    def __init__(self) -> None:
        """Know no argument."""
        self.known: dict[tuple[str, str], Binding] = {}
        self.kinds: dict[str, Cells] = {}
        """Hits and tries by slot of each kind of source, whichever the argument."""
        self.version = 0
        """Rises with whatever is learned."""

    def choices(self, question: Question) -> Sequence[Choice]:
        """Return the values that an argument may take now, the likeliest first."""
        notes = question.history.notes
        note = ("choices", question.tool, question.arg, question.wide)
        held = notes.get(note)
        if held is not None and held[0] == self.version:
            return held[1]
        found = self._choices(question)
        notes[note] = (self.version, found)
        return found

    def learn(self, question: Question, values: Sequence[object]) -> Binding:
        """Learn from the values that a turn gave an argument, one for each call of the tool."""
        binding = self.known.setdefault((question.tool, question.arg), Binding())
        right = {text_of(only(value)) for value in values}
        event = question.history.last_event
        for source, offered in slotted(question, _asked(binding, question)):
            kinds = self.kinds.setdefault(source[0], {})
            for slot, offer in offered:
                count(kinds, slot, offer.text in right)
            binding.score(source, right, offered, event)
        binding.newest.clear()
        for value in values:
            found = explanations(only(value), question.history)
            observe(binding.types, [type_name(value)])
            binding.newest[text_of(value)] = found
            binding.support(found)
        if len(self.known) > _MAX_BINDINGS:
            fading_out(self.known, _MAX_BINDINGS, lambda known: known.seen)
        return binding

    def _choices(self, question: Question) -> Sequence[Choice]:
        binding = self.known.get((question.tool, question.arg)) or Binding()
        kind = (question.schema.kind if question.schema else "") or binding.kind
        event = question.history.last_event
        found = _Choices(kind)
        asked = slotted(question, _asked(binding, question))
        for at, (source, offered) in enumerate(asked):
            kinds = self.kinds.get(source[0], _NO_CELLS)
            cells = binding.rates.get(source, _NO_CELLS)
            first = _FIRST.get(source[0], _FIRST_OF_OTHERS)
            for slot, offer in offered:
                chance = rate(kinds.get(slot), first if slot[:2] in _FIRSTS else _LATER, 4.0)
                if slot in cells:
                    chance = rate(cells[slot], chance, 2.0)
                    chance = rate(cells.get(f"{slot}@{event}"), chance, 3.0)
                found.take(source, at, offer, chance)
        for text, value, chance in binding.constants.likely(question.schema, question.said):
            found.take(CONSTANT, _LAST, Offer(text, value, [], 0), chance)
        return sorted(found.by_text.values(), key=lambda choice: -choice.chance)


_NO_CELLS: Mapping[str, list[float]] = {}


def _asked(binding: Binding, question: Question) -> Iterable[Source]:
    sources = binding.asked()
    schema = question.schema
    if schema is None or (sources and binding.seen >= _SETTLED):
        return sources
    return [*sources, *(source for source in schema.sources if source not in sources)]


class _Choices:
    """The offers of all sources, each value once, with the best chance that any gives it."""

    def __init__(self, kind: str) -> None:
        self.by_text: dict[str, Choice] = {}
        self._kind = kind

    def take(self, source: Source, at: int, offer: Offer, chance: float) -> None:
        choice = self.by_text.get(offer.text)
        if choice is None:
            value = coerced(offer.value, self._kind)
            if value is not None:
                self.by_text[offer.text] = Choice(
                    offer.text, value, chance, source, offer.serial, dict.fromkeys(offer.places, at)
                )
            return
        choice.votes += 1
        for place in offer.places:
            choice.places.setdefault(place, at)
        choice.serial = max(choice.serial, offer.serial)
        if chance > choice.chance:
            choice.chance = chance
            choice.source = source
