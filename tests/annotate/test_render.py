"""Excerpts and their HTML: which lines, which links in which order, and nothing unescaped."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from annotate.errors import AnnotateError, RangeOutside
from annotate.regions import is_fence
from annotate.render import Excerpt, excerpt, line_html, missing_html, to_html, to_terminal

TEXT = "".join(f"line {n}\n" for n in range(1, 31))


def cut(text: str, spans: dict[str, list[tuple[int, int]]], **options: object) -> Excerpt:
    facts: dict[str, object] = {"side": "upstream", "source": "toy@1.0", "path": "a/k.cu", "language": "cuda"}
    return excerpt(text, spans, **{**facts, **options})  # type: ignore[arg-type]


def soup(shown: Excerpt, scope: str = "s") -> BeautifulSoup:
    return BeautifulSoup(to_html(shown, scope=scope), "html.parser")


def test_the_union_of_the_spans_with_context_and_gaps() -> None:
    shown = cut(TEXT, {"a": [(5, 6)], "b": [(20, 20)]})
    assert shown.hunks == ((3, 8), (18, 22))
    assert (shown.first, shown.last) == (3, 22)
    assert list(shown.lines) == [*range(3, 9), *range(18, 23)]
    assert shown.lines[5] == "line 5"


def test_context_stops_at_the_ends_of_the_file() -> None:
    assert cut("a\nb\nc", {"a": [(1, 3)]}).hunks == ((1, 3),)
    assert cut("a\nb\n", {"a": [(2, 2)]}, context=9).hunks == ((1, 2),)
    assert cut(TEXT, {"a": [(5, 5)]}, context=0).hunks == ((5, 5),)


def test_a_gap_of_one_line_is_shown_instead() -> None:
    assert cut(TEXT, {"a": [(5, 5), (7, 7)]}, context=0).hunks == ((5, 7),)
    assert cut(TEXT, {"a": [(5, 5), (8, 8)]}, context=0).hunks == ((5, 5), (8, 8))


def test_the_innermost_concept_comes_first() -> None:
    shown = cut(TEXT, {"outer": [(3, 12)], "inner": [(5, 6)], "middle": [(4, 9)], "again": [(5, 6)]})
    assert shown.links[5] == ("again", "inner", "middle", "outer")
    assert shown.links[8] == ("middle", "outer")
    assert shown.links[3] == ("outer",)
    assert shown.links[2] == ()


def test_a_concept_with_overlapping_spans_is_named_once() -> None:
    assert cut(TEXT, {"a": [(3, 9), (5, 6)], "b": [(4, 8)]}).links[5] == ("a", "b")


@pytest.mark.parametrize(("first", "last"), [(0, 1), (8, 5), (50, 60), (10, 99), (-1, 2)])
def test_a_range_that_is_not_in_the_file_is_an_error(first: int, last: int) -> None:
    with pytest.raises(RangeOutside, match="30 lines"):
        cut(TEXT, {"a": [(first, last)]})


def test_nothing_to_show_and_wrong_use() -> None:
    with pytest.raises(AnnotateError, match="no span"):
        cut(TEXT, {})
    with pytest.raises(AnnotateError, match="no span"):
        cut(TEXT, {"a": []})
    with pytest.raises(ValueError, match="'left'"):
        cut(TEXT, {"a": [(1, 1)]}, side="left")
    with pytest.raises(ValueError, match="-1"):
        cut(TEXT, {"a": [(1, 1)]}, context=-1)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark_do_not_show(end: str) -> None:
    shown = cut("\ufeff" + end.join(["int a;", "// b", "", "c;", ""]), {"a": [(1, 4)]})
    assert list(shown.lines.values()) == ["int a;", "// b", "", "c;"]
    assert ["".join(text for _, text in pieces) for pieces in shown.pieces.values()] == list(shown.lines.values())


def test_a_lone_carriage_return_or_other_breaks_shift_no_line() -> None:
    text = "a\x0bb\u2028c\n// x\rd\ne\n"
    shown = cut(text, {"a": [(3, 3)]}, context=0)
    assert shown.lines == {3: "e"}
    assert "".join(piece for _, piece in shown.pieces[3]) == "e"


def test_highlighting_knows_what_came_before_the_excerpt() -> None:
    shown = cut("/* one\ntwo\nthree */ int x;\n", {"a": [(2, 2)]}, context=0)
    assert shown.pieces[2][0][0].startswith("c")
    shown = cut('"""one\ntwo\n"""\n', {"a": [(2, 2)]}, context=0, language="python")
    assert shown.pieces[2][0][0].startswith("s")


def test_the_figure() -> None:
    shown = cut(
        TEXT, {"b-c": [(5, 6)], "a": [(5, 8)]}, permalink="https://e.org/x#L5-L8", licence="Apache-2.0", note="own copy"
    )
    page = soup(shown, "vllm-classic-q")
    figure = page.figure
    assert figure is not None
    assert figure["class"] == ["pw-pane", "pw-upstream"]
    assert (figure["data-source"], figure["data-path"]) == ("toy@1.0", "a/k.cu")
    caption = figure.figcaption
    assert caption is not None
    assert caption.a is not None
    assert (caption.a["href"], caption.a.text) == ("https://e.org/x#L5-L8", "a/k.cu")
    assert [span.text for span in caption.find_all("span")] == ["1.0", "Apache-2.0", "own copy"]
    rows = figure.select("ol.pw-code.highlight > li")
    assert [row["value"] for row in rows] == [str(n) for n in range(3, 11)]
    assert rows[0]["id"] == "src-vllm-classic-q-u-L3"
    assert [row.get("data-links") for row in rows] == [None, None, "b-c a", "b-c a", "a", "a", None, None]
    assert [row["value"] for row in rows if row.get("tabindex") == "0"] == ["5", "7"]
    assert [row.text for row in rows] == [f"line {n}" for n in range(3, 11)]
    assert "pw-context" in rows[0]["class"]
    assert "pw-context" not in rows[2]["class"]


def test_a_port_pane_and_its_gap() -> None:
    page = soup(cut(TEXT, {"a": [(2, 2), (20, 20)]}, side="port", source="pagewalk", context=0))
    figure = page.figure
    assert figure is not None
    assert figure["class"] == ["pw-pane", "pw-port"]
    assert figure.find("a") is None
    rows = page.find_all("li")
    assert [row["class"] for row in rows] == [["pw-line"], ["pw-gap"], ["pw-line"]]
    assert rows[1]["aria-hidden"] == "true"
    assert [row.get("id") for row in rows] == ["src-s-p-L2", None, "src-s-p-L20"]
    assert [row.get("tabindex") for row in rows] == ["0", None, "0"]


NASTY = st.text(alphabet="<>&\"'`\\/=abc \n\r\t中\x00\ud7ff#*", min_size=1, max_size=60)


@given(NASTY, st.sampled_from(["cuda", "python", "markdown", "other"]))
def test_any_text_comes_back_out_of_the_html(text: str, language: str) -> None:
    lines = text.split("\n")
    count = len(lines) - (len(lines) > 1 and not lines[-1])
    shown = cut(text, {"a": [(1, count)]}, language=language, path="<p>&\"'")
    page = to_html(shown, scope="s")
    assert not re.search(r"<(?!/?(figure|figcaption|ol|li|span|a)[ >])", page)
    assert all(f">{line_html(shown, number)}</li>" in page for number in shown.lines)
    assert [
        re.sub(r"<[^>]*>", "", row).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        for row in re.findall(r"<li[^>]*>(.*?)</li>", page, re.DOTALL)
    ] == [line.replace("\r", "") for line in lines[:count]]


def test_attributes_are_escaped_and_scripts_are_no_links() -> None:
    shown = cut(TEXT, {'"><script>': [(1, 1)]}, path='"><script>x', source='"@<b>', permalink="javascript:alert(1)")
    page = to_html(shown, scope='"><i>')
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "javascript" not in page


def test_a_missing_source_says_how_to_get_it() -> None:
    page = BeautifulSoup(
        missing_html(source="vllm@0.24.0", path="a<b.cu", permalink="https://e.org/x?a=1&b=2", licence="Apache-2.0"),
        "html.parser",
    )
    assert page.figure is not None
    assert "pw-missing" in page.figure["class"]
    assert "pagewalk fetch" in page.text
    assert "a<b.cu" in page.text
    assert {link["href"] for link in page.find_all("a")} == {"https://e.org/x?a=1&b=2"}
    assert "href" not in missing_html(source="toy", permalink="javascript:x")


RANGES = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)), min_size=1, max_size=6)


@given(st.dictionaries(st.sampled_from("abcd"), RANGES, min_size=1), st.integers(0, 4))
def test_lines_links_and_hunks_agree_with_a_naive_count(table: dict[str, list[tuple[int, int]]], context: int) -> None:
    spans = {name: [(first, min(30, first + more)) for first, more in entries] for name, entries in table.items()}
    shown = cut(TEXT, spans, context=context)
    near = {
        line
        for entries in spans.values()
        for first, last in entries
        for line in range(max(1, first - context), min(30, last + context) + 1)
    }
    bridged = {line for line in range(1, 31) if line - 1 in near and line + 1 in near}
    assert set(shown.lines) == near | bridged
    for line, links in shown.links.items():
        sizes = {
            name: min(last - first for first, last in entries if first <= line <= last)
            for name, entries in spans.items()
            if any(first <= line <= last for first, last in entries)
        }
        assert list(links) == sorted(sizes, key=lambda name: (sizes[name], name))
    assert all(last + 2 < first for (_, last), (first, _) in zip(shown.hunks, shown.hunks[1:], strict=False))


def test_hidden_lines_leave_no_gap_and_keep_the_numbers() -> None:
    text = "a = 1\n# region: x\nb = 2\n# endregion\nc = 3\n"
    made = excerpt(
        text, {"all": [(1, 5)]}, side="port", source="pagewalk", path="p.py", language="python", hide=is_fence
    )
    assert made.lines == {1: "a = 1", 3: "b = 2", 5: "c = 3"}
    assert made.hunks == ((1, 5),)
    page = BeautifulSoup(to_html(made, scope="s"), "html.parser")
    assert [row["value"] for row in page.select(".pw-line")] == ["1", "3", "5"]
    assert not page.select(".pw-gap")
    shown = to_terminal(None, made, 100, color=False)
    assert "b = 2" in shown
    assert "region" not in shown


def test_a_pane_can_be_headed_by_html_of_the_callers() -> None:
    shown = excerpt("a\nb\n", {"c": [(1, 1)]}, side="port", source="pagewalk", path="k.py", language="python")
    assert "<figcaption><b>K</b></figcaption>" in to_html(shown, scope="s", caption="<b>K</b>")
    assert "<figcaption><b>K</b></figcaption>" in missing_html(source="x@1", path="k.cu", caption="<b>K</b>")
    assert "k.py" in to_html(shown, scope="s").partition("</figcaption>")[0]
