"""What the classic kernel's formula loses on the way from softmax to its output, one loss after the other, in float64.

Exact softmax comes first; each later form adds one thing that the kernel does: the 1e-6, weights in sixteen bits,
products and sums in sixteen bits, an output in sixteen bits. Rounding is done here by hand, and shares no code with a
port. The order in which float32 numbers are added is left out: it is what remains between the last form and the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import oracle
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError

Float64 = npt.NDArray[np.float64]
BITS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}
"""Bits of a number, the leading one included, and the exponent of the smallest number above zero."""
VECTOR = 8
"""Tokens that one thread takes at a time where an element has two bytes and a block 16 tokens."""
FORMS = ("softmax", "1e-6 in the sum", "weights rounded", "products and sums rounded", "output rounded")
"""What `forms` returns, in its order."""


def rounded(values: Any, scalar: str) -> Float64:
    """Return the numbers of a format that are nearest to `values`, ties to even; raises ArgumentError for its name.

    Numbers beyond the format's range are not turned into infinities: no case here has any.
    """
    if scalar not in BITS:
        raise ArgumentError("scalar", scalar, f"must be one of {', '.join(BITS)}")
    bits, lowest = BITS[scalar]
    numbers = np.asarray(values, np.float64)
    _, exponent = np.frexp(numbers)
    unit = np.maximum(exponent - bits, lowest)
    result: Float64 = np.ldexp(np.rint(np.ldexp(numbers, -unit)), unit)
    return result


def forms(case: DecodeCase, seq: int, head: int, scalar: str) -> list[Float64]:
    """Return the outputs of the five `FORMS`, each [head_size].

    With float32 the last three equal the second: float32 roundings belong to what is left out.
    """
    group = case.num_heads // case.num_kv_heads
    values = np.repeat(case.values[seq], group, axis=1)[:, head].astype(np.float64)
    exact, damped = (oracle.weights(case, seq, head, eps) for eps in (0.0, oracle.KERNEL_EPSILON))
    found = [exact @ values, damped @ values]
    if scalar == "float32":
        return found + [found[1]] * 3
    weights = rounded(damped, scalar)
    sums = narrow_sums(weights, values, scalar)
    return [*found, weights @ values, sums, rounded(sums, scalar)]


def narrow_sums(weights: Float64, values: Float64, scalar: str) -> Float64:
    """Return weights @ values as a thread adds them up: [head_size].

    It takes eight tokens at a time. In float16 the products of even and of odd tokens are two sums of float16 numbers;
    in bfloat16 only the products are rounded. Eights are added exactly.
    """
    total = np.zeros(values.shape[1])
    for first in range(0, len(weights), VECTOR):
        products = rounded(weights[first : first + VECTOR, None] * values[first : first + VECTOR], scalar)
        if scalar == "bfloat16":
            total += products.sum(axis=0)
            continue
        for rows in (products[::2], products[1::2]):
            part = np.zeros(values.shape[1])
            for row in rows:
                part = rounded(part + row, scalar)
            total += part
    return total


def losses(outputs: Sequence[Float64]) -> list[float]:
    """Return what each form but the first changes in the one before it: the largest difference of an element."""
    return [float(np.abs(later - earlier).max()) for earlier, later in pairwise(outputs)]
