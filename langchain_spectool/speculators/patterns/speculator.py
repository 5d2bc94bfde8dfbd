"""`Patterns`: guesses from what the agent did before."""

import os
import random
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._runtime.steps import off_the_loop
from langchain_spectool.speculators.patterns.history import Histories, History
from langchain_spectool.speculators.patterns.model import Model
from langchain_spectool.speculators.patterns.origins import origins_of, trusted_tools
from langchain_spectool.speculators.patterns.parsing import fingerprint, parse, size_of
from langchain_spectool.speculators.patterns.ranker import Example
from langchain_spectool.speculators.patterns.restored import merge_models
from langchain_spectool.speculators.patterns.schema import Schemas, called_in, names_of
from langchain_spectool.speculators.patterns.shared import run_digest
from langchain_spectool.speculators.patterns.store import load_models, write_patterns

WARM_UP = 5
_SHORT = 20_000
"""Most characters, by `size_of`, of a conversation that is read on the event loop: milliseconds."""
_FEW_TOOLS = 64
"""Most tools that are looked at there."""
_QUEUE = 256
_WORKED_OFF = 8
"""Most waiting turns that one guess learns from first."""
_EPOCHS = 3
_MAX_EXAMPLES = 20_000


class Trajectory(Protocol):
    """A recorded run to learn from."""

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The run's messages, in order."""
        ...

    @property
    def tools(self) -> Sequence[Any]:
        """The tools the model could call: objects with `name`, and `args_schema` or `args`.

        Where `tools_are_listed`, an optional attribute, is False, only the calls are looked at.
        """
        ...

    @property
    def read_only(self) -> Collection[str]:
        """The names of the tools that may run early; empty: all that are called."""
        ...

    @property
    def run(self) -> str:
        """What tells this run from others. Only a digest of it is kept, and only in memory."""
        ...

    @property
    def tenant(self) -> str | None:
        """Whose run it is; None if nobody said."""
        ...


class Patterns:
    """Predicts the next calls from those before, without a model, a key or a network.

    It learns from every turn that is committed while it runs, and from recorded runs by `fit`.
    Each tenant has a model of its own. Safe to use from several threads.

    Raises:
        ValueError: A setting is outside the range its description states.
    """

    name = "patterns"
    free = True
    samples = 1

    def __init__(  # noqa: PLR0913 - settings, by keyword
        self,
        state: Mapping[str | None, Model] | None = None,
        *,
        learn: bool = True,
        candidates: int = 3,
        min_confidence: float = 0.0,
        shared_across: int = 3,
        max_tenants: int = 64,
        timeout_s: float = 5.0,
    ) -> None:
        """Guess at most `candidates` calls a turn, none below `min_confidence`.

        Args:
            state: Models by tenant, as `read_patterns` returns them; None starts empty.
            learn: Whether committed turns teach it.
            candidates: Most guesses a turn, from 1.
            min_confidence: From 0 to 1.
            shared_across: Different runs, from 1, that must have shown a value or a word of a
                user's before it is kept.
            max_tenants: Most tenants, from 1; the one unused longest is forgotten first.
            timeout_s: Seconds, above 0, that a guess may take.
        """
        _check("candidates", candidates, candidates >= 1, "1 or more")
        _check("shared_across", shared_across, shared_across >= 1, "1 or more")
        _check("max_tenants", max_tenants, max_tenants >= 1, "1 or more")
        _check("min_confidence", min_confidence, 0 <= min_confidence <= 1, "from 0 to 1")
        _check("timeout_s", timeout_s, timeout_s > 0, "more than 0 seconds")
        self.timeout_s = timeout_s
        self.warm_up = 0 if any(model.turns for model in (state or {}).values()) else WARM_UP
        self._learns = learn
        self._candidates = candidates
        self._min_confidence = min_confidence
        self._shared_across = shared_across
        self._max_tenants = max_tenants
        self._tenants: OrderedDict[str | None, _Tenant] = OrderedDict()
        for tenant, model in (state or {}).items():
            self._tenants[tenant] = _Tenant(model)
        self._schemas = Schemas()
        self._histories = Histories()
        self._queue: deque[tuple[TurnRequest, Sequence[Mapping[str, Any]]]] = deque(maxlen=_QUEUE)
        self._lock = RLock()

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, missing_ok: bool = False, **settings: Any
    ) -> "Patterns":
        """Return what `path` holds; `settings` are those of the constructor.

        A file that is missing, damaged, foreign or of a newer version gives an empty model and a
        `PatternFileWarning` that says what to do. With `missing_ok`, for a file that is yet to be
        saved, one that is missing gives an empty model without a word.
        """
        across = int(settings.get("shared_across", 3))
        return cls(load_models(Path(path), across, missing_ok=missing_ok), **settings)

    def save(self, path: str | os.PathLike[str], *, tenants: Iterable[str | None] = ()) -> None:
        """Write `tenants`, all of them if none are named, to `path`, at once or not at all.

        Raises:
            OSError: The file cannot be written; what was there before is still there.
        """
        with self._lock:
            self._catch_up(_QUEUE)
            wanted = set(tenants)
            models = {name: m for name, m in self.models.items() if not wanted or name in wanted}
            write_patterns(models, Path(path))

    def merge(self, other: "Patterns") -> None:
        """Add what `other` learned, tenant by tenant; the order of several merges is all one."""
        with self._lock:
            self._catch_up(_QUEUE)
            for tenant, model in other.models.items():
                mine = self._tenant(tenant)
                merge_models(mine.model, model)
            if any(model.turns for model in other.models.values()):
                self.warm_up = 0

    @property
    def models(self) -> dict[str | None, Model]:
        """The models by tenant; None is the tenant of requests that name none."""
        with self._lock:
            return {name: tenant.model for name, tenant in self._tenants.items()}

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:  # noqa: ARG002 - the port
        """Yield the likeliest calls, the most likely first."""
        yield from self._guesses(request)

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:  # noqa: ARG002 - the port
        """Yield the likeliest calls, the most likely first."""
        for guess in await self._off_the_loop(request):
            yield guess

    async def _off_the_loop(self, request: TurnRequest) -> list[Guess]:
        """Guess here if that is quick: a long conversation must not hold the loop."""
        if self._lock.acquire(blocking=False):
            try:
                waiting = [asked for asked, _ in islice(self._queue, _WORKED_OFF)]
                if all(_is_short(each) for each in (request, *waiting)):
                    return self._guesses(request)
            finally:
                self._lock.release()
        return await off_the_loop(partial(self._guesses, request))

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        """Remember the turn for the next guess to learn from."""
        if self._learns:
            self._queue.append((request, calls))

    def fit(self, trajectories: Iterable[Trajectory]) -> None:
        """Learn from recorded runs, turn by turn, as if they happened now."""
        with self._lock:
            lessons: dict[str | None, list[Example]] = {}
            for trajectory in trajectories:
                examples = lessons.setdefault(trajectory.tenant, [])
                examples += self._live_through(trajectory)
                del examples[: max(0, len(examples) - _MAX_EXAMPLES)]
            for tenant, examples in lessons.items():
                _repeat(self._tenant(tenant).model, examples)
            if lessons:
                self.warm_up = 0

    def _guesses(self, request: TurnRequest) -> list[Guess]:
        with self._lock:
            self._catch_up(_WORKED_OFF)
            declared = names_of(request.declared)
            if not declared:
                return []
            tenant = self._tenant(request.tenant)
            history = self._histories.at(request.messages, tenant.owner)
            schemas = self._schemas.of_all(request.tools)
            prediction = tenant.model.predict(history, schemas, declared)
            heard = [tool for tool in request.tools if _name(tool) in history.last_output]
            trusted = trusted_tools(heard)
            calibration = tenant.model.calibration
            guesses = [
                Guess(
                    tool=candidate.tool,
                    args=candidate.args,
                    confidence=calibration.confidence(candidate.tool, chance),
                    origins=origins_of(candidate.choices, history, trusted),
                )
                for candidate, chance in prediction.ranked[: self._candidates]
            ]
        guesses = [guess for guess in guesses if guess.confidence >= self._min_confidence]
        return sorted(guesses, key=lambda guess: -guess.confidence)

    def _catch_up(self, most: int) -> None:
        for _ in range(min(most, len(self._queue))):
            request, calls = self._queue.popleft()
            # What a user's own objects raise when they are compared or shown costs one lesson.
            with suppress(Exception):
                self._learn(request, calls)

    def _learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        tenant = self._tenant(request.tenant)
        tenant.model.learn(
            self._histories.at(request.messages, tenant.owner),
            self._schemas.of_all(request.tools),
            names_of(request.declared),
            [(str(call["name"]), call["args"]) for call in calls if call["name"]],
            run_digest(request.run or _run_of(request.messages)),
        )

    def _live_through(self, trajectory: Trajectory) -> list[Example]:
        model = self._tenant(trajectory.tenant).model
        # Names that somebody listed are a developer's; those that were only called, anyone's data.
        listed = trajectory.tools if getattr(trajectory, "tools_are_listed", True) else ()
        schemas = self._schemas.of_all(listed) or called_in(trajectory.messages)
        declared = frozenset(trajectory.read_only) or frozenset(tool.name for tool in schemas)
        run = run_digest(trajectory.run)
        history = History()
        examples: list[Example] = []
        for message in trajectory.messages:
            parsed = parse(message)
            if isinstance(message, AIMessage):
                calls = [(call.tool, call.args) for call in parsed.calls]
                examples.append(model.learn(history, schemas, declared, calls, run))
            history.feed(parsed)
        return examples

    def _tenant(self, name: str | None) -> "_Tenant":
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(Model(self._shared_across))
            if len(self._tenants) > self._max_tenants:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(name)
        return tenant


class _Tenant:
    """A tenant's model, and in whose name its conversations are kept.

    A tenant that was forgotten and comes back has another name: its notes would not fit its model.
    """

    __slots__ = ("model", "owner")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.owner = object()


def _check(name: str, value: object, holds: bool, wanted: str) -> None:  # noqa: FBT001 - a result
    if not holds:
        msg = f"`{name}` must be {wanted}, got {value!r}"
        raise ValueError(msg)


def _is_short(request: TurnRequest) -> bool:
    if len(request.tools) > _FEW_TOOLS:
        return False
    return sum(size_of(fingerprint(message)) for message in request.messages) <= _SHORT


def _name(tool: object) -> str:
    return str(getattr(tool, "name", ""))


def _run_of(messages: Sequence[Any]) -> str:
    """Return what tells the run of a request from others: its first message, by id or content."""
    if not messages:
        return ""
    first = next((m for m in messages if getattr(m, "type", "") == "human"), messages[0])
    return str(getattr(first, "id", None) or getattr(first, "content", ""))


def _repeat(model: Model, examples: Sequence[Example]) -> None:
    """Show the ranker its lessons again, the early ones left out: they knew too little."""
    late = list(examples[len(examples) // 4 :])
    dice = random.Random(0)  # noqa: S311 - an order, not a secret
    for _ in range(_EPOCHS):
        dice.shuffle(late)
        for example in late:
            model.ranker.learn(example)
    model.recalibrate(examples[len(examples) // 4 :])
