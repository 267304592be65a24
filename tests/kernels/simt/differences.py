"""Where C++, Numba on a GPU and the SIMT machine give different numbers for the same expression, as data.

Each rule is one small kernel: `x = a[0]`, `y = b[0]`, then the statement. `cpp` is what CUDA C++ gives for the same
types (where the standard leaves it open, what an NVIDIA GPU does), `numba` what Numba compiles, `machine` what
`kernels.simt` does. A text stands for an error. `test_exec_differences.py` holds the machine to its column;
`python -m tests.kernels.simt.differences`, on a machine with a GPU, prints what Numba gives there as JSON.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import cuda, float32, int8, int32, int64, uint8, uint32
from numba.cuda import libdevice

from kernels.kernel import Kernel, cuda_unavailable

INF, NAN = math.inf, math.nan
LANES = 32


@dataclass(frozen=True)
class Rule:
    """One line of the table. `x` and `y`: dtype and value; `out`: the dtype that the result is stored as."""

    id: str
    code: str
    x: tuple[str, Any]
    y: tuple[str, Any]
    out: str
    cpp: Any
    numba: Any
    machine: Any
    note: str = ""

    def kernel(self) -> Kernel:
        """The rule as a kernel; an expression is stored into `out[0]`, a statement stores for itself."""
        body = self.code if "out[0]" in self.code else f"out[0] = {self.code}"
        text = "def rule(out, a, b):\n    x = a[0]\n    y = b[0]\n" + "".join(f"    {s}\n" for s in body.split("; "))
        names: dict[str, Any] = {
            "cuda": cuda, "libdevice": libdevice, "math": math, "float32": float32, "float64": numba.float64,
            "int8": int8, "int32": int32, "int64": int64, "uint8": uint8, "uint32": uint32,
        }  # fmt: skip
        exec(text, names)
        return Kernel(names["rule"])

    def run(self, backend: str) -> Any:
        """The result as a Python number, or the name of the error that is raised."""
        out = np.zeros(1, self.out)
        a, b = np.array([self.x[1]], self.x[0]), np.array([self.y[1]], self.y[0])
        try:
            self.kernel().on(backend)[1, LANES](out, a, b)
        except Exception as error:
            return type(error).__name__
        return out[0].item()


ONE = ("int32", 1)
MOST, LEAST = 2**31 - 1, -(2**31)
RULES = (
    # Integers: Numba computes in 64 bits, C++ in the wider type and at least in 32; the machine in the wider type.
    Rule("int32 * int32", "x * y", ("int32", 65536), ("int32", 65536), "int64", 0, 2**32, 0, "cast where C++ wraps"),
    Rule("int32 + literal", "x + 1", ("int32", MOST), ONE, "int64", LEAST, 2**31, LEAST),
    Rule("-int32", "-x", ("int32", LEAST), ONE, "int64", LEAST, LEAST, LEAST),
    Rule("int32 ** 2", "x ** 2", ("int32", 65536), ONE, "int64", 0, 2**32, 0),
    Rule("cast of a product", "int32(x * y)", ("int32", 65537), ("int32", 65537), "int64", 131073, 131073, 131073),
    Rule("int32 of 2**31", "int32(y)", ONE, ("int64", 2**31), "int64", LEAST, LEAST, LEAST),
    Rule("int8 of 200", "int8(x)", ("int32", 200), ONE, "int64", -56, -56, -56),
    Rule("int16 + int16", "x + y", ("int16", 32767), ("int16", 1), "int64", 32768, 32768, -32768, "C++ promotes"),
    Rule("uint32 - literal", "x - 1", ("uint32", 0), ONE, "int64", 2**32 - 1, -1, 2**32 - 1),
    Rule("uint32 + int32", "x + y", ("uint32", 2**32 - 1), ONE, "int64", 0, 2**32, 2**32),
    Rule("uint32 < int32", "1 if x < y else 0", ("uint32", 1), ("int32", -1), "int64", 1, 0, 0),
    Rule("~uint32", "~x", ("uint32", 0), ONE, "uint64", *[2**32 - 1] * 3),
    Rule("uint64 + int64", "x + y", ("uint64", 1), ("int64", -2), "float64", 2.0**64, -1.0, -1.0, "NumPy: float64"),
    Rule("bool + bool", "(x > 0) + (y > 0)", ONE, ONE, "int64", 2, 2, 1, "NumPy: a logical or"),
    Rule("-bool", "-(x > 0)", ONE, ONE, "int64", -1, -1, "TypeError"),
    Rule("past 64 bits", "1 if (cuda.blockDim.x << 58) > 0 else 0", ONE, ONE, "int64", 0, 0, 1, "Python ints grow"),
    # Division: C++ truncates, Python floors; nothing traps on a GPU.
    Rule("-7 // 2", "x // y", ("int32", -7), ("int32", 2), "int64", -3, -4, -4),
    Rule("-7 % 2", "x % y", ("int32", -7), ("int32", 2), "int64", -1, 1, 1),
    Rule("7 / 2", "x / y", ("int32", 7), ("int32", 2), "float64", 3.0, 3.5, 3.5),
    Rule("int32 // 0", "x // y", ("int32", 7), ("int32", 0), "int64", -1, 0, 0, "C++: undefined"),
    Rule("int32 % 0", "x % y", ("int32", 7), ("int32", 0), "int64", 7, 0, 0, "C++: undefined"),
    Rule("thread index // 0", "cuda.blockDim.x // (cuda.gridDim.x - 1)", ONE, ONE, "int64", -1, 0, "ZeroDivisionError",
         "Python ints"),
    Rule("-7.5 % 2", "x % y", ("float32", -7.5), ("float32", 2), "float64", -1.5, 0.5, 0.5, "C++: fmodf"),
    Rule("1.0 / 0.0", "x / y", ("float32", 1), ("float32", 0), "float64", INF, INF, INF),
    Rule("0.0 / 0.0", "x / y", ("float32", 0), ("float32", 0), "float64", NAN, NAN, NAN),
    Rule("float() / float()", "float(cuda.threadIdx.y) / float(cuda.threadIdx.y)", ONE, ONE, "float64", NAN, NAN,
         "ZeroDivisionError", "Python floats"),
    # Shifts.
    Rule("int32 << 33", "x << 33", ONE, ONE, "int64", 0, 2**33, 0, "C++: undefined"),
    Rule("int64 << 70", "x << y", ("int64", 1), ("int64", 70), "int64", 0, 0, 0, "C++: undefined"),
    Rule("-7 >> 1", "x >> 1", ("int32", -7), ONE, "int64", -4, -4, -4),
    Rule("-1 >> 40", "x >> y", ("int32", -1), ("int32", 40), "int64", -1, -1, -1, "C++: undefined"),
    # Floats: Numba widens to float64 where an int or a float literal takes part, C++ for a double literal only.
    Rule("float32 * 0.1", "x * 0.1", ("float32", 3), ONE, "float64", 3 * 0.1, 3 * 0.1, float(np.float32(3 * 0.1)),
         "write float32(0.1)"),
    Rule("float32 * float32(0.1)", "x * float32(0.1)", ("float32", 3), ONE, "float64",
         *[float(np.float32(3 * 0.1))] * 3),
    Rule("float32 == 0.1", "1 if x == 0.1 else 0", ("float32", 0.1), ONE, "int64", 0, 0, 1),
    Rule("float32 + literal int", "x + 1", ("float32", 2**24), ONE, "float64", 2.0**24, 2.0**24 + 1, 2.0**24),
    Rule("float32 + int32", "x + y", ("float32", 2**24), ONE, "float64", 2.0**24, 2.0**24 + 1, 2.0**24 + 1),
    Rule("acc = 0.0", "acc = 0.0; acc += x; acc += y; out[0] = acc", ("float32", 2**24), ("float32", 1), "float64",
         2.0**24, 2.0**24 + 1, 2.0**24, "write float32(0)"),
    Rule("float16 + float16", "x + y", ("float16", 2048), ("float16", 1), "float64", 2048.0, 2048.0, 2048.0),
    Rule("float16 * float32", "float32(x) * y", ("float16", 0.1), ("float32", 10), "float64",
         *[float(np.float32(np.float16(0.1)) * np.float32(10))] * 3),
    Rule("float16 of 70000", "x", ("float32", 70000), ONE, "float16", INF, INF, INF),
    Rule("x * x - y", "x * x - y", ("float32", 1 + 2.0**-12), ("float32", 1 + 2.0**-11), "float64", 2.0**-24, 2.0**-24,
         0.0, "the compilers merge it into one fma"),
    Rule("the same, not merged", "libdevice.fadd_rn(libdevice.fmul_rn(x, x), -y)", ("float32", 1 + 2.0**-12),
         ("float32", 1 + 2.0**-11), "float64", 0.0, 0.0, 0.0),
    # To integers: towards zero, clamped; what a NaN gives depends on the widths.
    Rule("int32 of NaN", "int32(x)", ("float32", NAN), ONE, "int64", 0, 0, 0, "C++: undefined"),
    Rule("int32 of 3e9", "int32(x)", ("float32", 3e9), ONE, "int64", MOST, MOST, MOST, "C++: undefined"),
    Rule("int32 of -inf", "int32(x)", ("float32", -INF), ONE, "int64", LEAST, LEAST, LEAST, "C++: undefined"),
    Rule("int32 of a float64 NaN", "int32(x)", ("float64", NAN), ONE, "int64", LEAST, LEAST, LEAST, "C++: undefined"),
    Rule("int64 of NaN", "int64(x)", ("float32", NAN), ONE, "int64", *[-(2**63)] * 3, "C++: undefined"),
    Rule("uint32 of -1.5", "uint32(x)", ("float32", -1.5), ONE, "int64", 0, 0, 0, "C++: undefined"),
    Rule("int32 of -2.75", "int32(x)", ("float32", -2.75), ONE, "int64", -2, -2, -2),
    Rule("NaN into an int32 array", "x", ("float32", NAN), ONE, "int32", 0, 0, 0),
    Rule("3e9 into an int32 array", "x", ("float32", 3e9), ONE, "int32", MOST, MOST, MOST),
    Rule("round(2.5)", "round(x)", ("float32", 2.5), ONE, "int64", 3, 2, 2, "C++: roundf, away from zero"),
    # NaN in comparisons.
    Rule("fmaxf(NaN, 1)", "libdevice.fmaxf(x, y)", ("float32", NAN), ("float32", 1), "float64", 1.0, 1.0, 1.0),
    Rule("fminf(1, NaN)", "libdevice.fminf(y, x)", ("float32", NAN), ("float32", 1), "float64", 1.0, 1.0, 1.0),
    Rule("max(NaN, 1)", "max(x, y)", ("float32", NAN), ("float32", 1), "float64", 1.0, 1.0, NAN, "write fmaxf"),
    Rule("max(1, NaN)", "max(y, x)", ("float32", NAN), ("float32", 1), "float64", 1.0, 1.0, 1.0),
    # Functions: `math` is Python's own on the machine.
    Rule("expf(-104)", "libdevice.expf(x)", ("float32", -104), ONE, "float64", 0.0, 0.0, 0.0),
    Rule("expf(-100)", "libdevice.expf(x)", ("float32", -100), ONE, "float64", *[27 * 2.0**-149] * 3, "subnormal"),
    Rule("fast_expf(-100)", "libdevice.fast_expf(x)", ("float32", -100), ONE, "float64", *[27 * 2.0**-149] * 3,
         "0 where subnormals are flushed (-ftz=true)"),
    Rule("expf(1000)", "libdevice.expf(x)", ("float32", 1000), ONE, "float64", INF, INF, INF),
    Rule("math.exp(float32)", "math.exp(x)", ("float32", 1), ONE, "float64", float(np.float32(math.e)),
         float(np.float32(math.e)), math.e, "write libdevice.expf"),
    Rule("math.exp(1000)", "math.exp(x)", ("float32", 1000), ONE, "float64", INF, INF, "OverflowError"),
    Rule("math.sqrt(-1)", "math.sqrt(x)", ("float32", -1), ONE, "float64", NAN, NAN, "ValueError"),
    Rule("math.log(0)", "math.log(x)", ("float32", 0), ONE, "float64", -INF, -INF, "ValueError"),
    Rule("fast_fdividef(1, 2**127)", "libdevice.fast_fdividef(x, y)", ("float32", 1), ("float32", 2.0**127), "float64",
         0.0, 0.0, 0.0),
    # Bits and warps.
    Rule("ballot of all", "cuda.ballot_sync(0xFFFFFFFF, True)", ONE, ONE, "int64", 2**32 - 1, -1, -1),
    Rule("popc(ballot)", "cuda.popc(cuda.ballot_sync(0xFFFFFFFF, True))", ONE, ONE, "int64", 32, 32, 32),
    Rule("clz(int32)", "cuda.clz(x)", ONE, ONE, "int64", 31, 31, 31),
    Rule("clz(block size)", "cuda.clz(cuda.blockDim.x)", ONE, ONE, "int64", 26, 26, 58, "write int32() around it"),
    Rule("ffs(8)", "cuda.ffs(x)", ("int32", 8), ONE, "int64", 4, 4, 4),
    Rule("brev(1)", "cuda.brev(x)", ("uint32", 1), ONE, "uint64", 2**31, 2**31, 2**31),
    Rule("shuffle width", "v = cuda.shfl_down_sync(0xFFFFFFFF, x, 1, 8); out[0] = v", ONE, ONE, "int64", 1,
         "TypeError", 1, "Numba has no fourth argument"),
)  # fmt: skip


def main() -> int:
    """Run every rule with Numba on the GPU and print it as JSON; 1 if the table is wrong, 2 without a GPU."""
    if reason := cuda_unavailable():
        print(f"no GPU: {reason}", file=sys.stderr)
        return 2
    from cuda.bindings import driver

    rows = []
    for rule in RULES:
        got = rule.run("cuda")
        agrees = got == rule.numba or (got != got and rule.numba != rule.numba)
        rows.append({"id": rule.id, "code": rule.code, "numba": repr(got), "expected": repr(rule.numba), "ok": agrees})
    name = cuda.get_current_device().name
    version = driver.cuDriverGetVersion()[1]
    print(json.dumps({"device": str(name), "driver": version, "numba_cuda": _version(), "rules": rows}, indent=1))
    return int(not all(row["ok"] for row in rows))


def _version() -> str:
    from importlib.metadata import version

    return version("numba-cuda")


if __name__ == "__main__":
    sys.exit(main())
