"""A launch whose kernel is compiled and whose arguments are packed once: what is left for each call is the launch.

Numba looks at every argument at every call, which takes tens of microseconds of the host's time. A decode step
launches the same kernel on the same buffers again and again, so it need not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.errors import LaunchError
from kernels.kernel import compile_cuda
from kernels.tuned.call import Launch


class Bound:
    """A launch, ready. Its arrays lie on the GPU and are kept alive; raises LaunchError for one that does not.

    `bound(stream)` launches on a CUDA stream, given as its handle (0: the default one), and works inside the capture
    of a graph. `registers`, `local_bytes`: what the compiled kernel takes a thread.
    """

    def __init__(self, launch: Launch) -> None:
        from cuda.bindings import driver
        from numba.cuda.cudadrv.driver import binding
        from numba.cuda.cudadrv.driver import driver as numba_driver

        for number, argument in enumerate(launch.args):
            if isinstance(argument, np.ndarray):
                raise LaunchError(f"argument {number} of {launch.kernel.name}: must lie on the GPU to be bound")
        compiled = compile_cuda(launch.kernel)
        built = compiled.compile(tuple(compiled.typeof_pyval(argument) for argument in launch.args))
        function = built._codelibrary.get_cufunc()
        if launch.shared:
            attribute = binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            numba_driver.cuKernelSetAttribute(attribute, launch.shared, function.handle, function.device.id)
        self.registers = int(function.attrs.regs)
        self.local_bytes = int(function.attrs.local)
        packed: list[Any] = []
        for kind, argument in zip(built.argument_types, launch.args, strict=True):
            built._prepare_args(kind, argument, 0, [], packed)
        held = [item if isinstance(item, ctypes._SimpleCData) else ctypes.c_uint64(int(item)) for item in packed]
        pointers = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
        config.sharedMemBytes = launch.shared
        if launch.early:
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            config.attrs = [early]
            config.numAttrs = 1
        self._config = config
        self._stream = config.hStream = 0
        self._kept = (launch, held, pointers)
        self._launch = driver.cuLaunchKernelEx
        self._rest = (driver.CUfunction(int(function.handle)), ctypes.addressof(pointers), 0)

    def __call__(self, stream: int = 0) -> None:
        """Launch; raises LaunchError where the driver refuses."""
        if stream != self._stream:
            self._stream = self._config.hStream = stream
        (status,) = self._launch(self._config, *self._rest)
        if status:
            raise LaunchError(f"{self._kept[0].kernel.name}: the driver refused the launch ({status!r})")


def bind(launches: Sequence[Launch]) -> tuple[Bound, ...]:
    """Each launch, ready."""
    return tuple(map(Bound, launches))
