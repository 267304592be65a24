"""What the ladder's page says of a benchmark record: its numbers, and what it says of a stale one and of none."""

from __future__ import annotations

from dataclasses import asdict, replace

import markdown
import pytest
from bs4 import BeautifulSoup

from kernels.tuned.bench_record import LIMIT, PEER, REFUSED, RUNG, Cell, Record, Row, Set
from kernels.tuned.ladder import RUNGS
from kernels.tuned.shapes import FOUR, LLAMA_8B, ONE_LONG, WRITES, Shape
from walkthroughs import bench
from walkthroughs.site import ladder_page
from walkthroughs.site.errors import UnknownPageItem

RUNG_TITLES = {"slow": "A slow <one>", "fast": "A fast one"}


def row(who: str, us: float, kind: str = RUNG, **more: object) -> Row:
    known = {"how": "graph", "tbs": 1000 / us, "share": 200 / us, "registers": 40, "local_bytes": 0} | more
    return Row(who, who, kind, us=us, **known)  # type: ignore[arg-type]


def cell(shape: Shape, *rows: Row) -> Cell:
    limit = row("read", 200.0, LIMIT, tbs=4.44)
    told = {**asdict(shape), "context": [[shape.context[0], shape.batch]]}
    return Cell(shape.id, shape.name, told, 1, 2, limit, rows)


def named(shape: Shape) -> str:
    """As the page calls a shape of one context."""
    size = f"{shape.batch} x {shape.context[0]}, {shape.heads}/{shape.kv_heads}, {shape.head_size}"
    return f"{shape.name} ({size})"


@pytest.fixture
def record() -> Record:
    refused = Row("fast", "fast", RUNG, REFUSED, "block_size = 8: must be 16")
    cells = (
        cell(ONE_LONG, row("slow", 1234.5), refused),
        cell(LLAMA_8B, row("slow", 500.0, registers=64, local_bytes=224), row("fast", 250.0), row("peer", 1.0, PEER)),
    )
    made = Set("facts", "cuda", "Some <GPU>", "1", "2026-01-02T03:04:05Z", "d", {}, 1.0, None, cells)
    # A larger set has the same cell once more: its rows are not the ones that count.
    more = tuple(cell(shape, row("fast", 9.0)) for shape in FOUR)
    other = replace(made, id="matrix", cells=more, device="Another GPU")
    return Record({"matrix": other, "facts": made})


FRESH = {"facts": True, "matrix": True}


def shown(lines: list[str]) -> BeautifulSoup:
    return BeautifulSoup(markdown.markdown("\n".join(lines), extensions=["tables", "attr_list"]), "html.parser")


def table(page: BeautifulSoup) -> list[list[str]]:
    return [[cell.get_text() for cell in row.select("td")] for row in page.select("tbody tr")]


def test_a_rungs_rows_are_those_of_the_record(record: Record) -> None:
    page = shown(ladder_page.rung_lines(record, FRESH, "slow", None))
    assert [th.get_text() for th in page.select("th")] == list(ladder_page.HEAD)
    assert table(page) == [
        [named(LLAMA_8B), "500", "2.00", "40%", "–", "64", "224"],
        [named(ONE_LONG), "1,234", "0.81", "16%", "–", "40", "0"],
    ]
    assert "✔ Measured on Some <GPU>, 2026-01-02, by graph replay" in page.get_text()
    assert "Stale" not in page.get_text()
    assert "Another GPU" not in page.get_text(), "none of its rows is shown"


def test_a_rung_is_held_against_the_one_below_and_a_refusal_says_why(record: Record) -> None:
    page = shown(ladder_page.rung_lines(record, FRESH, "fast", "slow"))
    rows = {line[0]: line[1:] for line in table(page)}
    assert rows[named(LLAMA_8B)] == ["250", "4.00", "80%", "2.00 times as fast", "40", "0"]
    assert rows[named(ONE_LONG)] == ["refused", *["–"] * 5]
    assert page.select_one("li").get_text() == f"{ONE_LONG.name}, refused: block_size = 8: must be 16"
    # The other two of the four are in the larger set only.
    assert rows[named(FOUR[0])][:2] == ["9.0", "111.11"]
    assert "Another GPU" in page.get_text()


def test_what_the_rows_say_is_said_in_words(record: Record) -> None:
    said = " ".join(shown(ladder_page.rung_lines(record, FRESH, "slow", None)).get_text().split())
    assert f"Nearest to reading alone: {named(LLAMA_8B)}, 40%. Furthest from it: {named(ONE_LONG)}, 16%." in said
    assert "Registers spill: up to 224 bytes of a thread lie in local memory." in said
    said = shown(ladder_page.rung_lines(record, FRESH, "fast", None)).get_text()
    assert "Nothing spills" in said
    assert "Registers spill" not in said


@pytest.mark.parametrize(("value", "said"), [(0.0024, "0.2%"), (0.0199, "2.0%"), (0.02, "2%"), (0.956, "96%")])
def test_a_small_share_is_not_called_nothing(value: float, said: str) -> None:
    assert ladder_page._share(value) == said


def test_a_stale_record_is_shown_and_called_stale(record: Record) -> None:
    page = shown(ladder_page.rung_lines(record, {"facts": False, "matrix": True}, "slow", None))
    assert "⚠ Stale: measured on Some <GPU>, 2026-01-02; the code has changed since." in page.get_text()
    assert table(page)[0][1] == "500"
    assert "Stale" in shown(ladder_page.ladder_lines(record, {}, RUNG_TITLES)).get_text()


@pytest.mark.parametrize("held", [Record(), None])
def test_without_a_record_the_page_says_how_to_make_one(held: Record | None, record: Record) -> None:
    found = held if held is not None else record
    page = shown(ladder_page.rung_lines(found, FRESH, "unheard-of", None))
    assert "Not yet measured" in page.get_text()
    assert page.select_one("code").get_text() == "make bench"
    assert not page.select("table")
    if held is not None:
        assert "Not yet measured" in shown(ladder_page.ladder_lines(held, {}, RUNG_TITLES)).get_text()


def test_all_rungs_side_by_side(record: Record) -> None:
    page = shown(ladder_page.ladder_lines(record, FRESH, RUNG_TITLES))
    assert [th.get_text() for th in page.select("th")] == ["Rung", *map(named, FOUR)]
    rows = table(page)
    assert [line[0] for line in rows] == ["0. A slow <one>", "1. A fast one", "Reading alone"]
    at = 1 + [shape.id for shape in FOUR].index(LLAMA_8B.id)
    assert [line[at] for line in rows] == ["2.00", "4.00", "4.44"]
    assert [strong.get_text() for strong in page.select("td strong")].count("4.00") == 1, "the best is marked, no peer"
    assert [a["href"] for a in page.select("td a")] == ["#step-slow", "#step-fast"]


def test_of_the_project_every_rung_can_be_shown(monkeypatch: pytest.MonkeyPatch, record: Record) -> None:
    for held in (bench.load(), Record()):
        monkeypatch.setattr(bench, "load", lambda held=held: held)
        for rung in (*RUNGS, "writer"):
            assert ladder_page.project_rung(rung)
        assert ladder_page.project_rungs()
    with pytest.raises(UnknownPageItem, match="there is no rung 'rong'"):
        ladder_page.project_rung("rong")


def test_the_rung_below_is_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(ladder_page, "rung_lines", lambda record, fresh, rung, below: asked.append((rung, below)) or [])
    for rung in (*RUNGS, "writer"):
        ladder_page.project_rung(rung)
    assert asked == [*zip(RUNGS, [None, *RUNGS], strict=False), ("writer", "writer-port")]


def test_the_writers_rows_stand_beside_the_port_of_vllms(record: Record) -> None:
    shape = WRITES[0]
    rows = (row("writer-port", 90.0), row("writer", 30.0))
    made = Cell(shape.id, shape.name, asdict(shape), 1, 2, None, rows)
    writes = replace(record.sets["facts"], id="writer", cells=(made,))
    page = shown(ladder_page.rung_lines(record.put(writes), {"writer": True}, "writer", "writer-port"))
    (line,) = table(page)
    assert line[0].startswith(f"{shape.name} (8,192 tokens")
    assert line[1:5] == ["30.0", "33.33", "667%", "3.00 times as fast"]


def test_the_writer_is_held_against_a_copy_and_not_against_reading() -> None:
    told = {"tokens": 8192, "heads": 8, "head_size": 128, "block_size": 16, "dtype": "bfloat16", "scattered": False}
    limit = Row("copy", "copy", LIMIT, us=20.0, tbs=3.0)
    rows = (row("writer-port", 200.0), row("writer", 25.0, share=0.8))
    cells = tuple(Cell(shape.id, shape.name, told, 1, 2, limit, rows) for shape in WRITES[:2])
    made = Set("writer", "cuda", "GPU", "1", "2026-01-02T03:04:05Z", "d", {}, 1.0, None, cells)
    lines = ladder_page.rung_lines(Record({"writer": made}), {"writer": True}, "writer", "writer-port")
    page = shown(lines)
    heads = [cell.get_text() for cell in page.select("thead th")]
    assert heads[3:5] == ["Of a copy", "Against vLLM's, ported"]
    assert table(page)[0][3:5] == ["80%", "8.00 times as fast"]
    assert "Nearest to a copy:" in page.get_text()
    assert "reading alone" not in page.get_text()
