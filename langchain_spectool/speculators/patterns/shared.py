"""What may be kept for good: only what enough different runs have shown."""

import re
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

_ID_LIKE = re.compile(r"\d{4}|\d.*\d.*\d")
_MAX_NAME = 64


def run_digest(run: str) -> int:
    """Return a number that tells runs apart and does not lead back to them."""
    data = run.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class Shared:
    """Items seen in at least `across` different runs are public; the others are pending.

    An item is a letter for its sort, a colon, and a text: `w` for a word of a user's, `c` for an
    argument's value, `n` for a name of a tool or argument, `s` for a path or shape. Pending items
    stay in memory, with digests of their runs, and are never written to a file.
    """

    def __init__(self, across: int, limit: int = 50_000) -> None:
        """Keep at most `limit` public and as many pending items; the oldest go first."""
        self.across = across
        self._limit = limit
        self.public: OrderedDict[str, None] = OrderedDict()
        self._pending: OrderedDict[str, set[int]] = OrderedDict()

    def __contains__(self, item: str) -> bool:
        return item in self.public

    def seen(self, item: str, run: int) -> bool:
        """Note that a run showed `item`; say whether it is public by now."""
        if item in self.public:
            return True
        runs = self._pending.setdefault(item, set())
        runs.add(run)
        if len(runs) < self.across:
            if len(self._pending) > self._limit:
                self._pending.popitem(last=False)
            return False
        del self._pending[item]
        self.publish(item)
        return True

    def pending(self) -> Iterable[tuple[str, frozenset[int]]]:
        """Return the items that too few runs have shown, with the digests of those."""
        return [(item, frozenset(runs)) for item, runs in self._pending.items()]

    def publish(self, item: str) -> None:
        """Take `item` for public, whoever showed it."""
        self.public[item] = None
        if len(self.public) > self._limit:
            self.public.popitem(last=False)

    def declare(self, names: Iterable[str]) -> None:
        """Take names of tools and arguments for public, except those that look like ids."""
        for name in names:
            if f"n:{name}" not in self.public and is_plain(name):
                self.publish(f"n:{name}")


def is_plain(name: str) -> bool:
    """Whether a name reads like one a programmer chose, not like an id."""
    return 0 < len(name) <= _MAX_NAME and _ID_LIKE.search(name) is None
