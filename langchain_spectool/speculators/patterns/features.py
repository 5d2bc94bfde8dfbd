"""What speaks for each candidate of a turn, and for no candidate at all, in numbers."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from langchain_spectool.speculators.patterns.bindings import Choice
from langchain_spectool.speculators.patterns.context import NONE
from langchain_spectool.speculators.patterns.history import ERROR, History
from langchain_spectool.speculators.patterns.ranker import Row

PRIOR: Mapping[str, float] = {
    "bias": -0.3,  # always 1
    "tool": 0.5,  # log chance of the tool after the last events
    "used": 0.3,  # log chance of the tool after the tools used so far
    "words": 0.2,  # what the user's words add to that
    "args": 1.2,  # log chance of the arguments
    "weakest": 0.3,  # log chance of the least likely argument
    "best": 0.7,  # is the tool's likeliest call
    "recent": 0.1,  # share of the arguments found in the latest message
    "all_recent": 0.5,  # all of them were
    "together": 0.2,  # all were found in one place
    "votes": 0.3,  # sources that agree on an argument, up to 5
    "called": -2.3,  # the same call was made before
    "repeat": 0.1,  # the same tool was called last
    "unknown": 0.1,  # the tool was not used yet
    "user": 0.2,  # the user spoke last
    "user_recent": 0.5,  # and said all the arguments
    "error": -0.1,  # the last output was an error
    "no_args": -0.1,  # there are no arguments
    "cold_recent": 0.7,  # as `all_recent`, of a tool hardly ever seen called
    "cold_repeat": 3.0,  # as `repeat`, of such a tool: it may be walking a list
    "cold_used": -1.0,  # such a tool was used before, and another one last
    "null": -0.6,  # from here: no candidate comes true
    "null_none": 0.3,  # log chance of no call at all
    "null_other": 0.0,  # log chance of a tool that may not run early
    "null_words": 0.1,  # what the user's words add to these
    "null_user": -0.1,  # the user spoke last
    "null_best": -0.4,  # log chance of the likeliest candidate
}
"""The weights before anything was learned. They are means, rounded to a tenth, of what two unlike
domains taught (the recorded conversations that docs/patterns.md names); those of `cold_` are
set by hand, to what a person would guess."""

_NAMES = tuple(PRIOR)
_AT = _NAMES.index("null")
_NULL_PADDING = (0.0,) * _AT
_LEAST = 1e-3
_MAX_VOTES = 5


@dataclass(slots=True)
class Candidate:
    """A call that may come next."""

    tool: str
    args: dict[str, object]
    choices: Mapping[str, Choice]
    key: str
    chance: float
    """Chance of the arguments, given the tool."""
    score: float
    """Rough chance of the call, by which candidates are picked."""
    cold: float
    """1 for a tool that was never seen called, falling with every call."""
    row: Row = ((), ())


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a turn before its candidates."""

    history: History
    chances: Mapping[str, float]
    used: Mapping[str, float]
    votes: Mapping[str, float]
    said: Sequence[str]


def describe(candidate: Candidate, facts: Facts, *, best: bool) -> Row:
    """Return a candidate's features, which end where those of no candidate begin, and marks."""
    history = facts.history
    tool = candidate.tool
    choices = list(candidate.choices.values())
    recent = [choice.serial == history.serial for choice in choices]
    user, said = history.after_user, bool(recent) and all(recent)
    repeat = history.last_event.rstrip(ERROR) == tool
    features = (
        1.0,
        _log(facts.chances[tool]),
        _log(facts.used[tool]),
        facts.votes[tool],
        _log(candidate.chance),
        _log(min([choice.chance for choice in choices], default=1.0)),
        float(best),
        sum(recent) / len(recent) if recent else 0.0,
        float(said),
        float(len(choices) > 1 and _share_a_place(choices)),
        min(_MAX_VOTES, sum(c.votes for c in choices)) / len(choices) if choices else 0.0,
        float(candidate.key in history.called),
        float(repeat),
        float(tool not in history.tools_called),
        float(user),
        float(user and said),
        float(history.last_event.endswith(ERROR)),
        float(not choices),
        candidate.cold * said,
        candidate.cold * (repeat and bool(choices) and not any(recent)),
        candidate.cold * (not repeat and tool in history.tools_called),
    )
    turn = "U" if user else "T"
    marks: tuple[str, ...] = (tool, f"{tool}|{turn}", f"{tool}|{turn}{int(said)}")
    if len(choices) > 1:
        marks = (*marks, f"{tool}|~{_change(candidate, history)}")
    return features, marks


def describe_null(facts: Facts, declared: Collection[str], best: float) -> Row:
    """Return the features and marks of no candidate coming true; `best` is the likeliest one's."""
    others = [name for name in facts.chances if name not in declared and name != NONE]
    features = (
        *_NULL_PADDING,
        1.0,
        _log(facts.chances[NONE]),
        _log(sum(facts.chances[name] for name in others)),
        max([facts.votes[NONE], *(facts.votes[name] for name in others)]),
        float(facts.history.after_user),
        _log(best),
    )
    return features, (f"{NONE}|{facts.history.last_event}",)


def _log(chance: float) -> float:
    return math.log(chance) if chance > _LEAST else _LOG_LEAST


_LOG_LEAST = math.log(_LEAST)


def _share_a_place(choices: Sequence[Choice]) -> bool:
    first, *others = (choice.places.keys() for choice in choices)
    return any(all(place in places for places in others) for place in first)


def _change(candidate: Candidate, history: History) -> str:
    """Say of each argument whether it keeps its last value, takes another's, or is new."""
    last = history.last_args.get(candidate.tool)
    if last is None:
        return ""
    change = ""
    for name in sorted(candidate.args):
        value = candidate.args[name]
        change += "=" if last.get(name) == value else "<" if value in last.values() else "*"
    return change
