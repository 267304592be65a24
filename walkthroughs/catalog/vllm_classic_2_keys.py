"""vLLM's classic kernel, part 2: the first pass, from the ranges to the largest score."""

from __future__ import annotations

import itertools

import numpy as np

from kernels import cases, oracle
from walkthroughs.catalog.vllm_classic_1_write import CASE, FIRST, WALKTHROUGH
from walkthroughs.workbench import Workbench

ORDER = 2
LEADER = "thread_group_offset == 0"
SCORE = 3e-6
SMALLEST = -3.4028234663852886e38


def score_row(seq: int, head: int) -> list[float]:
    """The oracle's logits of one row, as a list."""
    return [float(score) for score in oracle.logits(CASE, seq, head)]


@WALKTHROUGH.step("block-ranges", title="Which blocks, which tokens", reads=("partition-exit", "block-ranges"))
def step_block_ranges(bench: Workbench) -> None:
    """
    Seventy tokens in blocks of 16: four full blocks, and one that is not. Round up, five blocks.

    The names speak of partitions, since v2 shares this code. There, a thread block takes only 512 tokens of the
    sequence, and leaves at once if its share begins behind the end [L1-29]. In v1 the partition size is zero,
    which means: no partitions, take everything from block 0.

    vLLM's own design document calls the partition size the number of tensor-parallel GPUs. That is a slip: it
    is a number of tokens [D-01].
    """
    case = cases.decode_case((70, 1, 16, 17, 32), 2, 2, 32, 16, "float16", seed=4)
    names = ("num_seq_blocks", "end_block_idx", "num_tokens")
    run = bench.attend(case, *(bench.watch(n, at="block-ranges", by=("seq_idx",), when=FIRST) for n in names))
    blocks = [len({token // 16 for token in range(length)}) for length in case.seq_lens]
    bench.check("blocks of 70, 1, 16, 17, 32 tokens", run.series("num_seq_blocks"), blocks)
    bench.check("end of the block range", run.series("end_block_idx"), blocks)
    bench.check("tokens", run.series("num_tokens"), case.seq_lens)


@WALKTHROUGH.step("thread-groups", title="Two threads share a token", reads=("thread-groups", "q-load"))
def step_thread_groups(bench: Workbench) -> None:
    """
    A warp has 32 threads and takes one KV block at a time. With 16 tokens in a block, two threads fall to each token.
    They are a **thread group**. With 8 tokens a group has four threads, with 32 tokens just one.

    Now the sum that makes everything fit: the group as a whole reads x numbers, 16 bytes, in one go. So each of two
    threads reads 8 bytes: a vector of 4 float16 numbers. Group size × vector size = x, for every block size.

    "Each thread reads 16 bytes" is often said. It holds only for blocks of 32 [L1-18].
    """
    for block_size, group in ((8, 4), (16, 2), (32, 1)):
        case = cases.decode_case((5,), 1, 1, 32, block_size, "float16", seed=5)
        index = bench.watch("thread_group_idx", at="q-load", after="thread_group_idx", by=("thread_idx",))
        offset = bench.watch("thread_group_offset", at="q-load", after="thread_group_offset", by=("thread_idx",))
        vector = bench.watch("VEC_SIZE * 2", at="q-load", after="q_ptr", when=FIRST)
        run = bench.attend(case, index, offset, vector)
        groups = np.repeat(np.arange(128 // group), group)
        bench.check(f"block {block_size}: group of each thread", run.series("thread_group_idx"), groups)
        places = np.tile(np.arange(group), 128 // group)
        bench.check(f"block {block_size}: place in the group", run.series("thread_group_offset"), places)
        bench.check(f"block {block_size}: bytes a thread", run.series("VEC_SIZE * 2")[0], 16 // group)


@WALKTHROUGH.step("gqa", title="Several query heads, one KV head", reads=("gqa-mapping",))
def step_gqa(bench: Workbench) -> None:
    """
    Four query heads, two KV heads. Heads 0 and 1 read KV head 0, heads 2 and 3 read KV head 1.
    A division does it. A remainder would not: it would send heads 0 and 2 to the same place.

    Each query head is its own thread block. So two thread blocks read the same keys from memory, one after the other
    or both at once. The kernel makes no use of that. Faster kernels do: they keep all query heads of a KV head
    together.
    """
    for heads, kv_heads in ((4, 2), (6, 2), (3, 1), (4, 4)):
        case = cases.decode_case((3,), heads, kv_heads, 32, 16, "float16", seed=6)
        kv = bench.watch("kv_head_idx", at="gqa-mapping", after="kv_head_idx", by=("head_idx",), when=FIRST)
        run = bench.attend(case, kv)
        expected = [kv_head for kv_head in range(kv_heads) for _ in range(heads // kv_heads)]
        bench.check(f"KV head of {heads} query heads over {kv_heads}", run.series("kv_head_idx"), expected)


@WALKTHROUGH.step("q-load", title="The query, dealt like cards", reads=("q-load",))
def step_q_load(bench: Workbench) -> None:
    """
    Deal the query to the two threads of a group as you deal cards, but four cards at a time: the first thread gets
    elements 0 to 3, the second 4 to 7, the first again 8 to 11. Each thread ends up with every second vector.

    The design document says thread 0 holds elements 0, 2, 4, 6. It is vectors that alternate, not elements
    [D-03].

    All groups need the same query. So the groups load it together, each vector once, into shared memory.
    Then comes the first barrier: no thread may read before all have written.
    """
    by = ("thread_group_offset", "i", "e")
    value = bench.watch("q", "q_vecs[thread_group_offset, i, e]", at="q-load", after="q_vecs[]", by=by)
    element = bench.watch("element", "vec_idx * VEC_SIZE + e", at="q-load", after="q_vecs[]", by=by)
    run = bench.attend(CASE, value, element)
    block = 4 + 2  # sequence 1, head 2
    order = [(group, i, e) for group in range(2) for i in range(8) for e in range(4)]
    dealt = CASE.q[1, 2].reshape(8, 2, 4).transpose(1, 0, 2)
    bench.check("elements of thread 0", run.series("element", block=0)[:8], [0, 1, 2, 3, 8, 9, 10, 11])
    bench.check("elements of thread 1", run.series("element", block=0)[32:40], [4, 5, 6, 7, 12, 13, 14, 15])
    bench.check("query in shared memory", run.series("q", block=block), dealt.reshape(-1))
    loads = [reading.keys for reading in run.readings("q") if reading.block == block]
    bench.check("each element is loaded once", sorted(loads), order)


@WALKTHROUGH.step(
    "block-table",
    title="The gather",
    reads=("block-table-row", "block-table-walk", "block-table-lookup"),
)
def step_block_table(bench: Workbench) -> None:
    """
    This is the line that the whole design turns on. A logical block goes in, a physical block comes out.

    Follow the loop. Warp 0 starts at block 0, warp 1 at block 1, and each moves on by four, the number of warps.
    With five blocks, warp 0 comes back for block 4. The others are done.

    The table's numbers have 32 bits, and the kernel widens each to 64 at once [C-06]. In a large cache the
    product with the block stride needs the room.

    What the table holds behind the last used block does not matter. In our case it names a real block full of NaN.
    The loop never gets there.
    """
    by = ("seq_idx", "head_idx", "block_idx", "warp_idx")
    physical = bench.watch(
        "physical_block_number", at="block-table-walk", after="physical_block_number", by=by, when="lane == 0"
    )
    run = bench.attend(CASE, physical)
    found = run.last("physical_block_number")
    table = CASE.block_tables[0, :5]
    mine = sorted((key[2], key[3], value) for key, value in found.items() if key[:2] == (0, 0))
    bench.check("physical blocks of sequence 0", [value for _, _, value in mine], table)
    bench.check("warp that takes each block", [warp for _, warp, _ in mine], [0, 1, 2, 3, 0])
    other = [value for key, value in found.items() if key[:2] == (1, 0)]
    bench.check("physical block of sequence 1", other, CASE.block_tables[1, :1])
    bench.check("look-ups in all", len(found), 4 * 5 + 4 * 1, note="four heads, five blocks and one")


@WALKTHROUGH.step("x", title="What x is for", reads=("x-view", "x-packing", "k-address"))
def step_x(bench: Workbench) -> None:
    """
    A warp asks memory for something in one breath: every thread has an address of its own. Memory answers in
    runs. If the addresses lie in one run, the answer is short. If they are scattered, it is long.

    At each moment, the 16 groups of a warp want the *same* piece of 16 *different* tokens. With plain rows these
    pieces would lie a whole head apart, 128 bytes. In the shelf layout they lie side by side.

    So 16 pieces of 16 bytes make one run of 256 bytes. Check it below: for every step j, the addresses of
    a warp leave no gap. That is all that x is for.

    Python sees the same memory as a tensor with x as its last axis. `view` does not move a byte.
    """
    by = ("j", "token_idx", "thread_group_offset")
    address = bench.watch(
        "k_offset", at="k-address", after="k_offset", by=by, when="block_idx == 0 and head_idx == 0 and seq_idx == 0"
    )
    run = bench.attend(CASE, address)
    found = run.last("k_offset")
    gaps, spans = set(), set()
    for j in range(8):
        starts = sorted(int(value) * 2 for key, value in found.items() if key[0] == j)
        gaps |= {b - a for a, b in itertools.pairwise(starts)}
        spans.add(starts[-1] + 8 - starts[0])
    bench.check("bytes from one thread to the next", sorted(gaps), [8])
    bench.check("bytes a warp reads in one step", sorted(spans), [256])
    rows = (np.arange(64 * 16).reshape(16, 64) * 2)[:, :4]
    bench.check("the same with plain rows", int(rows.max()) + 2 - int(rows.min()), 15 * 128 + 8, note="arithmetic only")


@WALKTHROUGH.step("k-address", title="The address of a key, taken apart", reads=("k-address",))
def step_k_address(bench: Workbench) -> None:
    """
    Read the address from left to right, as a postal address: which block, which KV head, which token in the block,
    then which piece, then where in the piece.

    `vec_idx` is the number of the vector, dealt as for the query. `offset1` is the shelf it lies on,
    `offset2` its place within the 16 bytes. The same dealing for q and k: that is why a thread
    can multiply what it holds without asking anyone.

    The check asks NumPy where element d of token t lies, and compares the addresses of all 1,280 vectors.
    """
    by = ("token_idx", "j", "thread_group_offset")
    address = bench.watch("k_offset", at="k-address", after="k_offset", by=by, when="head_idx == 2 and seq_idx == 0")
    run = bench.attend(CASE, address)
    places = np.arange(CASE.k_cache.size).reshape(CASE.k_cache.shape)
    expected = []
    for token in range(80):
        block = CASE.block_tables[0, token // 16]
        for j, offset in itertools.product(range(8), range(2)):
            element = (j * 2 + offset) * 4
            expected.append(places[block, 1, element // 8, token % 16, element % 8])
    bench.check("addresses of every vector", run.series("k_offset"), expected)
    key = bench.watch(
        "key",
        "k_vecs[j, e]",
        at="k-address",
        after="k_vecs[]",
        by=("token_idx", "j", "thread_group_offset", "e"),
        when="head_idx == 2 and seq_idx == 0 and token_idx < seq_len",
    )
    bench.check("keys loaded", bench.attend(CASE, key).series("key"), CASE.keys[0][:, 1].reshape(-1))


@WALKTHROUGH.step("qk-dot", title="One score", reads=("qk-dot", "qk-dot-helper"))
def step_qk_dot(bench: Workbench) -> None:
    """
    Each thread of the group multiplies its own vectors. It holds half of the 64 products. Now the two halves
    must meet.

    They meet by a **shuffle**: a thread reads a register of its neighbour, without any memory. After the exchange
    both threads hold the full sum. With a group of four there would be two exchanges.

    The products are summed in float32, though q and k are float16. Then comes the scale, once.
    """
    score = bench.watch(
        "qk",
        at="qk-dot",
        after="qk",
        by=("token_idx", "thread_group_offset"),
        when="head_idx == 3 and token_idx < seq_len",
    )
    run = bench.attend(CASE, score)
    for seq, block in ((0, 3), (1, 7)):
        found = run.last("qk", block=block)
        halves = [[found[token, place] for token in range(CASE.seq_lens[seq])] for place in (0, 1)]
        bench.check(f"scores of sequence {seq}", halves[0], score_row(seq, 3), tolerance=SCORE)
        bench.check(f"sequence {seq}: both threads hold the same", halves[0], halves[1])


@WALKTHROUGH.step("alibi", title="A bias for distance", reads=("alibi",))
def step_alibi(bench: Workbench) -> None:
    """
    ALiBi pulls distant tokens down. The newest token gets nothing, the one before it minus one slope, the one
    before that minus two. In letters: slope × (position − last position), added after the scale. The last
    position is the length minus one.

    Forget the minus one, and every score drops by one slope. The softmax does not notice: it only sees
    differences. So a test on outputs would miss the mistake. We compare the scores.

    Without slopes vLLM passes a null pointer. Numba has none, so our launcher passes zeros, and the line adds zero.
    """
    case = cases.decode_case((20,), 4, 2, 32, 16, "float16", seed=7, alibi=True)
    score = bench.watch(
        "qk", at="alibi", after="qk", by=("head_idx", "token_idx"), when=f"{LEADER} and token_idx < seq_len"
    )
    run = bench.attend(case, score)
    expected = [oracle.logits(case, 0, head) for head in range(4)]
    bench.check("scores with bias", run.series("qk"), np.concatenate(expected), tolerance=SCORE)
    plain = bench.attend(case_without_slopes(case), score)
    newest = [(run.last("qk")[h, 19] - plain.last("qk")[h, 19]) for h in range(4)]
    bench.check("bias of the newest token", newest, [0.0] * 4)
    oldest = [(run.last("qk")[h, 0] - plain.last("qk")[h, 0]) for h in range(4)]
    bench.check("bias of the oldest token", oldest, -19.0 * np.asarray(case.alibi_slopes), tolerance=SCORE)


def case_without_slopes(case: cases.DecodeCase) -> cases.DecodeCase:
    """The same case, no ALiBi."""
    return cases.DecodeCase(**{**vars(case), "alibi_slopes": None})


@WALKTHROUGH.step("mask", title="Beyond the end: zero, and no vote", reads=("mask-and-store",))
def step_mask(bench: Workbench) -> None:
    """
    The last block is read whole, also where the sequence has ended. What lies there is not ours; in our case it is NaN.
    Two things must hold for such a token: its score must be harmless, and it must not vote for the maximum.

    The mask does both. It stores zero in place of the score, and leaves `qk_max` as it was.

    Only one thread of each group stores. Both hold the same score, and one write is enough.

    The last check fills the places behind with 10,000 instead of NaN. A loud stranger must not be heard either.
    """
    stored = bench.watch(
        "logit",
        "logits[token_idx - start_token_idx]",
        at="mask-and-store",
        after="logits[]",
        by=("token_idx",),
        when="head_idx == 0",
    )
    run = bench.attend(CASE, stored)
    found = run.series("logit", block=4)
    bench.check("sequence 1, the 9 tokens", found[:9], score_row(1, 0), tolerance=SCORE)
    bench.check("sequence 1, the 7 places behind", found[9:], [0.0] * 7)
    writers = {reading.thread % 2 for reading in run.readings("logit")}
    bench.check("place in the group of the threads that store", sorted(writers), [0])
    loud = cases.decode_case((9,), 4, 2, 64, 16, "float16", seed=13, poison=1e4)
    top = bench.watch("qk_max", at="qk-max", by=("head_idx",), when=FIRST)
    found = bench.attend(loud, top).series("qk_max")
    expected = [oracle.qk_max(loud, 0, head) for head in range(4)]
    bench.check("maximum, with 10,000 in every place behind", found, expected, tolerance=SCORE)


@WALKTHROUGH.step("qk-max", title="The largest score of all", reads=("qk-max",))
def step_qk_max(bench: Workbench) -> None:
    """
    Every group leader knows the largest score of its own tokens. Three rounds bring it to everyone.

    First, within the warp, by shuffles: sixteen leaders, four exchanges. The exchange stops at the group size,
    since the other threads of a group hold nothing. Second, each warp's lane 0 writes to shared memory, and all wait.
    Third, every warp reads the four numbers and shuffles once more.

    A warp without a block has seen no score. It brings the smallest float there is. Not minus infinity: the difference
    of two infinities would be NaN.
    """
    warp = bench.watch(
        "warp_max", "red_smem[warp_idx]", at="qk-max", after="red_smem[]", by=("warp_idx",), when="head_idx == 1"
    )
    final = bench.watch("qk_max", at="qk-max", by=("thread_idx",), when="head_idx == 1")
    run = bench.attend(CASE, warp, final)
    row = score_row(0, 1)
    takes = [[s for t, s in enumerate(row) if (t // 16) % 4 == w] for w in range(4)]
    bench.check("maximum of each warp", run.series("warp_max", block=1), [max(t) for t in takes], tolerance=SCORE)
    short = [oracle.qk_max(CASE, 1, 1), SMALLEST, SMALLEST, SMALLEST]
    bench.check("sequence 1: three warps have no block", run.series("warp_max", block=5), short, tolerance=SCORE)
    bench.check("maximum, in all 128 threads", run.series("qk_max", block=1), [max(row)] * 128, tolerance=SCORE)
