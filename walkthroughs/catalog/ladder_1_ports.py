"""The ladder, part 1: vLLM's classic kernels, line by line, as two rungs."""

from __future__ import annotations

import numpy as np

from kernels import layout
from kernels.cases_narrow import narrow_decode_case
from kernels.tuned import classic
from walkthroughs.catalog.ladder import WALKTHROUGH
from walkthroughs.catalog.ladder_shared import (
    GROUP,
    HEADS,
    ITEM,
    NEEDED,
    SCALAR,
    count,
    of_splits,
    predicted,
    right,
    shared_bytes,
    small_case,
    traffic,
)
from walkthroughs.workbench import Workbench

ORDER = 8
PORT = "kernels/tuned/classic.py"
LONG, SHORT, TWO_HEADS, SIZE, BLOCK = 520, 40, 2, 32, 16
"""Two sequences for v2: one with a second partition of eight tokens, one without a second. Two heads on one KV head."""
PARTITIONS = (range(layout.PARTITION_SIZE), range(layout.PARTITION_SIZE, LONG))
SCORE, SUM = 1e-5, 1e-4


@WALKTHROUGH.step(
    "classic-v1",
    title="vLLM's v1",
    reads=("block-table-walk", "mask-and-store", "normalise", "v-loop", "cross-warp-reduce"),
    port=PORT,
)
def step_classic_v1(bench: Workbench) -> None:
    """
    **The picture.** Four readers share a long list. Each takes every fourth page and writes a score on the board for
    each line. When all are done they find the largest and turn scores into weights. Then each goes through the same
    pages again, for the values. In the end four partial sums are added up.

    The readers are warps, a page is a KV block, and the board is shared memory. This is our port of vLLM's kernel, line
    by line [vllm-classic/grid]. Nothing is made faster in it.

    **Prediction.** No barrier stands inside a loop any more. A thread block meets at 9 of them, for 16 tokens as for
    64. Between them a warp waits for nobody, and several warps have loads on their way. So each token costs less
    waiting.

    The bytes are as before: the cache is read 4 times. And the port asks for every number alone: 98,304 loads of 2
    bytes. So the limit should now be the loads: how many a multiprocessor can issue, and how many can be under way.

    The board has a price. A score is 4 bytes, so 4,096 tokens need 16,384 bytes of shared memory, and what is given to
    scores cannot hold more thread blocks.

    ::: rung classic-v1

    **Why.** It is faster, but by less than so many barriers would make one think. They were not the worst of it. Both
    rungs ask for 2 bytes at a time, and here the loads themselves are in the way. The registers count, too: the more a
    thread has, the fewer warps run at once.

    vLLM's own compiled kernel has the same loops and the same barriers, but its threads load 8 bytes of a key at once,
    and 16 of a value [L1-18] [vllm-classic/v-rows]. Numba keeps to what is written: one element, one load. What that
    costs can be seen two rungs up, where it is taken away.
    """
    right(bench, classic.launches_v1, roundings=2, given=small_case())
    found = traffic(bench, classic.launches_v1)
    predicted(bench, found, copies=GROUP, widths=(ITEM,), barriers=9 * HEADS)
    bench.check("loads of keys and values", found.lanes("keys", "values"), GROUP * NEEDED // ITEM, note="98,304")
    few = [
        count(bench, classic.launches_v1, narrow_decode_case((tokens,), 1, 1, 32, 16, SCALAR, seed=85)).barriers
        for tokens in (16, 64)
    ]
    bench.check("barriers of one thread block for 16 and for 64 tokens", few, [9, 9])
    bench.check("shared memory for 4,096 tokens", shared_bytes(classic.launches_v1, 4096), 16384)


@WALKTHROUGH.step(
    "classic-v2",
    title="vLLM's v2",
    reads=("partition-exit", "partition-stats", "v2-max", "v2-rescale", "v2-merge"),
    port=PORT,
)
def step_classic_v2(bench: Workbench) -> None:
    """
    **The picture.** If the list is very long, a few readers are too few, and the other tables in the room are empty. So
    cut the list into partitions of 512 tokens, and give each to a table of its own. Every table reports its largest
    score, its sum and its output. A second kernel makes one answer of the reports.

    **Prediction.** It is v1, once for each partition: the same loads of 2 bytes, the same barriers. A full batch has
    thread blocks enough without it, and should rather lose: every partition has a start and a report. But a single
    sequence of 32,768 tokens has 64 partitions, so 64 times as many thread blocks. There it should gain most of all
    rungs.

    The reports are small. For one sequence of 520 tokens and one of 40 there are 8 thread blocks. Those without a token
    leave at once.

    ::: rung classic-v2

    **Why.** One sequence gains most, and yet not 64 times: soon the GPU is full, and each thread block is as slow as it
    was. A full batch loses what the reports and the second launch cost.

    The size is fixed. So a sequence of medium length may make too few partitions to fill the GPU, and a batch makes
    many more than it needs. A later rung chooses the number instead [ladder/split].
    """
    narrow = narrow_decode_case((LONG, SHORT), TWO_HEADS, 1, SIZE, BLOCK, SCALAR, seed=84)
    # Once more than v1: a partition's output is rounded before it is merged.
    left = right(bench, classic.launches_v2, roundings=3, given=narrow)
    found = count(bench, classic.launches_v2, narrow)
    blocks = layout.blocks_for(LONG, BLOCK) + layout.blocks_for(SHORT, BLOCK)
    held = blocks * layout.kv_block_bytes(1, SIZE, BLOCK, ITEM)
    bench.check("bytes of keys and values in the blocks of both sequences", found.distinct("keys", "values"), held)
    bench.check("times that they are read", found.bytes("keys", "values") / held, TWO_HEADS)
    bench.check("bytes of one load", found.widths("keys", "values"), [ITEM])
    bench.check("thread blocks, those of the merge left out", found.blocks - 2 * TWO_HEADS, 2 * TWO_HEADS * 2)
    bench.check("partitions of 32,768 tokens", layout.partitions_for(32768), 64)
    largest, sums, _ = of_splits(narrow, PARTITIONS)
    found_max, found_sum = (np.asarray(left[name]).reshape(2, TWO_HEADS, 2)[0] for name in ("max_logits", "exp_sums"))
    bench.check("largest score of each head and partition", found_max, largest / np.log2(np.e), tolerance=SCORE)
    bench.check("sum of each head and partition", found_sum, sums, tolerance=SUM)
