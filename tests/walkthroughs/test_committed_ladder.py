"""The committed record of the ladder's grid: whole, of a GPU, fresh, and nothing in it that is not as it must be."""

from __future__ import annotations

import re

import pytest

from kernels.tuned import grid as cases
from kernels.tuned.grid_case import TunedCase
from walkthroughs import evidence, grid
from walkthroughs.grid import TUNED

PATH = evidence.EVIDENCE / TUNED.file
pytestmark = pytest.mark.skipif(not PATH.exists(), reason="no GPU record yet: run `make ladder-record`")


def test_the_ladders_record_is_whole_and_of_a_gpu() -> None:
    record = grid.load(subject=TUNED)
    assert record is not None
    assert record["backend"] == "cuda"
    assert record["device"]
    assert record["driver"]
    assert {"python", "numpy", "numba", "numba-cuda", "torch"} <= set(record["versions"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["date"])
    assert grid.fresh(record, TUNED), "the record is stale: run `make ladder-record` on a machine with a GPU"
    found = {group["id"]: [row[0] for row in group["rows"]] for group in record["groups"]}
    assert found == {name: [case.id for case in group] for name, group in cases.groups().items()}
    assert PATH.stat().st_size < 250_000


def test_everything_passed_or_was_refused_as_the_table_says() -> None:
    record = grid.load(subject=TUNED)
    assert record is not None
    groups = cases.groups()
    for group in record["groups"]:
        for row, case in zip(group["rows"], groups[group["id"]], strict=True):
            refused = isinstance(case, TunedCase) and bool(
                case.refusal([*case.base.lengths, max(0, case.base.longest)])
            )
            assert row[3] == ("refused" if refused else "passed"), row
            assert len(row) == (8 if refused else 7), row
            if not refused:
                assert 0 <= row[1] <= row[2]
                assert group["id"].startswith("vllm") or not (row[4] or row[5])
