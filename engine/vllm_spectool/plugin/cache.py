"""The tool cache of one API server, on this process's clock."""

import time
from collections.abc import Collection, Sequence
from math import inf
from typing import Any

from vllm_spectool._core.counters import Tally
from vllm_spectool._core.decide import Continuation, ContinuationLimits, Decider, Hit, TurnEnd
from vllm_spectool._core.entries import Entry, EntryLimits
from vllm_spectool._core.outcomes import Decline, Outcome
from vllm_spectool._core.protocol import status
from vllm_spectool._core.store import Owner, Store
from vllm_spectool.plugin.drafting import Drafting
from vllm_spectool.plugin.kv_room import KvRoom


class PluginCache:
    """What the routes post to and the chat handler takes from."""

    def __init__(
        self,
        *,
        unable: str | None = None,
        limits: ContinuationLimits | None = None,
        special_tokens: Collection[str] = (),
    ) -> None:
        self.unable = unable
        """Why responses cannot go on in place here; None if they can."""
        self.entry_limits = EntryLimits()
        self.tally = Tally()
        self.store = Store(None, self.tally)
        self.room = KvRoom()
        self.drafting: Drafting | None = None
        """Drafts the arguments of posted calls; None where that is off."""
        self._decider = Decider(self.store, limits or ContinuationLimits(), special_tokens)

    @property
    def limits(self) -> ContinuationLimits:
        """How far a response may go on."""
        return self._decider.limits

    def turn_on(
        self, limits: ContinuationLimits, special_tokens: Collection[str], room: KvRoom
    ) -> None:
        """Take posts from now on."""
        self.room = room
        self._decider = Decider(self.store, limits, special_tokens)
        self.unable = None

    async def put(self, owner: Owner, entries: Sequence[Entry]) -> int:
        """Keep `entries`; return how many were kept."""
        kept = self.store.put(owner, entries, time.monotonic())
        if kept and self.drafting is not None:
            self.drafting.post(owner[1], entries)
        return kept

    async def delete(self, owner: Owner) -> int:
        """Drop what a response has; return how much that was."""
        if self.drafting is not None:
            self.drafting.forget(owner[1])
        return self.store.delete(owner, time.monotonic())

    def begin(self, owner: Owner) -> None:
        """Note that a request runs."""
        self.store.begin(owner)

    def end(self, owner: Owner) -> None:
        """Note that a request has ended."""
        self.store.end(owner, time.monotonic())

    def status(self) -> dict[str, Any]:
        """Say what is on, and if not, why."""
        return status(
            on=[] if self.unable else ["o3", "o2"] if self.drafting else ["o3"],
            reason=self.unable,
            limits={
                "entries": self.entry_limits.entries,
                "body_bytes": self.entry_limits.body_bytes,
                "entry_bytes": self.entry_limits.entry_bytes,
                "keep_alive_s": self.entry_limits.keep_alive_s,
                "turns": self.limits.turns,
            },
        )

    def count(self, outcome: Outcome) -> None:
        """Count a turn that ended for a reason of this server's own."""
        self._decider.count(outcome)

    def look(self, end: TurnEnd) -> Hit | None:
        """Return the outputs for a turn's calls; take none."""
        found = self._decider.look(end, time.monotonic())
        return None if isinstance(found, str) else found

    def settle(
        self,
        hit: Hit,
        resident: Sequence[int],
        rendered: Sequence[int],
        most_tokens: float = inf,
    ) -> Continuation | Decline:
        """Say whether a response goes on with `rendered`; if so, take the outputs."""
        return self._decider.settle(
            hit,
            resident=resident,
            rendered=rendered,
            now_s=time.monotonic(),
            most_tokens=most_tokens,
        )
