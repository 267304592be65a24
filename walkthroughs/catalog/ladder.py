"""The ladder, rung by rung: what a rung must do by arithmetic, what it does on the machine, and that it is right.

This part has the introduction and the lowest rung; `ladder_shared` has what all steps share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernels import oracle
from kernels.cases_narrow import narrow_decode_case
from kernels.probe import Probed
from kernels.tuned import token_loop
from walkthroughs.catalog.ladder_shared import (
    BLOCK_SIZE,
    GROUP,
    HEAD_SIZE,
    HEADS,
    ITEM,
    NEEDED,
    SCALAR,
    TOKENS,
    call_of,
    chosen,
    operations,
    predicted,
    right,
    small_case,
    traffic,
)
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Workbench

ORDER = 8
WALKTHROUGH = Walkthrough(
    id="ladder",
    title="The ladder: from readable to the memory limit",
    intro="""
Why is it slow, and what would be fast? Here the same sum is written again and again, in Python, over the same paged
cache. Each rung changes one thing, and each is one file.

Every step begins with a **prediction**, by arithmetic: how many bytes, how many operations, and so what the
limit must be. The step counts them on the SIMT machine, and the counts must agree. Then what was **measured** on a GPU:
time, bandwidth, registers. Then **why** the one differs from the other.

::: rungs

[How fast](../bench.md) has the chart, and other people's kernels beside these.

The arithmetic is the part to keep. A decode step must read every key and every value once, and it does very little
with each [ladder/token-loop]. So the best that there can be is to read the cache at the speed of memory. That
speed is measured in the same run, with a kernel that does nothing but read. How far a rung is from it is what it has
still to give.
""",
    source="vllm@0.24.0",
    port="kernels/tuned/ring.py",
)
SCORE, SUM = 1e-5, 1e-4
HEAD = 1
"""The query head that is watched."""


@WALKTHROUGH.step(
    "token-loop",
    title="One token at a time",
    reads=("block-table-walk", "k-address", "v-address", "warp-reduce", "cross-warp-reduce", "online-softmax"),
    source="tiny-vllm@e25bf19",
    port="kernels/tuned/token_loop.py",
)
def step_token_loop(bench: Workbench) -> None:
    """
    **The picture.** One reader with a long list reads a line aloud, waits until everybody in the room has added it up,
    and only then reads the next line. Nobody is ever ahead, and nobody is ever busy for long.

    This is tiny-vllm's loop, on vLLM's layout. A thread block has a query head, and a thread has one element of it. For
    each token all threads multiply, two warps add up, and everybody waits for the sum. Then each thread adds its
    element of the value. It is the shortest way to write it down, and easy to get right.

    **Prediction.** Our small case has 96 tokens and two KV heads: 49,152 bytes that must be read. There are eight query
    heads and a thread block for each. So the cache is read 4 times, and each load brings one number, 2 bytes.

    What is computed is little: 196,608 multiplications and additions in all, four for each byte that must be read. A
    GPU can do far more than that in the time that a byte takes to arrive. So it is not the arithmetic.

    But for each token the thread block meets at two barriers: 192 in a row, for 96 tokens. A key and a value are asked
    for, waited for, used; then come the next ones. The limit is neither bytes nor operations. It is the wait, once for
    every token.

    ::: rung token-loop

    **Why.** The share of the memory's speed is as small as that. Memory delivers much, but late, and it is asked for
    little at a time. Many sequences hide some of it, since one thread block can wait while another works. A single long
    sequence hides nothing: its tokens stand in line. Every rung from here on asks for more at once.
    """
    right(bench, token_loop.launches, roundings=0, given=small_case())
    found = traffic(bench, token_loop.launches)
    predicted(bench, found, copies=GROUP, widths=(ITEM,), barriers=2 * TOKENS * HEADS)
    bench.check("barriers of one thread block, one after another", found.barriers // found.blocks, 192)
    bench.check("multiplications and additions", operations(), 196608)
    bench.check("of them for each byte that must be read", operations() / NEEDED, 4)
    watched(bench)


def watched(bench: Workbench) -> None:
    """Check the largest score so far and the sum so far, after every token, for one query head."""
    by = ("block * BLOCK_SIZE + token",)
    when = f"cuda.blockIdx.x == {HEAD} and element == 0"
    largest = bench.watch("m", at="running-max", by=by, when=when)
    total = bench.watch("total", at="running-sum", by=by, when=when)
    narrow = narrow_decode_case((20,), 2, 1, HEAD_SIZE, BLOCK_SIZE, SCALAR, seed=86)
    (made,) = chosen(bench, token_loop.launches(call_of(narrow, np.zeros_like(narrow.q))))
    probed: Any = Probed(made.kernel, (largest, total))
    replace(made, kernel=probed).run(bench.backend)
    scores = oracle.logits(narrow.case, 0, HEAD)
    so_far = [scores[: count + 1] for count in range(20)]
    seen = [[reading.value for reading in probed.readings(name)] for name in ("m", "total")]
    bench.check("largest score so far, after each token", seen[0], [row.max() for row in so_far], tolerance=SCORE)
    sums = [np.exp(row - row.max()).sum() for row in so_far]
    bench.check("sum of weights so far, after each token", seen[1], sums, tolerance=SUM)
