"""When the main model has written enough for a source to be asked again from there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from langchain_spectool._core.ports import Forker
from langchain_spectool.graph.deltas import StreamStep


@dataclass(slots=True)
class Forks:
    """The text so far of the attempt that writes, and who still waits for enough of it."""

    waiting: list[Forker]
    _attempt: UUID | None = None
    _parts: list[str] = field(default_factory=list[str])
    _length: int = 0

    @classmethod
    def of(cls, forkers: Iterable[Forker]) -> "Forks":
        """Wait for those of `forkers` that want to be asked again at all."""
        return cls([forker for forker in forkers if forker.fork_after > 0])

    def heard(self, attempt: UUID, step: StreamStep) -> Iterator[tuple[Forker, str]]:
        """Yield who is to be asked now, each once a turn, and the text it goes on from."""
        if attempt != self._attempt:
            self._attempt, self._parts, self._length = attempt, [], 0
        if step.deltas:
            self.waiting = []  # the call is being written: no guess of it would come in time
        if not (self.waiting and step.text):
            return
        self._parts.append(step.text)
        self._length += len(step.text)
        due = [forker for forker in self.waiting if forker.fork_after <= self._length]
        self.waiting = [forker for forker in self.waiting if forker not in due]
        for forker in due:
            yield forker, "".join(self._parts)
