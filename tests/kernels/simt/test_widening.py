"""Float literals that Numba would widen: which are reported, and that no port holds one."""

from __future__ import annotations

import importlib.util
import pkgutil

import numpy as np
import pytest

import kernels
from kernels.kernel import Device, Kernel
from kernels.simt.widening import widenings

float32 = np.float32
LIMIT = 1e-6
COUNT = 3


def mixes(x, out):
    acc = 0.0
    y = x[0] * 0.5
    y = 2 * x[0] + COUNT
    if y > LIMIT:
        y += -1.5
    out[0] = y + acc


def careful(x, out):
    y = x[0] * float32(0.5) + np.float32(-0.25)
    y = max(y, float32(LIMIT))
    LOCAL = x[0]
    out[0] = y + LOCAL


def nested(x):
    return float32(x * 0.1)


def shadowed(LIMIT):
    return LIMIT * 2


def found(fn):
    first = fn.__code__.co_firstlineno
    return [(w.line - first, w.text) for w in widenings(fn)]


def test_bare_literals_and_float_globals_are_found_by_line():
    assert found(mixes) == [(1, "0.0"), (2, "0.5"), (4, "LIMIT"), (5, "1.5")]


def test_casts_are_fine_but_not_what_is_computed_inside_one():
    assert found(careful) == []
    assert found(nested) == [(1, "0.1")]


def test_a_parameter_of_that_name_is_not_the_global():
    assert found(shadowed) == []


def test_the_message_names_the_line_and_the_cure():
    line = mixes.__code__.co_firstlineno + 2
    assert str(widenings(mixes)[1]) == (
        f"tests/kernels/simt/test_widening.py:{line}: Numba types 0.5 as float64; write float32(0.5)"
    )


PORTS = [
    f"kernels.{folder}.{module.name}"
    for folder in ("vllm", "tiny_vllm")
    if importlib.util.find_spec(f"kernels.{folder}")
    for module in pkgutil.iter_modules([f"{kernels.__path__[0]}/{folder}"])
]


@pytest.mark.parametrize("port", PORTS)
def test_no_port_mixes(port):
    module = importlib.import_module(port)
    functions = [value.fn for value in vars(module).values() if isinstance(value, Kernel | Device)]
    assert [str(w) for fn in functions for w in widenings(fn)] == []


def test_the_ports_hold_functions_to_look_at():
    modules = [importlib.import_module(port) for port in PORTS]
    assert sum(isinstance(value, Kernel | Device) for module in modules for value in vars(module).values()) > 5
