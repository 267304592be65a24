"""How a decode launch is cut into thread blocks, and the memory that its parts leave for each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import ArgumentError


@dataclass(frozen=True)
class Plan:
    """How a launch is cut: splits of each sequence, warps of a thread block, KV blocks in a warp's ring."""

    splits: int = 1
    warps: int = 4
    depth: int = 3

    def __post_init__(self) -> None:
        for name, value, most in (("splits", self.splits, 65535), ("warps", self.warps, 16), ("depth", self.depth, 32)):
            if not 1 <= value <= most:
                raise ArgumentError(name, value, f"must be from 1 to {most}")


@dataclass(frozen=True)
class Workspace:
    """What the splits of one plan leave for each other; used again and again, by one launch at a time.

    `partial`: [num_seqs * num_heads * splits * head_size] float32; `stats`: two float32 for each of those rows;
    `turns`: [num_seqs * num_kv_heads] uint32, zero before and after each launch.
    """

    partial: Any
    stats: Any
    turns: Any

    @staticmethod
    def of(query: Any, num_kv_heads: int, splits: int, empty: Callable[[int, Any], Any] = np.empty) -> Workspace:
        """For queries of this shape. `empty(size, dtype)` makes an array: NumPy's, or `cuda.device_array`."""
        num_seqs, num_heads, head_size = query.shape
        rows = num_seqs * num_heads * splits if splits > 1 else 1
        turns = empty(num_seqs * num_kv_heads, np.uint32)
        turns[:] = 0
        return Workspace(empty(rows * head_size, np.float32), empty(2 * rows, np.float32), turns)
