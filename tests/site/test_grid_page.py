"""The section on the ops' grids: its numbers, and what it says of a stale record and of none."""

from __future__ import annotations

from typing import Any

import markdown
import pytest
from bs4 import BeautifulSoup

from walkthroughs import grid
from walkthroughs.grid_workers import FAILED, PASSED, Row
from walkthroughs.site import grid_page


@pytest.fixture
def record() -> dict[str, Any]:
    rows = [
        Row("vllm-attention", "one", PASSED, 2.5e-4, 1e-3, True, False, 1),
        Row("vllm-attention", "two", PASSED, 5e-4, 1e-3, False, False, 1),
        Row("flash", "three", PASSED, 0.0, 0.0, None, None, 2400),
        Row("big", "four", FAILED, 3.0, 1.0, False, False, 1),
        Row("big", "five", FAILED, float("inf"), 1.0, False, False, 1),
    ]
    return {
        "device": "Some <GPU>", "date": "2026-01-02T03:04:05Z", "seconds": 123.4, "groups": grid.summaries(rows),
        "bounds": grid.bounds(), "digest": "old",
    }  # fmt: skip


def shown(lines: list[str]) -> BeautifulSoup:
    return BeautifulSoup(markdown.markdown("\n".join(lines), extensions=["tables"]), "html.parser")


def cells(page: BeautifulSoup, table: int) -> list[list[str]]:
    rows = page.select("table")[table].select("tbody tr")
    return [[cell.get_text() for cell in row.select("td")] for row in rows]


def test_the_counts_are_shown(record: dict[str, Any]) -> None:
    page = shown(grid_page.lines(record, fresh=True))
    assert cells(page, 0) == [
        ["vLLM's grid: paged attention v1 and v2", "2/2", "0.0005", "0.001", "1/2", "0/2"],
        ["Our matrix: reshape_and_cache_flash, bit for bit", "1/1", "0", "0", "–", "–"],
        ["Long sequences, and caches beyond 2^31 elements", "0/2", "not finite", "1", "0/2", "0/2"],
    ]
    text = page.get_text()
    assert "✔ Some <GPU>, 2026-01-02: 2,404 calls in 123 s. The record matches" in text
    assert "Stale" not in text


def test_the_bounds_are_shown(record: dict[str, Any]) -> None:
    rows = cells(shown(grid_page.lines(record, fresh=True)), 1)
    assert [row[:3] for row in rows] == [
        ["bfloat16", "u (2 A + out) + 1e-05 min(A, 1)", "2^-8"],
        ["float16", "u (5 A + out) + 1e-05 min(A, 1) + 2^-25 (sum of v + tokens)", "2^-11"],
        ["float32", "1e-05 min(A, 1)", "–"],
    ]
    assert all(row[3] for row in rows)


def test_a_stale_record_is_shown_and_called_so(record: dict[str, Any]) -> None:
    page = shown(grid_page.lines(record, fresh=False))
    assert "⚠ Stale: the code has changed since the run on Some <GPU>, 2026-01-02" in page.get_text()
    assert len(cells(page, 0)) == 3
    assert not grid.fresh(record)


def test_without_a_record_the_page_says_how_to_make_one() -> None:
    page = shown(grid_page.lines(None, fresh=False))
    assert "○ Not yet measured." in page.get_text()
    assert "make grid-record" in page.get_text()
    assert page.select("table") == []


def test_the_projects_section_is_of_the_committed_record(
    monkeypatch: pytest.MonkeyPatch, record: dict[str, Any]
) -> None:
    monkeypatch.setattr(grid, "load", lambda: None)
    assert "Not yet measured" in "".join(grid_page.project_lines())
    monkeypatch.setattr(grid, "load", lambda: record)
    assert "Stale" in "".join(grid_page.project_lines())
    record["digest"] = grid.grid_digest()
    assert "matches the code" in "".join(grid_page.project_lines())


def test_a_case_outside_its_tolerance_is_named() -> None:
    record = {
        "groups": [{"title": "A grid", "rows": [["fine", 0.0, 1.0, "passed"], ["bad <b>", 2.0, 1.0, "failed"]]}],
    }
    said = "\n".join(grid_page._outside(record))
    assert "Not passed" in said
    assert "error 2, tolerance 1" in said
    assert "fine" not in said
    assert "<b>" not in said
