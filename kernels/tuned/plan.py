"""How a decode launch is cut into thread blocks: splits of one length for all, or a list that balances them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels import layout
from kernels.errors import ArgumentError

MULTIPROCESSORS = 132
"""Of an H100 or H200."""
SHARED_BYTES = 227 * 1024
"""What the thread blocks of one multiprocessor share."""
ITEM_FIELDS = 8


@dataclass(frozen=True)
class Plan:
    """How a launch is cut: splits of each sequence, warps of a thread block, KV blocks in a warp's ring.

    `balance`: cut by the sequences' own lengths into about `splits` pieces a multiprocessor, longest first, in place
    of so many splits for every sequence.
    """

    splits: int = 1
    warps: int = 4
    depth: int = 3
    balance: bool = False

    def __post_init__(self) -> None:
        for name, value, most in (("splits", self.splits, 65535), ("warps", self.warps, 16), ("depth", self.depth, 32)):
            if not 1 <= value <= most:
                raise ArgumentError(name, value, f"must be from 1 to {most}")


@dataclass(frozen=True)
class Item:
    """A thread block's share: the KV blocks of one sequence from `first` to below `stop`.

    It is the `split`-th of `parts` pieces, and its partial results have the place `base + split`.
    """

    seq: int
    first: int
    stop: int
    split: int
    parts: int
    base: int


def balanced(lengths: Sequence[int], block_size: int, pieces: int) -> list[Item]:
    """Cut the sequences into about `pieces` of one size or less, the longest first.

    Each sequence has one piece at least, an empty one too: somebody must write its zeros. Raises ArgumentError.
    """
    if pieces < 1:
        raise ArgumentError("pieces", pieces, "must be at least 1")
    counts = [layout.blocks_for(int(length), block_size) for length in lengths]
    most = max(1, -(-sum(counts) // pieces))
    items: list[Item] = []
    for seq, count in enumerate(counts):
        parts = max(1, -(-count // most))
        each = -(-count // parts)
        base = len(items)
        for split in range(parts):
            items.append(Item(seq, split * each, min((split + 1) * each, count), split, parts, base))
    return sorted(items, key=lambda item: item.first - item.stop)


def as_words(items: Sequence[Item]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """What the kernel reads: eight numbers an item, the last two unused."""
    rows = [(i.seq, i.first, i.stop, i.split, i.parts, i.base, 0, 0) for i in items]
    return np.array(rows, np.int32).reshape(-1)


DEPTH = 3
"""KV blocks in a warp's ring. Thread blocks of eight warps, one a multiprocessor, get one less. That was tuned with
sequences of one length; lists of mixed lengths may want all of them."""


def choose(
    num_seqs: int, num_kv_heads: int, max_seq_len: int, block_size: int, block_bytes: int, *, mixed: bool = False,
    multiprocessors: int = MULTIPROCESSORS,
) -> Plan:  # fmt: skip
    """A plan from what the host knows. `block_bytes`: keys and values of one KV block and KV head.

    `mixed`: the sequences' lengths differ much, and the host has them. The rules were tuned on an H200.
    """
    large, small = _teams(block_bytes)
    if mixed:
        return Plan(2, *large, balance=True)
    units = num_seqs * num_kv_heads
    if units > multiprocessors:
        return Plan(1, *small)
    # Less than one thread block a multiprocessor: split, while each warp keeps four KV blocks.
    blocks = max(1, layout.blocks_for(max_seq_len, block_size))
    return Plan(max(1, min(multiprocessors // units, blocks // (4 * large[0]))), *large)


def _teams(block_bytes: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Warps and depth of a thread block that takes a multiprocessor, and of one that leaves room for another."""
    room = SHARED_BYTES - 4096
    found = []
    for warps, depth, share in ((8, DEPTH - 1, room), (4, DEPTH, room // 2)):
        while warps > 1 and warps * depth * block_bytes > share:
            warps //= 2
        found.append((warps, max(1, min(depth, share // (warps * block_bytes)))))
    return found[0], found[1]
