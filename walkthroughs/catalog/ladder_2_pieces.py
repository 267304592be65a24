"""The ladder, part 2: loads as wide as a lane can have them, and one thread block for all heads of a group."""

from __future__ import annotations

from kernels import layout
from kernels.tuned import grouped, wide_loads
from kernels.tuned.plan import Plan
from walkthroughs.catalog.ladder import WALKTHROUGH
from walkthroughs.catalog.ladder_shared import (
    BLOCKS,
    GROUP,
    HEAD_SIZE,
    HEADS,
    ITEM,
    KV_HEADS,
    NEEDED,
    TOKENS,
    attend,
    counted_case,
    of_splits,
    operations,
    predicted,
    right,
    shared_bytes,
    traffic,
)
from walkthroughs.workbench import Workbench

ORDER = 8
WHOLE = Plan(splits=1, warps=2)
CUT = Plan(splits=2, warps=2)
SPANS = (range(TOKENS // 2), range(TOKENS // 2, TOKENS))
SCORE, SUM = 1e-5, 1e-4


@WALKTHROUGH.step(
    "wide-loads",
    title="Wide loads",
    reads=("k-address", "qk-dot", "v-address", "accumulate"),
    source="kernels/vllm/attention_kernels.py",
    port="kernels/tuned/wide_loads.py",
)
def step_wide_loads(bench: Workbench) -> None:
    """
    **The picture.** Carry water with a thimble or with a bucket: the walk to the well is the same. A load is one
    instruction, whether it brings 2 bytes or 16. And 16 is the most that a lane can ask for at once.

    The layout is made for the bucket. Sixteen bytes of a key lie together, for one token; so do the values of eight
    tokens, for one element of the head. So the lanes are dealt out anew: a lane takes a token and whole pieces of its
    key; later it takes a piece of a row of values.

    **Prediction.** The bytes are the same as before: every query head still reads for itself, so the cache is read 4
    times. But the loads are an eighth: 12,288 where loads of 2 bytes would be 98,304. There is something else, which no
    count shows: a lane that asks for much at once waits once, not eight times. So this rung should gain most where
    loads, not bytes, are in the way.

    ::: rung wide-loads

    **Why.** For a full batch this is the largest step of all. So it was the loads: their number, and that each was
    waited for. Scores, weights and their sums are worked out as before, and so are the barriers between the rounds.

    What is left is that four query heads fetch the same bytes. They find most of them in the L2 cache, since they run
    at about the same time; but that too has a limit, and each head widens every number again.
    """
    right(bench, wide_loads.launches, WHOLE, roundings=0)
    found = traffic(bench, wide_loads.launches, WHOLE)
    predicted(bench, found, copies=GROUP, widths=(layout.VECTOR_BYTES,), barriers=5 * HEADS)
    bench.check("loads of keys and values", found.lanes("keys", "values"), 12288)
    bench.check("loads, were they of 2 bytes each", GROUP * NEEDED // ITEM, 98304)
    bench.check("operations for each byte that is asked for", operations() / found.bytes("keys", "values"), 1)


@WALKTHROUGH.step(
    "grouped",
    title="Query heads in a group",
    reads=("block-table-walk", "qk-dot", "accumulate"),
    source="kernels/tuned/wide_loads.py",
    port="kernels/tuned/grouped.py",
)
def step_grouped(bench: Workbench) -> None:
    """
    **The picture.** Four people need the same page. Until now each of them walked to the shelf. Now one walks, and
    reads it aloud.

    The four query heads of a KV head share its keys and values. So one thread block serves all four. Their queries lie
    in shared memory. A piece is loaded once, widened once, and meets each query. Each head has its own score, its own
    maximum, its own output.

    **Prediction.** The cache is read once: 49,152 bytes, not 196,608. The operations stay. So a byte is now good for 4
    operations, before for 1. In a full batch that should help as much as bytes were the limit. But there are only 2
    thread blocks where there were 8. For a single sequence, partitions as in v2 must make up for it.

    ::: rung grouped

    **Why.** The gain is less than the bytes promise. The L2 cache can serve several thread blocks with the same bytes,
    so the other heads need not have fetched theirs from memory; no counter was read to tell. The surest saving is in
    instructions. In return a thread holds four outputs where it held one: see what that does to the registers, and so
    to the number of warps that can run at the same time.
    """
    right(bench, grouped.launches, WHOLE, roundings=0)
    found = traffic(bench, grouped.launches, WHOLE)
    predicted(bench, found, copies=1, widths=(layout.VECTOR_BYTES,), barriers=5 * KV_HEADS)
    bench.check("bytes, were each query head to read for itself", GROUP * NEEDED, 196608)
    bench.check("operations for each byte that is asked for", operations() / found.bytes("keys", "values"), GROUP)
    bench.check("thread blocks, and query heads", [found.blocks, HEADS], [KV_HEADS, 8])
    bench.check("look-ups of a warp, for keys and again for values", found.lanes("table") // 32, 2 * KV_HEADS * BLOCKS)
    more = shared_bytes(grouped.launches, 384, WHOLE) - shared_bytes(grouped.launches, 192, WHOLE)
    bench.check("shared memory for 192 tokens more: a score for each head, in bytes", more, 192 * GROUP * 4)
    narrow = counted_case()
    _, left = attend(bench, grouped.launches, narrow, CUT)
    stats = left["stats"].reshape(HEADS, 2, 2)
    largest, sums, outputs = of_splits(narrow, SPANS)
    bench.check("largest score of each head and partition, base 2", stats[..., 0], largest, tolerance=SCORE)
    bench.check("sum of weights of each head and partition", stats[..., 1], sums, tolerance=SUM)
    partial = left["partial"].reshape(HEADS, 2, HEAD_SIZE)
    bench.check("values times weights of each head and partition", partial, outputs, tolerance=SUM)
