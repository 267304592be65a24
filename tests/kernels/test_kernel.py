"""`@kernel`: constants and device functions, both backends, and what a launch refuses before anything runs."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda, float32
from numba.core import config

from kernels import kernel as module
from kernels.errors import BackendUnavailable, KernelError, LaunchError
from kernels.kernel import Backend, Device, Kernel, bind, check_launch, cuda_unavailable, device, kernel

ROOT = Path(__file__).resolve().parents[2]
FACTOR, TOP = 0, 0


def constexpr(*, FACTOR: int, chosen: Any = None) -> dict[str, Any]:
    """`TOP` follows from `FACTOR`; `inner` may be another device function."""
    return {"TOP": FACTOR * 1000} | ({"inner": chosen} if chosen else {})


@device
def inner(value):
    return value * FACTOR


@device
def other_inner(value):
    return value - FACTOR


@device
def outer(value):
    return inner(value) + TOP


@kernel(constexpr)
def apply_kernel(out, a):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = outer(a[i]) + FACTOR


@kernel()
def rounded_kernel(out, a):
    out[0] = float32(a[0])


@kernel()
def fill_kernel(out, value):
    out[cuda.grid(1)] = value


def outcome(chosen: Kernel, backend: str, a: list[int]) -> list[int]:
    values, out = np.array(a, np.int64), np.full(len(a), -1, np.int64)
    chosen.on(backend)[-(-len(a) // 32), 32](out, values)
    return out.tolist()


# -- constants


@settings(max_examples=25)
@given(st.integers(-9, 9), st.lists(st.integers(-50, 50), min_size=1, max_size=40))
def test_the_kernel_and_nested_device_functions_see_the_same_constants(factor: int, a: list[int]) -> None:
    expected = [value * factor + factor * 1000 + factor for value in a]
    assert outcome(apply_kernel.specialise(FACTOR=factor), "sim", a) == expected


def test_two_specialisations_do_not_disturb_each_other() -> None:
    two, seven = apply_kernel.specialise(FACTOR=2), apply_kernel.specialise(FACTOR=7)
    assert outcome(two, "sim", [1]) == [2 + 2000 + 2]
    assert outcome(seven, "sim", [1]) == [7 + 7000 + 7]
    assert outcome(two, "sim", [1]) == [2 + 2000 + 2]
    assert outcome(apply_kernel, "sim", [1]) == [0], "the placeholders are as they were"
    assert (FACTOR, TOP) == (0, 0)
    assert outcome(two.specialise(FACTOR=3), "sim", [1]) == [3 + 3000 + 3], "a second specialise starts anew"


def test_a_constant_may_choose_a_device_function() -> None:
    chosen = apply_kernel.specialise(FACTOR=2, chosen=other_inner)
    assert outcome(chosen, "sim", [10]) == [10 - 2 + 2000 + 2]
    assert outcome(apply_kernel.specialise(FACTOR=2), "sim", [10]) == [20 + 2000 + 2]


def test_a_kernel_without_constexpr_takes_constants_as_they_are() -> None:
    assert rounded_kernel.specialise(ANY=3).constants == {"ANY": 3}
    assert rounded_kernel.name == "rounded_kernel"


def test_bind_copies_and_leaves_the_function_alone() -> None:
    wrapped: list[str] = []

    def wrap(fn: Any) -> Any:
        wrapped.append(fn.__name__)
        return fn

    bound = bind(apply_kernel.fn, {"FACTOR": 5}, {"cuda": "facade", "numpy_not_used": "no"}, wrap)
    assert bound is not apply_kernel.fn
    assert bound.__code__ is apply_kernel.fn.__code__
    assert wrapped == ["inner", "outer"], "the innermost first"
    scope = bound.__globals__["outer"].__globals__["inner"].__globals__
    assert (bound.__globals__["FACTOR"], scope["FACTOR"]) == (5, 5)
    assert bound.__globals__["cuda"] == "facade"
    assert "numpy_not_used" not in bound.__globals__
    assert isinstance(apply_kernel.fn.__globals__["inner"], Device)
    assert apply_kernel.fn.__globals__["cuda"] is cuda


def test_the_machine_rounds_where_the_kernel_says_so() -> None:
    out = np.zeros(1)
    rounded_kernel.on("sim")[1, 1](out, np.array([0.1]))
    assert out[0] == float(np.float32(0.1)) != 0.1


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:5"])
def test_the_machine_takes_the_schedule_of_the_backend(schedule: str) -> None:
    out = np.zeros(70, np.int64)
    apply_kernel.specialise(FACTOR=1).on(Backend("sim", schedule))[3, 32](out, np.arange(70))
    assert out.tolist() == [value + 1001 for value in range(70)]


def test_an_unknown_schedule_is_refused() -> None:
    launcher = rounded_kernel.on(Backend("sim", "sideways"))
    with pytest.raises(ValueError, match="schedule = 'sideways': must be in-order, reversed or random:SEED"):
        launcher[1, 1](np.zeros(1), np.zeros(1))


# -- launches that are refused


REFUSED: list[tuple[Any, str]] = [
    ((1, 2048), r"block = \(2048, 1, 1\): 2048 threads; a block has 1 to 1024"),
    ((1, (32, 33)), r"block = \(32, 33, 1\): 1056 threads"),
    ((1, 0), r"block\.x = 0: must be from 1 to 1024"),
    ((1, (32, 0)), r"block\.y = 0"),
    ((1, (-1, -32)), r"block\.x = -1"),
    ((1, (1, 1, 65)), r"block\.z = 65: must be from 1 to 64"),
    ((0, 32), r"grid\.x = 0: must be from 1 to 2147483647"),
    (((4, 0), 32), r"grid\.y = 0: must be from 1 to 65535"),
    (((1, 1, 65536), 32), r"grid\.z = 65536: must be from 1 to 65535"),
    (((-2, 1, 1), 32), r"grid\.x = -2"),
    ((1, 32, 0, 48 * 1024 + 1), r"shared_bytes = 49153: must be from 0 to 49152; shorten the sequence"),
    ((1, 32, 0, -4), r"shared_bytes = -4"),
    ((1, (1, 1, 1, 1)), r"block = \(1, 1, 1, 1\): must be one to three sizes"),
    (((), 32), r"grid = \(\): must be one to three sizes"),
    ((1,), r"launch configuration = \(1,\): must be \[grid, block, stream, shared_bytes\]"),
    (1, r"launch configuration = 1: must be"),
    ((1, 1, 0, 0, 0), r"launch configuration = \(1, 1, 0, 0, 0\)"),
]


@pytest.mark.parametrize(("launch", "message"), REFUSED)
def test_a_bad_launch_names_the_argument_and_writes_nothing(launch: Any, message: str) -> None:
    out = np.full(4, 7)
    with pytest.raises(LaunchError, match=message) as caught:
        fill_kernel.on("sim")[launch](out, 1)
    assert isinstance(caught.value, KernelError)
    assert isinstance(caught.value, ValueError)
    assert out.tolist() == [7] * 4


sizes = st.sampled_from([-1, 0, 1, 2, 31, 32, 64, 65, 1024, 1025, 65535, 65536, 2**31 - 1, 2**31])
triples = st.tuples(sizes, sizes, sizes)


@settings(max_examples=300)
@given(triples, triples, st.sampled_from([-1, 0, 1, 49152, 49153]))
def test_check_launch_accepts_exactly_what_the_hardware_does(grid: Any, block: Any, shared: int) -> None:
    good = (
        all(size >= 1 for size in grid + block)
        and grid[0] < 2**31
        and max(grid[1:]) < 2**16
        and block[2] <= 64
        and block[0] * block[1] * block[2] <= 1024
        and shared in range(49153)
    )
    try:
        check_launch(grid, block, shared)
    except LaunchError:
        assert not good
    else:
        assert good


@pytest.mark.parametrize("launch", [(2, 2), ((2,), (2,)), ((1, 2), (2, 1, 1)), (np.int64(1), np.int32(4))])
def test_every_spelling_of_a_good_launch(launch: Any) -> None:
    out = np.zeros(4, np.int64)
    fill_kernel.on("sim")[launch](out, 9)
    assert 9 in out.tolist()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(8)[::2], r"out: strides \(16,\) of shape \(4,\) are not contiguous; pass numpy.ascontiguousarray"),
        (np.zeros((3, 2)).T, r"out: strides \(8, 16\) of shape \(2, 3\) are not contiguous"),
        (np.zeros(4, bool), r"out: dtype bool: must be a float or integer type"),
        (np.zeros(4, complex), r"out: dtype complex128"),
        (np.array(["a"]), r"out: dtype <U1"),
    ],
)
def test_an_array_no_pointer_could_address_is_refused(array: Any, message: str) -> None:
    before = array.copy()
    with pytest.raises(LaunchError, match=message):
        fill_kernel.on("sim")[1, 4](array, 1)
    np.testing.assert_array_equal(array, before)


def test_a_wrong_number_of_arguments_is_refused() -> None:
    out = np.zeros(4)
    with pytest.raises(LaunchError, match="fill_kernel: 1 arguments given, takes 2: out, value"):
        fill_kernel.on("sim")[1, 4](out)
    with pytest.raises(LaunchError, match="fill_kernel: 3 arguments given"):
        fill_kernel.on("sim")[1, 4](out, 1, 2)
    assert not out.any()


# -- backends


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match="backend = 'gpu': must be one of cuda, sim"):
        fill_kernel.on("gpu")


def test_cuda_without_a_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cuda_unavailable", lambda: "the fan is broken")
    with pytest.raises(BackendUnavailable, match="backend = 'cuda': the fan is broken"):
        fill_kernel.on("cuda")
    assert fill_kernel.on("sim").backend == Backend("sim")


def test_this_machine_has_a_gpu_or_a_reason() -> None:
    reason = cuda_unavailable()
    if reason is None:
        assert fill_kernel.on("cuda").backend.name == "cuda"
    else:
        with pytest.raises(BackendUnavailable) as caught:
            fill_kernel.on("cuda")
        assert reason in str(caught.value)


class AnyDevice:
    """Stands for a working driver: only what `cuda_unavailable` asks it."""


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "get_current_device", AnyDevice)
    return monkeypatch


def ask() -> str | None:
    """`cuda_unavailable` without its cache."""
    return cuda_unavailable.__wrapped__()


def test_a_driver_that_works_is_believed(fake_gpu: pytest.MonkeyPatch) -> None:
    assert ask() is None


def test_a_driver_that_refuses_is_quoted(fake_gpu: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("CUDA_ERROR_NO_DEVICE")

    fake_gpu.setattr(cuda, "get_current_device", broken)
    assert ask() == "the driver refused: CUDA_ERROR_NO_DEVICE"


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    assert "no CUDA driver or no NVIDIA GPU was found; use --backend sim" in str(ask())


@pytest.mark.parametrize(
    "error", [AttributeError("module 'numpy' has no attribute 'row_stack'"), ImportError("no libnvvm")]
)
def test_numpy_and_numba_cuda_that_do_not_go_together_are_both_named(
    fake_gpu: pytest.MonkeyPatch, error: Exception
) -> None:
    real: Callable[..., Any] = builtins.__import__

    def failing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "numba.cuda.np.arrayobj":
            raise error
        return real(name, *args, **kwargs)

    fake_gpu.setattr(builtins, "__import__", failing)
    assert ask() == f"numba-cuda does not import with NumPy {np.__version__} ({error}); it needs numpy<2.5"


def python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_numpy_without_row_stack_is_noticed_before_the_first_launch() -> None:
    # What NumPy 2.5 took away, taken away here; a real launch would die in the middle of it.
    code = """
import numpy
if hasattr(numpy, "row_stack"):
    del numpy.row_stack
from numba import cuda
cuda.is_available, cuda.get_current_device = (lambda: True), (lambda: None)
from kernels.kernel import cuda_unavailable
print(cuda_unavailable())
"""
    said = python(code)
    assert said.startswith(f"numba-cuda does not import with NumPy {np.__version__}")
    assert "row_stack" in said
    assert said.endswith("it needs numpy<2.5")


def test_numbas_simulator_is_never_taken_for_a_gpu() -> None:
    code = """
from numba import cuda
from kernels.kernel import cuda_unavailable
from kernels.errors import BackendUnavailable
from kernels.vllm import cache
print(cuda.is_available(), cuda_unavailable())
try:
    cache.reshape_and_cache_kernel.on("cuda")
except BackendUnavailable as error:
    print(error)
"""
    said = python(code, NUMBA_ENABLE_CUDASIM="1").splitlines()
    assert said[0] == "True NUMBA_ENABLE_CUDASIM is set; unset it to use a GPU"
    assert said[1] == "backend = 'cuda': NUMBA_ENABLE_CUDASIM is set; unset it to use a GPU"


def test_the_occupancy_warning_is_silenced_around_the_launch_only() -> None:
    before = config.CUDA_LOW_OCCUPANCY_WARNINGS

    def inside() -> int:
        with module.quiet_occupancy():
            return int(config.CUDA_LOW_OCCUPANCY_WARNINGS)

    assert inside() == 0
    assert before == config.CUDA_LOW_OCCUPANCY_WARNINGS != 0
    with pytest.raises(ZeroDivisionError), module.quiet_occupancy():
        raise ZeroDivisionError
    assert before == config.CUDA_LOW_OCCUPANCY_WARNINGS


# -- the same on a GPU


@pytest.mark.gpu
def test_gpu_constants_and_specialisations() -> None:
    two, seven = apply_kernel.specialise(FACTOR=2), apply_kernel.specialise(FACTOR=7, chosen=other_inner)
    a = list(range(70))
    for chosen in (two, seven, two):
        assert outcome(chosen, "cuda", a) == outcome(chosen, "sim", a)


@pytest.mark.gpu
def test_gpu_refuses_the_same_and_writes_nothing() -> None:
    out = np.full(4, 7)
    for launch, message in REFUSED:
        with pytest.raises(LaunchError, match=message):
            fill_kernel.on("cuda")[launch](out, 1)
    with pytest.raises(LaunchError, match="not contiguous"):
        fill_kernel.on("cuda")[1, 2](out[::2], 1)
    assert out.tolist() == [7] * 4
