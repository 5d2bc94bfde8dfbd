"""`Ensemble`: several sources as one, each worth what it has turned out to be worth."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final, cast

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool._core.keys import call_key
from langchain_spectool._core.odds import Odds
from langchain_spectool._core.ports import Learner, Speculator, StreamSpeculator, payer_of

Source = Speculator | StreamSpeculator
Place = tuple[str, int]
"""A call key, and how many equal calls the same sample had guessed before."""

MOST_AGREED: Final = 0.95
"""Highest confidence that comes of agreement alone: members read the same conversation and err
alike, so their errors are not as independent as noisy-or takes them to be."""

STEP: Final = 0.05
"""How much surer agreement must make a guess for it to be worth saying again."""

MOST_TURNS: Final = 256
"""Most turns whose guesses are remembered until their answer; abandoned ones have none."""


class Ensemble:
    """Merges the guesses of its members, and learns online how often each of them is right.

    All samples of all members run at once, each as a sample of the ensemble, so that one that
    fails or is slow costs only its own guesses. A guess is passed on as soon as it comes, with
    its member's name as `source` and the share of such guesses that came true, per member and
    tool, as its confidence. An equal guess is dropped, unless several members together are surer
    of it by `STEP` than what was said so far: it may pass a gate now that it did not pass then.

    Members that listen to the main model's stream are not sampled: whoever runs the ensemble
    finds them in `members`.

    Args:
        speculators: The members, or one sequence of them.
        timeout_s: Seconds a sample may take; the longest that a member allows when not given.
            A member's own limit holds if it is shorter.

    Raises:
        ValueError: No members, something that is no speculator, a `Chain`, or `timeout_s` is not
            positive.
    """

    name = "ensemble"

    def __init__(
        self, *speculators: Source | Sequence[Source], timeout_s: float | None = None
    ) -> None:
        """Take every member at its word."""
        self.members: tuple[Source, ...] = _checked(speculators)
        self._samplers = [member for member in self.members if isinstance(member, Speculator)]
        longest_s = max((member.timeout_s for member in self._samplers), default=30.0)
        self.timeout_s = longest_s if timeout_s is None else timeout_s
        if not self.timeout_s > 0:
            msg = f"`timeout_s` must be more than 0 seconds, got {timeout_s!r}"
            raise ValueError(msg)
        self._lock = Lock()
        self._odds = Odds()
        self._turns: OrderedDict[int, _Turn] = OrderedDict()

    @property
    def samples(self) -> int:
        """How many samples its members take in all."""
        return sum(member.samples for member in self._samplers)

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        """Yield what one sample of one member adds, blocking."""
        if (voice := self._voice(request, sample)) is None:
            return
        last_s = time.monotonic() + voice.member.timeout_s
        for guess in voice.member.guess(request, voice.number):
            if time.monotonic() >= last_s:
                return
            yield from self._news(voice, guess)

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Yield what one sample of one member adds."""
        if (voice := self._voice(request, sample)) is None:
            return
        last_s = asyncio.get_running_loop().time() + voice.member.timeout_s
        async with aclosing(_until(last_s, voice.member.aguess(request, voice.number))) as guesses:
            async for guess in guesses:
                for news in self._news(voice, guess):
                    yield news

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        """Take note of who was right, and tell the members that learn themselves.

        Raises:
            Exception: What the first member that failed has raised; the others were told.
        """
        with self._lock:
            turn = self._turns.pop(id(request), None)
        if turn is not None:
            self._settle(turn, calls)
        failed: list[Exception] = []
        for member in self.members:
            if isinstance(member, Learner):
                try:
                    member.learn(request, calls)
                except Exception as error:  # noqa: BLE001 - the other members are told first
                    failed.append(error)
        if failed:
            raise failed[0]

    def payer(self, sample: int) -> str:
        """Return the label of the member who asks a model for `sample`."""
        turns = self._order()
        if sample >= len(turns):
            return self.name
        number, position = turns[sample]
        return payer_of(self._samplers[position], number)

    def _order(self) -> list[tuple[int, int]]:
        """Return whose each sample is: first those numbered 0 of every member, then 1, ..."""
        return sorted(
            (number, position)
            for position, member in enumerate(self._samplers)
            for number in range(member.samples)
        )

    def _voice(self, request: TurnRequest, sample: int) -> "_Voice | None":
        turns = self._order()
        if sample >= len(turns):  # a member takes fewer samples by now
            return None
        number, position = turns[sample]
        return _Voice(
            turn=self._turn(request),
            member=self._samplers[position],
            label=str(position),
            number=number,
        )

    def _turn(self, request: TurnRequest) -> "_Turn":
        # By identity: a request has no hash, and an equal one belongs to another run.
        with self._lock:
            turn = self._turns.get(id(request))
            if turn is None:
                turn = self._turns[id(request)] = _Turn(request)
            if len(self._turns) > MOST_TURNS:
                self._turns.popitem(last=False)
            return turn

    def _news(self, voice: "_Voice", guess: Guess) -> list[Guess]:
        """Return the guess with its corrected confidence, or nothing if that is no news."""
        key = voice.turn.key(guess.tool, guess.args)
        label = f"{voice.label}:{guess.source}"
        with self._lock:
            chance = self._odds.estimate(label, guess.tool, guess.confidence)
            if key is not None:
                place = (key, voice.heard[key])
                voice.heard[key] += 1
                belief = voice.turn.beliefs.setdefault(place, _Belief(tool=guess.tool))
                said = belief.said
                chance = belief.hear(label, stated=guess.confidence, chance=chance)
                if said is not None and chance < said + STEP:
                    return []
                belief.said = chance
        source = guess.source or voice.member.name
        return [replace(guess, confidence=chance, source=source)] * voice.times(key)

    def _settle(self, turn: "_Turn", calls: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            beliefs = [(place, belief, {**belief.stated}) for place, belief in turn.beliefs.items()]
        tools = {belief.tool for _, belief, _ in beliefs}
        committed = Counter(
            turn.key(call["name"], call["args"]) for call in calls if call["name"] in tools
        )
        with self._lock:
            for (key, ordinal), belief, stated in beliefs:
                for label, confidence in stated.items():
                    self._odds.seen(label, belief.tool, confidence, committed[key] > ordinal)


class _Turn:
    """What has been guessed for one request."""

    def __init__(self, request: TurnRequest) -> None:
        self.beliefs: dict[Place, _Belief] = {}
        self._request = request  # while it is held, no other request has its id
        self._tools = {tool.name: tool for tool in request.declared}

    def key(self, tool: str, args: object) -> str | None:
        """Return the call's key; None where no two such calls can be told to be equal."""
        declared = self._tools.get(tool)
        return None if declared is None else call_key(declared, args)


@dataclass(slots=True, kw_only=True)
class _Belief:
    """What was said of one call."""

    tool: str
    stated: dict[str, float] = field(default_factory=dict[str, float])
    """By member, the highest confidence it stated: one of its samples or several, it is one
    guess, since samples of one model err together."""
    chances: dict[str, float] = field(default_factory=dict[str, float])
    said: float | None = None
    """The highest confidence passed on."""

    def hear(self, label: str, *, stated: float, chance: float) -> float:
        """Take a member's word and return how sure all of them together are."""
        self.stated[label] = max(stated, self.stated.get(label, 0.0))
        self.chances[label] = max(chance, self.chances.get(label, 0.0))
        doubt = 1.0
        for each in self.chances.values():
            doubt *= 1.0 - each
        return max(*self.chances.values(), min(1.0 - doubt, MOST_AGREED))


@dataclass(slots=True, kw_only=True)
class _Voice:
    """One sample of one member."""

    turn: _Turn
    member: Speculator
    label: str
    number: int
    heard: Counter[str] = field(default_factory=Counter[str])
    told: Counter[str] = field(default_factory=Counter[str])

    def times(self, key: str | None) -> int:
        """Say how often to pass on the call just heard.

        Who takes the guesses counts equal calls of a sample, to run a call twice that is expected
        twice: the second one alone would be taken for a first.
        """
        if key is None:
            return 1
        missing = self.heard[key] - self.told[key]
        self.told[key] = self.heard[key]
        return missing


def _checked(speculators: Sequence[object]) -> tuple[Source, ...]:
    members = speculators
    if len(members) == 1 and isinstance(members[0], Iterable):
        members = (*cast("Iterable[object]", members[0]),)
    if not members:
        msg = "an Ensemble needs at least one speculator, got none"
        raise ValueError(msg)
    for member in members:
        if not isinstance(member, (Speculator, StreamSpeculator)):
            msg = f"a member has `guess` and `aguess`, or `listen`; {member!r} has neither"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
        if getattr(member, "depth", 1) > 1:
            msg = f"{member!r} would not go on inside an Ensemble: write Chain(Ensemble(...))"
            raise ValueError(msg)
    return cast("tuple[Source, ...]", (*members,))


async def _until(last_s: float, guesses: Any) -> AsyncGenerator[Guess]:  # noqa: ANN401 - maybe no generator
    """Pass on what comes until `last_s` on the loop's clock, then close the source."""
    ones = aiter(guesses)
    try:
        while (guess := await _next(ones, last_s)) is not None:
            yield guess
    finally:
        if (close := getattr(ones, "aclose", None)) is not None:
            await close()


async def _next(ones: AsyncIterator[Guess], last_s: float) -> Guess | None:
    limit = asyncio.timeout_at(last_s)
    try:
        async with limit:
            return await anext(ones, None)
    except TimeoutError:
        if not limit.expired():
            raise
        return None
