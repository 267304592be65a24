"""`@kernel` and `@device`: one Python function, two backends.

A port is written as any Numba CUDA kernel is. `k.on("cuda")` compiles it with numba-cuda;
`k.on("sim")` runs the same code object on the SIMT machine, in this process. Template
parameters are module globals that `specialise` replaces, as C++ replaces `HEAD_SIZE`.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.errors import BackendUnavailable, LaunchError

MAX_THREADS = 1024
MAX_SHARED_BYTES = 48 * 1024
OPT_IN_SHARED_BYTES = 227 * 1024
"""What a block can have on the SIMT machine after `Launcher.opt_in`: as on Hopper. A GPU is asked."""
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
BACKENDS = ("cuda", "sim")

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Backend:
    """Where a launch runs: `cuda`, or `sim` with the order in which the machine runs warps.

    `stream`: the CUDA stream that launches go to (0: the default one, or what Numba takes for another). `observers`
    (`kernels.simt.access.Observer`) are told what a launch on the machine does; `tracer`
    (`kernels.simt.record.Recorder`) records chosen threads line by line.
    """

    name: str
    schedule: str = "in-order"
    observers: tuple[Any, ...] = field(default=(), compare=False)
    tracer: Any = field(default=None, compare=False)
    stream: Any = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if self.name not in BACKENDS:
            raise BackendUnavailable(f"backend = {self.name!r}: must be one of {', '.join(BACKENDS)}")
        if (self.observers or self.tracer) and self.name != "sim":
            raise BackendUnavailable(f"backend = {self.name!r}: only the SIMT machine (sim) can be observed")

    @classmethod
    def of(cls, backend: str | Backend) -> Backend:
        """The backend of that name, or the backend itself; raises BackendUnavailable for an unknown name."""
        return cls(backend) if isinstance(backend, str) else backend

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block can have after an opt-in."""
        if self.name == "sim":
            return OPT_IN_SHARED_BYTES
        from numba import cuda

        return int(cuda.get_current_device().MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)


@dataclass(frozen=True)
class Device:
    """A device function: called from kernels, specialised together with its caller."""

    fn: types.FunctionType


@dataclass(frozen=True)
class Kernel:
    """A kernel before a backend is chosen.

    `constexpr` computes the derived constants from the template parameters, as the C++
    compiler does; `constants` are those parameters, once `specialise` has set them.
    """

    fn: types.FunctionType
    constexpr: Callable[..., dict[str, Any]] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's name, which is vLLM's name for it."""
        return self.fn.__name__

    def specialise(self, **template: Any) -> Kernel:
        """Fix the template parameters (C++: the angle brackets) and everything derived from them."""
        derived = self.constexpr(**template) if self.constexpr else {}
        return Kernel(self.fn, self.constexpr, {**template, **derived})

    def on(self, backend: str | Backend) -> Launcher:
        """The kernel on one backend; raises BackendUnavailable where that backend cannot run."""
        chosen = Backend.of(backend)
        if chosen.name == "cuda" and (reason := cuda_unavailable()):
            raise BackendUnavailable(f"backend = 'cuda': {reason}")
        return Launcher(self, chosen)


def kernel(constexpr: Callable[..., dict[str, Any]] | None = None) -> Callable[[Callable[..., None]], Kernel]:
    """Mark a function as a kernel; `constexpr` derives constants from its template parameters."""

    def wrap(fn: Callable[..., None]) -> Kernel:
        assert isinstance(fn, types.FunctionType)
        return Kernel(fn, constexpr)

    return wrap


def device(fn: Callable[..., Any]) -> Any:
    """Mark a function as callable from kernels only."""
    assert isinstance(fn, types.FunctionType)
    return Device(fn)


@dataclass(frozen=True)
class Launcher:
    """`launcher[grid, block]` or `launcher[grid, block, stream, shared_bytes]`, as Numba spells it."""

    kernel: Kernel
    backend: Backend
    max_shared: int = MAX_SHARED_BYTES

    def opt_in(self, shared_bytes: int) -> Launcher:
        """Ask for `shared_bytes` of shared memory, static included, beyond the 48 KiB that every launch may have.

        What `cudaFuncSetAttribute` does in C++. Raises LaunchError for more than a block of this backend can have.
        """
        if shared_bytes > (limit := self.backend.shared_limit):
            raise LaunchError(
                f"shared_bytes = {shared_bytes}: a block has {limit} at most; shorten the sequence or partition it"
            )
        return replace(self, max_shared=max(self.max_shared, shared_bytes))

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise LaunchError(f"launch configuration = {config}: must be [grid, block, stream, shared_bytes]")
        grid, block = _dim3("grid", config[0]), _dim3("block", config[1])
        stream = config[2] if len(config) > 2 else 0
        shared = int(config[3]) if len(config) > 3 else 0
        check_launch(grid, block, shared, self.max_shared)
        run = _run_cuda if self.backend.name == "cuda" else _run_sim
        return functools.partial(run, self, grid, block, stream, shared)


def check_launch(grid: Dim3, block: Dim3, shared_bytes: int, max_shared: int = MAX_SHARED_BYTES) -> None:
    """Refuse what the hardware would refuse.

    Raises LaunchError for an empty or oversized grid, more than 1024 threads in a block, or more
    than `max_shared` bytes of dynamic shared memory: 48 KiB without an opt-in.
    """
    threads = block[0] * block[1] * block[2]
    if min(block) > 0 and threads > MAX_THREADS:
        raise LaunchError(f"block = {block}: {threads} threads; a block has 1 to {MAX_THREADS}")
    for name, sizes, limits in (("block", block, MAX_BLOCK), ("grid", grid, MAX_GRID)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                raise LaunchError(f"{name}.{axis} = {size}: must be from 1 to {limit}")
    if not 0 <= shared_bytes <= max_shared:
        raise LaunchError(
            f"shared_bytes = {shared_bytes}: must be from 0 to {max_shared}; shorten the sequence or partition it"
        )


def check_args(fn: types.FunctionType, args: tuple[Any, ...]) -> None:
    """Refuse arrays a flat pointer could not address, and a wrong number of arguments (LaunchError)."""
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    if len(args) != len(names):
        raise LaunchError(f"{fn.__name__}: {len(args)} arguments given, takes {len(names)}: {', '.join(names)}")
    for name, arg in zip(names, args, strict=True):
        if isinstance(arg, np.ndarray) and not arg.flags.c_contiguous:
            raise LaunchError(
                f"{name}: strides {arg.strides} of shape {arg.shape} are not contiguous; "
                "pass numpy.ascontiguousarray(...)"
            )
        if isinstance(arg, np.ndarray) and arg.dtype.kind not in "fiu":
            raise LaunchError(f"{name}: dtype {arg.dtype}: must be a float or integer type")


def bind(
    fn: types.FunctionType,
    constants: Mapping[str, Any],
    facade: Mapping[str, Any],
    wrap: Callable[[types.FunctionType], Any],
    adapt: Callable[[Any], Any] = lambda value: value,
) -> types.FunctionType:
    """The same code object over new globals: constants in place, names of `facade` swapped,

    other globals passed through `adapt`, and every device function it names bound alike and passed through `wrap`.
    """
    scope = {**fn.__globals__, **constants, **{k: v for k, v in facade.items() if k in fn.__globals__}}
    for name in fn.__code__.co_names:
        if isinstance(scope.get(name), Device):
            scope[name] = wrap(bind(scope[name].fn, constants, facade, wrap, adapt))
        elif name in scope and name not in facade:
            scope[name] = adapt(scope[name])
    return types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, fn.__closure__)


def _dim3(name: str, value: int | tuple[int, ...]) -> Dim3:
    sizes = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"{name} = {value}: must be one to three sizes")
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return x, y, z


def _run_sim(launcher: Launcher, grid: Dim3, block: Dim3, stream: object, shared: int, *args: Any) -> None:
    from kernels import simt

    check_args(launcher.kernel.fn, args)
    facade = {"cuda": simt.cuda, "libdevice": simt.libdevice}
    fn = bind(launcher.kernel.fn, launcher.kernel.constants, facade, lambda f: f, _on_machine)
    backend = launcher.backend
    simt.launch(
        fn, grid, block, args, shared_bytes=shared, schedule=backend.schedule, observers=backend.observers,
        tracer=backend.tracer,
    )  # fmt: skip


def _on_machine(value: Any) -> Any:
    """What a kernel's global is on the SIMT machine: number types and vector loads have a form of their own there."""
    from kernels import simt

    count = getattr(value, "vector_count", None)
    return simt.stand_in(value) if count is None else simt.vector_load(count)


def _run_cuda(launcher: Launcher, grid: Dim3, block: Dim3, stream: object, shared: int, *args: Any) -> None:
    from numba import cuda

    check_args(launcher.kernel.fn, args)
    compiled = compile_cuda(launcher.kernel)
    moved = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in args]
    if launcher.max_shared > MAX_SHARED_BYTES:
        _allow_shared(compiled, moved, shared)
    with quiet_occupancy():
        compiled[grid, block, stream or launcher.backend.stream, shared](*moved)
    if not any(isinstance(a, np.ndarray) for a in args):
        return  # All on the GPU already: the caller goes on while the kernel runs, as in CUDA.
    cuda.synchronize()
    for host, dev in zip(args, moved, strict=True):
        if isinstance(host, np.ndarray) and host.flags.writeable:
            dev.copy_to_host(host)


def _allow_shared(compiled: Any, args: list[Any], shared: int) -> None:
    """Let a kernel have more dynamic shared memory than 48 KiB; numba-cuda (0.30.4) has no word for it."""
    from numba.cuda.cudadrv.driver import binding, driver

    # What the launch would compile anyway; the attribute belongs to the compiled kernel.
    built = compiled.compile(tuple(compiled.typeof_pyval(arg) for arg in args))
    function = built._codelibrary.get_cufunc()
    attribute = binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.cuKernelSetAttribute(attribute, shared, function.handle, function.device.id)


_COMPILED: dict[tuple[Any, ...], Any] = {}


def compile_cuda(kern: Kernel) -> Any:
    """The numba-cuda dispatcher of a specialised kernel, made once for each set of constants."""
    key = (kern.fn, tuple(sorted(kern.constants.items(), key=lambda item: item[0])))
    if key not in _COMPILED:
        from numba import cuda

        fn = bind(kern.fn, kern.constants, {}, cuda.jit(device=True))
        # No lineinfo: together with device functions, nvJitLink refuses to link it (numba-cuda 0.30.4).
        _COMPILED[key] = cuda.jit(fn)
    return _COMPILED[key]


@contextlib.contextmanager
def quiet_occupancy() -> Iterator[None]:
    """Teaching-size grids never fill a GPU; Numba's warning about that is off for our launch only."""
    from numba.core import config

    before = config.CUDA_LOW_OCCUPANCY_WARNINGS
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    try:
        yield
    finally:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = before


@functools.cache
def cuda_unavailable() -> str | None:
    """Why the cuda backend cannot run here, or None where it can.

    Asks the driver for a device: `is_available` alone says yes under Numba's simulator.
    """
    try:
        from numba import cuda
        from numba.core import config

        if getattr(config, "ENABLE_CUDASIM", 0):
            return "NUMBA_ENABLE_CUDASIM is set; unset it to use a GPU"
        if not cuda.is_available():
            return "no CUDA driver or no NVIDIA GPU was found; use --backend sim"
        cuda.get_current_device()
        # The first launch imports this, and with NumPy 2.5 it does not import: better to know now.
        import numba.cuda.np.arrayobj  # noqa: F401
    except (ImportError, AttributeError) as error:
        return f"numba-cuda does not import with NumPy {np.__version__} ({error}); it needs numpy<2.5"
    except Exception as error:
        return f"the driver refused: {error}"
    return None
