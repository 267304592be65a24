"""What a launch asks of memory, counted: on kernels whose every access is known, and by a second way of counting."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda, float32, int64, uint16

from kernels.kernel import Backend, kernel
from kernels.ptx import bulk_load, load_word, mbarrier_expect, mbarrier_fence, mbarrier_init, mbarrier_passed
from kernels.simt.access import READ, Observer
from kernels.tuned.call import Launch
from kernels.vector import vector_load4
from walkthroughs.traffic import Traffic, counted


@kernel()
def sums(out, numbers, others):
    row = cuda.shared.array(64, float32)
    thread = cuda.threadIdx.x
    at = cuda.blockIdx.x * 64 + thread
    row[thread] = numbers[at] + numbers[at]
    cuda.syncthreads()
    value = cuda.shfl_xor_sync(0xFFFFFFFF, row[63 - thread], 1)
    a, b, c, d = vector_load4(others, 4 * (thread % 4))
    if thread < 10:
        out[at] = value + a + b + c + d
    cuda.syncthreads()


@kernel()
def copies(out, words):
    ring = cuda.shared.array(0, uint16)
    barriers = cuda.shared.array(0, int64)
    lane = cuda.threadIdx.x
    if lane == 0:
        mbarrier_init(barriers, 16, 1)
        mbarrier_fence()
        mbarrier_expect(barriers, 16, 128)
        bulk_load(ring, 0, words, 64, 64, barriers, 16)
        bulk_load(ring, 32, words, 96, 64, barriers, 16)
    cuda.syncwarp()
    while mbarrier_passed(barriers, 16, 0) == 0:
        pass
    for number in range(2):
        out[2 * lane + number] = uint16(load_word(words, 2 * lane) + ring[2 * lane + number])


def launch(blocks: int = 2) -> tuple[Launch, dict[str, Any]]:
    out, numbers, others = np.zeros(64 * blocks, np.float32), np.ones(64 * blocks, np.float32), np.ones(16, np.float32)
    return Launch(sums, (blocks, 1, 1), 64, (out, numbers, others)), {"out": out, "numbers": numbers}


def test_every_load_store_barrier_and_shuffle_is_counted() -> None:
    made, arrays = launch(3)
    found = counted([made], arrays)
    assert found.loads == {"numbers": Counter({4: 2 * 3 * 64}), "out": Counter(), "rest": Counter({16: 3 * 64})}
    assert found.stores == {"numbers": Counter(), "out": Counter({4: 30}), "rest": Counter()}
    assert (found.bytes("numbers"), found.lanes("numbers"), found.widths("numbers")) == (4 * 384, 384, [4])
    assert (found.bytes("rest"), found.widths("rest", "numbers"), found.stored("out")) == (16 * 192, [4, 16], 120)
    assert found.distinct("numbers") == 4 * 192, "each was read twice"
    assert (found.barriers, found.operations) == (6, Counter({"shfl_xor_sync": 6}))
    assert (found.blocks, found.threads, found.shared) == (3, 192, 256)
    assert arrays["out"][:10].tolist() == [6.0] * 10, "it ran"


def test_an_instruction_that_reads_many_elements_is_one_load() -> None:
    words, out = np.arange(128, dtype=np.uint16), np.zeros(64, np.uint16)
    found = counted([Launch(copies, (1, 1, 1), 32, (out, words), 256)], {"words": words})
    # Two copies of 64 bytes, side by side yet two; and two words a lane, at the same place, one after the other.
    assert found.loads["words"] == Counter({64: 2, 4: 64})
    assert found.distinct("words") == 256
    assert found.stores["rest"] == Counter({2: 64})


def test_several_launches_are_one_sum() -> None:
    made, arrays = launch()
    one, two = counted([made], arrays), counted([made, made], arrays)
    assert two.bytes("numbers") == 2 * one.bytes("numbers")
    assert two.barriers == 2 * one.barriers
    assert two.distinct("numbers") == one.distinct("numbers")


def test_a_view_is_the_array_that_it_looks_into() -> None:
    held = np.ones(200, np.float32)
    made, _ = launch()
    part = held[8:136]
    found = counted([Launch(made.kernel, made.grid, 64, (made.args[0], part, made.args[2]))], {"held": held})
    assert found.bytes("held") == 2 * 4 * 128
    assert found.distinct("held") == 4 * 128
    assert found.bytes("rest") == 16 * 128


def test_a_name_that_nothing_has_is_refused() -> None:
    made, arrays = launch()
    with pytest.raises(KeyError, match="values"):
        counted([made], arrays).bytes("values")


class Elements(Observer):
    """Counts elements, one by one, however they were asked for."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()

    def access(self, kind: str, memory: Any, index: int, count: int, value: Any, *_rest: Any) -> None:
        if memory.space == "global":
            (self.read if kind == READ else self.written)[memory.name] += count


@settings(max_examples=10)
@given(st.integers(1, 4))
def test_bytes_are_those_of_the_elements(blocks: int) -> None:
    made, arrays = launch(blocks)
    plain = Elements()
    made.run(Backend("sim", observers=(plain,)))
    found = Traffic(**arrays).run([made])
    assert found.bytes("numbers") == 4 * plain.read["numbers"]
    assert found.bytes("rest") == 4 * plain.read["others"]
    assert found.stored("out") == 4 * plain.written["out"]
