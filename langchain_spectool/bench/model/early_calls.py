"""Which calls of an event log a guess could have answered at all."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_spectool._core.events import Event
from langchain_spectool._core.verdicts import SERVED

UNDECLARED: Final = "undeclared"
_FENCED: Final = "fenced"
_OF_THE_TOOL: Final = frozenset({UNDECLARED, "not_early", "structure", "gated", "external"})
"""Verdicts of guesses that hold for every guess of the tool."""
_ADMITTED: Final = frozenset({"run", "shadow"})
NO_TOOL: Final = "other"
"""How events call a tool that a model made up; it has no contract."""

Place = tuple[int, int]
"""The number of a turn, and the position of a call in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyCalls:
    """What a log says of the calls that no guess could have answered."""

    barred: Mapping[Place, str]
    """Why, by place; calls that may be answered early are not in it."""
    tools: Mapping[str, str]
    """The same of tools none of whose calls may run early."""
    known: bool
    """Whether the log says it of all calls; else some of the others may be barred too."""


def early_calls(events: Sequence[Event]) -> EarlyCalls:
    """Read which calls may run early.

    Logs of early versions do not say it of the calls. There a tool is barred if its guesses were,
    it may run early if one of them was admitted, and of all others nothing is known.
    """
    refused = {e.tool: e.verdict for e in events if _bars(e)}
    proven = {event.tool for event in events if _proves(event)}
    refused = {tool: why for tool, why in refused.items() if tool not in proven}
    names = {
        (event.turn, event.position): event.tool
        for event in events
        if event.kind in ("claim", "call_ended") and event.position is not None
    }
    found = _Found(refused, frozenset(proven), names)
    for event in events:
        if event.kind == "turn_committed":
            found.take(event)
    return EarlyCalls(
        barred=found.barred,
        tools={**refused, **dict(found.tools())},
        known=found.known,
    )


def _bars(event: Event) -> bool:
    return event.kind == "guess" and event.verdict in _OF_THE_TOOL


def _proves(event: Event) -> bool:
    if event.kind == "claim":
        return event.verdict in SERVED or event.verdict == "shadow_hit"
    return event.kind == "guess" and event.verdict in _ADMITTED


class _Found:
    def __init__(
        self, refused: Mapping[str, str], proven: frozenset[str], names: Mapping[Place, str]
    ) -> None:
        self.barred: dict[Place, str] = {}
        self.known = True
        self._refused = {NO_TOOL: UNDECLARED, **refused}
        self._proven = proven
        self._names = names
        self._reasons: defaultdict[str, set[str]] = defaultdict(set)

    def take(self, event: Event) -> None:
        """Judge the calls of an answer."""
        fenced = False
        for position in range(max(0, event.position or 0)):
            place = (event.turn, position)
            tool = _at(event.tools, position) or self._names.get(place, "")
            said = None if event.barred is None else _at(event.barred, position)
            reason = said or self._refused.get(tool, "")
            self.known &= said is not None or bool(reason) or fenced or tool in self._proven
            reason = _FENCED if fenced else reason
            fenced = fenced or reason == UNDECLARED
            self._reasons[tool].add(reason)
            if reason:
                self.barred[place] = reason

    def tools(self) -> Iterator[tuple[str, str]]:
        """Yield the tools whose every call is barred, and not by an earlier call alone."""
        for tool, reasons in self._reasons.items():
            own = reasons - {_FENCED}
            if tool and own and "" not in own:
                yield tool, min(own)


def _at(texts: Sequence[str], position: int) -> str | None:
    return texts[position] if position < len(texts) else None
