"""What the SIMT machine and a GPU are compared on: every port, every broken kernel, and the loads and stores.

Each row has the machine's answer written down, so that a GPU machine needs no machine of ours: the tests hold the
answers against the machine, and the record holds them against the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.kernel import Backend

CLEAN = "clean"
RACY_PORT = "tiny-vllm-attention"
# Requests and sectors of a launch's global loads and stores: ld requests, ld sectors, st requests, st sectors.
MEMORY = {
    "k-load-x-8": (144, 528, 8, 32),
    "k-load-naive-8": (144, 1040, 8, 32),
    "v-load-8": (48, 528, 8, 32),
    "k-load-x-16": (144, 1040, 8, 32),
    "k-load-naive-16": (144, 2064, 8, 32),
    "v-load-16": (80, 1040, 8, 32),
    "k-load-x-32": (144, 2064, 8, 32),
    "k-load-naive-32": (144, 4112, 8, 32),
    "v-load-32": (144, 2064, 8, 32),
    "reshape-and-cache": (292, 2196, 272, 4352),
    "flash-writer": (216, 352, 136, 272),
}
TOLERANCE = 0.0
TOLERANCE_WHY = (
    "Both sides count warp instructions and the 32-byte sectors that their addresses touch; no time is measured, so "
    "the numbers must be equal. Every array starts on 256 bytes on both sides."
)
# How far a port's output on the GPU may be from the machine's. 0: the same bits.
BOUNDS = {
    "classic-v1": (2e-6, "expf and the order of fused operations differ in the last bits of float32"),
    "reshape-and-cache": (0.0, "it only copies"),
    "paged-2d": (2e-6, "expf and the order of fused operations differ in the last bits of float32"),
    "slot-mapping": (0.0, "whole numbers"),
    "gather-kv": (0.0, "it only copies"),
    "copy-blocks": (0.0, "it only copies"),
    "classic-v2": (2e-6, "expf and the order of fused operations differ in the last bits of float32"),
    "reshape-and-cache-fixed": (0.0, "it only copies"),
    "reshape-and-cache-flash": (0.0, "it copies, or converts by whole-number rules"),
    "scatter": (0.0, "it only copies"),
    "gather": (1e-13, "exp of float64 differs in the last bit"),
    "tiny-vllm-attention-repaired": (2e-6, "expf differs in the last bits of float32"),
    "tiny-vllm-paged": (2e-6, "expf differs in the last bits of float32"),
    "tiny-vllm-general": (2e-6, "expf differs in the last bits of float32"),
    "tiny-vllm-writes": (0.0, "it only copies"),
}
HALF_STEP = 2e-3
"""Added to the bound of a float16 output: one step of the type for outputs below 2, and weights rounded to it."""


def bound(name: str, dtype: str) -> float:
    """How far from the machine's an output (`kernel/case/array`) may be on the GPU; 0 for the same bits."""
    allowed = BOUNDS[name.split("/")[0]][0]
    return allowed + HALF_STEP if allowed and dtype == "float16" else allowed


@dataclass(frozen=True)
class Row:
    """One launch under one tool: what the machine says (`race`, `out of bounds`, ..., or `clean`).

    `tool`: racecheck or memcheck, or empty where neither looks, then `why` says why not.
    """

    id: str
    group: str
    tool: str
    machine: str
    launch: Callable[[Backend], object]
    why: str = ""


def rows() -> list[Row]:
    """Every row: ports under both tools, broken kernels and broken ports under the one that can see it."""
    return [*_ports(), *_variants(), *_mutations()]


def _ports() -> list[Row]:
    from walkthroughs import launchables

    found = []
    for name in launchables.names():
        for case in launchables.launchable(name).cases.values():
            for tool in ("racecheck", "memcheck"):
                verdict = "race" if name == RACY_PORT and tool == "racecheck" else CLEAN
                found.append(Row(f"{name}/{case.name}", "port", tool, verdict, case.run))
    return found


def _variants() -> list[Row]:
    from kernels.variants import VARIANTS

    return [Row(v.id, "broken kernel", v.tool, v.verdict, v.launch, v.why) for v in VARIANTS.values()]


def _mutations() -> list[Row]:
    from walkthroughs import mutations

    entries = {mutations.V1: "classic-v1", mutations.PAGED_2D: "paged-2d"}
    found = []
    for m in mutations.MUTATIONS:
        launched = (m.file, *mutations.CALLERS.get(m.file, ()))[-1]
        if m.old == mutations.BARRIER and m.through is None and launched in entries:
            row_id = f"{entries[launched]}/{m.id}"
            found.append(Row(row_id, "broken port", "racecheck", "race", _mutated(m.id, launched)))
    return found


def _mutated(name: str, launched: str) -> Callable[[Backend], object]:
    def launch(backend: Backend) -> None:
        import numpy as np

        from kernels.cases import decode_case
        from kernels.vllm.classic_v1 import paged_attention_v1
        from kernels.vllm.paged_2d import paged_attention_2d
        from walkthroughs import mutations

        kernel = mutations.mutant(next(m for m in mutations.MUTATIONS if m.id == name))
        case = decode_case([70], 2, 1, 32, 16, seed=4)
        out = np.zeros_like(case.q)
        if launched == mutations.PAGED_2D:
            paged_attention_2d(
                out, case.q, case.k_cache, case.v_cache, case.block_tables, case.seq_lens, entry=kernel,
                backend=backend,
            )  # fmt: skip
            return
        paged_attention_v1(
            out, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale,
            case.block_tables, case.seq_lens, case.block_size, case.max_seq_len, entry=kernel, backend=backend,
        )  # fmt: skip

    return launch
