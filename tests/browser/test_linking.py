"""Lines that belong together light up together: by mouse, keyboard and finger."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGE = "walkthroughs/alpha/"


def line(page: Page, side: str, number: int, scope: str = "loop") -> Locator:
    return page.locator(f"#src-{scope}-{side}-L{number}")


def lit(page: Page, scope: str = "loop") -> tuple[list[int], list[int]]:
    """The numbers of the lit lines, left and right; and nothing may be lit in any other pair."""
    sides = []
    for side in ("u", "p"):
        numbers = page.locator(f"[id^='src-{scope}-{side}-L'].pw-on").evaluate_all("nodes => nodes.map(n => n.value)")
        sides.append([int(number) for number in numbers])
    assert page.locator(".pw-on.pw-line").count() == len(sides[0]) + len(sides[1])
    return sides[0], sides[1]


def spans(sample: ModuleType, concept: str) -> tuple[list[int], list[int]]:
    def numbers(ranges: list[tuple[int, int]]) -> list[int]:
        return [n for first, last in ranges for n in range(first, last + 1)]

    return numbers(sample.LEFT_SPANS.get(concept, [])), numbers(sample.RIGHT_SPANS.get(concept, []))


def hover(target: Locator) -> None:
    target.hover(position={"x": 90, "y": 6})


@pytest.mark.parametrize(
    ("side", "number", "concept"),
    [
        ("u", 4, "toy-loop"),
        ("u", 5, "toy-lookup"),
        ("p", 6, "toy-lookup"),
        ("u", 20, "toy-product"),
        ("p", 5, "toy-loop"),
    ],
)
def test_hover_lights_the_innermost_concept_on_both_sides(
    open_page: OpenPage, sample: ModuleType, side: str, number: int, concept: str
) -> None:
    page = open_page(PAGE)
    hover(line(page, side, number))
    assert lit(page) == spans(sample, concept)


def test_a_line_whose_own_concept_has_no_partner_takes_the_next_one_out(
    open_page: OpenPage, sample: ModuleType
) -> None:
    page = open_page(PAGE)
    hover(line(page, "u", 35))
    assert lit(page) == spans(sample, "toy-loop")


def test_leaving_puts_the_light_out(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    hover(line(page, "u", 5))
    page.locator("h1").hover()
    assert lit(page) == ([], [])


def test_other_pairs_of_the_page_stay_dark(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    hover(line(page, "u", 37, "write"))
    assert lit(page, "write") == spans(sample, "toy-write")


def test_a_lit_line_has_a_bar_and_not_only_a_colour(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    target = line(page, "p", 6)
    before = target.evaluate("n => getComputedStyle(n).boxShadow")
    hover(line(page, "u", 5))
    after = target.evaluate("n => getComputedStyle(n).boxShadow")
    assert before == "none"
    assert "inset" in after


def test_the_other_pane_brings_the_partner_into_view(open_page: OpenPage) -> None:
    page = open_page(PAGE, reduced_motion="reduce", viewport={"width": 1440, "height": 480})
    right = page.locator("#pair-loop .pw-port")
    right.evaluate("pane => { pane.scrollTop = pane.scrollHeight; }")
    top = page.evaluate("scrollY")
    hover(line(page, "u", 5))
    page.wait_for_function("document.querySelector('#pair-loop .pw-port').scrollTop < 40")
    pane, partner = right.bounding_box(), line(page, "p", 6).bounding_box()
    assert pane
    assert partner
    assert pane["y"] < partner["y"] < pane["y"] + pane["height"]
    assert page.evaluate("scrollY") == pytest.approx(top, abs=900), "the page itself must not be scrolled by a partner"


def test_the_status_line_says_how_many_and_which(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    status = page.locator("#pair-loop .pw-status")
    expect(status).to_have_attribute("aria-live", "polite")
    hover(line(page, "u", 5))
    expect(status).to_have_text("2 lines linked: Looking a piece up")
    hover(line(page, "u", 4))
    left, right = spans(sample, "toy-loop")
    expect(status).to_have_text(f"{len(left) + len(right)} lines linked: The loop over the `toy` pieces")


def test_only_the_first_line_of_a_run_is_a_tab_stop(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    stops = page.locator("#pair-loop .pw-upstream .pw-line[tabindex='0']").evaluate_all(
        "nodes => nodes.map(n => n.value)"
    )
    assert stops == [4, 5, 6, 35, 36, 37] or stops == [4, 5, 6, 35, 36]


def tab_to(page: Page, wanted: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == wanted:
            return
    raise AssertionError(f"Tab never reached {wanted}")


def test_keyboard_only(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    tab_to(page, "src-loop-u-L4")
    assert lit(page) == spans(sample, "toy-loop")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.id") == "src-loop-u-L5"
    assert lit(page) == spans(sample, "toy-lookup")
    page.keyboard.press("Enter")
    expect(page.locator("#pair-loop")).to_have_class("pw-pair pw-pinned")
    page.keyboard.press("ArrowDown")
    assert lit(page) == spans(sample, "toy-lookup"), "what is kept stays lit"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    assert lit(page) == ([], [])
    page.keyboard.press("Space")
    assert lit(page) == spans(sample, "toy-loop")
    page.keyboard.press("Space")
    assert lit(page) == ([], [])


def test_the_focused_line_is_marked_and_told_how(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    tab_to(page, "src-loop-u-L4")
    focused = line(page, "u", 4)
    assert focused.evaluate("n => getComputedStyle(n).outlineStyle") == "solid"
    hint = page.locator(f"#{focused.get_attribute('aria-describedby')}")
    assert "Enter" in (hint.text_content() or "")


def test_tabbing_out_puts_the_light_out(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    tab_to(page, "src-loop-u-L4")
    page.locator(".md-logo").first.focus()
    assert lit(page) == ([], [])


def test_a_click_keeps_the_lines_lit_until_the_next(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    line(page, "u", 20).click(position={"x": 90, "y": 6})
    page.locator("h1").hover()
    assert lit(page) == spans(sample, "toy-product")
    line(page, "p", 6).click(position={"x": 90, "y": 6})
    assert lit(page) == spans(sample, "toy-lookup")
    line(page, "p", 6).click(position={"x": 90, "y": 6})
    page.locator("h1").hover()
    assert lit(page) == ([], [])


def test_copying_text_is_not_a_click(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    box = line(page, "p", 9).bounding_box()
    assert box
    page.mouse.move(box["x"] + 90, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 8, steps=4)
    page.mouse.up()
    assert page.evaluate("String(getSelection())")
    assert page.locator(".pw-pinned").count() == 0


def test_copied_code_has_no_line_numbers(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    page.locator("#pair-loop .pw-port .pw-code").evaluate("n => getSelection().selectAllChildren(n)")
    copied = page.evaluate("String(getSelection())").splitlines()
    assert copied[0] == sample.RIGHT.splitlines()[2]


def test_a_concept_under_the_panes_lights_its_lines(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    page.locator("a.pw-chip[data-pair='pair-loop'][data-concept='toy-lookup']").hover()
    assert lit(page) == spans(sample, "toy-lookup")
    page.locator("h1").hover()
    assert lit(page) == ([], [])


def test_the_search_key_of_the_theme_still_works(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    tab_to(page, "src-loop-u-L4")
    page.keyboard.press("/")
    expect(page.locator(".md-search__input")).to_be_focused()


def test_tap_on_a_narrow_screen(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    target = line(page, "p", 6)
    target.scroll_into_view_if_needed()
    target.tap(position={"x": 90, "y": 6})
    assert lit(page) == spans(sample, "toy-lookup")
    target.tap(position={"x": 90, "y": 6})
    assert lit(page) == ([], [])


def test_instant_navigation_there_and_back(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(PAGE)
    page.evaluate("window.sameDocument = true")
    for name, scope, last in (("Beta", "again", 4), ("Alpha & the toy", "loop", 4), ("Beta", "again", 4)):
        page.locator(".md-nav--primary .md-nav__link", has_text=name).first.click()
        page.wait_for_selector(f"#pair-{scope} .pw-status", state="attached")
        assert page.evaluate("window.sameDocument") is True, "instant navigation must not load the page anew"
        assert page.locator(f"#pair-{scope} .pw-status").count() == 1
        assert page.locator(f"#pair-{scope}-keys").count() == 1
        tab_to(page, f"src-{scope}-u-L{last}")
        page.keyboard.press("Enter")
        assert lit(page, scope) == spans(sample, "toy-loop"), "two handlers would pin and unpin"
        page.keyboard.press("Escape")
        assert lit(page, scope) == ([], [])
        page.mouse.move(5, 5)
