"""Views as a kernel sees them: an address and steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import ArgumentError
from kernels.vllm.strided import flat, strides


@given(st.permutations([0, 1, 2]), st.integers(0, 2), st.integers(1, 2))
def test_every_element_is_where_address_and_steps_say(axes: list[int], first: int, step: int) -> None:
    array = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    view = array.transpose(axes)[first::step]
    memory, steps = flat(view), strides(view)
    for place in np.ndindex(view.shape):
        assert memory[sum(i * s for i, s in zip(place, steps, strict=True))] == view[place]
    assert len(memory) <= array.size


def test_a_contiguous_array_stays_writable_and_shares_memory() -> None:
    array = np.zeros((2, 3))
    flat(array)[4] = 7
    assert array[1, 1] == 7


def test_another_view_cannot_be_written() -> None:
    assert not flat(np.zeros((4, 4))[:, 1:3]).flags.writeable
    assert flat(np.zeros((0, 4))[:, 1:3]).size == 0


def test_backward_and_broken_steps_are_refused() -> None:
    with pytest.raises(ArgumentError, match="must not be negative"):
        flat(np.zeros(4)[::-1])
    records = np.zeros(3, np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    with pytest.raises(ArgumentError, match="multiple of the element"):
        strides(records)
