"""How much of a KV cache is reserved and never used: whole lengths set aside at once, against blocks by need.

Counts tokens only; multiply by `layout.kv_bytes_per_token` for bytes. The lengths are a model of chat traffic, not a
measurement: most requests are short, a few are very long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels import layout
from kernels.errors import ArgumentError

MAX_LEN = 2048
"""The longest length that a request may reach, prompt and answer together."""
MEDIAN = 300
"""Half of the model's requests are shorter."""
SPREAD = 0.9
"""Standard deviation of the lengths' logarithm."""


@dataclass(frozen=True)
class Room:
    """What one way of reserving makes of a set of lengths, in tokens."""

    used: int
    reserved: int

    @property
    def share_used(self) -> float:
        """Used over reserved, 0 to 1; 1 where nothing is reserved."""
        return self.used / self.reserved if self.reserved else 1.0


def chat_lengths(count: int, seed: int = 0) -> list[int]:
    """Return final lengths of `count` requests, 1 to MAX_LEN tokens: log-normal, cut at both ends."""
    if count < 0:
        raise ArgumentError("count", count, "must be at least 0")
    rng = np.random.default_rng(seed)
    drawn = np.exp(np.log(MEDIAN) + SPREAD * rng.standard_normal(count))
    return [int(length) for length in np.clip(np.rint(drawn), 1, MAX_LEN)]


# region: fragmentation
def contiguous(lengths: Sequence[int], max_len: int = MAX_LEN) -> Room:
    """Every sequence gets one run, as long as the longest length that could come. Raises ArgumentError."""
    _check(lengths, max_len)
    return Room(sum(lengths), max_len * len(lengths))


def power_of_two(lengths: Sequence[int], max_len: int = MAX_LEN) -> Room:
    """Every sequence gets one run, the next power of two: as if its length had been known. Raises ArgumentError."""
    _check(lengths, max_len)
    return Room(sum(lengths), sum(1 << (length - 1).bit_length() if length else 0 for length in lengths))


def paged(lengths: Sequence[int], block_size: int, max_len: int = MAX_LEN) -> Room:
    """Every sequence gets the blocks that its tokens reach. Raises ArgumentError."""
    _check(lengths, max_len)
    return Room(sum(lengths), sum(layout.blocks_for(length, block_size) * block_size for length in lengths))


# endregion


def ways(lengths: Sequence[int]) -> list[tuple[str, Room]]:
    """The ways that the figure shows, each with its name."""
    return [
        (f"One run of {MAX_LEN} each", contiguous(lengths)),
        ("Next power of two", power_of_two(lengths)),
        *((f"Blocks of {size}", paged(lengths, size)) for size in (128, 16)),
    ]


def _check(lengths: Sequence[int], max_len: int) -> None:
    for index, length in enumerate(lengths):
        if not 0 <= length <= max_len:
            raise ArgumentError(f"lengths[{index}]", length, f"must be 0 to {max_len}")
