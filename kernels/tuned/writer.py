"""The cache writer, tuned: 16 bytes of a key at once, and values turned in registers so that neighbours go together.

A token's key lies in the cache in pieces of 16 bytes: eight head elements. Its values lie apart, one a row, and beside
them those of the tokens in the slots before and after. So a warp takes up to sixteen tokens that fill one KV block, and
32 head elements of each: it reads them as eight 8 by 8 matrices and turns those with `movmatrix`. Then a lane holds one
element of four tokens, which are 8 bytes of a row. Slots that are no neighbours are written one by one.

All heads are written: vLLM's own writer stops at 512 pieces of a token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint16

from kernels.kernel import Backend, kernel
from kernels.ptx import read_words_x4, store_words_x2, store_words_x4, transpose_8x8
from kernels.tuned.call import Launch
from kernels.unroll import registers, unroll, unrolled
from kernels.vllm import check
from kernels.vllm.dtypes import conversions, copy_auto, one_scale
from kernels.vllm.strided import address, flat, on_gpu, strides

FULL = 0xFFFFFFFF
TOKENS = 16
"""Tokens that a warp takes at once."""
WARPS = 4
"""Of a thread block: they share out the elements of the same tokens."""
ENOUGH = 2048
"""Thread blocks that a launch is cut into at least, if there is work for so many warps."""
WORTH = 4
"""Tokens in a row from which a run is written on its own, in line with its block."""
THREADS = 256
"""Of a thread block of the plain writer."""


def _constexpr(BLOCK_SIZE: int) -> dict[str, Any]:
    return {"UNIT": math.gcd(BLOCK_SIZE, TOKENS)}


# Template parameters: `specialise` puts the real values in their place.
BLOCK_SIZE = UNIT = 16
KV_AUTO = True
convert = copy_auto


@kernel(_constexpr)
def reshape_and_cache_turned(
    key,  # [num_tokens, WIDTH] 16-bit codes; WIDTH: num_heads * head_size
    value,  # [num_tokens, WIDTH] 16-bit codes
    key_cache,  # [num_blocks, WIDTH / 8, BLOCK_SIZE, 8] 16-bit codes
    value_cache,  # [num_blocks, WIDTH, BLOCK_SIZE] 16-bit codes
    slot_mapping,  # [num_tokens] int64
    key_stride,
    value_stride,
    width,
    num_tokens,
):
    """One warp: 16 tokens and every so many 32 elements; grid (windows of 16 tokens, parts of their elements)."""
    thread = int32(cuda.threadIdx.x)
    lane = int32(thread % 32)
    g = int32(lane // 4)
    t = int32(lane % 4)

    elements = int32(width)
    begin = int32((cuda.blockIdx.y * WARPS + thread // 32) * 32)
    step = int32(cuda.gridDim.y * WARPS * 32)
    if begin >= elements:
        return

    # Each lane looks at one token of this window of 16 or the next. A token leads a run if its slot does not follow the
    # one before, or begins a line of the block. Whoever has the leader has the run: it may end in the next window.
    start = int64(cuda.blockIdx.x) * TOKENS
    inside = int32(min(num_tokens - start, 32))
    slot = int32(-1)
    if lane < inside:
        slot = int32(max(slot_mapping[start + lane], -1))
    before = cuda.shfl_up_sync(FULL, slot, 1)
    if lane == 0:
        before = int32(-1)
        if start > 0:
            before = int32(max(slot_mapping[start - 1], -1))
    # region: slot-split
    follows = slot == before + 1 and slot & (UNIT - 1) != 0
    leaders = int64(cuda.ballot_sync(FULL, not follows)) & FULL
    at = int32(cuda.ffs(leaders) - 1)
    end = min(int32(cuda.ffs(leaders >> TOKENS) + TOKENS - 1), inside)
    # endregion

    words = registers(16)
    slots = registers(4)
    while at < end:
        count = int32(cuda.ffs(leaders >> (at + 1)))
        skip = int32(cuda.shfl_sync(FULL, slot, at) & (UNIT - 1))
        if count < WORTH:
            # Strangers: as they come.
            count = min(int32(TOKENS), int32(end - at))
            skip = int32(0)

        # Place p of the warp's 16 is token at + p - skip. Row g of the first matrices is place 4 (g / 2) + g % 2, and
        # of the second that plus 2: turned, words t of both are places 4t to 4t + 3.
        first = int32(4 * (g // 2) + g % 2 - skip)
        slot0 = cuda.shfl_sync(FULL, slot, (at + first) & 31)
        slot1 = cuda.shfl_sync(FULL, slot, (at + first + 2) & 31)
        if first < 0 or first >= count:
            slot0 = int32(-1)
        if first + 2 < 0 or first + 2 >= count:
            slot1 = int32(-1)
        # A lane without a token reads what another reads too.
        token0 = start + (at + first if slot0 >= 0 else at)
        token1 = start + (at + first + 2 if slot1 >= 0 else at)
        key0 = token0 * key_stride
        key1 = token1 * key_stride
        value0 = token0 * value_stride
        value1 = token1 * value_stride
        to0 = int64(slot0 // BLOCK_SIZE) * BLOCK_SIZE * width + slot0 % BLOCK_SIZE * 8
        to1 = int64(slot1 // BLOCK_SIZE) * BLOCK_SIZE * width + slot1 % BLOCK_SIZE * 8
        # What a lane has after the turn goes together, or apart, or is nothing.
        for k in unrolled(4):
            slots[k] = cuda.shfl_sync(FULL, slot, (at + 4 * t + k - skip) & 31)
            if 4 * t + k < skip or 4 * t + k - skip >= count:
                slots[k] = int32(-1)
        together = slots[0] >= 0 and slots[0] & 3 == 0
        for k in unrolled(3):
            together = together and slots[k + 1] == slots[0] + k + 1
        to_values = int64(slots[0] // BLOCK_SIZE) * BLOCK_SIZE * width + slots[0] % BLOCK_SIZE
        apart = not together and max(max(slots[0], slots[1]), max(slots[2], slots[3])) >= 0
        rough = cuda.any_sync(FULL, apart)

        # region: head-of-thread
        for part in range(begin, elements, step):
            element = int32(part + 8 * t)
            from_element = min(element, int32(elements - 8))
            # endregion
            # region: k-source
            words[0], words[1], words[2], words[3] = read_words_x4(key, key0 + from_element)
            words[4], words[5], words[6], words[7] = read_words_x4(key, key1 + from_element)
            # endregion
            words[8], words[9], words[10], words[11] = read_words_x4(value, value0 + from_element)
            words[12], words[13], words[14], words[15] = read_words_x4(value, value1 + from_element)
            if element < elements:
                # region: k-store
                to_element = int32(element * BLOCK_SIZE)
                if slot0 >= 0:
                    store_words_x4(key_cache, to0 + to_element, words[0], words[1], words[2], words[3])
                if slot1 >= 0:
                    store_words_x4(key_cache, to1 + to_element, words[4], words[5], words[6], words[7])
                # endregion
            # region: v-store
            for number in unrolled(4):
                words[8 + number] = transpose_8x8(words[8 + number])
                words[12 + number] = transpose_8x8(words[12 + number])
                row = int32(part + 8 * (g // 2) + 2 * number + g % 2)
                if together and row < elements:
                    to_row = to_values + int32(row * BLOCK_SIZE)
                    store_words_x2(value_cache, to_row, words[8 + number], words[12 + number])
            if rough:
                for k in unrolled(4):
                    # Asked for again: four slots in registers would cost the smooth way warps.
                    home = cuda.shfl_sync(FULL, slot, (at + 4 * t + k - skip) & 31)
                    if apart and skip <= 4 * t + k and 4 * t + k - skip < count and home >= 0:
                        for number in unrolled(4):
                            row = int32(part + 8 * (g // 2) + 2 * number + g % 2)
                            if row < elements:
                                place = (int64(home // BLOCK_SIZE) * width + row) * BLOCK_SIZE + home % BLOCK_SIZE
                                code = words[8 + 4 * (k // 2) + number] >> (16 * (k % 2))
                                value_cache[place] = uint16(code & 0xFFFF)
            # endregion
        at = int32(at + count)


@kernel(lambda dtype, kv_cache_dtype: conversions(dtype, kv_cache_dtype))
def reshape_and_cache_plain(
    key,  # [num_tokens, num_heads, head_size] scalar_t
    value,  # [num_tokens, num_heads, head_size] scalar_t
    key_cache,  # [num_blocks, num_heads, head_size/x, block_size, x] cache_t
    value_cache,  # [num_blocks, num_heads, head_size, block_size] cache_t
    slot_mapping,  # [num_tokens] int64
    key_stride,
    value_stride,
    width,  # num_heads * head_size
    block_size,
    x,
    k_scale,  # [1] float32; not read where the cache keeps the elements as they are
    v_scale,  # [1] float32
):
    """One thread block: a token; a thread for each (head, x-group), and again until all are done."""
    token = int64(cuda.blockIdx.x)
    slot = slot_mapping[token]
    if slot < 0:
        return
    block = slot // block_size
    offset = slot % block_size
    k_scale_val = float32(0) if KV_AUTO else k_scale[0]
    v_scale_val = float32(0) if KV_AUTO else v_scale[0]
    for group in range(cuda.threadIdx.x, width // x, cuda.blockDim.x):
        k_at = (block * (width // x) + group) * block_size * x + offset * x
        v_at = (block * width + group * x) * block_size + offset
        for i in range(x):
            key_cache[k_at + i] = convert(key[token * key_stride + group * x + i], k_scale_val)
            value_cache[v_at + i * block_size] = convert(value[token * value_stride + group * x + i], v_scale_val)


def reshape_and_cache(
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    slot_mapping: Any,
    kv_cache_dtype: str = "auto",
    k_scale: Any = None,
    v_scale: Any = None,
    *,
    backend: str | Backend = "sim",
) -> None:
    """Write each token's key and value into the slot that `slot_mapping` gives; negative slots are skipped.

    The arguments are those of `kernels.vllm.cache.reshape_and_cache`. Of two tokens with one slot either may win, for
    each element apart, as in vLLM. Raises ArgumentError, LaunchError.
    """
    for launch in launches(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
        launch.run(backend)


def launches(
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    slot_mapping: Any,
    kv_cache_dtype: str = "auto",
    k_scale: Any = None,
    v_scale: Any = None,
) -> tuple[Launch, ...]:
    """The launches of a call: one, or none where there are no slots. Raises ArgumentError.

    Elements of 16 bits that stay as they are, in blocks of a multiple of 4, are turned. What is converted, or lies at
    no multiple of 16 bytes, or has 4 bytes, is written plainly.
    """
    k_scale, v_scale = one_scale(k_scale), one_scale(v_scale)
    check.write(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale)
    num_tokens, width = len(slot_mapping), key.shape[1] * key.shape[2]
    if num_tokens == 0 or width == 0:
        return ()
    block_size, x, steps = key_cache.shape[3], key_cache.shape[4], (strides(key)[0], strides(value)[0])
    arrays = [flat(array) for array in (key, value, key_cache, value_cache)]
    same = kv_cache_dtype == "auto" and key.dtype.itemsize == 2
    if same and countable(key_cache.shape[0], block_size) and _aligned(arrays, steps):
        made = unroll(reshape_and_cache_turned, BLOCK_SIZE=block_size)
        windows, most = -(-num_tokens // TOKENS), -(-width // (32 * WARPS))
        grid = (windows, min(most, -(-ENOUGH // windows)), 1)
        codes = [array.view(np.uint16) for array in arrays]
        return (Launch(made, grid, 32 * WARPS, (*codes, slot_mapping, *steps, width, num_tokens)),)
    made = reshape_and_cache_plain.specialise(dtype=str(key.dtype), kv_cache_dtype=kv_cache_dtype)
    # On a GPU, scales from the host that nobody reads would have to be copied there.
    scales = (arrays[0], arrays[0]) if kv_cache_dtype == "auto" else (k_scale, v_scale)
    args = (*arrays, slot_mapping, *steps, width, block_size, x, *scales)
    return (Launch(made, (num_tokens, 1, 1), min(THREADS, width // x), args),)


def countable(num_blocks: int, block_size: int) -> bool:
    """Whether a cache is one for `reshape_and_cache_turned`: four places go together, and slots have 32 bits."""
    return block_size % 4 == 0 and num_blocks * block_size < 2**31


def _aligned(arrays: list[Any], steps: tuple[int, int]) -> bool:
    """Whether every token's row begins on 16 bytes; on the SIMT machine an array itself does."""
    return all(step % 8 == 0 for step in steps) and not any(on_gpu(each) and address(each) % 16 for each in arrays)
