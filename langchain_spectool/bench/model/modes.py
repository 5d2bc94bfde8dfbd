"""Tells the turns of an event log in shadow mode from those in which speculation was on."""

from collections.abc import Iterable, Sequence
from typing import Final

from langchain_spectool._core.events import Event
from langchain_spectool._core.verdicts import SERVED

_ONLY_LIVE: Final = frozenset({"run", "warming_up", "backing_off", "not_worth", "over_budget"})


def split(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Return the events of live turns, and those of turns in shadow mode.

    `EventLog` appends: one file may hold both. Turns of early versions do not say what they are.
    What became of their guesses does; where they have none, their run does, or the turn before.
    """
    turns, runs = _modes(events)
    apart: tuple[list[Event], list[Event]] = ([], [])
    for event in events:
        shadow = turns.get(event.turn) if event.turn else runs.get(event.run)
        apart[bool(shadow)].append(event)
    return apart


def _modes(events: Sequence[Event]) -> tuple[dict[int, bool], dict[str, bool]]:
    """Return whether turns, and whether runs, were in shadow mode."""
    turns: dict[int, bool] = {}
    run_of: dict[int, str] = {}
    for event in events:
        if event.turn and (found := _evidence(event)) is not None:
            said = event.kind == "turn_committed"
            turns[event.turn] = found if said else turns.get(event.turn, found)
        if event.turn and event.run:
            run_of[event.turn] = event.run
    runs: dict[str, bool] = {}
    for turn, shadow in turns.items():
        if turn in run_of:
            runs.setdefault(run_of[turn], shadow)
    before = next(iter(turns.values()), False)
    for turn in dict.fromkeys(event.turn for event in events if event.turn):
        run = run_of.get(turn, "")
        before = turns.setdefault(turn, runs.get(run, before))
        if run:
            runs.setdefault(run, before)
    return turns, runs


def _evidence(event: Event) -> bool | None:
    match event.kind:
        case "turn_committed" if event.barred is not None:  # a version that says both
            return event.arm == "shadow"
        case "guess" if event.verdict == "shadow":
            return True
        case "guess" if event.verdict in _ONLY_LIVE:
            return False
        case "claim" if event.verdict == "shadow_hit":
            return True
        case "claim" if event.verdict in SERVED:
            return False
        case _:
            return None


def turns_in(events: Iterable[Event]) -> int:
    """Count the turns that events tell of."""
    return len({event.turn for event in events if event.turn})
