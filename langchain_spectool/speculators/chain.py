"""`Chain`: goes on guessing on the results of early runs, one call further each time."""

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._core.ports import Learner, Speculator, payer_of


class Chain:
    """Guesses as `inner` does, and again on the real result of every early run that landed.

    While the main model still writes its turn, an early run may be back already. `inner` is then
    asked what the model would call next if it made that call and saw that result; what it guesses
    runs as well, and waits for the next turn. Confidences multiply along the chain. When the model
    does not make a call of the chain, all that hangs on it is cancelled.

    Args:
        inner: Where guesses come from; early runs of other sources are gone on from, too.
        depth: Calls guessed ahead, from 2: the one of this turn counts as the first.

    Raises:
        ValueError: `depth` is no whole number of 2 or more, or `inner` takes no samples.
    """

    def __init__(self, inner: Speculator, depth: int = 2) -> None:
        """Guess by `inner`."""
        whole = isinstance(cast("object", depth), int) and not isinstance(depth, bool)
        if not whole or depth < 2:  # noqa: PLR2004 - said in the message
            msg = f"`depth` of a chain must be a whole number of 2 or more, got {depth!r}"
            raise ValueError(msg)
        if not isinstance(cast("object", inner), Speculator) or inner.samples < 1:
            msg = f"`inner` of a chain must be a speculator that takes samples, got {inner!r}"
            raise ValueError(msg)
        self.inner = inner
        self.depth = depth

    @property
    def name(self) -> str:
        """The label of `inner`; what it guesses further on is labelled `chain`."""
        return self.inner.name

    @property
    def samples(self) -> int:
        """How many samples `inner` takes."""
        return self.inner.samples

    @property
    def timeout_s(self) -> float:
        """Seconds after which a sample of `inner` is given up."""
        return self.inner.timeout_s

    @property
    def members(self) -> Sequence[object]:
        """Whom it speaks for."""
        return (self.inner,)

    def payer(self, sample: int) -> str:
        """Return the label of who asks a model for `sample`."""
        return payer_of(self.inner, sample)

    def guess(self, request: TurnRequest, sample: int) -> Iterable[Guess]:
        """Guess as `inner` does."""
        return self.inner.guess(request, sample)

    def aguess(self, request: TurnRequest, sample: int) -> AsyncIterable[Guess]:
        """Guess as `inner` does."""
        return self.inner.aguess(request, sample)

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        """Let `inner` learn, if it does."""
        if isinstance(self.inner, Learner):
            self.inner.learn(request, calls)
