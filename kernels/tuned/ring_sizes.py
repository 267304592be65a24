"""What the ring kernel's template parameters come to: sizes, places in shared memory, products for its dtype."""

from __future__ import annotations

from typing import Any

from kernels.ptx import halves_e4m3, halves_e5m2, mma_bf16, mma_f16, pack_bf16, pack_f16

TILE = 8
"""Columns of a tensor-core product: query heads, times the tokens asked for at once."""
MOST_COLUMNS = 2 * TILE


def tiles(group: int, query_len: int = 1) -> int:
    """Products side by side that hold `group * query_len` columns."""
    return -(-group * query_len // TILE)


def block_bytes(head_size: int, block_size: int, itemsize: int) -> int:
    """Bytes of the keys and values of one KV block and KV head."""
    return 2 * head_size * block_size * itemsize


def exchange_bytes(head_size: int, block_size: int, itemsize: int, columns: int, warps: int, depth: int) -> int:
    """Bytes of the rings, or of the warps' outputs at the end, which take their place: whole 8 bytes.

    A column's output has four elements to spare, so that the columns that lanes write at once lie in different banks.
    """
    rings = warps * depth * block_bytes(head_size, block_size, itemsize)
    return max(rings, warps * columns * (head_size + 4) * 4)


def shared_bytes(head_size: int, block_size: int, itemsize: int, columns: int, warps: int, depth: int) -> int:
    """Bytes of dynamic shared memory: rings, barriers, and a few numbers that the warps tell each other.

    Barriers lie behind the rings, not in an array of their own: that would come first, and the rings would no longer
    begin on 128 bytes.
    """
    notes = (2 * warps + 1) * columns + 2
    return exchange_bytes(head_size, block_size, itemsize, columns, warps, depth) + 8 * warps * depth + 4 * notes


def constexpr(
    HEAD_SIZE: int, BLOCK_SIZE: int, GROUP: int, QUERY_LEN: int, WARPS: int, DEPTH: int, SCALAR: str, CACHE: str,
    ALIBI: bool, LISTED: bool,
) -> dict[str, Any]:  # fmt: skip
    """`SCALAR`: bfloat16 or float16, of queries and output. `CACHE`: auto, fp8_e4m3 or fp8_e5m2.

    An fp8 code is widened to float16, which holds each of them, and so are the weights.
    """
    fp8 = CACHE != "auto"
    itemsize = 1 if fp8 else 2
    wide = SCALAR == "bfloat16"
    columns = TILE * tiles(GROUP, QUERY_LEN)
    half = HEAD_SIZE * BLOCK_SIZE * itemsize // 2
    exchange = exchange_bytes(HEAD_SIZE, BLOCK_SIZE, itemsize, columns, WARPS, DEPTH)
    notes = (exchange + 8 * WARPS * DEPTH) // 4
    return {
        "FP8": fp8,
        "BFLOAT16": wide,
        "mma": mma_bf16 if wide and not fp8 else mma_f16,
        "pack": pack_bf16 if wide and not fp8 else pack_f16,
        "pack_out": pack_bf16 if wide else pack_f16,
        "halves": halves_e5m2 if CACHE == "fp8_e5m2" else halves_e4m3,
        "TILES": columns // TILE,
        "COLUMNS": columns,
        "USED": GROUP * QUERY_LEN,
        "STEPS": HEAD_SIZE // 16,
        "LOADS": HEAD_SIZE * itemsize // 32,
        "HALVES": 2 // itemsize,
        "Q_LANE": 4 if fp8 else 2,
        "Q_NEXT": 2 if fp8 else 8,
        "PIECES": BLOCK_SIZE // 16,
        "V_PIECE": 8 * itemsize,
        "HALF": half,
        "STAGE": 2 * half,
        "RING": 2 * half * DEPTH,
        "BARRIERS": exchange // 8,
        "PITCH": HEAD_SIZE + 4,
        "MAXIMA": notes,
        "TOTALS": notes + WARPS * columns,
        "TOPS": notes + 2 * WARPS * columns,
        "TURN": notes + (2 * WARPS + 1) * columns,
    }
