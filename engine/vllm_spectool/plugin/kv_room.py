"""Keeps resident responses from waiting for one another's KV blocks.

Between two turns vLLM lets a session keep its blocks, and never takes them away, not even where the
next turn needs a block that is not there. Two sessions that hold everything would then wait for
ever. So a response goes on only while all of them fit into the cache at once: whatever else holds
blocks gives them back in time.
"""

from collections.abc import Hashable


class KvRoom:
    """Counts the blocks that opted-in responses need, at most."""

    def __init__(self, tokens: int | None = None, block_tokens: int = 16) -> None:
        """Count against a cache.

        Args:
            tokens: What one engine's cache holds; None for no limit.
            block_tokens: Tokens of a block, which is taken as a whole.
        """
        self._blocks = None if tokens is None else tokens // block_tokens
        self._block_tokens = block_tokens
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

    def fits(self, owner: Hashable, tokens: int) -> bool:
        """Say whether a response may grow to `tokens`."""
        if self._blocks is None:
            return True
        others = self.held - self._held.get(owner, 0)
        return others + self._blocks_of(tokens) <= self._blocks

    def _blocks_of(self, tokens: int) -> int:
        # One token more: the first of the turn is written before the turn can be preempted.
        return (tokens + self._block_tokens) // self._block_tokens
