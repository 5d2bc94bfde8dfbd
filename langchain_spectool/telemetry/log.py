"""`LogObserver`: every event as one line of the standard library's logging."""

import logging

from langchain_spectool._core.events import Event

_TROUBLE = {"refused", "not_openai", "elsewhere", "no_model", "no_run_end"}
"""What an engine's events say when it is of no use, and somebody can do something about it."""
_LEVELS = {"error": logging.WARNING, "claim": logging.INFO, "turn_ended": logging.INFO}


class LogObserver:
    """Writes events to a logger: claims and turns as INFO, failures as WARNING, the rest DEBUG.

    That an engine is of no use is a WARNING too, once for each reason.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Write to `logger`, or to the one named `langchain_spectool`."""
        self._logger = logger or logging.getLogger("langchain_spectool")
        self._warned: set[tuple[str, str]] = set()

    def on_event(self, event: Event) -> None:
        """Write one line."""
        level = self._level(event)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", _line(event))

    def _level(self, event: Event) -> int:
        reason = event.verdict, event.detail
        if event.kind == "engine" and event.verdict in _TROUBLE and reason not in self._warned:
            self._warned.add(reason)
            return logging.WARNING
        return _LEVELS.get(event.kind, logging.DEBUG)


def _line(event: Event) -> str:
    parts = [f"turn {event.turn}", event.kind, event.verdict]
    named = {
        "tool": event.tool,
        "source": event.source,
        "position": event.position,
        "spent_s": round(event.spent_s, 4) or None,
        "waited_s": round(event.waited_s, 4) or None,
        "hidden_s": round(event.hidden_s, 4) or None,
        "key": event.key_hash,
    }
    parts += [f"{name}={value}" for name, value in named.items() if value not in (None, "")]
    if event.detail:
        parts.append(repr(event.detail))  # escaped: a line stays a line
    return " ".join(part for part in parts if part)
