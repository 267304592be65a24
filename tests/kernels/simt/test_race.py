"""Races: every verdict against brute force, every rule by a kernel that shows it, every schedule the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import cuda, launch
from kernels.simt.race import BETWEEN_BLOCKS, BETWEEN_WARPS, ONE_INSTRUCTION, WITHIN_WARP
from kernels.simt.sanitize import Sanitizer

FULL = 0xFFFFFFFF
SCHEDULES = ("in-order", "reversed", "random:3")

# Random programs: a list of steps that every thread takes. Order is looked for by walking the graph of all steps.
THREADS = 34
ACTIVE = (0, 1, 2, 32, 33)  # three lanes of one warp, two of the next
PLACES = 3
READ, WRITE, ATOMIC = 1, 2, 3


@dataclass(frozen=True)
class Step:
    """`what`: barrier, sync (`groups`: lanes that wait for each other) or access (thread -> operation and place)."""

    what: str
    groups: tuple[tuple[int, ...], ...] = ()
    ops: dict[int, tuple[int, int]] | None = None


WARP = tuple(range(32))
GROUPS = ((WARP,), (WARP, (32, 33)), ((0, 1, 2),), ((0, 1), (2,)), ((0, 2), (1,)), ((0,), (1, 2)))
_op = st.tuples(st.sampled_from((READ, WRITE, ATOMIC)), st.integers(0, PLACES - 1))
_access = st.dictionaries(st.sampled_from(ACTIVE), _op, min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.just(Step("barrier")),
        st.sampled_from(GROUPS).map(lambda groups: Step("sync", groups)),
        _access.map(lambda ops: Step("access", ops=ops)),
    ),
    min_size=1,
    max_size=7,
)


def kernel_of(program: list[Step], equal: bool = False):
    """A kernel over one array of PLACES int64 that takes these steps; each write stores another value."""

    def kernel(memory):
        me = cuda.threadIdx.x
        for number, step in enumerate(program):
            if step.what == "barrier":
                cuda.syncthreads()
            elif step.what == "sync":
                mine = next((group for group in step.groups if me in group), None)
                if mine is not None:
                    cuda.syncwarp(sum(1 << lane % 32 for lane in mine))
            else:
                op, place = (step.ops or {}).get(me, (0, 0))
                if op == READ:
                    memory[place]
                elif op == WRITE:
                    memory[place] = 0 if equal else number * 100 + me
                elif op == ATOMIC:
                    cuda.atomic.add(memory, place, 1)

    return kernel


def races(program: list[Step]) -> dict[str, int]:
    """Pairs of conflicting accesses that nothing orders: between warps, and within one."""
    found = {"between": 0, "within": 0}
    accesses = [(thread, number, *op) for number, step in enumerate(program) for thread, op in (step.ops or {}).items()]
    for (t, i, op, place), (u, j, other, elsewhere) in combinations(accesses, 2):  # so i is not after j
        if t == u or place != elsewhere or (op, other) in ((READ, READ), (ATOMIC, ATOMIC)):
            continue
        if i == j or not _before(program[i + 1 : j], t, u):
            found["between" if t // 32 != u // 32 else "within"] += 1
    return found


def _before(between: list[Step], thread: int, target: int) -> bool:
    """Whether some chain of waits in these steps leads from one thread to the other."""
    reached = {thread}
    for step in between:
        if step.what == "barrier":
            reached = set(range(THREADS))
        for group in step.groups:
            if reached & set(group):
                reached |= set(group)
    return target in reached


def sanitized(kernel, args=(), block=1, grid=1, schedule="in-order", shared_bytes=0):
    watch = Sanitizer()
    with watch:
        launch(kernel, grid, block, args, observers=[watch], schedule=schedule, shared_bytes=shared_bytes)
    return watch


def pairs(watch, *scopes):
    return sum(race.pairs for race in watch.races if race.scope in scopes)


@given(steps, st.sampled_from(SCHEDULES))
def test_random_programs_race_exactly_where_brute_force_finds_no_order(program, schedule):
    watch = sanitized(kernel_of(program), (np.zeros(3, np.int64),), THREADS, schedule=schedule)
    expected = races(program)
    assert pairs(watch, BETWEEN_WARPS) == expected["between"]
    assert pairs(watch, WITHIN_WARP, ONE_INSTRUCTION) == expected["within"]
    assert watch.faults == []


@given(steps, steps)
def test_between_blocks_nothing_is_ordered(one, other):
    programs = [kernel_of(one), kernel_of(other)]

    def kernel(memory):
        programs[cuda.blockIdx.x](memory)

    watch = sanitized(kernel, (np.zeros(3, np.int64),), THREADS, grid=2)
    ops = [[op for step in program if step.ops for op in step.ops.values()] for program in (one, other)]
    expected = sum(
        place == elsewhere and (kind, what) not in ((1, 1), (3, 3))
        for kind, place in ops[0]
        for what, elsewhere in ops[1]
    )
    assert pairs(watch, BETWEEN_BLOCKS) == expected
    assert pairs(watch, BETWEEN_WARPS) == races(one)["between"] + races(other)["between"]


def the_race(watch):
    assert len(watch.races) == 1, watch.races
    assert watch.faults == []
    return watch.races[0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_missing_barrier_is_one_report_with_both_lines_under_every_schedule(schedule):
    def kernel(out):
        row = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        row[i] = i
        out[i] = row[63 - i]

    race = the_race(sanitized(kernel, (np.zeros(64),), 64, schedule=schedule))
    line = kernel.__code__.co_firstlineno
    assert (race.scope, race.hazard, race.space, race.array) == (BETWEEN_WARPS, "read-after-write", "shared", "row")
    assert (race.first.kind, race.first.line) == ("write", line + 3)
    assert (race.second.kind, race.second.line) == ("read", line + 4)
    assert race.pairs == len(race.elements) == 64
    assert race.threads == (set(range(64)), set(range(64)))
    assert race.first.interval == race.second.interval == 0
    text = str(race)
    assert "read-after-write race between warps: shared row[" in text
    assert f"test_race.py:{line + 3} writes" in text
    assert f"test_race.py:{line + 4} reads" in text
    assert "64 threads: 0-63" in text


def test_with_the_barrier_it_is_clean():
    def kernel(out):
        row = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        row[i] = i
        cuda.syncthreads()
        out[i] = row[63 - i]

    assert sanitized(kernel, (np.zeros(64),), 64).clean


def test_a_race_whose_output_is_right_is_reported():
    def kernel(out):
        if cuda.threadIdx.x % 32 == 0:
            out[0] = 7

    out = np.zeros(1)
    race = the_race(sanitized(kernel, (out,), 96))
    assert out[0] == 7
    assert (race.hazard, race.pairs) == ("write/write", 3)
    assert race.threads == ({0, 32, 64}, {0, 32, 64})


def test_write_after_read_is_named_by_the_program_not_by_the_schedule():
    def kernel(out):
        slot = cuda.shared.array(1, np.float32)
        i = cuda.threadIdx.x
        if i == 0:
            slot[0] = 1
        cuda.syncthreads()
        value = slot[0]
        if i == 0:
            slot[0] = 2
        out[i] = value

    for schedule in SCHEDULES:
        watch = sanitized(kernel, (np.zeros(64),), 64, schedule=schedule)
        between = next(race for race in watch.races if race.scope == BETWEEN_WARPS)
        assert (between.hazard, between.first.kind, between.second.kind) == ("write-after-read", "read", "write")
        assert between.threads == (set(range(32, 64)), {0})
        assert (between.first.interval, between.pairs) == (1, 32)
        # Lanes of warp 0 read in one instruction and lane 0 writes in another: nothing orders them either.
        within = next(race for race in watch.races if race.scope == WITHIN_WARP)
        assert within.pairs == 31


@pytest.mark.parametrize("wait", ["syncwarp", "shuffle", "vote", "barrier"])
def test_within_a_warp_any_operation_of_both_lanes_orders(wait):
    def kernel(out):
        row = cuda.shared.array(32, np.float32)
        i = cuda.threadIdx.x
        row[i] = i
        if wait == "syncwarp":
            cuda.syncwarp()
        elif wait == "shuffle":
            cuda.shfl_xor_sync(FULL, i, 1)
        elif wait == "vote":
            cuda.all_sync(FULL, True)
        else:
            cuda.syncthreads()
        out[i] = row[31 - i]

    assert sanitized(kernel, (np.zeros(32),), 32).clean


def test_within_a_warp_neither_activemask_nor_sleep_nor_a_wait_of_others_orders():
    def kernel(out, wait):
        row = cuda.shared.array(32, np.float32)
        i = cuda.threadIdx.x
        row[i] = i
        if wait == 0:
            cuda.activemask()
        elif wait == 1:
            cuda.nanosleep(1)
        else:
            cuda.syncwarp(0x3 << (i & 30))  # pairs, while the reader and the writer are 31 - i
        out[i] = row[31 - i]

    for wait in range(3):
        race = the_race(sanitized(kernel, (np.zeros(32), wait), 32))
        assert (race.scope, race.pairs) == (WITHIN_WARP, 32)


def test_a_lane_that_returned_is_ordered_only_by_operations_that_name_it():
    def kernel(out, mask):
        i = cuda.threadIdx.x
        if i == 3:
            out[0] = 1
            return
        cuda.syncwarp(mask)
        if i == 0:
            out[0] = 2

    assert sanitized(kernel, (np.zeros(1), FULL), 4).clean
    assert sanitized(kernel, (np.zeros(1), 0b1111), 4).clean
    assert the_race(sanitized(kernel, (np.zeros(1), 0b0111), 4)).scope == WITHIN_WARP


def test_lanes_that_wait_for_each_other_again_and_again_wait_for_nobody_else():
    def kernel(out):
        i = cuda.threadIdx.x
        if i < 2:
            for _ in range(3):
                cuda.syncwarp(0b0011)
            if i == 0:
                out[0] = 1
        if i == 2:
            out[0] = 2

    assert the_race(sanitized(kernel, (np.zeros(1),), 4)).scope == WITHIN_WARP


def test_order_is_handed_on_from_lane_to_lane():
    def kernel(out):
        i = cuda.threadIdx.x
        if i == 0:
            out[0] = 1
        if i < 2:
            cuda.syncwarp(0b011)
        if i > 0:
            cuda.syncwarp(0b110)
        if i == 2:
            out[0] = 2

    assert sanitized(kernel, (np.zeros(1),), 3).clean


def test_one_instruction_races_by_different_values_only():
    def kernel(out, values):
        out[0] = values[cuda.threadIdx.x]

    race = the_race(sanitized(kernel, (np.zeros(1, np.float32), np.arange(4.0)), 4))
    assert (race.scope, race.hazard, race.pairs) == (ONE_INSTRUCTION, "write/write", 6)
    assert sanitized(kernel, (np.zeros(1, np.float32), np.ones(4)), 4).clean
    # Equal once stored: both round to the same float32.
    assert sanitized(kernel, (np.zeros(1, np.float32), np.array([1.0, 1.0 + 1e-12])), 2).clean


def test_atomics_race_with_plain_accesses_only():
    def counter(out):
        cuda.atomic.add(out, 0, 1)

    def peek(out, seen):
        cuda.atomic.add(out, 0, 1)
        seen[cuda.threadIdx.x] = out[0]

    def reset(out):
        cuda.atomic.add(out, 0, 1)
        out[0] = 0

    assert sanitized(counter, (np.zeros(1, np.int32),), 64, grid=2).clean
    race = next(r for r in sanitized(peek, (np.zeros(1, np.int32), np.zeros(64)), 64).races if r.scope == BETWEEN_WARPS)
    assert (race.hazard, race.first.kind) == ("read-after-atomic", "atomic")
    found = sanitized(reset, (np.zeros(1, np.int32),), 64).races
    assert {"atomic/write", "write/write"} <= {r.hazard for r in found if r.scope == BETWEEN_WARPS}


def test_one_fault_is_one_report_however_often_it_happens():
    def kernel(out):
        for turn in range(5):
            for place in range(4):
                out[place] = turn + cuda.threadIdx.x

    race = next(r for r in sanitized(kernel, (np.zeros(4),), 33, grid=3).races if r.scope == BETWEEN_WARPS)
    assert (race.pairs, len(race.elements)) == (3 * 4 * 25 * 32, 4)
    blocks = next(r for r in sanitized(kernel, (np.zeros(4),), 33, grid=3).races if r.scope == BETWEEN_BLOCKS)
    assert blocks.pairs == 3 * 4 * (33 * 5) ** 2
    assert blocks.first.block != blocks.second.block


def test_two_names_of_one_memory_are_one_place():
    def kernel(here, there):
        if cuda.threadIdx.x == 0:
            here[1] = 1
        if cuda.threadIdx.x == 32:
            there[0] = 2

    memory = np.zeros(4, np.float32)
    race = the_race(sanitized(kernel, (memory, memory[1:]), 64))
    assert {race.first.thread, race.second.thread} == {0, 32}
    assert sanitized(kernel, (memory, memory[2:]), 64).clean
    # Other widths: compared by bytes.
    halves = memory.view(np.int16)
    assert len(sanitized(kernel, (memory, halves[3:]), 64).races) == 1
    assert sanitized(kernel, (memory, halves[4:]), 64).clean


def test_dynamic_shared_memory_of_two_types_is_one_place():
    def kernel(far):
        words = cuda.shared.array(0, np.float32)
        bytes_ = cuda.shared.array(0, np.uint8)
        if cuda.threadIdx.x == 0:
            words[1] = 1
        if cuda.threadIdx.x == 32:
            bytes_[7 + far] = 1

    assert len(sanitized(kernel, (0,), 64, shared_bytes=16).races) == 1
    assert sanitized(kernel, (1,), 64, shared_bytes=16).clean


def test_shared_memory_of_two_blocks_never_races():
    def kernel():
        row = cuda.shared.array(1, np.float32)
        if cuda.threadIdx.x == 0:
            row[0] = cuda.blockIdx.x

    assert sanitized(kernel, (), 64, grid=4).clean


def test_lines_are_sorted_and_relative_to_the_checkout():
    def kernel(out):
        value = out[0]
        if cuda.threadIdx.x == 32:
            out[0] = value

    race = next(r for r in sanitized(kernel, (np.zeros(1),), 64).races if r.scope == BETWEEN_WARPS)
    line = kernel.__code__.co_firstlineno
    assert race.lines == (f"tests/kernels/simt/test_race.py:{line + 1}", f"tests/kernels/simt/test_race.py:{line + 3}")


def test_a_vector_load_races_with_a_store_to_any_of_its_elements():
    from kernels.simt import vector_load

    load = vector_load(4)

    def kernel(out):
        if cuda.threadIdx.x == 0:
            load(out, 4)
        if cuda.threadIdx.x == 32:
            out[6] = 1

    race = the_race(sanitized(kernel, (np.zeros(8, np.float32),), 64))
    assert race.element == "out[6]"


def test_partial_intervals_are_looked_at_when_the_launch_dies():
    def kernel(out):
        out[0] = cuda.threadIdx.x
        cuda.syncwarp()
        if cuda.threadIdx.x == 63:
            out[9] = 1

    watch = sanitized(kernel, (np.zeros(1),), 64)
    assert watch.verdict == ("out of bounds", "race")
