"""Replays, recordings, and the search for a schedule that shows a fault."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.cases import decode_case
from kernels.kernel import Backend, kernel
from kernels.simt import BadLaunch, Plan, Schedule, ScheduleDependent, UninitialisedRead, cuda, launch, search
from kernels.simt.access import Observer
from kernels.simt.search import candidates, recording
from kernels.tiny_vllm.attention import cache_of, paged_attention
from kernels.vllm.classic_v1 import paged_attention_v1

FULL = 0xFFFFFFFF


def warp_sum(v):
    for mask in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(FULL, v, mask)
    return v


# K16: two warps leave a partial sum each in a shared pair, and all read the total from it.


def two_warps(k, out, last_barrier):
    pair = cuda.shared.array(2, np.float32)
    i = cuda.threadIdx.x
    for token in range(k.shape[0]):
        v = warp_sum(k[token, i])
        if cuda.laneid == 0:
            pair[i // 32] = v
        cuda.syncthreads()
        if i == 0:
            pair[0] = pair[0] + pair[1]
        cuda.syncthreads()
        out[token, i] = pair[0]
        if last_barrier:
            cuda.syncthreads()


K = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)


def reduction(last_barrier):
    def run(schedule):
        out = np.zeros((4, 64), np.float32)
        launch(two_warps, 1, 64, (K.copy(), out, last_barrier), schedule=schedule)
        return {"out": out}

    return run


@pytest.mark.parametrize("baseline", ["in-order", "reversed"])
def test_the_missing_barrier_is_found_and_both_schedules_replay(baseline):
    run = reduction(False)
    verdict = search(run, baseline=baseline)
    finding = verdict.finding
    assert finding is not None
    assert verdict.launches < 64
    assert finding.error is None
    again = [run(Schedule.parse(str(s)))["out"] for s in (finding.baseline, finding.offending)]
    spot = finding.difference.index
    assert again[0][spot] == finding.difference.baseline
    assert again[1][spot] == finding.difference.offending
    assert again[0][spot] != again[1][spot]
    # One of the two is the sum of the 64 products, and the wrong one is in warp 1, which reads late.
    assert min(abs(a[spot] - K[spot[0]].sum()) for a in again) < 1e-4
    assert spot[1] >= 32


def test_a_finding_is_cut_down_to_one_interval():
    finding = search(reduction(False)).finding
    assert finding is not None
    assert len(finding.offending.plan.turns) == 1
    ((block, interval),) = finding.offending.plan.turns
    # Intervals: before the first barrier, then two for each token; the race is in those that end a token.
    assert (block, interval) == (0, 2)


def test_both_are_shown_side_by_side():
    finding = search(reduction(False)).finding
    text = finding.render()
    lines = text.splitlines()
    assert lines[0].split() == ["in-order", str(finding.offending)]
    barrier = two_warps.__code__.co_firstlineno + 10
    assert f"after tests/kernels/simt/test_exec_search.py:{barrier}" in lines[1]
    assert lines[1].index("warp 0 (5), warp 1 (5)") < lines[1].index("warp 1 (5), warp 0 (5)")
    assert f"first difference: {finding.difference}" in text
    assert "elements differ)" in text


@pytest.mark.parametrize("budget", [1, 40, 200])
def test_one_more_barrier_is_clean_for_any_budget(budget):
    verdict = search(reduction(True), budget=budget)
    assert verdict.finding is None
    assert (verdict.launches, verdict.exhausted) == (budget, False)
    assert str(verdict) == f"{budget} launches under different schedules agree; the budget is spent"


def test_the_budget_counts_launches():
    calls = []

    def run(schedule):
        calls.append(str(schedule))
        return reduction(True)(schedule)

    assert search(run, budget=30).launches == len(calls) == 30
    assert len(set(calls)) == 30


def test_classic_v1_is_clean():
    case = decode_case([20], 1, 1, 32, 16, seed=3)

    def run(schedule):
        out = np.full(case.q.shape, np.nan, np.float32)
        paged_attention_v1(
            out, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale, case.block_tables,
            case.seq_lens, case.block_size, case.max_seq_len, case.alibi_slopes,
            backend=Backend("sim", str(schedule)),
        )  # fmt: skip
        return {"out": out}

    verdict = search(run, budget=25)
    assert (verdict.finding, verdict.launches) == (None, 25)
    assert np.isfinite(run("in-order")["out"]).all()


def tiny_vllm(repaired):
    case = decode_case([20], 4, 1, 64, 16, seed=8)
    slots = np.zeros(1, np.int32)

    def run(schedule):
        output = np.full(case.q.shape, np.nan, np.float32)
        paged_attention(
            output, case.q, cache_of(case), case.block_tables[:, None].copy(), case.seq_lens, slots,
            repaired=repaired, backend=Backend("sim", str(schedule)),
        )  # fmt: skip
        return {"output": output}

    return run


def test_the_race_of_tiny_vllm_is_found_and_its_repair_is_clean():
    finding = search(tiny_vllm(False)).finding
    assert finding is not None
    assert finding.difference.output == "output"
    again = [tiny_vllm(False)(Schedule.parse(str(s)))["output"] for s in (finding.baseline, finding.offending)]
    assert not np.array_equal(*again)
    assert "kernels/tiny_vllm/attention.py" in finding.render()
    verdict = search(tiny_vllm(True), budget=40)
    assert (verdict.finding, verdict.launches) == (None, 40)
    # In order, warp 0 runs ahead and warp 1 reads too late; backwards, the racy kernel is right.
    right = tiny_vllm(True)("in-order")["output"]
    assert np.array_equal(tiny_vllm(False)("reversed")["output"], right)
    assert not np.allclose(tiny_vllm(False)("in-order")["output"], right, atol=1e-2)


# What else can go wrong.


def test_a_race_that_needs_a_warp_stopped_half_way():
    def kernel(flag, out):
        if cuda.threadIdx.x < 32:
            flag[0] = 1
            cuda.syncwarp()
            cuda.syncwarp()
            flag[0] = 0
        elif cuda.threadIdx.x == 32:
            out[0] = flag[0]

    # Only where warp 0 stands between its two stores does warp 1 read a 1.
    def run(schedule):
        out = np.zeros(1, np.int64)
        launch(kernel, 1, 64, (np.zeros(1, np.int64), out), schedule=schedule)
        return {"out": out}

    assert run("in-order")["out"][0] == run("reversed")["out"][0] == 0
    finding = search(run).finding
    assert (finding.difference.baseline, finding.difference.offending) == (0, 1)
    assert str(finding.offending) == "replay:0/0=0*1,1,0"
    assert run(str(finding.offending))["out"][0] == 1


def test_lanes_that_must_be_in_step_and_do_not_say_so():
    def kernel(out):
        s = cuda.shared.array(32, np.int64)
        i = cuda.threadIdx.x
        s[i] = i
        out[i] = s[i - 1] if i else -1

    def run(schedule):
        out = np.zeros(32, np.int64)
        launch(kernel, 1, 32, (out,), schedule=schedule)
        return {"out": out}

    verdict = search(run)
    assert str(verdict.finding.offending) == "replay:lanes=down"
    assert isinstance(verdict.finding.error, UninitialisedRead)
    assert "it raises: shared array" in verdict.finding.render()


def test_blocks_that_race():
    def run(schedule):
        out = np.zeros(1, np.int64)
        launch(lambda out: out.__setitem__(0, cuda.blockIdx.x), 3, 1, (out,), schedule=schedule)
        return {"out": out}

    finding = search(run).finding
    assert str(finding.offending) == "replay:blocks=down"
    assert (finding.difference.baseline, finding.difference.offending) == (2, 0)


def test_one_warp_is_soon_exhausted():
    def run(schedule):
        out = np.zeros(32)
        launch(lambda out: out.__setitem__(cuda.threadIdx.x, cuda.syncthreads_count(1)), 1, 32, (out,),
               schedule=schedule)  # fmt: skip
        return {"out": out}

    verdict = search(run)
    assert (verdict.finding, verdict.launches, verdict.exhausted) == (None, 2, True)
    assert "there are no others to try" in str(verdict)


def test_a_tolerance_forgives_the_order_of_a_sum():
    x = np.random.default_rng(3).standard_normal(256).astype(np.float32)

    def kernel(x, out):
        cuda.atomic.add(out, 0, x[cuda.threadIdx.x])

    def run(schedule):
        out = np.zeros(1, np.float32)
        launch(kernel, 1, 256, (x, out), schedule=schedule)
        return {"out": out}

    assert search(run).finding is not None
    assert search(run, tolerance=1e-3).finding is None


def test_an_error_of_the_baseline_is_raised():
    def run(schedule):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(run)


def test_nan_is_equal_to_itself_and_bits_count():
    values = {"in-order": [np.nan, 0.0], "other": [np.nan, -0.0]}

    def run(schedule):
        launch(lambda: cuda.syncthreads(), 1, 64, (), schedule=schedule)
        return {"a": np.zeros((0, 3)), "b": np.array(values["in-order" if str(schedule) == "in-order" else "other"])}

    assert search(run, tolerance=0.0).finding is None
    assert search(run).finding.difference.index == (1,)


# The schedule `adversarial`.


def test_adversarial_raises_with_the_finding_or_runs_once_in_order():
    out = np.zeros((4, 64), np.float32)
    with pytest.raises(ScheduleDependent, match="two_warps depends on the order of its warps") as e:
        launch(two_warps, 1, 64, (K, out, False), schedule="adversarial")
    assert e.value.finding.difference.output == "out"
    assert not out.any()  # the arrays given are left alone
    report = launch(two_warps, 1, 64, (K, out, True), schedule="adversarial:20")
    assert report.schedule == "in-order"
    assert np.allclose(out, K.sum(axis=1, keepdims=True), atol=1e-4)


def test_adversarial_with_an_observer_shows_it_the_launch_in_order_and_then_raises():
    class Count(Observer):
        def __init__(self):
            self.barriers = 0

        def barrier(self, epoch):
            self.barriers += 1

    for last, expected in ((False, 8), (True, 12)):
        count, out = Count(), np.zeros((4, 64), np.float32)
        if last:
            launch(two_warps, 1, 64, (K, out, last), schedule="adversarial:9", observers=[count])
        else:
            with pytest.raises(ScheduleDependent):
                launch(two_warps, 1, 64, (K, out, last), schedule="adversarial:9", observers=[count])
        assert count.barriers == expected
        assert out.any()


def test_adversarial_through_a_backend():
    def race(out):
        out[0] = cuda.threadIdx.x // 32

    with pytest.raises(ScheduleDependent):
        kernel()(race).on(Backend("sim", "adversarial:9"))[1, 64](np.zeros(1, np.int32))


# Plans.

turns = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=4).map(tuple)
keys = st.one_of(
    st.just((None, None)),
    st.tuples(st.none(), st.integers(0, 20)),
    st.tuples(st.integers(0, 5), st.integers(0, 20)),
)
plans = st.builds(Plan, st.dictionaries(keys, turns, max_size=4), st.booleans(), st.booleans())


@given(plans)
def test_plans_and_schedules_survive_their_text(plan):
    assert Plan.parse(str(plan)) == plan
    schedule = Schedule("replay", plan=plan)
    assert Schedule.parse(str(schedule)) == schedule
    assert hash(Plan.parse(str(plan))) == hash(plan)


@pytest.mark.parametrize("text", ["x", "1", "1=", "1=a", "1/2/3=0", "*=1*", "lanes=up", "1=0,,1", "-1=0", "blocks"])
def test_other_plans_are_refused(text):
    with pytest.raises(BadLaunch, match="replay plan"):
        Schedule.parse(f"replay:{text}")


@pytest.mark.parametrize("text", ["replay", "adversarial:", "adversarial:x", "adversarial:-3", "reversed:1"])
def test_other_schedules_are_refused(text):
    with pytest.raises(BadLaunch, match="must be in-order, reversed or random:SEED, or adversarial"):
        Schedule.parse(text)


def test_the_most_exact_part_counts():
    plan = Plan.parse("*=1;3=2;0/3=4")
    assert [plan.of(0, 3), plan.of(1, 3), plan.of(0, 0)] == [((4, 0),), ((2, 0),), ((1, 0),)]
    assert Plan().of(0, 0) == ()


def log_of(schedule, warps=3, blocks=2):
    log = []

    def kernel():
        for interval in range(2):
            for step in range(3):
                if cuda.laneid == 0:
                    log.append((cuda.blockIdx.x, interval, cuda.threadIdx.x // 32, step))
                cuda.syncwarp()
            cuda.syncthreads()

    launch(kernel, blocks, 32 * warps, (), schedule=schedule)
    return log


def who(log, block, interval):
    return [warp for b, i, warp, _ in log if (b, i) == (block, interval)]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("*=2,0", [2, 2, 2, 0, 0, 0, 1, 1, 1]),
        ("0=1", [1, 1, 1, 0, 0, 0, 2, 2, 2]),
        ("0=1*1,0*2,1", [1, 0, 0, 1, 1, 2, 2, 2, 0]),
        ("0=1*2", [1, 1, 0, 0, 0, 2, 2, 2, 1]),
        ("0=7,2*1", [2, 0, 0, 0, 1, 1, 1, 2, 2]),
        ("1=2", [0, 0, 0, 1, 1, 1, 2, 2, 2]),
    ],
)
def test_who_runs_when(plan, expected):
    assert who(log_of(f"replay:{plan}"), 0, 0) == expected


def test_parts_for_one_block_and_blocks_down():
    log = log_of("replay:1/1=2;blocks=down")
    assert [block for block, *_ in log] == [1] * 18 + [0] * 18
    assert who(log, 1, 1)[0] == 2
    assert who(log, 0, 1)[0] == who(log, 1, 0)[0] == 0


def test_lanes_down():
    seen = []

    def kernel():
        seen.append(cuda.laneid)
        cuda.syncwarp()
        if cuda.laneid < 2:
            seen.append(100 + cuda.laneid)
            cuda.syncwarp(3)

    launch(kernel, 1, 32, (), schedule="replay:lanes=down")
    assert seen == [*range(31, -1, -1), 101, 100]


@given(st.integers(0, 300))
def test_a_recorded_random_run_replays_from_its_record(seed):
    with recording() as record:
        first = log_of(f"random:{seed}", blocks=1)
    plan = Plan({(interval.block, interval.number): interval.plan() for interval in record})
    assert log_of(Schedule("replay", plan=plan), blocks=1) == first
    assert log_of(str(Schedule("replay", plan=plan)), blocks=1) == first


def test_recording_does_not_change_a_run():
    for schedule in ("in-order", "reversed", "random:5", "replay:*=1*2"):
        with recording() as record:
            recorded = log_of(schedule)
        assert recorded == log_of(schedule)
        assert [(i.block, i.number) for i in record if i.block == 0] == [(0, 0), (0, 1), (0, 2)]
        assert sum(count for interval in record for _, count, _ in interval.turns) == 2 * 3 * 6


def test_candidates_are_different_and_start_with_the_simplest():
    with recording() as record:
        log_of("in-order")
    plain = list(itertools.islice(candidates(record), 60))
    assert len({str(c) for c in plain}) == 60
    assert [str(c) for c in plain[:3]] == ["replay:lanes=down", "replay:blocks=down", "replay:*=2,1,0"]
    assert {c.kind for c in plain} == {"replay", "random"}
