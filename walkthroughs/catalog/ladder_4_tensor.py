"""The ladder, part 4: products by tensor cores, and a ring of KV blocks that the copy engine fills."""

from __future__ import annotations

import numpy as np

from kernels.tuned import ring_launch, tensor_cores
from kernels.tuned.plan import Plan
from walkthroughs.catalog.ladder import WALKTHROUGH
from walkthroughs.catalog.ladder_shared import (
    BLOCK_SIZE,
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
    predicted,
    right,
    traffic,
)
from walkthroughs.workbench import Workbench

ORDER = 8
CUT = Plan(splits=2, warps=2, depth=2)
"""Two thread blocks a KV head, of two warps each; on the last rung each warp has two KV blocks on their way."""
SPANS = (range(TOKENS // 2), range(TOKENS // 2, TOKENS))
SCORE, SUM = 1e-5, 1e-4
ROWS, COLUMNS, TERMS = 16, 8, 16
"""Of one product: the result has rows and columns, and each of its numbers is a sum of so many terms."""
PIECE = 16
"""Tokens that a warp takes at once."""


def products(kv_heads: int, tokens: int, keys: int, values: int) -> int:
    """Products of a launch: so many of keys and of values for each piece and KV head."""
    return kv_heads * tokens // PIECE * (keys + values)


@WALKTHROUGH.step(
    "tensor-cores",
    title="Tensor cores",
    reads=("qk-dot", "accumulate"),
    source="kernels/tuned/online.py",
    port="kernels/tuned/tensor_cores.py",
)
def step_tensor_cores(bench: Workbench) -> None:
    """
    **The picture.** A tensor core multiplies two small tables in one instruction. A warp holds the tables in its
    registers, a few numbers in each lane. What took every lane a long column of multiplications becomes one word.

    The tables have a fixed shape: 16 rows, 8 columns, and 16 terms in each sum. A single query would fill one row and
    leave the others empty. But the four query heads of a KV head share their keys. They are four rows.

    A sum does not mind the order of its terms. So each lane loads a whole piece of memory, 16 bytes of a key, and the
    rung decides what lies where in the tables. Nothing is moved from lane to lane.

    **Prediction.** The cache is read once, as two rungs below: there is nothing left to save. What shrinks is the work.
    For sixteen tokens of a KV head, the rung below has every lane do 256 multiplications with their additions. Here the
    warp issues 12 products. So the arithmetic no longer stands in the way, and memory should be the limit.

    ::: rung tensor-cores

    **Why.** In a full batch it gains most where a KV head has most query heads: there was most to compute for each
    byte. Elsewhere the rung below was near the limit already.

    A product is over before the next keys are there. Now the lanes wait for memory, and how much is on its way is what
    counts. Here it is on its way to registers. A register that waits can hold nothing else, and the registers of a
    multiprocessor are shared by all its warps: see how many a thread takes. More bytes on their way would need more
    registers, or more warps that each need as many.
    """
    right(bench, tensor_cores.launches, CUT)
    found = traffic(bench, tensor_cores.launches, CUT)
    # One barrier in each thread block, before its warps are merged, and one in each of the merge of splits.
    predicted(bench, found, copies=1, widths=(8, 16), barriers=CUT.splits * KV_HEADS + HEADS)
    keys, values = ROWS // COLUMNS * HEAD_SIZE // TERMS, HEAD_SIZE // ROWS
    bench.check("products for sixteen tokens of a KV head", keys + values, 8 + 4, note="of keys and of values")
    bench.check("products", found.operations["mma"], products(KV_HEADS, TOKENS, keys, values))
    by_hand = 2 * GROUP * PIECE * HEAD_SIZE // 32
    bench.check("multiplications of a lane for sixteen tokens, without tensor cores", by_hand, 256)
    splits(bench)


def splits(bench: Workbench) -> None:
    """Check what the splits leave for the kernel that merges them."""
    narrow = counted_case()
    _, left = attend(bench, tensor_cores.launches, narrow, CUT)
    stats = left["stats"].reshape(narrow.case.num_heads, CUT.splits, 2)
    largest, sums, _ = of_splits(narrow, SPANS)
    bench.check("largest score of each head and split, base 2", stats[..., 0], largest, tolerance=SCORE)
    bench.check("sum of each head and split", stats[..., 1], sums, tolerance=SUM)


@WALKTHROUGH.step(
    "ring",
    title="A ring of bulk copies",
    reads=("block-table-walk", "qk-dot", "online-softmax"),
    source="kernels/tuned/tensor_cores.py",
    port="kernels/tuned/ring_launch.py",
)
def step_ring(bench: Workbench) -> None:
    """
    **The picture.** A cook who walks to the cellar for each dish cooks little. Better a slip of paper: bring me this
    one. The copy engine fetches it while the cook is busy with an earlier one.

    Here one lane of a warp writes the slips. A KV block of one head lies in one piece, so a slip brings 2,048 bytes of
    keys, another as many of values. They arrive in shared memory, in a ring: when a warp is done with a block, its
    place is asked to hold the block after the next. Each warp has a ring of its own. No warp waits for another until
    the end.

    Products are taken the other way round. Sixteen tokens are the rows, and the query heads are the eight columns. Half
    of the columns are empty here. Before, most of the rows were.

    **Prediction.** No lane loads a key or a value itself: 24 copies bring everything, once. For each warp up to 8,192
    bytes are on their way, and not one register waits for them. For sixteen tokens there are 8 products in place of 12.
    Thread blocks meet at four barriers, all of them after the last token. Nothing is left that grows with the sequence
    except the bytes. The limit is memory.

    ::: rung ring

    **Why.** A thread takes fewer registers than on the rung below, since none of them waits for memory. What is still
    missing lies at the ends. When a thread block starts, its ring is empty. When it ends, it asks for nothing more, and
    its warps merge what they have. With many sequences the ends of some lie over the middle of others, and the loss is
    small. A single sequence is cut into parts for all multiprocessors. They start together and end together, and the
    ends weigh more.

    ::: written ring
    """
    right(bench, ring_launch.launches, CUT)
    found = traffic(bench, ring_launch.launches, CUT)
    piece = BLOCK_SIZE * HEAD_SIZE * ITEM
    predicted(bench, found, copies=1, widths=(piece,), barriers=4 * CUT.splits * KV_HEADS)
    bench.check("copies of 2,048 bytes", found.lanes("keys", "values"), 24, note="two a KV block and KV head")
    keys, values = HEAD_SIZE // TERMS, HEAD_SIZE // ROWS
    bench.check("products for sixteen tokens of a KV head: the rung below, and here", [12, keys + values], [12, 4 + 4])
    bench.check("products", found.operations["mma"], products(KV_HEADS, TOKENS, keys, values))
    bench.check("bytes on their way for a warp, at most", CUT.depth * 2 * piece, 8192)
    rings = CUT.warps * CUT.depth * 2 * piece
    share = rings / found.shared
    bench.check("the rings take most of the shared memory", 0.9 < share <= 1, True, note=f"{rings} bytes")
    narrow = counted_case()
    _, left = attend(bench, ring_launch.launches, narrow, CUT)
    rows = left["stats"].reshape(CUT.splits, KV_HEADS * GROUP, 2)
    largest, sums, _ = of_splits(narrow, SPANS)
    bench.check("largest score of each head and split, base 2", rows[..., 0].T, largest, tolerance=SCORE)
    bench.check("sum of each head and split", rows[..., 1].T, sums, tolerance=SUM)
    bench.check("turns that are left over", int(np.abs(left["turns"]).sum()), 0)
    bench.check("bytes that the splits leave, of those that must be read", found.stored("rest") / NEEDED < 0.1, True)
