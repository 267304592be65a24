"""The two cache writers of vLLM 0.26.0: one by strides, for FlashAttention's layout, and one that misses heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import cases, numbers, oracle, oracle_flash
from kernels.cases import WriteCase
from kernels.cases_flash import FlashCase, flash_case
from kernels.probe import Watch
from kernels.vllm import cache_fixed, cache_flash
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Run, Workbench

ORDER = 3
FIXED = "kernels/vllm/cache_fixed.py"
WALKTHROUGH = Walkthrough(
    id="vllm-writers",
    title="Two writers, and what one of them leaves out",
    intro="""
Before attention can read a key, somebody must have written it. vLLM 0.26.0 has a kernel for each layout of the
cache [L1-21].

`reshape_and_cache_flash` writes the layout that FlashAttention reads. It runs where vLLM picks that, for
instance on an RTX 4090 [L1-43]. You meet it first: how one kernel serves every memory order
[vllm-writers/strides], and what a few odd bytes cost [vllm-writers/unaligned].

`reshape_and_cache` writes the layout of the classic kernel. At 0.26.0 it serves AMD GPUs [L1-21]. With many KV
heads it leaves some of them unwritten [C-04]. You see that happen, and the loop that repairs it
[vllm-writers/stride-loop].

The case, unless a step says otherwise: the newest tokens of seven sequences, each in a block of its own, among
nine slots of which two are padding; twelve rows; 4 KV heads of 32, blocks of 16, float16 [vllm-writers/slots].
All places without a token hold NaN.
""",
    source="vllm@0.26.0",
    port="kernels/vllm/cache_flash.py",
)
FIRST = "cuda.threadIdx.x == 0"
SHAPE = (9, 4, 32, 16, "float16")
CASES = {
    memory: flash_case(*SHAPE, seed=31, memory=memory, padding=2, extra_rows=3, fused=True, spread=True)
    for memory in ("NHD", "HND")
}


def write(bench: Workbench, case: FlashCase, *watches: Watch, scales: tuple[Any, ...] = ()) -> Run:
    """Run `reshape_and_cache_flash`. `out`: (the whole allocation, keys, values), poisoned before."""
    whole, keys, values = case.caches()
    return bench.launch(
        cache_flash.reshape_and_cache_flash_kernel,
        watches,
        lambda entry: cache_flash.reshape_and_cache_flash(
            case.key, case.value, keys, values, case.slot_mapping, *scales, backend=bench.backend, entry=entry
        ),
        (whole, keys, values),
        seed=case.seed,
    )


def write_fixed(bench: Workbench, case: WriteCase, *watches: Watch) -> Run:
    """Run the corrected `reshape_and_cache`. `out`: (key cache, value cache)."""
    caches = case.k_cache.copy(), case.v_cache.copy()
    return bench.launch(
        cache_fixed.reshape_and_cache_fixed_kernel,
        watches,
        lambda entry: cache_fixed.reshape_and_cache_fixed(
            case.key, case.value, *caches, case.slot_mapping, backend=bench.backend, entry=entry
        ),
        caches,
        seed=case.seed,
    )


def real(case: FlashCase) -> list[tuple[int, int, int]]:
    """(token, block, offset) of every token that has a slot."""
    street = [(block, offset) for block in range(case.num_blocks) for offset in range(case.block_size)]
    return [(token, *street[slot]) for token, slot in enumerate(case.slot_mapping) if slot >= 0]


@WALKTHROUGH.step("slots", title="One token, one thread block", reads=("flash-slot", "reshape-and-cache-flash-host"))
def step_slots(bench: Workbench) -> None:
    """
    The beginning you know from the classic writer. One thread block serves one token. It reads the token's slot.
    A negative slot means padding, and the thread block returns before it reads anything else. A division takes
    block and offset apart.

    The slot knows nothing of the memory order. The same slots serve both orders of this walkthrough.

    The batch has twelve rows and nine slots: a captured graph pads the rows. The host counts the slots,
    as a long comment of vLLM's explains. Counting the rows was a real bug once.
    """
    for memory, case in CASES.items():
        block = bench.watch("block_idx", at="flash-slot", after="block_idx", by=("token_idx",), when=FIRST)
        offset = bench.watch("block_offset", at="flash-slot", after="block_offset", by=("token_idx",), when=FIRST)
        begun = bench.watch("slot_idx", at="flash-slot", after="slot_idx", by=("token_idx",), when=FIRST)
        run = write(bench, case, block, offset, begun)
        tokens = real(case)
        bench.check(f"{memory}: slots read", run.series("slot_idx"), case.slot_mapping, note="nine, for twelve rows")
        bench.check(
            f"{memory}: tokens that go on", [key[0] for key in sorted(run.last("block_idx"))], [t[0] for t in tokens]
        )
        bench.check(f"{memory}: blocks", run.series("block_idx"), [t[1] for t in tokens])
        bench.check(f"{memory}: offsets", run.series("block_offset"), [t[2] for t in tokens])


@WALKTHROUGH.step(
    "strides",
    title="One view, two memory orders",
    reads=("flash-cache-shape", "flash-stride-order", "kv-cache-update", "flash-source", "flash-target"),
)
def step_strides(bench: Workbench) -> None:
    """
    Think of a hotel. The address "floor, corridor, room" can be kept while the building is laid out in another way:
    only the walking distances change. Strides are walking distances.

    vLLM 0.26.0 keeps K and V side by side: a head's 32 key elements, then its 32 value elements. The writer gets two
    views of that one tensor, always [blocks, tokens, heads, elements]. In memory, either the tokens come first inside
    a block (NHD) or the heads (HND).

    The kernel never asks which. Block times block stride, plus offset times page stride: there the token begins.
    K and V use the same distances from two starting points, one head size apart.

    The source has a stride, too. Our keys and values are slices of one wide projection, so the next row is
    six rows' widths away, not one.
    """
    for memory, case in CASES.items():
        by = ("token_idx",)
        names = ("key_dst", "value_dst")
        target = [bench.watch(name, at="flash-target", after=name, by=by, when=FIRST) for name in names]
        source = bench.watch("key_src", at="flash-source", after="key_src", by=by, when=FIRST)
        run = write(bench, case, *target, source)
        keys, values = oracle_flash.places(case)
        # A pointer to V starts one head further on; the offsets count from each pointer.
        for name, where, start in (("key_dst", keys, 0), ("value_dst", values, 32)):
            expected = [where[block, offset, 0, 0] - start for _, block, offset in real(case)]
            bench.check(f"{memory}: {name} of each token", run.series(name), expected)
        rows = [token * 6 * 4 * 32 for token, _, _ in real(case)]
        bench.check(f"{memory}: key_src of each token", run.series("key_src"), rows)
        bench.check(f"{memory}: the whole cache", run.out[0], oracle_flash.written(case)[0])
    for memory, expected in (("NHD", [16384, 1024, 256]), ("HND", [16384, 256, 4096])):
        large = flash_case(1, 4, 128, 16, "float16", memory=memory)  # type: ignore[arg-type]
        watches = [
            bench.watch(name, at="flash-target", by=(), when=FIRST)
            for name in ("block_stride", "page_stride", "head_stride")
        ]
        run = write(bench, large, *watches)
        found = [run.series(watch.name)[0] for watch in watches]
        bench.check(f"{memory}: strides for 4 heads of 128", found, expected, note="block, token, head")


@WALKTHROUGH.step(
    "one-run",
    title="A token is not one run",
    reads=("flash-one-run", "flash-whole-row", "flash-head-by-head"),
)
def step_one_run(bench: Workbench) -> None:
    """
    If a token's heads touched each other in the cache, the thread block could copy them all in one go. The kernel asks
    for it: is the distance from head to head just the size of a head?

    The comments beside this question say that NHD answers yes. At 0.26.0 that is no longer so [C-01]. Between
    two heads' keys lie the first head's *values*. The distance is twice the size of a head. So both memory
    orders take the other branch.

    When K and V still lay apart, up to 0.25.1, NHD did answer yes [C-01]. The kernel is older than the layout,
    and its comments remember the old one.

    In the other branch each warp takes a head. 4 heads of 32 make 128 threads, four warps, a head each. With 40
    heads of 128 there are 16 warps, and the loop comes back: warp 0 takes heads 0, 16 and 32. No head is
    missed.
    """
    answers = []
    for memory in ("NHD", "HND"):
        for form in ("side-by-side", "stacked"):
            case = flash_case(*SHAPE, seed=32, memory=memory, form=form)
            asked = bench.watch("yes", "is_contiguous_heads", at="flash-one-run", when=FIRST)
            run = write(bench, case, asked)
            answers.append(bool(run.series("yes")[0]))
            bench.check(f"{memory}, {form}: the cache", run.out[0], oracle_flash.written(case)[0])
    bench.check(
        "heads touch: NHD at 0.26.0, NHD before, HND at 0.26.0, HND before", answers, [False, True, False, False]
    )
    for heads, size, turns in (
        (4, 32, [[0], [1], [2], [3]]),
        (40, 128, [[0, 16, 32], [1, 17, 33], [2, 18, 34], [3, 19, 35]]),
    ):
        case = flash_case(1, heads, size, 16, "float16", seed=33)
        taken = bench.watch("head", at="flash-head-by-head", after="k_src_h", by=("warp_id", "head"), when="lane == 0")
        run = write(bench, case, taken)
        mine = [[key[1] for key in sorted(run.last("head")) if key[0] == warp] for warp in range(4)]
        bench.check(f"{heads} heads: those of warps 0 to 3", mine, turns)
        token, block, offset = real(case)[0]
        bench.check(f"{heads} heads: all written", run.out[1][block, offset], case.key[token])


@WALKTHROUGH.step("unaligned", title="A few odd bytes", reads=("aligned-copy",))
def step_unaligned(bench: Workbench) -> None:
    """
    A 16-byte load is one instruction, but it must start on a 16-byte line. Miss it, and a GPU stops with an error.

    Head size 46, one head, K and V apart: a row is 92 bytes. Row 0 starts on a line. The next rows are 12, 8
    and 4 bytes behind one, then one is on a line again. That is true of the source's row, and of the cache's
    row, which has another number. So there are several cases.

    Both on a line, and a length of whole vectors: vectors only. Both off by the same: a few single elements up to
    the line, then vectors, then a tail. Off by different amounts: single elements only. No shift would align both.

    An earlier version looked at the source alone. With head size 46 it crashed. A head size of 48 never showed
    it.
    """
    case = flash_case(17, 1, 46, 16, "float16", seed=34, form="stacked", spread=True)
    line = bench.watch("line", "(key_line + key_src * IN_SIZE) % 16", at="flash-source", by=("token_idx",), when=FIRST)
    run = write(bench, case, line, single_elements(bench, 46))
    bench.check("bytes of each source row behind a line", run.series("line"), [token * 92 % 16 for token in range(17)])
    bench.check("the first five", run.series("line")[:5], [0, 12, 8, 4, 0])
    found = run.readings("prefix")
    expected = [-token * 92 % 16 // 2 for token in range(17) for _ in ("key", "value")]
    bench.check("single elements up to the source's line", [r.value for r in found], expected)
    alike = sum(r.keys[0] == r.keys[1] for r in found)
    bench.check("of 34 copies, equally far behind a line", alike, both_alike(case), note="the others use no vectors")
    bench.check("the whole cache, written all the same", run.out[0], oracle_flash.written(case)[0])
    whole = flash_case(9, 1, 48, 16, "float16", seed=35, form="stacked", spread=True)
    run = write(bench, whole, single_elements(bench, 48))
    bench.check("heads of 48: copies that need single elements", len(run.readings("prefix")), 0)
    bench.check("heads of 48: the whole cache", run.out[0], oracle_flash.written(whole)[0])


def single_elements(bench: Workbench, width: int) -> Watch:
    """For each copy of a row of `width` that is not vectors only: the elements before the source's next line.

    Keys: how far source and target stand behind a line, in bytes.
    """
    behind = ("(src_line + src_at * IN_SIZE) % WIDTH", "out_addr % OUT_WIDTH")
    mine = f"tid == 0 and src_at == cuda.blockIdx.x * {width}"
    return bench.watch("prefix", "prefix_elems", at="aligned-copy", after="prefix_elems", by=behind, when=mine)


def both_alike(case: FlashCase) -> int:
    """How many of the copies (a key and a value for each token) have source and target equally far behind a line."""
    found = 0
    for where in oracle_flash.places(case):
        for token, block, offset in real(case):
            found += int(where[block, offset, 0, 0]) * 2 % 16 == token * case.head_size * 2 % 16
    return found


@WALKTHROUGH.step("scales", title="Eight bits, and a scale", reads=("flash-scales", "flash-head-by-head"))
def step_scales(bench: Workbench) -> None:
    """
    A cache of fp8 (here e4m3) halves the memory. A byte has few steps, so each element is divided by a scale
    first, to use them well. The reader multiplies it back.

    The scale may be one number for all heads, or one a head. The kernel has one expression for both: head times stride,
    and the stride is 0 or 1.

    One scale a head is a reason of its own to copy head by head, even where the heads touch.

    What does not fit is not infinity. It becomes the largest number that this kind of fp8 has: 448.
    """
    for count in (1, 4):
        scales = tuple((np.arange(1, count + 1) * step).astype(np.float32) for step in (0.25, 0.5))
        case = flash_case(*SHAPE, seed=36, padding=2, cache_dtype="uint8", form="stacked")

        def code(row: npt.NDArray[Any], head: int, side: str, scales: Any = scales, count: int = count) -> Any:
            scale = scales[side == "value"][head if count > 1 else 0]
            return numbers.encode(row.astype(np.float32) / scale, "fp8_e4m3")

        used = bench.watch("k_scale_val", at="flash-head-by-head", after="k_scale_val", by=("head",), when="lane == 0")
        watches = (used,) if count > 1 else ()
        run = write(bench, case, *watches, scales=("fp8", *scales))
        bench.check(f"{count} scales: codes in the cache", run.out[0], oracle_flash.written(case, code)[0])
        if count > 1:
            bench.check("scale of each head", run.series("k_scale_val"), [0.25, 0.5, 0.75, 1.0], note="heads touch")
    case = flash_case(1, 1, 32, 16, "float16", seed=37, cache_dtype="uint8")
    large = np.full((1, 1, 32), 1000, np.float16)
    small = np.ones(1, np.float32)
    loud = FlashCase("loud", 37, large, -large, case.slot_mapping, case.num_blocks, 16, cache_dtype="uint8")
    run = write(bench, loud, scales=("fp8", small, small))
    block, offset = divmod(int(case.slot_mapping[0]), 16)
    read = [float(numbers.decode(view[block, offset, 0, :1], "fp8_e4m3")[0]) for view in run.out[1:]]
    bench.check("1000 and -1000, read back", read, [448, -448])


@WALKTHROUGH.step(
    "unwritten-heads",
    title="Heads that nobody writes",
    reads=("reshape-and-cache-host", "head-of-thread"),
    port="kernels/vllm/cache.py",
)
def step_unwritten_heads(bench: Workbench) -> None:
    """
    Now the other writer. Each thread takes one piece of 16 bytes. The host starts a thread for each piece, but at most
    512. The kernel asks whether there is a piece for this thread. It does not ask whether there is a thread for
    every piece.

    40 KV heads of 128 in float16: 16 pieces a head, 640 pieces, 512 threads. Heads 0 to 31 are written
    [findings/unwritten-heads]. Heads 32 to 39 keep what the cache held before, here NaN
    [findings/unwritten-heads]. There is no error. The attention of those heads is quietly wrong.

    64 heads of 128 lose half of them. 32 heads of 256 lose half as well. Models with grouped queries have 8 KV heads or
    so, far below the limit: that is why few people will ever see it.

    Until 0.11.0 the kernel had a loop here. It is gone at 0.11.2, at 0.26.0, and still at 0.33.0 [C-04].
    """
    for heads, size, written in ((8, 128, 8), (40, 128, 32), (64, 128, 32), (32, 256, 16)):
        case = cases.write_case(1, heads, size, 16, "float16", seed=38, spare_blocks=0)
        run = bench.write(case)
        block, offset = divmod(int(case.slot_mapping[0]), 16)
        keys, values = cases.unpack_keys(run.out[0])[block, offset], cases.unpack_values(run.out[1])[block, offset]
        there = [head for head in range(heads) if not np.isnan(keys[head]).any()]
        name = f"{heads} heads of {size}"
        bench.check(f"{name}: heads with a key", there, list(range(written)))
        bench.check(f"{name}: heads with a value", int((~np.isnan(values)).all(axis=1).sum()), written)
        bench.check(f"{name}: what was written is right", keys[:written], case.key[0, :written])
    wide = cases.write_case(1, 40, 128, 16, "float16", seed=38, spare_blocks=0)
    piece = bench.watch("h_block_idx", at="head-of-thread", after="h_block_idx", by=("cuda.threadIdx.x",))
    bench.check("pieces taken, of 640", len(bench.write(wide, piece).readings("h_block_idx")), 512)


@WALKTHROUGH.step(
    "stride-loop",
    title="The loop that repairs it",
    reads=("head-of-thread", "k-store", "v-store"),
    port=FIXED,
)
def step_stride_loop(bench: Workbench) -> None:
    """
    The repair is one line. Instead of *if there is a piece for me*, the thread says: *my piece, and then every
    piece that lies a whole thread block further on*. Thread 0 takes pieces 0 and 512. Thread 127 takes 127 and 639.
    Thread 128 takes 128 alone.

    This is called a stride loop. It makes the result independent of the number of threads: 512 are enough, so are 32,
    so is one. You saw it in the other writer, warp by warp.

    This kernel is ours, beside the faithful port of vLLM's. Nothing else in it differs.
    """
    case = cases.write_case(2, 40, 128, 16, "float16", seed=39, spare_blocks=0)
    at = ("cuda.threadIdx.x", "h_block_idx")
    head = bench.watch("head_idx", at="head-of-thread", part=0, after="head_idx", by=at, when="token_idx == 0")
    run = write_fixed(bench, case, head)
    keys = sorted(run.last("head_idx"))
    mine = [[key[1] for key in keys if key[0] == thread] for thread in (0, 127, 128)]
    bench.check("pieces of threads 0, 127 and 128", mine, [[0, 512], [127, 639], [128]])
    bench.check("every piece once", sorted(key[1] for key in keys), range(640))
    expected = oracle.written_caches(case)
    bench.check("key cache: all 40 heads", run.out[0], expected[0])
    bench.check("value cache: all 40 heads", run.out[1], expected[1])
    small = cases.write_case(7, 2, 32, 16, "float16", seed=40, padding=2, extra_rows=2)
    fixed, faithful = write_fixed(bench, small).out, bench.write(small).out
    bench.check("8 pieces: the same keys as vLLM's", fixed[0], faithful[0])
    bench.check("8 pieces: the same values as vLLM's", fixed[1], faithful[1])
    pieces = 40 * math.ceil(128 / 8)
    bench.check("threads that come back", len({key[0] for key in keys if key[1] >= 512}), pieces - 512)
