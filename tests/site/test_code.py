from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from annotate import render, sources, spans
from annotate.concepts import concepts
from walkthroughs.site import code

ranges = st.tuples(st.integers(1, 40), st.integers(0, 10)).map(lambda r: (r[0], r[0] + r[1]))
tables = st.dictionaries(st.sampled_from("abcdef"), st.lists(ranges, min_size=1, max_size=3), max_size=6)


@given(tables, st.sets(st.sampled_from("abcdef"), max_size=3))
def test_what_lies_inside_comes_along_and_nothing_else_does(
    table: dict[str, list[tuple[int, int]]], reads: set[str]
) -> None:
    shown = code.with_inner(table, sorted(reads))
    outer = [r for name in reads for r in table.get(name, [])]
    lines = {n for first, last in outer for n in range(first, last + 1)}
    for name, found in shown.items():
        if name in reads:
            assert found == table[name]
        else:
            assert found
            assert all(any(o[0] <= r[0] and r[1] <= o[1] for o in outer) for r in found)
            assert {n for first, last in found for n in range(first, last + 1)} <= lines
    for name, found in table.items():
        inside = [r for r in found if any(o[0] <= r[0] and r[1] <= o[1] for o in outer)]
        assert (name in shown) == (name in reads or bool(inside))


def parsed(figures: code.Figures) -> BeautifulSoup:
    (html,) = figures.html
    # Without this the parser takes the indentation of a line for layout.
    return BeautifulSoup(html, "html.parser", preserve_whitespace_tags={"li"})


def test_scopes_of_several_figures_differ() -> None:
    assert [code.scope_of("s", i) for i in range(3)] == ["s", "s-2", "s-3"]


def test_blank_lines_at_the_ends_of_a_region_are_left_out() -> None:
    lines = ["a", "", "b", "", "c", "", "  "]
    assert code._trimmed(lines, 2, 4) == (3, 3)
    assert code._trimmed(lines, 1, 7) == (1, 5)
    assert code._trimmed(lines, 6, 7) == (6, 7)


def test_every_region_of_a_port_is_found() -> None:
    assert "kernels/reference.py" in code.ports()
    assert "gather-loop" in code.port_ranges("kernels/reference.py")
    assert "kernels/layout.py" not in code.ports()


def test_a_port_pane_holds_exactly_its_regions_lines() -> None:
    path, name = "kernels/reference.py", "gather-lookup"
    figures = code.own_figures([path], [name], "scope", side="upstream")
    pane = parsed(figures)
    numbers = [int(str(line["value"])) for line in pane.select(".pw-line")]
    assert numbers == [n for first, last in code.port_ranges(path)[name] for n in range(first, last + 1)]
    figure = pane.figure
    assert figure is not None
    assert (figure["data-source"], figure["data-path"]) == ("pagewalk", path)
    text = (code.ROOT / path).read_text("utf-8").splitlines()
    assert [line.get_text() for line in pane.select(".pw-line")] == [text[n - 1] for n in numbers]


def test_a_port_is_shown_with_what_it_imports_and_its_own_file_first() -> None:
    files = code.files_of_port("kernels/vllm/classic_v1.py")
    assert files[0] == "kernels/vllm/classic_v1.py"
    assert "kernels/vllm/attention_utils.py" in files
    assert "kernels/reference.py" not in files


def test_files_without_the_concept_have_no_pane() -> None:
    assert code.own_figures(code.ports(), ["unified-reduce"], "s") == code.Figures()


def test_names_are_identifiers_of_linked_lines_without_comments() -> None:
    text = "alpha = beta.gamma(x1)  # delta\ncontext = alpha"
    shown = render.excerpt(text, {"c": [(1, 1)]}, side="port", source="s", path="p.py", language="python", context=1)
    assert code.names_in(shown) == ["alpha", "beta", "gamma"]


@pytest.mark.parametrize(
    ("text", "first", "style"),
    [("  a = 1\n\n    b", 1, "--pw-dedent: 2"), ("a\n  b", 1, None), ("a\n      b", 2, "--pw-dedent: 6")],
)
def test_a_pane_says_by_how_much_all_its_lines_are_indented(text: str, first: int, style: str | None) -> None:
    last = len(text.split("\n"))
    shown = render.excerpt(
        text, {"c": [(first, last)]}, side="port", source="s", path="p.py", language="python", context=0
    )
    html = code.pane_html(shown, "s")
    figure = BeautifulSoup(html, "html.parser").figure
    assert figure is not None
    assert figure.get("style") == style
    assert "pw-port" in figure["class"]


@pytest.fixture
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    code.tree_of.cache_clear()
    yield
    code.tree_of.cache_clear()


@pytest.mark.usefixtures("nothing_fetched")
def test_without_the_source_the_pane_says_so_and_links() -> None:
    figures = code.source_figures("vllm@0.24.0", ["block-table-row"], "s")
    pane = parsed(figures)
    (span,) = spans.spans("vllm@0.24.0")["block-table-row"]
    assert "pagewalk fetch" in pane.get_text()
    assert figures.permalinks[0].url.endswith(f"/{span.path}#L{span.first}")
    assert "v0.24.0" in figures.permalinks[0].url
    assert figures.concepts == ("block-table-row",)
    assert figures.note == ""
    assert figures.names == ()


@pytest.mark.usefixtures("nothing_fetched")
def test_a_concept_in_several_files_has_a_pane_and_a_link_for_each() -> None:
    source = "vllm@0.24.0"
    name = next(n for n, found in spans.spans(source).items() if len({s.path for s in found}) == 1)
    other = next(n for n, found in spans.spans(source).items() if found[0].path != spans.spans(source)[name][0].path)
    figures = code.source_figures(source, [name, other], "s")
    assert len(figures.html) == len(figures.permalinks) == 2


@pytest.mark.source
def test_an_upstream_pane_shows_the_lines_of_the_source(vllm_024: sources.SourceTree) -> None:
    code.tree_of.cache_clear()
    figures = code.source_figures("vllm@0.24.0", ["k-address"], "s")
    pane = parsed(figures)
    (span,) = spans.spans("vllm@0.24.0")["k-address"]
    text = vllm_024.read(span.path).decode("utf-8").splitlines()
    linked = {int(str(n["value"])): n.get_text() for n in pane.select(".pw-line[data-links~=k-address]")}
    assert linked == {n: text[n - 1] for n in range(span.first, span.last + 1)}
    assert pane.find(id=f"src-s-u-L{span.first}")
    assert (code.OWN_COPY in figures.note) == vllm_024.marked_copy
    assert figures.names


def test_both_sides_are_put_together_with_every_title() -> None:
    left = code.Figures(("L",), ("qk-max",), (), "a note", ("aa", "bb"))
    right = code.Figures(("R",), ("qk-dot", "qk-max"), (), "", ("bb", "cc"))
    panes = code.panes([code.Figures(), left], right)
    assert (panes.upstream, panes.port) == (("L",), ("R",))
    assert panes.titles == {name: concepts()[name].title for name in ("qk-max", "qk-dot")}
    assert panes.note == "a note"
    assert panes.names == ("aa", "bb", "cc")
