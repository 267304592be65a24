"""The ladder's checks as a page: its numbers, its refusals, and what it says of stale records and of none."""

from __future__ import annotations

from typing import Any

import markdown
import pytest
from bs4 import BeautifulSoup

from kernels.tuned.ladder import RUNGS
from walkthroughs import grid, tuned_sanitizers
from walkthroughs.grid import TUNED
from walkthroughs.grid_workers import FAILED, PASSED, REFUSED, Row
from walkthroughs.site import tuned_grid_page as page


@pytest.fixture
def record() -> dict[str, Any]:
    rows = [
        Row("ring", "one", PASSED, 2.5e-4, 1e-3, False, False, 1),
        Row("ring", "two", REFUSED, 0.0, 0.0, message="head_size = 120: must be a multiple of 16"),
        Row("ring", "three", REFUSED, 0.0, 0.0, message="head_size = 40: must be a multiple of 16"),
        Row("vllm-ring", "four", REFUSED, 0.0, 0.0, message="head_size = 80: must be a multiple of 32"),
        Row("vllm-ring", "five", PASSED, 5e-4, 1e-3, False, True, 1),
        Row("writer", "six", FAILED, 3.0, 0.0, None, None, 9),
    ]
    return {
        "device": "Some <GPU>", "date": "2026-01-02T03:04:05Z", "seconds": 123.4, "digest": "old",
        "groups": grid.summaries(rows, TUNED), "bounds": grid.bounds(TUNED),
    }  # fmt: skip


def shown(lines: list[str]) -> BeautifulSoup:
    return BeautifulSoup(markdown.markdown("\n".join(lines), extensions=["tables"]), "html.parser")


def cells(found: BeautifulSoup, table: int) -> list[list[str]]:
    rows = found.select("table")[table].select("tbody tr")
    return [[cell.get_text() for cell in row.select("td")] for row in rows]


def test_a_refused_case_is_counted_apart(record: dict[str, Any]) -> None:
    found = shown(page.grid_lines(record, fresh=True))
    assert cells(found, 0) == [
        [f"8. {RUNGS['ring'].title}: our matrix", "1/1", "2", "0.00025", "0.001"],
        [f"8. {RUNGS['ring'].title}: vLLM's parameters", "1/1", "1", "0.0005", "0.001"],
        ["The writer: our matrix, bit for bit", "0/1", "–", "3", "0"],
    ]
    text = found.get_text()
    assert "✔ Some <GPU>, 2026-01-02: 11 calls in 123 s. The record matches" in text
    assert "Not passed:" in text
    assert "bit for bit, six: failed, error 3, tolerance 0" in text


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("head_size = 40: must be a multiple of 16", "head_size: must be a multiple of 16"),
        ("kv_cache_dtype = fp8: must be auto: 16-bit", "kv_cache_dtype: must be auto: 16-bit"),
        ("num_kv_heads = 1: 7 heads, 3 tokens: must be 16 or fewer", "num_kv_heads: must be 16 or fewer"),
        ("max_seq_len = 9: 12 + 3 bytes; shorten it", "max_seq_len = …: … + … bytes; shorten it"),
    ],
)
def test_refusals_of_one_kind_are_one(words: str, kind: str) -> None:
    assert page._kind(words) == kind


def test_refusals_are_shown_in_the_rungs_words_each_once(record: dict[str, Any]) -> None:
    assert cells(shown(page.grid_lines(record, fresh=True)), 1) == [
        ["ring", "head_size: must be a multiple of 16", "2"],
        ["ring", "head_size: must be a multiple of 32", "1"],
    ]


def test_the_bounds_name_their_rungs(record: dict[str, Any]) -> None:
    rows = cells(shown(page.grid_lines(record, fresh=True)), 2)
    found = {(row[0], row[1]): row[2] for row in rows}
    assert found["classic-v2", "bfloat16"] == "u (2 A + out) + 1e-05 min(A, 1) + u A, with partitions"
    assert found["classic-v1", "float16"] == "u (5 A + out) + 1e-05 min(A, 1) + 2^-25 (sum of v + tokens)"
    assert found["ring", "float16"] == "u (A + out) + 1e-05 min(A, 1) + 2^-25 (sum of v + 1)"
    assert found["tensor-cores", "bfloat16"] == "u (A + out) + 1e-05 min(A, 1)"
    plain = next(words for (rungs, dtype), words in found.items() if "token-loop" in rungs and dtype == "float16")
    assert plain == "u out + 1e-05 min(A, 1) + 2^-25"
    named = [rung for rungs, dtype in found for rung in rungs.split(", ") if dtype == "bfloat16"]
    assert sorted(named) == sorted(RUNGS)


def test_what_is_stale_or_missing_says_so(record: dict[str, Any]) -> None:
    assert "⚠ Stale: the code has changed" in shown(page.grid_lines(record, fresh=False)).get_text()
    nothing = shown(page.grid_lines(None, fresh=False))
    assert "○ Not yet measured." in nothing.get_text()
    assert "make ladder-record" in nothing.get_text()
    assert not nothing.select("table")


def test_every_rung_says_what_it_takes() -> None:
    rows = cells(shown(page.takes_lines()), 0)
    assert [row[0] for row in rows] == [f"{rung.number}. {rung.title}" for rung in RUNGS.values()]
    assert rows[-1][1:] == ["yes", "16, 32", "16 (32 for fp8)", "16, times tokens asked for", "1 to 4", "any"]
    assert rows[0][1:] == ["no", "8, 16, 32", "8", "any", "1", "any"]
    assert rows[1][-1] == "57,600"


def test_the_sanitizers_answers_are_a_table() -> None:
    row = {"rung": "ring", "cases": ["whole"], "note": ""}
    record = {
        "device": "a GPU", "date": "2026-01-02T03:04:05Z", "seconds": 60.0,
        "rows": [
            {**row, "tool": "racecheck", "result": "clean"},
            {**row, "tool": "memcheck", "result": "found", "note": "<x>"},
            {**row, "tool": "racecheck", "rung": "writer", "result": "error"},
        ],
    }  # fmt: skip
    found = shown(page.sanitizer_lines(record, fresh=True))
    assert cells(found, 0) == [["ring", "✔ clean", "✘ found"], ["writer", "✘ error", "–"]]
    assert "3 runs in 60 s" in found.get_text()
    assert "✘ ring, memcheck: <x>" in found.get_text()
    assert "Stale" in shown(page.sanitizer_lines(record, fresh=False)).get_text()
    assert "make ladder-record" in shown(page.sanitizer_lines(None, fresh=False)).get_text()


def test_the_projects_sections_are_of_the_committed_records(
    monkeypatch: pytest.MonkeyPatch, record: dict[str, Any]
) -> None:
    monkeypatch.setattr(grid, "load", lambda subject: record if subject == TUNED else None)
    assert "Stale" in "".join(page.project_grid())
    record["digest"] = grid.grid_digest(TUNED)
    assert "matches the code" in "".join(page.project_grid())
    monkeypatch.setattr(tuned_sanitizers, "load", lambda: None)
    assert "Not yet asked" in "".join(page.project_sanitizers())
