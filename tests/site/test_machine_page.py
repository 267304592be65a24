"""Machine-code pages: three columns from a record, what is said of it first, and what of none or a stale one."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import markdown
import pytest
from bs4 import BeautifulSoup, Tag
from hypothesis import given, settings
from hypothesis import strategies as st

from walkthroughs import machine_parse, machine_reads, machine_record, machine_subjects
from walkthroughs.machine_record import MachineRecord
from walkthroughs.site import code as code_panes
from walkthroughs.site import machine_page, machine_panes
from walkthroughs.site.errors import UnknownPageItem

ROOT = Path(__file__).resolve().parents[2]
KERNELS = machine_subjects.names()


def _sample() -> ModuleType:
    name = "pagewalk_machine_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "walkthroughs" / "machine_sample.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _sample()


def made(*codes: dict[str, Any], **changes: Any) -> MachineRecord:
    return machine_record.parse(machine_record.dump(sample.record(*codes, **changes)))


def shown(record: MachineRecord | None, source: str = "") -> BeautifulSoup:
    """The page as a browser gets it; stashed HTML is put back at the end, as Python-Markdown does."""
    kept: list[str] = []

    def stash(html: str) -> str:
        kept.append(html)
        return f"STASH{len(kept) - 1}HERE"

    subject = machine_subjects.subject(record.kernel if record else "k-load")
    lines = machine_page.lines(subject, record, source, "..", stash)
    html = markdown.markdown("\n".join(lines), extensions=["tables", "attr_list"])
    for number, inner in enumerate(kept):
        html = re.sub(f"(<p>)?STASH{number}HERE(</p>)?", lambda _, inner=inner: inner, html)
    return BeautifulSoup(html, "html.parser")


def runs(page: BeautifulSoup | Tag, side: str) -> list[Tag]:
    return page.select(f".pw-listing-{side} .pw-rows > li")


def test_each_run_of_rows_of_one_line_is_an_element_and_nothing_is_lost() -> None:
    page = shown(made())
    for side in machine_record.SIDES:
        texts = [text for run in runs(page, side) for text in run.get_text().split("\n")]
        assert texts == [text for text, _ in sample.ROWS[side]]
        lines = [int(run["value"]) if run.has_attr("value") else None for run in runs(page, side)]
        assert all(a != b for a, b in pairwise(lines)), "neighbours of one line are one run"
        by_row = [line for run, line in zip(runs(page, side), lines, strict=True) for _ in run.get_text().split("\n")]
        assert by_row == [line for _, line in sample.ROWS[side]]


ROWS = st.lists(
    st.tuples(st.sampled_from(["ADD R1, R2", "LDG.E R1, x", "A < B & C"]),
              st.sampled_from([None, sample.LOAD, sample.LOOKUP, sample.STORE])),
    min_size=1, max_size=40,
)  # fmt: skip


@given(ROWS, ROWS)
@settings(max_examples=30, deadline=None)
def test_the_runs_of_a_line_are_those_found_by_looking_at_every_row(ptx: list[Any], sass: list[Any]) -> None:
    rows = {"ptx": ptx, "sass": sass}
    record = made(sample.code(rows))
    numbers = machine_panes.numbered(record)
    page = BeautifulSoup(machine_panes.columns(record, "").html, "html.parser")
    for (_, line), number in numbers.items():
        for side in machine_record.SIDES:
            texts = [text for run in runs(page, side) if run.get("data-l") == str(number)
                     for text in run.get_text().split("\n")]  # fmt: skip
            assert texts == [text for text, at in rows[side] if at == line]
        (ours,) = page.select(f'.pw-side-port [data-l="{number}"]')
        assert ours["value"] == str(line)
    assert len(page.select(".pw-side-port [data-l]")) == len(numbers)


def test_a_line_and_its_instructions_have_one_hue() -> None:
    page = shown(made())
    hues: dict[str, set[str]] = {}
    for element in page.select(".pw-machine [data-l]"):
        (hue,) = [name for name in element["class"] if re.fullmatch(r"pw-h\d", name)]
        hues.setdefault(str(element["data-l"]), set()).add(hue)
    assert len(hues) == 3
    assert all(len(found) == 1 for found in hues.values())
    assert len(set.union(*hues.values())) == 3, "neighbouring lines differ"


def test_the_ports_lines_are_whole_functions_with_their_concepts() -> None:
    page = shown(made())
    lines = {int(line["value"]): line for line in page.select(".pw-side-port .pw-line")}
    spans = machine_panes.function_lines(sample.PORT)
    first, last = next(span for span in spans if span[0] <= sample.LOAD <= span[1])
    text = (ROOT / sample.PORT).read_text("utf-8").splitlines()
    fences = {n for n in range(first, last + 1) if "region:" in text[n - 1] or "endregion" in text[n - 1]}
    assert set(range(first, last + 1)) - fences == set(lines)
    for number, line in lines.items():
        links = str(line.get("data-links", "")).split()
        inside = {name for name, ranges in code_panes.port_ranges(sample.PORT).items()
                  if any(a <= number <= b for a, b in ranges)}  # fmt: skip
        assert set(links) <= inside
        assert machine_panes.WHOLE not in links
    assert sample.LOAD in lines


def test_upstreams_lines_are_shown_where_there_is_an_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_panes, "tree_of", lambda source: None)
    assert shown(made()).select(".pw-side-upstream") == []
    assert shown(made()).select_one(".pw-two") is not None
    page = shown(made(), "vllm@0.24.0")
    assert page.select_one(".pw-two") is None
    (side,) = page.select(".pw-side-upstream")
    assert "pagewalk fetch" in side.get_text(), "without a copy of the source the pane says how to get it"
    titles = json.loads(str(page.select_one(".pw-machine")["data-titles"]))
    assert set(titles) >= {
        name for line in page.select(".pw-side-port [data-links]") for name in line["data-links"].split()
    }


def test_the_summary_says_what_the_cache_load_became() -> None:
    said = shown(made()).get_text()
    assert (
        f"The K load, line {sample.LOAD} of kernels/loads.py: 2 × ld.global.v4.u32; in machine code 2 × LDG.E.128."
        in said
    )
    assert "One moves 16 bytes for a thread: it became ld.global.v4." in said
    assert "40 registers a thread, 1,280 bytes of shared memory a block, nothing spilt to local memory" in said
    assert "60 shuffles, 0 barriers and 0 fma" in said
    assert "The launch runs exactly these instructions" in said
    narrow = {side: [(text.replace(".v4", "").replace(".128", ""), line) for text, line in rows]
              for side, rows in sample.ROWS.items()}  # fmt: skip
    said = shown(made(sample.code(narrow, local=8, unlike_launched=7))).get_text()
    assert "2 × ld.global.u32; in machine code 2 × LDG.E. One moves 4 bytes for a thread: it did not become" in said
    assert "8 bytes of local memory a thread" in said
    assert f"differs in 7 of {len(narrow['sass'])} rows" in said


def test_a_load_that_belongs_to_no_line_is_not_passed_over() -> None:
    moved = {side: [(text, None if machine_parse.kind_of(text) == "global loads" else line) for text, line in rows]
             for side, rows in sample.ROWS.items()}  # fmt: skip
    said = shown(made(sample.code(moved))).get_text()
    assert "the compiler made one access of several lines, which belongs to none of them" in said
    assert "Loads that belong to no line: 1 × ld.global.s32 and 2 × ld.global.v4.u32." in said


def test_a_kernel_that_reads_no_cache_says_so() -> None:
    line = sample.line_of("value_cache[target + i] = value[", nth=0)
    rows = {"ptx": [("st.global.u16 [%rd1], %rs1", line), ("ld.global.u16 %rs1, [%rd2]", line)],
            "sass": [("STG.E.U16 desc[UR4][R2.64], R1", line), ("LDG.E.U16 R1, desc[UR4][R2.64]", line)]}  # fmt: skip
    said = shown(made(sample.code(rows))).get_text()
    assert "It reads no cache. None of its other global loads is a ld.global.v4." in said
    assert "The V store" in said
    assert "One moves 2 bytes for a thread." in said


def test_both_kernels_of_a_case_are_on_the_page() -> None:
    page = shown(made(sample.code(name="first"), sample.code(name="second", registers=99)))
    listings = [(f["data-listing"], f.select_one(".pw-path").get_text()) for f in page.select(".pw-listing")]
    assert listings == [("ptx", "first"), ("sass", "first"), ("ptx", "second"), ("sass", "second")]
    assert len(page.select(".pw-side-port figure")) == 1
    assert "99 registers" in page.get_text()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "✔ Built and launched on Some <GPU>, 2026-01-02. The record matches the port as it is now."),
        ({"digest": "0" * 16}, "⚠ Stale: the port has changed since the build on Some <GPU>, 2026-01-02."),
        ({"backend": "compiled"}, "⚠ Compiled for 9.0 without a GPU: nothing was launched."),
    ],
)
def test_the_page_says_how_far_its_record_can_be_believed(changes: dict[str, Any], said: str) -> None:
    text = shown(made(**changes)).get_text()
    assert said in text
    assert sum(mark in text for mark in ("✔ Built", "⚠ Stale", "⚠ Compiled")) == 1


def test_without_a_record_the_page_says_how_to_make_one() -> None:
    page = shown(None)
    assert "Not yet recorded" in page.get_text()
    assert "make gpu-records" in page.get_text()
    assert page.select(".pw-machine") == []


def test_the_record_is_folded_and_whole() -> None:
    (folded,) = shown(made()).select("details.pw-record")
    text = folded.get_text(" ")
    for fact in ("Some <GPU>", "999.1 (CUDA 13.0)", "9.0", "2026-01-02T03:04:05Z", "0.30.4", "array(float32, 1d, C)"):
        assert fact in text
    assert not folded.has_attr("open")


def test_only_the_first_run_of_a_listing_can_be_tabbed_to() -> None:
    for listing in shown(made()).select(".pw-listing"):
        (stop,) = listing.select("[tabindex]")
        assert stop is listing.select_one("li[data-l]")


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(UnknownPageItem, match="no-such"):
        machine_page.page_lines("no-such", "..", str)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernels_page_and_its_row_are_made_from_the_committed_record(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As built without upstream's sources. Lean: no element inside a run, and well under a megabyte."""
    monkeypatch.setattr(code_panes, "tree_of", lambda source: None)
    record = machine_record.load(name)
    assert record is not None
    html = machine_panes.columns(record, machine_page.source_of(name)).html
    assert len(html.encode()) < 700_000
    page = BeautifulSoup(html, "html.parser")
    assert page.select(".pw-rows li *") == []
    for side in machine_record.SIDES:
        texts = [text for run in runs(page, side) for text in run.get_text().split("\n")]
        assert texts == [text for code in record.kernels for text, _ in code.rows[side]]


def test_the_index_has_a_row_for_each_kernel_that_a_record_has() -> None:
    html = markdown.markdown("\n".join(machine_page.index_lines()), extensions=["tables"])
    rows = [
        [cell.get_text() for cell in row.select("td")] for row in BeautifulSoup(html, "html.parser").select("tbody tr")
    ]
    records = {name: machine_record.load(name) for name in KERNELS}
    assert len(rows) == sum(len(record.kernels) if record else 1 for record in records.values())
    assert [row[0].split(",")[0] for row in rows if "reduce" not in row[0] and "decode" not in row[0]] == list(KERNELS)
    by_name = {row[0]: row for row in rows}
    assert by_name["k-load"][1] == "K: ld.global.v2.u32"
    assert by_name["v-load"][1] == "V: ld.global.v4.u32"
    assert by_name["classic-v1"][1] == "K: ld.global.f32; V: ld.global.f32"


def test_every_stub_is_committed_and_has_its_kernel() -> None:
    stubs = machine_page.stubs()
    assert set(stubs) == {f"machine/{name}.md" for name in (*KERNELS, "index")}
    for path, text in stubs.items():
        assert (ROOT / "docs" / path).read_text("utf-8") == text
        assert text.rstrip().endswith(
            "::: machines" if path.endswith("index.md") else f"::: machine {Path(path).stem} root=.."
        )


@pytest.mark.parametrize(
    ("file", "text", "kind", "what"),
    [
        ("kernels/vllm/attention_kernels.py", "k_vecs[j, e] = k_cache[k_offset + e]", "read", "K"),
        ("kernels/vllm/attention_kernels.py", "v_vec[e] = v_cache[v_ptr + offset + e]", "read", "V"),
        ("kernels/tiny_vllm/attention.py", "v = kv_cache[element + V_OFFSET]", "read", "V"),
        ("kernels/tiny_vllm/scatter.py", "kv_cache[k_cache_ptr + i] = k_proj", "write", "K"),
        ("kernels/vllm/flash_layout.py", "value[target + element - head_size] = kv_cache", "read", "V"),
        ("kernels/gather.py", "k_pool[slot * head_size + d] = key[", "write", "K"),
        ("kernels/vllm/paged_2d.py", "value_cache_ptr[v_offset] if kv_load_mask", "read", "V"),
    ],
)
def test_the_lines_that_touch_a_cache_are_found(file: str, text: str, kind: str, what: str) -> None:
    assert (kind, what, sample.line_of(text, file)) in machine_reads.cache_lines(file)


def test_host_code_is_no_kernel() -> None:
    lines = {line for _, _, line in machine_reads.cache_lines("kernels/loads.py")}
    compiled = {n for a, b in machine_panes.function_lines("kernels/loads.py") for n in range(a, b + 1)}
    assert lines
    assert lines <= compiled
    assert sample.line_of("caches = [np.zeros") not in lines
