"""The ladder's code, steps, page and records say the same: every rung has a step, a section and rows, in one order."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from kernels import layout
from kernels.tuned.bench_record import Set
from kernels.tuned.ladder import RUNGS, Rung
from kernels.tuned.plan import Plan
from kernels.tuned.shapes import FOUR, LLAMA_1B, LLAMA_8B, ONE_LONG, QWEN_7B, Shape
from walkthroughs import bench, evidence
from walkthroughs.catalog import ladder_shared as ladder
from walkthroughs.digest import port_files
from walkthroughs.site import ladder_page
from walkthroughs.step import Step, registry, steps

ROOT = Path(__file__).resolve().parents[2]
WALKTHROUGH = registry()["ladder"]
WRITER = "writer"
PARTS = ("**The picture.**", "**Prediction.**", "**Why.**")
each_rung = pytest.mark.parametrize("rung", RUNGS.values(), ids=lambda rung: rung.id)
each_step = pytest.mark.parametrize("step", WALKTHROUGH.steps, ids=lambda step: step.slug)


def step_of(rung: Rung) -> Step:
    return steps()[f"ladder/{rung.id}"]


# -- code and steps


def test_the_steps_are_the_rungs_in_their_order_and_then_the_writer() -> None:
    assert [rung.number for rung in RUNGS.values()] == list(range(len(RUNGS)))
    assert [step.slug for step in WALKTHROUGH.steps] == [*RUNGS, WRITER]
    assert list(RUNGS) == [rung.id for rung in RUNGS.values()]


@each_rung
def test_a_rung_and_its_step_have_one_name_and_one_file(rung: Rung) -> None:
    step = step_of(rung)
    assert step.title == rung.title
    assert step.port == rung.launches.__module__.replace(".", "/") + ".py"
    assert (ROOT / step.port).is_file()
    assert any(file.startswith("kernels/tuned/") for file in port_files(step.port))


@each_rung
@pytest.mark.parametrize("splits", [1, 2])
def test_no_launch_is_handed_memory_twice(rung: Rung, splits: int) -> None:
    # Arrays from the host are copied back from a GPU one by one: an old copy would hide what the kernel wrote.
    narrow = ladder.counted_case()
    call = ladder.call_of(narrow, np.zeros_like(narrow.q))
    for made in rung.launches(call, np.zeros, Plan(splits, 2, 2)):
        arrays = [argument for argument in made.args if isinstance(argument, np.ndarray)]
        assert len(arrays) >= 3
        for one, other in itertools.combinations(arrays, 2):
            assert not np.shares_memory(one, other)


@each_step
def test_the_left_pane_is_the_rung_below_or_upstream(step: Step) -> None:
    if "@" in step.source:
        return
    below = [other.port for other in WALKTHROUGH.steps[: WALKTHROUGH.steps.index(step)]]
    assert below, "the first step has nothing below it"
    assert step.source in port_files(below[-1])


@each_step
def test_a_step_predicts_before_it_shows_what_was_measured_and_says_why(step: Step) -> None:
    places = [step.prose.index(part) for part in (*PARTS[:2], f"::: rung {step.slug}", PARTS[2])]
    assert places == sorted(places)
    shown = [line.removeprefix("::: ") for line in step.prose.splitlines() if line.startswith(":::")]
    # Behind everything else, what is compiled.
    assert shown == [f"rung {step.slug}", *(["written ring"] if step.slug == "ring" else [])]


# -- page


def test_the_page_has_a_section_for_each_rung() -> None:
    page = (ROOT / "docs" / "walkthroughs" / "ladder.md").read_text("utf-8")
    assert "::: walkthrough ladder root=.." in page
    assert re.search(r"^ +- .*: walkthroughs/ladder\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert "walkthroughs/ladder.md" in (ROOT / "docs" / "index.md").read_text("utf-8")
    assert "::: rungs" in WALKTHROUGH.intro


@each_rung
def test_the_page_shows_the_record_of_a_rung_as_it_is(rung: Rung) -> None:
    text = "\n".join(ladder_page.project_rung(rung.id))
    found = sets_with(rung.id)
    assert ("Not yet measured" in text) == (not found)
    assert ("✔ **Measured** on" in text) == any(bench.fresh(made) for made in found)
    assert ("⚠ **Stale:**" in text) == any(not bench.fresh(made) for made in found)


def sets_with(who: str) -> list[Set]:
    """The sets of the committed record that the page takes rows of this rung from, by brute force."""
    record = bench.load()
    sets = sorted(record.sets.values(), key=lambda made: len(made.cells))
    found: dict[str, Set] = {}
    for name in (*ladder_page.SHAPES, *ladder_page.WRITE_SHAPES):
        home = next((made for made in sets if any(cell.id == name for cell in made.cells)), None)
        if home and any(row.who == who for cell in home.cells if cell.id == name for row in cell.rows):
            found[home.id] = home
    return list(found.values())


# -- records


def test_the_benchmark_record_has_a_row_for_every_rung_or_is_stale() -> None:
    for made in bench.load().sets.values():
        known = {row.who for cell in made.cells for row in cell.rows}
        if made.id == "facts" and bench.fresh(made):
            for cell in made.cells:
                rows = [row.who for row in cell.rows if row.kind == "rung"]
                assert rows == list(RUNGS), f"{cell.id}: run `make bench`"
        elif made.id in ("facts", "matrix", "goals") and bench.fresh(made):
            assert list(RUNGS)[-1] in known


def test_the_steps_record_is_of_these_steps() -> None:
    path = evidence.EVIDENCE / "ladder.json"
    if path.exists():
        assert [record.step for record in evidence.read(path)] == [step.id for step in WALKTHROUGH.steps]


# -- arithmetic


def test_what_must_be_read_is_every_byte_that_a_token_of_the_case_has() -> None:
    case = ladder.counted_case().case
    places = set()
    for token in range(ladder.TOKENS):
        block = int(case.block_tables[0, token // ladder.BLOCK_SIZE])
        for head in range(ladder.KV_HEADS):
            for dim in range(ladder.HEAD_SIZE):
                at = (block, head, dim, token % ladder.BLOCK_SIZE)
                sizes = {"num_kv_heads": ladder.KV_HEADS, "head_size": ladder.HEAD_SIZE, "block_size": 16}
                places.add(("key", layout.key_offset(*at, **sizes, element_size=ladder.ITEM)))
                places.add(("value", layout.value_offset(*at, **sizes)))
    assert len(places) * ladder.ITEM == ladder.NEEDED
    assert int(case.seq_lens[0]) == ladder.TOKENS
    assert ladder.BLOCKS == len(case.blocks_of(0)) == ladder.TOKENS // 16
    assert (case.num_heads, case.num_kv_heads, case.head_size) == (ladder.HEADS, ladder.KV_HEADS, ladder.HEAD_SIZE)


def test_operations_are_those_of_two_products() -> None:
    count = 0
    for _head in range(ladder.HEADS):
        for _token in range(ladder.TOKENS):
            count += 2 * ladder.HEAD_SIZE  # a multiplication and an addition for each element of the key
            count += 2 * ladder.HEAD_SIZE  # and of the value
    assert count == ladder.operations()
    # With two bytes an element, a byte that is read once has as many operations as a KV head has query heads.
    assert ladder.operations() / ladder.NEEDED == ladder.GROUP


# -- what the prose says of the record

BATCH, ALONE = (QWEN_7B, LLAMA_8B, LLAMA_1B), ONE_LONG


class Measured:
    """The committed record, asked as the prose does."""

    def __init__(self) -> None:
        self.cells = bench.load().cells()

    def gain(self, shape: Shape, rung: str, below: str) -> float:
        found = self.cells[shape.id].ratio(rung, below)
        assert found is not None, f"{shape.id}: {rung} or {below} was not measured"
        return found

    def gains(self, shape: Shape) -> dict[str, float]:
        order = list(RUNGS)
        return {rung: self.gain(shape, rung, below) for below, rung in itertools.pairwise(order)}

    def registers(self, shape: Shape, rung: str) -> int:
        row = self.cells[shape.id].row(rung)
        assert row is not None
        return row.registers or 0


def largest(gains: dict[str, float]) -> str:
    return max(gains, key=lambda rung: gains[rung])


SAID = {
    "v1 is faster than the token loop": lambda m: all(m.gain(s, "classic-v1", "token-loop") > 1 for s in FOUR),
    "by less than one would think": lambda m: all(m.gain(s, "classic-v1", "token-loop") < 4 for s in FOUR),
    "a full batch loses by partitions": lambda m: all(m.gain(s, "classic-v2", "classic-v1") < 1 for s in BATCH),
    "one sequence gains most by them": lambda m: largest(m.gains(ALONE)) == "classic-v2",
    "and not 64 times": lambda m: m.gain(ALONE, "classic-v2", "classic-v1") < 64,
    "wide loads are a batch's largest step": lambda m: all(largest(m.gains(s)) == "wide-loads" for s in BATCH),
    "groups gain": lambda m: all(m.gain(s, "grouped", "wide-loads") > 1 for s in FOUR),
    "by less than the bytes promise": lambda m: all(m.gain(s, "grouped", "wide-loads") < s.group for s in FOUR),
    "one pass takes more registers": lambda m: all(m.registers(s, "online") > m.registers(s, "grouped") for s in FOUR),
    "it gains where a head is small": lambda m: m.gain(LLAMA_1B, "online", "grouped") > 1,
    "one sequence steps back": lambda m: m.gain(ALONE, "online", "grouped") < 0.5,
    "splits help it most": lambda m: all(
        m.gain(ALONE, "split", "online") > m.gain(s, "split", "online") for s in BATCH
    ),
    "tensor cores help the largest group most": lambda m: all(
        m.gain(QWEN_7B, "tensor-cores", "split") > m.gain(s, "tensor-cores", "split") for s in (LLAMA_8B, LLAMA_1B)
    ),
    "the ring takes fewer registers": lambda m: all(
        m.registers(s, "ring") < m.registers(s, "tensor-cores") for s in FOUR
    ),
    "the ring is the fastest": lambda m: all(m.gain(s, "ring", rung) > 1 for s in FOUR for rung in list(RUNGS)[:-1]),
    "a single sequence is furthest from the limit": lambda m: all(
        (m.cells[ALONE.id].row("ring").share or 0) < (m.cells[s.id].row("ring").share or 0) for s in BATCH
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", SAID)
def test_what_the_steps_say_of_the_measured_times_is_so(words: str) -> None:
    record = bench.load()
    assert "facts" in record.sets, "no benchmark record: run `make bench` on a machine with a GPU"
    assert SAID[words](Measured()), "the record says otherwise: mend the step's words"
