"""The layout explorer in a browser: clicks, typing, keys, links, back from a byte, and the page without scripts."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from playwright.sync_api import Locator, Page, expect

from kernels.explorer import Geometry, explain, locate
from walkthroughs.cli import cli

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGE = "layout/"
TABLE = [7, 2, 5]


def field(page: Page, name: str) -> Locator:
    return page.locator(f"pagewalk-layout [name='{name}']")


def slider(page: Page, axis: str) -> Locator:
    return page.locator(f"[role=slider][data-axis='{axis}']")


def state(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("document.querySelector('pagewalk-layout').state")
    return found


def point(page: Page) -> tuple[int, int, int]:
    now = state(page)
    return now["token"], now["head"], now["channel"]


def says(page: Page) -> Locator:
    return page.locator(".pw-lx-say")


# -- what is shown


def test_the_page_says_what_python_says(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    found = explain("classic-v1", Geometry(), TABLE, 20, 3, 10)
    place = found.place("classic-k")
    expect(says(page)).to_have_text(
        "Token 20 is in logical block 1. block_table[1] is physical block 2. There it has offset 4, so its slot is 36. "
        f"In classic-k, K of its channel 10 is at byte {place.first}."
    )
    products = page.locator(".pw-lx-address tbody td:last-child").all_inner_texts()
    assert products == [str(term.product) for term in place.terms] + [str(place.element)]
    threads = page.locator(".pw-lx-loads b").all_inner_texts()
    assert [text for text in threads if text.startswith("Thread")] == [f"Thread {load.thread}" for load in found.loads]
    assert [text for text in threads if "sectors" in text] == ["8 sectors", "16 sectors"]
    assert page.locator(".pw-lx-strips > li").count() == len(found.places)
    expect(page.locator(".pw-lx-static")).to_be_hidden()


def test_one_element_is_lit_everywhere_and_the_sector_is_framed(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    strips = page.locator(".pw-lx-strip")
    for number in range(strips.count()):
        strip = strips.nth(number)
        assert strip.locator(".byte.own").count() == 1
        assert strip.locator(".sector").count() == 1
        assert strip.locator(".byte").count() == 64
        inside = strip.evaluate(
            """svg => {
            const own = svg.querySelector('.own').getBBox(), sector = svg.querySelector('.sector').getBBox();
            return own.x >= sector.x && own.x + own.width <= sector.x + sector.width; }"""
        )
        assert inside
    assert page.locator("[data-axis=token] .cell.own").count() == 1
    assert page.locator("[data-axis=channel] .cell.own").count() == 1
    assert page.locator("[data-axis=channel] .cell.group").count() == 7
    assert page.locator("[data-axis=head] .query.on").count() == 4
    for warp in page.locator(".pw-lx-warp").all():
        assert warp.locator("rect.lane").count() == 32
        assert warp.locator("rect.lane.own").count() == 1


def test_colours_of_a_strip_mean_what_the_legend_says(open_page: OpenPage) -> None:
    """Every cell of every strip, by the element that Python finds there."""
    page = open_page(PAGE + "?block-size=8&head-size=16&heads=3&kv-heads=3&table=4,0,2&token=9&head=1&channel=5")
    geometry, table = Geometry(8, 16, 3, 3), [4, 0, 2]
    found = explain("classic-v1", geometry, table, 9, 1, 5)
    met = set()
    for number, place in enumerate(found.places):
        cells = page.locator(".pw-lx-strip").nth(number).locator(".byte")
        styles = cells.evaluate_all("nodes => nodes.map(n => n.getAttribute('class').replace('byte ', ''))")
        goals = cells.evaluate_all("nodes => nodes.map(n => n.dataset.byte || '')")
        for at, style in enumerate(styles):
            byte = place.line * 128 + at * 2
            there = locate(place.layout, geometry, table, byte)
            if byte == place.first:
                wanted = "own"
            elif there.token is None:
                wanted = "free"
            elif there.kind != place.kind:
                wanted = "kin"
            elif there.head != 1:
                wanted = "far"
            elif there.token == 9:
                wanted = "token"
            else:
                wanted = "channel" if there.channel == 5 else "near"
            assert style == wanted, (place.layout, byte)
            assert goals[at] == ("" if there.token is None else str(byte))
            met.add(style)
    assert {"own", "kin", "far", "token", "channel", "near"} <= met


# -- clicking


def test_a_click_on_a_token_a_head_a_channel(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.locator("[data-axis=token] rect.cell[data-token='37']").click()
    assert point(page) == (37, 3, 10)
    page.locator("[data-axis=head] rect.entry[data-head='6']").click()
    page.locator("[data-axis=channel] rect[data-channel='99']").click()
    assert point(page) == (37, 6, 99)
    expect(says(page)).to_contain_text("Token 37 is in logical block 2. block_table[2] is physical block 5.")
    expect(field(page, "token")).to_have_value("37")
    expect(field(page, "head")).to_have_value("6")
    place = explain("classic-v1", Geometry(), TABLE, 37, 6, 99).place("classic-k")
    expect(field(page, "byte")).to_have_value(str(place.first))


def test_a_click_on_a_query_head_and_on_a_block_of_the_pool(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.locator("[data-axis=head] rect.query[data-head='5']").nth(2).click()
    assert point(page) == (20, 5, 10)
    page.locator("[data-axis=token] rect.block[data-token]").last.click()
    assert point(page) == (4, 5, 10), "the same place in physical block 7, which is logical block 0"
    assert page.locator("[data-axis=token] rect.block.free").count() == 5
    assert page.locator("[data-axis=token] rect.block.free[data-token]").count() == 0


def test_a_layout_is_chosen_by_its_button_which_keeps_the_focus(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    button = page.get_by_role("button", name="V NHD, K and V side by side")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(button).to_be_focused()
    assert page.locator("[aria-pressed=true]").count() == 1
    expect(page.locator(".pw-lx-address caption")).to_have_text("V in side-nhd")
    place = explain("classic-v1", Geometry(), TABLE, 20, 3, 10).place("side-nhd", "V")
    expect(field(page, "byte")).to_have_value(str(place.first))
    expect(page.locator(".pw-lx-notes")).to_contain_text("classic-v1 does not touch side-nhd.")


def test_a_click_on_a_cell_of_a_strip_goes_there(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    place = explain("classic-v1", Geometry(), TABLE, 20, 3, 10).place("classic-v")
    cell = page.locator(f".pw-lx-strip rect[data-in='classic-v'][data-byte='{place.sector * 32 + 30}']")
    cell.click()
    assert point(page) == (31, 3, 10), "fifteen neighbours in a V row are the block's other tokens"
    assert state(page)["layout"] == "classic-v"
    assert state(page)["stray"] is None


def test_a_click_on_a_lane_goes_to_what_it_loads(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.locator(".pw-lx-warp").first.locator("rect.lane").nth(17).click()
    token, head, channel = point(page)
    load = explain("classic-v1", Geometry(), TABLE, token, head, channel).loads[0]
    assert (load.lane, load.element, head) == (17, 0, 3)
    expect(page.locator(".pw-lx-loads").get_by_text(f"Thread {load.thread}", exact=True)).to_be_visible()


# -- typing


def test_sizes_and_table_by_typing(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    field(page, "block-size").fill("32")
    field(page, "table").fill("9 1,  4")
    field(page, "dtype").select_option("float32")
    field(page, "token").fill("70")
    geometry = Geometry(32, dtype="float32")
    found = explain("classic-v1", geometry, [9, 1, 4], 70, 3, 10)
    expect(field(page, "byte")).to_have_value(str(found.place("classic-k").first))
    assert page.locator(".pw-lx-loads b").first.inner_text() == f"Thread {found.loads[0].thread}"
    assert page.locator(".pw-lx-strip").first.locator(".byte").count() == 32


def test_a_model_sets_its_sizes_and_is_recognised(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    field(page, "model").select_option("Qwen2.5-7B")
    expect(field(page, "heads")).to_have_value("28")
    expect(field(page, "kv-heads")).to_have_value("4")
    expect(field(page, "dtype")).to_have_value("bfloat16")
    assert page.locator("[data-axis=head] .query.on").count() == 7
    field(page, "head-size").fill("64")
    field(page, "token").focus()
    expect(field(page, "model")).to_have_value("")


def test_a_kernel_brings_its_layout_and_its_missing_thread(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    field(page, "kernel").select_option("tiny-vllm")
    assert state(page)["layout"] == "tiny"
    expect(page.locator(".pw-lx-loads h3").first).to_have_text("tiny-vllm loads K (tiny)")
    expect(page.locator(".pw-lx-notes")).to_contain_text("tiny-vllm's own head_size is 64")
    field(page, "kernel").select_option("reshape-and-cache")
    field(page, "heads").fill("40")
    field(page, "kv-heads").fill("40")
    field(page, "head").fill("39")
    expect(page.locator(".pw-lx-missing")).to_have_count(2)
    expect(page.locator(".pw-lx-missing").first).to_contain_text("This element is not written.")
    field(page, "kernel").select_option("reshape-and-cache-flash")
    assert state(page)["layout"] == "nhd-k"
    assert page.locator(".pw-lx-loads h3").all_inner_texts() == ["reshape-and-cache-flash stores K (nhd-k)"]


WRONG = [
    ("block-size", "24", "block_size = 24: must divide the warp of 32 lanes or be a multiple of it."),
    ("block-size", "", "block_size = nothing: must be an integer from 1 to 256."),
    ("head-size", "100", "head_size = 100: must be divisible by x = 8."),
    ("heads", "30", "num_heads = 30: must be divisible by num_kv_heads = 8."),
    ("table", "7,2,7", "block_table[2] = 7: is there already, as entry 0; a sequence has a block once."),
    ("table", "7,x", "block_table[1] = x: must be an integer from 0 to 2147483647."),
    ("token", "48", "token = 48: must be an integer from 0 to 47: 3 blocks of 16 tokens."),
    ("head", "8", "head = 8: must be an integer from 0 to 7: a KV head."),
    ("channel", "-1", "channel = -1: must be an integer from 0 to 127."),
    ("byte", "262144", "byte = 262144: must be an integer from 0 to 262143: 8 blocks of 32768 bytes."),
]


def test_what_cannot_be_is_said_beside_its_field_and_the_last_answer_stays(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    error = page.locator(".pw-lx-error")
    expect(error).to_have_attribute("role", "alert")
    before = says(page).inner_text()
    for name, typed, message in WRONG:
        address, good = page.evaluate("location.href"), field(page, name).input_value()
        field(page, name).fill(typed)
        expect(error).to_have_text(message)
        assert page.locator("[aria-invalid]").evaluate_all("nodes => nodes.map(n => n.name)") == [name]
        assert says(page).inner_text() == before
        assert page.evaluate("location.href") == address
        field(page, name).fill(good)
        expect(error).to_have_text("")
        assert page.locator("[aria-invalid]").count() == 0


def test_a_smaller_table_moves_the_token_inside(open_page: OpenPage) -> None:
    page = open_page(PAGE + "?token=47&channel=127")
    field(page, "table").fill("3")
    assert point(page) == (15, 3, 127)
    field(page, "head-size").fill("64")
    assert point(page) == (15, 3, 63)


# -- keys


KEYS = [
    ("token", "ArrowRight", 21),
    ("token", "ArrowLeft", 20),
    ("token", "PageUp", 36),
    ("token", "PageDown", 20),
    ("token", "Home", 0),
    ("token", "End", 47),
    ("head", "ArrowUp", 4),
    ("head", "End", 7),
    ("channel", "PageUp", 18),
    ("channel", "ArrowDown", 17),
]


def test_sliders_by_keyboard(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    for axis, key, value in KEYS:
        slider(page, axis).focus()
        page.keyboard.press(key)
        assert state(page)[axis] == value
        expect(slider(page, axis)).to_have_attribute("aria-valuenow", str(value))
        expect(slider(page, axis)).to_be_focused()
        assert str(value) in (slider(page, axis).get_attribute("aria-valuetext") or "")


def test_the_ends_hold_and_other_keys_are_the_themes(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    slider(page, "head").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert state(page)["head"] == 7
    page.keyboard.press("/")
    expect(page.locator(".md-search__input")).to_be_focused()


def test_everything_can_be_reached_by_tab(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    field(page, "model").focus()
    seen = []
    for _ in range(40):
        seen.append(
            page.evaluate("(n => n.name || n.dataset.axis || n.dataset.layout || n.className)(document.activeElement)")
        )
        page.keyboard.press("Tab")
    for wanted in ("kernel", "table", "token", "head", "channel", "classic-k", "tiny", "byte"):
        assert wanted in seen, (wanted, seen)


# -- back from a byte


def test_a_typed_byte_moves_the_point(open_page: OpenPage) -> None:
    page = open_page(PAGE + "?layout=side-hnd")
    place = explain("classic-v1", Geometry(), TABLE, 33, 5, 77).place("side-hnd", "V")
    field(page, "byte").fill(str(place.first + 1))
    assert point(page) == (33, 5, 77)
    assert state(page)["kind"] == "V"
    expect(page.locator(".pw-lx-located")).to_have_text(
        "Byte 1 of V, KV head 5, channel 77, token 33. Physical block 5, offset 1, slot 81."
    )
    back = locate("side-hnd", Geometry(), TABLE, place.first)
    shown = page.locator(".pw-lx-back tbody td:nth-child(3)").all_inner_texts()
    assert shown == [str(step.index) for step in back.divisions]


def test_a_byte_of_a_strange_block_says_so_and_moves_nothing(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    field(page, "byte").fill("100000")
    assert locate("classic-k", Geometry(), TABLE, 100000).token is None
    assert point(page) == (20, 3, 10)
    expect(page.locator(".pw-lx-located")).to_contain_text("Block 3 is not in this block table")
    assert "byte=100000" in page.evaluate("location.search")
    slider(page, "token").focus()
    page.keyboard.press("ArrowRight")
    assert "byte" not in page.evaluate("location.search")
    assert state(page)["stray"] is None


# -- the address


def test_the_address_follows_and_restores(open_page: OpenPage, address: str) -> None:
    page = open_page(PAGE)
    assert page.evaluate("location.search") == "", "a page that nobody touched keeps its plain address"
    field(page, "kernel").select_option("classic-v2")
    field(page, "table").fill("12,3")
    page.locator("[data-axis=channel] rect[data-channel='77']").click()
    page.get_by_role("button", name="V Classic V").click()
    link = page.evaluate("location.href")
    assert "table=12,3" in link
    other = open_page(link.removeprefix(address))
    assert state(other) == state(page)
    assert says(other).inner_text() == says(page).inner_text()
    expect(field(other, "table")).to_have_value("12, 3")
    expect(field(other, "kernel")).to_have_value("classic-v2")


def test_a_link_to_a_byte(open_page: OpenPage) -> None:
    page = open_page(PAGE + "?layout=tiny&byte=140000")
    expect(field(page, "byte")).to_have_value("140000")
    found = locate("tiny", Geometry(), TABLE, 140000)
    expect(page.locator(".pw-lx-located")).to_contain_text(f"KV head {found.head}, channel {found.channel}")
    assert found.token is not None
    assert point(page) == (found.token, found.head, found.channel)


STRANGE = [
    ("token=99", "token = 99: must be an integer from 0 to 47"),
    ("kernel=nothing", "kernel = nothing: must be classic-v1"),
    ("dtype=int8", "dtype = int8: must be float32"),
    ("table=1,1", "block_table[1] = 1: is there already"),
    ("head=<b>x</b>", "head = <b>x</b>: must be an integer"),
    ("layout=constructor&kind=Q", ""),
]


def test_a_wrong_link_is_told_and_the_example_is_shown(open_page: OpenPage, address: str) -> None:
    page = open_page(PAGE)
    for query, message in STRANGE:
        page.goto(f"{address}{PAGE}?{query}")
        expect(page.locator(".pw-lx-error")).to_contain_text(message)
        assert point(page) == (20, 3, 10)
        assert page.locator(".pw-lx b b").count() == 0


def test_the_shown_command_says_the_same(open_page: OpenPage) -> None:
    page = open_page(PAGE + "?kernel=classic-v2&token=40&head=1&channel=3&layout=classic-v&kind=V")
    words = shlex.split(page.locator(".pw-lx-command code").inner_text())
    assert words[:2] == ["pagewalk", "layout"]
    done = CliRunner().invoke(cli, words[1:], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert f"thread {explain('classic-v2', Geometry(), TABLE, 40, 1, 3).loads[1].thread} =" in done.stdout
    field(page, "byte").fill("100000")
    words = shlex.split(page.locator(".pw-lx-command code").inner_text())
    assert words[-4:] == ["--byte", "100000", "--layout", "classic-v"]
    assert CliRunner().invoke(cli, words[1:]).exit_code == 0


def test_a_link_of_the_prose_asks_without_loading_the_page(open_page: OpenPage) -> None:
    page = open_page(PAGE, reduced_motion="reduce")
    page.evaluate("window.same = true")
    page.locator("a[data-lx]", has_text="Give tiny-vllm block 65536").click()
    assert page.evaluate("window.same") is True
    now = state(page)
    assert (now["kernel"], now["table"], now["layout"]) == ("tiny-vllm", [65535, 65536], "tiny")
    expect(page.locator(".pw-lx-notes")).to_contain_text("past 2^31")
    box = page.locator("pagewalk-layout").bounding_box()
    assert box
    assert abs(box["y"]) < 200
    assert "65536" in page.evaluate("location.search")


# -- the page around it


def test_instant_navigation_there_and_back(open_page: OpenPage) -> None:
    page = open_page("")
    page.evaluate("window.same = true")
    for _ in range(2):
        page.locator(".md-nav--primary .md-nav__link", has_text="Layout explorer").first.click()
        page.wait_for_selector("pagewalk-layout .pw-lx-strips li")
        assert page.locator(".pw-lx").count() == 1
        slider(page, "token").focus()
        page.keyboard.press("ArrowRight")
        assert state(page)["token"] == 21, "two handlers would move it by two"
        page.locator(".md-nav--primary .md-nav__link", has_text="Mental model").first.click()
        page.wait_for_selector("figure.pw-drawing")
        assert page.locator("pagewalk-layout").count() == 0
    assert page.evaluate("window.same") is True


QUERIES = ["", "?kernel=reshape-and-cache&heads=40&kv-heads=40&head=39&block-size=48&byte=5000"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page: OpenPage, address: str, scheme: str) -> None:
    page = open_page(PAGE, color_scheme=scheme)
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        for query in QUERIES if width == 1440 else QUERIES[:1]:
            page.goto(address + PAGE + query)
            # Thousands of cells of drawings, hidden from readers of the screen: axe would take a minute over them.
            context: Any = {"include": [["article"]], "exclude": [[".pw-lx-svg"]]}
            found = Axe().run(page, context=context, options={"preload": False}).response["violations"]
            assert [(one["id"], one["impact"], one["nodes"][0]["target"]) for one in found] == [], (width, query)


LARGE = [
    "",
    "?kernel=paged-2d&block-size=256&head-size=1024&table=2000000,5,1999999,3,77&token=700",
    "?kernel=paged-2d&kv-heads=64&heads=512&dtype=fp8",
]


@pytest.mark.parametrize("width", [320, 390, 820, 1440])
def test_nothing_sticks_out(open_page: OpenPage, address: str, width: int) -> None:
    page = open_page(PAGE, viewport={"width": width, "height": 844})
    for query in LARGE:
        page.goto(address + PAGE + query)
        expect(page.locator(".pw-lx-error")).to_have_text("")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        beyond = page.evaluate(
            """() => {
            const right = node => node.getBoundingClientRect().right, all = right(document.querySelector('.pw-lx'));
            return [...document.querySelectorAll('.pw-lx svg')].filter(node => right(node) > all + 8).length; }"""
        )
        assert beyond == 0


def test_a_narrower_window_draws_anew(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    before = page.locator(".pw-lx-warp").first.get_attribute("width")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("w => document.querySelector('.pw-lx-warp').getAttribute('width') !== w", arg=before)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_tap_on_a_phone(open_page: OpenPage) -> None:
    page = open_page(PAGE, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.locator("[data-axis=token] rect.cell[data-token='30']").tap()
    assert point(page)[0] == 30


def test_two_explorers_on_a_page_do_not_disturb_each_other(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.evaluate("document.querySelector('pagewalk-layout').after(document.createElement('pagewalk-layout'))")
    second = page.locator("pagewalk-layout").nth(1)
    second.locator("rect.cell[data-token='40']").click()
    assert page.evaluate("[...document.querySelectorAll('pagewalk-layout')].map(n => n.state.token)") == [20, 40]
    ids = page.evaluate("[...document.querySelectorAll('pagewalk-layout [id]')].map(n => n.id)")
    assert len(ids) == len(set(ids))


def test_without_scripts_the_worked_example_is_there(open_page: OpenPage) -> None:
    page = open_page(PAGE, java_script_enabled=False)
    expect(page.locator(".pw-lx-static")).to_be_visible()
    expect(page.get_by_text("Thread 40 does it: warp 1, lane 8.")).to_be_visible()
    assert page.locator(".pw-lx-static table:visible").count() == 6
    assert page.locator("form.pw-lx-form").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_paper_shows_the_chosen_element(open_page: OpenPage) -> None:
    page = open_page(PAGE + "?token=40")
    page.emulate_media(media="print")
    expect(page.locator(".pw-lx-form")).to_be_hidden()
    expect(says(page)).to_be_visible()
    expect(page.locator(".pw-lx-address table")).to_be_visible()
    assert len(page.pdf()) > 10_000
