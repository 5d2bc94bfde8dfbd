"""What to do where a turn ends: look for outputs, and with the next prompt at hand, settle it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from vllm_spectool._core.counters import INJECTED, RESOLVED, TURNS
from vllm_spectool._core.entries import Entry
from vllm_spectool._core.outcomes import Decline, Outcome
from vllm_spectool._core.params import Call, call_key
from vllm_spectool._core.store import Owner, Store
from vllm_spectool._core.terms import room


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationLimits:
    """How far a response may go on in place."""

    turns: int = 8
    """Most turns of a response; 1 turns continuations off."""
    context_tokens: int = 8192
    """What the model can hold."""
    allow_drift: bool = False
    """Whether a response also goes on where the chat template would write otherwise what stands.

    Its model then reads its own tokens where a round trip would show it the template's, so it may
    say something else. Prompts are counted as the round trip's all the same.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """A turn of an opted-in request that has just ended."""

    owner: Owner
    turn: int
    """From 0."""
    stopped: bool
    """Whether the model ended it with a stop token of its own."""
    calls: Sequence[Call] | None
    """The calls that the server's tool parser finds in it; None where it cannot read them."""
    max_tokens: int | None = None
    """What the request asked for, the same for every turn."""
    bar: Decline | None = None
    """What the request asked for that rules a continuation out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Every call of a turn has an output. None of them is taken yet."""

    end: TurnEnd
    calls: tuple[Call, ...]
    outputs: tuple[Entry, ...]
    """One for each call, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Go on in place."""

    token_ids: tuple[int, ...]
    """What to append; the client never sees it."""
    calls: tuple[Call, ...]
    outputs: tuple[Entry, ...]
    """One for each call, in order."""
    max_tokens: int
    """Most tokens of the next turn."""
    drifted: bool = False
    """Whether the template would write otherwise what stands."""


class Decider:
    """Decides for one server, and counts what it decides."""

    def __init__(
        self, store: Store, limits: ContinuationLimits, special_tokens: Collection[str]
    ) -> None:
        """Decide over the outputs in `store`.

        Args:
            store: Where the outputs are, and the tally.
            limits: How far a response may go on.
            special_tokens: Texts that the tokenizer reads as one token each. An output that holds
                one is left to the client: written as a round trip writes it, it could end its
                message, and written otherwise, the answer would not be a round trip's.
        """
        self.limits = limits
        self._store = store
        self._special_tokens = tuple(special_tokens)

    def look(self, end: TurnEnd, now_s: float) -> Hit | Decline:
        """Return the outputs for a turn's calls, before anything is rendered; take none."""
        found = self._found(end, now_s)
        if isinstance(found, str):
            self.count(found)
        return found

    def settle(
        self,
        hit: Hit,
        *,
        resident: Sequence[int],
        rendered: Sequence[int],
        now_s: float,
        most_tokens: float = inf,
    ) -> Continuation | Decline:
        """Say whether a response goes on in place; only then the outputs are taken.

        Args:
            hit: What `look` found. Posts and deletions since then count.
            resident: The tokens that stand: the prompt and all turns, stop tokens included.
            rendered: The prompt of the round trip's next request.
            now_s: The store's time.
            most_tokens: What the KV cache has room for, beside other responses.
        """
        verdict = self._settled(hit, resident, rendered, now_s)
        if isinstance(verdict, str):
            self.count(verdict)
            return verdict
        if len(resident) + len(verdict.token_ids) > most_tokens:
            self.count("kv_full")
            return "kv_full"
        self._store.spend(hit.end.owner, [output.key for output in hit.outputs])
        self.count("continued_drifted" if verdict.drifted else "continued")
        self._store.tally.add(RESOLVED, by=len(verdict.calls))
        self._store.tally.add(INJECTED, by=len(verdict.token_ids))
        return verdict

    def count(self, outcome: Outcome) -> None:
        """Count a turn that ended for a reason of the server's own."""
        self._store.tally.add(TURNS, outcome)

    def _found(self, end: TurnEnd, now_s: float) -> Hit | Decline:
        keys = _ruled_out(end, self.limits) or _keys(end.calls or ())
        outputs = keys if isinstance(keys, str) else self._store.find(end.owner, keys, now_s)
        if isinstance(outputs, str):
            return outputs
        texts = [output.texts for output in outputs]
        if not all(texts):
            return "not_text"
        every = [text for each in texts for text in each]
        if any(token in text for text in every for token in self._special_tokens):
            return "special_tokens"
        return Hit(end=end, calls=tuple(end.calls or ()), outputs=outputs)

    def _settled(
        self, hit: Hit, resident: Sequence[int], rendered: Sequence[int], now_s: float
    ) -> Continuation | Decline:
        keys = [output.key for output in hit.outputs]
        if self._store.find(hit.end.owner, keys, now_s) != hit.outputs:
            return "no_entry"
        ids = extension(resident, rendered)
        drifted = ids is None and self.limits.allow_drift
        if drifted:
            ids = extension_by_stops(resident, rendered)
        if ids is None:
            return "template_drift"
        stands = max(len(rendered), len(resident) + len(ids))
        context = self.limits.context_tokens
        most = room(hit.end.max_tokens, prompt_tokens=stands, context_tokens=context)
        if most is None:
            return "context_full"
        return Continuation(
            token_ids=ids, calls=hit.calls, outputs=hit.outputs, max_tokens=most, drifted=drifted
        )


def extension(resident: Sequence[int], rendered: Sequence[int]) -> tuple[int, ...] | None:
    """Return what `rendered` has beyond `resident`; None where it does not begin with it."""
    stands = len(resident)
    if len(rendered) <= stands or list(rendered[:stands]) != list(resident):
        return None
    return tuple(rendered[stands:])


def extension_by_stops(resident: Sequence[int], rendered: Sequence[int]) -> tuple[int, ...] | None:
    """Return what `rendered` has after as many stop tokens as stand; None where there is nothing.

    The stop token is the last of `resident`, which ended the turn. A template that closes each
    message with it, and leaves none out, has written the turn up to there, in whatever words.
    """
    stop = resident[-1]
    ends = [index for index, token in enumerate(rendered, start=1) if token == stop]
    stops = resident.count(stop)
    after = tuple(rendered[ends[stops - 1] :]) if len(ends) >= stops else ()
    return after or None


def _ruled_out(end: TurnEnd, limits: ContinuationLimits) -> Decline | None:
    if not end.stopped:
        return "unfinished"
    if end.calls is None:
        return "malformed_call"
    if not end.calls:
        return "answered"
    if end.bar is not None:
        return end.bar
    return "max_turns" if end.turn + 1 >= limits.turns else None


def _keys(calls: Sequence[Call]) -> list[str] | Decline:
    try:
        return [call_key(call.name, call.params) for call in calls]
    except ValueError:
        return "malformed_call"
