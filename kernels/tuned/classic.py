"""Rungs 1 and 2: vLLM's classic kernels v1 and v2, as the line-by-line ports in `kernels.vllm` have them.

The ports' host functions choose the template, the grid and the arguments. They are handed an entry that keeps the
launch in place of making it, so nothing of that is written down a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels import layout
from kernels.kernel import MAX_SHARED_BYTES, Kernel
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.piece import refuse
from kernels.tuned.plan import Plan
from kernels.vllm import classic_v1, classic_v2


@dataclass(frozen=True)
class Recorded:
    """Stands in a kernel's place in a host function; launches go to `found`."""

    kernel: Kernel
    found: list[Launch]
    opted: int = 0

    def specialise(self, **template: Any) -> Recorded:
        """As Kernel.specialise."""
        return replace(self, kernel=self.kernel.specialise(**template))

    def on(self, _backend: Any) -> Recorded:
        """As Kernel.on: the backend is chosen later."""
        return self

    def opt_in(self, shared_bytes: int) -> Recorded:
        """As Launcher.opt_in."""
        return replace(self, opted=shared_bytes)

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        grid, threads, _, shared = config
        # Static memory counts too. Where it is what passes the limit, ask for it as well, and the limit is raised.
        room = self.opted if shared <= MAX_SHARED_BYTES < self.opted else shared

        def keep(*args: Any) -> None:
            self.found.append(Launch(self.kernel, (*grid, 1, 1)[:3], threads, args, room))

        return keep


def launches_v1(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """One launch, however it is planned. Raises ArgumentError, and LaunchError where the scores of `max_seq_len`
    tokens do not fit into shared memory.
    """
    found: list[Launch] = []
    classic_v1.paged_attention_v1(
        call.out, *_arguments(call, zeros), entry=Recorded(classic_v1.paged_attention_v1_kernel, found)
    )
    return tuple(found)


def launches_v2(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """Two launches, with partitions of 512 tokens however it is planned. Raises ArgumentError, LaunchError."""
    found: list[Launch] = []
    notes = (call.num_seqs, call.num_heads, layout.partitions_for(call.max_seq_len))
    rows = notes[0] * notes[1] * notes[2]
    classic_v2.paged_attention_v2(
        call.out, zeros(rows, np.float32).reshape(notes), zeros(rows, np.float32).reshape(notes),
        zeros(rows * call.head_size, call.query.dtype).reshape((*notes, call.head_size)), *_arguments(call, zeros),
        entry=Recorded(classic_v2.paged_attention_v2_kernel, found),
        reduce_entry=Recorded(classic_v2.paged_attention_v2_reduce_kernel, found),
    )  # fmt: skip
    return tuple(found)


def _arguments(call: Decode, zeros: Zeros) -> tuple[Any, ...]:
    """What both take behind the output, on the same side as the rest: no slope is a slope of zero, no scale is read."""
    refuse(call)
    slopes = zeros(call.num_heads, np.float32) if call.alibi_slopes is None else call.alibi_slopes
    return (
        call.query, call.key_cache, call.value_cache, call.num_kv_heads, call.scale, call.block_tables, call.seq_lens,
        call.block_size, call.max_seq_len, slopes, "auto", zeros(1, np.float32), zeros(1, np.float32),
    )  # fmt: skip
