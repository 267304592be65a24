"""`float32(x)` and its kind for kernels on the machine, at a tenth of what calling Numba's own type costs.

Bind a kernel's global `float32` to `stand_in(float32)`; that serves as the dtype of `shared.array` too.
"""

from __future__ import annotations

from typing import Any

from kernels.simt.memory import converter, dtype_of


class ScalarType:
    """One number type: calling it converts a value as a cast in C++ does (to nearest even; integers wrap)."""

    __slots__ = ("bitwidth", "dtype", "name", "store", "type")

    def __init__(self, spec: Any) -> None:
        self.dtype = dtype_of(spec)
        self.name = self.dtype.name
        self.bitwidth = 8 * self.dtype.itemsize
        self.type = self.dtype.type
        self.store = converter(self.dtype)

    def __call__(self, value: Any) -> Any:
        """The value as a NumPy scalar of this type."""
        return value if value.__class__ is self.type else self.store(value)

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
    """What to bind a kernel's global to: a ScalarType for a number type of Numba, anything else as it is."""
    if hasattr(value, "bitwidth") and hasattr(value, "name") and not isinstance(value, ScalarType):
        try:
            return scalar_type(value)
        except TypeError:  # no NumPy type of that name
            return value
    return value
