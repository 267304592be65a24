"""What vLLM runs today, part 1: slots, the FlashAttention cache, and the way of the block table into the fused call."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import cases, oracle
from kernels.kernel import Kernel
from kernels.probe import Watch
from kernels.vllm import cache_flash, flash_forward, flash_layout, paged_2d, slot_mapping
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Run, Workbench

ORDER = 4
WALKTHROUGH = Walkthrough(
    id="vllm-live",
    title="What vLLM runs today",
    intro="""
The classic kernel is gone [L1-42]. This is what stands in its place at release 0.26.0.

On an NVIDIA GPU the FlashAttention backend runs [L1-43]. You read its Python side from the slot of a token to
the one fused call [L1-45]; behind that call lies compiled code. To see a block-wise loop with your own eyes,
you then read the Triton kernel that the ROCm backend falls back on. It works as FlashAttention does: one pass,
a running maximum, one division [vllm-live/one-pass].

The case, unless a step says otherwise: two sequences of 70 and 9 tokens, 4 query heads on 2 KV heads, head size
32, blocks of 16 tokens, float16, blocks laid out at random [vllm-live/group]. All unused places hold NaN.
""",
    source="vllm@0.26.0",
    port="kernels/vllm/paged_2d.py",
)
SLOTS, LAYOUT, FORWARD = (f"kernels/vllm/{name}.py" for name in ("slot_mapping", "flash_layout", "flash_forward"))
CASE = cases.decode_case((70, 9), 4, 2, 32, 16, "float16", seed=21, name="two sequences of 70 and 9 tokens")
HALF = 1.5e-3
BOTH: tuple[flash_layout.Memory, flash_layout.Memory] = ("NHD", "HND")


def int32(numbers: Any) -> Any:
    """Block tables and offsets as the kernels take them."""
    return np.array(numbers, np.int32)


def map_slots(
    bench: Workbench, starts: Any, positions: Any, table: Any, room: int, *watches: Watch, **options: Any
) -> Run:
    """Run the slot kernel. `out[0]`: [room] int64; it starts as -77, which no slot is."""
    found = np.full(room, -77, np.int64)
    return bench.launch(
        slot_mapping.compute_slot_mapping_kernel,
        watches,
        lambda entry: slot_mapping.compute_slot_mapping(
            found, int32(starts), np.array(positions, np.int64), int32(table), backend=bench.backend, entry=entry,
            **options,
        ),
        (found,),
    )  # fmt: skip


def side_by_side(case: cases.DecodeCase, memory: flash_layout.Memory, newest: bool = True) -> Any:
    """A FlashAttention cache filled by hand with the case's tokens, perhaps without each sequence's newest one."""
    cache = flash_layout.allocate(case.num_blocks, 16, case.num_kv_heads, case.head_size, "float16", memory)
    for seq in range(case.num_seqs):
        tokens = int(case.seq_lens[seq]) - (not newest)
        for token, slot in enumerate(oracle.slots(case.block_tables[seq], tokens, 16)):
            row = np.concatenate([case.keys[seq][token], case.values[seq][token]], axis=1)
            cache[slot // 16, :, slot % 16] = row
    return cache


def gather(bench: Workbench, cache: Any, seq: int, *watches: Watch) -> Run:
    """Gather one sequence. `out`: (keys, values), [tokens, KV heads, head size]; they start as NaN."""
    key, value = (np.full(rows[seq].shape, np.nan, np.float16) for rows in (CASE.keys, CASE.values))
    return bench.launch(
        flash_layout.gather_kv_kernel,
        watches,
        lambda entry: flash_layout.gather_kv(
            key, value, cache, CASE.block_tables[seq], backend=bench.backend, entry=entry
        ),
        (key, value),
        seed=CASE.seed,
    )  # fmt: skip


def metadata(case: cases.DecodeCase) -> flash_forward.CommonAttentionMetadata:
    """What the runner would know of the case: one new token a sequence."""
    slots = [oracle.slots(case.block_tables[s], int(case.seq_lens[s]), 16)[-1] for s in range(case.num_seqs)]
    return flash_forward.CommonAttentionMetadata(
        num_actual_tokens=case.num_seqs,
        max_query_len=1,
        query_start_loc=np.arange(case.num_seqs + 1, dtype=np.int32),
        max_seq_len=case.max_seq_len,
        seq_lens=case.seq_lens,
        block_table_tensor=case.block_tables,
        slot_mapping=np.array(slots, np.int64),
    )


def forward(bench: Workbench, cache: Any, rows: int, *watches: Watch) -> Run:
    """Run the forward pass for CASE, its queries padded to `rows`. `out[0]` starts as NaN, and so does the padding."""
    query = np.full((rows, *CASE.q.shape[1:]), np.nan, np.float16)
    query[: CASE.num_seqs] = CASE.q
    output = np.full_like(query, np.nan)
    return bench.launch(
        paged_2d.kernel_paged_attention_2d,
        watches,
        lambda entry: flash_forward.forward(
            query, None, None, cache, flash_forward.build(metadata(CASE)), output, scale=CASE.scale,
            backend=bench.backend, entry=entry,
        ),
        (output,),
        seed=CASE.seed,
    )  # fmt: skip


def update(bench: Workbench, key: Any, value: Any, cache: Any, slots: Any) -> Run:
    """Run the cache update. `out[0]`: the cache itself, in its logical shape."""
    writer: Kernel = cache_flash.reshape_and_cache_flash_kernel
    return bench.launch(
        writer,
        (),
        lambda entry: flash_forward.do_kv_cache_update(key, value, cache, slots, backend=bench.backend, entry=entry),
        (cache,),
        seed=CASE.seed,
    )


@WALKTHROUGH.step(
    "slots", title="A slot for every new token", reads=("slot-mapping-call", "slot-kernel", "slot-formula"), port=SLOTS
)
def step_slots(bench: Workbench) -> None:
    """
    Two requests share a batch. The first brings three new tokens, at positions 14, 15 and 16. The second brings four,
    from position 0. Positions are places in the text. Where will the tokens lie?

    Each request has a row of the block table. Position 16 with blocks of 16: logical block 1, offset 0. The row says
    which physical block that is. Then **slot = block number × block size + offset**. That is the whole formula.

    It runs on the GPU: one program for each request. The table and the positions need not come back to the
    host. Numbers are widened before the product, which could overflow in a large cache.
    """
    by = ("req_idx", "offsets")
    block = bench.watch("block_numbers", at="slot-formula", after="block_numbers", by=by)
    offset = bench.watch("slot_offsets", at="slot-formula", after="slot_offsets", by=by)
    run = map_slots(
        bench, [0, 3, 7], [14, 15, 16, 0, 1, 2, 3], [[5, 2], [1, 7]], 7, block, offset, block_size=16
    )  # fmt: skip
    bench.check("request of each token", [key[0] for key in sorted(run.last("block_numbers"))], [0] * 3 + [1] * 4)
    bench.check("physical block of each token", run.series("block_numbers"), [5, 5, 2, 1, 1, 1, 1])
    bench.check("offset in the block", run.series("slot_offsets"), [14, 15, 0, 0, 1, 2, 3])
    one, two = oracle.slots([5, 2], 17, 16), oracle.slots([1, 7], 4, 16)
    bench.check("slots", run.out[0], one[14:] + two)


@WALKTHROUGH.step("padding", title="Minus one means: no token", reads=("slot-pad", "runner-pad"), port=SLOTS)
def step_padding(bench: Workbench) -> None:
    """
    A captured CUDA graph is a recording. It always plays at the same length, say for 12 tokens, also when there are
    only seven. The other five places must say that there is nothing to write.

    The grid has one program more than there are requests. That one fills the rest of the buffer with −1. The model
    runner does the same once more for the part that a padded batch shows to the layers.

    Forget it, and last step's slots are still there: the writer would put rubbish into blocks that may belong to
    somebody else by now.
    """
    pad = bench.watch("offsets", at="slot-pad", after="slot_mapping_ptr[]", by=("offsets",))
    run = map_slots(bench, [0, 3, 7], [14, 15, 16, 0, 1, 2, 3], [[5, 2], [1, 7]], 12, pad, block_size=16)
    bench.check("places that the last program fills", run.series("offsets"), [7, 8, 9, 10, 11])
    bench.check("thread block that does it", sorted({r.block for r in run.readings("offsets")}), [2])
    bench.check("the end of the mapping", run.out[0][7:], [-1] * 5)
    bench.check("real tokens keep their slots", int((run.out[0][:7] >= 0).sum()), 7)


@WALKTHROUGH.step("ranks", title="When several GPUs share a sequence", reads=("slot-rank", "slot-formula"), port=SLOTS)
def step_ranks(bench: Workbench) -> None:
    """
    Very long sequences can be dealt out to several GPUs, token by token, like cards. This is context parallelism.
    Each GPU, called a rank, keeps its own share and its own slots.

    With two ranks, rank 0 takes positions 0, 2, 4 and rank 1 takes 1, 3, 5. A block of 4 tokens on each rank covers
    8 tokens of the text together. A token that is not ours gets −1: the same mark as padding, and the same guard
    in the writer skips it.

    With one rank, which is the usual case, these lines change nothing.
    """
    for rank in (0, 1):
        local = bench.watch("is_local", "int(is_local)", at="slot-rank", after="is_local", by=("pos",))
        run = map_slots(bench, [0, 12], range(12), [[6, 3]], 12, local, block_size=4, world_size=2, rank=rank)
        mine = [position for position in range(12) if position % 2 == rank]
        bench.check(f"rank {rank}: its tokens", np.flatnonzero(run.series("is_local")), mine)
        places = iter(oracle.slots([6, 3], 6, 4))
        expected = [next(places) if position in mine else -1 for position in range(12)]
        bench.check(f"rank {rank}: slots", run.out[0], expected)


@WALKTHROUGH.step(
    "cache-shape", title="Shape is one thing, memory another", reads=("flash-cache-shape", "flash-stride-order"),
    port=LAYOUT,
)  # fmt: skip
def step_cache_shape(bench: Workbench) -> None:
    """
    Forget x. FlashAttention's cache is simpler: for each block, KV head and token one row of 2 × head size numbers.
    The first half is the key, the second half the value.

    That is the *shape*: (blocks, KV heads, tokens, 2 × head size). The *memory* is another question. By default it is
    NHD: in a block the tokens come first (N), then the heads (H), then the numbers (D). So a token's heads lie
    together. HND keeps a head's tokens together. A permutation says which axis comes first.

    Think of a chessboard: you may name the squares by row and column, and still store them column by column.
    The kernel gets strides and never asks.
    """
    for memory, order in zip(BOTH, ((0, 2, 1, 3), (0, 1, 2, 3)), strict=True):
        cache = side_by_side(CASE, memory)
        row = bench.watch(
            "row", at="flash-split", after="row", by=("token_idx", "kv_head_idx"), when="cuda.threadIdx.x == 0"
        )
        run = gather(bench, cache, 0, row)
        sizes = [cache.shape[axis] for axis in order]
        places = np.arange(cache.size).reshape(sizes).transpose(np.argsort(order))
        table = CASE.block_tables[0]
        expected = [places[table[token // 16], head, token % 16, 0] for token in range(70) for head in range(2)]
        bench.check(f"{memory}: logical shape", cache.shape, (CASE.num_blocks, 2, 16, 64))
        bench.check(f"{memory}: where each row starts", run.series("row"), expected)
        steps = np.diff(run.series("row")[:3])
        head, token = (64, 128) if memory == "NHD" else (16 * 64, 64)
        bench.check(f"{memory}: to the next head, to the next token", [steps[0], steps[0] + steps[1]], [head, token])


@WALKTHROUGH.step("split", title="Two halves of a row", reads=("flash-split",), port=LAYOUT)
def step_split(bench: Workbench) -> None:
    """
    Forward takes the cache apart: heads and tokens swap places in the view, and the last axis is cut in the middle.
    No byte moves. `key_cache` and `value_cache` are two windows on the same memory.

    Neither half is contiguous. From one row of keys to the next it is 2 × head size, since the value lies between.
    For the reader this is good. It wants both, and here they are: one run of 64 numbers, the first 32 the key.

    Our little kernel reads such a row with 64 threads, and puts the halves into two arrays.
    """
    cache = side_by_side(CASE, "NHD")
    keys, values = flash_layout.split(cache, 32)
    bench.check("shape of the key view", keys.shape, (CASE.num_blocks, 16, 2, 32))
    apart = values.__array_interface__["data"][0] - keys.__array_interface__["data"][0]
    bench.check("bytes from a key to its value", apart, 32 * 2)
    address = bench.watch(
        "address", "row + element", at="flash-split", after="element", by=("element",),
        when="token_idx == 40 and kv_head_idx == 1",
    )  # fmt: skip
    run = gather(bench, cache, 0, address)
    bench.check("one run of 64 numbers", np.diff(run.series("address")), [1] * 63)
    bench.check("keys", run.out[0], CASE.keys[0])
    bench.check("values", run.out[1], CASE.values[0])


@WALKTHROUGH.step(
    "table-travels",
    title="Follow the block table",
    reads=("runner-table", "flash-metadata-build", "flash-metadata", "flash-take-table", "flash-block-table"),
    port=FORWARD,
)
def step_table_travels(bench: Workbench) -> None:
    """
    Where does the block table enter? Follow one array from hand to hand.

    The model runner puts it into the common metadata, once a step, for all layers. The backend's builder takes it out
    and puts it into its own metadata. Forward, in each layer, reads `attn_metadata.block_table`. And hands it to
    the call. Nobody copies it, nobody changes it.

    The same table serves every layer of its cache group: a block number means the same place in *each* layer's
    own cache [L1-06].

    We watch the far end: the physical blocks that the kernel looks up are the entries of the array we started with.
    """
    common = metadata(CASE)
    built = flash_forward.build(common)
    bench.check("the backend's table is the runner's", built.block_table is common.block_table_tensor, True)
    by = ("seq_idx", "kv_head_idx", "abs_token_idx")
    physical = bench.watch(
        "physical", at="paged-2d-table", after="p_block_idx[]", by=by, when="abs_token_idx < seq_len"
    )
    run = forward(bench, side_by_side(CASE, "NHD"), 2, physical)
    found = run.last("physical")
    for seq, tokens in ((0, 70), (1, 9)):
        seen = [found[seq, 1, token] for token in range(tokens)]
        expected = np.repeat(CASE.block_tables[seq], 16)[:tokens]
        bench.check(f"blocks looked up for sequence {seq}", seen, expected)


@WALKTHROUGH.step(
    "update", title="First write, then read", reads=("flash-write-apart", "kv-cache-update"), port=FORWARD
)
def step_update(bench: Workbench) -> None:
    """
    A decode step makes one new key and one new value for each sequence. They belong into the cache before attention,
    for the new token looks at itself too.

    At 0.26.0 this is not part of forward. The backend says so in a flag. The layer calls the update as an operation of
    its own, and then forward. The writer is `reshape_and_cache_flash`: it gets both views and the slots.

    Keys may have more rows than there are slots, as under graph padding. The slots count.

    The check runs forward twice: before the update the newest place holds NaN, and so does the output. After it, all
    is well.
    """
    cache = side_by_side(CASE, "NHD", newest=False)
    before = forward(bench, cache, 2)
    bench.check("numbers in the output before the update", int(np.isfinite(before.out[0]).sum()), 0)
    key, value = (np.full((3, 2, 32), np.nan, np.float16) for _ in range(2))
    for seq in range(2):
        key[seq], value[seq] = CASE.keys[seq][-1], CASE.values[seq][-1]
    run = update(bench, key, value, cache, metadata(CASE).slot_mapping)
    bench.check("cache after the update", run.out[0], side_by_side(CASE, "NHD"), note="every other place untouched")
    after = forward(bench, cache, 2)
    bench.check("output after the update", after.out[0], oracle.attention(CASE), tolerance=HALF)


@WALKTHROUGH.step(
    "forward",
    title="From the cache to the fused call",
    reads=("flash-forward", "flash-split", "flash-call", "fa-interface", "fa-block-table"),
    port=FORWARD,
)
def step_forward(bench: Workbench) -> None:
    """
    Read forward as a funnel. Above: a profiling run leaves early. Then the split. Then the numbers are taken off the
    metadata. Below: **one call**, for prefill and decode alike. A second way, cascade, serves long common prefixes,
    and is rare.

    Look at the arguments. Queries are packed one behind the other; `cu_seqlens_q` says where each sequence begins.
    `seqused_k` says how much of the cache is filled. With `block_table`, K and V are read through the table. Without
    lengths that cannot work, and the interface refuses it.

    `key` and `value` are arguments too, and for plain decoding nobody reads them.

    Behind the call is compiled code, which we do not port. In its place we run the kernel of the next steps
    on the same cache. Strides make it possible.
    """
    for memory in BOTH:
        run = forward(bench, side_by_side(CASE, memory), 4)
        bench.check(f"{memory}: output", run.out[0][:2], oracle.attention(CASE), tolerance=HALF)
        bench.check(f"{memory}: padded rows stay as they were", bool(np.isnan(run.out[0][2:]).all()), True)
    first, second = (forward(bench, side_by_side(CASE, m), 2).out[0] for m in BOTH)
    bench.check("both memory orders, to the last bit", first, second)
