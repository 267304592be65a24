"""The offline copy in a browser, from the disk: search, links, styles, palette; no request leaves it."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, expect

from walkthroughs.export import offline

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
OpenPage = Callable[..., Page]
RESULT = ".md-search-result__link"
# As a player loads what was recorded: by a script element, with an address below the page's own.
FILM = """\
# A film

<p id="film">nothing yet</p>
<script>
  const script = document.createElement("script");
  script.src = new URL("assets/films/toy.js", location.href).href;
  document.head.append(script);
</script>

![The pool](assets/svg/block-table.svg)
"""


@pytest.fixture(scope="module")
def copy(sample: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up site as a reader has it: built with the overlay, packed, unpacked elsewhere (a blank in the path)."""
    folder = tmp_path_factory.mktemp("offline copy")
    docs, site = folder / "docs", folder / "site"
    docs.mkdir()
    site.mkdir()
    base = offline.configure(folder, docs, site)
    sample.write_docs(docs)
    (docs / "assets" / "films").mkdir(exist_ok=True)
    (docs / "assets" / "films" / "toy.js").write_text('document.getElementById("film").textContent = "the film";')
    (docs / "film.md").write_text(FILM, "utf-8")
    settings = sample.config(docs, site, base=base)
    shutil.copy(ROOT / "docs" / "take-it-along.md", docs)
    settings.nav += ["film.md", "take-it-along.md"]
    from mkdocs.commands.build import build

    build(settings)
    offline.pack(site, folder / "copy.zip", offline.readme("commit abc", []), "licence")
    with zipfile.ZipFile(folder / "copy.zip") as archive:
        archive.extractall(folder / "stick")
    return folder / "stick" / offline.TOP


@pytest.fixture
def open_copy(
    browser: Browser, watching: Callable[[Browser, str], AbstractContextManager[OpenPage]], copy: Path
) -> Iterator[OpenPage]:
    """Pages of the copy; what is asked for anywhere but below its folder fails the test."""
    with watching(browser, f"{copy.as_uri()}/") as opener:
        yield opener


def search(page: Page, words: str) -> list[str]:
    """Type into the search as a reader does; answers the addresses found."""
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type(words)
    page.locator(RESULT).first.wait_for()
    hrefs: list[str] = page.locator(RESULT).evaluate_all("nodes => nodes.map(node => node.href)")
    return hrefs


def test_the_search_finds_a_step_and_leads_to_it(open_copy: OpenPage, copy: Path) -> None:
    page = open_copy("index.html")
    found = search(page, "walk the pieces")
    step = next(href for href in found if href.endswith("#step-loop"))
    assert urlsplit(step).path.endswith("/walkthroughs/alpha.html")
    page.locator(f'{RESULT}[href="{step}"]').click()
    page.wait_for_url("**/alpha.html*#step-loop")
    expect(page.locator("#step-loop")).to_be_in_viewport()


def test_the_search_works_from_a_page_in_a_folder(open_copy: OpenPage) -> None:
    found = search(open_copy("walkthroughs/beta.html"), "zebrafinch")
    assert found
    assert all("/concepts/toy-" in href for href in found)
    assert all(Path(unquote(urlsplit(href).path)).is_file() for href in found)


def test_a_search_for_nothing_finds_nothing(open_copy: OpenPage) -> None:
    page = open_copy("index.html")
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type("quagga")
    expect(page.locator(".md-search-result__meta")).to_have_text(re.compile("No matching documents"))


def test_another_search_answers_anew(open_copy: OpenPage) -> None:
    page = open_copy("index.html")
    assert search(page, "zebrafinch")
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("walk the pieces")
    expect(page.locator(f'{RESULT}[href*="alpha.html"]').first).to_be_visible()


def test_the_search_runs_in_a_hidden_frame_and_not_in_a_worker(open_copy: OpenPage) -> None:
    page = open_copy("index.html")
    search(page, "pieces")
    frames = page.locator("iframe")
    expect(frames).to_have_count(1)
    expect(frames).to_be_hidden()
    assert frames.get_attribute("aria-hidden") == "true"


def test_lines_light_up(open_copy: OpenPage, sample: ModuleType) -> None:
    page = open_copy("walkthroughs/alpha.html")
    page.locator("#src-loop-u-L5").hover(position={"x": 90, "y": 6})
    lit = page.locator("[id^='src-loop-p-L'].pw-on").evaluate_all("nodes => nodes.map(node => node.value)")
    assert lit == [first for first, _ in sample.RIGHT_SPANS["toy-lookup"]]


def test_the_themes_own_parts_start(open_copy: OpenPage) -> None:
    """They wait for a stream that instant navigation would have ended."""
    page = open_copy("walkthroughs/alpha.html")
    expect(page.locator(".md-code__button, .md-clipboard").first).to_be_attached()


def test_links_lead_from_page_to_page(open_copy: OpenPage) -> None:
    page = open_copy("index.html")
    page.locator("a.pw-start").click()
    page.wait_for_url("**/walkthroughs/alpha.html")
    page.locator("a.pw-chip").first.click()
    page.wait_for_url("**/concepts/toy-loop.html")
    page.locator("a.md-logo").first.click()
    page.wait_for_url("**/index.html")


def test_styles_and_pictures_are_there(open_copy: OpenPage) -> None:
    page = open_copy("film.html")
    assert page.evaluate("getComputedStyle(document.querySelector('.md-header')).position") == "sticky"
    picture = page.locator("article img")
    assert picture.evaluate("node => node.complete && node.naturalWidth") > 0
    page = open_copy("walkthroughs/alpha.html")
    assert page.evaluate("getComputedStyle(document.querySelector('.pw-pane')).overflow") in ("auto", "auto scroll")


def test_a_film_loads_from_the_disk(open_copy: OpenPage) -> None:
    expect(open_copy("film.html").locator("#film")).to_have_text("the film")


def test_a_player_loads_its_film_and_plays_it(open_copy: OpenPage) -> None:
    page = open_copy("walkthroughs/gamma.html")
    player = page.locator("pagewalk-player").first
    player.locator("summary").click()
    slider = player.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^\d+ of \d\d+"))
    before = slider.get_attribute("aria-valuenow")
    player.get_by_role("button", name=re.compile("Step$|Step ▶|next", re.IGNORECASE)).first.click()
    expect(slider).not_to_have_attribute("aria-valuenow", before or "")


def test_a_sitting_of_drills_is_held_from_the_disk_and_kept(open_copy: OpenPage, copy: Path) -> None:
    page = open_copy("drills/index.html")
    page.locator("[data-act=begin]").click()
    page.keyboard.press("Space")
    element = page.locator("pagewalk-drill")
    link = element.locator(".pw-drill-points a").first.get_attribute("href") or ""
    # The sample has no page of this concept; where it would be says the rest.
    assert link == (copy / "concepts" / "fragmentation.html").as_uri()
    page.keyboard.press("3")
    page.reload()
    expect(element.locator(".pw-drill-meta")).to_contain_text("follows")
    page = open_copy("drills/find.html")
    page.get_by_role("button", name="Ask me this: x, in Python").click()
    page.locator(".pw-drill-lines li[value='22']").click()
    page.locator("[data-act=answer]").click()
    expect(page.locator(".pw-drill-verdict")).to_have_text("✔ Right.")


def test_the_palette_turns_and_is_remembered(open_copy: OpenPage) -> None:
    page = open_copy("index.html", color_scheme="light")
    assert page.locator("body").get_attribute("data-md-color-scheme") == "default"
    page.locator("label[title='Switch to dark']").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.reload()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_on_exports_is_accessible(open_copy: OpenPage, scheme: str, width: int) -> None:
    page = open_copy("take-it-along.html", color_scheme=scheme, viewport={"width": width, "height": 900})
    # From the disk, style sheets cannot be asked for by a script.
    found = Axe().run(page, context="article", options={"preload": False})
    assert found.response["passes"]
    wrong = [entry for entry in found.response["violations"] if entry["impact"] in ("serious", "critical")]
    assert [(entry["id"], node["html"]) for entry in wrong for node in entry["nodes"]] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_link_and_every_file_of_a_page_is_in_the_copy(copy: Path) -> None:
    """Also those that no test clicks; folders do not count, since a browser would list them."""
    pages = sorted(copy.rglob("*.html"))
    assert len(pages) > 15
    assert missing(pages) == []


def missing(pages: list[Path]) -> list[str]:
    """Every address in pages that leads to no file, or to no place in it."""
    ids = {page: {node["id"] for node in soup_of(page).select("[id]")} for page in pages}
    bad = []
    for page in pages:
        for node in soup_of(page).select("[href], [src]"):
            address = urlsplit(str(node.get("href") or node.get("src")))
            if address.scheme or address.netloc or "canonical" in node.get("rel", []):
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            nowhere = bool(address.fragment) and address.fragment not in {*ids.get(target, ()), "__skip", "__top"}
            if not target.is_file() or nowhere:
                bad.append(f"{page.name}: {address.geturl()}")
    return bad


_SOUPS: dict[Path, BeautifulSoup] = {}


def soup_of(page: Path) -> BeautifulSoup:
    if page not in _SOUPS:
        _SOUPS[page] = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    return _SOUPS[page]


def test_no_page_asks_another_host(copy: Path) -> None:
    """What a browser fetches by itself: links to other places are the reader's to follow."""
    for page in copy.rglob("*.html"):
        fetched = soup_of(page).select("script[src], img[src], iframe[src], link[rel~=stylesheet], link[rel=icon]")
        assert fetched
        for node in fetched:
            assert not urlsplit(str(node.get("src") or node.get("href"))).netloc
    for sheet in copy.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//", sheet.read_text("utf-8"))


def test_the_shim_leaves_a_served_page_alone(
    browser: Browser,
    watching: Callable[[Browser, str], AbstractContextManager[OpenPage]],
    serving: Callable[[Path], AbstractContextManager[str]],
    copy: Path,
) -> None:
    with serving(copy) as url, watching(browser, url) as opener:
        page = opener("index.html")
        assert search(page, "walk the pieces")
        assert page.locator("iframe").count() == 0
