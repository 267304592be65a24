"""The grids over the ops: vLLM's own test parameters, our stricter matrix, and a small one for the SIMT machine.

A group is a list of cases; a case has an `id` in its group, a `unit` (what must be compiled for it) and
`run(device) -> Outcome`. vLLM's parameters are facts from tests/kernels/attention/test_attention.py and test_cache.py
at 0.24.0, for one CUDA device that is no Blackwell; the tests here are our own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kernels.vllm.ops_attention_case import AttentionCase, Outcome
from kernels.vllm.ops_writer_case import SCALES, WriterCase

__all__ = ["Case", "Outcome", "all_groups", "groups", "small_groups"]

Case = AttentionCase | WriterCase
TITLES = {
    "vllm-attention": "vLLM's grid: paged attention v1 and v2",
    "vllm-reshape": "vLLM's grid: reshape_and_cache",
    "vllm-flash": "vLLM's grid: reshape_and_cache_flash",
    "attention": "Our matrix: paged attention v1 and v2",
    "reshape": "Our matrix: reshape_and_cache, bit for bit",
    "flash": "Our matrix: reshape_and_cache_flash, bit for bit",
    "big": "Long sequences, and caches beyond 2^31 elements",
    "small-attention": "Small shapes: paged attention v1 and v2",
    "small-reshape": "Small shapes: reshape_and_cache, bit for bit",
    "small-flash": "Small shapes: reshape_and_cache_flash, bit for bit",
}
"""What each group is, for the page."""

DTYPES = ("bfloat16", "float16", "float32")
CACHE_DTYPES = ("auto", "fp8", "fp8_e5m2")
BLOCK_SIZES = (8, 16, 32)
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256)
VERSIONS = ("v1", "v2")
PAIRS = ((2, 2), (4, 2), (8, 2), (16, 2), (40, 40))
"""Query and KV heads: 1:1, 2:1, 4:1, 8:1, and vLLM's 40."""
FLASH_LAYOUTS = ("apart", "NHD", "HND", "beside")

# vLLM's tests compare with torch.testing.assert_close: (atol, rtol), its own defaults where the test names none.
ATTENTION_TOLERANCE = {"auto": (1e-3, 1e-5), "fp8": (1e-2, 1e-5)}
FP8_WRITER_TOLERANCE = (1e-3, 0.1)
DEFAULT_TOLERANCE = {"bfloat16": (1e-5, 1.6e-2), "float32": (1e-5, 1.3e-6)}


def groups() -> dict[str, list[Case]]:
    """The grids for a GPU."""
    return {
        "vllm-attention": list(_vllm_attention()),
        "vllm-reshape": list(_vllm_reshape()),
        "vllm-flash": list(_vllm_flash()),
        "attention": list(_attention()),
        "reshape": list(_writers("reshape")),
        "flash": list(_writers("flash")),
        "big": list(_big()),
    }


def small_groups() -> dict[str, list[Case]]:
    """The grid for the SIMT machine: every dtype, cache dtype, block size, head size and version at least once."""
    return {
        "small-attention": list(_small_attention()),
        "small-reshape": list(_small_writers("reshape")),
        "small-flash": list(_small_writers("flash")),
    }


def all_groups(small: bool) -> dict[str, list[Case]]:
    """One or the other."""
    return small_groups() if small else groups()


def fits(kv_cache_dtype: str, head_size: int) -> bool:
    """Whether the classic layout takes this head size: a piece of 16 bytes lies in one head."""
    return kv_cache_dtype == "auto" or head_size % 16 == 0


def _vllm_attention() -> Iterator[Case]:
    for version, head_size, block_size, kind, pair, alibi in itertools.product(
        VERSIONS, (32, 80, 128, 256), (16, 32), ("auto", "fp8"), ((40, 40), (64, 8)), (False, True)
    ):
        yield AttentionCase(
            "vllm-attention", version, "bfloat16", kind, block_size, head_size, (pair,), (alibi,), longest=-1,
            inputs="vllm", tolerance=ATTENTION_TOLERANCE[kind], num_blocks=4321,
        )  # fmt: skip


def _vllm_reshape() -> Iterator[Case]:
    for dtype, kind, head_size, block_size, blocks in itertools.product(
        ("bfloat16", "float32"), ("auto", "fp8"), (64, 80, 256), (8, 16, 32), (1024, 10000)
    ):
        yield _vllm_writer("vllm-reshape", "reshape", dtype, kind, head_size, block_size, 8, blocks, 42)


def _vllm_flash() -> Iterator[Case]:
    """Half the blocks and tokens, as vLLM's test takes; and the case whose rows are not 16-byte aligned."""
    for dtype, kind, layout in itertools.product(("bfloat16", "float32"), ("auto", "fp8"), ("NHD", "HND")):
        for head_size, block_size, blocks, per in itertools.product(
            (64, 80, 256), (8, 16, 32), (1024 // 2, 10000 // 2), SCALES
        ):
            yield _vllm_writer(
                "vllm-flash", "flash", dtype, kind, head_size, block_size, 8, blocks, 42 // 2, layout, per
            )
        yield _vllm_writer("vllm-flash", "flash", dtype, kind, 46, 16, 13, 128 // 2, 42 // 2, layout)


def _vllm_writer(
    group: str, op: str, dtype: str, kind: str, head_size: int, block_size: int, heads: int, blocks: int, tokens: int,
    layout: str = "classic", per: str = "tensor",
) -> Case:  # fmt: skip
    return WriterCase(
        group, op, dtype, kind, head_size, (block_size,), (heads,), (layout,), (per,), blocks, tokens, "vllm",
        DEFAULT_TOLERANCE[dtype] if kind == "auto" else FP8_WRITER_TOLERANCE,
    )  # fmt: skip


def _attention() -> Iterator[Case]:
    for version, dtype, kind, block_size, head_size in itertools.product(
        VERSIONS, DTYPES, CACHE_DTYPES, BLOCK_SIZES, HEAD_SIZES
    ):
        edges = (0, 1, block_size - 1, block_size, block_size + 1, 511, 512, 513, 1023, 1024, 1025)
        if fits(kind, head_size):
            yield AttentionCase(
                "attention", version, dtype, kind, block_size, head_size, PAIRS, (False, True), edges
            )  # fmt: skip


def _writers(op: str) -> Iterator[Case]:
    """Ten heads or fewer: reshape_and_cache writes 512 pieces of 16 bytes a token and no more."""
    sizes = HEAD_SIZES if op == "reshape" else (*HEAD_SIZES, 46)
    layouts, scales = (("classic",), ("tensor",)) if op == "reshape" else (FLASH_LAYOUTS, SCALES)
    for dtype, kind, head_size in itertools.product(DTYPES, CACHE_DTYPES, sizes):
        if op == "flash" or fits(kind, head_size):
            yield WriterCase(op, op, dtype, kind, head_size, BLOCK_SIZES, (1, 3, 8), layouts, scales)


def _big() -> Iterator[Case]:
    kinds = [*((dtype, "auto") for dtype in DTYPES), ("bfloat16", "fp8"), ("float16", "fp8_e5m2")]
    for (version, longest), (dtype, kind) in itertools.product((("v1", -1), ("v2", 131_072)), kinds):
        yield AttentionCase("big", version, dtype, kind, 16, 128, ((8, 1),), lengths=(1000,), longest=longest)
    for version, kind in itertools.product(VERSIONS, ("auto", "fp8")):
        yield AttentionCase(
            "big", version, "bfloat16", kind, 16, 128, ((8, 8),), lengths=(1, 300, 1025), beyond=True
        )  # fmt: skip
    for kind in ("auto", "fp8"):
        yield WriterCase("big", "reshape", "bfloat16", kind, 128, (16,), (8,), beyond=True)
        yield WriterCase("big", "flash", "bfloat16", kind, 128, (16,), (8,), ("NHD",), beyond=True)


def _small_attention() -> Iterator[Case]:
    """Every specialisation once with a second block begun; then edges, shared KV heads and a second partition."""
    ways = itertools.product(VERSIONS, DTYPES, CACHE_DTYPES, BLOCK_SIZES, HEAD_SIZES)
    for number, (version, dtype, kind, block_size, head_size) in enumerate(ways):
        if fits(kind, head_size):
            yield AttentionCase(
                "small-attention", version, dtype, kind, block_size, head_size, ((1, 1),), (number % 2 == 1,),
                (block_size + 1,),
            )  # fmt: skip
    for version, (dtype, kind) in itertools.product(VERSIONS, (("float32", "auto"), ("bfloat16", "fp8"))):
        for pair in ((2, 1), (4, 2), (8, 1)):
            yield AttentionCase(
                "small-attention", version, dtype, kind, 8, 32, (pair,), (pair == (4, 2),), (0, 1, 7, 8, 9)
            )  # fmt: skip
    for version, dtype in itertools.product(VERSIONS, ("float32", "bfloat16")):
        yield AttentionCase("small-attention", version, dtype, "auto", 32, 32, ((2, 2),), (True,), (512, 513))


def _small_writers(op: str) -> Iterator[Case]:
    layouts, scales = (("classic",), ("tensor",)) if op == "reshape" else (FLASH_LAYOUTS, SCALES)
    for number, (dtype, kind) in enumerate(itertools.product(DTYPES, CACHE_DTYPES)):
        head_size = (32, 80, 46)[number % 3] if op == "flash" else (32, 80, 112)[number % 3]
        yield WriterCase(
            f"small-{op}", op, dtype, kind, head_size, (BLOCK_SIZES[number % 3],), (2,), layouts, scales, 3, 9
        )  # fmt: skip
