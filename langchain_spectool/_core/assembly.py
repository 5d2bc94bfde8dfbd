"""Tool calls put together from a model's stream, each reported once it can no longer grow."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, cast


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A fragment of one tool call, as the provider sent it; `""` and None both mean absent."""

    index: int | str | None
    id: str | None
    name: str | None
    args: str | None


@dataclass(frozen=True, slots=True)
class ClosedCall:
    """A call that is complete while the rest of its message still streams.

    `position` counts the calls of the message in the order they started, from 0, the ones that
    turn out malformed included.
    """

    position: int
    name: str
    args: dict[str, object]
    id: str | None


@dataclass(frozen=True, slots=True)
class VoidedCall:
    """Takes back the `ClosedCall` of this position: what was started for it must be dropped."""

    position: int


@dataclass(slots=True)
class _Call:
    index: int | str | None
    position: int
    name: str
    id: str | None
    args: list[str] = field(default_factory=list[str])
    state: Literal["open", "reported", "dead"] = "open"


class CallAssembler:
    """Collects the deltas of one model run and says which calls are closed.

    A call is closed by what comes after it, never by its arguments looking finished: the start
    of another call, the provider's end of its block, or later content of the same message. Its
    raw arguments must then be a strict JSON object. No arguments at all mean `{}`, but they are
    also how every call begins, and a truncated block ends like any other: such a call waits for
    later content or for the arguments of a later call.

    A delta that contradicts the stream so far makes its call doubtful: one for a call that is
    closed or no longer the newest, a second id or name, a call without a name. A doubtful call
    is not reported, or is voided. A fragment that fits no call makes the whole stream doubtful.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_key: dict[int | str | tuple[str | None], _Call] = {}
        self._lost = False

    def feed(
        self,
        deltas: Sequence[CallDelta],
        *,
        later_content: bool = False,
        ended: Collection[int | str] = (),
    ) -> list[ClosedCall | VoidedCall]:
        """Take one step of the stream and return what it settles; never raises.

        Args:
            deltas: The fragments of this step, in order.
            later_content: Text or another non-tool block follows these deltas.
            ended: Indexes whose block the provider has ended.
        """
        changes: list[ClosedCall | VoidedCall] = []
        for delta in deltas:
            for call in self._take(delta):
                if call.state == "reported":
                    changes.append(VoidedCall(call.position))
                call.state = "dead"
        for call in self._closed(ended, later_content=later_content):
            args = _object("".join(call.args))
            if args is None:
                call.state = "dead"
            else:
                call.state = "reported"
                changes.append(ClosedCall(call.position, call.name, args, call.id))
        return changes

    def _take(self, delta: CallDelta) -> Sequence[_Call]:
        """Add `delta` to its call and return the calls it makes doubtful."""
        # LangChain merges nothing without an index: such a call stands alone, known by its id.
        key = (delta.id,) if delta.index is None else delta.index
        call = self._by_key.get(key)
        id_adds = bool(delta.id) and (call is None or delta.id != call.id)
        if self._lost or not (id_adds or delta.name or delta.args):
            return ()
        if call is None:
            return self._start(key, delta)
        if id_adds and call.id:
            # Two calls under one index: LangChain keeps them apart, so both hold a position.
            return (call, self._append(key, delta))
        newest = call is self._calls[-1] and call.state == "open"
        if delta.name or delta.index is None or not newest:
            return (call,)
        call.id = call.id or delta.id
        call.args += [delta.args] if delta.args else []
        return ()

    def _start(self, key: int | str | tuple[str | None], delta: CallDelta) -> Sequence[_Call]:
        """Begin the call of a key not seen before and return the calls this makes doubtful."""
        whole = delta.id and delta.name
        if not (whole if delta.index is None else delta.id or delta.name):
            self._lost = True
            return self._calls
        call = self._append(key, delta)
        return () if call.name else (call,)

    def _append(self, key: int | str | tuple[str | None], delta: CallDelta) -> _Call:
        call = _Call(delta.index, len(self._calls), delta.name or "", delta.id or None)
        call.args += [delta.args] if delta.args else []
        self._calls.append(call)
        self._by_key[key] = call
        return call

    def _closed(self, ended: Collection[int | str], *, later_content: bool) -> list[_Call]:
        """Return the open calls that something now follows, in order of position."""
        closed: list[_Call] = []
        followed = arguments_follow = later_content
        for call in reversed(self._calls):
            is_over = (followed or call.index in ended) if call.args else arguments_follow
            if call.state == "open" and is_over:
                closed.append(call)
            if call.state != "dead":
                followed = True
                arguments_follow = arguments_follow or bool(call.args)
        return closed[::-1]


def _object(raw: str) -> dict[str, object] | None:
    """Parse the arguments of a closed call; None for all but a strict JSON object.

    Nothing and `null` are how providers spell a call without arguments.
    """
    try:
        value: object = json.loads(raw or "null", parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _finite(literal: str) -> float:
    """Read a float, refusing one such as 1e999 that only infinity could hold."""
    number = float(literal)
    return number if math.isfinite(number) else _refuse(literal)


def _refuse(literal: str) -> NoReturn:
    msg = f"{literal} is not a JSON number"
    raise ValueError(msg)
