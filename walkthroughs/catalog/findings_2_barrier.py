"""Findings, part 2: the barrier that tiny-vllm's two-warp reduction lacks, and the order of warps that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import cases, oracle, oracle_tiny
from kernels.cases import DecodeCase
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.tiny_vllm import paged
from kernels.tiny_vllm.attention import cache_of
from walkthroughs.catalog.findings import WALKTHROUGH
from walkthroughs.catalog.tiny_vllm_1_memory import napping
from walkthroughs.workbench import Run, Workbench

ORDER = 7
TOKENS = 20
CASE = cases.decode_case((TOKENS,), 4, 1, 64, 16, seed=42, garbage="minus-one")
SHORT = cases.decode_case((3,), 4, 1, 64, 16, seed=43, extra_columns=2)  # a table as wide: the same compiled kernel
WARP_0_FIRST = "replay:*=0"
"""After every barrier warp 0 runs to its next one before warp 1 moves: any order between two barriers is legal."""
LATE = 1
SINGLE, UNSCALED = 3e-6, 1e-5
RUNS = 20


def attend(bench: Workbench, case: DecodeCase, *watches: Watch, repaired: bool, schedule: str, nap: bool) -> Run:
    """Launch tiny-vllm's kernel under an order of warps: `schedule` on the SIMT machine, a nap of warp 1 on a GPU.

    `repaired` adds the barrier. `out[0]`: [sequences, heads, 64]. The bench's own delay is left out: the step says who
    is late.
    """
    kernel = dict(bench.bench.kernels).get(paged.tiny_attention_kernel.name, paged.tiny_attention_kernel)
    gpu = bench.backend.name == "cuda"
    if gpu and nap:
        kernel = napping(kernel.fn, kernel.constexpr, LATE)
    entry: Any = Probed(kernel, watches) if watches else kernel
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    table = np.ascontiguousarray(case.block_tables[:, None])  # [slots, one layer, blocks]
    bench.seed = case.seed
    paged.tiny_attention(
        0, case.num_seqs, case.q, cache_of(case), table, case.seq_lens, np.arange(case.num_seqs, dtype=np.int32), out,
        repaired=repaired, backend=bench.backend if gpu else Backend("sim", schedule), entry=entry,
    )  # fmt: skip
    return Run((out,), entry if watches else None)


def misread(case: DecodeCase, seq: int, head: int) -> npt.NDArray[np.float64]:
    """The scores that a late warp 1 reads: the next token's half sum, not divided; for the last token its score."""
    parts = oracle_tiny.products(case, seq, head)
    return np.concatenate([parts[1:, :32].sum(axis=1), oracle.logits(case, seq, head)[-1:]])


def wrong_runs(bench: Workbench, *, repaired: bool, nap: bool = True) -> int:
    """How many of 20 runs give a wrong output: 20 random orders on the SIMT machine, 20 launches on a GPU."""
    exact = oracle.attention(SHORT)
    outs = [
        attend(bench, SHORT, repaired=repaired, schedule=f"random:{number}", nap=nap).out[0] for number in range(RUNS)
    ]
    # A NaN is wrong, too.
    return sum(not np.abs(out - exact).max() <= UNSCALED for out in outs)


@WALKTHROUGH.step(
    "missing-barrier",
    title="A barrier is missing, and one order of two warps shows it",
    reads=("cross-warp-reduce", "warp-reduce"),
    source="tiny-vllm@e25bf19",
    port="kernels/tiny_vllm/paged.py",
)
def step_missing_barrier(bench: Workbench) -> None:
    """
    **What was run.** tiny-vllm's decode kernel at commit e25bf19, as upstream has it and with one more barrier. One
    sequence of 20 tokens, 4 query heads of 64, float32. Upstream computes on bfloat16; its barriers are the same.

    **The gap.** Two warps make one score. Each leaves its half sum in a shared float. Barrier. Thread 0 puts the score
    over the first of them. Barrier. All 64 threads read the score.

    Then the next token begins, and thread 0 stores its new half sum over that same float. Between this read and that
    write there is no barrier. Warp 0 cannot overtake itself: its lanes meet in the shuffles. Warp 1 is in another warp,
    and nothing makes warp 0 wait for it.

    **The order that shows it.** Between two barriers warps may run in any order. Let warp 0 always go first. On the
    SIMT machine that is the schedule `replay:*=0`. On a GPU warp 1 naps for 20 µs before every statement.

    **What came out.** For every token but the last, warp 1 reads the next token's half sum, not yet divided by
    8 [L2-35]. The checks know these numbers beforehand. Elements 0 to 31 of the output are right, and 32 to 63
    are not. With the barrier, under the same order, all are right.

    **Where it does not show.** Where warp 1 reads in time. On an H200, the launches of this step without a nap
    were right. With a nap of 2 µs before the read alone, 20 of 20 were wrong; with the barrier none. Yet a single
    launch of our smaller port of the same loop, without any nap, gave a wrong answer there in a test. So the fault
    hides, but not always. We have not looked for it on other GPUs, and we have not run tiny-vllm itself.

    **The repair.** One barrier after the read, at the end of the loop. Or two pairs of floats, used in turn. Or let
    all threads read both halves and add them: then the second barrier suffices, after the read. We ran the first.

    **Judge for yourself.** `pagewalk run findings/missing-barrier` runs the kernel both ways.
    `pagewalk sanitize tiny-vllm-attention` names the two lines. With `--schedule adversarial` it looks for an order
    that changes the output, and finds one with a single swap of the two warps.
    """
    by, head = ("logical_block_idx * 16 + token", "thread_id"), "q_head_id == 1"
    # Only two threads write to the probe, so that it delays warp 0 as little as can be.
    score = bench.watch("score", "dot_product", at="cross-warp-reduce", after="dot_product", by=by,
                        when=f"{head} and thread_id % 32 == 0")  # fmt: skip
    exact, right = oracle.attention(CASE), oracle.logits(CASE, 0, 1)
    for repaired in (False, True):
        name = "one more barrier" if repaired else "as upstream"
        run = attend(bench, CASE, score, repaired=repaired, schedule=WARP_0_FIRST, nap=True)
        found = run.last("score")
        for thread, expected in ((0, right), (32, right if repaired else misread(CASE, 0, 1))):
            seen = [found[token, thread] for token in range(TOKENS)]
            bench.check(f"{name}: scores that thread {thread} reads", seen, expected, tolerance=UNSCALED)
        out = run.out[0]
        bench.check(f"{name}: elements 0 to 31", out[..., :32], exact[..., :32], tolerance=SINGLE)
        foretold = exact if repaired else oracle_tiny.late(CASE)
        bench.check(f"{name}: elements 32 to 63", out[..., 32:], foretold[..., 32:], tolerance=UNSCALED)
        worst = float(np.abs(out - exact).max())
        bench.check(f"{name}: an element is off by more than a half", worst > 0.5, not repaired)
        bench.measured(f"{name}: largest error", worst, "", note="values are normal random numbers")
    bench.check("one more barrier: wrong runs of 20", wrong_runs(bench, repaired=True), 0)
    gpu = bench.backend.name == "cuda"
    how = "warp 1 naps" if gpu else "20 random orders of the SIMT machine"
    bench.measured("as upstream: wrong runs of 20", wrong_runs(bench, repaired=False), "runs", note=how)
    if gpu:
        calm = wrong_runs(bench, repaired=False, nap=False)
        bench.measured("as upstream, nobody naps: wrong runs of 20", calm, "runs", note="none would prove nothing")
