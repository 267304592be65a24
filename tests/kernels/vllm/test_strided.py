"""Views as a kernel sees them: an address and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda

from kernels.errors import ArgumentError
from kernels.kernel import kernel
from kernels.vllm.strided import address, flat, gpu_array, on_gpu, strides


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


@given(st.permutations([0, 1, 2]), st.integers(0, 2), st.booleans())
def test_a_view_that_may_be_written_writes_into_the_memory_it_shows(
    axes: list[int], first: int, through_the_row: bool
) -> None:
    array = np.zeros((3, 4, 5), np.float32)
    view = array.transpose(axes)[first:, 1:]
    row, steps = flat(view, writeable=True), strides(view)
    assert address(row) == address(view)
    assert len(row) == 1 + sum((size - 1) * step for size, step in zip(view.shape, steps, strict=True))
    for number, place in enumerate(np.ndindex(view.shape), 1):
        at = sum(i * s for i, s in zip(place, steps, strict=True))
        if through_the_row:
            row[at] = number
        else:
            view[place] = number
        assert row[at] == view[place] == number
    assert np.count_nonzero(array) == view.size, "and nothing between our places"


def test_addresses_count_bytes() -> None:
    array = np.zeros((3, 4), np.float16)
    assert address(array[1, 2:]) - address(array) == (4 + 2) * 2
    assert not on_gpu(array)


# -- arrays on a GPU


class Described:
    """Stands for an array on a GPU: what the two ends tell each other about it."""

    def __init__(self, **what: Any) -> None:
        self.__cuda_array_interface__ = what
        self.shape, self.strides = what["shape"], what["strides"]
        self.dtype = np.dtype(what["typestr"])
        self.size = int(np.prod(self.shape))


@pytest.fixture
def numba_that_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(what: dict[str, Any], *, owner: Any, sync: bool) -> Described:
        assert owner is not None
        assert not sync, "looking at an array must not stop the GPU"
        assert what["version"] == 3
        return Described(**what)

    monkeypatch.setattr(cuda, "from_cuda_array_interface", made)


@pytest.mark.usefixtures("numba_that_describes")
def test_a_gpu_array_is_a_pointer_and_steps_in_bytes() -> None:
    made = gpu_array(4096, (3, 4), (10, 1), "uint16", object())
    assert on_gpu(made)
    assert address(made) == 4096
    assert made.__cuda_array_interface__["data"] == (4096, False)
    assert (made.shape, made.strides, made.dtype) == ((3, 4), (20, 2), np.dtype(np.uint16))
    assert strides(made) == (10, 1)


@pytest.mark.usefixtures("numba_that_describes")
@pytest.mark.parametrize(
    ("shape", "steps", "extent"),
    [((3, 4), (10, 1), 24), ((3, 4), (1, 3), 12), ((2, 0), (5, 1), 0), ((1, 7), (999, 1), 7), ((6,), (1,), 6)],
)
def test_on_a_gpu_too_a_row_reaches_from_the_first_to_the_last_element(
    shape: tuple[int, ...], steps: tuple[int, ...], extent: int
) -> None:
    row = flat(gpu_array(256, shape, steps, "float32", object()))
    assert (row.shape, row.strides, address(row)) == ((extent,), (4,), 256)


@pytest.mark.usefixtures("numba_that_describes")
def test_backward_steps_are_refused_on_a_gpu_as_well() -> None:
    with pytest.raises(ArgumentError, match="must not be negative"):
        flat(gpu_array(256, (4,), (-1,), "float32", object()))


@kernel()
def number_kernel(out, step):
    out[cuda.grid(1) * step] = cuda.grid(1) + 1


@pytest.mark.gpu
def test_gpu_a_tensors_own_memory_is_written() -> None:
    import torch

    tensor = torch.zeros((4, 6), dtype=torch.float32, device="cuda")
    view = tensor[:, 2]
    array = gpu_array(view.data_ptr(), tuple(view.shape), view.stride(), "float32", view)
    row = flat(array)
    assert address(row) == address(array) == view.data_ptr() == tensor.data_ptr() + 8
    assert row.shape == (19,)
    number_kernel.on("cuda")[1, 4](row, strides(array)[0])
    torch.cuda.synchronize()
    assert tensor[:, 2].tolist() == [1, 2, 3, 4]
    assert tensor.sum() == 10
