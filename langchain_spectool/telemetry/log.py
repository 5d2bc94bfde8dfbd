"""`LogObserver`: every event as one line of the standard library's logging."""

import logging

from langchain_spectool._core.events import Event

_LEVELS = {"error": logging.WARNING, "claim": logging.INFO, "turn_ended": logging.INFO}


class LogObserver:
    """Writes events to a logger: claims and turns as INFO, failures as WARNING, the rest DEBUG."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """Write to `logger`, or to the one named `langchain_spectool`."""
        self._logger = logger or logging.getLogger("langchain_spectool")

    def on_event(self, event: Event) -> None:
        """Write one line."""
        level = _LEVELS.get(event.kind, logging.DEBUG)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", _line(event))


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
