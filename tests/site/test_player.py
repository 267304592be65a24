"""The player on the page: its rows, its HTML, the film's page, and what a page weighs."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from bs4 import BeautifulSoup

from walkthroughs import step as catalog
from walkthroughs.site import pages, player
from walkthroughs.site.errors import BadDirective, UnknownPageItem
from walkthroughs.site.loader import project_data
from walkthroughs.site.model import MomentRow, PlayerView, StepRef
from walkthroughs.stepper.films import clip_of, film, films, join, record

ROOT = Path(__file__).resolve().parents[2]
CLIPS = {step.id: clip for step in catalog.steps().values() if (clip := clip_of(step)) is not None}
PER_STEP = 4_000
PER_PAGE = 1_500_000
VIEW = PlayerView("toy", "step-loop", "loop", 7, ("a", "b"), (MomentRow(3, 12, "x < y & z", 'reads "<q>"'),))


def soup(html: str) -> BeautifulSoup:
    return BeautifulSoup(html, "html.parser")


def test_most_steps_have_a_clip() -> None:
    assert len(CLIPS) > 80


@pytest.mark.parametrize("name", list(CLIPS))
def test_a_steps_player_is_light_and_its_rows_are_of_its_concepts(name: str) -> None:
    clip = CLIPS[name]
    view = player.step_view(clip, name.split("/")[1])
    assert len(player.player_html(view).encode()) <= PER_STEP
    assert 1 <= len(view.rows) <= player.ROWS
    trace, joined = record(clip.film), join(clip.film)
    own = trace.events_of(trace.thread(clip.film.focus, trace.threads[0].block))
    moments = [row.moment for row in view.rows]
    assert moments == sorted(set(moments))
    for row in view.rows:
        event = trace.events[own[row.moment - 1]]
        assert event.kind == "line"
        assert own[row.moment - 1] >= clip.start
        assert row.line == event.line
        path = trace.files[trace.functions[event.function].file].path
        assert set(joined.concepts_at(path, event.line)) & set(clip.concepts)
        text = (ROOT / path).read_text("utf-8").split("\n")[event.line - 1].strip()
        assert row.text == text or (row.text.endswith("…") and text.startswith(row.text[:-1]))


@pytest.mark.parametrize("name", list(films()))
def test_a_films_rows_go_all_along_it(name: str) -> None:
    rows = player.moment_rows(film(name), (), 0)
    assert 3 <= len(rows) <= player.ROWS
    length = len(record(film(name)).events_of(0))
    assert rows[0].moment < length / 2
    assert len({row.line for row in rows}) == len(rows), "a line once"


def test_what_a_line_did_is_told() -> None:
    rows = {row.line: row for row in player.moment_rows(film("gather"), ("gather-lookup",), 0)}
    said = " ".join(row.did for row in rows.values())
    assert re.search(r"reads 3 from block_table\[0\]", said), said
    assert "= " in said


def test_the_html_is_a_folded_table_in_the_element() -> None:
    page = soup(player.player_html(VIEW))
    element = page.find("pagewalk-player")
    assert element is not None
    wanted = {"film": "toy", "anchor": "step-loop", "pair": "pair-loop", "at": "7", "concepts": "a b"}
    assert element.attrs == wanted
    details = element.find("details")
    assert details is not None
    assert not details.has_attr("open")
    assert details.has_attr("data-search-exclude")
    cells = [cell.get_text() for cell in details.select("tbody :is(th, td)")]
    assert cells == ["3", "12", "x < y & z", 'reads "<q>"']
    assert len(details.select("thead th")) == len(cells)


def test_a_whole_film_is_open_and_starts_at_its_start() -> None:
    view = PlayerView("toy", "toy", "toy", None, (), VIEW.rows)
    element = soup(player.player_html(view, whole=True)).find("pagewalk-player")
    assert element is not None
    assert set(element.attrs) == {"film", "anchor", "pair"}
    details = element.find("details")
    assert details is not None
    assert details.has_attr("open")


@pytest.mark.parametrize("name", ["classic-v1", "copy-blocks", "scatter"])
def test_a_films_page_has_all_its_regions(name: str) -> None:
    view = player.film_view(name, [StepRef("w", "s", "A `step`")])
    joined = join(film(name))
    reads = {region.id for found in joined.files.values() for region in found}
    shown = set()
    for html in view.panes.port:
        for line in soup(html).select(".pw-line"):
            shown |= set(str(line["data-links"]).split())
    assert reads <= shown
    lines = player.film_lines(view, "..", lambda html: html)
    assert lines[0] == f"# {view.title.rstrip('.')} {{#{name}}}"
    assert "* [A `step`](../walkthroughs/w.md#step-s)" in lines
    assert any("<pagewalk-player" in line for line in lines)


def test_every_clip_is_listed_on_its_films_page() -> None:
    data = project_data()
    for name, clip in CLIPS.items():
        walkthrough, slug = name.split("/")
        listed = [(ref.walkthrough, ref.slug) for ref in data._film_steps[clip.film.id]]
        assert (walkthrough, slug) in listed


def test_an_unknown_film_is_named() -> None:
    with pytest.raises(UnknownPageItem, match="classic-v9"):
        project_data().film("classic-v9")


def test_a_film_is_asked_for_by_one_name(sample: ModuleType) -> None:
    from markdown import Markdown

    md = Markdown(extensions=["walkthroughs.site.extension"], extension_configs={
        "walkthroughs.site.extension": {"data": sample.SampleData()}
    })  # fmt: skip
    with pytest.raises(BadDirective):
        md.convert("::: player classic-v1 twice")


def test_there_is_a_stub_for_every_film() -> None:
    stubs = pages.stubs(project_data())
    assert {path for path in stubs if path.startswith("play/")} == {"play/index.md", *(f"play/{n}.md" for n in films())}
    assert not [path for path in pages.outdated(ROOT / "docs") if "play" in path.parts]


# ---- the built site ----


def test_a_player_stands_right_behind_its_panes(sample_site: Path) -> None:
    page = soup((sample_site / "walkthroughs/gamma/index.html").read_text("utf-8"))
    found = page.select("pagewalk-player")
    assert len(found) == 3
    for element in found:
        holder = element.parent
        assert holder is not None
        before = holder.find_previous_sibling()
        assert before is not None
        assert before["id"] == element["pair"]
        assert page.find(id=element["anchor"]) is not None
        assert element.find_parent("p") is None
        assert len(str(element).encode()) <= PER_STEP
    alpha = (sample_site / "walkthroughs/alpha/index.html").read_text("utf-8")
    assert "pagewalk-player" not in alpha, "a step without a film has no player"


def test_the_films_page_lists_them(sample_site: Path) -> None:
    page = soup((sample_site / "play/index.html").read_text("utf-8"))
    links = {str(link["href"]) for link in page.select(".md-content li a")}
    assert {f"{name}/" for name in ("classic-v1", "copy-blocks")} <= links


def weight(page: Path) -> int:
    """What a page makes a browser load before any film: itself, its scripts and its styles, as they lie on the disk."""
    html = page.read_text("utf-8")
    tree = soup(html)
    linked = [str(tag["src"]) for tag in tree.select("script[src]")]
    linked += [str(tag["href"]) for tag in tree.select("link[rel=stylesheet]")]
    assert len(linked) > 8
    files = {(page.parent / address.partition("?")[0]).resolve() for address in linked}
    return page.stat().st_size + sum(file.stat().st_size for file in files)


def test_no_page_is_heavy(sample_site: Path) -> None:
    heavy = {path: weight(path) for path in sample_site.rglob("index.html") if weight(path) > PER_PAGE}
    assert heavy == {}


def test_no_page_loads_a_film_by_itself(sample_site: Path) -> None:
    for path in sample_site.rglob("index.html"):
        tree = soup(path.read_text("utf-8"))
        assert not [tag for tag in tree.select("script[src], link[href]") if "assets/films" in str(tag)]


def test_the_search_finds_no_table(sample_site: Path) -> None:
    index = (sample_site / "search/search_index.json").read_text("utf-8")
    assert "a recorded run of" not in index
