"""Lesson 1 as code: paged attention on six tokens, small enough to check by hand.

The left pane is plain Python, the right pane the same steps as two tiny kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import oracle, reference
from kernels.cases import lesson_case
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Workbench

ORDER = 1
WALKTHROUGH = Walkthrough(
    id="paged-reference",
    title="Paged attention, small enough to hold in the head",
    intro="""
One query looks at six tokens [paged-reference/dense]. Their keys and values do not lie in a row: they lie in
blocks of a shared pool, and a block table says which [paged-reference/scatter]. That is all that "paged" means.

Every step shows plain Python on the left and a running kernel on the right. The numbers are those of a single
head of size 4, blocks of 4 tokens, and the block table `[3, 1]` [paged-reference/lookup].
""",
    source="kernels/reference.py",
    port="kernels/gather.py",
)

CASE = lesson_case("float64")
Q = CASE.q[0, 0]
KEYS = np.ascontiguousarray(CASE.keys[0][:, 0])
VALUES = np.ascontiguousarray(CASE.values[0][:, 0])
TABLE = [3, 1]
TOKENS, BLOCK_SIZE, NUM_BLOCKS = 6, 4, 4
ANSWER = (0.363083, 0.449897, 0.392487, 0.386499)
SIX_DIGITS = 5e-7
ROUNDING = 1e-14


def int32(numbers: list[int]) -> npt.NDArray[np.int32]:
    """A block table as the kernels take it."""
    return np.array(numbers, np.int32)


def empty() -> tuple[Any, Any]:
    """Two pools [blocks, block size, head size] in which every number is NaN."""
    pool = np.full((NUM_BLOCKS, BLOCK_SIZE, len(Q)), np.nan)
    return pool, pool.copy()


def filled(table: list[int], tokens: int = TOKENS) -> tuple[Any, Any]:
    """The pools with the first tokens placed by hand, block after block; the rest stays NaN."""
    pools = empty()
    for number, block in enumerate(table):
        for pool, rows in zip(pools, (KEYS, VALUES), strict=True):
            part = rows[:tokens][number * BLOCK_SIZE : (number + 1) * BLOCK_SIZE]
            pool[block, : len(part)] = part
    return pools


def dense(keys: Any = KEYS, values: Any = VALUES) -> Any:
    """Attention over rows that lie together, in NumPy."""
    scores = keys @ Q * CASE.scale
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum()


@WALKTHROUGH.step("dense", title="The answer to keep", reads=("dense-attention", "gather-loop"))
def step_dense(bench: Workbench) -> None:
    """
    Picture six keys in a row, and a query that is compared with each of them.
    Six scores become six weights that add up to one. The output is the weighted mean of the six values.

    This is attention as every textbook has it. Nothing is paged yet. We keep its answer,
    because paging must give the same one.

    The kernel cannot read rows that lie together: it always goes through a block table.
    So we give it the table `[0, 1]`, which leads to the blocks in order. Paging with nothing out of place.
    """
    run = bench.gather(Q, filled([0, 1]), int32([0, 1]), TOKENS, CASE.scale)
    bench.check("output, blocks in order", run.out[0], ANSWER, tolerance=SIX_DIGITS, note="the lesson's six digits")
    plain = reference.dense_attention(Q.tolist(), KEYS.tolist(), VALUES.tolist())
    bench.check("plain Python agrees", run.out[0], plain, tolerance=ROUNDING)


@WALKTHROUGH.step("slots", title="Every token has a slot", reads=("slot-of-token",))
def step_slots(bench: Workbench) -> None:
    """
    Think of the pool as one long street. Each block is four houses. A **slot** is a house number.

    Token 5 belongs to logical block 1 of its sequence: five divided by four is one, remainder one.
    The block table turns logical block 1 into **physical block** 1. The remainder stays: it is the offset.
    Slot = 1 × 4 + 1 = 5.

    Token 0 is in logical block 0. The table says physical block 3. Slot = 3 × 4 + 0 = 12.
    So the first token of the sequence lives far behind the last one. No one minds.
    """
    slot = bench.watch("slot", at="slot-of-token", after="slot", by=("token_idx",))
    physical = bench.watch(
        "physical_block_number", at="slot-of-token", after="physical_block_number", by=("token_idx",)
    )
    run = bench.scatter(KEYS, VALUES, empty(), int32(TABLE), slot, physical)
    bench.check("physical block of each token", run.series("physical_block_number"), [3, 3, 3, 3, 1, 1])
    bench.check("slot of each token", run.series("slot"), oracle.slots(TABLE, TOKENS, BLOCK_SIZE))


@WALKTHROUGH.step("scatter", title="Write the tokens to their slots", reads=("slot-of-token", "scatter"))
def step_scatter(bench: Workbench) -> None:
    """
    Writing is easy once the slot is known. One thread takes one token. It copies the key and the value to that
    slot, each in a pool of its own. Both pools have the same shape.

    Before the write, every place of our pools holds NaN. Afterwards, exactly six places hold numbers. The rest
    of block 1 stays NaN: the sequence ends there. The other blocks were never touched; another sequence could
    own them.
    """
    run = bench.scatter(KEYS, VALUES, empty(), int32(TABLE))
    expected = filled(TABLE)
    bench.check("key pool", run.out[0], expected[0], note="NaN wherever nobody wrote")
    bench.check("value pool", run.out[1], expected[1])
    written = np.argwhere(~np.isnan(run.out[0][:, :, 0])) @ [BLOCK_SIZE, 1]
    bench.check("slots that hold numbers", written, sorted([12, 13, 14, 15, 4, 5]))


@WALKTHROUGH.step("lookup", title="Read through the table", reads=("gather-lookup",))
def step_lookup(bench: Workbench) -> None:
    """
    Now the reading side. The loop walks *logical* blocks, 0 and 1, because those are in the order of the text.
    At the top of each turn it asks the table once: where is this block really?

    That one line is the gather. Everything below it works inside one physical block, whose four tokens do lie
    together. This is why blocks exist: one look-up for four tokens, not one for each.
    """
    physical = bench.watch(
        "physical_block_number", at="gather-lookup", after="physical_block_number", by=("block_idx",)
    )
    slot = bench.watch("slot", at="gather-loop", after="slot", by=("token_idx",))
    run = bench.gather(Q, filled(TABLE), int32(TABLE), TOKENS, CASE.scale, physical, slot)
    bench.check("look-ups, one a block", len(run.readings("physical_block_number")), 2)
    bench.check("physical block of logical block 0, 1", run.series("physical_block_number"), TABLE)
    bench.check("slots read, in token order", run.series("slot"), oracle.slots(TABLE, TOKENS, BLOCK_SIZE))


@WALKTHROUGH.step("tail", title="The last block is only partly full", reads=("gather-loop", "tail-guard"))
def step_tail(bench: Workbench) -> None:
    """
    Six tokens need two blocks of four. The last two places hold nothing of ours. They may hold anything, such
    as the keys of a sequence that ended an hour ago.

    The guard stops at the length of the sequence. Without it, two strangers would get a share of the softmax.
    Our pools hold NaN in those places, so that a single wrong read would turn the whole output into NaN.

    Look at the lengths around a block edge. Four tokens fill one block exactly; there is no second turn.
    The fifth token needs a whole new block for itself.
    """
    for tokens in range(1, 7):
        token = bench.watch("token_idx", "slot", at="gather-loop", after="slot", by=("token_idx",))
        pools = filled(TABLE, tokens)
        run = bench.gather(Q, pools, int32(TABLE), tokens, CASE.scale, token)
        bench.check(f"{tokens} tokens: how many were read", len(run.readings("token_idx")), tokens)
        expected = dense(KEYS[:tokens], VALUES[:tokens])
        bench.check(f"{tokens} tokens: output", run.out[0], expected, tolerance=ROUNDING)


@WALKTHROUGH.step(
    "online-softmax",
    title="A softmax that never waits",
    reads=("online-softmax", "running-max", "running-sum", "running-rescale"),
)
def step_online_softmax(bench: Workbench) -> None:
    """
    A softmax needs the largest score first. But we meet the scores one by one. So we keep three things:

    - `m`, the largest score so far,
    - `l`, the sum of exp(score − m) so far,
    - `acc`, the sum of exp(score − m) × value so far.

    A new token may raise `m`. Then everything gathered under the old `m` is too large, all by the same factor:
    exp(old m − new m). One multiplication of `l` and `acc` mends it. If `m` stays, the factor is one.

    At every moment `acc / l` is the right answer for the tokens seen so far.

    Often said of vLLM's classic kernel, and wrong there: that one makes two passes and keeps no running sum
    [L1-09]. The kernels that vLLM runs today do work like this, a block at a time [vllm-live/max].
    """
    names = ("score", "m", "l", "acc0")
    score = bench.watch("score", at="online-softmax", after="p", by=("token_idx",))
    m = bench.watch("m", at="online-softmax", after="m", by=("token_idx",))
    total = bench.watch("l", at="online-softmax", after="l", by=("token_idx",))
    acc = bench.watch("acc0", "acc[0]", at="online-softmax", after="m", by=("token_idx",))
    run = bench.gather(Q, filled(TABLE), int32(TABLE), TOKENS, CASE.scale, score, m, total, acc)
    scores = KEYS @ Q * CASE.scale
    prefixes = [scores[: n + 1] for n in range(TOKENS)]
    expected = {
        "score": scores,
        "m": [p.max() for p in prefixes],
        "l": [np.exp(p - p.max()).sum() for p in prefixes],
        "acc0": [np.exp(p - p.max()) @ VALUES[: len(p), 0] for p in prefixes],
    }
    for name in names:
        bench.check(f"{name} after each token", run.series(name), expected[name], tolerance=ROUNDING)


@WALKTHROUGH.step("divide", title="One division, at the end", reads=("final-divide",))
def step_divide(bench: Workbench) -> None:
    """
    `acc` is a sum of values, each with its weight. `l` is the sum of the weights. Dividing the one by the other
    gives the mean, once, after the last token.

    The lesson's four numbers come out: 0.363083, 0.449897, 0.392487, 0.386499.
    """
    total = bench.watch("l", at="final-divide", after="out[]", by=("d",))
    acc = bench.watch("acc", "acc[d]", at="final-divide", after="out[]", by=("d",))
    run = bench.gather(Q, filled(TABLE), int32(TABLE), TOKENS, CASE.scale, total, acc)
    bench.check("l is the same for every element", len(set(run.series("l"))), 1)
    weights = np.exp(KEYS @ Q * CASE.scale - (KEYS @ Q * CASE.scale).max())
    bench.check("acc", run.series("acc"), weights @ VALUES, tolerance=ROUNDING)
    bench.check("output", run.out[0], ANSWER, tolerance=SIX_DIGITS, note="the lesson's six digits")


@WALKTHROUGH.step("order", title="Where the blocks lie does not matter", reads=("gather-loop", "gather-lookup"))
def step_order(bench: Workbench) -> None:
    """
    Put the same six tokens into other blocks, and tell the table. The loop still meets the tokens in the order
    of the text, so it adds the same numbers in the same order.

    The outputs are equal to the last bit, for all twelve ways to lay the blocks into a pool of four. Paging
    moves data. It does not touch the mathematics.
    """
    first = bench.gather(Q, filled(TABLE), int32(TABLE), TOKENS, CASE.scale).out[0]
    layouts = [[a, b] for a in range(NUM_BLOCKS) for b in range(NUM_BLOCKS) if a != b]
    outputs = [bench.gather(Q, filled(t), int32(t), TOKENS, CASE.scale).out[0] for t in layouts]
    bench.check("layouts tried", len(layouts), 12)
    bench.check("largest difference between layouts", max(float(np.abs(o - first).max()) for o in outputs), 0.0)
    bench.check("output", first, dense(), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "sharing", title="Two sequences, one block", reads=("prefix-sharing", "gather-lookup"),
    source="kernels/block_pool.py",
)  # fmt: skip
def step_sharing(bench: Workbench) -> None:
    """
    Two chats begin with the same four tokens. The first block of both is the same, number for number.
    So let both tables name it: `[3, 1]` and `[3, 0]`. It is stored once.

    The kernel does not know and need not know. It reads block 3 for the first sequence and block 3 for the second.
    Only the pool must keep count of the readers, so that the block is not given away while one of them lives.
    """
    k_pool, v_pool = filled([3, 1])
    k_pool[0, :2], v_pool[0, :2] = KEYS[4:6] + 1.0, VALUES[4:6] + 1.0
    other_keys = np.concatenate([KEYS[:4], KEYS[4:6] + 1.0])
    other_values = np.concatenate([VALUES[:4], VALUES[4:6] + 1.0])
    physical = bench.watch(
        "physical_block_number", at="gather-lookup", after="physical_block_number", by=("block_idx",)
    )
    one = bench.gather(Q, (k_pool, v_pool), int32([3, 1]), TOKENS, CASE.scale, physical)
    two = bench.gather(Q, (k_pool, v_pool), int32([3, 0]), TOKENS, CASE.scale, physical)
    bench.check("blocks read for the first sequence", one.series("physical_block_number"), [3, 1])
    bench.check("blocks read for the second sequence", two.series("physical_block_number"), [3, 0])
    bench.check("first output", one.out[0], dense(), tolerance=ROUNDING)
    bench.check("second output", two.out[0], dense(other_keys, other_values), tolerance=ROUNDING)
