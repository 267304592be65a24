"""What the tensor-core rung's template parameters come to: sizes, places in shared memory, products for its dtype."""

from __future__ import annotations

from typing import Any

from kernels.ptx import mma_bf16, mma_f16, pack_bf16, pack_f16

ROWS = 16
"""Queries that a product has rows for."""
TOKENS = 16
"""Tokens that a warp takes in one turn."""
MOST_WARPS = 8
"""Of a thread block: 244 registers a thread leave room for no more."""
FORMATS = {"bfloat16": (mma_bf16, pack_bf16), "float16": (mma_f16, pack_f16)}


def constexpr(
    HEAD_SIZE: int, BLOCK_SIZE: int, GROUP: int, FORMAT: str, WARPS: int, ALIBI: bool = False
) -> dict[str, Any]:
    """What follows from the template parameters. `FORMAT`: bfloat16 or float16."""
    product, pack = FORMATS[FORMAT]
    halves = -(-GROUP // 8)
    pitch = HEAD_SIZE + 4
    return {
        "mma": product,
        "pack": pack,
        "HALVES": halves,
        "TWO_HALVES": halves == 2,
        # Above it the keys of a turn and the values of the one before do not fit into the registers together.
        "LATE": HEAD_SIZE > 128,
        "EARLY": HEAD_SIZE <= 128,
        "CHUNKS": HEAD_SIZE // 32,
        "QUERY_WORDS": 2 * HEAD_SIZE // 16,
        "TILES": HEAD_SIZE // 16,
        "WORDS": HEAD_SIZE // 4,
        "SUMS": halves * HEAD_SIZE // 4,
        "PIECES": BLOCK_SIZE // TOKENS,
        "STEP": WARPS // (BLOCK_SIZE // TOKENS),
        "BLOCK_ELEMENTS": HEAD_SIZE * BLOCK_SIZE,
        "THREADS": 32 * WARPS,
        "PITCH": pitch,
        "SHARE": 8 * halves * pitch,
        "MAXIMA": WARPS * 8 * halves * pitch,
        "TOTALS": WARPS * 8 * halves * (pitch + 1),
    }


def shared_bytes(head_size: int, group: int, warps: int) -> int:
    """Bytes of dynamic shared memory: what the warps tell each other at the end."""
    return warps * 8 * -(-group // 8) * (head_size + 6) * 4
