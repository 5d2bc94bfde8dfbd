"""Arguments that belong together: all from one record, or all from one earlier call."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from langchain_spectool.speculators.patterns.bindings import Choice
from langchain_spectool.speculators.patterns.counts import Cells, count, rate
from langchain_spectool.speculators.patterns.history import History
from langchain_spectool.speculators.patterns.sources import RECORDS
from langchain_spectool.speculators.patterns.values import key_of, text_of

_RANKS = 4
_FIRST = {"c": 0.3, "r": 0.1}
"""How often the first joint of a text or call, or of a record, is right, before it was tried."""
_LATER = 0.05
_MAX_VARIED = 4

Options = Mapping[str, Sequence[Choice]]
"""The values that each argument may take."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Values for all arguments of a call, found in one place."""

    choices: Mapping[str, Choice]
    place: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The values' texts, in the order of the arguments."""
        return tuple(choice.text for choice in self.choices.values())

    @property
    def values(self) -> dict[str, object]:
        """The arguments of the call."""
        return {name: choice.value for name, choice in self.choices.items()}

    @property
    def is_call(self) -> bool:
        """Whether the place is an earlier call or a text, not a record of an output."""
        return self.place % RECORDS == 0


class Joints:
    """How often the joints at each slot were right, by tool."""

    def __init__(self) -> None:
        """Know no tool."""
        self.rates: dict[str, Cells] = {}

    def likely(self, tool: str, options: Options, history: History) -> list[tuple[Joint, float]]:
        """Return the joints with their chances, the likeliest first."""
        cells = self.rates.get(tool, {})
        event = history.last_event
        found: list[tuple[Joint, float]] = []
        for slot, joint in joints(tool, options, history):
            prior = _FIRST[slot[2]] if slot[:2] in {"0n", "0a"} else _LATER
            chance = rate(cells.get(slot), prior, 2.0)
            found.append((joint, rate(cells.get(f"{slot}@{event}"), chance, 3.0)))
        found.sort(key=lambda entry: -entry[1])
        return found

    def learn(
        self, tool: str, options: Options, history: History, calls: Sequence[Mapping[str, object]]
    ) -> None:
        """Learn which joints were the arguments of a turn's `calls` of `tool`."""
        cells = self.rates.setdefault(tool, {})
        keys = {key_of(tool, args) for args in calls}
        event = history.last_event
        for slot, joint in joints(tool, options, history):
            hit = key_of(tool, joint.values) in keys
            count(cells, slot, hit)
            count(cells, f"{slot}@{event}", hit)


def joints(tool: str, options: Options, history: History) -> Iterator[tuple[str, Joint]]:
    """Yield the joints, each with its slot.

    A slot is the rank, then `n`, or `a` after and `b` before the record used last, `o` for the
    oldest record, `u` for a call made before; then `r` for a record, `c` for an earlier call;
    then `l` if the place is the latest message.
    """
    ranks: dict[str, int] = {}
    for code, joint in _in_order(_found(options), _last_texts(tool, options, history)):
        used = key_of(tool, joint.values) in history.called
        slot = ("u" if used else code) + ("c" if joint.is_call else "r")
        rank = ranks.get(slot, 0)
        ranks[slot] = rank + 1
        latest = "l" if joint.place // RECORDS == history.serial else ""
        yield f"{min(rank, _RANKS)}{slot}{latest}", joint
    yield from _variations(options, _last_call(tool, options, history))


def _last_call(tool: str, options: Options, history: History) -> Mapping[str, object] | None:
    """Return the latest call's arguments, if they are those of `tool`."""
    last = history.last_call
    if last is not None and last.keys() == options.keys():
        return last
    return history.last_args.get(tool)


def _variations(options: Options, last: Mapping[str, object] | None) -> Iterator[tuple[str, Joint]]:
    """Yield what the last call becomes by one new value, by two swapped ones, or by both."""
    if last is None or len(options) > _MAX_VARIED:
        return
    base: dict[str, Choice] = {}
    for name, choices in options.items():
        text = text_of(last.get(name))
        held = next((choice for choice in choices if choice.text == text), None)
        if held is None:
            return
        base[name] = held
    swapped = [("", base), *_swaps(options, base)]
    for code, choices in swapped:
        if code:
            yield f"s{code}", Joint(choices, 0)
        for name in options:
            others = [choice for choice in options[name] if choice.text != base[name].text]
            for rank, choice in enumerate(others[:2]):
                yield f"v{code}{name}{rank}", Joint({**choices, name: choice}, 0)


def _swaps(
    options: Options, base: Mapping[str, Choice]
) -> Iterator[tuple[str, Mapping[str, Choice]]]:
    for one, other in combinations(options, 2):
        there = next((c for c in options[one] if c.text == base[other].text), None)
        back = next((c for c in options[other] if c.text == base[one].text), None)
        if there is not None and back is not None and there.text != back.text:
            yield f"{one}/{other}+", {**base, one: there, other: back}


def _last_texts(tool: str, options: Options, history: History) -> tuple[str, ...] | None:
    last = history.last_args.get(tool)
    return None if last is None else tuple(text_of(last.get(name)) for name in options)


def _found(options: Options) -> list[Joint]:
    """Return the joints, the newest message first, each at the first of its places there."""
    held: dict[int, dict[str, Choice]] = {}
    for name, choices in options.items():
        for choice in choices:
            for place, at in choice.places.items():
                best = held.setdefault(place, {}).setdefault(name, choice)
                if at < best.places[place]:
                    held[place][name] = choice
    whole = [place for place, choices in held.items() if len(choices) == len(options)]
    # A record stands for a call with the same values: only a record has neighbours.
    whole.sort(key=lambda place: (place % RECORDS == 0, -(place // RECORDS), place))
    found: dict[tuple[str, ...], Joint] = {}
    for place in whole:
        joint = Joint({name: held[place][name] for name in options}, place)
        found.setdefault(joint.texts, joint)
    return list(found.values())


def _in_order(found: Sequence[Joint], last: tuple[str, ...] | None) -> Iterator[tuple[str, Joint]]:
    at = next((joint.place for joint in found if joint.texts == last and not joint.is_call), None)
    records = [joint for joint in found if not joint.is_call]
    if at is None:
        oldest = min((joint.place for joint in records), default=0)
        for index, joint in enumerate(records):
            yield "o" if index and joint.place == oldest else "n", joint
    else:
        records.sort(key=lambda joint: joint.place)
        yield from (("a", joint) for joint in records if joint.place >= at)
        yield from (("b", joint) for joint in records if joint.place < at)
    yield from (("n", joint) for joint in found if joint.is_call)
