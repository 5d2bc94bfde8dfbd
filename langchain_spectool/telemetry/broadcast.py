"""Tells every observer every event, and the developer what only a developer can mend."""

import contextlib
import warnings
from collections.abc import Sequence

from langchain_spectool._core.events import Event
from langchain_spectool._core.ports import Observer


class Broadcast:
    """The one place where events leave. None of its methods raise."""

    def __init__(self, observers: Sequence[Observer], own: Sequence[Observer] = ()) -> None:
        """Tell our `own` observers and then the user's, in order."""
        self._observers = (*own, *observers)
        self.heard = bool(observers)
        """Whether anybody but us listens: else what only a log would want is not told."""
        self._warned: set[str] = set()

    def emit(self, event: Event) -> None:
        """Tell every observer; one that raises loses only this event."""
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception as error:  # noqa: BLE001 - an observer never reaches the run
                self.warn_once(f"an observer raised {error!r}; its event is dropped")

    def failed(self, what: str, error: Exception) -> None:
        """Report a failure of ours as one event."""
        self.emit(
            Event(
                kind="error",
                at_s=0.0,
                verdict=type(error).__name__,
                source=what,
                detail=str(error),
            )
        )

    def warn_once(self, text: str) -> None:
        """Warn the developer, once per text."""
        if text not in self._warned:
            self._warned.add(text)
            with contextlib.suppress(RuntimeWarning):  # an error where warnings are errors
                warnings.warn(text, RuntimeWarning, stacklevel=3)
