"""The player as part of its page: keys, links to moments, navigation, two at once, paper, no script, axe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from walkthroughs.stepper.films import film, record

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGE = "walkthroughs/gamma/"
FIRST, SECOND = "pagewalk-player[anchor=step-block-table]", "pagewalk-player[anchor=step-qk-max]"
LAST = len(record(film("classic-v1")).events_of(0))


def player(page: Page, which: str = FIRST) -> Locator:
    return page.locator(which)


def open_player(page: Page, which: str = FIRST) -> Locator:
    """Unfold a step's player and give its track the focus."""
    element = player(page, which)
    element.locator("summary").click()
    expect(element).to_have_attribute("data-state", "ready")
    element.locator(".pw-track").focus()
    return element


def moment(element: Locator) -> int:
    return int(element.locator(".pw-track").get_attribute("aria-valuenow") or "")


def hash_of(page: Page, wanted: str) -> None:
    page.wait_for_function("wanted => location.hash === wanted", arg=wanted)


# ---- folded and unfolded ----


def test_a_film_is_loaded_only_when_a_player_is_opened(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "/films/" in url]
    expect(player(page).locator(".pw-play-table")).not_to_be_visible()
    open_player(page)
    open_player(page, SECOND)
    assert [url.rsplit("/", 1)[1] for url in asked if "/films/" in url] == ["classic-v1.js"], "once for both"


def test_a_steps_player_opens_where_the_steps_lines_first_run(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    start = int(element.get_attribute("at") or "")
    own = list(record(film("classic-v1")).events_of(0))
    assert moment(element) == own.index(start) + 1
    expect(page.locator("#pair-block-table .pw-now")).to_have_count(1)
    assert element.locator(".pw-bands i").count() >= 2


@pytest.mark.parametrize("width", [390, 1440])
def test_code_and_controls_are_seen_together(open_page: OpenPage, width: int) -> None:
    page = open_page(PAGE, viewport={"width": width, "height": 900})
    element = open_player(page)
    for seen in (page.locator("#pair-block-table .pw-port figcaption"), element.locator(".pw-bar")):
        expect(seen).to_be_in_viewport()
    element.locator("summary").click()
    expect(page.locator("#pair-block-table")).not_to_have_class(re.compile("pw-playing"))


def test_nothing_jumps_from_moment_to_moment(open_page: OpenPage) -> None:
    page = open_page("play/classic-v1/", reduced_motion="reduce")
    page.wait_for_selector("pagewalk-player[data-state=ready]")
    places = page.evaluate(
        """() => { const player = document.querySelector("pagewalk-player");
             const parts = [".pw-bar", ".pw-track", ".pw-told", ".pw-picture", ".pw-lanes", ".pw-vars", ".pw-running",
               ".pw-shareds"];
             const seen = new Set();
             for (let i = 0; i < player.steps.own.length; i += 31) {
               player.go(i, "jump");
               seen.add(parts.map(part => { const box = player.querySelector(part).getBoundingClientRect();
                 return [box.left, box.top, box.width, box.height].map(Math.round).join(" "); }).join(", "));
             }
             return [...seen]; }"""
    )
    assert len(places) == 1, places


# ---- keys ----


def test_keys_step_and_jump(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    start = moment(element)
    for key, wanted in [
        ("ArrowRight", start + 1),
        ("ArrowRight", start + 2),
        ("ArrowLeft", start + 1),
        ("Shift+ArrowRight", start + 11),
        ("Home", 1),
        ("ArrowLeft", 1),
        ("End", LAST),
        ("ArrowRight", LAST),
    ]:
        page.keyboard.press(key)
        assert moment(element) == wanted, key


def test_keys_do_nothing_outside_the_player(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    start = moment(element)
    page.locator("#src-block-table-p-L166").focus()
    for key in ("ArrowRight", "ArrowLeft", "Home", "End"):
        page.keyboard.press(key)
    assert moment(element) == start
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert moment(element) == start


def test_space_plays_and_pauses(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    start = moment(element)
    element.locator("select[aria-label=Pace]").select_option("15")
    element.locator(".pw-track").focus()
    page.keyboard.press("Space")
    expect(element.locator("button[aria-label=Pause]")).to_be_visible()
    page.wait_for_function(f"Number(document.querySelector('.pw-track').getAttribute('aria-valuenow')) > {start + 3}")
    assert element.locator(".pw-told-what").get_attribute("aria-live") == "off", "a run is not read out"
    page.keyboard.press("Space")
    expect(element.locator("button[aria-label=Play]")).to_be_visible()
    assert element.locator(".pw-told-what").get_attribute("aria-live") == "polite"
    stopped = moment(element)
    page.wait_for_timeout(300)
    assert moment(element) == stopped


def test_playing_stops_at_the_end_and_begins_again(open_page: OpenPage) -> None:
    page = open_page(f"{PAGE}#step-block-table&t={LAST - 1}")
    element = player(page)
    expect(element).to_have_attribute("data-state", "ready")
    element.locator("button[aria-label=Play]").click()
    expect(element.locator(".pw-track")).to_have_attribute("aria-valuenow", str(LAST))
    expect(element.locator("button[aria-label=Play]")).to_be_visible()
    element.locator("button[aria-label=Play]").click()
    page.wait_for_function("Number(document.querySelector('.pw-track').getAttribute('aria-valuenow')) < 40")


def test_the_question_mark_shows_the_keys(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    keys = element.locator(".pw-play-keys")
    expect(keys).not_to_be_visible()
    page.keyboard.press("?")
    expect(keys).to_be_visible()
    for name in ("←", "Home", "Space", "?"):
        expect(keys).to_contain_text(name)
    expect(element.locator("button[aria-label=Keys]")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("?")
    expect(keys).not_to_be_visible()


@pytest.mark.parametrize("key", ["f", "s", "/"])
def test_the_themes_search_keys_work_in_the_player(open_page: OpenPage, key: str) -> None:
    page = open_page(PAGE)
    open_player(page)
    page.keyboard.press(key)
    expect(page.locator(".md-search__input")).to_be_focused()


@pytest.mark.parametrize(("key", "where"), [("n", "play/"), (".", "play/"), ("p", "beta/"), (",", "beta/")])
def test_the_themes_page_keys_work_in_the_player(open_page: OpenPage, key: str, where: str) -> None:
    page = open_page(PAGE)
    open_player(page)
    page.keyboard.press(key)
    # The theme may write the heading behind it that it saw last.
    page.wait_for_url(re.compile(rf"/{where}(#.*)?$"))


def test_a_space_on_a_button_is_the_buttons(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    start = moment(element)
    element.locator("button[aria-label=Step]").focus()
    page.keyboard.press("Space")
    assert moment(element) == start + 1
    expect(element.locator("button[aria-label=Play]")).to_be_visible()


# ---- pointer ----


def test_the_track_scrubs(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    box = element.locator(".pw-track").bounding_box()
    assert box
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    for part in (0.25, 0.5, 0.75):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        page.wait_for_function(
            """wanted => { const track = document.querySelector(".pw-track");
                 return Math.abs(Number(track.getAttribute("aria-valuenow")) - wanted) < 4; }""",
            arg=1 + part * (LAST - 1),
        )
    page.mouse.move(box["x"] + 2 * box["width"], box["y"])
    expect(element.locator(".pw-track")).to_have_attribute("aria-valuenow", str(LAST))
    page.mouse.up()
    hash_of(page, f"#step-block-table&t={LAST}")


def test_the_code_follows_a_scrub_at_its_end(open_page: OpenPage) -> None:
    page = open_page("play/classic-v1/")
    element = player(page, "pagewalk-player")
    expect(element).to_have_attribute("data-state", "ready")
    trace = record(film("classic-v1"))
    own = trace.events_of(0)
    places = [
        i for i, n in enumerate(own) if trace.functions[trace.events[n].function].name == "paged_attention_kernel"
    ]
    shown = page.locator(".pw-line.pw-now")
    for place in places[50 : len(places) : len(places) // 4]:
        before = shown.get_attribute("value")
        # A move a frame, as a hand makes them that never rests (timers are held): the panes stay as they are, which is
        # what keeps it smooth.
        during = page.evaluate(
            """async place => { const player = document.querySelector("pagewalk-player");
                 const real = window.setTimeout;
                 let held = null;
                 window.setTimeout = wanted => { held = wanted; return 0; };
                 for (let i = place - 9; i <= place; i += 1) {
                   player.go(i, "scrub");
                   await new Promise(requestAnimationFrame);
                 }
                 const shown = document.querySelector(".pw-line.pw-now").getAttribute("value");
                 window.setTimeout = real;
                 held();
                 return shown; }""",
            place,
        )
        assert during == before
        line = trace.events[own[place]].line
        expect(shown).to_have_attribute("value", str(line))


@pytest.mark.parametrize("by", ["select", "cell"])
def test_another_thread_can_be_chosen_at_the_same_place(open_page: OpenPage, by: str) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    before = element.locator(".pw-told-line").text_content()
    if by == "select":
        element.locator("select[aria-label=Thread]").select_option(label="lane 7")
    else:
        element.locator(".pw-lane-cell").nth(7).click()
        expect(element.locator(".pw-track")).to_be_focused()
    expect(element.locator(".pw-lane-cell.pw-focus")).to_have_attribute("aria-label", re.compile("^lane 7"))
    assert element.locator(".pw-told-line").text_content() == before
    own = record(film("classic-v1")).events_of(7)
    expect(element.locator(".pw-track")).to_have_attribute("aria-valuemax", str(len(own)))
    hash_of(page, f"#step-block-table&t={moment(element)}&thread=7")


def test_the_first_lane_of_another_warp_can_be_chosen(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    element.locator("select[aria-label=Thread]").select_option(label="warp 2, lane 0")
    assert element.locator(".pw-lane-cell:disabled").count() == 31, "its other lanes were not recorded"
    page.keyboard.press("Home")
    element.locator(".pw-track").focus()
    page.keyboard.press("ArrowRight")
    hash_of(page, f"#step-block-table&t={moment(element)}&thread=64")


# ---- links to moments ----


def test_a_link_to_a_moment_restores_it(open_page: OpenPage) -> None:
    page = open_page(PAGE + "#step-qk-max&t=612")
    element = player(page, SECOND)
    expect(element).to_have_attribute("data-state", "ready")
    assert moment(element) == 612
    expect(page.locator("#pair-qk-max")).to_be_in_viewport()
    assert player(page).get_attribute("data-state") is None, "the other player stays closed"
    page.wait_for_timeout(1200)
    assert page.evaluate("location.hash") == "#step-qk-max&t=612", "the theme's own tracking does not lose it"


def test_a_link_to_a_moment_of_a_thread_restores_both(open_page: OpenPage) -> None:
    page = open_page(PAGE + "#step-qk-max&t=77&thread=9")
    element = player(page, SECOND)
    expect(element.locator(".pw-lane-cell.pw-focus")).to_have_attribute("aria-label", re.compile("^lane 9"))
    assert moment(element) == 77
    page.evaluate("location.hash = '#step-qk-max&t=78'")
    expect(element.locator(".pw-lane-cell.pw-focus")).to_have_attribute("aria-label", re.compile("^lane 0"))
    assert moment(element) == 78


def test_a_moment_beyond_the_film_is_its_last(open_page: OpenPage) -> None:
    page = open_page(PAGE + "#step-qk-max&t=99999&thread=12345")
    expect(player(page, SECOND)).to_have_attribute("data-state", "ready")
    assert moment(player(page, SECOND)) == LAST


def test_steps_are_written_to_the_address_without_history(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = open_player(page)
    length = page.evaluate("history.length")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    hash_of(page, f"#step-block-table&t={moment(element)}")
    assert page.evaluate("history.length") == length
    expect(element.locator("a.pw-play-link")).to_have_attribute("href", f"#step-block-table&t={moment(element)}")
    page.reload()
    page.wait_for_selector(f"{FIRST}[data-state=ready]")
    assert page.evaluate("location.hash") == f"#step-block-table&t={moment(player(page))}"


def test_the_themes_own_anchors_still_work(open_page: OpenPage) -> None:
    page = open_page(PAGE + "#step-block-table&t=60")
    expect(player(page)).to_have_attribute("data-state", "ready")
    page.locator(".md-nav--primary a", has_text="Where a key goes").first.click()
    expect(page.locator("#step-write-keys")).to_be_in_viewport()
    hash_of(page, "#step-write-keys")
    page.wait_for_timeout(1000)
    assert page.evaluate("location.hash") == "#step-write-keys"
    page.go_back()
    page.wait_for_timeout(300)  # time for what must not move it
    expect(player(page).locator(".pw-track")).to_have_attribute("aria-valuenow", "60")


# ---- navigation, and two at once ----


def test_instant_navigation_there_and_back_leaves_one_handler(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.evaluate("window.sameDocument = true")
    for _ in range(2):
        element = open_player(page)
        start = moment(element)
        page.keyboard.press("ArrowRight")
        assert moment(element) == start + 1, "two handlers would step twice"
        page.locator(".md-nav--primary .md-nav__link", has_text="Beta").first.click()
        page.wait_for_selector("#pair-again .pw-status", state="attached")
        assert page.evaluate("window.sameDocument") is True, "instant navigation must not load the page anew"
        assert page.locator("pagewalk-player").count() == 0
        page.locator(".md-nav--primary .md-nav__link", has_text="Gamma").first.click()
        page.wait_for_selector(FIRST)
    assert page.evaluate("window.sameDocument") is True


def test_a_player_that_plays_stops_when_its_page_goes(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    open_player(page)
    page.keyboard.press("Space")
    page.locator(".md-nav--primary .md-nav__link", has_text="Beta").first.click()
    page.wait_for_selector("#pair-again .pw-status", state="attached")
    page.wait_for_timeout(500)
    # The theme may still write the heading that it saw last; a moment is ours.
    assert "&t=" not in page.evaluate("location.hash"), "what has gone writes no address"


def test_two_players_go_their_own_ways(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    one, two = open_player(page), open_player(page, SECOND)
    first, second = moment(one), moment(two)
    page.keyboard.press("ArrowRight")
    assert (moment(one), moment(two)) == (first, second + 1)
    hash_of(page, f"#step-qk-max&t={second + 1}")
    one.locator(".pw-track").focus()
    page.keyboard.press("ArrowLeft")
    assert (moment(one), moment(two)) == (first - 1, second + 1)
    hash_of(page, f"#step-block-table&t={first - 1}")
    two.locator("summary").click()
    expect(page.locator("#pair-qk-max .pw-same")).to_have_count(0)
    expect(page.locator("#pair-block-table")).to_have_class(re.compile("pw-playing"))


# ---- for everyone ----


def test_one_polite_line_says_what_happened(open_page: OpenPage) -> None:
    page = open_page("play/copy-blocks/#copy-blocks&t=11")
    element = player(page, "pagewalk-player")
    expect(element).to_have_attribute("data-state", "ready")
    assert element.locator("[aria-live], [role=status]").count() == 1
    live = element.locator("[aria-live=polite]")
    expect(live).to_have_text(re.compile(r"^Reads key_cache\[\d+\] \(block \d, token \d, channel \d\): -?[\d.]+\.$"))
    element.locator("button[aria-label=Step]").click()
    expect(live).to_have_text(re.compile(r"^Writes -?[\d.]+ to key_cache\[\d+\] \(block \d, token \d, channel \d\)\.$"))
    track = element.get_by_role("slider", name="Moment")
    expect(track).to_have_attribute("aria-valuetext", f"12 of {track.get_attribute('aria-valuemax')}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [PAGE + "#step-block-table&t=71", "play/classic-v1/#classic-v1&t=271", "play/"])
def test_axe_finds_nothing_serious(open_page: OpenPage, scheme: str, path: str) -> None:
    page = open_page(path, color_scheme=scheme, reduced_motion="reduce")
    if "#" in path:
        page.wait_for_selector("pagewalk-player[data-state=ready]")
        page.locator("pagewalk-player[data-state=ready] button[aria-label=Keys]").click()
    found = Axe().run(page, context=".md-content").response["violations"]
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    said = [(v["id"], [node["target"] for node in v["nodes"]][:4]) for v in serious]
    assert said == []


@pytest.mark.parametrize("width", [320, 390, 820, 1440])
def test_no_width_scrolls_sideways(open_page: OpenPage, width: int) -> None:
    page = open_page(PAGE + "#step-block-table&t=71", viewport={"width": width, "height": 844})
    page.wait_for_selector(f"{FIRST}[data-state=ready]")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for part in (".pw-bar", ".pw-picture", ".pw-lanes", ".pw-vars"):
        box = player(page).locator(part).bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_the_gather_moves_between_reads(open_page: OpenPage) -> None:
    page = open_page(f"{PAGE}#step-block-table&t=70")
    element = player(page)
    expect(element).to_have_attribute("data-state", "ready")
    element.locator("button[aria-label=Step]").click()
    for part in (".pw-lit", ".pw-dot"):
        assert element.locator(f".pw-picture {part}").evaluate("n => getComputedStyle(n).transitionDuration") != "0s"
    page.evaluate("document.querySelector('pagewalk-player').go(300, 'jump')")
    duration = element.locator(".pw-picture .pw-dot").evaluate("n => getComputedStyle(n).transitionDuration")
    assert duration == "0s", "a jump does not fly across the picture"


def test_nothing_moves_where_motion_is_unwelcome(open_page: OpenPage) -> None:
    page = open_page(f"{PAGE}#step-block-table&t=70", reduced_motion="reduce")
    element = player(page)
    expect(element).to_have_attribute("data-state", "ready")
    element.locator("button[aria-label=Step]").click()
    for part in (".pw-lit", ".pw-dot"):
        assert element.locator(f".pw-picture {part}").evaluate("n => getComputedStyle(n).transitionDuration") == "0s"


@pytest.mark.parametrize("unfolded", [False, True])
def test_paper_shows_the_table(open_page: OpenPage, unfolded: bool) -> None:
    page = open_page(PAGE)
    if unfolded:
        open_player(page)
    page.emulate_media(media="print")
    table = player(page).locator("table.pw-moments")
    expect(table).to_be_visible()
    box = table.bounding_box()
    assert box
    assert box["height"] > 60
    expect(player(page).locator(".pw-stage:visible")).to_have_count(0)
    pane = page.locator("#pair-block-table .pw-upstream")
    assert pane.evaluate("n => n.scrollHeight - n.clientHeight") <= 1, "the panes are whole again"
    assert len(page.pdf()) > 10_000


def test_without_scripts_there_is_the_table(open_page: OpenPage) -> None:
    page = open_page(PAGE, java_script_enabled=False)
    element = player(page)
    element.locator("summary").click()
    assert element.locator("table.pw-moments tbody tr").count() >= 2
    assert element.locator("table.pw-moments").is_visible()
    assert page.locator(".pw-stage").count() == 0
    page.goto(page.url.split("walkthroughs")[0] + "play/classic-v1/")
    assert page.locator("table.pw-moments").is_visible()


def test_a_missing_film_is_told_and_the_table_stays(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.route("**/films/*.js", lambda route: route.abort())
    page.goto(address + PAGE)
    element = player(page)
    element.locator("summary").click()
    expect(element).to_have_attribute("data-state", "missing")
    expect(element.locator("[role=status]")).to_contain_text("pagewalk site build")
    expect(element.locator("table.pw-moments")).to_be_visible()
    page.unroute("**/films/*.js")
    element.locator("summary").click()
    element.locator("summary").click()
    expect(element).to_have_attribute("data-state", "ready")
    page.close()


def test_a_browser_that_cannot_unpack_says_so(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(address + PAGE)
    player(page).locator("summary").click()
    expect(player(page).locator("[role=status]")).to_contain_text("DecompressionStream")
    expect(player(page).locator("table.pw-moments")).to_be_visible()
    page.close()


def test_it_plays_from_disk(browser: Browser, address: str, built: Path) -> None:
    page = browser.new_page()
    page.goto((built / PAGE / "index.html").as_uri() + "#step-block-table&t=71")
    expect(player(page)).to_have_attribute("data-state", "ready")
    assert moment(player(page)) == 71
    expect(player(page).locator(".pw-told-what")).to_contain_text("Reads k_cache")
    assert page.locator(".pw-pair .pw-status").count() >= 3, "its lines light up too"
    page.close()
