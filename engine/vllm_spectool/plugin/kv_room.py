"""Keeps resident responses from waiting for one another's KV blocks.

Between two turns vLLM lets a session keep its blocks, and never takes them away, not even where the
next turn needs a block that is not there. Two sessions that hold everything would then wait for
ever. So a response goes on only while all of them fit into the cache at once: whatever else holds
blocks gives them back in time.
"""

from collections.abc import Hashable
from math import inf


class KvRoom:
    """Counts the blocks that opted-in responses need, at most."""

    def __init__(
        self, tokens: int | None = None, block_tokens: int = 16, *, ahead: int = 1
    ) -> None:
        """Count against a cache.

        Args:
            tokens: What one engine's cache holds; None for no limit.
            block_tokens: Tokens of a block, which is taken as a whole.
            ahead: Tokens for which a turn takes room before they are written: its first one,
                which is written before the turn can be preempted, and drafts.
        """
        self._blocks = None if tokens is None else tokens // block_tokens
        self._block_tokens = block_tokens
        self._ahead = ahead
        self._held: dict[Hashable, int] = {}

    @property
    def held(self) -> int:
        """Blocks that open responses need now."""
        return sum(self._held.values())

    def hold(self, owner: Hashable, tokens: int) -> None:
        """Note how many tokens of a response are resident."""
        self._held[owner] = self._blocks_of(tokens)

    def free(self, owner: Hashable) -> None:
        """Note that a response has ended."""
        self._held.pop(owner, None)

    def most(self, owner: Hashable) -> float:
        """Return how many tokens a response may grow to."""
        if self._blocks is None:
            return inf
        others = self.held - self._held.get(owner, 0)
        return (self._blocks - others) * self._block_tokens - self._ahead

    def _blocks_of(self, tokens: int) -> int:
        return -(-(tokens + self._ahead) // self._block_tokens)
