"""What vLLM runs today, part 3: the softmax that never waits, the end, and what differs elsewhere."""

from __future__ import annotations

import numpy as np

from kernels import cases, oracle, oracle_2d
from kernels.probe import Watch
from walkthroughs.catalog.vllm_live_1_cache import CASE, WALKTHROUGH
from walkthroughs.catalog.vllm_live_2_tiles import HEAD, SCORE, attend
from walkthroughs.workbench import Run, Workbench

ORDER = 4
CLASSIC_PORT = "kernels/vllm/classic_v1.py"
SUM = 2e-5
ROW = ("seq_idx", HEAD, "j")
LEADER = "head_mask and offs_n == 0"


def of_row(run: Run, name: str, seq: int, head: int) -> list[float]:
    """A watch's values for one query head of one sequence, tile after tile."""
    return [value for key, value in sorted(run.last(name).items()) if key[:2] == (seq, head)]


@WALKTHROUGH.step("max", title="The largest so far", reads=("paged-2d-state", "paged-2d-max"))
def step_max(bench: Workbench) -> None:
    """
    Three things are remembered from tile to tile. `M`, the largest score so far. `L`, the sum of exponentials so far.
    `acc`, the weighted values so far. No row of scores is kept: a tile's scores are gone when the next tile comes.

    M starts at minus infinity. After each tile it is the larger of the old M and the tile's own maximum. It never
    falls.

    In the port, the 16 lanes of a row find the tile's maximum by shuffles: four exchanges, and every lane has it.
    So each lane can keep M for itself.
    """
    m = bench.watch("m_j", at="paged-2d-max", by=(*ROW, "offs_n"), when="head_mask")
    run = attend(bench, CASE, m)
    for seq, head in ((0, 0), (0, 3), (1, 2)):
        row = oracle.logits(CASE, seq, head)
        expected = [row[: end + 16].max() for end in range(0, len(row), 16)]
        seen = [v for k, v in sorted(run.last("m_j").items()) if k[:2] == (seq, head) and k[3] == 0]
        bench.check(f"M of sequence {seq}, head {head}, after each tile", seen, expected, tolerance=SCORE)
    lanes = [v for k, v in sorted(run.last("m_j").items()) if k[:3] == (0, 0, 2)]
    bench.check("all 16 lanes of a row agree", [max(lanes) - min(lanes), len(lanes)], [0, 16])


@WALKTHROUGH.step("rescale", title="Mend the past", reads=("paged-2d-sum", "paged-2d-rescale"))
def step_rescale(bench: Workbench) -> None:
    """
    Imagine prices noted in an old currency. When the currency changes, you do not go back to every receipt: you
    multiply the total once.

    So here. All exponentials so far were taken against the old M. If M grew, they are too large, all by the same
    factor. `alpha` = exp(old M − new M) mends the sum and the accumulator in one multiplication each. If M stayed,
    alpha is one.

    For the first tile alpha is zero: there is no past. The kernel asks for that case, since minus infinity minus minus
    infinity would be NaN.

    After each tile, L is what a two-pass softmax over the tokens so far would have as its sum.
    """
    alpha = bench.watch("alpha", at="paged-2d-rescale", part=0, by=ROW, when=LEADER)
    total = bench.watch("L", "L[r]", at="paged-2d-rescale", part=0, by=ROW, when=LEADER)
    run = attend(bench, CASE, alpha, total)
    for seq, head in ((0, 1), (0, 2), (1, 3)):
        states = oracle_2d.states(CASE, seq, head, 16)
        bench.check(
            f"alpha of sequence {seq}, head {head}", of_row(run, "alpha", seq, head), [s.alpha for s in states],
            tolerance=SCORE,
        )  # fmt: skip
        bench.check(
            f"L of sequence {seq}, head {head}", of_row(run, "L", seq, head), [s.l for s in states], tolerance=SUM
        )
    stays = [value for value in run.series("alpha") if value == 1]
    bench.check("at some tile the maximum stayed", bool(stays), True, note="alpha is exactly one there")


@WALKTHROUGH.step("values", title="Values, not yet weighed", reads=("paged-2d-v-add",))
def step_values(bench: Workbench) -> None:
    """
    The tile's exponentials times the tile's values are added to the accumulator. In Triton, a second `dot`.

    Before the product, the exponentials are rounded to the type of V: float16 times float16, summed in float32.
    The sum L was taken before that rounding.

    Here the port's threads change their job. Until now a thread stood for a token. Now it stands for an element of the
    head. What it needs from the others, the exponentials and alpha, goes through shared memory, with a barrier between.

    The check takes the accumulator after every tile, for all elements.
    """
    acc = bench.watch(
        "acc", "acc[i]", at="paged-2d-v-add", by=("j", "first_query_head + query_row", "element % HEAD_SIZE"),
        when="seq_idx == 0",
    )  # fmt: skip
    found = attend(bench, CASE, acc).last("acc")
    for head in (0, 3):
        states = oracle_2d.states(CASE, 0, head, 16)
        for tile in (0, 2, 4):
            seen = [found[tile, head, d] for d in range(32)]
            bench.check(f"acc of head {head} after tile {tile}", seen, states[tile].acc, tolerance=6e-3)


@WALKTHROUGH.step("divide", title="One division, at the very end", reads=("paged-2d-normalise", "paged-2d-store"))
def step_divide(bench: Workbench) -> None:
    """
    Now divide the accumulator by L, once. The classic kernel divided its weights before it ever touched a value.

    There is an epsilon again, but it is 1e-10 in place of 1e-6 [L1-40]. It is there for an empty sequence: zero
    divided by it is zero. For any other, L is at least one, and in float32 one plus so little is one. It leaves
    no trace.

    The classic kernel's 1e-6 does leave one. A single token should come out as its own value. Here it does,
    to the last bit. There it came out a millionth too small.
    """
    total = bench.watch("L", "L_of_row[query_row]", at="paged-2d-store", by=("seq_idx", "first_query_head + query_row"))
    run = attend(bench, CASE, total)
    expected = [oracle.exp_sum(CASE, seq, head) for seq in range(2) for head in range(4)]
    bench.check("L of every row", run.series("L"), expected, tolerance=SUM)
    bench.check("output", run.out[0], oracle_2d.attention(CASE), tolerance=1.5e-3)
    single = cases.decode_case((1, 0), 1, 1, 32, 16, "float32", seed=24)
    here, there = attend(bench, single).out[0], bench.attend(single).out[0]
    bench.check("one token: its own value", here[0, 0], single.values[0][0, 0])
    ratio = there[0, 0].astype(np.float64) / single.values[0][0, 0]
    bench.check("the classic kernel: a millionth less", ratio, [1 / (1 + 1e-6)] * 32, tolerance=4e-7)
    exact = bool((there[0, 0] == single.values[0][0, 0]).all())
    bench.check("the classic kernel is exact", exact, False)
    bench.check("no tokens: zeros", here[1, 0], np.zeros(32))


@WALKTHROUGH.step("one-pass", title="One pass here, two passes there", reads=("paged-2d-loop", "paged-2d-state"))
def step_one_pass(bench: Workbench) -> None:
    """
    Put the two kernels side by side, on the same case.

    **Classic**: all keys; then the softmax over a whole row of scores in shared memory; then all values. The block
    table is read twice. For each query head.

    **Here**: tile by tile, key and value together, with M, L and acc in between. The block table is read once. For each
    KV head. The shared memory does not grow with the sequence.

    Often the loop of this kernel is told as the classic kernel's story. It is not: that one has no running
    maximum and rescales nothing. Only the merge of its second version does, once, across partitions [L1-11].

    We count look-ups and floats.
    """
    one = "lane == 0 and seq_idx == 0"
    keys = classic_watch(bench, "keys", "block-table-walk", "physical_block_number", one)
    values = classic_watch(bench, "values", "v-table", "physical_block_number", one)
    row = classic_watch(bench, "row", "mask-and-store", "logits[]", "seq_idx == 0 and head_idx == 0")
    old = bench.attend(CASE, keys, values, row)
    bench.check("classic: look-ups in pass one", len(old.readings("keys")), 4 * 5, note="4 query heads, 5 blocks")
    bench.check("classic: look-ups in pass two", len(old.readings("values")), 4 * 5)
    bench.check("classic: scores kept", len(old.readings("row")), 80)
    tiles = bench.watch("tile", "j", at="paged-2d-qk", after="S", by=("kv_head_idx", "j"), when="seq_idx == 0")
    new = attend(bench, CASE, tiles)
    bench.check("here: tiles looked up", len(new.last("tile")), 2 * 5, note="2 KV heads, 5 tiles, keys and values")
    score = bench.watch("place", "offs_n", at="paged-2d-qk", after="S", by=("offs_n",), when="head_mask")
    bench.check("here: scores of a row alive at once", len(attend(bench, CASE, score).last("place")), 16)
    bench.check("outputs agree", new.out[0], old.out[0], tolerance=2e-3)


def classic_watch(bench: Workbench, name: str, at: str, after: str, when: str) -> Watch:
    """A watch in the classic kernel, whose regions this step's port does not have."""
    return Workbench(CLASSIC_PORT, bench.bench).watch(name, "seq_len", at=at, after=after, when=when)


@WALKTHROUGH.step(
    "unified", title="The unified kernel's step", reads=("unified-bounds", "softmax-step", "unified-normalise")
)
def step_unified(bench: Workbench) -> None:
    """
    vLLM has a second readable kernel: the unified Triton kernel, for prefill and decode in one. Its step is the same,
    with three differences. Our port can be told to do as it does.

    **Hidden tokens** get minus infinity. So a tile may have no largest score at all; then zero is taken, to keep
    NaN away. **Tiles before the window** are not even visited: the loop starts at the first tile that the window
    touches. **No epsilon**: it divides by L alone.

    It also sets the values of hidden tokens to zero. Their weights are zero already, so our port leaves that out.

    70 tokens, a window of 20: the window begins in tile 3. Two tiles remain of five.
    """
    m = bench.watch("m_j", at="softmax-step", by=ROW, when=LEADER)
    total = bench.watch("L", "L[r]", at="paged-2d-rescale", part=0, by=ROW, when=LEADER)
    run = attend(bench, CASE, m, total, sliding_window=20, unified=True)
    states = oracle_2d.states(CASE, 0, 1, 16, 20, -np.inf, first=3)
    visited = [key[2] for key in sorted(run.last("m_j")) if key[:2] == (0, 1)]
    bench.check("tiles visited", visited, [3, 4])
    bench.check("M after each", of_row(run, "m_j", 0, 1), [s.m for s in states], tolerance=SCORE)
    bench.check("L after each", of_row(run, "L", 0, 1), [s.l for s in states], tolerance=SUM)
    bench.check("output", run.out[0], oracle_2d.attention(CASE, 20, eps=0), tolerance=1.5e-3)
    every = attend(bench, CASE, m, sliding_window=20)
    bench.check("the 2d kernel visits", len(of_row(every, "m_j", 0, 1)), 5)
