"""Where the keys and values of tokens would lie: only the bookkeeping of it."""


class BlockPool:
    """A fixed number of blocks of `size` tokens, counted as vLLM counts them."""

    def __init__(self, blocks: int, size: int) -> None:
        self.blocks = blocks
        self.size = size
        self._held: dict[object, int] = {}

    @property
    def used(self) -> int:
        """Blocks in use."""
        return sum(self._held.values())

    def fit(self, owner: object, tokens: int) -> bool:
        """Give `owner` room for `tokens` tokens in all; False, and no change, if there is none."""
        wanted = -(-tokens // self.size)
        held = self._held.get(owner, 0)
        if wanted - held > self.blocks - self.used:
            return False
        self._held[owner] = max(held, wanted)
        return True

    def free(self, owner: object) -> None:
        """Take back what `owner` has."""
        self._held.pop(owner, None)
