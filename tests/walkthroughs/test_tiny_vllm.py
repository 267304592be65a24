"""What is particular about tiny-vllm's steps: who is late is the step's business, and its predictions can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate import spans
from annotate.concepts import concepts
from kernels.kernel import Backend
from kernels.probe import Probed
from kernels.tiny_vllm import paged
from walkthroughs import runner
from walkthroughs.catalog import tiny_vllm_1_memory as memory
from walkthroughs.catalog.tiny_vllm_1_memory import CASE, NAP, attend, napping
from walkthroughs.mutations import MUTATIONS, mutant
from walkthroughs.step import get, registry
from walkthroughs.workbench import Bench, Workbench

SOURCE = "tiny-vllm@e25bf19"
STEPS = registry()["tiny-vllm"].steps  # all three parts
BY_ID = {mutation.id: mutation for mutation in MUTATIONS}


def failed(record):
    return {check.name for check in record.checks if not check.passed}


def test_the_four_open_points_and_the_rest_of_the_lesson_have_their_steps():
    slugs = [step.slug for step in STEPS]
    assert {"table-index", "head-size", "race", "in-place", "table-copies"} < set(slugs)
    assert slugs[0] == "block"
    assert slugs[-1] == "table-copies"
    assert all(step.source == SOURCE for step in STEPS)


@pytest.mark.parametrize(
    "bench",
    [
        Bench(Backend("sim", "reversed")),
        Bench(Backend("sim", "random:5")),
        Bench(Backend("sim"), sleepy_warp=0),
        Bench(Backend("sim"), sleepy_warp=1),
    ],
    ids=str,
)
@pytest.mark.parametrize("slug", ["race", "in-place", "score", "head-size"])
def test_steps_pass_whatever_the_bench_delays(bench, slug):
    record = runner.run(get(f"tiny-vllm/{slug}"), bench)
    assert (record.status, failed(record)) == ("passed", set())


def test_the_race_step_fails_where_there_is_no_race():
    always = mutant(replace(BY_ID["tiny-repair"], id="always", new="if True:"))
    record = runner.run(
        get("tiny-vllm/race"), Bench(Backend("sim"), kernels=((paged.tiny_attention_kernel.name, always),))
    )
    assert failed(record) == {"warp 1 late: elements 32 to 63, as foretold", "and that is wrong"}


def test_a_schedule_of_the_step_replaces_the_benchs():
    seen = [
        attend(Workbench("kernels/tiny_vllm/paged.py", Bench(Backend("sim", order))), CASE, repaired=False,
               schedule="replay:*=0").out[0]
        for order in ("in-order", "reversed", "random:1")
    ]  # fmt: skip
    assert all(np.array_equal(out, seen[0]) for out in seen)


def test_a_kernel_that_naps_is_made_once_and_naps_as_long_as_the_prose_says():
    kernel = paged.tiny_attention_kernel
    assert napping(kernel.fn, kernel.constexpr, 1) is napping(kernel.fn, kernel.constexpr, 1)
    assert napping(kernel.fn, kernel.constexpr, 0) is not napping(kernel.fn, kernel.constexpr, 1)
    assert NAP == 20_000
    assert "20 µs" in get("tiny-vllm/race").prose


def test_on_a_gpu_the_late_warp_naps(monkeypatch):
    launched = []

    def launch(*args, backend, entry, **options):
        launched.append((backend, entry, options))

    monkeypatch.setattr(memory.paged, "tiny_attention", launch)
    bench = Workbench("kernels/tiny_vllm/paged.py", Bench(Backend("cuda"), sleepy_warp=0))
    kernel = paged.tiny_attention_kernel
    attend(bench, CASE, repaired=False, schedule="replay:*=0", sleepy=1)
    attend(bench, CASE, schedule="replay:*=1", sleepy=None)
    attend(bench, CASE)
    (first, second, third) = launched
    assert first == (Backend("cuda"), napping(kernel.fn, kernel.constexpr, 1), {"repaired": False})
    assert second == (Backend("cuda"), kernel, {"repaired": True})
    assert third[1] is not kernel  # the bench's own delay
    assert not isinstance(third[1], Probed)


def test_every_anchor_of_tiny_vllm_has_the_lines_that_were_read_by_hand():
    wanted = {name: len(concept.anchors[SOURCE]) for name, concept in concepts().items() if SOURCE in concept.anchors}
    found = spans.spans(SOURCE)
    assert {name: len(entries) for name, entries in found.items()} == wanted
    for entries in found.values():
        for span in entries:
            assert span.path in ("src/kernels.cu", "src/main.cpp")
            assert 1 <= span.first <= span.last <= (528 if span.path.endswith(".cu") else 1030)
