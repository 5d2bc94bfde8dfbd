"""Finds the turn of calls that no plan named: their event knows only the run."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from langchain_spectool._core.events import Event

_MOST_TURNS: Final = 64
"""Turns of a run in which a call is looked for: nested and parallel ones are fewer."""

_Open = tuple[int, dict[int, str]]
"""A turn, and the tools of its calls that have not ended, by position."""


def placed(events: Sequence[Event]) -> list[Event]:
    """Return the same events, each `call_ended` with the turn and position of its call.

    A call of a turn without a plan is the earliest one of its tool in the latest turn of its run
    that has one. What fits nowhere, such as the second try of a call, stays as it is.
    """
    ended = {
        (event.turn, event.position)
        for event in events
        if event.kind == "call_ended" and event.turn
    }
    waiting: dict[str, deque[_Open]] = {}
    found: list[Event] = []
    for event in events:
        if event.kind == "turn_committed" and event.run:
            tools = {
                position: tool
                for position, tool in enumerate(event.tools)
                if (event.turn, position) not in ended
            }
            turns = waiting.setdefault(event.run, deque(maxlen=_MOST_TURNS))
            turns.append((event.turn, tools))
        elif event.kind == "run_ended":
            waiting.pop(event.run, None)
        elif event.kind == "call_ended" and not event.turn:
            event = _placed(event, waiting.get(event.run, ()))  # noqa: PLW2901 - the same one
        found.append(event)
    return found


def _placed(event: Event, turns: Sequence[_Open]) -> Event:
    for turn, tools in reversed(turns):
        for position, tool in tools.items():
            if tool == event.tool:
                del tools[position]
                return replace(event, turn=turn, position=position)
    return event
