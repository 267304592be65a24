"""Compiles what a small case launches, once as it is launched and once with line information, into PTX and SASS.

A case is run on a backend whose launches are noted down: each note holds the specialised kernel and the types of its
arguments. Without a GPU the same compilers run for a named compute capability; then nothing is launched.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from kernels import kernel as kernels_kernel
from kernels.kernel import Backend, Dim3, Kernel, bind, compile_cuda
from walkthroughs import hardware_tools
from walkthroughs.hardware_tools import ToolError

Capability = tuple[int, int]
SECONDS = 120.0


@dataclass(frozen=True)
class Launch:
    """One launch of a case: the specialised kernel, grid and block, dynamic shared bytes, Numba's argument types."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    shared: int
    types: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments."""
        code = self.kernel.fn.__code__
        return code.co_varnames[: code.co_argcount]


@dataclass(frozen=True)
class Listing:
    """A kernel as text. `how`: who turned it into machine code; `launched`: the SASS of what a launch runs.

    `resources`: registers a thread, static shared memory a block and local memory a thread (bytes), as the driver says;
    None where no driver was asked.
    """

    ptx: str
    sass: str
    how: str
    launched: str
    resources: dict[str, int] | None
    notes: tuple[str, ...] = ()


def launches(run: Callable[[Backend], Any], backend: str) -> list[Launch]:
    """The first launch of every kernel that a case launches. On `cuda` they run; on `sim` they are noted only."""
    found: dict[Any, Launch] = {}
    inner = kernels_kernel._run_cuda

    def note(launcher: Any, grid: Dim3, block: Dim3, stream: object, shared: int, *args: Any) -> None:
        if backend == "cuda":
            inner(launcher, grid, block, stream, shared, *args)
        kern = launcher.kernel
        if kern.fn not in found:
            found[kern.fn] = Launch(kern, grid, block, shared, tuple(map(_type, args)))

    with mock.patch.object(kernels_kernel, f"_run_{backend}", note), np.errstate(all="ignore"):
        run(Backend(backend))
    return list(found.values())


def _type(value: Any) -> Any:
    """Numba's type of an argument, as a launch sees it: an array of the host is copied first, and is then writeable."""
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    if isinstance(value, np.ndarray):
        return types.Array(from_dtype(value.dtype), value.ndim, "C")
    return cuda.jit(lambda: None).typeof_pyval(value)


@contextlib.contextmanager
def without_gpu(capability: Capability) -> Iterator[None]:
    """numba-cuda compiles for `capability` here, with no device to ask. Nothing can be launched."""
    import numba.cuda.codegen
    import numba.cuda.dispatcher

    device = SimpleNamespace(compute_capability=capability)
    context = SimpleNamespace(device=device)
    with (
        mock.patch.object(numba.cuda.dispatcher, "get_current_device", return_value=device),
        mock.patch.object(numba.cuda.codegen.devices, "get_context", return_value=context),
    ):
        yield


def compile_launch(launch: Launch, *, on_gpu: bool) -> Listing:
    """The PTX and SASS of a launch. Raises ToolError where no way leads to machine code with lines.

    The machine code with lines is compared elsewhere with that of the launch: lines must not change an instruction.
    """
    launched = _launched(launch) if on_gpu else _built(compile_cuda(launch.kernel), launch.types)
    refused: list[str] = []
    for how, lto, assemble in _ways():
        try:
            ptx, cubin = assemble(_built(_with_lines(launch.kernel, lto), launch.types)._codelibrary)
            sass = disassemble(cubin)
            if "\t.loc\t" not in ptx or "//## File" not in sass:
                raise ToolError("its listings name no lines")
            return Listing(
                ptx=ptx,
                sass=sass,
                how=how,
                launched=disassemble(launched._codelibrary.get_cubin().code),
                resources=_resources(launched) if on_gpu else None,
                notes=tuple(refused),
            )
        except Exception as error:  # numba-cuda and its linkers raise what they like; the next way is tried
            refused.append(f"{how}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    raise ToolError(f"{launch.kernel.name}: " + "; ".join(refused))


def _launched(launch: Launch) -> Any:
    """numba-cuda's own compiled kernel, which has just run."""
    overloads = compile_cuda(launch.kernel).overloads
    said = list(map(str, launch.types))
    found = next((built for types, built in overloads.items() if list(map(str, types)) == said), None)
    if found is None:
        raise ToolError(f"{launch.kernel.name}: launched as {list(overloads)}, not as {launch.types}")
    return found


def _ways() -> list[tuple[str, bool | None, Callable[[Any], tuple[str, bytes]]]]:
    """How machine code with lines is made, best first: as numba-cuda makes what is launched, else by ptxas.

    A linker may refuse lines: nvJitLink does where a kernel keeps them and its device functions do not.
    """
    return [
        ("numba-cuda", None, lambda library: (_ptx(library), library.get_cubin().code)),
        ("ptxas, from numba-cuda's PTX", None, lambda library: _by_ptxas(_ptx(library))),
        ("numba-cuda, not optimised again at link time", False, lambda lib: (_ptx(lib), lib.get_cubin().code)),
        ("ptxas, from PTX that was not optimised again at link time", False, lambda lib: _by_ptxas(_ptx(lib))),
    ]


def _with_lines(kern: Kernel, lto: bool | None) -> Any:
    """A dispatcher of the specialised kernel that keeps lines, in its device functions too."""
    from numba import cuda

    options = {"lineinfo": True, **({} if lto is None else {"lto": lto})}
    return cuda.jit(bind(kern.fn, kern.constants, {}, cuda.jit(device=True, lineinfo=True)), **options)


def _built(dispatcher: Any, types: tuple[Any, ...]) -> Any:
    """numba-cuda's compiled kernel, not loaded: `compile` would ask for a GPU."""
    from numba.cuda.dispatcher import _Kernel

    return _Kernel(dispatcher.py_func, types, **dispatcher.targetoptions)


def _ptx(library: Any) -> str:
    """The PTX that became the machine code: after the optimisation at link time, where there is one."""
    return str(library.get_lto_ptx() if library._lto else library.get_asm_str()).strip("\x00\n ") + "\n"


def _by_ptxas(ptx: str) -> tuple[str, bytes]:
    target = next(line.split()[1].rstrip(",") for line in ptx.splitlines() if line.startswith(".target"))
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx, "utf-8")
        _tool("ptxas", f"-arch={target}", "-lineinfo", str(source), "-o", str(cubin))
        return ptx, cubin.read_bytes()


def disassemble(cubin: bytes) -> str:
    """The listing of a cubin, with lines and where they were inlined; raises ToolError without nvdisasm."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        return _tool("nvdisasm", "-gi", str(path))


@cache
def tool_version(tool: str) -> str:
    """The release of one of the CUDA toolkit's programs, such as V13.0.88; raises ToolError."""
    words = _tool(tool, "--version").replace(",", " ").split()
    return next((word for word in words if word[:1] == "V" and word[1:2].isdecimal()), "unknown")


def _tool(tool: str, *args: str) -> str:
    """What a tool writes to its standard output; raises ToolError with its complaint."""
    command = [hardware_tools.find(tool), *args]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise ToolError(f"{tool} failed: {done.stderr.decode('utf-8', 'replace')[-300:]}")
    return done.stdout.decode("utf-8", "replace")


def _resources(built: Any) -> dict[str, int]:
    attributes = built._codelibrary.get_cufunc().attrs
    return {"registers": attributes.regs, "shared": attributes.shared, "local": attributes.local}


def parameter_names(launch: Launch) -> list[str]:
    """What each parameter of the compiled kernel is: Numba takes an array apart into its fields."""
    from numba.cuda import types

    found: list[str] = []
    for name, kind in zip(launch.arguments, launch.types, strict=True):
        if isinstance(kind, types.Array):
            fields = ["meminfo", "parent", "nitems", "itemsize", "data"]
            fields += [f"{what}{axis}" for what in ("shape", "strides") for axis in range(kind.ndim)]
            found += [f"{name}.{field}" for field in fields]
        else:
            found.append(name)
    return found
