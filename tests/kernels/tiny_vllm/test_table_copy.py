"""The time of the table's copies, with a machine that counts, a clock that is told the time, and no GPU."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import types
from dataclasses import asdict, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import bench
from kernels.errors import ArgumentError, BackendUnavailable
from kernels.tiny_vllm import table_copy
from kernels.tiny_vllm.table_copy import COMPLETE, WAYS, CopyTimes, Timing, crossing, measure, packed, percentile

BEFORE, AFTER, CHANGES = crossing()
PER_COPY, PER_BYTE, PER_LAUNCH = 5e-6, 1e-9, 30e-6


class Counting:
    """A machine that keeps a table, counts what it is sent, and moves the clock by what each call costs."""

    def __init__(self, changes=CHANGES):
        self.changed = len(changes)
        self.changes = changes
        self.now = 0.0
        self.jitter = 0.0
        self.log = []
        self.pending = []
        self.reset()

    def reset(self):
        self.table = BEFORE.reshape(-1).copy()
        self.list = [(0, 0)] * self.changed

    def clock(self):
        assert not self.pending, "the clock was read before the work was done"
        return self.now

    def _sent(self, nbytes):
        self.log.append(nbytes)
        self.pending.append(PER_COPY + nbytes * PER_BYTE)

    def copy_table(self):
        self._sent(AFTER.nbytes)
        self.table[:] = AFTER.reshape(-1)

    def copy_entry(self, number):
        self._sent(4)
        place, block = self.changes[number]
        self.table[place] = block

    def copy_changes(self):
        self._sent(packed(self.changes).nbytes)
        self.list = list(self.changes)

    def launch_update(self):
        self.log.append("launch")
        self.pending.append(PER_LAUNCH)
        for place, block in self.list:
            self.table[place] = block

    def wait(self):
        self.now += sum(self.pending) + (self.jitter if self.pending else 0.0)
        self.pending.clear()

    def read(self):
        return self.table


# -- the statistic


def ranked(samples, percent):
    """By definition, without sorting."""
    enough = [s for s in samples if 100 * sum(other <= s for other in samples) >= percent * len(samples)]
    return min(enough)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40), st.integers(1, 100))
def test_percentile_is_the_smallest_sample_that_enough_do_not_exceed(samples, percent):
    assert percentile(samples, percent) == ranked(samples, percent)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_a_timing_does_not_depend_on_the_order_of_its_samples(samples, random):
    found = table_copy.timing(samples)
    assert found == Timing(ranked(samples, 50), ranked(samples, 10), ranked(samples, 90), len(samples))
    assert found.low <= found.median <= found.high
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert table_copy.timing(shuffled) == found


def test_percentiles_by_hand():
    samples = list(range(10, 0, -1))
    assert [percentile(samples, percent) for percent in (1, 10, 11, 50, 90, 91, 100)] == [1, 1, 2, 5, 9, 10, 10]
    assert percentile([7.0], 50) == 7.0


def test_no_samples_are_refused():
    with pytest.raises(ArgumentError, match="samples = none: there must be at least one; raise repeats"):
        percentile([], 50)
    with pytest.raises(ArgumentError, match="raise repeats"):
        measure(Counting(), repeats=0)


# -- what is sent


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("nothing", []),
        ("every_layer", [16_384] * 16),
        ("once", [16_384]),
        ("each_entry", [4] * 16),
        ("together", [128, "launch"]),
        ("launch", ["launch"]),
    ],
)
def test_the_calls_and_bytes_of_one_step(name, calls):
    machine = Counting()
    WAYS[name](machine)
    assert machine.log == calls
    if name == "every_layer":
        assert sum(machine.log) == 262_144


def test_every_way_has_a_time_and_the_other_way_round():
    assert [field.name for field in fields(CopyTimes)] == list(WAYS)
    assert set(COMPLETE) < set(WAYS)


def test_the_crossing_changes_one_entry_a_layer():
    assert (BEFORE.shape, BEFORE.dtype) == ((2, 16, 128), np.int32)
    assert [place for place, _ in CHANGES] == [layer * 128 + 1 for layer in range(16)]
    assert sorted(block for _, block in CHANGES) == list(range(65_536 - 32, 65_536 - 16))
    assert (BEFORE != AFTER).sum() == 16
    patched = BEFORE.reshape(-1).copy()
    for place, block in CHANGES:
        patched[place] = block
    assert np.array_equal(patched, AFTER.reshape(-1))


def test_the_list_is_places_then_blocks():
    found = packed([(3, 9), (4095, 65_535)])
    assert (found.dtype, found.tolist()) == (np.int32, [[3, 4095], [9, 65_535]])
    assert found.flags.c_contiguous


# -- timing


def test_times_are_microseconds_from_the_first_call_to_the_end_of_the_work():
    machine = Counting()
    times = measure(machine, clock=machine.clock, repeats=4, warm_up=0)
    expected = {
        "nothing": 0,
        "every_layer": 16 * (PER_COPY + 16_384 * PER_BYTE),
        "once": PER_COPY + 16_384 * PER_BYTE,
        "each_entry": 16 * (PER_COPY + 4 * PER_BYTE),
        "together": PER_COPY + 128 * PER_BYTE + PER_LAUNCH,
        "launch": PER_LAUNCH,
    }
    for name, seconds in expected.items():
        found = getattr(times, name)
        assert found.count == 4
        assert (found.median, found.low, found.high) == pytest.approx((seconds * 1e6,) * 3, abs=1e-6)


@pytest.mark.parametrize(("repeats", "warm_up"), [(1, 0), (7, 0), (7, 3)])
def test_the_number_of_copies_and_bytes_of_a_measurement(repeats, warm_up):
    machine = Counting()
    times = measure(machine, clock=machine.clock, repeats=repeats, warm_up=warm_up)
    rounds = repeats + warm_up
    assert machine.log.count(16_384) == 17 * rounds
    assert machine.log.count(4) == 16 * rounds
    assert machine.log.count(128) == rounds
    assert machine.log.count("launch") == 2 * rounds
    assert sum(entry for entry in machine.log if entry != "launch") == (17 * 16_384 + 64 + 128) * rounds
    assert {timing["count"] for timing in asdict(times).values()} == {repeats}


@given(st.lists(st.floats(0, 1e-3), min_size=3, max_size=12), st.integers(0, 2))
def test_rounds_after_the_warm_up_are_all_kept_and_no_other(delays, warm_up):
    class Slow(Counting):
        def copy_table(self):
            super().copy_table()
            # `every_layer` comes first in a round: 16 copies, then the one of `once`.
            self.jitter = delays[(self.log.count(16_384) - 1) // 17]

    machine = Slow()
    times = measure(machine, clock=machine.clock, repeats=len(delays) - warm_up, warm_up=warm_up)
    kept = [(PER_COPY + 16_384 * PER_BYTE + delay) * 1e6 for delay in delays[warm_up:]]
    assert times.once.median == pytest.approx(ranked(kept, 50), abs=1e-6)
    assert times.once.low == pytest.approx(ranked(kept, 10), abs=1e-6)
    assert times.once.high == pytest.approx(ranked(kept, 90), abs=1e-6)


def test_the_clock_is_a_real_one_by_default():
    times = measure(Counting(), repeats=3, warm_up=0)
    for timing in asdict(times).values():
        assert all(math.isfinite(timing[name]) for name in ("median", "low", "high"))


# -- that a way does its work


def test_every_way_leaves_the_new_table():
    assert table_copy.wrong_ways(Counting(), AFTER) == []


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("copy_table", ["every_layer", "once"]),
        ("copy_entry", ["each_entry"]),
        ("copy_changes", ["together"]),
        ("launch_update", ["together"]),
    ],
)
def test_a_way_that_does_nothing_is_found(method, wrong, monkeypatch):
    monkeypatch.setattr(Counting, method, lambda self, *number: None)
    assert table_copy.wrong_ways(Counting(), AFTER) == wrong


# -- the GPU's calls, on memory of this machine that plays the GPU's


class OnDevice:
    """A device array as far as `Gpu` needs one."""

    def __init__(self, array):
        self.array = array

    @property
    def device_ctypes_pointer(self):
        return ctypes.c_void_p(self.array.ctypes.data)

    def __getitem__(self, row):
        return OnDevice(self.array[row])

    def copy_to_device(self, array):
        assert (array.shape, array.dtype) == (self.array.shape, self.array.dtype)
        self.array[...] = array

    def copy_to_host(self):
        return self.array.copy()


@pytest.fixture
def played(monkeypatch):
    """Numba's calls, played on the host; the list of what was called."""
    import numba.cuda as real  # the attribute of the package, whatever stands behind it

    log = []

    def copied(to, source, nbytes):
        assert all(type(number) is int for number in (to, source, nbytes))
        log.append(nbytes)
        ctypes.memmove(to, source, nbytes)

    def launcher(table, places, entries):
        log.append("launch")
        table.array[places.array] = entries.array

    class Compiled:
        def __getitem__(self, configuration):
            log.append(configuration)
            return launcher

    module = types.ModuleType("numba.cuda.cudadrv.driver")
    module.driver = types.SimpleNamespace(cuMemcpyHtoD=copied)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(real, "to_device", lambda array: OnDevice(array.copy()), raising=False)
    monkeypatch.setattr(real, "synchronize", lambda: log.append("wait"), raising=False)
    monkeypatch.setattr(table_copy, "cuda_unavailable", lambda: None)
    monkeypatch.setattr(table_copy, "compile_cuda", lambda kernel: Compiled())
    monkeypatch.setattr(table_copy, "quiet_occupancy", contextlib.nullcontext)
    return log


def test_the_gpus_calls_are_what_they_should_be(played):
    gpu = table_copy.Gpu(BEFORE, AFTER, CHANGES)
    assert played.pop(0) == (1, 16)
    assert np.array_equal(gpu.read(), BEFORE.reshape(-1))
    assert table_copy.wrong_ways(gpu, AFTER) == []
    played.clear()
    times = measure(gpu, repeats=2, warm_up=1)
    assert {timing["count"] for timing in asdict(times).values()} == {2}
    one_round = ["wait", "wait", "wait", *[16_384] * 16, "wait", "wait", 16_384, "wait", "wait", *[4] * 16, "wait",
                 "wait", 128, "launch", "wait", "wait", "launch", "wait"]  # fmt: skip
    assert played == one_round * 3


def test_the_gpu_starts_each_way_from_the_old_table(played):
    gpu = table_copy.Gpu(BEFORE, AFTER, CHANGES)
    gpu.copy_table()
    gpu.reset()
    assert np.array_equal(gpu.read(), BEFORE.reshape(-1))
    gpu.launch_update()  # the list is empty: 16 times block 0 to place 0
    assert np.flatnonzero(gpu.read() != BEFORE.reshape(-1)).tolist() == [0]


def test_without_a_gpu_the_reason_is_said(monkeypatch):
    monkeypatch.setattr(table_copy, "cuda_unavailable", lambda: "no GPU was found")
    with pytest.raises(BackendUnavailable, match="the time of a copy: no GPU was found"):
        table_copy.Gpu(BEFORE, AFTER, CHANGES)


def test_the_line_of_the_benchmark():
    machine = Counting()
    line = " ".join(bench._table_line(measure(machine, clock=machine.clock, repeats=1)).split())
    assert line == "tiny-vllm, its table in each layer 342 us a decode step; once 21, changed entries 35"


@pytest.mark.gpu
def test_gpu_every_way_leaves_the_new_table_and_has_a_time():
    gpu = table_copy.Gpu(BEFORE, AFTER, CHANGES)
    assert table_copy.wrong_ways(gpu, AFTER) == []
    times = measure(gpu, repeats=5, warm_up=2)
    assert all(timing["count"] == 5 and timing["low"] > 0 for timing in asdict(times).values())
