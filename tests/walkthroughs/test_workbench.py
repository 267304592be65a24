"""The workbench: launches with probes, readings by key, and the comparison that a record is made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.regions import regions
from kernels import cases, gather, oracle
from kernels.errors import ProbeError
from kernels.kernel import Backend, Kernel
from kernels.probe import Reading
from kernels.vllm import attention_kernels
from kernels.vllm.cache import reshape_and_cache_kernel
from kernels.vllm.classic_v1 import paged_attention_v1_kernel
from walkthroughs.workbench import ROOT, Bench, Run, Workbench, distance, show

SIM = Bench(Backend("sim"))
V1, WRITER = "kernels/vllm/classic_v1.py", "kernels/vllm/cache.py"
CASE = cases.decode_case((18, 3), 2, 1, 32, 16, "float16", seed=9)
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


# -- distance and check


@given(st.lists(numbers, max_size=6), st.lists(numbers, max_size=6))
def test_distance_by_hand(a: list[float], b: list[float]) -> None:
    if len(a) != len(b) or any(math.isnan(x) != math.isnan(y) for x, y in zip(a, b, strict=True)):
        expected = math.inf
    else:
        gaps = [0.0 if x == y or math.isnan(x) else abs(x - y) for x, y in zip(a, b, strict=True)]
        expected = max(gaps, default=0.0)
    assert distance(a, b) == expected
    assert distance(np.array(a), tuple(b)) == expected
    assert distance(b, a) == expected


@pytest.mark.parametrize(
    ("observed", "expected", "gap"),
    [
        (3, 3.0, 0),
        (np.float16(1), 1.5, 0.5),
        ([[1, 2]], [1, 2], math.inf),
        ([], [0.0], math.inf),
        ("a", "a", 0),
        ("a", "b", math.inf),
        ([1, 2], "ab", math.inf),
        (True, True, 0),
        (True, False, 1),
        (math.inf, -math.inf, math.inf),
        (math.nan, 0.0, math.inf),
        ([[1], [1, 2]], [[1], [1, 2]], 0),
        ([[1], [1, 2]], [[1], [1, 3]], math.inf),
        ([[1], [1, 2]], [1, 2], math.inf),
    ],
)
def test_distance_of_all_sorts(observed: Any, expected: Any, gap: float) -> None:
    assert distance(observed, expected) == gap


@pytest.mark.parametrize(
    ("error", "tolerance", "passed"), [(0, 0, True), (1e-9, 0, False), (0.5, 0.5, True), (0.6, 0.5, False)]
)
def test_the_tolerance_is_absolute_and_inclusive(error: float, tolerance: float, passed: bool) -> None:
    bench = Workbench(V1, SIM)
    bench.check("name", [1.0, 0.0], [1.0, error], tolerance=tolerance, note="why")
    (check,) = bench.checks
    assert (check.name, check.passed, check.note, check.tolerance) == ("name", passed, "why", tolerance)
    assert check.max_error == error
    assert isinstance(check.passed, bool)
    assert isinstance(check.max_error, float)


def test_a_nan_or_a_shape_never_passes_by_tolerance() -> None:
    bench = Workbench(V1, SIM)
    bench.check("nan", [math.nan], [1.0], tolerance=1e9)
    bench.check("shape", [1.0, 1.0], [1.0], tolerance=1e9)
    assert [check.passed for check in bench.checks] == [False, False]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        (3.0, "3"),
        (-0.0, "0"),
        (np.float32(0.1), "0.1"),
        (1 / 3, "0.333333"),
        (1234567.5, "1.23457e+06"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (True, "True"),
        (np.bool_(False), "False"),
        ("text", "text"),
        ([1, 2.5], "[1, 2.5]"),
        (range(10), "[0, 1, 2, 3, 4, 5, 6, 7, … (10 values)]"),
        (range(8), "[0, 1, 2, 3, 4, 5, 6, 7]"),
        (np.eye(2), "[1, 0, 0, 1]"),
        (np.array([[True, False]]), "[True, False]"),
        ([], "[]"),
        ([[1], [1, 2]], "[[1], [1, 2]]"),
    ],
)
def test_show(value: Any, shown: str) -> None:
    assert show(value) == shown


# -- readings


class Recorded:
    """Stands for a probed kernel: readings written down by hand."""

    def __init__(self, *readings: Reading) -> None:
        self.found = list(readings)

    def readings(self, name: str) -> list[Reading]:
        assert name == "w"
        return self.found


RUN = Run(
    (),
    Recorded(  # type: ignore[arg-type]
        Reading(0, 0, (2,), 1.0), Reading(0, 0, (1,), 2.0), Reading(0, 0, (2,), 3.0), Reading(0, 5, (2,), 4.0),
        Reading(1, 0, (7,), 5.0),
    ),
)  # fmt: skip


def test_last_series_and_by_thread() -> None:
    assert RUN.last("w") == {(2,): 4.0, (1,): 2.0, (7,): 5.0}
    assert RUN.last("w", block=1) == {(7,): 5.0}
    assert RUN.last("w", block=0, by_thread=True) == {(0, 2): 3.0, (0, 1): 2.0, (5, 2): 4.0}
    assert RUN.series("w") == [2.0, 4.0, 5.0]
    assert RUN.series("w", block=0) == [2.0, 4.0]
    assert RUN.by_thread("w") == {0: [1.0, 2.0, 3.0], 5: [4.0]}
    assert RUN.by_thread("w", block=1) == {0: [5.0]}
    assert RUN.series("w", block=9) == []


def test_a_launch_without_watches_has_no_readings() -> None:
    run = Workbench(V1, SIM).attend(CASE)
    assert run.probed is None
    with pytest.raises(ProbeError, match="no readings of 'qk': this launch had no watches"):
        run.readings("qk")


# -- watches


def test_a_watch_takes_its_lines_from_the_region_in_the_port_or_what_it_imports() -> None:
    places = regions(ROOT / "kernels/vllm/attention_kernels.py")["qk-max"]
    watch = Workbench(V1, SIM).watch("qk_max", at="qk-max", after="qk_max", by=["lane"], when="lane == 0")
    assert watch.lines == (places[-1].first, places[-1].last)
    assert (watch.name, watch.value, watch.after, watch.by, watch.when) == (
        "qk_max", "qk_max", "qk_max", ("lane",), "lane == 0",
    )  # fmt: skip
    assert watch.file == attention_kernels.__file__
    assert Workbench(V1, SIM).watch("a", "b + 1", at="qk-max").value == "b + 1"


def test_part_chooses_among_places() -> None:
    places = regions(ROOT / WRITER)["k-store"]
    bench = Workbench(WRITER, SIM)
    for part, place in enumerate(places):
        assert bench.watch("x", at="k-store", part=part).lines == (place.first, place.last)
    assert len(places) == 2
    assert bench.watch("x", at="k-store").lines == bench.watch("x", at="k-store", part=1).lines


def test_a_region_that_is_not_there() -> None:
    with pytest.raises(ProbeError, match=r"watch 'slot': neither .*cache.py nor what it imports has a region"):
        Workbench(WRITER, SIM).watch("slot", at="qk-max")


# -- launches


def test_attend_records_the_seed_and_starts_from_nan() -> None:
    bench = Workbench(V1, SIM)
    watch = bench.watch("physical_block_number", at="block-table-walk", after="physical_block_number", by=("seq_idx",))
    run = bench.attend(CASE, watch)
    assert bench.seed == 9
    assert run.out[0].dtype == np.float16
    np.testing.assert_allclose(run.out[0], oracle.attention(CASE), atol=4e-3)
    assert {key[0] for key in run.last("physical_block_number")} == {0, 1}
    assert bench.checks == []


def test_write_scatter_and_gather_leave_their_inputs_alone() -> None:
    bench = Workbench(WRITER, SIM)
    case = cases.write_case(4, 1, 8, 8, "float16", seed=3)
    written = bench.write(case).out
    assert bench.seed == 3
    for found, expected in zip(written, oracle.written_caches(case), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert np.isnan(case.k_cache).all()
    pools = np.zeros((2, 2, 3)), np.zeros((2, 2, 3))
    rows, table = np.arange(9.0).reshape(3, 3), np.array([1, 0], np.int32)
    filled = bench.scatter(rows, rows, pools, table).out
    assert filled[0].reshape(-1, 3).tolist() == [[6, 7, 8], [0, 0, 0], [0, 1, 2], [3, 4, 5]]
    assert not pools[0].any()
    out = bench.gather(np.zeros(3), filled, table, 3, 1.0).out[0]
    np.testing.assert_allclose(out, [3, 4, 5])


# -- what a bench changes


def test_a_bench_swaps_a_kernel_by_its_name() -> None:
    other = Kernel(reshape_and_cache_kernel.fn, None, {"other": 1})
    bench = Bench(Backend("sim"), kernels=((other.name, other),))
    assert bench.entry(reshape_and_cache_kernel) is other
    assert bench.entry(paged_attention_v1_kernel) is paged_attention_v1_kernel
    assert SIM.entry(reshape_and_cache_kernel) is reshape_and_cache_kernel


def test_a_sleepy_warp_naps_also_where_something_is_watched() -> None:
    bench = Bench(Backend("sim"), sleepy_warp=0)
    entry = bench.entry(gather.gather_kernel)
    assert "nanosleep" in entry.fn.__code__.co_names
    work = Workbench("kernels/gather.py", bench)
    slot = work.watch("slot", at="gather-loop", after="slot", by=("token_idx",))
    pools = np.ones((2, 2, 3)), np.ones((2, 2, 3))
    run = work.gather(np.zeros(3), pools, np.array([1, 0], np.int32), 3, 1.0, slot)
    assert run.probed is not None
    assert "nanosleep" in run.probed._kernel.fn.__code__.co_names
    assert run.series("slot") == [2, 3, 0]
    assert run.out[0].tolist() == [1, 1, 1]
