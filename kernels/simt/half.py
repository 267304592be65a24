"""`cuda.fp16`: Numba's functions on float16, rounded once each. Arguments are converted, as Numba does."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np

from kernels.simt.libdevice import fused

_box = np.empty(1, np.float16)


def _half(value: Any) -> Any:
    """Nearest float16, ties to even."""
    _box[0] = value
    return _box[0]


def _compare(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    return staticmethod(lambda a, b: bool(operation(_half(a), _half(b))))


class Half:
    """`cuda.fp16`."""

    heq, hne, hge, hgt, hle, hlt = map(_compare, (eq, ne, ge, gt, le, lt))

    def hadd(self, a: Any, b: Any) -> Any:
        """a + b."""
        return _half(a) + _half(b)

    def hsub(self, a: Any, b: Any) -> Any:
        """a - b."""
        return _half(a) - _half(b)

    def hmul(self, a: Any, b: Any) -> Any:
        """a * b."""
        return _half(a) * _half(b)

    def hdiv(self, a: Any, b: Any) -> Any:
        """a / b."""
        return _half(a) / _half(b)

    def hfma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c with one rounding."""
        return fused(_half(a), _half(b), _half(c), _box)

    def hneg(self, a: Any) -> Any:
        """-a."""
        return -_half(a)

    def habs(self, a: Any) -> Any:
        """The magnitude."""
        return abs(_half(a))

    def hmax(self, a: Any, b: Any) -> Any:
        """The larger; a NaN loses to a number."""
        return np.fmax(_half(a), _half(b))

    def hmin(self, a: Any, b: Any) -> Any:
        """The smaller; a NaN loses to a number."""
        return np.fmin(_half(a), _half(b))
