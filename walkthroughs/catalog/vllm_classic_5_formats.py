"""vLLM's classic kernels, part 5: the same lines for bfloat16, and for a cache of one byte an element."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import numbers, oracle
from kernels.cases_narrow import NarrowCase, narrow_decode_case, narrow_write_case, stored, unpack
from kernels.probe import Watch
from kernels.vllm import cache, classic_v1
from walkthroughs.catalog.vllm_classic_1_write import CACHE, WALKTHROUGH
from walkthroughs.workbench import Run, Workbench

ORDER = 2
FORMATS = "kernels/vllm/dtypes.py"
HALF = 2.0**-8
"""Half a unit in the last place of a bfloat16 number, relative to the number, at most."""
TOKENS = 11
WIDE = narrow_decode_case((TOKENS,), 2, 1, 32, 8, "bfloat16", seed=51)
BYTES = narrow_decode_case((TOKENS,), 2, 1, 32, 8, "bfloat16", "fp8", 0.5, 1.25, seed=52)


def attend(bench: Workbench, narrow: NarrowCase, *watches: Watch, swapped: bool = False) -> Run:
    """Run the classic v1 kernel on codes; `swapped` hands it each cache's scale for the other. `out[0]`: codes."""
    case = narrow.case
    out = np.zeros_like(narrow.q)
    scales = (narrow.v_scale, narrow.k_scale) if swapped else (narrow.k_scale, narrow.v_scale)

    def launch(entry: Any) -> None:
        classic_v1.paged_attention_v1(
            out, narrow.q, narrow.k_cache, narrow.v_cache, case.num_kv_heads, case.scale, case.block_tables,
            case.seq_lens, case.block_size, case.max_seq_len, None, narrow.kv_cache_dtype, *scales,
            backend=bench.backend, entry=entry,
        )  # fmt: skip

    return bench.launch(classic_v1.paged_attention_v1_kernel, watches, launch, (out,), seed=case.seed)


def bound(narrow: NarrowCase) -> float:
    """What rounding to bfloat16 may do to an output: to each weight and each product, and to the output itself."""
    case = narrow.case
    value = np.abs(np.repeat(case.values[0], case.num_heads // case.num_kv_heads, axis=1).astype(np.float64))
    sums = [oracle.weights(case, 0, head, 0.0) @ value[:, head] for head in range(case.num_heads)]
    return HALF * float((2 * np.array(sums) + np.abs(oracle.attention(case)[0])).max())


@WALKTHROUGH.step("bfloat16", title="Sixteen bits, eight of them for size", reads=("logits-vec", "accumulate"))
def step_bfloat16(bench: Workbench) -> None:
    """
    Most models run in bfloat16. It is a float32 cut in half: the sign, the whole exponent, and what still fits
    of the rest. So the range stays, and digits go: rounding moves a number by up to 2⁻⁸ of its size.

    No line of the kernel changes. What changes is behind a few names: how an element becomes a float32, how a
    float32 becomes an element, and how products are added.

    Watch the weights. They are float32 in shared memory. On the way to the value pass each is rounded to
    bfloat16. Float16 would keep more bits.

    The products are rounded to bfloat16 too. Their sums are not: pairs of products are added in float32. With float16
    vLLM adds the pairs in sixteen bits as well.
    """
    plain = bench.watch(
        "p", "logits[token_idx - start_token_idx + e]", at="logits-vec", after="logits_vec[]",
        by=("token_idx + e",), when="head_idx == 1",
    )  # fmt: skip
    code = bench.watch(
        "w", "logits_vec[e]", at="logits-vec", after="logits_vec[]", by=("token_idx + e",),
        when="head_idx == 1",
    )  # fmt: skip
    run = attend(bench, WIDE, plain, code)
    weights = np.asarray(run.series("p"), np.float32)
    codes = np.asarray(run.series("w"), np.uint16)
    bench.check("weights in shared memory", weights[:TOKENS], oracle.weights(WIDE.case, 0, 1), tolerance=2e-6)
    bench.check("each is rounded to the nearest code", codes, numbers.encode(weights, "bfloat16"))
    lost = np.abs(numbers.decode(codes, "bfloat16").astype(np.float64) - weights) / np.maximum(weights, 1e-30)
    bench.check("the largest loss, of 2⁻⁸ at most", bool(lost.max() <= HALF), True, note=f"{lost.max():.2g}")
    sums = numbers.decode(codes, "bfloat16").astype(np.float64).sum()
    bench.check("the rounded weights no longer add up to one", bool(abs(sums - 1) > 1e-5), True, note=f"{sums:.6f}")
    bench.check(
        "output, against exact softmax", unpack(run.out[0], "bfloat16"), oracle.attention(WIDE.case),
        tolerance=bound(WIDE),
    )  # fmt: skip


@WALKTHROUGH.step("fp8-cache", title="Half the bytes, and a scale", reads=("fp8-read", "x-packing", "k-address"))
def step_fp8_cache(bench: Workbench) -> None:
    """
    Decoding is slow because it must read the whole cache. So store less: one byte an element, in the format
    e4m3. Such a number has few digits, and none is larger than 448 [vllm-classic/fp8-write]. A scale for the
    whole cache stretches that range to where the keys are.

    Sixteen bytes now hold sixteen elements: x is 16. A thread still takes as many elements as before, since that
    number comes from the query's type. They are half the bytes.

    Each code is widened, multiplied by the scale and rounded to the query's type. Then the same dot product follows
    as ever. Queries, scores and outputs know nothing of it.

    Keys and values have a scale each. Take one for the other, and every answer is wrong.
    """
    packed = bench.watch("x", at="k-address", after="offset2", by=("seq_idx",), when="head_idx == 0")
    taken = bench.watch(
        "k", "k_vecs[j, e]", at="fp8-read", after="k_vecs[]", part=0,
        by=("token_idx", "(thread_group_offset + j * THREAD_GROUP_SIZE) * VEC_SIZE + e"),
        when="head_idx == 1",
    )  # fmt: skip
    run = attend(bench, BYTES, packed, taken)
    bench.check("x of the cache", set(run.series("x")), {16}, note="8 for a cache of two bytes an element")
    found = run.last("k")
    rows = [[numbers.decode(np.uint16(found[token, dim]), "bfloat16") for dim in range(32)] for token in range(TOKENS)]
    keys = BYTES.case.keys[0][:, 0]
    bench.check("keys in registers: code times 0.5", rows, keys, note="exact: a half costs no bits")
    exact = oracle.attention(BYTES.case)
    bench.check("output", unpack(run.out[0], "bfloat16"), exact, tolerance=bound(BYTES))
    wrong = unpack(attend(bench, BYTES, swapped=True).out[0], "bfloat16")
    apart = float(np.abs(wrong - exact).max())
    bench.check("with the scales swapped: outside the bound", apart > bound(BYTES), True, note=f"{apart:.2g} apart")


@WALKTHROUGH.step(
    "fp8-write", title="The way in: divide, round, saturate", reads=("flash-scales", "k-store"), port=CACHE
)
def step_fp8_write(bench: Workbench) -> None:
    """
    The writer does the reverse. It divides each element by the scale and rounds to the nearest code. What is too large
    becomes the largest number, 448, and not an infinity: one loud element does not spoil a row.

    The other fp8, e5m2, has one bit more of exponent and one less of the rest: a coarser grid that reaches
    further.

    Five tokens, one of them padding; keys of bfloat16, divided by 0.5. One element of a key is set to 1,000. In e4m3 it
    saturates and comes back as 224. In e5m2 it comes back as 1,024, the nearest on that grid.
    """
    for name, nearest in (("fp8_e4m3", 448 * 0.5), ("fp8_e5m2", 2048 * 0.5)):
        case = narrow_write_case(5, 2, 32, 8, "bfloat16", name, seed=53, padding=1)
        token = int(np.argmax(case.slot_mapping >= 0))
        case.key[token, 1, 3] = numbers.encode(1000.0, "bfloat16")
        run = write(bench, case, name, (0.5, 2.0))
        places = [(block, offset) for block in range(case.num_blocks) for offset in range(8)]
        real = [(at, *places[slot]) for at, slot in enumerate(case.slot_mapping) if slot >= 0]
        for side, rows, scale, got in (("keys", case.key, 0.5, run.out[0]), ("values", case.value, 2.0, run.out[1])):
            kept = [got[b, :, :, o].reshape(2, 32) for _, b, o in real]
            want = [stored(rows[at], "bfloat16", name, scale) for at, _, _ in real]
            bench.check(f"{name}: codes of the {side}", kept, want)
        _, block, offset = real[0]
        loud = numbers.decode(run.out[0][block, 1, 0, offset, 3], name) * 0.5
        bench.check(f"{name}: 1,000 comes back as", loud, nearest)
        # Every byte that no token owns still holds what it held.
        untouched = (run.out[0] == 0xAA).sum() >= run.out[0].size - len(real) * 64
        bench.check(f"{name}: bytes of other tokens stay", bool(untouched), True)


def write(bench: Workbench, case: Any, name: str, scales: tuple[float, float]) -> Run:
    """Run `reshape_and_cache` into an fp8 cache. `out`: (key cache, value cache)."""
    caches = case.k_cache.copy(), case.v_cache.copy()
    factors = [np.full(1, scale, np.float32) for scale in scales]

    def launch(entry: Any) -> None:
        cache.reshape_and_cache(
            case.key, case.value, *caches, case.slot_mapping, name, *factors, backend=bench.backend, entry=entry
        )

    return bench.launch(cache.reshape_and_cache_kernel, (), launch, caches, seed=case.seed)
