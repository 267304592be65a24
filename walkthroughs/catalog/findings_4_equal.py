"""Findings, part 4: how far the classic kernel is from softmax attention, and which line adds how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import cases, oracle, oracle_rounding
from kernels.cases_narrow import NarrowCase, narrow_decode_case, unpack
from kernels.probe import Watch
from kernels.vllm import classic_v1
from walkthroughs.catalog.findings import WALKTHROUGH
from walkthroughs.workbench import Run, Workbench

ORDER = 7
TOKENS, BLOCK_SIZE = 24, 16
FORMATS = ("float32", "float16", "bfloat16")
EPSILON = 1e-6
ULP = 2.0**-23
"""A unit in the last place of a float32 number between one and two."""
BOUNDS = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 8e-3}
"""How far an output may be from the last form: float32's sums, and one flipped rounding of the output."""


def cases_of(scalar: str) -> NarrowCase:
    """One sequence of 24 tokens, 1 query head of 32, with numbers that the format holds exactly."""
    return narrow_decode_case((TOKENS,), 1, 1, 32, BLOCK_SIZE, scalar, seed=45)


def attend(bench: Workbench, narrow: NarrowCase, scalar: str, *watches: Watch) -> tuple[Run, npt.NDArray[np.float32]]:
    """Run the classic v1 kernel; returns the run and its output as float32, [1, 1, 32]."""
    case = narrow.case
    out = np.zeros_like(narrow.q)

    def launch(entry: Any) -> None:
        classic_v1.paged_attention_v1(
            out, narrow.q, narrow.k_cache, narrow.v_cache, 1, case.scale, case.block_tables, case.seq_lens, BLOCK_SIZE,
            case.max_seq_len, backend=bench.backend, entry=entry,
        )  # fmt: skip

    run = bench.launch(classic_v1.paged_attention_v1_kernel, watches, launch, (out,), seed=case.seed)
    return run, unpack(out, scalar)


@WALKTHROUGH.step(
    "not-bit-equal",
    title="The kernel is not softmax to the last bit: which line adds how much",
    reads=("normalise", "exp-sum", "logits-vec", "accumulate", "output-write"),
    source="vllm@0.24.0",
    port="kernels/vllm/classic_v1.py",
)
def step_not_bit_equal(bench: Workbench) -> None:
    """
    It is often said that the kernel computes exactly the same attention [L1-40]. Paging changes nothing, that
    is true [L1-39]. Other lines do.

    **What was run.** Our port of the classic v1 kernel of vLLM 0.24.0, in float32, float16 and bfloat16, against
    softmax in float64. One sequence of 24 tokens, 1 query head of 32, blocks of 16. Then each thing that the kernel
    does is added to the formula, one after the other. What a thing changes is its share. The last table has the sizes.

    **1e-6 in the sum.** It guards against a division by zero. So the weights add up to less than one. A lone token
    has weight 1 / (1 + 1e-6), and no element of the output equals its value. With more tokens the sum is larger, and
    the share smaller.

    **Fast-math.** The exponential and the division are the hardware's fast ones. We watch argument and result, and
    compare with float64. CUDA documents how far off they may be. The SIMT machine rounds both correctly: only a
    record from a GPU shows their real error. The row of the table says which it is.

    **Weights in sixteen bits.** Before they meet the values, weights are rounded to the type of the output. With
    float32 nothing happens here.

    **Sums in sixteen bits.** In float16 the products are rounded, and so are their sums, in two chains of four. In
    bfloat16 the products are rounded, the sums are not. The output is rounded at the end. Our formula rounds at the
    same places, and on the SIMT machine nothing is left. A GPU may merge a product and a sum, which is one rounding
    fewer: then there is a rest.

    **The order of sums.** Four warps add their own blocks, then one another's sums. Another block size is another
    order. We run the same tokens in blocks of 8, 16 and 32, in float32: some last digits differ. None of the three is
    more right than the others.

    **What it comes to.** In float32 only the last digits are off. In float16 and bfloat16 rounding outweighs
    the 1e-6 by far. None of this is an error of the kernel: it was not made to be equal to the bit.

    **What was not run.** The upstream kernel; fp8 caches, which lose more; and v2, which divides twice and keeps its
    partial rows in the type of the output.

    **Judge for yourself.** `pagewalk run findings/not-bit-equal`. With a GPU, add `--backend cuda`.
    """
    lone_tokens(bench)
    fast_math(bench)
    for scalar in FORMATS:
        one_by_one(bench, scalar)
    orders_of_sums(bench)


def lone_tokens(bench: Workbench) -> None:
    """The 1e-6, where nothing else hides it: sequences of 1, 2 and 4 tokens in float32."""
    case = cases.decode_case((1, 2, 4), 1, 1, 32, BLOCK_SIZE, "float32", seed=46)
    weight = bench.watch("w", "logits[i]", at="normalise", after="logits[]", by=("seq_idx", "i"))
    run = bench.attend(case, weight)
    found = run.last("w")
    for seq, count in enumerate((1, 2, 4)):
        missing = 1 - sum(found[seq, token] for token in range(count))
        total = oracle.exp_sum(case, seq, 0)
        bench.check(f"what the weights of {count} lack to one", missing, EPSILON / (total + EPSILON), tolerance=3e-7)
    equal = int((run.out[0][0, 0] == case.values[0][0, 0]).sum())
    bench.check("one token: elements that equal its value", equal, 0, note="softmax gives all 32")
    bench.check("one token: output", run.out[0][0, 0], case.values[0][0, 0] / (1 + EPSILON), tolerance=1e-6)


def fast_math(bench: Workbench) -> None:
    """The exponential and the reciprocal, each against float64 of the very number that it was given."""
    narrow = cases_of("float32")
    when = "head_idx == 0"
    argument = bench.watch("x", "logits[i] - qk_max", at="exp-sum", after="val", by=("i",), when=when)
    value = bench.watch("exp", "val", at="exp-sum", after="val", by=("i",), when=when)
    # Recorded where the division is: `exp_sum` as it goes in, and what comes out.
    total = bench.watch("sum", "exp_sum", at="normalise", after="inv_sum", by=("thread_idx",), when=when)
    inverse = bench.watch("inverse", "inv_sum", at="normalise", after="inv_sum", by=("thread_idx",), when=when)
    run, _ = attend(bench, narrow, "float32", argument, value, total, inverse)
    x, found = (np.asarray(run.series(name)) for name in ("x", "exp"))
    here = "" if bench.backend.name == "cuda" else "rounded correctly here: a GPU's own is on its record"
    error = float(np.abs(found / np.exp(x) - 1).max())
    bound = (2 + 1.173 * float(np.abs(x).max())) * ULP
    bench.check("exponentials: largest relative error", error, 0.0, tolerance=bound, note="2 + 1.173 |x| units at most")
    bench.measured("fast exponential: largest relative error", error, "", note=here)
    divisor = np.float32(run.series("sum")[0]) + np.float32(EPSILON)
    error = abs(run.series("inverse")[0] * float(divisor) - 1)
    bench.check("reciprocal: relative error", error, 0.0, tolerance=2 * ULP, note="2 units at most")
    bench.measured("fast division: relative error", error, "", note=here)


def one_by_one(bench: Workbench, scalar: str) -> None:
    """The losses of one format: what the formula says of each, and how near the kernel comes to the last form."""
    narrow = cases_of(scalar)
    case = narrow.case
    # The other lanes of a warp hold the same tokens, for other rows.
    before, after = (
        bench.watch(name, value, at="logits-vec", after="logits_vec[]", by=("token_idx + e",),
                    when="lane < NUM_V_VECS_PER_ROW")
        for name, value in (("p", "logits[token_idx - start_token_idx + e]"), ("w", "logits_vec[e]"))
    )  # fmt: skip
    run, out = attend(bench, narrow, scalar, before, after)
    weights = np.asarray(run.series("p"))[:TOKENS]
    kept = np.asarray(run.series("w"))[:TOKENS]
    if scalar == "bfloat16":
        kept = unpack(kept.astype(np.uint16), scalar).astype(np.float64)
    bench.check(f"{scalar}: weights in shared memory", weights, oracle.weights(case, 0, 0), tolerance=1e-6)
    bench.check(f"{scalar}: what the value pass gets of them", kept, oracle_rounding.rounded(weights, scalar))
    forms = oracle_rounding.forms(case, 0, 0, scalar)
    exact, last, found = forms[0], forms[-1], out[0, 0].astype(np.float64)
    bench.check(f"{scalar}: output, against the last form", found, last, tolerance=BOUNDS[scalar])
    for name, share in zip(oracle_rounding.FORMS[1:], oracle_rounding.losses(forms), strict=True):
        bench.measured(f"{scalar}: {name}", share, "", note="largest change of an output element, by formula")
    rest = float(np.abs(found - last).max())
    bench.measured(
        f"{scalar}: the rest, kernel against all of these", rest, "", note="float32 sums, fast-math, merged operations"
    )
    bench.measured(f"{scalar}: in all, kernel against softmax", float(np.abs(found - exact).max()), "")
    equal = int((found == oracle_rounding.rounded(exact, scalar)).sum())
    bench.measured(f"{scalar}: elements that equal softmax, rounded once", equal, "of 32")
    if scalar != "float32":
        lost = np.abs(kept - weights).max()
        bench.measured(f"{scalar}: largest rounding of a weight", float(lost), "", note="observed in the kernel")


def orders_of_sums(bench: Workbench) -> None:
    """The same tokens in blocks of 8, 16 and 32, in float32."""
    outs = {}
    for size in (8, 16, 32):
        case = cases.decode_case((TOKENS,), 1, 1, 32, size, "float32", seed=45)
        outs[size] = bench.attend(case).out[0]
        exact = oracle.attention(case, EPSILON)
        bench.check(f"float32, blocks of {size}", outs[size], exact, tolerance=BOUNDS["float32"])
    differ = int((outs[8] != outs[16]).sum() + (outs[32] != outs[16]).sum())
    bench.check("blocks of 8 or 32 against 16: some elements differ", differ > 0, True)
    apart = max(float(np.abs(outs[size] - outs[16]).max()) for size in (8, 32))
    note = f"{differ} of 64 elements differ"
    bench.measured("order of sums: largest difference between block sizes", apart, "", note=note)
