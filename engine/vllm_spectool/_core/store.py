"""The tool cache: outputs that wait for the call they answer."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Literal

from vllm_spectool._core.counters import ENTRIES, Tally
from vllm_spectool._core.entries import Entry

Miss = Literal["no_entry", "partial"]
Owner = tuple[str, str]
"""Id of a response, and the digest of its key: entries answer only where both are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Most that the store holds, over all responses."""

    entries: int = 16_384
    bytes: int = 256 * 2**20
    tombstones: int = 16_384
    """Ids that take no posts any more; the oldest are forgotten first."""
    tombstone_s: float = 600.0
    """Seconds for which an id takes no posts; not below the longest time to live of an entry."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Kept:
    entry: Entry
    left: float
    """Calls it may still answer."""


@dataclass(slots=True)
class _Record:
    """What one response has: it lives while there is an entry or a running request."""

    kept: dict[str, _Kept] = field(default_factory=dict[str, _Kept])
    live: int = 0
    """Running requests with this id: a client's retry may begin before the first has ended."""


class Store:
    """Bounded, and freed with the requests. Time is an argument: any clock that never goes back.

    A response takes posts before its request begins and while it runs. It takes none after its
    last request has ended, until another begins with the same id, and none at all after a
    `delete`. Where there is no room, entries of responses whose request has not begun make way,
    oldest first; those of running requests do not.
    """

    def __init__(self, limits: StoreLimits | None = None, tally: Tally | None = None) -> None:
        self._limits = limits or StoreLimits()
        self.tally = tally or Tally()
        """Where what becomes of the entries is counted."""
        self._records: OrderedDict[Owner, _Record] = OrderedDict()
        self._closed: OrderedDict[Owner, tuple[float, bool]] = OrderedDict()
        """Until when an id takes no posts, and whether a new request leaves it so."""
        self._ages: list[tuple[float, int, Owner, _Kept]] = []
        self._serials = count()
        self._entries = 0
        self._bytes = 0

    @property
    def entries(self) -> int:
        """Entries held."""
        return self._entries

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return self._bytes

    @property
    def responses(self) -> int:
        """Responses with an entry or a running request."""
        return len(self._records)

    def put(self, owner: Owner, entries: Iterable[Entry], now_s: float) -> int:
        """Keep `entries`; one with an equal call replaces the other. Return how many were kept."""
        self.expire(now_s)
        kept = 0
        for entry in entries:
            kept += self._put(owner, entry, now_s)
        self._prune(owner)
        return kept

    def begin(self, owner: Owner) -> None:
        """Note that a request runs. Call `end` once for each, however it ends."""
        if not self._closed.get(owner, (0.0, True))[1]:
            del self._closed[owner]
        self._records.setdefault(owner, _Record()).live += 1

    def end(self, owner: Owner, now_s: float) -> None:
        """Note that a request has ended; with the last one, what its id has is freed."""
        self.expire(now_s)
        record = self._records.get(owner)
        if record is None or not record.live:
            return
        record.live -= 1
        if not record.live:
            self._empty(owner, "freed")
            self._close(owner, now_s, for_good=self._closed.get(owner, (0.0, False))[1])

    def find(self, owner: Owner, keys: Sequence[str], now_s: float) -> tuple[Entry, ...] | Miss:
        """Return an output for each of `keys`, equal ones counted; all or none. Takes nothing."""
        self.expire(now_s)
        record = self._records.get(owner)
        kept = {} if record is None else record.kept
        wanted = Counter(keys)
        held = [key for key, calls in wanted.items() if key in kept and kept[key].left >= calls]
        if not held:
            return "no_entry"
        if len(held) < len(wanted):
            return "partial"
        return tuple(kept[key].entry for key in keys)

    def spend(self, owner: Owner, keys: Iterable[str]) -> None:
        """Take one use of each; `find` has just found them."""
        kept = self._records[owner].kept
        for key in keys:
            kept[key].left -= 1
            if kept[key].left <= 0:
                self._drop(kept, key, "spent")
        self._prune(owner)

    def delete(self, owner: Owner, now_s: float) -> int:
        """Drop what a response has, and take no more posts for it. Return how many were dropped."""
        self.expire(now_s)
        dropped = self._empty(owner, "deleted")
        self._close(owner, now_s, for_good=True)
        return dropped

    def expire(self, now_s: float) -> None:
        """Drop what is too old. Every method that is told the time does so first."""
        while self._ages and self._ages[0][0] <= now_s:
            _, _, owner, kept = heappop(self._ages)
            if self._holds(owner, kept):
                self._drop(self._records[owner].kept, kept.entry.key, "expired")
                self._prune(owner)
        while self._closed and next(iter(self._closed.values()))[0] <= now_s:
            self._closed.popitem(last=False)

    def _put(self, owner: Owner, entry: Entry, now_s: float) -> bool:
        record = self._records.get(owner)
        if record is not None and entry.key in record.kept:
            self._drop(record.kept, entry.key, None)
        if owner in self._closed or not self._make_room(owner, entry):
            self.tally.add(ENTRIES, "refused")
            return False
        left = float("inf") if entry.uses is None else entry.uses
        kept = _Kept(entry=entry, left=left)
        self._records.setdefault(owner, _Record()).kept[entry.key] = kept
        heappush(self._ages, (now_s + entry.keep_alive_s, next(self._serials), owner, kept))
        self._entries += 1
        self._bytes += entry.size_bytes
        self.tally.add(ENTRIES, "stored")
        self._forget_ages()
        return True

    def _make_room(self, owner: Owner, entry: Entry) -> bool:
        while not self._fits(entry) and entry.size_bytes <= self._limits.bytes:
            idle = (each for each, record in self._records.items() if not record.live)
            oldest = next((each for each in idle if each != owner), None)
            if oldest is None:
                return False
            self._empty(oldest, "evicted")
        return self._fits(entry)

    def _fits(self, entry: Entry) -> bool:
        room = self._limits.bytes - self._bytes
        return self._entries < self._limits.entries and entry.size_bytes <= room

    def _empty(self, owner: Owner, event: str) -> int:
        record = self._records.get(owner, _Record())
        keys = list(record.kept)
        for key in keys:
            self._drop(record.kept, key, event)
        self._prune(owner)
        return len(keys)

    def _drop(self, kept: dict[str, _Kept], key: str, event: str | None) -> None:
        dropped = kept.pop(key)
        self._entries -= 1
        self._bytes -= dropped.entry.size_bytes
        if event is not None:
            self.tally.add(ENTRIES, event)

    def _prune(self, owner: Owner) -> None:
        record = self._records.get(owner)
        if record is not None and not record.kept and not record.live:
            del self._records[owner]

    def _holds(self, owner: Owner, kept: _Kept) -> bool:
        record = self._records.get(owner)
        return record is not None and record.kept.get(kept.entry.key) is kept

    def _forget_ages(self) -> None:
        """Keep no more dates of entries that are gone than of those that are here."""
        if len(self._ages) > 2 * self._entries + 64:
            self._ages = [age for age in self._ages if self._holds(age[2], age[3])]
            heapify(self._ages)

    def _close(self, owner: Owner, now_s: float, *, for_good: bool) -> None:
        self._closed.pop(owner, None)
        self._closed[owner] = (now_s + self._limits.tombstone_s, for_good)
        while len(self._closed) > self._limits.tombstones:
            self._closed.popitem(last=False)
