"""A piece: the 16 bytes that one load brings, eight 16-bit numbers in four words. Rungs 3 to 6 are made of pieces.

A warp takes a tile at a time: 16 tokens of a KV block and head, or 8 where blocks have 8. It is shared out so:

    K [HEAD_SIZE / 8 pieces, 16 tokens]: lane l takes token l % 16, and of its key the pieces l / 16, l / 16 + 2, ...
    V [HEAD_SIZE rows, 2 pieces]: lane l takes piece l % 2, of the rows l / 2, l / 2 + 16, ...

In blocks of 16 the 32 lanes read 512 neighbouring bytes either way. A piece stays four words until it is multiplied:
unpacked, it would take eight registers. Sums are float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int16, int32, int64, uint32
from numba.cuda import libdevice, types
from numba.cuda.extending import intrinsic

from kernels.errors import ArgumentError
from kernels.kernel import device
from kernels.ptx import pack_bf16, pack_f16
from kernels.tuned.call import Decode, Zeros
from kernels.vllm.strided import address, flat, on_gpu

ELEMENTS, WORDS = 8, 4
"""Of a piece."""
SHARED = 3  # the address space of shared memory


def lanes(HEAD_SIZE: int, BLOCK_SIZE: int) -> dict[str, int]:
    """How a warp shares out a tile, as constants of a kernel. Distances count words.

    TILE: its tokens; TILES: of a block. PIECES: of a key. K_LANES: lanes of a token. K_LOADS: pieces that a lane
    reads: K_WHOLE of them every lane has, one more only those below K_REST. V_LANES: lanes of a row. V_ROWS: rows of
    one load of the warp; V_LOADS, V_WHOLE, V_REST: as for K. K_STEP, V_STEP: from one load of a lane to its next.
    """
    tile = min(BLOCK_SIZE, 16)
    k_lanes, v_lanes = 32 // tile, tile // ELEMENTS
    pieces, rows = HEAD_SIZE // ELEMENTS, 32 // v_lanes
    return {
        "TILE": tile,
        "TILES": BLOCK_SIZE // tile,
        "PIECES": pieces,
        "K_LANES": k_lanes,
        "K_LOADS": -(-pieces // k_lanes),
        "K_WHOLE": pieces // k_lanes,
        "K_REST": pieces % k_lanes,
        "K_STEP": k_lanes * BLOCK_SIZE * WORDS,
        "K_FOLDS": k_lanes.bit_length() - 1,
        "V_LANES": v_lanes,
        "V_ROWS": rows,
        "V_LOADS": -(-HEAD_SIZE // rows),
        "V_WHOLE": HEAD_SIZE // rows,
        "V_REST": HEAD_SIZE % rows,
        "V_STEP": rows * BLOCK_SIZE // 2,
        "V_FOLDS": v_lanes.bit_length() - 1,
        "BLOCK_WORDS": HEAD_SIZE * BLOCK_SIZE // 2,
        "TOKEN_FOLDS": tile.bit_length() - 1,
    }


def heads_at_once(group: int, most: int) -> int:
    """The largest number of query heads, `most` or fewer, that divides a group: those of one thread block."""
    return max(count for count in range(1, max(1, min(group, most)) + 1) if group % count == 0)


def words(name: str, array: Any) -> Any:
    """An array of 16-bit numbers as a row of words; raises ArgumentError where it does not begin on 16 bytes."""
    if on_gpu(array) and address(array) % 16:
        raise ArgumentError(name, hex(address(array)), "must begin on a multiple of 16 bytes: what one load brings")
    return flat(array).view(np.uint32)


def codes(array: Any) -> Any:
    """An array of 16-bit numbers as a row of their codes."""
    return flat(array).view(np.uint16)


def refuse(call: Decode) -> None:
    """Refuse what rungs of pieces do not take; raises ArgumentError."""
    call.need("kv_cache_dtype", call.kv_cache_dtype, call.kv_cache_dtype == "auto", "must be auto: 16-bit caches only")
    call.need("query_len", call.query_len, call.query_len == 1, "must be 1")
    size, block = call.head_size, call.block_size
    call.need("head_size", size, size % 8 == 0 and size <= 256, "must be a multiple of 8 up to 256")
    call.need("block_size", block, block in (8, 16, 32), "must be 8, 16 or 32")


def slopes(call: Decode, zeros: Zeros) -> Any:
    """The slopes of a call, or one that nobody reads."""
    return zeros(1, np.float32) if call.alibi_slopes is None else call.alibi_slopes


# The two numbers of a word, as float32. The first is its low half.


@device
def low_bfloat16(word):
    """The first bfloat16: the same bits with sixteen zeros below."""
    return libdevice.int_as_float(int32(int64(word) << 16))


@device
def high_bfloat16(word):
    """The second bfloat16."""
    return libdevice.int_as_float(int32(int64(word) & -65536))


@device
def low_float16(word):
    """The first float16."""
    return libdevice.half2float(int16(int64(word)))


@device
def high_float16(word):
    """The second float16."""
    return libdevice.half2float(int16(int64(word) >> 16))


# Template parameters: `specialise` puts the real values in their place.
low, high = low_bfloat16, high_bfloat16
FORMATS = {
    "bfloat16": {"low": low_bfloat16, "high": high_bfloat16, "pack": pack_bf16},
    "float16": {"low": low_float16, "high": high_float16, "pack": pack_f16},
}
"""What a kernel calls `low`, `high` and `pack`, by number format."""


@device
def widen(piece):
    """The eight numbers of a piece."""
    a, b, c, d = piece
    return low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)


@device
def dot8(total, eight, first, second):
    """`total` and the dot product of eight numbers with eight others, which come as two fours."""
    a0, a1, a2, a3, a4, a5, a6, a7 = eight
    b0, b1, b2, b3 = first
    b4, b5, b6, b7 = second
    total = libdevice.fmaf_rn(a0, b0, total)
    total = libdevice.fmaf_rn(a1, b1, total)
    total = libdevice.fmaf_rn(a2, b2, total)
    total = libdevice.fmaf_rn(a3, b3, total)
    total = libdevice.fmaf_rn(a4, b4, total)
    total = libdevice.fmaf_rn(a5, b5, total)
    total = libdevice.fmaf_rn(a6, b6, total)
    return libdevice.fmaf_rn(a7, b7, total)


@device
def dot2(total, a0, b0, a1, b1):
    """`total` and two products."""
    return libdevice.fmaf_rn(a1, b1, libdevice.fmaf_rn(a0, b0, total))


@device
def keep(piece, count):
    """The piece with zeros behind its first `count` numbers, whatever was there."""
    a, b, c, d = piece
    return keep_word(a, count), keep_word(b, count - 2), keep_word(c, count - 4), keep_word(d, count - 6)


@device
def keep_word(word, count):
    """The word, its first number alone, or zero, as `count` is two or more, one, or none."""
    return word if count >= 2 else uint32(int64(word) & 0xFFFF) if count == 1 else uint32(0)


def _shared_load4(_typing: Any, array: Any, index: Any) -> Any:
    """A device function `(shared float32 array, index)`: four neighbours by one `ld.shared.v4.f32`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        word = ir.IntType(32)
        start = builder.ptrtoint(builder.addrspacecast(data, ir.PointerType(data.type.pointee, SHARED)), word)
        at = builder.add(start, builder.mul(builder.trunc(args[1], word), ir.Constant(word, 4)))
        four = ir.FunctionType(ir.LiteralStructType([ir.FloatType()] * 4), [word])
        # With a side effect, or it would be taken out of the loop, and all queries would want registers at once.
        asm = ir.InlineAsm(
            four, "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r,~{memory}", side_effect=True
        )
        loaded = builder.call(asm, [at])
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_value(loaded, number) for number in range(4)]
        )

    return types.UniTuple(types.float32, 4)(array, types.int64), codegen


shared_load4: Any = intrinsic(_shared_load4)
shared_load4.vector_count = 4  # by this the SIMT machine knows it
