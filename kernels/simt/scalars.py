"""`float32(x)` and its kind for kernels on the machine, at a tenth of what calling Numba's own type costs.

Bind a kernel's global `float32` to `stand_in(float32)`; that serves as the dtype of `shared.array` too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.simt.memory import converter, dtype_of


class ScalarType:
    """One number type: calling it converts a value as a cast in C++ does (to nearest even; integers wrap)."""

    __slots__ = ("_box", "bitwidth", "dtype", "name", "store", "type")

    def __init__(self, spec: Any) -> None:
        self.dtype = dtype_of(spec)
        self.name = self.dtype.name
        self.bitwidth = 8 * self.dtype.itemsize
        self.type = self.dtype.type
        self.store = converter(self.dtype)
        # Floats need none of what `store` sees to: half the time of a call is saved.
        self._box = np.empty(1, self.dtype) if self.dtype.kind == "f" else None

    def __call__(self, value: Any) -> Any:
        """The value as a NumPy scalar of this type."""
        if value.__class__ is self.type:
            return value
        box = self._box
        if box is None:
            return self.store(value)
        box[0] = value
        return box[0]

    def __repr__(self) -> str:
        return self.name


_made: dict[str, ScalarType] = {}


def scalar_type(spec: Any) -> ScalarType:
    """The ScalarType of a NumPy dtype or type, its name, or anything with such a `.name` (Numba's types)."""
    name = dtype_of(spec).name
    if name not in _made:
        _made[name] = ScalarType(name)
    return _made[name]


def stand_in(value: Any) -> Any:
    """What to bind a kernel's global to, as Numba takes it: a ScalarType for a number type, a constant array for a

    NumPy array; anything else as it is.
    """
    if isinstance(value, np.ndarray):
        from kernels.simt.facade import cuda  # which casts by way of this module

        return cuda.const.array_like(value)
    if hasattr(value, "bitwidth") and hasattr(value, "name") and not isinstance(value, ScalarType):
        try:
            return scalar_type(value)
        except TypeError:  # no NumPy type of that name
            return value
    return value
