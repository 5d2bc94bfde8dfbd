"""The store against a slow one that is plainly right."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vllm_spectool._core.counters import ENTRIES
from vllm_spectool._core.entries import Entry
from vllm_spectool._core.params import call_key
from vllm_spectool._core.store import Owner, Store, StoreLimits

OWNER = ("id", "key")


def entry(
    name: str = "a", output: str = "x", *, keep_s: float = 10, uses: int | None = None
) -> Entry:
    """Return an entry for a call without arguments."""
    return Entry(
        name=name,
        params={},
        key=call_key(name, {}),
        content=output,
        message_content=output,
        keep_alive_s=keep_s,
        uses=uses,
    )


def keys(names: str) -> list[str]:
    """Return the keys of calls, one for each letter."""
    return [call_key(name, {}) for name in names]


def found(store: Store, names: str, now_s: float = 0, owner: Owner = OWNER) -> Any:
    """Return the outputs of calls, or what is missing."""
    outputs = store.find(owner, keys(names), now_s)
    return outputs if isinstance(outputs, str) else "".join(each.content for each in outputs)


def test_all_or_none() -> None:
    """Each call of a turn has its output, or none has."""
    store = Store()
    store.put(OWNER, [entry("a", "1"), entry("b", "2")], 0)
    assert [found(store, names) for names in ("ab", "ba", "aab", "ac", "c")] == [
        *("12", "21", "112", "partial", "no_entry")
    ]


def test_uses_are_counted_within_a_turn() -> None:
    """Equal calls of one turn take one each; a look takes none."""
    store = Store()
    store.put(OWNER, [entry("a", uses=2)], 0)
    assert [found(store, names) for names in ("a", "aa", "aaa")] == ["x", "xx", "no_entry"]
    store.spend(OWNER, keys("a"))
    assert [found(store, names) for names in ("a", "aa")] == ["x", "no_entry"]
    store.spend(OWNER, keys("a"))
    assert found(store, "a") == "no_entry"
    assert (store.entries, store.bytes, store.responses) == (0, 0, 0)


@pytest.mark.parametrize("other", [("id", "other"), ("other", "key")])
def test_id_and_key_have_to_be_equal(other: Owner) -> None:
    """Either alone answers nothing, and changes nothing."""
    store = Store()
    store.put(OWNER, [entry()], 0)
    assert found(store, "a", owner=other) == "no_entry"
    store.delete(other, 0)
    assert found(store, "a") == "x"


def test_an_entry_lives_as_long_as_it_says() -> None:
    """To the moment."""
    store = Store()
    store.put(OWNER, [entry("a", keep_s=5), entry("b", keep_s=6)], 100)
    assert found(store, "ab", 104.9) == "xx"
    assert found(store, "ab", 105) == "partial"
    assert found(store, "b", 106) == "no_entry"
    assert store.responses == 0


def test_a_second_post_renews() -> None:
    """Output, uses and time: the first entry's end does not end the second."""
    store = Store()
    store.put(OWNER, [entry("a", "1", keep_s=5, uses=1)], 0)
    store.put(OWNER, [entry("a", "2", keep_s=5)], 3)
    assert found(store, "aa", 6) == "22"
    assert store.entries == 1
    assert found(store, "a", 8) == "no_entry"


def test_the_last_request_frees_what_its_id_has() -> None:
    """A client's retry may begin before the request it replaces has ended."""
    store = Store()
    store.put(OWNER, [entry()], 0)
    store.begin(OWNER)
    store.begin(OWNER)
    store.end(OWNER, 1)
    assert found(store, "a", 1) == "x"
    store.end(OWNER, 2)
    assert (store.entries, store.responses) == (0, 0)
    assert store.put(OWNER, [entry()], 3) == 0
    store.begin(OWNER)
    assert store.put(OWNER, [entry()], 4) == 1


def test_an_end_without_a_beginning_changes_nothing() -> None:
    """Ends may be told twice."""
    store = Store()
    store.put(OWNER, [entry()], 0)
    store.end(OWNER, 0)
    assert found(store, "a") == "x"


def test_a_deleted_id_takes_no_posts_even_in_a_retry() -> None:
    """What was on its way when the world changed does not arrive."""
    store = Store(StoreLimits(tombstone_s=50))
    store.begin(OWNER)
    store.put(OWNER, [entry()], 0)
    assert (store.delete(OWNER, 1), store.put(OWNER, [entry()], 2)) == (1, 0)
    store.end(OWNER, 3)
    store.begin(OWNER)
    assert store.put(OWNER, [entry()], 4) == 0
    assert store.put(OWNER, [entry()], 53) == 1


def test_running_requests_keep_their_entries() -> None:
    """The oldest of the others make way; where there are none, the post is refused."""
    store = Store(StoreLimits(entries=2))
    one, two, three = (("1", ""), ("2", ""), ("3", ""))
    store.begin(one)
    store.put(one, [entry()], 0)
    store.put(two, [entry()], 0)
    assert store.put(three, [entry()], 0) == 1
    assert [found(store, "a", owner=owner) for owner in (one, two, three)] == ["x", "no_entry", "x"]
    store.begin(three)
    assert store.put(two, [entry()], 0) == 0
    assert store.responses == 2


def test_a_refused_renewal_leaves_no_old_output() -> None:
    """The output it would replace is not served in its place."""
    size = entry().size_bytes
    store = Store(StoreLimits(bytes=size))
    store.put(OWNER, [entry()], 0)
    assert store.put(OWNER, [entry("a", "xx")], 0) == 0
    assert (store.entries, store.bytes, store.responses) == (0, 0, 0)


def test_tombstones_are_bounded() -> None:
    """The oldest is forgotten."""
    store = Store(StoreLimits(tombstones=1))
    for name in ("1", "2"):
        store.delete((name, ""), 0)
    assert [store.put((name, ""), [entry()], 0) for name in ("1", "2")] == [1, 0]


def test_dates_of_dropped_entries_are_bounded() -> None:
    """However often one entry is posted again."""
    store = Store()
    for _ in range(1000):
        store.put(OWNER, [entry()], 0)
    assert len(store._ages) < 100
    assert found(store, "a", 9) == "x"
    assert found(store, "a", 10) == "no_entry"


OWNERS = st.sampled_from([("1", "k"), ("1", "l"), ("2", "k")])
ENTRIES_POSTED = st.builds(
    entry,
    st.sampled_from("abc"),
    st.sampled_from(["", "x", "y" * 40]),
    keep_s=st.sampled_from([1, 3, 9]),
    uses=st.none() | st.integers(1, 2),
)


class NaiveStore(RuleBasedStateMachine):
    """Says what the store has to hold, in lists that are searched from end to end."""

    @initialize(
        entries=st.integers(1, 4),
        size=st.sampled_from([60, 200, 10_000]),
        tombstones=st.integers(1, 3),
    )
    def start(self, entries: int, size: int, tombstones: int) -> None:
        self.limits = StoreLimits(entries=entries, bytes=size, tombstones=tombstones, tombstone_s=9)
        self.store = Store(self.limits)
        self.held: list[list[Any]] = []  # owner, entry, end, left; in order of arrival
        self.ids: list[Owner] = []  # in order of their record's making
        self.live: Counter[Owner] = Counter()
        self.closed: dict[Owner, tuple[float, bool]] = {}
        self.now_s = 0.0

    @rule(owner=OWNERS, posted=st.lists(ENTRIES_POSTED, max_size=3))
    def put(self, owner: Owner, posted: list[Entry]) -> None:
        self._expire()
        kept = sum(self._kept(owner, each) for each in posted)
        self._tidy()
        assert self.store.put(owner, posted, self.now_s) == kept

    @rule(owner=OWNERS)
    def begin(self, owner: Owner) -> None:
        self.store.begin(owner)
        if not self.closed.get(owner, (0, True))[1]:
            del self.closed[owner]
        self.live[owner] += 1
        self._know(owner)

    @rule(owner=OWNERS)
    def end(self, owner: Owner) -> None:
        self.store.end(owner, self.now_s)
        self._expire()
        if self.live[owner]:
            self.live[owner] -= 1
            if not self.live[owner]:
                self._drop(owner)
                self._close(owner, self.closed.get(owner, (0, False))[1])

    @rule(owner=OWNERS)
    def delete(self, owner: Owner) -> None:
        self._expire()
        dropped = self._drop(owner)
        assert self.store.delete(owner, self.now_s) == dropped
        self._close(owner, True)

    @rule(owner=OWNERS, names=st.text("abc", min_size=1, max_size=3), takes=st.booleans())
    def take(self, owner: Owner, names: str, takes: bool) -> None:
        self._expire()
        wanted = Counter(keys(names))
        mine = {each[1].key: each for each in self.held if each[0] == owner}
        fit = [key for key, calls in wanted.items() if key in mine and mine[key][3] >= calls]
        outputs = self.store.find(owner, keys(names), self.now_s)
        if len(fit) < len(wanted):
            assert outputs == ("partial" if fit else "no_entry")
            return
        assert outputs == tuple(mine[key][1] for key in keys(names))
        if takes:
            self.store.spend(owner, keys(names))
            for key in keys(names):
                mine[key][3] -= 1
            self.held = [each for each in self.held if each[3] > 0]
            self._tidy()

    @rule(seconds=st.sampled_from([0.5, 1, 4]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def it_holds_what_it_should(self) -> None:
        if not hasattr(self, "store"):
            return
        self._expire()
        self.store.expire(self.now_s)
        assert self.store.entries == len(self.held) <= self.limits.entries
        assert self.store.bytes == self._bytes() <= self.limits.bytes
        assert self.store.responses == len({each[0] for each in self.held} | set(+self.live))
        of = self.store.tally.of
        ends = ("spent", "evicted", "expired", "deleted", "freed")
        assert of(ENTRIES, "stored") >= len(self.held) + sum(of(ENTRIES, each) for each in ends)

    def teardown(self) -> None:
        """However it went, once all requests have ended and all time is over nothing is left."""
        if not hasattr(self, "store"):
            return
        for owner in self.live.elements():
            self.store.end(owner, self.now_s)
        self.store.expire(self.now_s + 9)
        assert (self.store.entries, self.store.bytes, self.store.responses) == (0, 0, 0)
        assert not self.store._ages
        assert not self.store._closed

    def _kept(self, owner: Owner, posted: Entry) -> bool:
        self.held = [each for each in self.held if each[:1] != [owner] or each[1].key != posted.key]
        if owner in self.closed:
            return False
        if posted.size_bytes <= self.limits.bytes:
            for other in [each for each in self.ids if each != owner and not self.live[each]]:
                if not self._fits(posted):
                    self._drop(other)
        if not self._fits(posted):
            return False
        left = float("inf") if posted.uses is None else posted.uses
        self.held.append([owner, posted, self.now_s + posted.keep_alive_s, left])
        self._know(owner)
        return True

    def _fits(self, posted: Entry) -> bool:
        room = self.limits.bytes - self._bytes()
        return len(self.held) < self.limits.entries and posted.size_bytes <= room

    def _bytes(self) -> int:
        return sum(each[1].size_bytes for each in self.held)

    def _drop(self, owner: Owner) -> int:
        before = len(self.held)
        self.held = [each for each in self.held if each[0] != owner]
        self._tidy()
        return before - len(self.held)

    def _close(self, owner: Owner, for_good: bool) -> None:
        self.closed.pop(owner, None)
        self.closed[owner] = (self.now_s + 9, for_good)
        for oldest in list(self.closed)[: -self.limits.tombstones]:
            del self.closed[oldest]

    def _know(self, owner: Owner) -> None:
        self.ids += [owner] if owner not in self.ids else []

    def _tidy(self) -> None:
        holders = {each[0] for each in self.held}
        self.ids = [each for each in self.ids if each in holders or self.live[each]]

    def _expire(self) -> None:
        self.held = [each for each in self.held if each[2] > self.now_s]
        self._tidy()
        self.closed = {key: each for key, each in self.closed.items() if each[0] > self.now_s}


TestStore = NaiveStore.TestCase
TestStore.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
