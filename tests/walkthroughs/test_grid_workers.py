"""Workers of the ops' grids: rows in order, and a crash, a hang or an error that costs one row and no more."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from walkthroughs.grid_workers import BLIND, ERROR, FAILED, PASSED, REFUSED, Plan, Row, run_all, run_case

# A stand-in for the grids; it says on disk which cases ran, since each runs in a process of its own.
SOURCE = """
import os, pathlib, time
from dataclasses import dataclass

HERE = pathlib.Path(__file__).parent

@dataclass(frozen=True)
class Found:
    error: float = 0.5
    tolerance: float = 1.0
    passed: bool = True
    zeros_pass: bool | None = None
    shuffled_keys_pass: bool | None = None
    runs: int = 3
    refused: str = ""

@dataclass(frozen=True)
class Case:
    id: str
    unit: str

    def run(self, device):
        with open(HERE / "ran.txt", "a") as out:
            out.write(f"{self.id} {device} {os.getpid()}\\n")
        if self.id == "wrong":
            return Found(error=2.0, passed=False)
        if self.id == "blind":
            return Found(zeros_pass=True, shuffled_keys_pass=False)
        if self.id == "refuses":
            return Found(error=0.0, tolerance=0.0, runs=0, refused="size = 7: must be even")
        if self.id == "raises":
            raise ValueError("no such thing")
        if self.id == "dies":
            os._exit(7)
        if self.id == "hangs":
            time.sleep(600)
        if self.id == "large" and not (HERE / "alone").exists():
            (HERE / "alone").touch()
            raise OutOfMemoryError("not beside the others")
        return Found()

class OutOfMemoryError(Exception):
    pass

def all_groups(small):
    names = ["first", "wrong", "raises", "dies", "after", "hangs", "last"]
    return {
        "ours": [Case(name, "one") for name in names],
        "vllm-x": [Case("blind", "two"), Case("large", "two")],
        "more": [Case("blind", "three"), *([Case("small", "four")] if small else [])],
        "refusing": [Case("refuses", "five")] if small else [],
    }
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made_up_grid.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def ran(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "ran.txt").read_text("utf-8").splitlines()]


def test_whatever_happens_to_one_case_the_others_run(source: Path) -> None:
    plan = Plan("cpu", source="made_up_grid", seconds=4)
    told: list[Row] = []
    tasks = plan.tasks()
    assert [task.id for task in tasks][:3] == ["first", "wrong", "raises"]
    rows = run_all(plan, tasks, 2, told.append)
    assert [row.id for row in rows] == [task.id for task in tasks]
    results = [row.result for row in rows]
    ours = [PASSED, FAILED, ERROR, ERROR, PASSED, ERROR, PASSED]
    assert results == [*ours, PASSED, PASSED, BLIND]
    messages = {row.id: row.message for row in rows}
    assert messages["raises"] == "ValueError: no such thing"
    assert "exit code 7" in messages["dies"]
    assert messages["hangs"] == "no answer in 4 s"
    assert messages["first"] == messages["large"] == ""
    assert [row.error for row in rows][:3] == [0.5, 2.0, math.inf]
    assert rows[0].runs == 3
    # `large` did not fit the first time, and is told of once more.
    assert len(told) == len(tasks) + 1
    lines = ran(source)
    assert sorted(line[0] for line in lines) == sorted([*(task.id for task in tasks), "large"])
    assert {line[1] for line in lines} == {"cpu"}
    where = {line[0]: line[2] for line in lines}
    # An exception leaves the worker alive; a crash does not.
    assert where["first"] == where["raises"] == where["dies"] != where["after"]
    assert where["hangs"] == where["after"] != where["last"]


def test_groups_can_be_chosen(source: Path) -> None:
    assert [task.id for task in Plan("cpu", source="made_up_grid").tasks(["more"])] == ["blind"]
    assert [task.id for task in Plan("cpu", small=True, source="made_up_grid").tasks(["more"])] == ["blind", "small"]
    assert len(Plan("cpu", source="made_up_grid").tasks()) == 10


def test_only_ours_must_see_a_wrong_output(source: Path) -> None:
    cases = Plan("cpu", source="made_up_grid").groups()
    row = run_case("vllm-x", cases["vllm-x"][0], "cpu")
    assert (row.result, row.zeros_pass, row.shuffled_keys_pass) == (PASSED, True, False)
    assert run_case("ours", cases["vllm-x"][0], "cpu").result == BLIND
    assert run_case("ours", cases["ours"][0], "cpu") == Row("ours", "first", PASSED, 0.5, 1.0, None, None, 3)


def test_a_refusal_is_a_row_with_its_words(source: Path) -> None:
    (case,) = Plan("cpu", small=True, source="made_up_grid").groups()["refusing"]
    row = run_case("refusing", case, "cpu")
    assert (row.result, row.message, row.runs, row.error) == (REFUSED, "size = 7: must be even", 0, 0.0)


def test_the_real_grids_are_the_default() -> None:
    from kernels.vllm import ops_grid

    tasks = Plan("cuda").tasks()
    assert len(tasks) == sum(map(len, ops_grid.groups().values()))
    assert {task.group for task in Plan("cpu", small=True).tasks()} == set(ops_grid.small_groups())
