"""Who owns which block: a free list, a block table for each sequence, and blocks that several tables share.

Only block numbers are handled here; the keys and values lie elsewhere, in each layer's own caches.
A sequence takes a block when it needs one, never ahead. A block is free again when the last table lets it go.
"""

from collections import deque
from dataclasses import dataclass, field

from kernels import layout
from kernels.errors import ArgumentError, KernelError


class PoolEmpty(KernelError):
    """More blocks were asked for than are free; nothing was changed."""

    def __init__(self, needed: int, free: int) -> None:
        self.needed = needed
        self.free = free
        super().__init__(
            f"{needed} blocks needed, {free} free: let a sequence go, or preempt one, or make the pool larger"
        )


@dataclass(frozen=True)
class Growth:
    """What appending tokens did: where they go, and what must be copied before they are written."""

    slots: tuple[int, ...]
    """The slot of each new token."""
    copy: tuple[int, int] | None = None
    """(from, to): copy the contents of this shared physical block first."""


class BlockPool:
    """A fixed number of blocks: the free ones in a queue, the others counted by the tables that hold them."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        layout.value_cache_shape(num_blocks, 1, 1, block_size)  # refuses what no cache could have
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = deque(range(num_blocks))
        self._ref_counts = [0] * num_blocks

    # region: block-pool
    def take(self, count: int = 1) -> list[int]:
        """Return `count` free blocks, each now held once. Raises `PoolEmpty`, taking none."""
        if count > len(self._free):
            raise PoolEmpty(count, len(self._free))
        blocks = [self._free.popleft() for _ in range(count)]
        for block in blocks:
            self._ref_counts[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Let one more table hold a block that is in use. Raises `ArgumentError` if it is free."""
        self._ref_counts[self._in_use(block)] += 1

    def release(self, block: int) -> None:
        """Let go of a block; the last to let go frees it. Raises `ArgumentError` if it is free already."""
        self._ref_counts[self._in_use(block)] -= 1
        if not self._ref_counts[block]:
            self._free.append(block)

    # endregion

    def ref_count(self, block: int) -> int:
        """Return how many tables hold a block: 0 when it is free."""
        return self._ref_counts[self._existing(block)]

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks that at least one table holds."""
        return self.num_blocks - len(self._free)

    def _existing(self, block: int) -> int:
        if not 0 <= block < self.num_blocks:
            raise ArgumentError("block", block, f"must be a block of the pool: 0 .. {self.num_blocks - 1}")
        return block

    def _in_use(self, block: int) -> int:
        if not self._ref_counts[self._existing(block)]:
            raise ArgumentError("block", block, "must be in use, and it is free")
        return block


@dataclass(eq=False)
class BlockTable:
    """The physical blocks of one sequence, in logical order, and how many tokens they hold."""

    pool: BlockPool
    blocks: list[int] = field(default_factory=list)
    num_tokens: int = 0

    # region: block-table-growth
    def append(self, tokens: int = 1) -> Growth:
        """Make room for `tokens` more tokens and return their slots. Raises `PoolEmpty`, changing nothing.

        A new block is taken only when a token falls into it. A last block that is shared and not full is
        first replaced by one of our own: the other table must not see our tokens (copy on write).
        """
        if tokens < 0:
            raise ArgumentError("tokens", tokens, "must be at least 0")
        size, first = self.pool.block_size, self.num_tokens
        missing = layout.blocks_for(first + tokens, size) - len(self.blocks)
        writes_shared = tokens > 0 and first % size > 0 and self.pool.ref_count(self.blocks[-1]) > 1
        taken = self.pool.take(missing + writes_shared)
        copy = None
        if writes_shared:
            copy = (self.blocks.pop(), taken[0])
            self.pool.release(copy[0])
        self.blocks += taken
        self.num_tokens += tokens
        positions = range(first, first + tokens)
        return Growth(tuple(layout.slot(self.blocks[p // size], p % size, size) for p in positions), copy)

    # endregion

    # region: prefix-sharing
    def fork(self) -> "BlockTable":
        """Return a second table over the same tokens: every block is shared, full or not."""
        return self._sharing(len(self.blocks), self.num_tokens)

    def share_prefix(self, tokens: int) -> "BlockTable":
        """Return a new table that starts with the full blocks among our first `tokens` tokens.

        Its `num_tokens` says how many tokens that saves: a block that is only partly common is not shared.
        """
        if not 0 <= tokens <= self.num_tokens:
            raise ArgumentError("tokens", tokens, f"must be 0 .. {self.num_tokens}, the tokens of this table")
        full = tokens // self.pool.block_size
        return self._sharing(full, full * self.pool.block_size)

    def _sharing(self, blocks: int, tokens: int) -> "BlockTable":
        for block in self.blocks[:blocks]:
            self.pool.share(block)
        return BlockTable(self.pool, self.blocks[:blocks], tokens)

    # endregion

    def release(self) -> None:
        """Let every block go, the last first; the table is empty afterwards."""
        for block in reversed(self.blocks):
            self.pool.release(block)
        self.blocks, self.num_tokens = [], 0
