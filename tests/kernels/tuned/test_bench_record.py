"""A record: what it keeps, what it refuses, its file, and how it reads in words."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kernels.tuned import bench_record, bench_text, shapes
from kernels.tuned.bench_record import (
    FAILED,
    LEFT,
    MEASURED,
    PEER,
    REFUSED,
    RUNG,
    WRONG,
    Record,
    RecordError,
    Row,
)


def load_sample() -> ModuleType:
    name = "pagewalk_bench_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "bench_sample.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = load_sample()


@pytest.fixture(scope="module")
def record() -> Record:
    made: Record = sample.record()
    return made


def rounded(row: Row) -> Row:
    """Numbers to six digits."""
    names = ("us", "least", "most", "tbs", "share")
    values = {name: getattr(row, name) for name in names}
    return replace(row, **{name: None if value is None else float(f"{value:.6g}") for name, value in values.items()})


def test_a_record_survives_its_file(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    bench_record.write(path, record)
    found = bench_record.read(path)
    assert list(found.sets) == list(record.sets)
    for name, made in record.sets.items():
        other = found.sets[name]
        assert (other.device, other.date, other.versions, other.words) == (
            made.device, made.date, made.versions, made.words,
        )  # fmt: skip
        for cell, again in zip(made.cells, other.cells, strict=True):
            assert (again.id, again.moved, again.sets) == (cell.id, cell.moved, cell.sets)
            for row, same in zip(cell.rows, again.rows, strict=True):
                assert rounded(row) == same
    assert bench_record.from_json(json.loads(bench_record.dump(found))) == found
    assert [item.name for item in path.parent.iterdir()] == ["bench.json"], "no temporary file is left"


def test_a_row_is_a_line(record: Record) -> None:
    text = bench_record.dump(record)
    rows = sum(len(cell.rows) for made in record.sets.values() for cell in made.cells)
    assert rows <= sum('"who": ' in line for line in text.splitlines())
    assert all(line.count('"who": ') <= 1 for line in text.splitlines())


def test_numbers_that_are_none_and_text_with_signs_survive(record: Record) -> None:
    odd = Row("a", 'x "@1@" y', PEER, FAILED, 'said "@0@"', tries=({"us": None, "best": False},))
    made = next(iter(record.sets.values()))
    cell = replace(made.cells[0], rows=(odd,))
    again = bench_record.from_json(json.loads(bench_record.dump(Record().put(replace(made, cells=(cell,))))))
    assert next(iter(again.sets.values())).cells[0].rows == (odd,)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    assert bench_record.read(tmp_path / "none.json") == Record()
    for text in ("{", '{"schema": 7, "sets": []}', "[]", '{"schema": 1, "sets": [{"id": "x"}]}', '{"schema": 1}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(RecordError, match=r"bad\.json"):
            bench_record.read(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"state": "fine"}, "must be one of"),
        ({"us": None}, "a measured row has a time"),
        ({"state": REFUSED, "reason": "no"}, "another has none"),
        ({"state": LEFT, "us": None}, "no reason"),
    ],
)
def test_a_row_without_a_time_has_a_reason(wrong: dict[str, object], said: str) -> None:
    given = {"who": "a", "title": "A", "kind": RUNG, "us": 3.0, **wrong}
    with pytest.raises(RecordError, match=said):
        Row(**given)  # type: ignore[arg-type]


def test_ratios_are_of_one_cell_and_only_of_what_was_measured(record: Record) -> None:
    cell = record.cells()[shapes.LLAMA_8B.id]
    ours, theirs = cell.row("ring"), cell.row("flashinfer-tc")
    assert ours
    assert theirs
    assert ours.us
    assert cell.ratio("ring", "flashinfer-tc") == pytest.approx((theirs.us or 0) / ours.us)
    qwen = record.cells()[shapes.QWEN_7B.id]
    assert qwen.row("flashinfer") is None
    assert qwen.ratio("ring", "flashinfer") is None


def test_a_set_takes_the_place_of_its_name_and_the_fuller_cell_counts(record: Record) -> None:
    facts = record.sets["facts"]
    newer = record.put(replace(facts, date="2027", cells=facts.cells[:1]))
    assert list(newer.sets) == list(record.sets)
    assert newer.sets["facts"].date == "2027"
    assert len(record.cells()[shapes.LLAMA_8B.id].rows) == len(sample.RUNGS) + len(sample.PEERS)
    assert len(record.sets["matrix"].cells) > len(facts.cells)


# In words


def test_a_row_in_words() -> None:
    tries = (
        {"splits": 2, "us": 123.456, "best": True},
        {"splits": 4, "us": None, "best": False, "reason": "no"},
    )
    row = Row(
        "ring", "The ring", RUNG, us=123.456, least=120.0, most=130.0, how="graph", tbs=4.25, share=0.953, error=2.2e-3,
        registers=128, local_bytes=0, plan={"splits": 2, "warps": 4, "depth": 3}, tries=tries,
    )  # fmt: skip
    text = bench_text.line(row)
    for part in (
        "123.46 us [120.00 to 130.00]", "4.25 TB/s", "95% of the limit", "error 2.2e-03", "128 registers, 0 local",
        "splits=2 warps=4 depth=3", "splits=2: 123.46 us (best)", "splits=4: no",
    ):  # fmt: skip
        assert part in text
    assert "graph" not in text
    assert bench_text.line(replace(row, how="events")).splitlines()[0].endswith("events")
    assert bench_text.line(Row("a", "A", PEER, WRONG, "an error of 1")) == f"  {'a':16} wrong: an error of 1"


def test_shapes_and_sizes_in_words(record: Record) -> None:
    known = record.cells()
    assert bench_text.shape(known[shapes.QWEN_7B.id]) == "64 x 4096, 28/4, 128"
    assert bench_text.shape(known[shapes.FP8.id]) == "64 x 4096, 32/8, 128, fp8 e4m3"
    assert bench_text.shape(known[shapes.QUERIES[0].id]) == "64 x 4096, 32/8, 128, 2 queries"
    assert bench_text.shape(known[next(shapes.mixed()).id]) == "64 x up to 65536, 32/8, 128"
    assert bench_text.shape(known[shapes.WRITES[0].id]) == "8,192 tokens, 8 heads of 128, blocks of 16"
    assert [bench_text.size(moved) for moved in (12, 6_784, 536_870_912, 17_179_869_184)] == [
        "12 bytes", "6.78 KB", "537 MB", "17.2 GB",
    ]  # fmt: skip


def test_the_table_shows_every_cell_and_every_row(record: Record) -> None:
    text = "\n".join(bench_text.table(record, {"facts": True}))
    assert text.count("STALE") == 1
    for made in record.sets.values():
        for cell in made.cells:
            assert bench_text.shape(cell) in text
    rows = sum(len(cell.rows) + bool(cell.limit) for made in record.sets.values() for cell in made.cells)
    assert len([line for line in text.splitlines() if line.startswith("  ") and line[2] != " "]) == rows + 2 * len(
        record.sets
    )
    assert "refused: a group of 7" in text
    assert MEASURED == "measured"
