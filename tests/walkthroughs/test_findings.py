"""The findings: what a step's words for heads mean, what its oracle expects, and how it judges another op."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import cases, layout, oracle
from kernels.cases import WriteCase
from kernels.kernel import Backend
from kernels.vllm.cache import reshape_and_cache
from kernels.vllm.cache_fixed import reshape_and_cache_fixed
from walkthroughs import runner
from walkthroughs.against import Caches
from walkthroughs.catalog import findings
from walkthroughs.step import get
from walkthroughs.workbench import Bench, Workbench

STEP = "findings/unwritten-heads"
ROWS = {
    "8 heads of 128, float16": ("0 to 7", "none"),
    "32 heads of 128, float16": ("0 to 31", "none"),
    "40 heads of 128, float16": ("0 to 31", "32 to 39"),
    "64 heads of 128, float16": ("0 to 31", "32 to 63"),
    "32 heads of 256, float16": ("0 to 15", "16 to 31"),
    "8 heads of 256, float32": ("0 to 7", "none"),
}


def port(case: WriteCase) -> Caches:
    caches = case.k_cache.copy(), case.v_cache.copy()
    reshape_and_cache(case.key, case.value, *caches, case.slot_mapping)
    return caches


def repaired(case: WriteCase) -> Caches:
    caches = case.k_cache.copy(), case.v_cache.copy()
    reshape_and_cache_fixed(case.key, case.value, *caches, case.slot_mapping)
    return caches


def judged(found: list[Caches]) -> tuple[Workbench, str]:
    bench = Workbench(get(STEP).port, Bench(Backend("sim")))
    return bench, findings.judge_unwritten_heads(bench, found, "vLLM 1.2.3")


# -- the step


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:5"])
def test_the_table_says_which_heads(schedule: str) -> None:
    record = runner.run(get(STEP), Backend("sim", schedule))
    assert (record.status, record.message) == ("passed", "")
    seen = {check.name: check.observed for check in record.checks}
    for name, (written, untouched) in ROWS.items():
        assert (seen[f"{name}: heads written"], seen[f"{name}: heads untouched"]) == (written, untouched)
    assert seen["40 heads: head of the last thread"] == "[31]"
    assert seen["40 heads, repaired: heads of the threads that come back"] == "32 to 39"
    assert all(check.tolerance == 0 for check in record.checks)


def test_the_configurations_are_those_of_the_prose_and_of_the_measurement() -> None:
    given = findings.write_cases()
    assert [case.name for case in given] == list(ROWS)
    for case in given:
        assert np.isnan(case.k_cache).all()
        assert np.isnan(case.v_cache).all()
        assert case.block_size <= 16


def test_the_widest_case_of_vllms_own_test_fills_the_threads_exactly() -> None:
    widest = findings.write_cases()[-1]
    assert widest.num_heads * widest.head_size * widest.key.itemsize == 512 * 16
    assert layout.writer_threads(8, 256, 4) == 512
    assert findings.reached(widest) == 8


@given(st.integers(1, 70), st.integers(1, 8), st.sampled_from(["float16", "float32"]))
def test_what_is_reached_is_whole_heads_of_512_pieces(heads: int, eighths: int, dtype: str) -> None:
    case = cases.write_case(1, heads, 32 * eighths, 8, dtype)
    per_head = case.k_cache.shape[2]
    brute = [head for head in range(heads) if all(head * per_head + piece < 512 for piece in range(per_head))]
    assert findings.reached(case) == len(brute)


@pytest.mark.parametrize(("num_heads", "size"), [(33, 128), (31, 128), (5, 64), (20, 256)])
def test_the_port_leaves_what_the_oracle_keeps(num_heads: int, size: int) -> None:
    case = cases.write_case(2, num_heads, size, 8, "float16")
    for found, expected in zip(port(case), findings.kept(case), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert findings.heads(case, port(case)) == findings.expected_heads(case)


# -- words


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_each_number_once(chosen: set[int]) -> None:
    said = findings.in_words(sorted(chosen))
    if not chosen:
        assert said == "none"
        return
    numbers: list[int] = []
    for part in said.split(", "):
        ends = [int(word) for word in part.split(" to ")]
        assert len(ends) == 1 or ends[0] < ends[1]
        numbers += range(ends[0], ends[-1] + 1)
    assert numbers == sorted(chosen)
    assert said.count(",") == sum(number + 1 not in chosen for number in chosen) - 1


def test_a_head_that_is_half_there_is_neither_written_nor_untouched() -> None:
    case = cases.write_case(2, 3, 64, 8, "float16")
    keys, values = oracle.written_caches(case)
    block, offset = divmod(int(case.slot_mapping[1]), 8)
    values[block, 1, 63, offset] = np.nan
    keys[:, 2], values[:, 2] = np.nan, np.nan
    assert findings.heads(case, (keys, values)) == ("0", "2")


# -- the judge


def test_the_port_is_judged_as_the_port() -> None:
    bench, verdict = judged([port(case) for case in findings.write_cases()])
    assert verdict == "vLLM 1.2.3 leaves the same heads unwritten as our port"
    assert all(check.passed for check in bench.checks)
    assert len(bench.checks) == 2 * len(ROWS) + 1


def test_a_repaired_op_is_said_to_be_repaired() -> None:
    bench, verdict = judged([repaired(case) for case in findings.write_cases()])
    assert verdict == "theirs writes all heads: the finding does not apply to vLLM 1.2.3"
    wrong = {check.name: check.observed for check in bench.checks if not check.passed}
    assert wrong["40 heads of 128, float16: heads written"] == "0 to 39"
    assert wrong["40 heads of 128, float16: heads untouched"] == "none"
    assert not [name for name in wrong if name.startswith(("8 heads", "32 heads of 128"))]


@pytest.mark.parametrize("place", [0, 2, 5])
def test_one_wrong_element_is_neither(place: int) -> None:
    for write in (port, repaired):
        found = [write(case) for case in findings.write_cases()]
        at = np.flatnonzero(~np.isnan(found[place][1]))[-1]
        found[place][1].reshape(-1)[at] += 1
        bench, verdict = judged(found)
        assert verdict.startswith("vLLM 1.2.3 writes neither")
        failed = [check.name for check in bench.checks if not check.passed]
        assert "all elements of all caches, as our port leaves them" in failed


def test_an_op_that_does_nothing_is_neither() -> None:
    bench, verdict = judged([(case.k_cache, case.v_cache) for case in findings.write_cases()])
    assert verdict.startswith("vLLM 1.2.3 writes neither")
    assert {check.observed for check in bench.checks if check.name.endswith("written")} == {"none"}
