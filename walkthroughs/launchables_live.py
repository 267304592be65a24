"""The named small cases of what vLLM runs today: the 2d kernel, the slots, the side-by-side cache, the block copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from walkthroughs.launchables import Case, Launchable, Outputs, _of

if TYPE_CHECKING:
    from kernels.kernel import Backend


def _paged_2d() -> Launchable:
    from kernels.cases import DecodeCase, decode_case
    from kernels.vllm.paged_2d import paged_attention_2d

    def attend(name: str, title: str, make: Callable[[], DecodeCase], **options: Any) -> Case:
        def run(backend: Backend) -> Outputs:
            case = make()
            output = np.full(case.q.shape, np.nan, case.q.dtype)
            paged_attention_2d(
                output, case.q, case.k_cache, case.v_cache, case.block_tables, case.seq_lens, sm_scale=case.scale,
                alibi_slopes=case.alibi_slopes, backend=backend, **options,
            )  # fmt: skip
            return {"output": output}

        return Case(name, title, run)

    return _of(
        "paged-2d",
        "The block-wise decode kernel of vLLM 0.26.0: one pass, a running maximum.",
        "kernels/vllm/paged_2d.py",
        attend(
            "small",
            "one sequence of 20 tokens, 2 query heads on 1 KV head of 32, blocks of 16, float32",
            lambda: decode_case([20], 2, 1, 32, 16, seed=3),
        ),
        attend(
            "window",
            "two sequences of 33 and 9 tokens, 3 query heads on 1 KV head of 32, a window of 12, blocks of 8, float16",
            lambda: decode_case([33, 9], 3, 1, 32, 8, dtype="float16", seed=4),
            sliding_window=12,
        ),
        attend(
            "odd-blocks",
            "one sequence of 50 tokens, 2 heads of 32 with ALiBi slopes, blocks of 24 in tiles of 32, float32",
            lambda: decode_case([50], 2, 2, 32, 24, seed=5, alibi=True),
        ),
        attend(
            "unified",
            "one sequence of 40 tokens, 2 query heads on 1 KV head of 32, a window of 10, as in the unified kernel",
            lambda: decode_case([40], 2, 1, 32, 16, seed=6),
            sliding_window=10,
            unified=True,
        ),
    )


def _gather_kv() -> Launchable:
    from kernels.vllm.flash_layout import Memory, allocate, gather_kv

    def copy(memory: Memory) -> Case:
        def run(backend: Backend) -> Outputs:
            cache = allocate(3, 16, 2, 32, "float16", memory)
            cache[:] = np.random.default_rng(7).standard_normal(cache.shape)
            key, value = (np.full((20, 2, 32), np.nan, np.float16) for _ in range(2))
            gather_kv(key, value, cache, np.array([2, 0], np.int32), backend=backend)
            return {"key": key, "value": value}

        return Case(memory.lower(), f"20 tokens, 2 KV heads of 32, {memory} memory, float16", run)

    title = "Keys and values of one sequence out of the side-by-side cache."
    return _of("gather-kv", title, "kernels/vllm/flash_layout.py", copy("NHD"), copy("HND"))


def _slot_mapping() -> Launchable:
    from kernels.vllm.slot_mapping import compute_slot_mapping

    def run(backend: Backend) -> Outputs:
        slots = np.full(12, -77, np.int64)
        starts, table = np.array([0, 3, 7], np.int32), np.array([[5, 2], [1, 7]], np.int32)
        compute_slot_mapping(slots, starts, np.array([14, 15, 16, 0, 1, 2, 3]), table, 16, backend=backend)
        return {"slot_mapping": slots}

    case = Case("small", "two requests with 3 and 4 new tokens, padded to 12", run)
    return _of("slot-mapping", "From positions to slots.", "kernels/vllm/slot_mapping.py", case)


def _copy_blocks() -> Launchable:
    from kernels.vllm.copy_blocks import copy_blocks

    def run(backend: Backend) -> Outputs:
        k_pool, v_pool = np.random.default_rng(8).standard_normal((2, 4, 4, 4))
        copy_blocks(k_pool, v_pool, np.array([[1, 2], [1, 3]]), backend=backend)
        return {"key_cache": k_pool, "value_cache": v_pool}

    case = Case("small", "one block of 4 tokens copied to two others", run)
    return _of("copy-blocks", "Whole blocks, copied inside the cache.", "kernels/vllm/copy_blocks.py", case)


MAKERS: dict[str, Callable[[], Launchable]] = {
    "paged-2d": _paged_2d,
    "slot-mapping": _slot_mapping,
    "gather-kv": _gather_kv,
    "copy-blocks": _copy_blocks,
}
