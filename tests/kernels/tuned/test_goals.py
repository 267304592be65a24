"""The goals: each of the issue's, reached or missed by the numbers of the record, and open without them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kernels.tuned import goals, shapes
from kernels.tuned.bench_record import FAILED, PEER, WRONG, Cell, Record, Row
from kernels.tuned.goals import MISSED, OPEN, REACHED, Goal, Item


def _sample() -> ModuleType:
    name = "pagewalk_bench_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "bench_sample.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _sample()


def with_rows(record: Record, change: Callable[[Cell, Row], Row]) -> Record:
    sets = {
        name: replace(made, cells=tuple(
            replace(cell, rows=tuple(change(cell, row) for row in cell.rows)) for cell in made.cells
        ))
        for name, made in record.sets.items()
    }  # fmt: skip
    return Record(sets)


def ours(factor: float, cells: set[str] | None = None) -> Callable[[Cell, Row], Row]:
    """The ring at `factor` times what FlashInfer takes, on some cells or on all."""

    def change(cell: Cell, row: Row) -> Row:
        rival = cell.row("flashinfer-tc")
        if row.who != "ring" or rival is None or rival.us is None or (cells and cell.id not in cells):
            return row
        return replace(row, us=rival.us * factor)

    return change


def by_id(record: Record) -> dict[str, Goal]:
    return {goal.id: goal for goal in goals.goals(record)}


def test_without_a_record_every_goal_is_open() -> None:
    found = goals.goals(Record())
    assert [goal.state for goal in found] == [OPEN] * len(found)
    assert {goal.measured for goal in found} == {OPEN}
    assert len(found) == 16
    assert len({goal.id for goal in found}) == 16


def test_a_race_is_won_on_every_shape_or_missed() -> None:
    won = by_id(with_rows(sample.record(), ours(0.9)))
    assert won["facts"].state == REACHED
    assert won["facts"].measured == "1.11 times as fast; 8 of 8"
    assert won["slow"].state == REACHED
    assert won["matrix"].state == REACHED
    lost = with_rows(with_rows(sample.record(), ours(0.9)), ours(1.004, {shapes.QWEN_7B.id}))
    assert by_id(lost)["facts"].state == MISSED
    assert by_id(lost)["facts"].measured == "0.996 to 1.11 times as fast; 7 of 8"
    assert any("Qwen2.5-7B: 0.996, asked 1.00" in line for line in goals.lines(lost))


def test_the_matrix_may_lose_a_tenth() -> None:
    record = with_rows(sample.record(), ours(0.95))
    cells = [cell.id for cell in record.sets["matrix"].cells]
    few, many = set(cells[: len(cells) // 10]), set(cells[: len(cells) // 10 + 1])
    assert by_id(with_rows(record, ours(1.1, few)))["matrix"].state == REACHED
    assert by_id(with_rows(record, ours(1.1, many)))["matrix"].state == MISSED


def test_only_where_the_rival_is_slow_more_is_asked() -> None:
    found = by_id(with_rows(sample.record(), ours(0.95)))["slow"]
    known = sample.record().cells()
    assert {item.cell for item in found.items} == {
        cell.id for cell in known.values()
        if cell.id in {shape.id for shape in (*shapes.FACTS, *shapes.mixed())}
        and (row := cell.row("flashinfer-tc")) and row.tbs and row.tbs < 3.7
    }  # fmt: skip
    assert found.state == MISSED, "1.05 is less than 1.08"


def test_each_shape_has_its_own_factor_over_v2() -> None:
    assert [item.need for item in by_id(sample.record())["vllm-v2"].items] == [5.0, 3.5, 3.0, 3.5]

    need = {shapes.QWEN_7B.id: 5.0, shapes.LLAMA_8B.id: 3.5, shapes.LLAMA_1B.id: 3.0, shapes.ONE_LONG.id: 3.5}

    def about(factor: float) -> Callable[[Cell, Row], Row]:
        def change(cell: Cell, row: Row) -> Row:
            base = cell.row("ring")
            asked = row.who == "vllm-v2" and cell.id in need
            return replace(row, us=base.us * need[cell.id] * factor) if asked and base and base.us else row

        return change

    assert by_id(with_rows(sample.record(), about(1.001)))["vllm-v2"].state == REACHED
    assert by_id(with_rows(sample.record(), about(0.999)))["vllm-v2"].won == 0


@pytest.mark.parametrize(
    ("goal", "cell", "share", "state"),
    [
        ("share-64", shapes.LLAMA_1B.id, 0.93, REACHED),
        ("share-64", shapes.LLAMA_1B.id, 0.929, MISSED),
        ("share-one", shapes.ONE_LONG.id, 0.70, REACHED),
        ("share-one", shapes.ONE_LONG.id, 0.69, MISSED),
        ("share-mixed", next(shapes.mixed()).id, 0.87, MISSED),
        ("wide", shapes.WIDE.id, 0.90, REACHED),
        ("wide", shapes.GROUP_1.id, 0.89, MISSED),
    ],
)
def test_shares_of_reading_alone(goal: str, cell: str, share: float, state: str) -> None:
    record = with_rows(
        sample.record(), lambda here, row: replace(row, share=share) if row.who == "ring" and here.id == cell else row
    )
    assert by_id(record)[goal].state == state


def test_fp8_is_held_against_bf16_of_the_same_run() -> None:
    record = sample.record()
    slow = with_rows(record, lambda cell, row: replace(row, us=1e6) if cell.id == shapes.FP8.id else row)
    assert by_id(record)["fp8"].state == REACHED
    assert by_id(slow)["fp8"].state == MISSED
    alone = Record({name: made for name, made in record.sets.items() if name != "goals"})
    assert by_id(alone)["fp8"].state == OPEN


def test_ports_may_take_half_as_long_again() -> None:
    def port(factor: float) -> Callable[[Cell, Row], Row]:
        return lambda cell, row: (
            replace(row, us=theirs.us * factor)
            if row.who == "classic-v1" and (theirs := cell.row("vllm-v1")) and theirs.us else row
        )  # fmt: skip

    assert by_id(with_rows(sample.record(), port(1.49)))["ports"].state == REACHED
    assert by_id(with_rows(sample.record(), port(1.51)))["ports"].state == MISSED


def test_peers_that_were_brought_count_where_they_were_measured() -> None:
    def cudnn(factor: float) -> Record:
        def change(cell: Cell, row: Row) -> Row:
            ring = cell.row("ring")
            there = row.who == "torch-flex" and cell.id != shapes.QWEN_7B.id
            return replace(row, who="cudnn", us=ring.us * factor) if there and ring and ring.us else row

        return with_rows(sample.record(), change)

    assert by_id(sample.record())["dense"].state == OPEN
    assert by_id(cudnn(1.2))["dense"].measured == "1.20 times as fast; 7 of 7"
    assert by_id(cudnn(1.2))["dense"].state == REACHED
    assert by_id(cudnn(0.9))["dense"].state == MISSED


def test_writer_and_host() -> None:
    found = by_id(sample.record())
    assert (found["writer"].state, found["index-put"].state, found["host"].state) == (REACHED,) * 3
    slow = with_rows(sample.record(), lambda cell, row: replace(row, us=70.0, share=0.2) if row.us else row)
    found = by_id(slow)
    assert (found["writer"].state, found["host"].state) == (MISSED,) * 2
    assert found["host"].measured == "70.0 µs"


def test_what_was_not_measured_keeps_a_goal_open_or_is_said() -> None:
    def fails(cell: Cell, row: Row) -> Row:
        out = row.who == "ring" and cell.id == shapes.QWEN_7B.id
        return Row("ring", "The ring", "rung", FAILED, "why") if out else row

    found = by_id(with_rows(with_rows(sample.record(), ours(0.9)), fails))
    assert found["facts"].state == OPEN
    assert found["facts"].measured == "1.11 times as fast; 7 of 7; 1 not measured"
    assert found["matrix"].state == REACHED


def test_an_item_may_have_to_be_below() -> None:
    assert Item("", "", 9.9, 10.0, below=True).reached is True
    assert Item("", "", 10.1, 10.0, below=True).reached is False
    assert Item("", "", None, 10.0).reached is None
    assert [goals.figure(value) for value in (0.9961, 1.0, 1.06, 12.34, 123.4, 1234.0)] == [
        "0.996", "1.00", "1.06", "12.3", "123", "1,234",
    ]  # fmt: skip


def test_rows_that_were_wrong_are_named() -> None:
    assert goals.wrong(sample.record()) == []
    record = with_rows(
        sample.record(), lambda cell, row: Row(row.who, "", PEER, WRONG, "no") if row.who == "torch-flex" else row
    )
    assert {who for _, who, _ in goals.wrong(record)} == {"torch-flex"}
