"""vLLM's classic kernels, part 1: how keys and values get into the cache, and what a launch looks like."""

from __future__ import annotations

import itertools

import numpy as np

from kernels import cases
from kernels.errors import LaunchError
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Workbench

ORDER = 2
WALKTHROUGH = Walkthrough(
    id="vllm-classic",
    title="vLLM's classic kernel, line by line",
    intro="""
This is the kernel that made PagedAttention known. It left vLLM after release 0.24.0 [L1-42]; that release is
what you read here. On the left stand vLLM's own lines. On the right stands our port, which ran to make this
page.

First the write path: `reshape_and_cache` puts a token's key and value into its slot [vllm-classic/slots]. Then
the launch. Then the kernel, in its own order: two passes over the blocks, the keys first, the values second
[L1-09]. Last comes the second version, v2: a long sequence is cut into partitions, and another kernel merges
them [L1-29].

The case, unless a step says otherwise: two sequences of 70 and 9 tokens, 4 query heads on 2 KV heads, head size
64, blocks of 16 tokens, float16, blocks laid out at random [vllm-classic/grid]. All unused places hold NaN.
""",
    source="vllm@0.24.0",
    port="kernels/vllm/classic_v1.py",
)
CACHE = "kernels/vllm/cache.py"
CASE = cases.decode_case((70, 9), 4, 2, 64, 16, "float16", seed=1, name="two sequences of 70 and 9 tokens")
WRITE = cases.write_case(
    9, 2, 32, 16, "float16", seed=2, padding=2, extra_rows=3, name="nine tokens, two of them padding"
)
FIRST = "cuda.threadIdx.x == 0"


@WALKTHROUGH.step("slots", title="A slot names a place", reads=("slot-guard", "slot-split", "slot-formula"), port=CACHE)
def step_slots(bench: Workbench) -> None:
    """
    Picture the cache as a street of blocks, each with room for 16 tokens. A slot is a house number in that
    street. Slot 35 is block 2, place 3: 2 × 16 + 3 = 35 [vllm-classic/padded-rows].

    Python made the slots beforehand: physical block times block size plus offset. The kernel takes them apart again,
    by one division. One thread block serves one token.

    A slot of −1 means padding: there is a row, but no token. The guard returns before anything else is read.
    """
    block = bench.watch("block_idx", at="slot-split", after="block_idx", by=("token_idx",), when=FIRST)
    offset = bench.watch("block_offset", at="slot-split", after="block_offset", by=("token_idx",), when=FIRST)
    run = bench.write(WRITE, block, offset)
    real = [(token, int(slot)) for token, slot in enumerate(WRITE.slot_mapping) if slot >= 0]
    street = [(b, o) for b in range(WRITE.num_blocks) for o in range(WRITE.block_size)]
    bench.check("tokens that pass the guard", [key[0] for key in sorted(run.last("block_idx"))], [t for t, _ in real])
    bench.check("block of each token", run.series("block_idx"), [street[slot][0] for _, slot in real])
    bench.check("offset of each token", run.series("block_offset"), [street[slot][1] for _, slot in real])


@WALKTHROUGH.step(
    "writer-threads", title="One thread, sixteen bytes", reads=("head-of-thread", "reshape-and-cache-host"), port=CACHE
)
def step_writer_threads(bench: Workbench) -> None:
    """
    A token's key is a row of numbers: KV head after KV head. Cut it into pieces of 16 bytes. With float16 that
    is x = 8 numbers a piece [L1-16]. Each thread takes one piece: thread number divided by pieces per head
    gives the head, the remainder gives the piece.

    The host starts one thread for each piece, but never more than 512. There is no loop that would fetch the
    rest. A model with 40 KV heads of 128 has 640 pieces [C-04]. The last 128 have no thread. Only 32 heads are
    written, and nothing reports it. Most models have far fewer KV heads, so few people will ever see it.
    """
    head = bench.watch("head_idx", at="head-of-thread", after="head_idx", by=("token_idx", "h_block_idx"))
    piece = bench.watch("h_block", at="head-of-thread", after="h_block", by=("token_idx", "h_block_idx"))
    run = bench.write(WRITE, head, piece)
    token = int(np.argmax(WRITE.slot_mapping >= 0))
    pairs = list(itertools.product(range(2), range(4)))
    for name, column in (("head_idx", 0), ("h_block", 1)):
        seen = [value for key, value in sorted(run.last(name).items()) if key[0] == token]
        bench.check(f"{name} of threads 0 to 7", seen, [pair[column] for pair in pairs])
    wide = cases.write_case(1, 40, 128, 16, "float16", seed=3, spare_blocks=0)
    key_cache = bench.write(wide).out[0]
    written = [head for head in range(40) if not np.isnan(key_cache[:, head]).all()]
    bench.check("heads written, of 40", written, list(range(512 // 16)), note="512 threads, 16 pieces a head")


@WALKTHROUGH.step("write-keys", title="Where a key goes", reads=("k-source", "k-store"), port=CACHE)
def step_write_keys(bench: Workbench) -> None:
    """
    Imagine a block of the key cache as a bookshelf. Each shelf holds one piece of 16 bytes of *every* token in the
    block, token beside token. The next shelf holds the next piece of every token.

    So a single key does not lie in one run. Its pieces are a shelf apart: block_size × x numbers.
    In exchange, the same piece of neighbouring tokens lies side by side, which is how the reader will want it.

    In letters: [num_blocks, num_kv_heads, head_size / x, block_size, x].
    """
    target = bench.watch("key_dst", at="k-store", part=0, after="key_dst", by=("token_idx", "head_idx", "h_block"))
    run = bench.write(WRITE, target)
    places = np.arange(WRITE.k_cache.size).reshape(WRITE.k_cache.shape)
    slots = [(t, *divmod(int(s), 16)) for t, s in enumerate(WRITE.slot_mapping) if s >= 0]
    expected = [places[b, h, g, o, 0] for t, b, o in slots for h in range(2) for g in range(4)]
    bench.check("first element of each piece", run.series("key_dst"), expected)
    rows = cases.unpack_keys(run.out[0]).reshape(-1, 2, 32)
    kept = [WRITE.key[t] for t, _, _ in slots]
    bench.check("keys found in their slots", [rows[WRITE.slot_mapping[t]] for t, _, _ in slots], kept)
    bench.check("slots that are still NaN", int(np.isnan(rows[:, 0, 0]).sum()), len(rows) - len(slots))


@WALKTHROUGH.step("write-values", title="Where a value goes", reads=("v-store",), port=CACHE)
def step_write_values(bench: Workbench) -> None:
    """
    Values lie the other way round. A row of the value cache is *one* element of the head, for all 16 tokens of the
    block. The eight numbers that our thread carries go to eight different rows, 16 numbers apart.

    That is slow to write and fast to read. A token is written once and read at every later step, so the trade is good.

    In letters: [num_blocks, num_kv_heads, head_size, block_size]. There is no x here: the reader walks along tokens,
    and those already lie side by side.
    """
    start = bench.watch("tgt_value_start", at="v-store", part=0, by=("token_idx", "head_idx", "h_block"))
    run = bench.write(WRITE, start)
    places = np.arange(WRITE.v_cache.size).reshape(WRITE.v_cache.shape)
    slots = [(t, *divmod(int(s), 16)) for t, s in enumerate(WRITE.slot_mapping) if s >= 0]
    expected = [places[b, h, g * 8, o] for t, b, o in slots for h in range(2) for g in range(4)]
    bench.check("first element of each piece", run.series("tgt_value_start"), expected)
    rows = cases.unpack_values(run.out[1]).reshape(-1, 2, 32)
    bench.check(
        "values found in their slots",
        [rows[WRITE.slot_mapping[t]] for t, _, _ in slots],
        [WRITE.value[t] for t, _, _ in slots],
    )
    bench.check("places that are still NaN", int(np.isnan(run.out[1]).sum()), run.out[1].size - len(slots) * 64)


@WALKTHROUGH.step("padded-rows", title="Slots count, not rows", reads=("reshape-and-cache-host",), port=CACHE)
def step_padded_rows(bench: Workbench) -> None:
    """
    A captured graph has a fixed batch size, so `key` may have more rows than there are tokens.
    The host takes the number of tokens from the slot mapping. The rows behind it are never touched.

    Taking it from the rows of `key` was a real bug once, in vLLM and in another library. The kernel then read slots
    that nobody had written.

    Our case has twelve rows and nine slots, two of them −1. Seven tokens are written.
    """
    run = bench.write(WRITE)
    keys = cases.unpack_keys(run.out[0]).reshape(-1, 2, 32)
    written = sorted(int(slot) for slot in np.flatnonzero(~np.isnan(keys[:, 0, 0])))
    bench.check("rows of key", len(WRITE.key), 12)
    bench.check("slots written", written, sorted(int(slot) for slot in WRITE.slot_mapping if slot >= 0))
    unmapped = [int(slot) for slot in WRITE.slot_buffer[9:]]
    bench.check("slots behind the mapping stay NaN", bool(np.isnan(keys[unmapped]).all()), True)


@WALKTHROUGH.step("signature", title="What the kernel is handed", reads=("signature", "v1-entry"))
def step_signature(bench: Workbench) -> None:
    """
    Read the list in groups. What to compute: `q`, `scale`, `alibi_slopes`. Where things lie: `k_cache`,
    `v_cache`, `block_tables`, `seq_lens`. How far apart: the strides.

    `q` has one row for each sequence. This kernel serves decoding: one new token a sequence, one query.

    The comment beside `out` shows a partition axis. In v1 there is one partition, so `out` is simply
    [num_seqs, num_heads, head_size]. The v1 entry hands two null pointers where v2 would hand its notes.

    Strides count elements. A step to the next block is one whole block of one layer: all KV heads, all 16 tokens.
    """
    names = ("q_stride", "kv_block_stride", "kv_head_stride", "max_num_blocks_per_seq")
    run = bench.attend(CASE, *(bench.watch(name, at="block-ranges", by=(), when=FIRST) for name in names))
    size = CASE.k_cache.itemsize
    strides = [CASE.q.strides[0] // size, CASE.k_cache.strides[0] // size, CASE.k_cache.strides[1] // size]
    expected = [*strides, CASE.block_tables.shape[1]]
    for name, value in zip(names, expected, strict=True):
        bench.check(name, run.series(name)[0], value, note="from NumPy's strides")
    bench.check("K and V step alike", CASE.v_cache.strides[0] // size, expected[1])


@WALKTHROUGH.step("grid", title="One thread block for one query head", reads=("grid", "block-sizes"))
def step_grid(bench: Workbench) -> None:
    """
    Draw a table: a column for each query head, a row for each sequence. Every cell is one thread block of 128 threads,
    four warps. It computes one output row and talks to no other.

    Do not mix up the two blocks. A **thread block** is a group of threads. A **KV block** is a piece of the cache.

    Block size and head size are template parameters: each pair is compiled on its own. vLLM compiled KV blocks
    of 8, 16 and 32 tokens, and refused every other size [L1-28]. Numba compiles when first called, so our port
    could take any; it refuses the same ones.
    """
    head = bench.watch("head_idx", at="gqa-mapping", after="head_idx", by=("seq_idx", "head_idx"), when=FIRST)
    run = bench.attend(CASE, head)
    cells = [(seq, head) for seq in range(2) for head in range(4)]
    bench.check("cells of the grid (sequence, head)", [list(key) for key in sorted(run.last("head_idx"))], cells)
    blocks = [reading.block for reading in run.readings("head_idx")]
    bench.check("thread blocks", blocks, list(range(8)))
    thread = bench.watch("thread_idx", at="thread-groups", by=("seq_idx", "head_idx", "thread_idx"))
    bench.check("threads in all", len(bench.attend(CASE, thread).readings("thread_idx")), 8 * 128)


@WALKTHROUGH.step("shared-size", title="How much shared memory", reads=("shared-size", "shared-logits"))
def step_shared_size(bench: Workbench) -> None:
    """
    The kernel keeps one float for each token of the sequence: its score, later its weight. So the *whole row of
    scores* does exist, in shared memory. "It never materialises the scores" is said of FlashAttention, and is
    wrong here [L1-10].

    At the end the same memory is used again, to add up the warps' results. The host asks for the larger of the
    two needs. 70 tokens round up to 80 floats. But the rows of two warps are 128 floats, so 128 it is.

    This is the limit of v1. A block gets 48 KiB without asking. The query and a small scratch take 160 bytes of that;
    the rest has room for 12,240 tokens and not one KV block more.

    The host asks for more: before the launch it raises the kernel's limit. On a Hopper GPU a block can have 227 KiB,
    and 58,064 tokens fit. One token more and the launch fails. From there on only v2 helps.
    """
    index = bench.watch(
        "index", "token_idx - start_token_idx", at="mask-and-store", after="logits[]", by=("token_idx",)
    )
    run = bench.attend(CASE, index)
    bench.check("floats used for scores", int(max(run.series("index"))) + 1, 80, note="70 tokens in blocks of 16")
    dst = bench.watch("dst", "dst + row_idx", at="cross-warp-reduce", after="out_smem[]", by=("dst", "row_idx"))
    bench.check("floats used for outputs", int(max(bench.attend(CASE, dst).series("dst"))) + 1, 2 * 64)
    small = cases.decode_case((1,), 1, 1, 64, 16, "float16")
    room = max(n for n in range(0, 20_000, 16) if 4 * n + 64 * 2 + 8 * 4 <= 48 * 1024)
    bench.check("most tokens in 48 KiB", room, 12_240, note="4 bytes a token, 160 bytes beside")
    limit = bench.backend.shared_limit
    bench.check("bytes after asking", limit, 227 * 1024, note="of this device; the SIMT machine is built like a Hopper")
    most = max(n for n in range(0, 80_000, 16) if 4 * n + 64 * 2 + 8 * 4 <= limit)
    for tokens, fits in ((room, True), (room + 1, True), (most, True), (most + 1, False)):
        bench.check(f"a launch for {tokens} tokens is accepted", launches(bench, small, tokens), fits)


def launches(bench: Workbench, case: cases.DecodeCase, max_seq_len: int) -> bool:
    """True if a launch sized for `max_seq_len` tokens is accepted."""
    from kernels.vllm import classic_v1

    try:
        classic_v1.paged_attention_v1(
            np.empty_like(case.q), case.q, case.k_cache, case.v_cache, 1, case.scale, case.block_tables,
            case.seq_lens, 16, max_seq_len, backend=bench.bench.backend,
        )  # fmt: skip
    except LaunchError:
        return False
    return True
