"""The benchmark's page: charts, goals and tables out of a record, every cell of it, and what it says without one."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import markdown
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from kernels.tuned import shapes
from kernels.tuned.bench_record import FAILED, PEER, Cell, Record, Row
from walkthroughs import bench
from walkthroughs.site import bench_axis, bench_chart, bench_page, bench_roofline, bench_svg
from walkthroughs.site.bench_axis import Log
from walkthroughs.site.bench_page import Shown
from walkthroughs.site.errors import UnknownPageItem


def _sample() -> ModuleType:
    name = "pagewalk_bench_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "bench_sample.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _sample()
NUMBERS = {name: number for name, (number, _, _) in sample.RUNGS.items()}


@pytest.fixture(scope="module")
def shown() -> Shown:
    record = sample.record()
    return Shown(record, dict.fromkeys(record.sets, True), NUMBERS)


def page_of(part: str, shown: Shown) -> BeautifulSoup:
    """A part as HTML: what is stashed stands where it was put."""
    kept: list[str] = []

    def stash(html: str) -> str:
        kept.append(html)
        return f"\n\n<!--{len(kept) - 1}-->\n\n"

    text = markdown.markdown("\n".join(bench_page.lines(part, shown, stash)), extensions=["attr_list"])
    return BeautifulSoup(re.sub(r"<!--(\d+)-->", lambda match: kept[int(match[1])], text), "html.parser")


def rows(page: BeautifulSoup, table: int = 0) -> list[list[str]]:
    found = page.select("table")[table].select("tr")
    return [[cell.get_text(" ", strip=True) for cell in row.select("th, td")] for row in found]


def test_without_a_record_every_part_says_so() -> None:
    for part in bench_page.PARTS:
        page = page_of(part, Shown(Record(), {}, NUMBERS))
        assert "○ Not yet measured. There is no record of this benchmark. make bench" in page.get_text()
        assert not page.select("svg, table")


def test_an_unknown_part_lists_the_known_ones(shown: Shown) -> None:
    with pytest.raises(UnknownPageItem, match="roofline"):
        bench_page.lines("rooflin", shown, str)


def test_the_page_has_every_part_once() -> None:
    text = (Path(bench_page.__file__).parents[2] / "docs" / "bench.md").read_text("utf-8")
    assert sorted(re.findall(r"^::: bench (\w+)$", text, re.M)) == sorted(bench_page.PARTS)


def test_the_page_says_how_much_the_sets_hold() -> None:
    from kernels.tuned import bench_inputs, ceilings, timing

    text = (Path(bench_page.__file__).parents[2] / "docs" / "bench.md").read_text("utf-8")
    assert f"{bench_inputs.FOOTPRINT // 10**6} MB or more" in text
    assert f"{timing.LAUNCHES} launches or more" in text
    assert (timing.REPEATS, len(ceilings.WAVES)) == (9, 3)
    assert "replayed nine times" in text
    assert "best of three" in text


# Where it comes from


def test_a_fresh_record_and_a_stale_one(shown: Shown) -> None:
    text = page_of("where", shown).get_text()
    assert "✔ facts: Some <GPU>, driver 580.1, 2026-01-02, 8 cells. The record matches the code" in text
    assert "a device copy reaches 4.15 TB/s" in text
    assert "an empty launch takes 1.9 µs" in text
    assert "FlashInfer, tensor cores: FlashInfer, built here." in text
    assert "torch 2.11.0" in text
    assert "Stale" not in text
    old = replace(shown, fresh={**shown.fresh, "matrix": False})
    assert page_of("where", old).get_text().count("⚠ Stale: matrix, measured on Some <GPU>") == 1


def test_the_committed_record_is_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "load", lambda: sample.record(bench.bench_digest()))
    assert "The record matches the code" in "\n".join(bench_page.project_lines("where", str))
    monkeypatch.setattr(bench, "load", lambda: sample.record("old"))
    assert "Stale" in "\n".join(bench_page.project_lines("where", str))


# Tables


def test_every_kernel_and_every_shape_of_the_facts_is_in_the_overview(shown: Shown) -> None:
    table = rows(page_of("facts", shown))
    assert len(table[0]) == 1 + len(shapes.FACTS)
    assert [row[0] for row in table[1:]] == [
        "reading as many bytes, and nothing else", *(title for _, title, _ in sample.RUNGS.values()),
        *(row.title for row in shown.record.sets["facts"].cells[0].rows if row.kind == "peer"),
    ]  # fmt: skip
    llama = shown.record.cells()[shapes.LLAMA_8B.id].row("ring")
    assert llama
    assert llama.us
    column = table[0].index("Llama-3-8B 64 x 4096, 32/8, 128")
    ring = next(row for row in table if row[0] == sample.RUNGS["ring"][1])
    assert ring[column] == f"{llama.us:.0f} {llama.tbs:.2f}"
    qwen = table[0].index("Qwen2.5-7B 64 x 4096, 28/4, 128")
    assert next(row for row in table if row[0] == "FlashInfer, without tensor cores")[qwen] == "refused"


@pytest.mark.parametrize("part", ["facts", "asked", "writer", "host"])
def test_each_cell_is_there_whole(part: str, shown: Shown) -> None:
    page = page_of(part, shown)
    made = shown.record.sets[{"asked": "goals"}.get(part, part)]
    folded = page.select("details.pw-bench-cell")
    assert len(folded) == len(made.cells)
    for cell, box in zip(made.cells, folded, strict=True):
        assert len(box.select("tbody tr")) == len(cell.rows) + bool(cell.limit)
        for row, line in zip(cell.rows, box.select("tbody tr")[bool(cell.limit) :], strict=True):
            text = line.get_text(" ", strip=True)
            assert row.title in text
            assert (f"{100 * row.share:.1f} %" if row.share else row.reason) in text


def test_a_ratio_says_how_many_times_as_fast_the_ring_is(shown: Shown) -> None:
    page = page_of("facts", shown)
    cell = shown.record.sets["facts"].cells[0]
    ratio = cell.ratio("ring", "vllm-v2")
    line = next(line for line in page.select("details")[0].select("tr") if "compiled v2" in line.get_text())
    assert f"{ratio:.2f} times as fast" in line.get_text()


def test_tried_plans_are_shown(shown: Shown) -> None:
    made = shown.record.sets["facts"]
    tries = (
        {"splits": 2, "warps": 4, "depth": 3, "balance": False, "us": 247.0, "best": True},
        {"splits": 9, "warps": 8, "depth": 3, "balance": True, "us": None, "best": False, "reason": "too <many>"},
    )
    cell = made.cells[0]
    tried = replace(cell, rows=tuple(replace(row, tries=tries) if row.who == "ring" else row for row in cell.rows))
    record = shown.record.put(replace(made, cells=(tried,)))
    text = page_of("facts", replace(shown, record=record)).get_text()
    assert "2 splits, 4 warps, depth 3: 247 (the best); 9 splits, 8 warps, depth 3, balanced: too <many>" in text


def test_goals_are_rows_with_their_state(shown: Shown) -> None:
    page = page_of("goals", shown)
    table = rows(page)
    assert len(table) == 1 + 16
    states = {row[0]: row[2] for row in table[1:]}
    assert set(states.values()) == {"✔ reached", "✘ missed", "○ not measured"}
    missed = [row[0] for row in table[1:] if row[2] == "✘ missed"]
    listed = [item.get_text() for item in page.select("li")]
    assert len(listed) == len(missed)
    assert any("Qwen2.5-7B" in item and "asked 5" in item for item in listed)
    assert any("cells, marked ▽ below" in item for item in listed), "too many to name stand in the matrix"
    assert page.select_one("a[href='#matrix']")


def test_the_matrix_shows_each_cell_and_who_was_ahead(shown: Shown) -> None:
    page = page_of("matrix", shown)
    made = shown.record.sets["matrix"]
    text = page.get_text()
    ratios = [cell.ratio("ring", "flashinfer-tc") or 0.0 for cell in made.cells]
    won = sum(ratio >= 1 for ratio in ratios)
    assert 0 < won < len(ratios)
    assert f"Ahead on {won} of {len(ratios)} cells" in text
    tables = "".join(table.get_text() for table in page.select("table"))
    assert tables.count("▲") == won
    assert tables.count("▽") == len(ratios) - won
    first = rows(page)
    assert first[0] == ["", "128", "1,024", "4,096", "32,768", "131,072"]
    cell = next(cell for cell in made.cells if cell.id == shapes.LLAMA_8B.id)
    sign = "▲" if (cell.ratio("ring", "flashinfer-tc") or 0) >= 1 else "▽"
    assert next(row for row in first if row[0] == "batch 64")[3].startswith(sign)
    assert next(row for row in first if row[0] == "batch 256")[5] == "–", "too large for the card"


def test_cells_without_a_ratio_are_not_hidden(shown: Shown) -> None:
    made = shown.record.sets["matrix"]

    def broken(cell: Cell) -> Cell:
        return replace(cell, rows=tuple(
            Row(row.who, row.title, row.kind, FAILED, "out of <memory>") if row.who == "flashinfer-tc" else row
            for row in cell.rows
        ))  # fmt: skip

    cells = tuple(broken(cell) if cell.shape["head_size"] == 256 else cell for cell in made.cells)
    page = page_of("matrix", replace(shown, record=shown.record.put(replace(made, cells=cells))))
    count = sum(cell.shape["head_size"] == 256 for cell in made.cells)
    assert f"{count} cells: FlashInfer, tensor cores, failed: out of <memory>" in page.get_text()
    assert page.get_text().count("TB/s") > count


# Charts


def svgs(part: str, shown: Shown) -> list[BeautifulSoup]:
    return list(page_of(part, shown).select("svg"))  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["ladder", "roofline", "race"])
def test_a_chart_is_drawn_twice_with_words_and_stays_inside(part: str, shown: Shown) -> None:
    found = svgs(part, shown)
    assert [svg["viewbox"].split()[2] for svg in found] == ["360", "880"]
    ids = [item["id"] for svg in found for item in svg.select("[id]")]
    assert len(ids) == len(set(ids))
    for svg in found:
        width, height = (float(part) for part in svg["viewbox"].split()[2:])
        title, said = (svg.select_one(f"[id='{name}']") for name in svg["aria-labelledby"].split())
        assert title
        assert said
        assert len(said.get_text()) > 200
        for kind, across, down in (
            ("text", "x", "y"),
            ("rect", "x", "y"),
            ("circle", "cx", "cy"),
            ("line", "x2", "y2"),
        ):
            for item in svg.select(kind):
                if item.get(across) is not None and item.parent.name != "pattern":
                    assert -1 <= float(item[across]) <= width + 1, item
                    assert -1 <= float(item[down]) <= height + 1, item
        used = set(re.findall(r"url\(#([\w-]+)\)", str(svg)))
        assert used <= set(ids)


def test_colours_come_from_the_style_sheet(shown: Shown) -> None:
    for part in ("ladder", "roofline", "race"):
        for svg in svgs(part, shown):
            assert "style=" not in str(svg)
            assert not re.search(r"#[0-9a-fA-F]{3,6}\b(?!-)", re.sub(r"url\(#[\w-]+\)", "", str(svg)))
    css = (Path(bench_page.__file__).parents[2] / "docs" / "assets" / "css" / "bench.css").read_text("utf-8")
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b", css), "colours are the variables of both schemes"
    for name in ("bar", "best", "peer", "rival", "limit", "dot", "square", "other", "step", "halo", "lead", "hatch"):
        assert f".{name}" in css


def test_the_ladder_comes_down_to_the_limit(shown: Shown) -> None:
    cell = shown.record.cells()[shapes.LLAMA_8B.id]
    _, wide = svgs("ladder", shown)
    heights = [float(bar["height"]) for bar in wide.select("rect.bar")]
    assert len(heights) == 9
    assert heights == sorted(heights, reverse=True)
    assert len(wide.select("rect.bar.best")) == 1
    assert len(wide.select("line.peer")) == len(sample.PEERS)
    # Lengths are logarithms of the factor: twice the factor is as much longer wherever it stands.
    rungs, _ = bench_svg.bars(cell, NUMBERS)
    limit = cell.limit.us if cell.limit else None
    assert limit
    scale = heights[0] / math.log(rungs[0].us / limit)
    for bar, height in zip(rungs, heights, strict=True):
        assert height == pytest.approx(scale * math.log(bar.us / limit), abs=0.2)
    narrow, _ = svgs("ladder", shown)
    assert len(narrow.select("rect.bar")) == 9
    titles = [title for _, title, _ in sample.RUNGS.values()]
    titles += [words for name, (words, _) in bench_svg.PEERS.items() if name in sample.PEERS]
    for svg in (narrow, wide):
        flat = re.sub(r"\W+", " ", svg.get_text(" "))
        assert not [title for title in titles if re.sub(r"\W+", " ", title) not in flat]


def test_the_roofline_has_a_mark_for_every_shape_and_nothing_below_the_limit(shown: Shown) -> None:
    cells = [cell for cell in shown.record.cells().values() if "context" in cell.shape and cell.moved]
    for svg in svgs("roofline", shown):
        points = [tuple(map(float, point.split(","))) for point in svg.select_one("polyline.limit")["points"].split()]  # type: ignore[union-attr, index]
        assert len(points) == 3, "flat where a launch is what takes the time, then rising"

        def limit(x: float, points: list[tuple[float, ...]] = points) -> float:
            (x1, y1), (x2, y2) = (points[1], points[2]) if x > points[1][0] else (points[0], points[1])
            return y1 + (y2 - y1) * (x - x1) / (x2 - x1)

        dots = [(float(dot["cx"]), float(dot["cy"])) for dot in svg.select("circle.dot[r='3']")]
        assert len(dots) >= len({cell.moved for cell in cells}) * 0.5
        for x, y in dots:
            assert y <= limit(x) + 0.5, "above the line is slower"
        assert len(svg.select("circle.step")) == 9
        for words, short in (bench_svg.PEERS[name] for name in sample.PEERS):
            assert words in svg.get_text() or short in svg.get_text()


def test_places_on_the_roofline_are_logarithms() -> None:
    cell = sample.record().cells()[shapes.LLAMA_8B.id]
    small = replace(cell, moved=cell.moved // 1000)
    svg = BeautifulSoup(bench_roofline.roofline([cell, small], None, NUMBERS, None)(880), "html.parser")
    dots = [(float(dot["cx"]), float(dot["cy"])) for dot in svg.select("circle.dot[r='3']")]
    ticks = {text.get_text(): float(text["x"]) for text in svg.select("text.mid") if text.get("x")}
    assert abs(dots[0][0] - dots[1][0]) == pytest.approx(ticks["1 GB"] - ticks["1 MB"], abs=0.2)
    assert dots[0][1] == dots[1][1]


def test_the_race_puts_shares_on_a_straight_scale(shown: Shown) -> None:
    _, wide = svgs("race", shown)
    ticks = {text.get_text(): float(text["x"]) for text in wide.select("text.soft.mid")}
    zero, whole = ticks["0 %"], ticks["100 %"]
    dots = [float(dot["cx"]) for dot in wide.select("circle.dot")][1:]
    wanted = dict.fromkeys(shape.id for shape in (*shapes.FACTS, *shapes.extra()) if shape.query_len == 1)
    assert len(dots) == len(wanted)
    for x, name in zip(dots, wanted, strict=True):
        row = shown.record.cells()[name].row("ring")
        assert row
        assert x == pytest.approx(zero + (whole - zero) * (row.share or 0), abs=0.1)


# Axes


@given(st.lists(st.floats(0, 300), min_size=1, max_size=14), st.floats(1, 20))
def test_labels_make_room_and_keep_their_order(places: list[float], gap: float) -> None:
    wanted = sorted(places)
    found = bench_axis.dodge(wanted, gap, 0, 300)
    assert len(found) == len(wanted)
    assert all(b - a >= gap - 1e-6 for a, b in itertools.pairwise(found))
    assert min(found) >= 0
    if gap * (len(wanted) - 1) <= 300:
        assert max(found) <= 300 + 1e-6


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert bench_axis.dodge([10.0, 50.0, 90.0], 15, 0, 100) == [10.0, 50.0, 90.0]
    assert bench_axis.dodge([50.0, 51.0], 15, 0, 100) == [50.0, 65.0]
    assert bench_axis.dodge([98.0, 99.0], 15, 0, 100) == [85.0, 100.0]


def test_an_axis_is_logarithmic() -> None:
    axis = Log(1.0, 100.0, 0.0, 200.0)
    assert [axis(value) for value in (1.0, 10.0, 100.0)] == [0.0, 100.0, 200.0]
    assert list(axis.decades()) == [(1.0, 0.0), (10.0, 100.0), (100.0, 200.0)]
    assert [factor for factor, _ in Log(2.0, 30.0, 0, 1).factors(2.0)] == [1.0, 2.0, 5.0, 10.0]


def test_units_in_words() -> None:
    assert [bench_axis.time_text(us) for us in (1.9, 46.44, 247.4, 1340, 18_600, 2_500_000)] == [
        "1.9 µs", "46.4 µs", "247 µs", "1.34 ms", "18.6 ms", "2.5 s",
    ]  # fmt: skip
    assert [bench_axis.times_text(factor) for factor in (78.2, 4.71, 1.034)] == ["78×", "4.7×", "1.03×"]
    assert bench_axis.wrapped("A ring of bulk copies", 10) == ["A ring of", "bulk", "copies"]
    assert bench_axis.wrapped("flex_attention", 5) == ["flex_attention"]


def test_a_chart_without_peers_or_limit_is_drawn() -> None:
    cell = sample.record().cells()[shapes.LLAMA_8B.id]
    alone = replace(cell, limit=None, rows=tuple(row for row in cell.rows if row.who == "ring"))
    for width in (bench_svg.NARROW, bench_svg.WIDE):
        assert bench_chart.ladder(alone, NUMBERS, "x")(width).count('class="bar best"') == 1
        assert "<svg" in bench_roofline.roofline([alone], alone, NUMBERS, None)(width)
        assert "<svg" in bench_chart.race([alone], ["x"])(width)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("at least so much", "At least so much"),
        ("vLLM's compiled v2: five times", "vLLM's compiled v2: five times"),
        ("fp8 cache: faster", "fp8 cache: faster"),
        ("FlashInfer: as fast", "FlashInfer: as fast"),
    ],
)
def test_a_name_keeps_its_spelling_at_the_head_of_a_sentence(asked: str, shown: str) -> None:
    assert bench_page._sentence(asked) == shown


def test_the_race_names_the_others_that_ran(shown: Shown) -> None:
    caption = page_of("race", shown).select_one("figcaption")
    assert caption is not None
    # Of the eight shapes; the writer has peers of its own.
    ran = [row for cell in shown.cells([each.id for each in shapes.FACTS]) for row in cell.rows if row.kind == PEER]
    peers = {row.title for row in ran if row.share}
    rival = {row.title for row in ran if row.who == bench_svg.RIVAL}
    assert len(peers - rival) > 2
    assert all(title in caption.get_text() for title in peers - rival)
    assert not any(title in caption.get_text() for title in rival)
