"""What of a model goes into a file: structure and what enough runs share, no one's data."""

import json
from collections.abc import Iterable, Mapping

from langchain_spectool.speculators.patterns.bindings import Binding
from langchain_spectool.speculators.patterns.context import NONE, WORD, names_in
from langchain_spectool.speculators.patterns.counts import TOTAL, Cells, Tally
from langchain_spectool.speculators.patterns.history import ERROR, START, USER
from langchain_spectool.speculators.patterns.model import Model
from langchain_spectool.speculators.patterns.signatures import NO_ARGS, TWINS
from langchain_spectool.speculators.patterns.sources import Source

_MAX_CONTEXTS = 2_500
_MAX_WORDS = 150
_LEAST_WORD = 2.0
_LEAST_TRIES = 1.0
_LEAST_TRIES_AFTER = 2.0
_LEAST_COUNT = 0.05
_PATHS = frozenset({"all", "said"})

Json = dict[str, object]


def published(model: Model) -> Json:
    """Return what of `model` may be written, as JSON."""
    return _Publisher(model).model()


class _Publisher:
    """Leaves out every name that is not public."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def model(self) -> Json:
        model = self._model
        kinds = {kind: self._cells(cells) for kind, cells in model.bindings.kinds.items()}
        return {
            "turns": _short(model.turns),
            "contexts": self._contexts(),
            "signatures": {
                tool: _tally(tally, [key for key in tally if self._signature_ok(key)])
                for tool, tally in model.signatures.tallies.items()
                if self._is_name(tool)
            },
            "arguments": self._arguments(),
            "kinds": {kind: cells for kind, cells in kinds.items() if cells},
            "joints": {
                tool: self._cells(cells)
                for tool, cells in model.joints.rates.items()
                if self._is_name(tool) and self._knows_all_args(tool)
            },
            "ranker": self._ranker(),
            "calibration": {
                "bins": self._cells(model.calibration.bins),
                "tools": {
                    tool: [_short(part) for part in cell]
                    for tool, cell in model.calibration.tools.items()
                    if self._is_name(tool)
                },
            },
        }

    def _is_name(self, name: str) -> bool:
        return f"n:{name}" in self._model.shared

    def _is_event(self, event: str) -> bool:
        return event in {START, USER, NONE} or self._is_name(event.removesuffix(ERROR))

    def _signature_ok(self, key: str) -> bool:
        return key in {TOTAL, NO_ARGS, TWINS} or all(map(self._is_name, key.split(",")))

    def _contexts(self) -> Json:
        tallies = self._model.contexts.tallies
        heaviest = sorted(tallies, key=lambda key: (-tallies[key][TOTAL], key))[:_MAX_CONTEXTS]
        found: Json = {}
        for key in heaviest:
            tally = tallies[key]
            if key.startswith(WORD):
                fits = tally[TOTAL] >= _LEAST_WORD and self._is_word(key.removeprefix(WORD))
            else:
                fits = all(map(self._is_event, names_in(key)))
            if fits:
                outcomes = [name for name in tally if name == TOTAL or self._is_event(name)]
                found[key] = _tally(tally, outcomes)
        return found

    def _is_word(self, word: str) -> bool:
        return f"w:{word}" in self._model.shared

    def _arguments(self) -> Json:
        found: dict[str, Json] = {}
        for (tool, arg), binding in self._model.bindings.known.items():
            if self._is_name(tool) and self._is_name(arg):
                found.setdefault(tool, {})[arg] = self._binding(f"{tool}.{arg}", binding)
        return dict(found)

    def _binding(self, where: str, binding: Binding) -> Json:
        shared = self._model.shared
        sources = [source for source in binding.sources if self._is_source(source)]
        constants = binding.constants
        texts = [
            text
            for text in constants.tally
            if text == TOTAL or f"c:{where}={text}" in shared or text in constants.named
        ]
        heard = sorted(
            (word for word in constants.votes if self._is_word(word)),
            key=lambda word: (-constants.votes[word][TOTAL], word),
        )
        return {
            "types": _tally(binding.types, binding.types),
            "sources": {_spelled(source): _short(binding.sources[source]) for source in sources},
            "rates": {
                _spelled(source): cells
                for source, rates in binding.rates.items()
                if self._is_source(source) and (cells := self._cells(rates))
            },
            "constants": _tally(constants.tally, texts),
            "votes": {
                word: _tally(tally, [text for text in tally if text in texts])
                for word in heard[:_MAX_WORDS]
                if (tally := constants.votes[word])[TOTAL] >= _LEAST_WORD
            },
        }

    def _is_source(self, source: Source) -> bool:
        kind = source[0]
        if kind in _PATHS:
            return self._is_name(source[1]) and f"s:{source[2]}" in self._model.shared
        if kind == "text":
            return self._is_name(source[1])
        if kind == "arg":
            return self._is_name(source[1]) and self._is_name(source[2])
        return kind != "same" or self._is_name(source[1])

    def _cells(self, cells: Cells) -> Json:
        found: Json = {}
        for slot, (hits, tries) in cells.items():
            _, after, event = slot.partition("@")
            least = _LEAST_TRIES_AFTER if after else _LEAST_TRIES
            if tries >= least and (not after or self._is_event(event)):
                found[slot] = [_short(hits), _short(tries)]
        return found

    def _knows_all_args(self, tool: str) -> bool:
        known = self._model.bindings.known
        return all(self._is_name(arg) for name, arg in known if name == tool)

    def _ranker(self) -> Json:
        ranker = self._model.ranker
        weights = zip(ranker.names, ranker.weights, strict=True)
        return {
            "examples": _short(ranker.examples),
            "weights": {name: round(weight, 4) for name, weight in weights},
            "marks": {
                mark: round(weight, 3)
                for mark, weight in ranker.marks.items()
                if abs(weight) >= _LEAST_COUNT and self._is_mark(mark)
            },
        }

    def _is_mark(self, mark: str) -> bool:
        head, _, tail = mark.partition("|")
        return self._is_event(tail) if head == NONE else self._is_name(head)


def _tally(tally: Mapping[str, float] | Tally, keys: Iterable[str]) -> Json:
    return {key: _short(tally[key]) for key in keys if tally[key] >= _LEAST_COUNT}


def _spelled(source: Source) -> str:
    return json.dumps(source, separators=(",", ":"))


def _short(number: float) -> float:
    return int(number) if number == int(number) else round(number, 2)
