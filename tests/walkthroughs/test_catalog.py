"""The catalog as a whole: every step is explained, tied to lines that exist, checked, and passes on the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from annotate import spans
from annotate.concepts import concepts
from annotate.regions import regions
from kernels.kernel import Backend
from walkthroughs import runner
from walkthroughs.digest import port_files
from walkthroughs.evidence import Evidence
from walkthroughs.step import Step, registry, steps

ROOT = Path(__file__).resolve().parents[2]
STEPS = list(steps().values())
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
each_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.id)
SIM = Backend("sim")
LEAST = {
    "paged-reference": 6, "vllm-classic": 27, "vllm-writers": 7, "vllm-live": 22, "tiny-vllm": 18, "block-lifetime": 9,
    "findings": 7, "ladder": 10, "live-engine": 8,
}  # fmt: skip
# Concepts that a step shows on the left only: the kernels have nothing of the kind.
LEFT_ONLY = {
    "paged-reference/dense": {"dense-attention"},  # a kernel never sees rows that lie together
    "paged-reference/sharing": {"prefix-sharing"},  # the pool's business
    "findings/design-document": {"doc-inputs", "doc-concepts", "doc-value"},  # a document
    "findings/last-digit": {"dense-attention"},
    "vllm-classic/slots": {"slot-formula"},  # Python made the slots
    "vllm-classic/x": {"x-view"},  # a view of a tensor
    # Python's side of the cache: a shape, an order of axes, and the call
    "vllm-writers/strides": {"flash-cache-shape", "flash-stride-order", "kv-cache-update"},
    "vllm-live/padding": {"runner-pad"},  # the model runner's business
    # The pool's business: kernels read what it decided.
    "block-lifetime/on-demand": {"block-pool", "block-table-growth"},
    "block-lifetime/edges": {"block-table-growth"},
    "block-lifetime/unsorted": {"block-table-growth"},
    "block-lifetime/shared-prefix": {"prefix-sharing", "block-pool"},
    "block-lifetime/copy-on-write": {"block-table-growth", "prefix-sharing"},
    "block-lifetime/reuse": {"block-pool"},
    "block-lifetime/empty-pool": {"block-pool", "block-table-growth"},
    "block-lifetime/in-use": {"block-pool", "block-table-growth"},
    "block-lifetime/fragmentation": {"fragmentation"},
    "live-engine/newest-token": {"block-table-growth"},
    "live-engine/edges": {"block-table-growth", "block-pool"},
    "live-engine/large-blocks": {"block-table-growth"},
    "live-engine/several": {"block-pool", "block-table-growth"},
    "live-engine/shared": {"prefix-sharing", "block-pool"},
    "live-engine/whole-blocks": {"prefix-sharing"},
    "live-engine/found-again": {"block-pool", "prefix-sharing"},
    "live-engine/waiting": {"block-pool"},
    "live-engine/preempted": {"block-pool", "block-table-growth"},
    "live-engine/freed": {"block-pool"},
}
# Regions that no step reads as such: a reader reaches them through the inner ones, or sees them around.
NOT_READ = {"key-loop", "reshape-and-cache", "v1-launcher", "v2-launcher", "reshape-and-cache-flash"}


@pytest.fixture(scope="module")
def records() -> dict[str, Evidence]:
    """What ran so far, by step id: each step runs once for all tests of this module."""
    return {}


def record_of(step: Step, records: dict[str, Evidence]) -> Evidence:
    if step.id not in records:
        records[step.id] = runner.run(step, SIM)
    return records[step.id]


# -- ids and prose


@pytest.mark.parametrize("name", LEAST)
def test_enough_steps(name: str) -> None:
    assert len(registry()[name].steps) >= LEAST[name]


def test_ids_are_unique_and_can_stand_in_an_address() -> None:
    listed = [step.id for walkthrough in registry().values() for step in walkthrough.steps]
    assert len(set(listed)) == len(listed)
    for walkthrough in registry().values():
        assert SLUG.fullmatch(walkthrough.id)
        assert all(step.walkthrough == walkthrough.id and SLUG.fullmatch(step.slug) for step in walkthrough.steps)
        titles = [step.title for step in walkthrough.steps]
        assert len(set(titles)) == len(titles)


def test_every_walkthrough_introduces_itself() -> None:
    for walkthrough in registry().values():
        assert walkthrough.title
        assert len(walkthrough.intro.split()) >= 20


@each_step
def test_every_step_is_explained(step: Step) -> None:
    assert step.title
    assert len(step.prose.split()) >= 30, "a step without an explanation"
    assert not step.prose.startswith(" ")
    assert step.run.__name__ == f"step_{step.slug.replace('-', '_')}"


# -- lines


@each_step
def test_every_concept_of_a_step_has_lines_on_the_left(step: Step) -> None:
    assert step.reads
    assert len(set(step.reads)) == len(step.reads)
    assert set(step.reads) <= set(concepts())
    if "@" not in step.source:
        here = regions(ROOT / step.source)
        assert any(concept in here for concept in step.reads), "the left pane would be empty"
        assert [concept for concept in step.reads if concept not in here and not in_port(concept, step)] == []
        return
    anchored = spans.spans(step.source)
    assert [concept for concept in step.reads if concept not in anchored] == []


def in_port(concept: str, step: Step) -> bool:
    return any(concept in regions(ROOT / file) for file in port_files(step.port))


@each_step
def test_every_concept_of_a_step_has_lines_on_the_right(step: Step) -> None:
    missing = {concept for concept in step.reads if not in_port(concept, step)}
    assert missing == LEFT_ONLY.get(step.id, set())


def test_the_exceptions_above_are_real() -> None:
    for name, missing in LEFT_ONLY.items():
        assert missing < set(steps()[name].reads), f"{name}: something must be on the right"


@pytest.mark.parametrize(
    "port",
    [
        "kernels/vllm/classic_v1.py",
        "kernels/vllm/classic_v2.py",
        "kernels/vllm/attention_kernels.py",
        "kernels/vllm/cache.py",
        "kernels/vllm/cache_fixed.py",
        "kernels/vllm/cache_flash.py",
        "kernels/gather.py",
        "kernels/vllm/paged_2d.py",
        "kernels/vllm/flash_layout.py",
        "kernels/vllm/flash_forward.py",
        "kernels/vllm/slot_mapping.py",
        "kernels/vllm/copy_blocks.py",
        "kernels/tiny_vllm/paged.py",
        "kernels/tiny_vllm/general.py",
        "kernels/tiny_vllm/scatter.py",
        "kernels/tiny_vllm/block_table.py",
    ],
)
def test_every_region_of_a_port_is_read_by_some_step(port: str) -> None:
    read = {concept for step in STEPS for concept in step.reads}
    assert sorted(set(regions(ROOT / port)) - read - NOT_READ) == []


# -- running


@each_step
def test_every_step_passes_on_the_machine(step: Step, records: dict[str, Evidence]) -> None:
    record = record_of(step, records)
    bad = [f"{check.name}: {check.observed} instead of {check.expected}" for check in record.checks if not check.passed]
    assert (record.status, record.message, bad) == ("passed", "", [])


BFLOAT16 = {
    "vllm-classic/bfloat16", "vllm-classic/fp8-cache", "ladder/classic-v1", "ladder/classic-v2", "ladder/tensor-cores",
    "ladder/ring",
}  # fmt: skip


@each_step
def test_every_step_checks_at_least_two_things_that_can_fail(step: Step, records: dict[str, Evidence]) -> None:
    found = record_of(step, records).checks
    assert len(found) >= 2
    names = [check.name for check in found]
    assert len(set(names)) == len(names), "two rows of the table would have one name"
    for check in found:
        assert check.name
        assert "[]" not in (check.observed, check.expected), f"{check.name}: nothing was compared"
        assert "\n" not in check.observed + check.expected, f"{check.name}: not a table cell"
        # Numbers of bfloat16 have eight bits, and so an error that float16 would not excuse.
        assert 0 <= check.max_error <= check.tolerance < (0.021 if step.id in BFLOAT16 else 0.01)


@pytest.mark.parametrize("slug", ["paged-reference/sharing", "vllm-classic/slots", "vllm-classic/output"])
def test_a_run_is_repeatable(slug: str, records: dict[str, Evidence]) -> None:
    step = steps()[slug]
    assert record_of(step, records).checks == runner.run(step, SIM).checks


@pytest.mark.gpu
@each_step
def test_gpu_every_step_passes(step: Step) -> None:
    record = runner.run(step, Backend("cuda"))
    bad = [f"{check.name}: {check.observed} instead of {check.expected}" for check in record.checks if not check.passed]
    assert (record.status, record.message, bad) == ("passed", "", [])
