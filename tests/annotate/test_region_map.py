"""Every kernel of ours has its regions on all concepts that it implements.

The table below was typed by hand, row by row of the map of the sources; it does not come from the concept table. A
fence that is lost fails here, and so does a new port that nobody entered.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from annotate.concepts import concepts
from annotate.ideas import tables
from annotate.regions import regions
from annotate.spans import spans

ROOT = Path(__file__).resolve().parents[2]
VLLM, TINY, TUNED = "kernels/vllm", "kernels/tiny_vllm", "kernels/tuned"

# The loop over the sequence as tiny-vllm has it, in all three forms of the port.
TINY_LOOP = """
    signature tiny-active-slot gqa-mapping q-load block-ranges block-table-walk block-table-lookup tail-guard k-address
    v-address qk-dot warp-reduce cross-warp-reduce online-softmax running-max running-rescale running-sum accumulate
    final-divide output-write
"""
WRITER = "reshape-and-cache slot-guard slot-split head-of-thread k-source k-store v-store"
# Our own two: one in a kernel, one in plain Python.
SMALLEST = """
    slot-of-token scatter gather-loop block-ranges block-table-walk gather-lookup tail-guard k-address v-address qk-dot
    online-softmax running-max running-rescale running-sum accumulate final-divide
"""

# The rungs of the ladder, by how often they go through the tokens. The ring's output is written by its merge.
RING = """
    q-load block-table-walk k-address v-address qk-dot running-max running-sum running-rescale online-softmax
    accumulate cross-warp-reduce
"""
ONE_PASS = f"{RING} output-write"
TWO_PASSES = """
    q-load block-table-walk k-address qk-dot tail-guard qk-max exp-sum v-address accumulate cross-warp-reduce
    output-write partition-stats
"""

# A port: its files, and what must be found in them together.
REQUIRED: dict[str, tuple[tuple[str, ...], str]] = {
    "the classic kernel's body": (
        (f"{VLLM}/attention_kernels.py", f"{VLLM}/attention_utils.py"),
        """signature partition-exit block-ranges thread-groups gqa-mapping q-load shared-logits x-packing
        block-table-row key-loop block-table-walk block-table-lookup k-address qk-dot qk-dot-helper alibi
        mask-and-store qk-max exp-sum block-sum normalise partition-stats v-sizes v-loop v-table logits-vec v-address
        tail-zeroing accumulate warp-reduce cross-warp-reduce output-write""",
    ),
    "the classic kernel's block offsets": ((f"{VLLM}/block_offsets.py",), "block-table-lookup k-address"),
    "its loads, alone": (
        ("kernels/loads.py",),
        "block-table-walk block-table-lookup k-address v-table v-address",
    ),
    "the classic kernel's fp8": ((f"{VLLM}/dtypes.py",), "fp8-read"),
    "v1": ((f"{VLLM}/classic_v1.py",), "v1-entry v1-launcher shared-size grid block-sizes v1-op"),
    "v2": (
        (f"{VLLM}/classic_v2.py",),
        """v2-entry v2-reduce v2-single-partition v2-max v2-rescale v2-merge v2-launcher partition-size v2-grid
        v2-op""",
    ),
    "the 2d kernel": (
        (f"{VLLM}/paged_2d.py",),
        """paged-2d paged-2d-signature paged-2d-layouts paged-2d-program paged-2d-filter paged-2d-group q-load
        paged-2d-state paged-2d-loop block-ranges block-table-walk paged-2d-table block-table-lookup paged-2d-k
        paged-2d-v paged-2d-tail-mask paged-2d-loads paged-2d-qk paged-2d-window alibi online-softmax paged-2d-max
        paged-2d-sum paged-2d-rescale paged-2d-v-add paged-2d-normalise paged-2d-store paged-2d-launch paged-2d-tile
        unified-bounds softmax-step unified-normalise""",
    ),
    "tiny-vllm's kernel": ((f"{TINY}/paged.py",), f"{TINY_LOOP} tiny-layout tiny-launch"),
    "tiny-vllm's loop": ((f"{TINY}/attention.py",), TINY_LOOP),
    "tiny-vllm's loop for any head size": ((f"{TINY}/general.py",), TINY_LOOP),
    "tiny-vllm's bookkeeping": (
        (f"{TINY}/block_table.py",),
        "tiny-layout tiny-pool tiny-write-prefill tiny-write-decode tiny-table-sync tiny-release",
    ),
    "tiny-vllm's writes": ((f"{TINY}/scatter.py",), "tiny-write-prefill tiny-write-decode"),
    "the writer": ((f"{VLLM}/cache.py",), f"{WRITER} reshape-and-cache-host"),
    "the corrected writer": ((f"{VLLM}/cache_fixed.py",), WRITER),
    "the FlashAttention writer": (
        (f"{VLLM}/cache_flash.py", f"{VLLM}/dtypes.py"),
        """reshape-and-cache-flash reshape-and-cache-flash-host flash-slot flash-source flash-target flash-one-run
        flash-whole-row flash-head-by-head flash-scales aligned-copy""",
    ),
    "the slot mapping": ((f"{VLLM}/slot_mapping.py",), "slot-mapping-call slot-kernel slot-pad slot-rank slot-formula"),
    "FlashAttention's layout": (
        (f"{VLLM}/flash_layout.py",),
        "flash-cache-shape flash-stride-order flash-split flash-block-table block-table-lookup",
    ),
    "FlashAttention's path": (
        (f"{VLLM}/flash_forward.py",),
        """runner-table flash-metadata flash-metadata-build flash-write-apart kv-cache-update flash-forward flash-split
        flash-take-table flash-call flash-block-table fa-interface fa-block-table""",
    ),
    "the block copy": ((f"{VLLM}/copy_blocks.py",), "block-copy"),
    "our smallest kernels": (("kernels/gather.py",), f"{SMALLEST} signature output-write"),
    "our reference": (("kernels/reference.py",), f"{SMALLEST} dense-attention"),
    "our pool": (("kernels/block_pool.py",), "block-pool block-table-growth prefix-sharing"),
    "our fragmentation": (("kernels/fragmentation.py",), "fragmentation"),
    # The ladder: each rung stands beside the one below, so the same ideas are found in all of them.
    "token-loop": ((f"{TUNED}/token_loop.py",), f"tail-guard warp-reduce final-divide {ONE_PASS}"),
    "wide-loads": ((f"{TUNED}/wide_loads.py",), TWO_PASSES),
    "grouped": ((f"{TUNED}/grouped.py",), TWO_PASSES),
    "online": ((f"{TUNED}/online.py",), f"tail-guard {ONE_PASS}"),
    "split": ((f"{TUNED}/split.py",), f"block-ranges tail-guard partition-stats {ONE_PASS}"),
    "tensor-cores": ((f"{TUNED}/tensor_cores.py",), f"block-ranges tail-guard partition-stats {ONE_PASS}"),
    "the splits' merge": ((f"{TUNED}/merge.py",), "v2-merge output-write"),
    "ring": ((f"{TUNED}/ring.py", f"{TUNED}/ring_merge.py"), f"tail-guard v2-merge {RING}"),
    "the tuned writer": ((f"{TUNED}/writer.py",), "slot-split head-of-thread k-source k-store v-store"),
}

# What a kernel has upstream and our port of it has not, with why.
NOT_PORTED = {
    "paged-2d": {
        "paged-2d-host": "it chooses between kernels; ours is called by name",
        "paged-2d-dispatch": "the way to the AMD kernel",
        "rocm-partition-size": "the way to the AMD kernel",
    },
    "flash": {
        "flash-cascade": "a shared prefix is attended to apart; taken rarely",
        "fa2-call": "a compiled kernel; the 2d kernel stands in for it",
        "fa3-call": "a compiled kernel; the 2d kernel stands in for it",
        "fa4-call": "a compiled kernel; the 2d kernel stands in for it",
    },
    "tiny-vllm-host": {"tiny-launch": "the host function stands beside the kernel, in paged.py"},
}


def found_in(files: tuple[str, ...]) -> set[str]:
    return {name for file in files for name in regions(ROOT / file)}


@pytest.mark.parametrize("port", REQUIRED)
def test_a_port_has_a_region_on_every_concept_of_the_map(port: str) -> None:
    files, wanted = REQUIRED[port]
    assert sorted(set(wanted.split()) - found_in(files)) == []


def test_every_file_with_regions_is_in_the_table() -> None:
    listed = {file for files, _ in REQUIRED.values() for file in files}
    fenced = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "kernels").rglob("*.py")
        if "# region:" in path.read_text("utf-8") and regions(path)
    }
    assert fenced <= listed, "type its concepts into REQUIRED, and name it in annotate/ideas.toml"


def test_the_table_names_concepts() -> None:
    assert {name for _, wanted in REQUIRED.values() for name in wanted.split()} <= set(concepts())


@pytest.mark.parametrize("kernel", [name for name, entry in tables().kernels.items() if entry.source and entry.ports])
def test_what_a_kernel_has_upstream_its_port_has_too(kernel: str) -> None:
    entry = tables().kernels[kernel]
    assert entry.source is not None
    upstream = {name for name, found in spans(entry.source).items() if any(map(entry.holds, found))}
    assert upstream
    assert upstream - found_in((*entry.ports, *entry.shared)) == set(NOT_PORTED.get(kernel, {}))
