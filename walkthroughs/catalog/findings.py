"""What the ports brought to light: each finding on a page of its own, short enough to judge for yourself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from kernels import cases, oracle
from kernels.cases import Array, WriteCase
from walkthroughs.against import Caches, compares
from walkthroughs.catalog.vllm_writers import write_fixed
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Workbench

ORDER = 7
WALKTHROUGH = Walkthrough(
    id="findings",
    title="Findings: judge for yourself",
    intro="""
Whoever rewrites a kernel line by line sees things that its callers do not meet. Each step here is one of them: in a
writer, in a reduction, in a document, in a sum.

A step says what was run, what came out, where it holds and where it does not. Its table is the evidence.
The last words of a step say how to run it yourself. The first can also be held against vLLM's own compiled op.
""",
    source="vllm@0.26.0",
    port="kernels/vllm/cache.py",
)
THREADS, PIECE = 512, 16
"""The most threads of a launch of the writer, and the bytes that each of them moves."""
CONFIGURATIONS = (
    (8, 128, "float16"), (32, 128, "float16"), (40, 128, "float16"), (64, 128, "float16"), (32, 256, "float16"),
    (8, 256, "float32"),
)  # fmt: skip


def write_cases() -> list[WriteCase]:
    """One token for each configuration (KV heads, head size, dtype); everything else in the caches is NaN."""
    return [
        cases.write_case(1, heads, size, 16, dtype, seed=41, spare_blocks=0, name=f"{heads} heads of {size}, {dtype}")
        for heads, size, dtype in CONFIGURATIONS
    ]


def reached(case: WriteCase) -> int:
    """How many heads the threads of one launch reach, if each moves one piece."""
    return min(case.num_heads, THREADS * PIECE // (case.head_size * case.key.itemsize))


def kept(case: WriteCase) -> Caches:
    """Both caches with the heads that are reached written, and the others as they were."""
    keys, values = oracle.written_caches(case)
    for cache in (keys, values):
        cache[:, reached(case) :] = np.nan
    return keys, values


def heads(case: WriteCase, caches: Sequence[Array]) -> tuple[str, str]:
    """The heads that hold the token's whole key and value, and those that hold nothing of either, in words."""
    pools = cases.unpack_keys(caches[0]), cases.unpack_values(caches[1])
    places = [divmod(int(slot), case.block_size) for slot in case.slot_mapping]
    empty = np.array([np.isnan(pool[place]) for pool in pools for place in places])
    return in_words(np.flatnonzero(~empty.any(axis=(0, 2)))), in_words(np.flatnonzero(empty.all(axis=(0, 2))))


def in_words(numbers: Iterable[int]) -> str:
    """Rising numbers as ranges: `0 to 31`, `3, 5 to 6`, or `none`."""
    runs = groupby(enumerate(numbers), key=lambda item: item[1] - item[0])
    found = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in found) or "none"


def expected_heads(case: WriteCase) -> tuple[str, str]:
    """What `heads` must say of caches like `kept`."""
    return in_words(range(reached(case))), in_words(range(reached(case), case.num_heads))


def flat(caches: Sequence[Sequence[Array]]) -> Array:
    """Every element of several pairs of caches, one behind the other."""
    return np.concatenate([cache.ravel() for pair in caches for cache in pair])


@WALKTHROUGH.step(
    "unwritten-heads",
    title="reshape_and_cache writes 8 KiB of a token, and no more",
    reads=("reshape-and-cache-host", "head-of-thread"),
    port="kernels/vllm/cache_fixed.py",
)
def step_unwritten_heads(bench: Workbench) -> None:
    """
    **What was run.** The writer of the classic layout, as vLLM 0.26.0 launches it: one token, several
    configurations, into caches full of NaN. Beside it the same kernel with one line repaired.

    **What came out.** A thread moves 16 bytes of the key and as many elements of the value. A launch has at
    most 512 threads, and each works once. That is 8 KiB of a token's key [C-04]. Where the key is longer, its
    last heads are not written. They keep what the cache held before. No error is raised.

    A head of 128 in float16 is 256 bytes, so 32 heads are written. Of 40 heads, 32 to 39 are not. Of 64, the second
    half is not. A head of 256 is 512 bytes: 16 heads are written, and of 32, the second half is not.

    **Where it does not show.** 8 or 32 heads of 128 are written in full. Models with grouped queries often have 8 KV
    heads. What counts is the number of KV heads on one GPU. FlashAttention's layout has another writer, which loops.

    **Which releases.** 0.11.0 still had a loop over the pieces. At 0.11.2 it is gone, and at 0.33.0 it is not
    back [C-04]. At 0.26.0 vLLM itself uses this op on AMD GPUs only; the op is compiled for NVIDIA GPUs, too.

    **Why vLLM's own test does not see it.** It takes 8 heads. The widest, 256 in float32, are 8 KiB to the byte
    [C-04]: every thread has one piece, and no piece is left over. The test passes with a loop and without.

    **The repair.** One line: the thread comes back for the piece that lies a whole thread block further on. Both
    kernels stand beside vLLM's lines.

    **Judge for yourself.** `pagewalk run findings/unwritten-heads` runs both ports. With `--against vllm`, the same
    input also goes through vLLM's own compiled op, if you have it and a GPU.
    """
    given = write_cases()
    faithful = [bench.write(case).out for case in given]
    repaired = [write_fixed(bench, case).out for case in given]
    for case, caches in zip(given, faithful, strict=True):
        written, untouched = heads(case, caches)
        expected = expected_heads(case)
        bench.check(f"{case.name}: heads written", written, expected[0])
        bench.check(f"{case.name}: heads untouched", untouched, expected[1])
    bench.check("all elements of all caches", flat(faithful), flat([kept(case) for case in given]))
    whole = [oracle.written_caches(case) for case in given]
    bench.check("all elements, repaired", flat(repaired), flat(whole), note="every head")
    forty = given[2]
    last = bench.watch("head_idx", at="head-of-thread", after="head_idx", when=f"cuda.threadIdx.x == {THREADS - 1}")
    bench.check("40 heads: head of the last thread", bench.write(forty, last).series("head_idx"), [31])
    back = f"cuda.threadIdx.x != h_block_idx and h_block_idx >= {THREADS}"
    second = bench.watch("head_idx", at="head-of-thread", part=0, after="head_idx", by=("h_block_idx",), when=back)
    taken = sorted({int(head) for head in write_fixed(bench, forty, second).series("head_idx")})
    bench.check("40 heads, repaired: heads of the threads that come back", in_words(taken), "32 to 39")


@compares("findings/unwritten-heads", "vllm", cases=write_cases)
def judge_unwritten_heads(bench: Workbench, found: Sequence[Caches], name: str) -> str:
    """Check that the op of `name` (a vLLM release) leaves the caches as our port does, and say what that means."""
    given = write_cases()
    for case, caches in zip(given, found, strict=True):
        written, untouched = heads(case, caches)
        expected = expected_heads(case)
        bench.check(f"{case.name}: heads written", written, expected[0])
        bench.check(f"{case.name}: heads untouched", untouched, expected[1])
    bench.check(
        "all elements of all caches, as our port leaves them", flat(found), flat([kept(case) for case in given])
    )
    if all(check.passed for check in bench.checks):
        return f"{name} leaves the same heads unwritten as our port"
    if np.array_equal(flat(found), flat([oracle.written_caches(case) for case in given]), equal_nan=True):
        return f"theirs writes all heads: the finding does not apply to {name}"
    return f"{name} writes neither what our port writes nor all heads: the checks say what it wrote"
