"""Reads an answer while it is written, no further than its calls."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_spectool._core.assembly import CallAssembler, CallDelta, ClosedCall
from langchain_spectool.speculators.asking import Usage, usage_of

Call = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments, as the model wrote them."""


class Reading:
    """One answer of a model that is only asked for its next calls.

    Unlike the main model's own calls, those of a guess are complete as soon as their arguments
    are: an object that has been closed cannot grow. `{}` may still be how a call begins.
    """

    def __init__(self) -> None:
        """Read nothing yet."""
        self.begun = False
        """Whether the model has said anything."""
        self.over = False
        """Whether what follows is of no interest: text after the calls."""
        self.usage: Usage = None
        """Input and output tokens known so far."""
        self._assembler = CallAssembler()
        self._written: defaultdict[int | str | None, str] = defaultdict(str)

    def feed(self, part: object) -> Iterator[Call]:
        """Take a chunk of the answer, or all of it, and yield the calls it completes."""
        if not isinstance(part, AIMessage):
            return
        self.begun = True
        self._count(usage_of(part))
        if isinstance(part, AIMessageChunk):
            yield from self._step(part)
        else:
            self.over = True
            for call in part.tool_calls:
                yield call["name"], call["args"]

    def end(self) -> Iterator[Call]:
        """Take the end of the answer and yield the calls that only it completes."""
        return self._settled((), later_content=True)

    def _count(self, usage: Usage) -> None:
        if usage is not None:
            before = self.usage or (0, 0)
            self.usage = (before[0] + usage[0], before[1] + usage[1])

    def _step(self, chunk: AIMessageChunk) -> Iterator[Call]:
        deltas = [
            CallDelta(part["index"], part["id"], part["name"], part["args"])
            for part in chunk.tool_call_chunks
        ]
        follows = bool(self._written) and not deltas and bool(chunk.text)
        yield from self._settled(deltas, later_content=follows)
        complete = [delta.index for delta in deltas if self._completes(delta)]
        if None in complete:
            yield from self._settled((), later_content=True)
        elif complete:
            yield from self._settled((), ended=complete)
        self.over = follows

    def _completes(self, delta: CallDelta) -> bool:
        before = "" if delta.index is None else self._written[delta.index]  # without: a whole call
        written = self._written[delta.index] = before + (delta.args or "")
        return written.rstrip().endswith("}") and _is_object(written)

    def _settled(self, deltas: Sequence[CallDelta], **closing: Any) -> Iterator[Call]:
        for change in self._assembler.feed(deltas, **closing):
            if isinstance(change, ClosedCall):
                yield change.name, change.args


def _is_object(written: str) -> bool:
    try:
        return bool(json.loads(written))
    except (ValueError, RecursionError):
        return False
