"""The ports other code plugs into: speculators guess, observers watch."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from langchain_spectool._core.assembly import CallAssembler
from langchain_spectool._core.events import Event
from langchain_spectool._core.guess import Guess, TurnRequest


@runtime_checkable
class Speculator(Protocol):
    """Anything that yields guesses for a turn.

    Every sample runs on its own, as a task under `ainvoke` and in a thread under `invoke`; a
    guess starts its tool as soon as it is yielded. Samples are cancelled (async) or abandoned
    (sync) once the main model has answered. Whatever a sample raises costs only that sample.
    `speculators.contract.check_speculator` checks what every implementation promises.

    It may also have `model_name`, the model it asks, for prices and budgets; `free = True` if
    asking it costs nothing, so that it is asked even while it is right too seldom; and `warm_up`,
    how many of its guesses are only scored before any runs.
    """

    @property
    def name(self) -> str:
        """Label of this source in events and reports, from a small fixed set."""
        ...

    @property
    def samples(self) -> int:
        """How many samples run at once; 0 for a source that only listens to the stream."""
        ...

    @property
    def timeout_s(self) -> float:
        """Seconds after which a sample is given up."""
        ...

    def guess(self, request: TurnRequest, sample: int) -> Iterable[Guess]:
        """Yield guesses; may block."""
        ...

    def aguess(self, request: TurnRequest, sample: int) -> AsyncIterable[Guess]:
        """Yield guesses without blocking the event loop."""
        ...


@runtime_checkable
class StreamSpeculator(Protocol):
    """A source that reads the main model's own stream.

    `listen` is called once per model attempt and returns the assembler whose closed calls
    become guesses.
    """

    @property
    def name(self) -> str:
        """Label of this source in events and reports."""
        ...

    @property
    def force(self) -> bool:
        """Whether to switch streaming on when the caller did not ask for it."""
        ...

    def listen(self, request: TurnRequest) -> CallAssembler:
        """Return a fresh assembler for one attempt of the main model."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A source that learns from what the main model really called."""

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        """Take note that the model answered `request` with `calls`, none if it called nothing.

        Told once per committed turn, after its plan is made, from whichever thread committed it:
        it must return at once, so what takes longer waits for the next guess. `calls` are
        LangChain's tool calls, with `name` and `args`. Neither argument may be changed.
        """
        ...


@runtime_checkable
class Forker(Speculator, Protocol):
    """A speculator that can be asked again while the main model still writes.

    Asked once per turn, as soon as the model has written `fork_after` characters of text and no
    call yet. It hears the text where the model streams, and makes no model stream.
    """

    @property
    def fork_after(self) -> int:
        """Characters of the main model's text after which it is forked, once; 0 for never."""
        ...

    def fork(self, request: TurnRequest, partial: str, sample: int) -> Iterable[Guess]:
        """Yield guesses for an answer that begins with `partial`; may block."""
        ...

    def afork(self, request: TurnRequest, partial: str, sample: int) -> AsyncIterable[Guess]:
        """Yield guesses for an answer that begins with `partial`."""
        ...


def payer_of(source: Speculator, sample: int) -> str:
    """Return the label of who asks a model for a sample: of a group, one of its members."""
    told: Callable[[int], str] | None = getattr(source, "payer", None)
    return source.name if told is None else told(sample)


class Observer(Protocol):
    """Receives every event, in order, from whichever thread caused it.

    It must return at once, must not call back into the Speculation, and must not raise; what it
    raises is dropped.
    """

    def on_event(self, event: Event) -> None:
        """Take one event."""
        ...


Clock = Callable[[], float]
"""Seconds on a monotonic clock: the loop's, or `time.monotonic`."""
