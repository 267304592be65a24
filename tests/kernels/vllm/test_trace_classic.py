"""The trace of the classic kernel against what probes record: another mechanism (rewritten syntax) for the same run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernels.cases import decode_case
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.simt.cursor import Cursor
from kernels.simt.record import Recorder
from kernels.simt.trace import Trace
from kernels.vllm.classic_v1 import paged_attention_v1, paged_attention_v1_kernel

ROOT = Path(__file__).resolve().parents[3]
BODY, UTILS = "kernels/vllm/attention_kernels.py", "kernels/vllm/attention_utils.py"
THREADS = (0, 33, 127)
CASE = decode_case([37], 2, 1, 32, 8, seed=11, alibi=True)
# File, variable, and how the statement that assigns it begins.
ASSIGNED = [
    (BODY, "physical_block_number", "physical_block_number = int64("),
    (BODY, "token_idx", "token_idx = block_idx * BLOCK_SIZE"),
    (BODY, "k_offset", "k_offset = k_ptr"),
    (BODY, "qk", "qk = scale *"),
    (BODY, "qk", "qk += bias"),
    (BODY, "qk_max", "qk_max = qk_max if mask"),
    (BODY, "qk_max", "qk_max = libdevice.fmaxf("),
    (BODY, "qk_max", "qk_max = cuda.shfl_sync("),
    (BODY, "val", "val = "),
    (BODY, "exp_sum", "exp_sum += val"),
    (BODY, "exp_sum", "exp_sum = block_sum("),
    (BODY, "inv_sum", "inv_sum = "),
    (BODY, "acc", "acc += cuda.shfl_xor_sync("),
    (UTILS, "sum", "sum += cuda.shfl_xor_sync("),
    (UTILS, "qk", "qk += cuda.shfl_xor_sync("),
]


def attend(entry, backend):
    out = np.full(CASE.q.shape, np.nan, CASE.q.dtype)
    paged_attention_v1(
        out, CASE.q, CASE.k_cache, CASE.v_cache, CASE.num_kv_heads, CASE.scale, CASE.block_tables, CASE.seq_lens,
        CASE.block_size, CASE.max_seq_len, CASE.alibi_slopes, backend=backend, entry=entry,
    )  # fmt: skip
    return out


@cache
def traced(schedule="in-order"):
    recorder = Recorder(THREADS, [1])
    out = attend(paged_attention_v1_kernel, Backend("sim", schedule, tracer=recorder))
    return recorder.trace(), out


def lines_of(file, begins):
    lines = (ROOT / file).read_text("utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.strip().startswith(begins)]


@pytest.mark.parametrize(("file", "variable", "begins"), ASSIGNED)
def test_variables_after_a_line_equal_the_probes_readings(file, variable, begins):
    found = lines_of(file, begins)
    assert found, begins
    for line in found:
        watch = Watch("it", f"float({variable})", (line, line), after=variable, file=str(ROOT / file))
        probed = Probed(paged_attention_v1_kernel, [watch])
        attend(probed, Backend("sim"))
        trace, _ = traced()
        read = 0
        for at, thread in enumerate(trace.threads):
            expected = [r.value for r in probed.readings("it") if r.block == 1 and r.thread == thread.number]
            observed = []
            for visit in trace.visits(at, line, file):
                cursor = Cursor(trace, at)
                cursor.to(visit + 1)
                depth = len(cursor.state.threads[at].frames)
                # The next line of the same function: by then the statement has run.
                while cursor.next_line() and len(cursor.state.threads[at].frames) > depth:
                    pass
                observed.append(float(cursor.state.threads[at].variables[variable].data))  # type: ignore[arg-type]
            assert observed == expected
            read += len(expected)
        assert read > 0


def test_shared_cells_equal_the_probes_readings_of_the_stores():
    lines = lines_of(BODY, "logits[token_idx - start_token_idx] = ")
    watch = Watch("logit", "logits[token_idx - start_token_idx]", (lines[0], lines[0]), by=("token_idx",))
    probed = Probed(paged_attention_v1_kernel, [watch])
    attend(probed, Backend("sim"))
    trace, _ = traced()
    for at, thread in enumerate(trace.threads):
        expected = [(r.keys[0], r.value) for r in probed.readings("logit") if (r.block, r.thread) == (1, thread.number)]
        writes = [
            (event.index, event.value.data)
            for event in (trace.events[n] for n in trace.events_of(at))
            if event.kind == "write" and event.line == lines[0] and event.value is not None
        ]
        assert writes == expected
    assert (
        trace.arrays[next(e.array for e in trace.events if e.kind == "write" and e.line == lines[0])].name == "logits"
    )


def test_the_block_table_entries_read_are_those_of_the_case():
    trace, _ = traced()
    table = next(n for n, array in enumerate(trace.arrays) if array.name == "block_tables")
    assert trace.arrays[table].data == tuple(CASE.block_tables.reshape(-1).tolist())
    walked = lines_of(BODY, "physical_block_number = int64(")[0]
    for at, thread in enumerate(trace.threads):
        own = [trace.events[n] for n in trace.events_of(at)]
        reads = [e.index for e in own if e.kind == "read" and e.array == table and e.line == walked]
        assert reads == list(range(thread.number // 32, 5, 4))


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:5"])
def test_the_output_is_the_same_with_and_without(schedule):
    assert (traced(schedule)[1] == attend(paged_attention_v1_kernel, Backend("sim", schedule))).all()


def test_each_threads_own_events_do_not_depend_on_the_schedule():
    def own(trace, number):
        at = trace.thread(number, (1, 0, 0))
        return [
            (
                e.kind,
                e.line,
                e.depth,
                [(name, v and (v.type, v.data)) for name, v in e.changed if v and v.type != "array"],
            )
            for e in (trace.events[n] for n in trace.events_of(at))
        ]

    for number in THREADS:
        assert own(traced("random:5")[0], number) == own(traced()[0], number)


def test_the_files_are_the_ports():
    trace, _ = traced()
    # The last two hold what an fp8 cache would enter.
    others = {"kernels/vllm/dtypes.py", "kernels/numbers.py"}
    assert {file.path for file in trace.files} == {"kernels/vllm/classic_v1.py", BODY, UTILS} | others
    assert trace.functions[0].name == "paged_attention_v1_kernel"
    assert Trace.from_json(trace.to_json()) == trace


def test_the_walk_on_the_formats_page_works():
    page = (ROOT / "docs" / "trace-format.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    line = lines_of(BODY, "for j in range(NUM_VECS_PER_THREAD):")[0]
    code = re.sub(r"to_line\(\d+", f"to_line({line}", code).replace("trace.thread(33)", "trace.thread(33, (1, 0, 0))")
    scope = {"text": traced()[0].to_json()}
    exec(compile(code, "page", "exec"), scope)
    cursor = scope["cursor"]
    assert isinstance(cursor, Cursor)
    assert cursor.state.threads[cursor.thread or 0].frames
