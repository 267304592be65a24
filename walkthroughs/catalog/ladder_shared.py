"""What all steps of the ladder share: the cases, a rung's launch and its bound, and the counts that a step predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernels import layout, oracle
from kernels.cases_narrow import NarrowCase, narrow_decode_case, unpack
from kernels.kernel import Kernel
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.plan import Plan
from kernels.unroll import unroll
from walkthroughs.workbench import Workbench

if TYPE_CHECKING:
    from walkthroughs.traffic import Traffic

HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, ITEM = 8, 2, 64, 16, 2
GROUP = layout.num_queries_per_kv(HEADS, KV_HEADS)
TOKENS = 96
"""Of the case whose traffic is counted: whole blocks, so that no rung reads more than there is."""
BLOCKS = layout.blocks_for(TOKENS, BLOCK_SIZE)
NEEDED = TOKENS * layout.kv_bytes_per_token(KV_HEADS, HEAD_SIZE, ITEM)
"""Bytes of keys and values that any kernel must read for it."""
RAGGED = (70, 9)
SCALAR = "bfloat16"
HALF = 2.0**-8
"""Half a unit in the last place of a bfloat16 number, relative to the number, at most."""
FLOAT32 = 2e-6
"""What float32 sums of this length may lose, relative to the sum of the sizes."""
Launches = Callable[[Decode, Zeros, Plan | None], tuple[Launch, ...]]


def counted_case(tokens: int = TOKENS) -> NarrowCase:
    """One sequence of whole blocks, its blocks in random places."""
    return narrow_decode_case((tokens,), HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, SCALAR, seed=80)


def ragged_case() -> NarrowCase:
    """Two sequences that end inside a block; NaN lies behind both."""
    return narrow_decode_case(RAGGED, HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, SCALAR, seed=81)


def small_case() -> NarrowCase:
    """The same with fewer tokens and one KV head, for the rungs that take longest."""
    return narrow_decode_case((37, 9), 2, 1, HEAD_SIZE, BLOCK_SIZE, SCALAR, seed=87)


def call_of(narrow: NarrowCase, out: npt.NDArray[Any], **changes: Any) -> Decode:
    """A case as the call that a rung is handed."""
    case = narrow.case
    given: dict[str, Any] = {
        "num_kv_heads": case.num_kv_heads, "scale": case.scale, "block_tables": case.block_tables,
        "seq_lens": case.seq_lens, "block_size": case.block_size, "max_seq_len": max(1, case.max_seq_len),
        "kv_cache_dtype": narrow.kv_cache_dtype, "k_scale": narrow.k_scale, "v_scale": narrow.v_scale,
    } | changes  # fmt: skip
    return Decode(out, narrow.q, narrow.k_cache, narrow.v_cache, **given)


def chosen(bench: Workbench, launches: Sequence[Launch]) -> list[Launch]:
    """The launches with the kernels that the bench has in place of theirs, for a test that a fault is noticed.

    A late warp is left out: a kernel that was written out has no place for naps.
    """
    other = dict(bench.bench.kernels)
    # Written out anew with the same constants: what was derived from the parameters is among them.
    return [
        replace(one, kernel=unroll(Kernel(other[one.kernel.name].fn), **one.kernel.constants))
        if one.kernel.name in other
        else one
        for one in launches
    ]


def attend(
    bench: Workbench, launches: Launches, narrow: NarrowCase, plan: Plan | None = None
) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """A rung's output for a case, on the bench's backend, and the arguments of its first launch by name.

    Output: [num_seqs, num_heads, head_size]; it starts as NaN. Among the arguments is what the rung left in scratch
    memory.
    """
    bench.seed = narrow.case.seed
    out = np.full(narrow.q.shape, 0x7FFF, np.uint16).view(narrow.q.dtype)
    made = chosen(bench, launches(call_of(narrow, out), np.zeros, plan))
    for one in made:
        one.run(bench.backend)
    code = made[0].kernel.fn.__code__
    names = code.co_varnames[: code.co_argcount]
    return unpack(out, SCALAR).astype(np.float64), dict(zip(names, made[0].args, strict=True))


def bound(narrow: NarrowCase, roundings: int = 1) -> npt.NDArray[np.float64]:
    """What rounding may do to each output: `roundings` of every weighted value, one of the output, float32 sums."""
    sizes = replace(narrow.case, values=tuple(np.abs(rows) for rows in narrow.case.values))
    total = oracle.attention(sizes)
    found: npt.NDArray[np.float64] = HALF * (roundings * total + np.abs(oracle.attention(narrow.case)))
    return found + FLOAT32 * total


def right(
    bench: Workbench, launches: Launches, plan: Plan | None = None, *, roundings: int = 1,
    given: NarrowCase | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Check a rung's output: for two sequences that end inside a block, or for the case that is given.

    Answers the arguments of its first launch by name.
    """
    narrow = given or ragged_case()
    found, left = attend(bench, launches, narrow, plan)
    exact, may = oracle.attention(narrow.case), bound(narrow, roundings)
    bench.check("output", found, exact, tolerance=float(may.max()), note="against float64")
    inside = np.abs(found - exact) <= may
    bench.check("elements of it that are beyond what their own roundings allow", int((~inside).sum()), 0)
    return left


def count(bench: Workbench, launches: Launches, narrow: NarrowCase, plan: Plan | None = None) -> Traffic:
    """What a rung asks of memory for a case. The machine counts, wherever the bench runs."""
    from walkthroughs.traffic import counted  # needs greenlet: what only lists the steps does not

    out = np.zeros_like(narrow.q)
    arrays = {
        "keys": narrow.k_cache, "values": narrow.v_cache, "table": narrow.case.block_tables, "queries": narrow.q,
        "out": out,
    }  # fmt: skip
    return counted(chosen(bench, launches(call_of(narrow, out), np.zeros, plan)), arrays)


def traffic(bench: Workbench, launches: Launches, plan: Plan | None = None) -> Traffic:
    """What a rung asks of memory for the counted case, which must be all of it."""
    found = count(bench, launches, counted_case(), plan)
    bench.check(
        "bytes of keys and values that must be read", found.distinct("keys", "values"), NEEDED,
        note=f"{TOKENS} tokens, 2 x {KV_HEADS} heads of {HEAD_SIZE}, {ITEM} bytes each",
    )  # fmt: skip
    return found


def predicted(bench: Workbench, found: Traffic, *, copies: float, widths: Sequence[int], barriers: int) -> None:
    """Check what a prediction says: how often the cache is read, in loads of how many bytes, with how many barriers."""
    asked = found.bytes("keys", "values")
    bench.check("bytes of keys and values that are asked for", asked, copies * NEEDED)
    bench.check("times that the cache is read", asked / NEEDED, copies)
    bench.check("bytes of one load", found.widths("keys", "values"), list(widths))
    bench.check("barriers, over all thread blocks", found.barriers, barriers)


def of_splits(narrow: NarrowCase, spans: Sequence[range]) -> tuple[npt.NDArray[np.float64], ...]:
    """What each split of sequence 0 must leave: largest score, sum of weights, and values times weights.

    [num_heads, splits], the same, and [num_heads, splits, head_size]. The score is in base 2, as these kernels keep it:
    times log2(e). A weight is two to the power of a score less the largest.
    """
    case = narrow.case
    scores = np.array([oracle.logits(case, 0, head) for head in range(case.num_heads)]) * np.log2(np.e)
    parts = [scores[:, span.start : span.stop] for span in spans]
    largest = np.stack([part.max(axis=1) for part in parts], 1)
    weights = [np.exp2(part - part.max(axis=1, keepdims=True)) for part in parts]
    values = np.repeat(case.values[0].astype(np.float64), case.num_heads // case.num_kv_heads, axis=1)
    sums = np.stack([weight.sum(axis=1) for weight in weights], 1)
    outputs = [
        np.einsum("ht,thd->hd", weight, values[span.start : span.stop])
        for weight, span in zip(weights, spans, strict=True)
    ]
    return largest, sums, np.stack(outputs, 1)


def shared_bytes(launches: Launches, tokens: int, plan: Plan | None = None) -> int:
    """Bytes of shared memory that a thread block of a rung has for a sequence of so many tokens."""
    narrow = counted_case(tokens)
    return max(one.shared for one in launches(call_of(narrow, np.zeros_like(narrow.q)), np.zeros, plan))


def operations() -> int:
    """Multiplications and additions of the counted case: two for each product and sum, of keys and of values."""
    return 2 * 2 * HEADS * TOKENS * HEAD_SIZE
