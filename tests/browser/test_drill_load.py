"""The drills' loader: what it loads and when, data from a server and from the disk, links from wherever a page is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page

from walkthroughs import packing

pytestmark = pytest.mark.browser
SCRIPTS = Path(__file__).resolve().parents[2] / "docs" / "assets" / "js"
LOGIC = ["words", "exact", "quantities", "grade", "find", "fsrs", "log", "choose"]
FIX = ["editor", "failure", "code"]
CONTENT = {"items": ["é", "</script>"], "number": "12345678901234567890"}
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<script src="{root}assets/js/drill-load.js"></script><body>{body}"""


def parts() -> list[str]:
    """The scripts that the loader names, in its order."""
    text = (SCRIPTS / "drill-load.js").read_text("utf-8")
    lists = re.findall(r"const (?:LOGIC|PAGE) = \[([^]]*)\]", text)
    return [name for held in lists for name in re.findall(r'"([\w-]+)"', held)]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages, with the real loader; the scripts that it loads only say that they ran."""
    scripts = tmp_path / "assets" / "js"
    scripts.mkdir(parents=True)
    shutil.copy(SCRIPTS / "drill-load.js", scripts)
    for name in [*parts(), *FIX]:
        (scripts / f"drill-{name}.js").write_text(f'window.ran = [...(window.ran || []), "{name}"];', "utf-8")
    packing.write_all(tmp_path / "assets" / "drills", {"toy": packing.script("pagewalkDrills", "toy", CONTENT)})
    (tmp_path / "drills" / "recall").mkdir(parents=True)
    asked, home = '<div data-drill="recall"></div>', '<a href="{}">Home</a>'
    (tmp_path / "drills" / "recall" / "index.html").write_text(
        PAGE.format(root="../../", body=home.format("../..") + asked), "utf-8"
    )
    (tmp_path / "drills" / "flat.html").write_text(
        PAGE.format(root="../", body=home.format("../index.html") + asked), "utf-8"
    )
    (tmp_path / "fix.html").write_text(PAGE.format(root="", body='<section data-fix="fix/x"></section>'), "utf-8")
    (tmp_path / "other.html").write_text(PAGE.format(root="", body="<p>Nothing is asked here."), "utf-8")
    return tmp_path


@pytest.fixture
def base(site: Path, serving: Callable[[Path], AbstractContextManager[str]]) -> Iterator[str]:
    with serving(site) as url:
        yield url


@pytest.fixture
def opened(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(10_000)
    yield page
    page.close()


def ready(page: Page) -> Any:
    return page.evaluate("PagewalkDrill.ready().then(() => window.ran)")


def test_every_script_that_is_named_is_there() -> None:
    assert parts()[: len(LOGIC)] == LOGIC
    assert [name for name in [*parts(), *FIX] if not (SCRIPTS / f"drill-{name}.js").is_file()] == []


def test_a_page_of_drills_loads_all_scripts_once_and_in_order(opened: Page, base: str) -> None:
    opened.goto(base + "drills/recall/")
    assert ready(opened) == parts()
    assert ready(opened) == parts()


def test_another_page_loads_none_until_it_is_asked_to(opened: Page, base: str) -> None:
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    opened.goto(base + "other.html")
    opened.wait_for_load_state("networkidle")
    assert asked == ["other.html", "drill-load.js"]
    assert opened.evaluate("window.ran") is None
    assert ready(opened) == parts()


@pytest.mark.parametrize("address", ["fix.html", "other.html#code=key"])
def test_a_kernel_to_fix_or_a_key_loads_the_editor_alone(opened: Page, base: str, address: str) -> None:
    opened.goto(base + address)
    opened.wait_for_function("(window.ran || []).length === 3")
    assert opened.evaluate("window.ran") == FIX
    assert ready(opened) == [*FIX, *parts()]


def test_a_script_that_failed_is_loaded_the_next_time(opened: Page, base: str, site: Path) -> None:
    script = site / "assets" / "js" / "drill-log.js"
    text = script.read_text("utf-8")
    script.unlink()
    opened.goto(base + "other.html")
    with pytest.raises(Error, match=r"drill-log\.js cannot be loaded"):
        ready(opened)
    script.write_text(text, "utf-8")
    assert "log" in ready(opened)


def test_data_comes_from_a_server_and_from_the_disk(opened: Page, base: str, site: Path) -> None:
    for address in (base + "drills/recall/", (site / "drills" / "flat.html").as_uri()):
        opened.goto(address)
        assert ready(opened) == parts()
        assert opened.evaluate("PagewalkDrill.data('toy')") == CONTENT
        assert opened.evaluate("PagewalkDrill.data('toy') === PagewalkDrill.data('toy')")


def test_missing_data_is_told_and_asked_for_again(opened: Page, base: str, site: Path) -> None:
    opened.goto(base + "other.html")
    with pytest.raises(Error, match=r"the file late of the drills is not here.*pagewalk site build"):
        opened.evaluate("PagewalkDrill.data('late')")
    late = packing.script("pagewalkDrills", "late", [1])
    (site / "assets" / "drills" / "late.js").write_text(late, "utf-8")
    assert opened.evaluate("PagewalkDrill.data('late')") == [1]


@pytest.mark.parametrize(
    ("page", "href", "wanted"),
    [
        ("drills/recall/", "walkthroughs/vllm-classic/#step-x", "walkthroughs/vllm-classic/#step-x"),
        ("drills/recall/", "concepts/x-packing/", "concepts/x-packing/"),
        ("drills/flat.html", "walkthroughs/vllm-classic/#step-x", "walkthroughs/vllm-classic.html#step-x"),
        ("drills/flat.html", "concepts/x-packing/", "concepts/x-packing.html"),
        ("drills/flat.html", "claims/#L1-13", "claims.html#L1-13"),
        ("drills/recall/index.html", "claims/#L1-13", "claims/#L1-13"),
        ("drills/flat.html", "play/toy/#toy&t=3&thread=1", "play/toy.html#toy&t=3&thread=1"),
    ],
)
def test_links_lead_to_the_top_of_the_site(opened: Page, base: str, page: str, href: str, wanted: str) -> None:
    opened.goto(base + page)
    assert opened.evaluate("href => PagewalkDrill.url(href)", href) == base + wanted
    away = "https://example.invalid/a/#L3"
    assert opened.evaluate("href => PagewalkDrill.url(href)", away) == away
