"""Findings 2 to 6: what each step foretells is held against brute force, and none of its checks is empty."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernels import cases, layout, numbers, oracle, oracle_rounding, reference, sums
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.simt.search import search
from kernels.tiny_vllm import paged
from kernels.tiny_vllm.attention import cache_of
from kernels.vllm import block_offsets
from walkthroughs import runner
from walkthroughs.catalog import findings_2_barrier as barrier
from walkthroughs.catalog import findings_3_document as document
from walkthroughs.catalog import findings_4_equal as equal
from walkthroughs.catalog import findings_5_cache as cache
from walkthroughs.catalog import findings_6_digit as digit
from walkthroughs.evidence import Evidence
from walkthroughs.step import get, registry
from walkthroughs.workbench import Bench, Workbench

SIM = Backend("sim")
STEPS = ("missing-barrier", "design-document", "not-bit-equal", "largest-cache", "wider-product", "last-digit")
finite = st.floats(-1e6, 1e6, allow_subnormal=False)


def failed(record: Evidence) -> set[str]:
    assert record.message == ""
    return {check.name for check in record.checks if not check.passed}


def run(slug: str, bench: Bench | None = None) -> Evidence:
    return runner.run(get(f"findings/{slug}"), bench or Bench(SIM))


def benched(slug: str) -> Workbench:
    return Workbench(get(f"findings/{slug}").port, Bench(SIM))


# -- all of them


def test_the_findings_stand_in_the_order_of_their_numbers() -> None:
    assert [step.slug for step in registry()["findings"].steps] == ["unwritten-heads", *STEPS]


@pytest.mark.parametrize("bench", [
    Bench(Backend("sim", "reversed")), Bench(Backend("sim", "random:7")), Bench(SIM, sleepy_warp=1),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("slug", STEPS)
def test_a_finding_does_not_hang_on_the_benchs_order(slug: str, bench: Bench) -> None:
    record = run(slug, bench)
    assert (record.status, failed(record)) == ("passed", set())


@pytest.mark.parametrize("slug", STEPS)
def test_a_finding_says_what_was_run_and_what_was_not(slug: str) -> None:
    prose = get(f"findings/{slug}").prose
    for heading in ("**What was run.**", "**Judge for yourself.**"):
        assert heading in prose
    assert "**What was not run.**" in prose or "not run tiny-vllm itself" in prose
    assert f"`pagewalk run findings/{slug}`" in prose


# -- 2: the barrier


def tiny(schedule: Any, *, repaired: bool) -> dict[str, np.ndarray[Any, Any]]:
    case = barrier.SHORT
    out = np.full(case.q.shape, np.nan, np.float32)
    paged.tiny_attention(
        0, 1, case.q, cache_of(case), case.block_tables[:, None].copy(), case.seq_lens, np.zeros(1, np.int32), out,
        repaired=repaired, backend=Backend("sim", str(schedule)),
    )  # fmt: skip
    return {"output": out}


def test_what_a_late_warp_reads_is_the_next_tokens_first_half() -> None:
    case = barrier.CASE
    keys = np.asarray(case.keys[0][:, 0], np.float64)
    query = np.asarray(case.q[0, 1], np.float64)
    brute = [math.fsum(query[:32] * keys[token + 1][:32]) for token in range(barrier.TOKENS - 1)]
    brute.append(math.fsum(query * keys[-1]) / 8)
    np.testing.assert_allclose(barrier.misread(case, 0, 1), brute, atol=1e-12)


def test_the_search_finds_an_order_with_one_swap_and_none_for_the_repair() -> None:
    finding = search(lambda schedule: tiny(schedule, repaired=False)).finding
    assert finding is not None
    assert str(finding.offending).startswith("replay:")
    assert str(finding.offending).count("=") == 1
    assert search(lambda schedule: tiny(schedule, repaired=True), budget=40).finding is None


@pytest.mark.parametrize("late", range(1, 3))
def test_one_late_read_spoils_one_score(late: int) -> None:
    """Warp 1 first everywhere but in one interval: the token before it gets its successor's half sum."""
    case = barrier.SHORT
    out = tiny(f"replay:*=1;{2 * late}=0", repaired=False)["output"]
    exact = oracle.attention(case)
    np.testing.assert_allclose(out[..., :32], exact[..., :32], atol=3e-6)
    for head in range(4):
        scores = oracle.logits(case, 0, head)
        scores[late - 1] = barrier.misread(case, 0, head)[late - 1]
        weights = np.exp(scores - scores.max())
        wrong = weights @ np.asarray(case.values[0][:, 0, 32:], np.float64) / weights.sum()
        np.testing.assert_allclose(out[0, head, 32:], wrong, atol=1e-5)
    assert np.abs(out - exact).max() > 1e-3


def test_the_barrier_step_fails_for_a_kernel_without_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    real = paged.tiny_attention
    monkeypatch.setattr(paged, "tiny_attention", lambda *args, **more: real(*args, **{**more, "repaired": True}))
    assert failed(run("missing-barrier")) == {
        "as upstream: scores that thread 32 reads", "as upstream: elements 32 to 63",
        "as upstream: an element is off by more than a half",
    }  # fmt: skip


def test_wrong_runs_counts_nan_and_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = oracle.attention(barrier.SHORT)
    results = [exact, exact + 1e-6, exact + 1e-4, np.full_like(exact, np.nan)] * 5

    class Fake:
        def __init__(self) -> None:
            self.out = (results.pop(),)

    monkeypatch.setattr(barrier, "attend", lambda *_args, **_more: Fake())
    assert barrier.wrong_runs(benched("missing-barrier"), repaired=True) == 10


# -- 3: the document


def test_the_rows_of_thread_0_by_walking_all_threads() -> None:
    """16 tokens of a row are two pieces of 16 bytes: deal all pieces of a block to 32 lanes, in order."""
    pieces = [(row, half) for row in range(128) for half in range(2)]
    lane_0 = [row for number, (row, _) in enumerate(pieces) if number % 32 == 0]
    assert lane_0 == [0, 16, 32, 48, 64, 80, 96, 112]
    assert list(document.DOCUMENT_ROWS) == [0, 32, 64, 96, 128, 160, 192, 224]
    assert layout.num_rows_per_thread(128, 16, 2) == 8


@pytest.mark.parametrize("name", ["k", "q"])
def test_the_document_step_sees_a_wrong_vector(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = document.CASE.keys[0][0, 0] if name == "k" else document.CASE.q[0, 0]
    real = Workbench.attend

    def attend(self: Workbench, case: cases.DecodeCase, *watches: Any) -> Any:
        result = real(self, case, *watches)
        rows[8] += 1  # after the run: what the kernel held is no longer what the case says
        return result

    monkeypatch.setattr(Workbench, "attend", attend)
    word = {"k": "key", "q": "query"}[name]
    try:
        assert failed(run("design-document")) == {f"their values, thread 0, {word}"}
    finally:
        rows[8] -= 1


# -- 4: not equal to the bit


def brute_rounded(value: float, scalar: str) -> float:
    if scalar == "float32":
        return float(np.float32(value))
    if scalar == "float16":
        return float(np.float16(value))
    return float(numbers.decode(numbers.encode(np.float32(value), "bfloat16"), "bfloat16"))


@given(st.floats(-60_000, 60_000, width=32), st.sampled_from(sorted(oracle_rounding.BITS)))
def test_rounding_is_the_formats_own(value: float, scalar: str) -> None:
    assert oracle_rounding.rounded(value, scalar) == brute_rounded(value, scalar)


@given(st.integers(-30, 3), st.integers(0, 4096), st.sampled_from(["float16", "bfloat16"]))
def test_rounding_takes_ties_and_small_numbers_to_even(exponent: int, count: int, scalar: str) -> None:
    value = math.ldexp(count, exponent - 8)
    assume(value < 60_000)
    assert oracle_rounding.rounded([value, -value], scalar).tolist() == [
        brute_rounded(value, scalar), brute_rounded(-value, scalar)
    ]  # fmt: skip


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ArgumentError, match="scalar = float8"):
        oracle_rounding.rounded(1.0, "float8")


@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
@pytest.mark.parametrize("tokens", [1, 8, 21])
def test_narrow_sums_against_a_loop_of_scalars(scalar: str, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    weights = oracle_rounding.rounded(rng.random(tokens), scalar)
    values = oracle_rounding.rounded(rng.standard_normal((tokens, 3)), scalar)
    for element in range(3):
        chains: dict[tuple[int, int], float] = {}
        for token in range(tokens):
            product = brute_rounded(float(weights[token] * values[token, element]), scalar)
            place = token // 8, token % 2
            chain = chains.get(place, 0.0) + product
            chains[place] = brute_rounded(chain, scalar) if scalar == "float16" else chain
        assert oracle_rounding.narrow_sums(weights, values, scalar)[element] == pytest.approx(
            math.fsum(chains.values()), abs=1e-15
        )


@pytest.mark.parametrize("scalar", equal.FORMATS)
def test_the_machine_leaves_no_rest_but_that_of_float32(scalar: str) -> None:
    narrow = equal.cases_of(scalar)
    _, out = equal.attend(benched("not-bit-equal"), narrow, scalar)
    last = oracle_rounding.forms(narrow.case, 0, 0, scalar)[-1]
    rest = np.abs(out[0, 0].astype(np.float64) - last).max()
    assert rest < 1e-7 if scalar == "float32" else rest == 0


@pytest.mark.parametrize("scalar", equal.FORMATS)
def test_the_forms_go_from_softmax_to_the_output_and_each_changes_something(scalar: str) -> None:
    case = equal.cases_of(scalar).case
    forms = oracle_rounding.forms(case, 0, 0, scalar)
    assert len(forms) == len(oracle_rounding.FORMS)
    np.testing.assert_array_equal(forms[0], oracle.output(case, 0, 0))
    losses = oracle_rounding.losses(forms)
    assert 0 < losses[0] < 1e-6
    if scalar == "float32":
        assert losses[1:] == [0, 0, 0]
    else:
        assert min(losses[1:]) > 100 * losses[0], "rounding outweighs the 1e-6, as the prose says"
        assert sum(losses) >= np.abs(forms[-1] - forms[0]).max()


def test_the_equal_step_sees_another_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal, "EPSILON", 2e-6)
    assert {"what the weights of 1 lack to one", "what the weights of 2 lack to one"} <= failed(run("not-bit-equal"))


def test_the_equal_step_has_a_row_for_each_thing() -> None:
    names = {row.name for row in run("not-bit-equal").measured}
    for scalar in equal.FORMATS:
        assert {f"{scalar}: {form}" for form in oracle_rounding.FORMS[1:]} < names
    assert {"fast exponential: largest relative error", "fast division: relative error"} < names


# -- 5: the largest cache


@given(st.integers(-(2**70), 2**70))
def test_what_wraps_is_what_32_bits_keep(number: int) -> None:
    kept = int.from_bytes((number % 2**32).to_bytes(4, "little"), "little", signed=True)
    assert cache.signed(number) == kept


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20), st.integers(1, 2**31 - 1))
def test_block_offsets_multiply(blocks: list[int], stride: int) -> None:
    short, wide = cache.element_starts(benched("wider-product"), blocks, stride)
    assert wide == [block * stride for block in blocks]
    assert short == [cache.signed(block * stride) for block in blocks]


def refused(name: str, value: Any) -> Callable[[], None]:
    given: dict[str, Any] = {
        "block_tables": np.zeros(2, np.int32), "kv_block_stride": 8, "wide": np.zeros(2, np.int64),
        "short": np.zeros(2, np.int64), name: value,
    }  # fmt: skip
    return lambda: block_offsets.block_offsets(*given.values())


@pytest.mark.parametrize(("name", "value"), [
    ("block_tables", np.zeros(2, np.int64)), ("block_tables", np.zeros(0, np.int32)), ("kv_block_stride", 0),
    ("block_tables", np.zeros(1025, np.int32)), ("kv_block_stride", 2**31), ("wide", np.zeros(2, np.int32)),
    ("short", np.zeros(3, np.int64)),
])  # fmt: skip
def test_block_offsets_refuses(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=name):
        refused(name, value)()


def test_the_edge_is_that_of_the_layout() -> None:
    per_token = layout.kv_bytes_per_token(cache.KV_HEADS, cache.HEAD_SIZE, cache.BYTES, cache.LAYERS)
    assert 65_536 * per_token == 2**31
    assert layout.kv_block_bytes(cache.KV_HEADS, cache.HEAD_SIZE, cache.BLOCK_SIZE, cache.BYTES) == 32_768
    assert layout.kv_block_stride(cache.KV_HEADS, cache.HEAD_SIZE, cache.BLOCK_SIZE) * 262_144 == 2**31
    assert layout.kv_block_stride(32, 128, cache.BLOCK_SIZE) * 32_768 == 2**31


@pytest.mark.parametrize("slug", ["largest-cache", "wider-product"])
def test_another_edge_fails(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "INT", 2**30)
    assert len(failed(run(slug))) >= 2


# -- 6: the last digit


@given(st.lists(finite, max_size=30))
def test_the_two_sums_against_pythons_own(given: list[float]) -> None:
    ours = sums.compensated if sys.version_info >= (3, 12) else sums.left_to_right
    assert ours(given) == sum(given)


@given(st.lists(finite, max_size=30))
def test_the_compensated_sum_is_nearly_exact(given: list[float]) -> None:
    exact = sum(map(Fraction, given))
    magnitude = float(sum(abs(Fraction(number)) for number in given))
    found = sums.compensated(given)
    assert abs(Fraction(found) - exact) <= Fraction(abs(found) * 2.0**-52 + magnitude * len(given) ** 2 * 2.0**-104)


def test_the_larger_number_may_stand_on_either_side() -> None:
    assert sums.compensated([1.0, 1e100, 1.0, -1e100]) == 2.0
    assert sums.compensated([1e100, 1.0, -1e100, 1.0]) == 2.0
    assert sums.left_to_right([1e100, 1.0, -1e100, 1.0]) == 1.0
    assert sums.compensated([]) == sums.left_to_right([]) == 0.0


@pytest.mark.parametrize(("add", "units"), [(sums.left_to_right, 1), (sums.compensated, 2)])
def test_the_two_differences(add: sums.Sum, units: int) -> None:
    assert digit.difference(add) == units * 2.0**-54
    assert f"{digit.difference(add):.2e}" == ("5.55e-17", "1.11e-16")[units - 1]


def rows(count: int, width: int, seed: int) -> list[list[float]]:
    found: list[list[float]] = np.random.default_rng(seed).standard_normal((count, width)).tolist()
    return found


@pytest.mark.parametrize("add", [sums.left_to_right, sums.compensated, math.fsum])
@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_both_attentions_are_attention(add: sums.Sum, tokens: int) -> None:
    q, keys, values = rows(1, 4, tokens)[0], rows(tokens, 4, 50 + tokens), rows(tokens, 3, 90 + tokens)
    expected = reference.dense_attention(q, keys, values)
    for attend in (sums.dense, sums.online):
        assert attend(q, keys, values, 0.5, add) == pytest.approx(expected, abs=1e-14)


def test_which_sum_gives_the_larger_difference_is_chance() -> None:
    """Of 300 random inputs, each sum is the nearer one in many."""
    nearer = {True: 0, False: 0}
    for seed in range(300):
        arguments = rows(1, 4, 3 * seed)[0], rows(6, 4, 3 * seed + 1), rows(6, 4, 3 * seed + 2), 0.5
        old, new = (
            sums.apart(sums.dense(*arguments, add), sums.online(*arguments, add))
            for add in (sums.left_to_right, sums.compensated)
        )
        if old != new:
            nearer[new < old] += 1
    assert min(nearer.values()) > 50


def test_apart_is_the_largest_difference() -> None:
    assert sums.apart([1.0, 2.0, 3.0], [1.0, 2.5, 2.75]) == 0.5
    with pytest.raises(ValueError, match="shorter"):
        sums.apart([1.0], [])


def test_the_digit_step_fails_with_the_other_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "compensated", sums.left_to_right)
    assert {"compensated: paged from dense", "compensated: the probe's sum"} < failed(run("last-digit"))
