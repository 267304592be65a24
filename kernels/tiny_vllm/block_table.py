"""tiny-vllm's bookkeeping: a list of free blocks, a table of three parts, and when the table goes to the GPU.

A port of the host code around the kernel at commit e25bf19: blocks are popped from the back of the list on demand,
pushed back at the end, never shared, never cleared. The constants stand here and in `paged`, as they do twice upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from kernels.errors import ArgumentError, KernelError
from kernels.kernel import Backend, kernel
from kernels.vllm import check

Table = npt.NDArray[np.int32]
# region: tiny-layout
N_LAYERS = 16
KV_DIM = 512
MAX_SEQ_LEN = 2048
BATCH_SIZE = 2
SIZEOF_BF16 = 2
BLOCK_SIZE = 16
V_OFFSET = BLOCK_SIZE * KV_DIM * SIZEOF_BF16
BLOCK_BYTES = V_OFFSET * 2
KV_CACHE_SIZE_BYTES = 2 * 1024 * 1024 * 1024
MAX_BLOCKS_PER_SEQ = MAX_SEQ_LEN // BLOCK_SIZE
NUM_BLOCKS = KV_CACHE_SIZE_BYTES // BLOCK_BYTES
# endregion
MAX_SEQUENCES = BATCH_SIZE
NONE = -1


class NoFreeBlock(KernelError):
    """The free list is empty. Upstream does not look: it would pop from an empty vector, which C++ leaves undefined."""


class BlockNotFree(KernelError):
    """A prompt is written into a slot that has a block already: upstream's one assertion."""


@dataclass
class Copies:
    """What went to the GPU for the table's sake."""

    full: int = 0
    """Times the whole table was copied, as upstream does."""
    changed: list[int] = field(default_factory=list)
    """For each of those times, how many entries had changed since the last one."""


class Blocks:
    """The free list and the table of one engine; `table` is the host's, `copies` says when it was sent."""

    # region: tiny-pool
    def __init__(
        self,
        *,
        num_blocks: int = NUM_BLOCKS,
        slots: int = MAX_SEQUENCES,
        layers: int = N_LAYERS,
        columns: int = MAX_BLOCKS_PER_SEQ,
    ) -> None:
        """All blocks are free, 0 first; every entry is -1."""
        self.free_blocks = list(range(num_blocks))
        self.table: Table = np.full((slots, layers, columns), NONE, np.int32)
        # endregion
        self.copies = Copies()
        self._sent = self.table.copy()

    @property
    def live(self) -> list[int]:
        """Every block that stands in the table, in the table's order."""
        return [int(block) for block in self.table[self.table != NONE]]

    def take(self, slot: int, layer: int, logical: int) -> int:
        """Pop a block for one place of the table. Raises NoFreeBlock."""
        if not self.free_blocks:
            raise NoFreeBlock("no free block: let a sequence go, or make the cache larger")
        block = self.free_blocks.pop()
        self.table[slot, layer, logical] = block
        return block

    # region: tiny-write-prefill
    def prefill_layer(self, slot: int, layer: int, prompt_len: int) -> list[int]:
        """Take a block for every 16 tokens of a prompt, in one layer; returns them in logical order.

        Raises BlockNotFree where the slot has one already, ArgumentError for a slot, layer or length out of range.
        """
        self._check(slot, layer, prompt_len, "prompt_len")
        found = []
        for block_idx in range(-(-prompt_len // BLOCK_SIZE)):
            if self.table[slot, layer, block_idx] != NONE:
                raise BlockNotFree(f"block_table[{slot}, {layer}, {block_idx}] = {self.table[slot, layer, block_idx]}")
            found.append(self.take(slot, layer, block_idx))
        return found

    # endregion

    # region: tiny-write-decode
    def decode_layer(self, slot: int, layer: int, position: int) -> tuple[int, int]:
        """The block and the place in it for the token at `position`; a new block where the place is 0.

        The old entry is not looked at: a block that stood there would be lost. Raises ArgumentError, NoFreeBlock.
        """
        self._check(slot, layer, position + 1, "position + 1")
        logical_block_idx, token_in_block_idx = divmod(position, BLOCK_SIZE)
        if token_in_block_idx == 0:
            self.take(slot, layer, logical_block_idx)
        return int(self.table[slot, layer, logical_block_idx]), token_in_block_idx

    # endregion

    # region: tiny-table-sync
    def sync(self) -> Table:
        """Copy the whole table, changed or not; returns the copy, and counts."""
        self.copies.full += 1
        self.copies.changed.append(len(self.changes()))
        self._sent = self.table.copy()
        return self._sent

    # endregion

    def changes(self) -> list[tuple[int, int]]:
        """(place in the flat table, new block) of every entry that differs from the last copy."""
        places = np.flatnonzero(self.table != self._sent)
        return [(int(place), int(self.table.reshape(-1)[place])) for place in places]

    # region: tiny-release
    def release(self, slot: int) -> list[int]:
        """Push every block of a slot back, layer by layer, and write -1; returns them in that order."""
        self._check(slot, 0, 1, "tokens")
        given_back = []
        for layer in range(self.table.shape[1]):
            for logical in range(self.table.shape[2]):
                block = int(self.table[slot, layer, logical])
                if block != NONE:
                    self.free_blocks.append(block)
                    self.table[slot, layer, logical] = NONE
                    given_back.append(block)
        return given_back

    # endregion

    def prefill(self, slot: int, prompt_len: int) -> None:
        """A whole prompt: every layer, then one copy of the table."""
        for layer in range(self.table.shape[1]):
            self.prefill_layer(slot, layer, prompt_len)
        self.sync()

    def decode(self, positions: Iterable[tuple[int, int]]) -> None:
        """One decode step over (slot, position) pairs: in each layer the scatter, then a copy of the table."""
        pairs = list(positions)
        for layer in range(self.table.shape[1]):
            for slot, position in pairs:
                self.decode_layer(slot, layer, position)
            self.sync()

    def _check(self, slot: int, layer: int, tokens: int, name: str) -> None:
        slots, layers, columns = self.table.shape
        for what, value, limit in (("slot", slot, slots), ("layer", layer, layers)):
            if not 0 <= value < limit:
                raise ArgumentError(what, value, f"must be from 0 to {limit - 1}")
        if not 1 <= tokens <= columns * BLOCK_SIZE:
            raise ArgumentError(name, tokens, f"must be from 1 to {columns * BLOCK_SIZE}")


def run_bookkeeping(prompts: Sequence[tuple[int, int]], *, slots: int = MAX_SEQUENCES) -> tuple[Blocks, list[int]]:
    """Serve (prompt length, tokens to generate) pairs in order, as the engine does; a prefill counts for one token.

    Returns the bookkeeping, and for each decode step how many entries of the table had changed.
    """
    blocks = Blocks(slots=slots)
    queue = list(prompts)
    running: dict[int, list[int]] = {}
    steps = []
    while queue or running:
        for slot in range(slots):
            if slot not in running and queue:
                prompt_len, tokens = queue.pop(0)
                blocks.prefill(slot, prompt_len)
                running[slot] = [prompt_len, tokens - 1]
        before = len(blocks.copies.changed)
        blocks.decode((slot, running[slot][0]) for slot in sorted(running))
        steps.append(sum(blocks.copies.changed[before:]))
        for slot, state in list(running.items()):
            state[1] -= 1
            if state[1] <= 0 or state[0] == MAX_SEQ_LEN - 1:
                blocks.release(slot)
                blocks.sync()
                del running[slot]
            state[0] += 1
    return blocks, steps


@kernel()
def update_table_kernel(block_table, places, entries):  # type: ignore[no-untyped-def]
    """Not in tiny-vllm: write only the changed entries, a thread for each."""
    at = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if at < places.size:
        block_table[places[at]] = entries[at]


def update_table(
    block_table: Any,
    changes: Sequence[tuple[int, int]],
    *,
    backend: str | Backend = "sim",
    entry: Any = update_table_kernel,
) -> None:
    """Bring a copy of the table up to date by its changed entries. block_table: [slots, layers, blocks] int32."""
    check.shape("block_table", block_table, (None, None, None), ("int32",))
    for number, (place, _) in enumerate(changes):
        if not 0 <= place < block_table.size:
            raise ArgumentError(f"changes[{number}]", place, f"must be from 0 to {block_table.size - 1}")
    if not changes:
        return
    places, entries = (np.array(column, np.int32) for column in zip(*changes, strict=True))
    entry.on(backend)[-(-len(changes) // 128), min(len(changes), 128)](block_table.reshape(-1), places, entries)
