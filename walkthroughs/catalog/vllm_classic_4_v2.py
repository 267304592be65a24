"""vLLM's classic kernels, part 4: the second version, which cuts a long sequence into partitions and merges them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import float32

from kernels import cases, layout, oracle, oracle_v2
from kernels.cases import DecodeCase
from kernels.errors import LaunchError
from kernels.probe import Watch
from kernels.vllm import classic_v2
from walkthroughs.catalog.vllm_classic_1_write import CASE, FIRST, WALKTHROUGH, launches
from walkthroughs.catalog.vllm_classic_2_keys import SCORE
from walkthroughs.catalog.vllm_classic_3_values import HALF
from walkthroughs.workbench import Run, Workbench

ORDER = 2
PORT = "kernels/vllm/classic_v2.py"
SIZE = 32
ROOM = 128  # the longest sequence that the launch is told of: four partitions


def split(
    bench: Workbench, case: DecodeCase, *watches: Watch, merging: bool = False, size: int = SIZE, room: int = ROOM
) -> Run:
    """Run both v2 kernels; `merging`: the watches are the reduce kernel's.

    `out`: (out, exp_sums, max_logits, tmp_out), all of them NaN before.
    """
    first, second = classic_v2.paged_attention_v2_kernel, classic_v2.paged_attention_v2_reduce_kernel
    notes = classic_v2.buffers(case.num_seqs, case.num_heads, case.head_size, room, case.q.dtype, size)
    out = np.full(case.q.shape, np.nan, case.q.dtype)

    def launch(entry: Any) -> None:
        pair = (bench.bench.entry(first), entry) if merging else (entry, bench.bench.entry(second))
        classic_v2.paged_attention_v2(
            out, *notes, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale, case.block_tables,
            case.seq_lens, case.block_size, room, case.alibi_slopes, backend=bench.backend, entry=pair[0],
            reduce_entry=pair[1], partition_size=size,
        )  # fmt: skip

    return bench.launch(second if merging else first, watches, launch, (out, *notes), seed=case.seed)


def merge_only(bench: Workbench, maxima: list[float], sums: list[float], rows: list[float], *watches: Watch) -> Run:
    """Run the reduce kernel alone, on the notes of one head; a row holds one number in element 0. `out[0]`: [32]."""
    count = len(maxima)
    out, tmp_out = np.full(32, np.nan, np.float32), np.zeros((count, 32), np.float32)
    tmp_out[:, 0] = rows

    def launch(entry: Any) -> None:
        template = {"HEAD_SIZE": 32, "NUM_THREADS": 128, "PARTITION_SIZE": 2, "scalar_t": float32}
        entry.specialise(**template).on(bench.backend)[(1, 1), 128, 0, 8 * count](
            out, np.array(sums, np.float32), np.array(maxima, np.float32), tmp_out.reshape(-1),
            np.array([2 * count], np.int32), count,
        )  # fmt: skip

    return bench.launch(classic_v2.paged_attention_v2_reduce_kernel, watches, launch, (out,))


def two_loud_tokens() -> DecodeCase:
    """16 tokens with values of one: tokens 0 and 8 have score 0, the others so low that they are not heard."""
    case = cases.decode_case((16,), 1, 1, 32, 8, "float32", order="identity")
    keys, ones = np.zeros((16, 1, 32), np.float32), np.ones((16, 1, 32), np.float32)
    keys[:, 0, 0] = np.where(np.arange(16) % 8 == 0, 0, -1000)
    q = np.zeros((1, 1, 32), np.float32)
    q[0, 0, 0] = 1
    pools = [np.full((case.num_blocks, 8, 1, 32), np.nan, np.float32) for _ in range(2)]
    for pool, rows in zip(pools, (keys, ones), strict=True):
        pool[:2] = rows.reshape(2, 8, 1, 32)
    return DecodeCase(
        "two loud tokens", 0, q, (keys,), (ones,), case.block_tables, case.seq_lens, cases.pack_keys(pools[0]),
        cases.pack_values(pools[1]), 8, 1, 1.0,
    )  # fmt: skip


def existing(note: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The three partitions of sequence 0, for each head: [4, 3, ...]."""
    return note[0, :, :3]


@WALKTHROUGH.step(
    "partitions",
    title="Many thread blocks for one long row",
    reads=("v2-grid", "partition-size", "partition-exit", "block-ranges"),
    port=PORT,
)
def step_partitions(bench: Workbench) -> None:
    """
    One long sequence, 32 query heads: v1 makes 32 thread blocks of it, however long it is. A large GPU has room
    for many more. Most of it would stand idle.

    So v2 cuts the sequence into partitions and gives each its own thread block. The grid gets a third axis.
    vLLM's partitions hold 512 tokens. Here they hold 32, so that 70 tokens make three: two full ones, and the
    rest from 64 to 70.

    PARTITION_SIZE counts tokens of one sequence. The design document calls it the number of GPUs. It is not
    [D-01].

    The third axis must be long enough for the longest sequence that the launch is told of. Here it has four
    layers. A thread block whose partition starts behind its sequence's end returns at once.
    """
    by = ("seq_idx", "cuda.blockIdx.x", "partition_idx")
    begun = bench.watch("seq_len", at="partition-exit", after="seq_len", by=by, when=FIRST)
    ranges = [
        bench.watch(name, at="block-ranges", after=name, by=by, when=FIRST)
        for name in ("start_token_idx", "end_token_idx")
    ]
    run = split(bench, CASE, begun, *ranges)
    bench.check("thread blocks in all", len(run.readings("seq_len")), 2 * 4 * 4, note="sequences, heads, layers")
    stay = sorted({(key[0], key[2]) for key in run.last("start_token_idx")})
    bench.check("(sequence, partition) that go on", stay, [(0, 0), (0, 1), (0, 2), (1, 0)])
    head = [[run.last(watch.name)[seq, 3, part] for watch in ranges] for seq, part in stay]
    bench.check("tokens, from and to", head, [(0, 32), (32, 64), (64, 70), (0, 9)])
    long = cases.decode_case((600,), 1, 1, 32, 16, "float32", seed=20)
    run = split(bench, long, *ranges, size=512, room=2048)
    bench.check("600 tokens in partitions of 512: starts", run.series("start_token_idx"), [0, 512])
    bench.check("600 tokens in partitions of 512: ends", run.series("end_token_idx"), [512, 600])
    bench.check("of four layers these stay NaN", np.isnan(run.out[1][0, 0]), [False, False, True, True])


@WALKTHROUGH.step(
    "partition-notes",
    title="Two numbers and a row",
    reads=("v2-entry", "partition-stats", "output-write"),
    port=PORT,
)
def step_partition_notes(bench: Workbench) -> None:
    """
    A partition does what v1 does for a whole sequence, on its own tokens only. It finds *its* maximum, *its* sum,
    and writes a finished output row: an average over its own 32 values.

    Three partitions, three averages. Which counts how much? The row does not say. So each partition leaves a note
    beside it: its maximum and its sum of exponentials. v1 threw both away.

    The rows go to `tmp_out`, in the type of the output. The caller brings this memory, one row for each layer of the
    grid. Layers that do not exist are not touched: ours still hold NaN.
    """
    where = bench.watch("at", "partition_ptr", at="partition-stats", after="partition_ptr", by=("partition_ptr",))
    run = split(bench, CASE, where)
    _, exp_sums, max_logits, tmp_out = run.out
    heads = range(4)
    bench.check(
        "maxima of sequence 0", existing(max_logits), [oracle_v2.maxima(CASE, 0, head, SIZE) for head in heads],
        tolerance=SCORE,
    )  # fmt: skip
    bench.check(
        "sums of sequence 0", existing(exp_sums), [oracle_v2.sums(CASE, 0, head, SIZE) for head in heads],
        tolerance=5e-5, note="each relative to its own maximum",
    )  # fmt: skip
    rows = [oracle_v2.outputs(CASE, 0, head, SIZE) for head in heads]
    bench.check("rows of sequence 0", existing(tmp_out), rows, tolerance=HALF)
    expected = [
        seq * 16 + head * 4 + part for seq, parts in ((0, 3), (1, 1)) for head in heads for part in range(parts)
    ]
    bench.check("places of the notes", sorted(run.series("at")), expected, note="one thread of a block writes")
    untouched = [int(np.isnan(note).all(axis=tuple(range(3, note.ndim))).sum()) for note in run.out[1:]]
    bench.check("partitions still NaN in each buffer", untouched, [2 * 16 - 16] * 3)


@WALKTHROUGH.step(
    "v2-single",
    title="One partition needs no merging",
    reads=("v2-reduce", "v2-single-partition"),
    port=PORT,
)
def step_v2_single(bench: Workbench) -> None:
    """
    The second kernel has one thread block for each output row again. Its first question is: how many partitions?

    If it is one, the row is finished. The threads copy it and go home. No number is changed, so a short sequence in v2
    gives v1's result to the bit.

    A sequence of no tokens has *no* partition. Zero is not one, so it does not take this way. It goes through
    the whole merge with nothing in it. There the 0.000001 saves it: zero divided by 0.000001 is zero
    [vllm-classic/epsilon-twice].
    """
    copied = bench.watch("i", at="v2-single-partition", after="out[]", by=("seq_idx", "head_idx", "i"))
    run = split(bench, CASE, copied, merging=True)
    keys = sorted(run.last("i"))
    bench.check("rows copied (sequence, head)", sorted({key[:2] for key in keys}), [(1, head) for head in range(4)])
    bench.check("elements copied of head 2", [key[2] for key in keys if key[1] == 2], range(64))
    bench.check("sequence 1: out is its row of tmp_out", run.out[0][1], run.out[3][1, :, 0])
    bench.check("sequence 1: out is v1's", run.out[0][1], bench.attend(CASE).out[0][1], note="to the bit")
    empty = cases.decode_case((0, 40, 3), 2, 1, 32, 16, "float32", seed=21)
    run = split(bench, empty, copied, merging=True)
    bench.check("0, 40 and 3 tokens: sequences copied", sorted({key[0] for key in run.last("i")}), [2])
    bench.check("no tokens: zeros", run.out[0][0], np.zeros((2, 32)))


@WALKTHROUGH.step("v2-max", title="The largest of the maxima", reads=("v2-max",), port=PORT)
def step_v2_max(bench: Workbench) -> None:
    """
    Three notes, three maxima. The merge needs the largest.

    You know the pattern. Each thread takes a partition, and comes back 128 further on if there are more. Then shuffles
    in the warp, one number for each warp in shared memory, a barrier, shuffles again, a broadcast.

    Most of the 128 threads have no partition. They bring the most negative float, which never wins. It is a
    finite number. Where minus infinity stands instead, a merge can meet minus infinity *minus* minus infinity,
    which is NaN.
    """
    kept = bench.watch("kept", "shared_max_logits[i]", at="v2-max", after="shared_max_logits[]", by=("head_idx", "i"))
    top = bench.watch("max_logit", at="v2-max", by=("cuda.threadIdx.x",))
    start = bench.watch("start", "max_logit", at="v2-max", after="red_smem[]", by=("head_idx", "warp_idx"))
    run = split(bench, CASE, kept, top, start, merging=True)
    expected = [oracle_v2.maxima(CASE, 0, head, SIZE) for head in range(4)]
    bench.check("maxima in shared memory", run.series("kept"), np.reshape(expected, -1), tolerance=SCORE)
    bench.check(
        "in all 128 threads of head 1", run.series("max_logit", block=1), [oracle.qk_max(CASE, 0, 1)] * 128,
        tolerance=SCORE, note="the maximum of the whole sequence",
    )  # fmt: skip
    warps = [run.last("start")[3, warp] for warp in range(4)]
    lowest = float(np.finfo(np.float32).min)
    bench.check("warp 0 of head 3", warps[0], oracle.qk_max(CASE, 0, 3), tolerance=SCORE)
    bench.check("warps 1 to 3 bring the lowest float", warps[1:], [lowest] * 3)
    notes = np.random.default_rng(22).standard_normal(130).astype(np.float32)
    notes[120] = 9
    run = merge_only(bench, notes.tolist(), [1.0] * 130, [0.0] * 130, kept, top)
    bench.check("130 partitions, 128 threads: all kept", run.series("kept"), notes)
    bench.check("130 partitions: in all threads", run.series("max_logit"), [9] * 128)


@WALKTHROUGH.step("v2-rescale", title="Bring the sums to one scale", reads=("v2-rescale", "block-sum"), port=PORT)
def step_v2_rescale(bench: Workbench) -> None:
    """
    Three people have measured a length, each with a ruler of their own. Before you add, convert.

    A partition's sum was taken relative to its own maximum. Multiply it by exp(own maximum − largest maximum),
    and it is relative to the largest. The partition that holds the largest has the factor one. The others have less.

    Now the sums may be added, and the total is what v1 would have got for the whole sequence.

    Scores 1, 2 in one partition and 5 in the other: the sums are 1 + exp(−1) and 1. They look alike. But the
    first must shrink by exp(−3) to 0.068. This is online softmax's correction, made once for each partition
    instead of once for each block.
    """
    part = bench.watch("part", "rescaled_exp_sum", at="v2-rescale", after="rescaled_exp_sum", by=("head_idx", "i"))
    total = bench.watch(
        "total", "global_exp_sum", at="v2-rescale", after="inv_global_exp_sum", by=("cuda.threadIdx.x",)
    )
    run = split(bench, CASE, part, total, merging=True)
    expected = [
        oracle_v2.rescaled(oracle_v2.maxima(CASE, 0, head, SIZE), oracle_v2.sums(CASE, 0, head, SIZE))
        for head in range(4)
    ]
    bench.check("rescaled sums", run.series("part"), np.reshape(expected, -1), tolerance=5e-5)
    whole = oracle.exp_sum(CASE, 0, 2)
    bench.check("total, in all 128 threads of head 2", run.series("total", block=2), [whole] * 128, tolerance=5e-5)
    e = float(np.exp(-1.0))
    run = merge_only(bench, [2, 5], [1 + e, 1], [0, 0], part)
    bench.check("scores 1, 2 and 5: rescaled", run.series("part"), [(1 + e) * np.exp(-3.0), 1], tolerance=1e-6)
    lowest = float(np.finfo(np.float32).min)
    run = merge_only(bench, [1.5, lowest], [2, 7], [4, 1e30], part)
    bench.check("a partition at the lowest float counts", run.series("part"), [2, 0], note="nothing, whatever its sum")


@WALKTHROUGH.step("v2-merge", title="A weighted average of averages", reads=("v2-merge",), port=PORT)
def step_v2_merge(bench: Workbench) -> None:
    """
    Each thread takes one element of the head and walks over the partitions: row times rescaled sum times the inverse of
    the total. Head size 64, so 64 of the 128 threads work.

    Scores 1, 2 and 5 with values 10, 20 and 30. The first partition averages to something between 10 and 20,
    the second to 30. Merged: 29.190917. Without the factor, or as a plain mean, it would come out far lower.
    Such a mistake still gives plausible numbers, so only a check against the truth finds it.

    The loop stops at the partitions that exist. Behind them `tmp_out` holds NaN in our case, and a weight of zero would
    not have helped.

    With float16, v2 rounds once more than v1: the partial rows were stored as float16.
    """
    acc = bench.watch("acc", at="v2-merge", after="out[]", by=("seq_idx", "head_idx", "i"))
    run = split(bench, CASE, acc, merging=True)
    out, exp_sums, max_logits, tmp_out = run.out
    found = np.array([value for _, value in sorted(run.last("acc").items())]).reshape(4, 64)
    merged = [oracle_v2.merge(max_logits[0, h, :3], exp_sums[0, h, :3], tmp_out[0, h, :3]) for h in range(4)]
    bench.check("merge of the notes as they stand", found, merged, tolerance=2e-6, note="sequence 0, before rounding")
    bench.check("out, against exact softmax", out, oracle.attention(CASE), tolerance=HALF)
    e = float(np.exp(-1.0))
    rows = [(10 * e + 20) / (1 + e), 30.0]
    bench.check(
        "1, 2 and 5 merged", merge_only(bench, [2, 5], [1 + e, 1], rows).out[0][0], 29.190917, tolerance=4e-5,
        note="the 0.000001 in the total costs 0.00003",
    )  # fmt: skip
    single = cases.decode_case((70, 9, 33, 32), 2, 1, 64, 16, "float32", seed=23)
    exact = split(bench, single).out[0]
    bench.check("float32, against v2's formula", exact, oracle_v2.attention(single, SIZE), tolerance=2e-6)
    bench.check("float32, v2 against v1", exact, bench.attend(single).out[0], tolerance=5e-6)


@WALKTHROUGH.step(
    "epsilon-twice", title="0.000001, twice", reads=("normalise", "v2-rescale", "v2-single-partition"), port=PORT
)
def step_epsilon_twice(bench: Workbench) -> None:
    """
    The tiny number that guards against dividing by zero stands in both kernels. Each partition adds it to its own sum.
    The merge adds it to the total.

    To see it, take values that are all one. Then the output is the sum of the weights, and should be one. Let
    two tokens be loud, one in each partition of 8, and all others silent. Each partition's sum is 1, the total
    is 2.

    v1 loses half a millionth: 2 / 2.000001. v2 loses one and a half: 1 / 1.000001 in the partition, then
    2 / 2.000001 in the merge. With one partition, nothing is merged, and v2 loses what v1 loses.

    It never matters for a model. It does matter for a test that asks for equality.
    """
    case = two_loud_tokens()
    exact = 1 / (1 + 1e-6)
    v1, v2, one = bench.attend(case).out[0], split(bench, case, size=8, room=16), split(bench, case, size=16, room=16)
    fine = 3e-7
    bench.check("row of each partition", v2.out[3][0, 0, :, 0], [exact] * 2, tolerance=fine)
    bench.check("v1", v1[0, 0], [2 / (2 + 1e-6)] * 32, tolerance=fine)
    bench.check("v2, two partitions", v2.out[0][0, 0], [exact * 2 / (2 + 1e-6)] * 32, tolerance=fine)
    bench.check("v2, one partition", one.out[0][0, 0], v1[0, 0], note="to the bit")
    bench.check("v2 is below v1", bool((v2.out[0] < v1).all()), True)


@WALKTHROUGH.step("v1-or-v2", title="Which of the two?", reads=("v1-op", "v2-op", "partition-size"), port=PORT)
def step_v1_or_v2(bench: Workbench) -> None:
    """
    A second kernel, notes to write and to read: v2 has a price. It pays when v1 would leave the GPU idle.

    The rule stood in vLLM's Python. v1, if the longest context is at most 8,192 tokens *and* either there is
    only one partition, or sequences times query heads exceed 512. Else v2. So "v1 for short, v2 for long" is
    not quite it: 8,192 tokens with a large batch went to v1 [L1-31].

    Mind the edges. 512 pairs do not exceed 512. And 8,193 tokens go to v2 however large the batch.

    v1 has a hard limit as well: its scores must fit into the 227 KiB of shared memory that a Hopper block can
    have [vllm-classic/shared-size]. v2 needs room for 512 of them, whatever the length.
    """
    table = (
        (512, 1, 32, "v1"), (513, 1, 32, "v2"), (8192, 16, 32, "v2"), (8192, 17, 32, "v1"), (8193, 17, 32, "v2"),
    )  # fmt: skip
    for length, seqs, heads, name in table:
        chosen = "v1" if layout.use_v1(length, seqs, heads) else "v2"
        bench.check(f"{length} tokens, {seqs} x {heads} heads", chosen, name)
    small = cases.decode_case((3,), 1, 1, 64, 16, "float16")
    bench.check("v1 takes a launch for 60,000 tokens", launches(bench, small, 60_000), False)
    bench.check("v2 takes it", v2_launches(bench, small, 60_000), True)
    last = bench.watch("z", "max_num_partitions", at="partition-exit", after="max_num_partitions", when=FIRST)
    bench.check("its layers", len(split(bench, small, last, size=512, room=60_000).readings("z")), 118)


def v2_launches(bench: Workbench, case: DecodeCase, room: int) -> bool:
    """True if a v2 launch sized for `room` tokens is accepted."""
    try:
        split(bench, case, size=512, room=room)
    except LaunchError:
        return False
    return True
