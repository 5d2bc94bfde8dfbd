"""Server-sent events, byte for byte: where each one ends, and what it says."""

import re

DONE = b"[DONE]"
MOST_BYTES = 8 * 1024 * 1024
"""Most bytes one event may have; a body with a longer one is not ours to read."""

_LINE_END = rb"(?:\r\n|\n|\r(?=[^\n]))"  # a last \r may be half of \r\n: wait for what follows
_EVENT_END = re.compile(_LINE_END + _LINE_END)
_LINES = re.compile(rb"\r\n|\n|\r")
_REACH = 4
"""Bytes an end of event may take."""


class EventSplitter:
    """Cuts a body into whole events, however its chunks fall."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self._held = bytearray()
        self._seen = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take more of the body; return the events that are whole now, with their line ends.

        Raises:
            ValueError: An event is longer than `MOST_BYTES`.
        """
        self._held += chunk
        events: list[bytes] = []
        start = 0
        for end in _EVENT_END.finditer(self._held, self._seen):
            events.append(bytes(self._held[start : end.end()]))
            start = end.end()
        del self._held[:start]
        self._seen = max(0, len(self._held) - _REACH)
        if len(self._held) > MOST_BYTES:
            msg = f"an event of more than {MOST_BYTES} bytes: this is no stream of answers"
            raise ValueError(msg)
        return events

    def rest(self) -> bytes:
        """Return, once, what is left when the body has ended, or is not to be read any more."""
        rest = bytes(self._held)
        self._held.clear()
        self._seen = 0
        return rest


def data_of(event: bytes) -> bytes | None:
    """Return what an event says; None if it has no data, as a comment has none."""
    lines = [line for line in _LINES.split(event) if line.startswith(b"data")]
    said = [
        value.removeprefix(b" ")
        for name, _, value in (line.partition(b":") for line in lines)
        if name == b"data"
    ]
    return b"\n".join(said) if said else None


def is_done(event: bytes) -> bool:
    """Say whether this event ends an answer."""
    return DONE in event and (data_of(event) or b"").startswith(DONE)
