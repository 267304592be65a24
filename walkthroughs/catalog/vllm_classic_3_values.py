"""vLLM's classic kernel, part 3: the softmax, the second pass, and the output."""

from __future__ import annotations

import numpy as np

from kernels import cases, oracle
from walkthroughs.catalog.vllm_classic_1_write import CASE, WALKTHROUGH
from walkthroughs.catalog.vllm_classic_2_keys import SCORE
from walkthroughs.workbench import Workbench

ORDER = 2
HALF = 4e-3
ROW = "lane // NUM_V_VECS_PER_ROW"
LEADS = "lane % NUM_V_VECS_PER_ROW == 0"


@WALKTHROUGH.step("exp-sum", title="Exponentials, and their sum", reads=("exp-sum", "block-sum"))
def step_exp_sum(bench: Workbench) -> None:
    """
    Now all 128 threads walk along the row of scores. Each begins at the token with its own number, and moves on
    by 128. Each score is replaced by exp(score − max). The largest becomes exactly one, so the sum is at least
    one.

    `block_sum` adds up across the block, in the shape you know: shuffles in the warp, four numbers in shared memory,
    a barrier, shuffles again. It uses the *second half* of `red_smem`. The first half still holds the maxima,
    and a slow warp may not have read them yet. Two halves save one barrier.

    The exponential is the fast one of the hardware. It is right to about one part in a million.
    """
    value = bench.watch("exp", "logits[i]", at="exp-sum", after="logits[]", by=("i",), when="head_idx == 0")
    total = bench.watch("exp_sum", at="exp-sum", by=("thread_idx",), when="head_idx == 0")
    run = bench.attend(CASE, value, total)
    scores = oracle.logits(CASE, 0, 0)
    bench.check("exponentials", run.series("exp", block=0), np.exp(scores - scores.max()), tolerance=SCORE)
    bench.check("largest of them", max(run.series("exp", block=0)), 1.0)
    bench.check(
        "sum, in all 128 threads", run.series("exp_sum", block=0), [oracle.exp_sum(CASE, 0, 0)] * 128, tolerance=3e-5
    )
    bench.check("tokens counted for sequence 1", len(run.series("exp", block=4)), 9)


@WALKTHROUGH.step("normalise", title="Weights are ready before V is read", reads=("normalise", "partition-stats"))
def step_normalise(bench: Workbench) -> None:
    """
    One division, then 70 multiplications. From here on shared memory holds finished weights.

    So there is no running maximum, no correction and no division later. The second pass only multiplies and
    adds. That is the difference from online softmax, which this kernel is often said to use [L1-11].

    A tiny 0.000001 is added to the sum. It guards against dividing by zero when there are no tokens.
    It also means the weights add up to slightly less than one. The kernel is not softmax to the last bit,
    and was never meant to be.

    The lines about partitions belong to v2. In v1 the condition is false when the kernel is compiled.
    """
    weight = bench.watch("weight", "logits[i]", at="normalise", after="logits[]", by=("i",), when="head_idx == 2")
    run = bench.attend(CASE, weight)
    found = run.series("weight", block=2)
    bench.check("weights", found, oracle.weights(CASE, 0, 2), tolerance=1e-6)
    total = oracle.exp_sum(CASE, 0, 2)
    bench.check("sum of the weights", sum(found), total / (total + 1e-6), tolerance=1e-6)
    one = cases.decode_case((1,), 1, 1, 32, 16, "float32", seed=8)
    lone = bench.attend(one, bench.watch("weight", "logits[i]", at="normalise", after="logits[]", by=("i",)))
    bench.check("weight of a lone token", lone.series("weight")[0], 1 / (1 + 1e-6), tolerance=2e-7, note="not one")
    bench.check("a lone token's weight is below one", lone.series("weight")[0] < 1.0, True)


@WALKTHROUGH.step("v-rows", title="Values by rows", reads=("v-sizes", "v-address", "v-table"))
def step_v_rows(bench: Workbench) -> None:
    """
    Second pass, same blocks, same warps. The block table is read once more.

    Remember how values lie: a row is one element of the head, for all 16 tokens. A thread takes 16 bytes of a row, 8
    tokens. Two threads cover a row, so a warp covers 16 rows at a time. With 64 rows, each thread comes back four
    times.

    Thread 0 gets rows 0, 16, 32 and 48. For head size 128 it goes on to 64, 80, 96, 112. The design document
    lists 0, 32, up to 224 there, which would be far outside the head [D-02].

    Neighbouring threads read neighbouring 16 bytes: a warp reads 512 bytes in one run [L1-20].
    """
    row = bench.watch("row_idx", at="v-address", after="row_idx", by=("i",), when="thread_idx == 0 and block_idx == 0")
    where = bench.watch(
        "v",
        "v_ptr + offset",
        at="v-address",
        after="offset",
        by=("block_idx", "row_idx", "lane % NUM_V_VECS_PER_ROW"),
        when="head_idx == 3 and seq_idx == 0",
    )
    run = bench.attend(CASE, row, where)
    bench.check("rows of thread 0", run.series("row_idx", block=0), [0, 16, 32, 48])
    places = np.arange(CASE.v_cache.size).reshape(CASE.v_cache.shape)
    expected = [places[b, 1, r, half * 8] for b in CASE.block_tables[0, :5] for r in range(64) for half in range(2)]
    bench.check("addresses of every 16 bytes", run.series("v"), expected)
    wide = cases.decode_case((3,), 1, 1, 128, 16, "float16", seed=9)
    rows = bench.attend(wide, row).series("row_idx")
    bench.check("rows of thread 0, head size 128", rows, [0, 16, 32, 48, 64, 80, 96, 112])


@WALKTHROUGH.step("logits-vec", title="Eight weights for eight tokens", reads=("logits-vec",))
def step_logits_vec(bench: Workbench) -> None:
    """
    A thread holds 8 tokens of a row, so it needs the weights of these 8 [L1-20]. It takes them from shared
    memory. No scores are computed here: the name `logits` is a leftover, they are weights by now [L1-12].

    On the way they are rounded to float16, the type of the values. This rounding, not the 0.000001, is the
    larger part of the kernel's error [findings/not-bit-equal].

    The places behind the end hold zero, thanks to the mask of the first pass.
    """
    weight = bench.watch(
        "w", "logits_vec[e]", at="logits-vec", after="logits_vec[]", by=("token_idx + e",), when="head_idx == 1"
    )
    run = bench.attend(CASE, weight)
    found = run.series("w", block=1)
    exact = oracle.weights(CASE, 0, 1)
    bench.check(
        "weights as float16",
        found[:70],
        exact,
        tolerance=float(exact.max()) * 2**-11 + 1e-6,
        note="half a unit in the last place",
    )
    bench.check("they are float16 numbers", found, np.asarray(found, np.float16))
    bench.check("the ten places behind the end", found[70:], [0.0] * 10)


@WALKTHROUGH.step("tail", title="Zero times NaN is NaN", reads=("tail-zeroing",))
def step_tail(bench: Workbench) -> None:
    """
    The weights behind the end are zero. Is that not enough? It is not: the value there may be NaN,
    and zero times NaN is NaN. One such product would ruin a whole output row.

    So in the last block, and only there, the kernel overwrites what it loaded: a value behind the end becomes zero.

    Our cache holds NaN in all those places. In sequence 1 every head loads 7 × 64 = 448 of them,
    and the output has none.
    """
    after = bench.watch(
        "v",
        "v_vec[j]",
        at="tail-zeroing",
        after="v_vec[]",
        by=("row_idx", "token_idx + j"),
        when="head_idx == 0 and seq_idx == 1",
    )
    before = bench.watch(
        "raw",
        "v_vec[e]",
        at="v-address",
        after="v_vec[]",
        by=("row_idx", "token_idx + e"),
        when="head_idx == 0 and seq_idx == 1",
    )
    run = bench.attend(CASE, after, before)
    raw = np.asarray(run.series("raw")).reshape(64, 16)
    zeroed = np.asarray(run.series("v")).reshape(64, 16)
    values = CASE.values[1][:, 0].T.astype(np.float64)
    bench.check("loaded: NaN in the 7 places behind the end", np.isnan(raw), np.tile(np.arange(16) >= 9, (64, 1)))
    bench.check("kept: the 9 values of each row", zeroed[:, :9], values)
    bench.check("after: the places behind are zero", zeroed[:, 9:], np.zeros((64, 7)))
    bench.check("NaN in the output", int(np.isnan(run.out[0]).sum()), 0)


@WALKTHROUGH.step("accumulate", title="Each warp has a part of the sum", reads=("v-loop", "accumulate", "warp-reduce"))
def step_accumulate(bench: Workbench) -> None:
    """
    `accs` has one float for each of the thread's rows. It grows by a vector of products at a time, block after
    block.

    Then the two threads of a row exchange their halves by a shuffle. Now a warp holds, for every row of the head,
    the sum over *its own* blocks: warp 0 over blocks 0 and 4, warp 1 over block 1, and so on.

    With float16, vLLM multiplies and adds these products as float16 pairs, and widens to float32 only then. Our
    port does the same.
    """
    acc = bench.watch(
        "acc",
        "accs[i]",
        at="warp-reduce",
        after="accs[]",
        by=("warp_idx", f"{ROW} + i * NUM_ROWS_PER_ITER"),
        when=f"head_idx == 2 and {LEADS}",
    )
    run = bench.attend(CASE, acc)
    found = np.asarray(run.series("acc", block=2)).reshape(4, 64)
    bench.check("sums of the four warps", found, oracle.warp_outputs(CASE, 0, 2), tolerance=HALF)
    short = np.asarray(run.series("acc", block=6)).reshape(4, 64)
    bench.check("sequence 1: only warp 0 has something", short[1:], np.zeros((3, 64)))


@WALKTHROUGH.step("cross-warp", title="Four warps become one", reads=("cross-warp-reduce",))
def step_cross_warp(bench: Workbench) -> None:
    """
    A knockout tournament, played through shared memory. First round: warps 2 and 3 write, warps 0 and 1 add.
    Second round: warp 1 writes, warp 0 adds. Each round has two barriers, one after the writing, one after the adding.

    Before all this stands one more barrier, and it is the subtle one. The outputs go where the weights were:
    the same shared memory under a new name. A fast warp must not write there while a slow one still reads weights.

    Take that barrier away and nothing may happen for a year.
    """
    acc = bench.watch(
        "acc", "accs[r]", at="cross-warp-reduce", after="accs[]", by=("-i", "warp_idx", "row_idx"), when="head_idx == 2"
    )
    run = bench.attend(CASE, acc)
    found = run.last("acc", block=2)
    parts = oracle.warp_outputs(CASE, 0, 2)
    for entrants, warp, expected in ((4, 0, parts[0] + parts[2]), (4, 1, parts[1] + parts[3]), (2, 0, parts.sum(0))):
        rows = [found[-entrants, warp, row] for row in range(64)]
        bench.check(f"{entrants} warps left: sums in warp {warp}", rows, expected, tolerance=HALF)
    bench.check("additions in all", len(found), 64 * 3)


@WALKTHROUGH.step("output", title="Store, and nothing else", reads=("output-write",))
def step_output(bench: Workbench) -> None:
    """
    Warp 0 rounds its sums to the output type and stores them. There is no division left to do.

    How close is it? Against exact softmax in float64, the float32 kernel differs in the sixth digit. Part of that is
    the 0.000001 in the sum; against a formula that has it too, the kernel comes closer. With float16 the rounding
    of weights and products shows first, in the third digit.

    Every element of the output was NaN before the launch. None is now.
    """
    run = bench.attend(CASE)
    bench.check("float16, against exact softmax", run.out[0], oracle.attention(CASE), tolerance=HALF)
    single = cases.decode_case((70, 9, 16, 1), 4, 2, 64, 16, "float32", seed=10)
    exact = bench.attend(single).out[0]
    bench.check("float32, against the kernel's own formula", exact, oracle.attention(single, eps=1e-6), tolerance=2e-6)
    bench.check("float32, against exact softmax", exact, oracle.attention(single), tolerance=5e-6)
    where = bench.watch("where", "out_ptr + row_idx", at="output-write", after="out[]", by=("out_ptr + row_idx",))
    stores = [reading.value for reading in bench.attend(CASE, where).readings("where")]
    bench.check("each element is stored once", sorted(stores), range(2 * 4 * 64))
    for block_size in (8, 32):
        case = cases.decode_case((70, 9), 4, 2, 64, block_size, "float32", seed=11)
        bench.check(f"blocks of {block_size}", bench.attend(case).out[0], oracle.attention(case), tolerance=5e-6)
    empty = cases.decode_case((0, 3), 2, 2, 32, 16, "float32", seed=12)
    bench.check("a sequence of no tokens gives zeros", bench.attend(empty).out[0][0], np.zeros((2, 32)))
