"""The ladder, part 3: one pass over keys and values together, and a sequence that several thread blocks share."""

from __future__ import annotations

from kernels import layout
from kernels.tuned import online, split
from kernels.tuned.plan import Plan
from walkthroughs.catalog.ladder import WALKTHROUGH
from walkthroughs.catalog.ladder_shared import (
    BLOCK_SIZE,
    BLOCKS,
    HEAD_SIZE,
    HEADS,
    KV_HEADS,
    TOKENS,
    attend,
    counted_case,
    of_splits,
    predicted,
    right,
    shared_bytes,
    traffic,
)
from walkthroughs.workbench import Workbench

ORDER = 8
WHOLE = Plan(splits=1, warps=2)
CUT = Plan(splits=3, warps=2)
SPANS = tuple(range(first, first + TOKENS // 3) for first in range(0, TOKENS, TOKENS // 3))
SCORE, SUM = 1e-5, 1e-4
LONG, LONG_HEADS, LONG_KV_HEADS, LONG_HEAD_SIZE, LONG_SPLITS = 32768, 32, 8, 128, 16
"""One long sequence of a model with 8 billion weights, and how it is cut."""


@WALKTHROUGH.step(
    "online",
    title="Online softmax",
    reads=("online-softmax", "running-max", "running-rescale", "accumulate"),
    source="kernels/tuned/grouped.py",
    port="kernels/tuned/online.py",
)
def step_online(bench: Workbench) -> None:
    """
    **The picture.** Until now there were two rounds. The first wrote down a score for every token; only then was it
    known which is the largest, and what each token weighs. The second round fetched the values.

    But the largest score *so far* will do. A warp weighs a tile of tokens by it. When a larger score comes, everything
    summed so far shrinks by one factor [paged-reference/online-softmax]. So a tile's keys and its values can be fetched
    together. No score is kept.

    **Prediction.** The bytes stay the same: once around. What goes away is the wait in the middle, and the row of
    scores in shared memory. 192 tokens need no more of it than 96. The block table is read once for keys and values,
    not twice. Thread blocks meet at three barriers, none of them in the loop. While a warp works on a tile, all loads
    of the tile are on their way. The limit is how much that is.

    ::: rung online

    **Why.** For many sequences it depends on the registers. Keys, values and outputs of a tile are now held at the same
    time, so a thread takes more of them, and fewer warps run at once. Where a head is small that costs little, and the
    single pass gains; where it is large, it may lose as much as it gains.

    For one sequence it is a long step back. The rung below could cut it into partitions. Here only as many thread
    blocks run as there are KV heads, the rest of the GPU is idle, and nothing inside a thread block can mend that. The
    next rung can.
    """
    right(bench, online.launches, WHOLE, roundings=0)
    found = traffic(bench, online.launches, WHOLE)
    predicted(bench, found, copies=1, widths=(16,), barriers=3 * KV_HEADS)
    bench.check("look-ups of a warp in the block table", found.lanes("table") // 32, KV_HEADS * BLOCKS)
    sizes = [shared_bytes(online.launches, tokens, WHOLE) for tokens in (96, 192)]
    bench.check("shared memory for 96 and for 192 tokens", sizes, [2 * 4 * (HEAD_SIZE + 2) * 4] * 2)


@WALKTHROUGH.step(
    "split",
    title="Splits",
    reads=("block-ranges", "block-table-walk", "v2-merge"),
    source="kernels/tuned/online.py",
    port="kernels/tuned/split.py",
)
def step_split(bench: Workbench) -> None:
    """
    **The picture.** A long shelf to be read by one person, while the others look on. Cut the shelf into parts, give
    each a part, and let everybody report three things: the largest score of the part, the sum of its weights, and its
    values times its weights. A second kernel makes one answer of the reports.

    The merge is exact. A part was weighed by its own largest score, and two to the power of the difference mends that.
    It is what vLLM's v2 does with partitions [vllm-classic/v2-merge]. Only, a partition there always has 512 tokens
    [L1-29]. Here the host chooses how many parts there are: as many as fill the GPU, and no more.

    **Prediction.** Three splits make three times as many thread blocks. Each reads its own third: the cache is still
    read once. New are the reports, 66 numbers of four bytes for each head and split, written once and read again. In
    our small case they are an eighth of the cache. For 32,768 tokens in 16 splits they are far below a hundredth. So a
    long sequence should gain most. A full batch should gain a little, where its last round of thread blocks fills the
    GPU only in part.

    ::: rung split

    **Why.** Splits are no gift. Each starts anew: it fetches its queries, fills its first loads, and ends with a merge
    of its warps; then comes a second launch. That is why the host takes few. What remains between this and the limit is
    work: for each byte of the cache the lanes multiply and add for every query head of its group.
    """
    right(bench, split.launches, CUT, roundings=0)
    found = traffic(bench, split.launches, CUT)
    # Three barriers in each split, and one in each thread block of the merge: a head of its own.
    predicted(bench, found, copies=1, widths=(16,), barriers=3 * 3 * KV_HEADS + HEADS)
    bench.check("thread blocks, those of the merge left out", found.blocks - HEADS, 3 * KV_HEADS)
    report = HEAD_SIZE + 2
    bench.check("numbers of a report", report, 66)
    bench.check("bytes of the reports", found.stored("rest"), 4 * report * HEADS * 3)
    must = LONG * layout.kv_bytes_per_token(LONG_KV_HEADS, LONG_HEAD_SIZE, 2)
    share = 4 * (LONG_HEAD_SIZE + 2) * LONG_HEADS * LONG_SPLITS / must
    bench.check(
        "reports of 32,768 tokens in 16 splits are below a hundredth",
        share < 0.01,
        True,
        note=f"{share:.2%} of the cache",
    )
    narrow = counted_case()
    _, left = attend(bench, split.launches, narrow, CUT)
    stats = left["stats"].reshape(HEADS, 3, 2)
    largest, sums, outputs = of_splits(narrow, SPANS)
    bench.check("largest score of each head and split, base 2", stats[..., 0], largest, tolerance=SCORE)
    bench.check("sum of weights of each head and split", stats[..., 1], sums, tolerance=SUM)
    partial = left["partial"].reshape(HEADS, 3, HEAD_SIZE)
    bench.check("values times weights of each head and split", partial, outputs, tolerance=SUM)
    bench.check("tokens of a split, in whole blocks", [len(span) % BLOCK_SIZE for span in SPANS], [0, 0, 0])
