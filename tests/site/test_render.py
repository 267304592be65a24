from __future__ import annotations

import json
import re
from types import ModuleType

import markdown
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.site import render
from walkthroughs.site.model import Badge, Link, Panes, Row

EXTENSIONS = ["attr_list", "tables", "def_list", "md_in_html"]


def html_of(text: str) -> BeautifulSoup:
    return BeautifulSoup(markdown.markdown(text, extensions=EXTENSIONS), "html.parser")


def stash(html: str) -> str:
    return f"STASH[{html}]"


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20))
def test_plain_text_shows_exactly_its_characters(text: str) -> None:
    # A letter in front and behind: block markup (a list, a heading) is not what `plain` guards against.
    shown = html_of(f"a {render.plain(text)} z").get_text()
    assert shown == f"a {text} z"


def test_plain_puts_text_on_one_line() -> None:
    assert render.plain(" a\n  b ") == "a b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Write `out` now", "<p>Write <code>out</code> now</p>"),
        ("`a_b*` and c_d*", "<p><code>a_b*</code> and c_d*</p>"),
        ("a lone ` tick", "<p>a lone ` tick</p>"),
        ("`v<x>`", "<p><code>v&lt;x&gt;</code></p>"),
    ],
)
def test_labels_keep_code(text: str, shown: str) -> None:
    assert str(html_of(render.label(text))) == shown


def test_a_heading_has_the_id_that_it_was_given() -> None:
    found = html_of(render.heading(2, "Look up `x` [now]", "step-look")).h2
    assert found is not None
    assert (found["id"], found.get_text()) == ("step-look", "Look up x [now]")


def test_a_pair_holds_both_sides_and_the_titles() -> None:
    panes = Panes(("<figure>L</figure>",), ("<figure>R</figure>",), {"a": 'T "quoted" & <b>'})
    found = BeautifulSoup(render.pair_html(panes, "s"), "html.parser").select_one(".pw-pair")
    assert found is not None
    assert found["id"] == "pair-s"
    assert json.loads(str(found["data-titles"])) == {"a": 'T "quoted" & <b>'}
    assert [side["class"][1] for side in found.select(".pw-side")] == ["pw-side-upstream", "pw-side-port"]
    assert "pw-alone" not in found["class"]


def test_a_pair_with_one_side_says_so() -> None:
    found = BeautifulSoup(render.pair_html(Panes(port=("<figure></figure>",)), "s"), "html.parser")
    pair = found.select_one(".pw-pair")
    assert pair is not None
    assert "pw-alone" in pair["class"]
    assert len(found.select(".pw-side")) == 1


def row(**changes: str) -> Row:
    values = {"name": "n", "observed": "o", "expected": "e", "error": "1", "tolerance": "2", "verdict": "passed"}
    return Row(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", ["passed", "failed", "stale", "measured"])
def test_a_verdict_is_an_icon_and_a_word(verdict: str) -> None:
    found = BeautifulSoup(render.table_html([row(verdict=verdict)], "c"), "html.parser")
    cell = found.select_one(f".pw-verdict-{verdict}")
    assert cell is not None
    icon = cell.select_one("[aria-hidden=true]")
    assert icon is not None
    assert icon.get_text().strip()
    assert cell.get_text().replace(icon.get_text(), "").strip() == verdict


def test_a_table_escapes_what_was_observed_and_labels_every_cell() -> None:
    found = BeautifulSoup(
        render.table_html([row(observed="<nan> & 1", note="a <b>")], "Observed on <x>"), "html.parser"
    )
    cells = {cell["data-label"]: cell.get_text() for cell in found.select("td")}
    assert list(cells) == ["Observed", "Expected", "Error", "Tolerance", "Verdict"]
    assert cells["Observed"] == "<nan> & 1"
    head = found.select_one("tbody th[scope=row]")
    assert head is not None
    assert head.get_text() == "na <b>"
    assert found.caption is not None
    assert found.caption.get_text() == "Observed on <x>"
    assert [th.get_text() for th in found.select("thead th[scope=col]")][:3] == ["Check", "Observed", "Expected"]


def test_badges_link_to_what_they_mean_and_say_it_in_words() -> None:
    line = render.badge_line([Badge("gpu", "NVIDIA [H200]"), Badge("pending", "not yet: why_not")], "..")
    links = html_of(line).select("a.pw-badge")
    assert [link["class"][1] for link in links] == ["pw-badge-gpu", "pw-badge-pending"]
    assert {link["href"] for link in links} == {"../how-we-know.md#badges"}
    assert links[0].get_text().endswith("NVIDIA [H200]")
    assert links[1].get_text().endswith("not yet: why_not")


def test_chips_name_their_concept_and_their_pair() -> None:
    chip = html_of(render.chip_line({"x-packing": "The `x`"}, "..", "step")).a
    assert chip is not None
    assert chip["href"] == "../concepts/x-packing.md"
    assert (chip["data-concept"], chip["data-pair"]) == ("x-packing", "pair-step")
    assert chip.get_text() == "The x"


def test_a_step_has_its_parts_in_reading_order(sample: ModuleType) -> None:
    view = sample.WALKTHROUGHS["alpha"].steps[0]
    text = "\n".join(render.step_lines(view, "..", stash))
    order = [
        "{#step-loop}",
        ".pw-badge-gpu",
        "asks the table",
        "pw-pair",
        "Concepts:",
        "Upstream, at",
        "pw-evidence",
        "pw-names",
        "pw-record",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_only_the_concepts_that_a_step_reads_are_its_chips(sample: ModuleType) -> None:
    text = "\n".join(render.step_lines(sample.WALKTHROUGHS["alpha"].steps[1], "..", stash))
    assert re.findall(r"data-concept=(\S+)", text) == ["toy-write"]


def test_a_pair_without_permanent_links_has_no_empty_line_of_them() -> None:
    text = "\n".join(render.pair_lines(Panes(port=("<figure></figure>",)), "s", "..", stash, {}))
    assert "Upstream" not in text
    assert "Concepts" not in text


def test_permanent_links_are_whole(sample: ModuleType) -> None:
    panes = Panes(("<figure></figure>",), (), {}, (Link("a_b.cu, lines 1 to 2", "https://example.invalid/a#L1-L2"),))
    text = "\n".join(render.pair_lines(panes, "s", "..", stash, {}))
    link = html_of(text[text.index("Upstream,") :]).a
    assert link is not None
    assert (link["href"], link.get_text()) == ("https://example.invalid/a#L1-L2", "a_b.cu, lines 1 to 2")


def test_what_is_special_about_the_copy_is_said_once() -> None:
    panes = Panes(("<figure></figure>",), (), {}, (Link("a", "u"), Link("b", "v")), note="From *your* copy.")
    text = "\n".join(render.pair_lines(panes, "s", "..", stash, {}))
    assert text.count("From \\*your\\* copy.") == 1


def test_code_and_numbers_stay_out_of_the_search_but_names_do_not() -> None:
    pair = BeautifulSoup(render.pair_html(Panes(("<figure></figure>",), ("<figure></figure>",)), "s"), "html.parser")
    assert len(pair.select("section[data-search-exclude]")) == 2
    assert BeautifulSoup(render.table_html([row()], "c"), "html.parser").select("table[data-search-exclude]")
    names = BeautifulSoup(render.names_html(["qk_max", "a<b"]), "html.parser")
    assert [code.get_text() for code in names.select("code")] == ["qk_max", "a<b"]
    assert not names.select("[data-search-exclude]")


def test_a_concept_page_lists_its_steps_and_neighbours(sample: ModuleType) -> None:
    text = "\n".join(render.concept_lines(sample.SampleData().concept("toy-loop"), "..", stash))
    assert "(../walkthroughs/alpha.md#step-loop)" in text
    assert "(../concepts/toy-write.md)" in text
    assert text.startswith("# The loop over the `toy` pieces {#toy-loop}")


def test_lists_count_where_there_is_something_to_count(sample: ModuleType) -> None:
    lines = render.list_lines(sample.SampleData().walkthroughs().values(), ".", "steps")
    assert lines[0] == "* [Alpha &#38; the `toy`](./alpha.md) (2 steps): The first one."
