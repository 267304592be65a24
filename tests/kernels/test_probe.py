"""Probes: what a watch records, what it refuses, and that neither a watch nor a nap changes what a kernel does."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda, float32

from kernels import cases
from kernels.errors import KernelError, ProbeError
from kernels.kernel import Backend, Kernel, device, kernel
from kernels.probe import Probed, Reading, Watch, delayed
from kernels.simt import OutOfBounds, SimtError
from kernels.vllm import attention_kernels, attention_utils
from kernels.vllm.classic_v1 import paged_attention_v1, paged_attention_v1_kernel

HERE = Path(__file__)
FACTOR = 0


@device
def weigh(value, turn):
    result = value * FACTOR  # line: product
    if turn > 0:
        result = result + turn  # line: turn added
    return result  # line: device return


@kernel(lambda FACTOR: {})
def rows_kernel(out, a, width):
    row = cuda.grid(1)
    if row >= out.size:
        return
    best = a[row * width]  # line: first best
    for j in range(width):
        item = a[row * width + j]  # line: item
        if item > best:
            best = item  # line: better
    total = 0
    for j in range(width):
        total += weigh(a[row * width + j], j)  # line: total
    out[row] = best  # line: first store
    out[row] += total  # line: second store


@kernel()
def places_kernel(out):
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    z = cuda.threadIdx.z
    out[0] = x + y + z  # line: place


@kernel()
def faulty_kernel(out, zero):
    i = cuda.threadIdx.x
    if zero:
        out[out.size + i] = 1  # line: fault
    else:
        out[i] = 7 // zero  # line: division


@kernel()
def racy_kernel(out):
    told = cuda.shared.array(1, float32)
    warp = cuda.threadIdx.x // 32
    if warp == 0:
        told[0] = float32(5)
    if warp == 1:
        out[cuda.threadIdx.x - 32] = told[0]  # line: racy read


@kernel()
def guarded_kernel(out):
    told = cuda.shared.array(1, float32)
    if cuda.threadIdx.x == 0:
        told[0] = float32(5)
    cuda.syncthreads()
    if cuda.threadIdx.x >= 32:
        out[cuda.threadIdx.x - 32] = told[0]


def line(name: str) -> int:
    """The number of the line above that is marked so."""
    (found,) = (n for n, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"# line: {name}"))
    return found


def lines(first: str, last: str | None = None) -> tuple[int, int]:
    return line(first), line(last or first)


ALL = lines("product", "second store")
table = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.integers(-9, 9), min_size=width, max_size=width), min_size=1, max_size=5)
)


def launch(chosen: Any, a: Any, factor: int = 1, backend: str | Backend = "sim") -> list[int]:
    """Run `rows_kernel`, or one made from it, in blocks of two threads."""
    array = np.array(a, np.int64)
    out = np.full(len(array), -1, np.int64)
    chosen.specialise(FACTOR=factor).on(backend)[-(-len(array) // 2), 2](out, array.reshape(-1), array.shape[1])
    return out.tolist()


def values(probed: Probed, name: str) -> list[float]:
    return [reading.value for reading in probed.readings(name)]


# -- what is recorded


@settings(max_examples=40)
@given(table, st.integers(-3, 3))
def test_watches_in_kernel_and_device_function_record_what_plain_python_computes(a: Any, factor: int) -> None:
    probed = Probed(
        rows_kernel,
        [
            Watch("best", "best", lines("better"), "best", by=("row", "j"), when="row > 0"),
            Watch("turn", "result", ALL, "result", by=("turn", "value")),
            Watch("stored", "out[row]", ALL, "out[]", by=("row",)),
            Watch("ends", "total", lines("first best", "second store")),
        ],
    )
    out = launch(probed, a, factor)
    best, turns, stored, ends = [], [], [], []
    for number, row in enumerate(a):
        place = number // 2, number % 2
        top = row[0]
        for j, item in enumerate(row):
            if item > top:
                top = item
                if number > 0:
                    best.append(Reading(*place, (number, j), top))
        for j, item in enumerate(row):
            turns.append(Reading(*place, (j, item), item * factor))
            if j > 0:
                turns.append(Reading(*place, (j, item), item * factor + j))
        total = sum(item * factor + j for j, item in enumerate(row))
        stored += [Reading(*place, (number,), value) for value in (top, top + total)]
        ends.append(Reading(*place, (), total))
    assert probed.readings("best") == best
    assert probed.readings("turn") == turns
    assert probed.readings("stored") == stored
    assert probed.readings("ends") == ends
    assert out == launch(rows_kernel, a, factor) == [reading.value for reading in stored[1::2]]


def test_after_none_records_once_before_a_return() -> None:
    probed = Probed(
        rows_kernel,
        [
            Watch("device", "result", lines("product", "device return"), by=("turn",)),
            Watch("inner", "item", lines("item")),
            Watch("loop", "best", (line("item") - 1, line("better"))),
        ],
    )
    launch(probed, [[3, 5, 4]], 2)
    assert values(probed, "device") == [6, 11, 10]
    assert values(probed, "inner") == [3, 5, 4], "a statement in a loop counts each time"
    assert values(probed, "loop") == [5], "the loop as a whole is one statement"


def test_after_means_a_variable_or_a_store_and_only_within_the_lines() -> None:
    probed = Probed(
        rows_kernel,
        [
            Watch("both", "best", ALL, "best"),
            Watch("first", "best", lines("first best"), "best"),
            Watch("second", "out[row]", lines("second store"), "out[]"),
            Watch("added", "total", lines("total"), "total"),
        ],
    )
    launch(probed, [[3, 5, 9]], 1)
    assert values(probed, "both") == [3, 5, 9]
    assert values(probed, "first") == [3]
    assert values(probed, "second") == [9 + 17 + 3]
    assert values(probed, "added") == [3, 9, 20]


def test_block_and_thread_are_linear_and_order_the_readings() -> None:
    probed = Probed(places_kernel, [Watch("x", "x", lines("place"), by=("x", "y", "z", "cuda.blockIdx.y"))])
    probed.on(Backend("sim", "random:3"))[(2, 3), (2, 2, 2)](np.zeros(1, np.int64))
    found = probed.readings("x")
    assert [(r.block, r.thread) for r in found] == [(block, thread) for block in range(6) for thread in range(8)]
    for r in found:
        assert r.keys == (r.thread % 2, r.thread // 2 % 2, r.thread // 4, r.block // 2)
        assert r.value == r.thread % 2


def test_constants_are_visible_and_a_second_launch_replaces_the_first() -> None:
    probed = Probed(rows_kernel, [Watch("constant", "FACTOR * 10", lines("product"))])
    launch(probed, [[1, 1]], 3)
    assert values(probed, "constant") == [30, 30]
    launch(probed, [[1]], 4)
    assert values(probed, "constant") == [40]
    assert probed.name == "rows_kernel"


def test_two_probes_on_one_kernel_keep_their_own_readings() -> None:
    one = Probed(rows_kernel, [Watch("value", "best", ALL, "best")])
    two = Probed(rows_kernel, [Watch("value", "total", ALL, "total")])
    a = [[2, 8]]
    assert launch(one, a) == launch(two, a) == launch(rows_kernel, a)
    assert values(one, "value") == [2, 8]
    assert values(two, "value") == [0, 2, 11]
    # `total = 0` is an assignment too.
    assert "probe_record" not in rows_kernel.fn.__globals__


# -- what is refused


@pytest.mark.parametrize(
    "watch",
    [
        Watch("lost", "best", ALL, "bestt"),
        Watch("lost", "out[row]", ALL, "out"),
        Watch("lost", "best", ALL, "best[]"),
        Watch("lost", "j", ALL, "j"),
        Watch("lost", "best", lines("total"), "best"),
        Watch("lost", "best", (1, 2)),
        Watch("lost", "result", lines("device return")),
        Watch("lost", "best", ALL, "best", file="/elsewhere/test_probe.py"),
    ],
)
def test_a_watch_that_matches_no_line_is_refused(watch: Watch) -> None:
    good = Watch("good", "best", ALL, "best", file=str(HERE))
    with pytest.raises(ProbeError, match=r"no line of rows_kernel matches the watch lost$") as caught:
        Probed(rows_kernel, [good, watch])
    assert isinstance(caught.value, KernelError)


def test_more_than_four_keys_are_refused() -> None:
    watch = Watch("wide", "best", ALL, "best", by=("1", "2", "3", "4", "5"))
    with pytest.raises(ProbeError, match="watch 'wide': by has 5 keys, at most 4 fit"):
        Probed(rows_kernel, [watch])


def test_capacity_is_exact() -> None:
    watch = Watch("total", "total", lines("total"), "total")
    fits = Probed(rows_kernel, [watch], capacity=6)
    launch(fits, [[1, 2, 3], [4, 5, 6]])
    assert values(fits, "total") == [1, 4, 9, 4, 10, 18]
    with pytest.raises(ProbeError, match="6 values were recorded, 5 fit: raise capacity or narrow `when`"):
        launch(Probed(rows_kernel, [watch], capacity=5), [[1, 2, 3], [4, 5, 6]])


def test_unknown_readings_are_refused() -> None:
    probed = Probed(rows_kernel, [Watch("best", "best", ALL, "best")])
    with pytest.raises(ProbeError, match="no readings of 'best'"):
        probed.readings("best")
    launch(probed, [[1]])
    with pytest.raises(ProbeError, match="no readings of 'worst': watched are best"):
        probed.readings("worst")


# -- lines of the kernel stay what they were


def variants(chosen: Kernel, watch: Watch) -> list[Any]:
    return [chosen, Probed(chosen, [watch]), delayed(chosen, 0), Probed(delayed(chosen, 0), [watch])]


@pytest.mark.parametrize("number", range(4))
def test_an_error_in_a_rewritten_kernel_shows_the_kernels_own_line(number: int) -> None:
    chosen = variants(faulty_kernel, Watch("i", "i", (line("fault") - 2, line("division")), "i"))[number]
    with pytest.raises(OutOfBounds, match=r"out\[4\] is outside shape \(4,\)") as caught:
        chosen.on("sim")[1, 1](np.zeros(4, np.int64), 1)
    assert (caught.value.place.file, caught.value.place.line) == (str(HERE), line("fault"))
    with pytest.raises(ZeroDivisionError) as raised:
        chosen.on("sim")[1, 1](np.zeros(4, np.int64), 0)
    assert f"test_probe.py:{line('division')}," in raised.value.__notes__[0]


# -- files


def module_of(path: Path, text: str, **names: Any) -> ModuleType:
    """A module with `names` in it, executed from a file of its own."""
    path.write_text("from kernels.kernel import device, kernel\n" + text)
    spec = importlib.util.spec_from_file_location(f"test_probe_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    spec.loader.exec_module(module)
    return module


def test_a_watch_with_a_file_is_not_taken_for_the_same_lines_of_another(tmp_path: Path) -> None:
    helper = "@device\ndef helper(value):\n    seen = value + 100\n    return seen\n"
    caller = "@kernel()\ndef caller(out):\n    seen = 1\n    out[0] = helper(seen)\n"
    inner = module_of(tmp_path / "helper.py", helper)
    outer = module_of(tmp_path / "caller.py", caller, helper=inner.helper)

    def readings(file: str | None) -> list[float]:
        probed = Probed(outer.caller, [Watch("seen", "seen", (4, 6), "seen", file=file)])
        probed.on("sim")[1, 1](np.zeros(1, np.int64))
        return values(probed, "seen")

    assert readings(str(tmp_path / "caller.py")) == [1]
    assert readings(str(tmp_path / "helper.py")) == [101]
    assert readings(None) == [1, 101]


# -- nothing changes


def attend(entry: Any, backend: str | Backend = "sim") -> Any:
    case = cases.decode_case((19, 3), 2, 1, 32, 8, "float16", seed=5)
    out = np.full(case.q.shape, np.nan, np.float16)
    paged_attention_v1(
        out, case.q, case.k_cache, case.v_cache, 1, case.scale, case.block_tables, case.seq_lens, 8, 19,
        backend=backend, entry=entry,
    )  # fmt: skip
    assert not np.isnan(out).any()
    return out


BODY, UTILS = attention_kernels.__file__, attention_utils.__file__
WATCHES = [
    Watch("qk", "qk", (1, 999), "qk", ("token_idx",), file=BODY),
    Watch("max", "qk_max", (1, 999), "qk_max", file=BODY),
    Watch("partial", "qk_vec[0]", (1, 999), "qk", file=UTILS),
    Watch("acc", "accs[i]", (1, 999), "accs[]", file=BODY, when="thread_idx < 4 and i < 2"),
]


def test_a_probed_port_and_a_delayed_one_write_the_same_bits() -> None:
    plain = attend(paged_attention_v1_kernel)
    probed = Probed(paged_attention_v1_kernel, WATCHES[:3])
    assert attend(probed).tobytes() == plain.tobytes()
    assert len(probed.readings("qk")) > len(probed.readings("partial")) // 10 > 0
    for warp in (0, 3):
        sleepy = delayed(paged_attention_v1_kernel, warp)
        assert attend(sleepy).tobytes() == plain.tobytes()
        assert attend(Probed(sleepy, WATCHES[:1])).tobytes() == plain.tobytes()


def naps(chosen: Any) -> list[bool]:
    """Whether the kernel and each device function in it name `nanosleep`."""
    fn = chosen.fn if isinstance(chosen, Kernel) else chosen._kernel.fn
    inner = fn.__globals__["weigh"].fn
    return ["nanosleep" in code.co_names for code in (fn.__code__, inner.__code__)]


def test_naps_are_in_the_kernel_and_its_device_functions_and_stay_under_a_probe() -> None:
    watch = Watch("best", "best", ALL, "best")
    assert naps(rows_kernel) == naps(Probed(rows_kernel, [watch])) == [False, False]
    assert naps(delayed(rows_kernel, 1)) == naps(Probed(delayed(rows_kernel, 1), [watch])) == [True, True]


def read_by_warp_1(chosen: Any) -> list[float]:
    out = np.zeros(32, np.float32)
    chosen.on("sim")[1, 64](out)
    return out.tolist()


@pytest.mark.parametrize("wrap", [lambda k: k, lambda k: Probed(k, [Watch("w", "warp", lines("racy read"))])])
def test_a_delay_brings_a_missing_barrier_to_light(wrap: Callable[[Kernel], Any]) -> None:
    # Warp 0 goes first on the machine, so that the race is lost only when it sleeps.
    assert read_by_warp_1(wrap(racy_kernel)) == [5.0] * 32
    assert read_by_warp_1(wrap(delayed(racy_kernel, 1))) == [5.0] * 32
    with pytest.raises(SimtError, match="is read before anything was written"):
        read_by_warp_1(wrap(delayed(racy_kernel, 0)))
    for warp in (0, 1):
        assert read_by_warp_1(delayed(guarded_kernel, warp)) == [5.0] * 32


# -- the same on a GPU


@pytest.mark.gpu
def test_gpu_records_what_the_machine_records() -> None:
    watches = [
        Watch("turn", "result", ALL, "result", by=("turn", "value"), when="value > 1"),
        Watch("stored", "out[row]", ALL, "out[]", by=("row",)),
    ]
    a = [[3, 1, 4], [1, 5, 9], [2, 6, 5]]
    sim, gpu = Probed(rows_kernel, watches), Probed(rows_kernel, watches)
    assert launch(sim, a, 2) == launch(gpu, a, 2, "cuda")
    for name in ("turn", "stored"):
        assert sim.readings(name) == gpu.readings(name) != []


@pytest.mark.gpu
def test_gpu_outputs_are_the_same_bits_with_probes_and_naps() -> None:
    plain = attend(paged_attention_v1_kernel, "cuda")
    assert attend(Probed(paged_attention_v1_kernel, WATCHES), "cuda").tobytes() == plain.tobytes()
    assert attend(delayed(paged_attention_v1_kernel, 2), "cuda").tobytes() == plain.tobytes()
