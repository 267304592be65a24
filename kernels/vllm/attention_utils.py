"""The small device functions that vLLM's attention kernels call: block sums and dot products.

Ports of `block_sum`, `qk_dot_` and the vector `dot`, at vLLM 0.24.0.
"""

from __future__ import annotations

from numba import cuda, float32
from numba.cuda import libdevice

from kernels.kernel import device
from kernels.numbers import bfloat16_to_float32, float32_to_bfloat16

FULL_MASK = 0xFFFFFFFF
FLT_MAX = 3.4028234663852886e38
WARP_SIZE = 32
# Template parameters: `specialise` puts the real values in their place.
NUM_WARPS = 4
THREAD_GROUP_SIZE = 2
NUM_VECS_PER_THREAD = 4
VEC_SIZE = 4
V_VEC_SIZE = 4
to_float = float32


# region: block-sum
@device
def block_sum(red_smem, sum):
    """Sum of `sum` over all threads of the block, in every thread; `red_smem`: NUM_WARPS float32 of scratch."""
    warp = cuda.threadIdx.x // WARP_SIZE
    lane = cuda.threadIdx.x % WARP_SIZE

    # Butterfly: after five exchanges every lane of a warp holds that warp's sum.
    mask = WARP_SIZE // 2
    while mask >= 1:
        sum += cuda.shfl_xor_sync(FULL_MASK, sum, mask)
        mask //= 2

    if lane == 0:
        red_smem[warp] = sum
    cuda.syncthreads()

    if lane < NUM_WARPS:
        sum = red_smem[lane]
    mask = NUM_WARPS // 2
    while mask >= 1:
        sum += cuda.shfl_xor_sync(FULL_MASK, sum, mask)
        mask //= 2
    return cuda.shfl_sync(FULL_MASK, sum, 0)


# endregion


# region: qk-dot-helper
@device
def qk_dot(q_vecs, thread_group_offset, k_vecs):
    """q . k in float32, in every thread of the group; `k_vecs`: this thread's vectors, [vectors, VEC_SIZE]."""
    # One running product per vector element, as the C++ keeps a vector of sums.
    qk_vec = cuda.local.array(VEC_SIZE, float32)
    for e in range(VEC_SIZE):
        qk_vec[e] = to_float(q_vecs[thread_group_offset, 0, e]) * to_float(k_vecs[0, e])
    for ii in range(1, NUM_VECS_PER_THREAD):
        for e in range(VEC_SIZE):
            qk_vec[e] = libdevice.fmaf_rn(
                to_float(q_vecs[thread_group_offset, ii, e]), to_float(k_vecs[ii, e]), qk_vec[e]
            )

    qk = qk_vec[0]
    for e in range(1, VEC_SIZE):
        qk += qk_vec[e]
    mask = THREAD_GROUP_SIZE // 2
    while mask >= 1:
        qk += cuda.shfl_xor_sync(FULL_MASK, qk, mask)
        mask //= 2
    return qk


# endregion


@device
def dot_float(a, b):
    """The dot product of two float32 vectors of V_VEC_SIZE elements."""
    acc = a[0] * b[0]
    for e in range(1, V_VEC_SIZE):
        acc += a[e] * b[e]
    return acc


@device
def dot_half(a, b):
    """The dot product of two float16 vectors of V_VEC_SIZE elements, as float32."""
    # vLLM multiplies and adds 16-bit pairs as half2: even and odd elements are two
    # half-precision sums, widened to float32 only at the very end.
    even = a[0] * b[0]
    odd = a[1] * b[1]
    for e in range(2, V_VEC_SIZE, 2):
        even = even + a[e] * b[e]
        odd = odd + a[e + 1] * b[e + 1]
    return float32(even) + float32(odd)


@device
def product_bfloat16(a, b):
    """The product of two bfloat16 codes, rounded to bfloat16, as float32."""
    return bfloat16_to_float32(float32_to_bfloat16(bfloat16_to_float32(a) * bfloat16_to_float32(b)))


@device
def dot_bfloat16(a, b):
    """The dot product of two vectors of V_VEC_SIZE bfloat16 codes, as float32."""
    # Unlike float16: only the products are rounded to 16 bits. Each pair is added in float32, then the pairs.
    acc = product_bfloat16(a[0], b[0]) + product_bfloat16(a[1], b[1])
    for e in range(2, V_VEC_SIZE, 2):
        acc += product_bfloat16(a[e], b[e]) + product_bfloat16(a[e + 1], b[e + 1])
    return acc


DOTS = {"float32": dot_float, "float16": dot_half, "uint16": dot_bfloat16}
"""The dot product of the V pass, by scalar type; uint16 holds bfloat16."""
