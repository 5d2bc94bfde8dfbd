"""The drafts of the requests that run, and of those that are expected."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from vllm_spectool._core.drafts import Draft, propose

SWEEP_S = 10.0
"""Seconds between two searches for drafts that are too old and that nobody asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookLimits:
    """Most that the book holds."""

    keys: int = 4096
    drafts: int = 16
    """Of one key; the oldest are dropped first."""
    tokens: int = 2**20
    """Of all drafts."""


class Running(Protocol):
    """A request in the engine, as vLLM has it."""

    @property
    def request_id(self) -> str:
        """The engine's own id."""
        ...

    @property
    def output_token_ids(self) -> Sequence[int]:
        """What this turn has written."""
        ...

    @property
    def is_prefill_chunk(self) -> bool:
        """Whether its prompt is still being read."""
        ...

    @property
    def use_structured_output(self) -> bool:
        """Whether a grammar binds it."""
        ...


RunningT = TypeVar("RunningT", bound=Running)


@dataclass(slots=True)
class _Page:
    """What one key has."""

    drafts: dict[tuple[int, ...], tuple[float, Draft]] = field(
        default_factory=dict[tuple[int, ...], tuple[float, Draft]]
    )
    """By their tokens, oldest first, with the time at which each is too old."""
    live: int = 0
    """Running requests with this key."""


class DraftBook:
    """Bounded; a key's drafts go with its last request. Time is an argument.

    Where there is no room, drafts of keys without a running request make way, oldest first.
    """

    def __init__(self, limits: BookLimits | None = None) -> None:
        self._limits = limits or BookLimits()
        self._pages: OrderedDict[str, _Page] = OrderedDict()
        self._live: dict[str, str] = {}
        """The key of each running request."""
        self._offered: set[str] = set()
        self._sweep_s = 0.0
        self.tokens = 0
        """Tokens of all drafts."""
        self.totals: Counter[str] = Counter()
        """Requests, steps and tokens that were offered, by these names."""

    def __bool__(self) -> bool:
        """Say whether there is a draft at all."""
        return self.tokens > 0

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._pages)

    def put(self, key_digest: str, drafts: Sequence[Draft], now_s: float) -> None:
        """Take drafts, the newest last. What there is no room for is left out."""
        self._sweep(now_s)
        page = self._pages.setdefault(key_digest, _Page())
        for draft in drafts:
            self._drop(page, draft.token_ids)
            if len(draft.token_ids) > self._limits.tokens:
                continue
            page.drafts[draft.token_ids] = (now_s + draft.keep_alive_s, draft)
            self.tokens += len(draft.token_ids)
            while len(page.drafts) > self._limits.drafts:
                self._drop(page, next(iter(page.drafts)))
        self._prune(key_digest, page)
        self._make_room(key_digest)
        if not self._fits:
            self.forget(key_digest)

    def forget(self, key_digest: str) -> None:
        """Drop what a key has."""
        page = self._pages.get(key_digest)
        if page is not None:
            self._empty(key_digest, page)

    def begin(self, request_id: str, key_digest: str) -> None:
        """Note that a request runs; a second time it changes nothing."""
        if request_id not in self._live:
            self._live[request_id] = key_digest
            self._pages.setdefault(key_digest, _Page()).live += 1
            self._make_room(key_digest)

    def end(self, request_id: str) -> None:
        """Note that a request has ended; one that never began is no error."""
        key_digest = self._live.pop(request_id, None)
        if key_digest is None:
            return
        self._offered.discard(request_id)
        page = self._pages[key_digest]
        page.live -= 1
        if not page.live:
            self._empty(key_digest, page)

    def offers(
        self, running: Iterable[RunningT], most: int, now_s: float
    ) -> Iterator[tuple[RunningT, list[int]]]:
        """Yield those of the requests that run which are offered something, and what.

        Args:
            running: The requests.
            most: Most tokens for one of them.
            now_s: The book's time.
        """
        for request in running:
            key_digest = self._live.get(request.request_id)
            if key_digest is None or request.is_prefill_chunk or request.use_structured_output:
                continue
            drafts = self._fresh(self._pages[key_digest], now_s)
            token_ids = propose(request.output_token_ids, drafts, most)
            if token_ids:
                self._count(request.request_id, len(token_ids))
                yield request, token_ids

    def _fresh(self, page: _Page, now_s: float) -> list[Draft]:
        """Return a page's drafts, newest first, without those that are too old."""
        for ids in [ids for ids, (until_s, _) in page.drafts.items() if until_s <= now_s]:
            self._drop(page, ids)
        return [draft for _, draft in reversed(page.drafts.values())]

    def _count(self, request_id: str, tokens: int) -> None:
        if request_id not in self._offered:
            self._offered.add(request_id)
            self.totals["requests"] += 1
        self.totals["steps"] += 1
        self.totals["tokens"] += tokens

    def _make_room(self, key_digest: str) -> None:
        """Drop what others have that do not run, until all fits."""
        if self._fits:
            return
        for key in [key for key, page in self._pages.items() if not page.live]:
            if self._fits:
                return
            if key != key_digest:
                self.forget(key)

    @property
    def _fits(self) -> bool:
        return len(self._pages) <= self._limits.keys and self.tokens <= self._limits.tokens

    def _sweep(self, now_s: float) -> None:
        if now_s < self._sweep_s:
            return
        self._sweep_s = now_s + SWEEP_S
        for key, page in list(self._pages.items()):
            self._fresh(page, now_s)
            self._prune(key, page)

    def _empty(self, key_digest: str, page: _Page) -> None:
        for ids in list(page.drafts):
            self._drop(page, ids)
        self._prune(key_digest, page)

    def _prune(self, key_digest: str, page: _Page) -> None:
        if not page.drafts and not page.live:
            self._pages.pop(key_digest, None)

    def _drop(self, page: _Page, ids: tuple[int, ...]) -> None:
        if page.drafts.pop(ids, None) is not None:
            self.tokens -= len(ids)
