"""A model from what a file holds, checked piece by piece; and one model added to another."""

import json
import math
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from langchain_spectool.speculators.patterns.bindings import Binding
from langchain_spectool.speculators.patterns.context import NONE, WORD
from langchain_spectool.speculators.patterns.counts import TOTAL, Cells, Tally
from langchain_spectool.speculators.patterns.history import ERROR
from langchain_spectool.speculators.patterns.model import Model
from langchain_spectool.speculators.patterns.shared import Shared
from langchain_spectool.speculators.patterns.sources import Source

_PAIR = 2
_SQUARES_AN_EXAMPLE = 0.05
"""Roughly what one example adds to a weight's squared steps, which no file keeps."""

Value = TypeVar("Value")


def restored(held: object, shared_across: int) -> Model:
    """Return the model that a file holds.

    Raises:
        ValueError, TypeError, KeyError: It is not what `published` returns.
    """
    content = _mapping(held)
    model = Model(shared_across)
    model.turns = _count(content["turns"])
    model.contexts.tallies = _each(content["contexts"], _tally)
    model.signatures.tallies = _each(content["signatures"], _tally)
    model.bindings.kinds = _each(content["kinds"], _cells)
    model.joints.rates = _each(content["joints"], _cells)
    for tool, args in _mapping(content["arguments"]).items():
        for arg, binding in _mapping(args).items():
            model.bindings.known[tool, arg] = _binding(_mapping(binding))
    _restore_ranker(model, _mapping(content["ranker"]))
    calibration = _mapping(content["calibration"])
    model.calibration.bins = _cells(calibration["bins"])
    model.calibration.tools = _each(calibration["tools"], _pair)
    _publish_all(model)
    return model


def _restore_ranker(model: Model, held: Mapping[str, object]) -> None:
    weights = _each(held["weights"], _number)
    ranker = model.ranker
    ranker.weights = [
        weights.get(name, prior) for name, prior in zip(ranker.names, ranker.weights, strict=True)
    ]
    ranker.marks = _each(held["marks"], _number)
    ranker.settle(_count(held["examples"]), _SQUARES_AN_EXAMPLE)


def _binding(held: Mapping[str, object]) -> Binding:
    binding = Binding()
    binding.types = _tally(held["types"])
    binding.sources = {_source(k): _count(v) for k, v in _mapping(held["sources"]).items()}
    binding.rates = {_source(k): _cells(v) for k, v in _mapping(held["rates"]).items()}
    binding.constants.tally = _tally(held["constants"])
    binding.constants.votes = _each(held["votes"], _tally)
    return binding


def _publish_all(model: Model) -> None:
    """Take every name, word, path and value of a file for public: none else is in it."""
    shared = model.shared
    for tool in model.signatures.tallies:
        shared.publish(f"n:{tool}")
    for key, tally in model.contexts.tallies.items():
        if key.startswith(WORD):
            shared.publish(f"w:{key.removeprefix(WORD)}")
        for outcome in tally.keys() - {TOTAL, NONE}:
            shared.publish(f"n:{outcome.removesuffix(ERROR)}")
    for (tool, arg), binding in model.bindings.known.items():
        shared.publish(f"n:{tool}")
        shared.publish(f"n:{arg}")
        for source in (*binding.sources, *binding.rates):
            shared.publish(f"s:{source[-1]}")
        for word in binding.constants.votes:
            shared.publish(f"w:{word}")
        for text in binding.constants.tally.keys() - {TOTAL}:
            shared.publish(f"c:{tool}.{arg}={text}")


def merge_models(mine: Model, theirs: Model) -> None:
    """Add what `theirs` counted to `mine`; weights are averaged by the examples behind them."""
    mine.turns += theirs.turns
    _add_tallies(mine.contexts.tallies, theirs.contexts.tallies)
    _add_tallies(mine.signatures.tallies, theirs.signatures.tallies)
    for ours, other in (
        (mine.bindings.kinds, theirs.bindings.kinds),
        (mine.joints.rates, theirs.joints.rates),
    ):
        for name, cells in other.items():
            _add_cells(ours.setdefault(name, {}), cells)
    for key, binding in theirs.bindings.known.items():
        _add_binding(mine.bindings.known.setdefault(key, Binding()), binding)
    mine.ranker.add(theirs.ranker)
    mine.calibration.add(theirs.calibration)
    _add_shared(mine.shared, theirs.shared)
    mine.bindings.version += 1


def _add_binding(mine: Binding, theirs: Binding) -> None:
    _add_tally(mine.types, theirs.types)
    for source, weight in theirs.sources.items():
        mine.sources[source] = mine.sources.get(source, 0.0) + weight
    for source, cells in theirs.rates.items():
        _add_cells(mine.rates.setdefault(source, {}), cells)
    _add_tally(mine.constants.tally, theirs.constants.tally)
    _add_tallies(mine.constants.votes, theirs.constants.votes)
    mine.constants.named |= theirs.constants.named
    mine.refresh()


def _add_tallies(mine: dict[str, Tally], theirs: Mapping[str, Tally]) -> None:
    for key, tally in theirs.items():
        _add_tally(mine.setdefault(key, {}), tally)


def _add_tally(mine: Tally, theirs: Tally) -> None:
    for key, number in theirs.items():
        mine[key] = mine.get(key, 0.0) + number


def _add_cells(mine: Cells, theirs: Cells) -> None:
    for slot, (hits, tries) in theirs.items():
        cell = mine.setdefault(slot, [0.0, 0.0])
        cell[0] += hits
        cell[1] += tries


def _add_shared(mine: Shared, theirs: Shared) -> None:
    for item in theirs.public:
        mine.publish(item)
    for item, runs in theirs.pending():
        for run in runs:
            mine.seen(item, run)


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        msg = f"expected an object, got {type(value).__name__}"
        raise TypeError(msg)
    return cast("dict[str, object]", value)


def _each(value: object, read: Callable[[object], Value]) -> dict[str, Value]:
    return {key: read(item) for key, item in _mapping(value).items()}


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    msg = f"expected a number, got {str(value)[:40]!r}"
    raise ValueError(msg)


def _count(value: object) -> float:
    number = _number(value)
    if number < 0:
        msg = f"expected a number from 0, got {number!r}"
        raise ValueError(msg)
    return number


def _tally(value: object) -> Tally:
    tally = _each(value, _count)
    if tally and not tally.get(TOTAL):
        msg = "a table has no total"
        raise ValueError(msg)
    return tally


def _pair(value: object) -> list[float]:
    if not isinstance(value, list) or len(cast("list[object]", value)) != _PAIR:
        msg = "expected a pair of numbers"
        raise ValueError(msg)
    return [_count(part) for part in cast("list[object]", value)]


def _cells(value: object) -> Cells:
    return _each(value, _pair)


def _source(spelled: str) -> Source:
    parts: object = json.loads(spelled)
    if not isinstance(parts, list) or not parts:
        msg = f"{spelled[:40]!r} is no source"
        raise ValueError(msg)
    items = cast("list[object]", parts)
    if not all(isinstance(part, str) for part in items):
        msg = f"{spelled[:40]!r} is no source"
        raise TypeError(msg)
    return tuple(cast("list[str]", items))
