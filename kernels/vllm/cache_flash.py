"""vLLM's cache writer for the FlashAttention layout: a token's elements of one head stay together.

A port of `reshape_and_cache_flash_kernel`, of the copy it uses and of its host code at vLLM 0.26.0. Strides are
arguments, so one kernel serves every memory order of the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import cuda, float32, int64
from numpy.lib.stride_tricks import as_strided

from kernels import layout
from kernels.kernel import Backend, device, kernel
from kernels.vllm import check_flash
from kernels.vllm.dtypes import conversions, copy_auto, one_scale
from kernels.vllm.strided import address, flat, on_gpu, strides

WARP_SIZE = 32
# Template parameters and what follows from them: `specialise` puts the real values in their place.
VEC_SIZE = IN_SIZE = OUT_SIZE = WIDTH = OUT_WIDTH = 1
KV_AUTO = True
convert = copy_auto


def constexpr(*, dtype: str, kv_cache_dtype: str) -> dict[str, Any]:
    """What the C++ knows at compile time: element sizes, vector sizes, and which conversion to make."""
    in_size = np.dtype(dtype).itemsize
    auto = kv_cache_dtype == "auto"
    out_size = in_size if auto else 1
    vec_size = 8 if in_size == 2 else 4
    return {
        "VEC_SIZE": vec_size,
        "IN_SIZE": in_size,
        "OUT_SIZE": out_size,
        "WIDTH": vec_size * in_size,
        "OUT_WIDTH": vec_size * out_size,
        **conversions(dtype, kv_cache_dtype),
    }


# region: aligned-copy
@device
def vectorize_with_alignment(src, src_at, src_line, dst, dst_at, dst_line, len, tid, stride, scale):
    """Copy `len` elements with `stride` threads, by vectors of VEC_SIZE where both addresses allow it.

    `src_line`, `dst_line`: how many bytes the arrays start behind a 16-byte line; Numba has no addresses.
    """
    addr = src_line + src_at * IN_SIZE
    out_addr = dst_line + dst_at * OUT_SIZE

    # Both sides: a cache row starts where head sizes put it, whatever the source does.
    if addr % WIDTH == 0 and out_addr % OUT_WIDTH == 0 and len % VEC_SIZE == 0:
        num_vec = len // VEC_SIZE
        for i in range(tid, num_vec, stride):
            # One load and one store in the C++; Numba moves the elements one by one.
            for e in range(VEC_SIZE):
                dst[dst_at + i * VEC_SIZE + e] = convert(src[src_at + i * VEC_SIZE + e], scale)
        return

    prefix_elems = min((WIDTH - addr % WIDTH) % WIDTH // IN_SIZE, len)
    if (out_addr + prefix_elems * OUT_SIZE) % OUT_WIDTH != 0:
        # What aligns the source does not align the target: no vectors at all.
        for i in range(tid, len, stride):
            dst[dst_at + i] = convert(src[src_at + i], scale)
        return

    for i in range(tid, prefix_elems, stride):
        dst[dst_at + i] = convert(src[src_at + i], scale)
    src_at += prefix_elems
    dst_at += prefix_elems
    len -= prefix_elems

    num_vec = len // VEC_SIZE
    for i in range(tid, num_vec, stride):
        for e in range(VEC_SIZE):
            dst[dst_at + i * VEC_SIZE + e] = convert(src[src_at + i * VEC_SIZE + e], scale)

    tail_start = num_vec * VEC_SIZE
    for i in range(tid + tail_start, len, stride):
        dst[dst_at + i] = convert(src[src_at + i], scale)


# endregion


# region: reshape-and-cache-flash
@kernel(constexpr)
def reshape_and_cache_flash_kernel(
    key,  # [num_tokens, num_heads, head_size] scalar_t
    value,  # [num_tokens, num_heads, head_size] scalar_t
    key_cache,  # [num_blocks, block_size, num_heads, head_size] cache_t, at the strides given
    value_cache,  # the same
    slot_mapping,  # [num_tokens] int64
    block_stride,
    page_stride,
    head_stride,
    key_stride,
    value_stride,
    num_heads,
    head_size,
    block_size,
    k_scale,  # [1] or [num_heads] float32
    v_scale,  # [1] or [num_heads] float32
    kv_scale_stride,
    key_line,
    value_line,
    key_cache_line,
    value_cache_line,
):
    """Write one token's key and value: grid (num_tokens), arrays flat from each pointer's place on.

    The last four arguments are ours: bytes that each pointer stands behind a 16-byte line.
    """
    # region: flash-slot
    token_idx = int64(cuda.blockIdx.x)
    slot_idx = slot_mapping[token_idx]
    if slot_idx < 0:
        # Padding: nothing else is read for this token.
        return
    block_idx = slot_idx // block_size
    block_offset = slot_idx % block_size
    # endregion
    n_elems = num_heads * head_size

    # region: flash-source
    key_src = token_idx * key_stride
    value_src = token_idx * value_stride
    # endregion

    # region: flash-target
    # The same distances for both caches: the host compares their strides.
    key_dst = block_idx * block_stride + block_offset * page_stride
    value_dst = block_idx * block_stride + block_offset * page_stride
    # endregion

    # region: flash-one-run
    is_contiguous_heads = head_stride == head_size
    # endregion

    # region: flash-whole-row
    if is_contiguous_heads and kv_scale_stride == 0:
        k_scale_val = float32(0) if KV_AUTO else k_scale[0]
        v_scale_val = float32(0) if KV_AUTO else v_scale[0]
        vectorize_with_alignment(
            key, key_src, key_line, key_cache, key_dst, key_cache_line, n_elems, cuda.threadIdx.x, cuda.blockDim.x,
            k_scale_val,
        )  # fmt: skip
        vectorize_with_alignment(
            value, value_src, value_line, value_cache, value_dst, value_cache_line, n_elems, cuda.threadIdx.x,
            cuda.blockDim.x, v_scale_val,
        )  # fmt: skip
    # endregion
    # region: flash-head-by-head
    else:
        lane = cuda.threadIdx.x % WARP_SIZE
        warp_id = cuda.threadIdx.x // WARP_SIZE
        warps_per_block = cuda.blockDim.x // WARP_SIZE

        for head in range(warp_id, num_heads, warps_per_block):
            k_src_h = key_src + head * head_size
            v_src_h = value_src + head * head_size

            k_dst_h = key_dst + int64(head) * head_stride
            v_dst_h = value_dst + int64(head) * head_stride

            k_scale_val = float32(0) if KV_AUTO else k_scale[head * kv_scale_stride]
            v_scale_val = float32(0) if KV_AUTO else v_scale[head * kv_scale_stride]

            vectorize_with_alignment(
                key, k_src_h, key_line, key_cache, k_dst_h, key_cache_line, head_size, lane, WARP_SIZE, k_scale_val
            )
            vectorize_with_alignment(
                value, v_src_h, value_line, value_cache, v_dst_h, value_cache_line, head_size, lane, WARP_SIZE,
                v_scale_val,
            )  # fmt: skip
    # endregion


# endregion


# region: reshape-and-cache-flash-host
def reshape_and_cache_flash(
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
    entry: Any = reshape_and_cache_flash_kernel,
) -> None:
    """Write each token's key and value into the slot that `slot_mapping` gives; negative slots are skipped.

    key, value: [rows, num_heads, head_size] float32, float16 or bfloat16 codes (uint16), rows at any distance and at
    least len(slot_mapping) of them. key_cache, value_cache: views [num_blocks, block_size, num_heads, head_size] of
    any memory order, perhaps of one array; written in place. `kv_cache_dtype`: auto (the keys' dtype), or fp8,
    fp8_e4m3, fp8_e5m2 (uint8 codes of the elements divided by the scale). k_scale, v_scale: float32, [1] or
    [num_heads]; one if None. Raises ArgumentError.
    """
    scales = one_scale(k_scale), one_scale(v_scale)
    check_flash.write(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, *scales)
    # The slots count, not the rows of key: a padded batch has more rows than slots.
    num_tokens = len(slot_mapping)
    if num_tokens == 0:
        return
    num_heads, head_size = key.shape[1:]
    block_size = key_cache.shape[1]
    block_stride, page_stride, head_stride, _ = strides(key_cache)
    kv_scale_stride = 1 if len(scales[0]) > 1 else 0

    specialised = entry.specialise(dtype=str(key.dtype), kv_cache_dtype=kv_cache_dtype)
    launch = specialised.on(backend)[num_tokens, layout.writer_threads(num_heads, head_size, 1)]
    with _one_copy(backend, key_cache, value_cache) as caches:
        launch(
            flat(key),
            flat(value),
            *caches,
            slot_mapping,
            block_stride,
            page_stride,
            head_stride,
            strides(key)[0],
            strides(value)[0],
            num_heads,
            head_size,
            block_size,
            *scales,
            kv_scale_stride,
            *(_behind_a_line(array) for array in (key, value, key_cache, value_cache)),
        )


# endregion


@contextlib.contextmanager
def _one_copy(backend: str | Backend, key_cache: Any, value_cache: Any) -> Iterator[tuple[Any, Any]]:
    """The two caches, flat, for a launch: two views of one array must be one array on a GPU too.

    A launch copies each of its arrays to the GPU and back; the second copy back would undo what the first brought.
    """
    rows = [flat(cache, writeable=True) for cache in (key_cache, value_cache)]
    if Backend.of(backend).name == "sim" or on_gpu(key_cache) or not np.shares_memory(*rows):
        yield rows[0], rows[1]
        return
    starts = [address(cache) for cache in rows]
    firsts = [(start - min(starts)) // rows[0].itemsize for start in starts]
    ends = [first + len(cache) for first, cache in zip(firsts, rows, strict=True)]
    whole = as_strided(rows[starts.index(min(starts))], (max(ends),), (rows[0].itemsize,))
    moved = cuda.to_device(whole)
    yield moved[firsts[0] : ends[0]], moved[firsts[1] : ends[1]]
    moved.copy_to_host(whole)


def _behind_a_line(array: Any) -> int:
    """How many bytes a view starts behind a 16-byte line; an allocation starts on one, as on a GPU."""
    start = address(array) if on_gpu(array) else address(array) - address(_owner(array))
    return start % layout.VECTOR_BYTES


def _owner(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
