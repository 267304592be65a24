"""The player in the browser, held against the trace: code, picture, lanes, variables, shared memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kernels.simt.trace import Event, State, Trace, Value
from walkthroughs.stepper.films import Film, film, join, record

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGE = "walkthroughs/gamma/"
FILMS = ("classic-v1", "classic-v2-reduce", "reshape-and-cache", "copy-blocks")


def opened(open_page: OpenPage, name: str, moment: int = 1, thread: int | None = None, **options: Any) -> Page:
    """A film's page at a moment, its player ready."""
    more = "" if thread is None else f"&thread={thread}"
    page = open_page(f"play/{name}/#{name}&t={moment}{more}", **{"reduced_motion": "reduce", **options})
    page.wait_for_selector("pagewalk-player[data-state=ready]")
    return page


def go(page: Page, moment: int) -> None:
    page.evaluate("moment => document.querySelector('pagewalk-player').go(moment - 1, 'jump')", moment)


@cache
def own(name: str, thread: int = 0) -> list[int]:
    trace = record(film(name))
    return list(trace.events_of(thread))


def some(name: str, count: int, thread: int = 0) -> list[int]:
    """Moments all along a film, the first and the last among them."""
    last = len(own(name, thread))
    return sorted({1, last, *(1 + i * (last - 1) // count for i in range(count))})


def path_of(trace: Trace, event: Event) -> str:
    return trace.files[trace.functions[event.function].file].path


def said(value: Value | None, digits: int) -> str:
    """A value as the page shows it: floats in few digits."""
    if value is None:
        return ""
    if value.type == "bool":
        return str(value.data).lower()
    if not isinstance(value.data, float) or not math.isfinite(value.data):
        return str(value.data)
    return javascript(float(f"{value.data:.{digits - 1}e}"))


def javascript(number: float) -> str:
    """A finite number as JavaScript writes it: no exponent from 1e-6 up to 1e21."""
    exact = Decimal(repr(number)).normalize()
    if not number:
        return "0"
    if 1e-6 <= abs(number) < 1e21:
        return f"{exact:f}"
    sign, digits, power = exact.as_tuple()
    assert isinstance(power, int)
    text = "".join(map(str, digits))
    body = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' * sign}{body}e{power + len(text) - 1:+d}"


# ---- code ----


def concept_shown(page: Page, wanted: Film, path: str, line: int) -> str | None:
    """The innermost concept of a port line with lines on both sides of the page's panes; else the innermost of all."""
    sides: dict[str, set[str]] = {}
    for side, links in page.evaluate(
        """() => [...document.querySelectorAll(".pw-line")].map(line =>
             [line.closest(".pw-side").className, line.dataset.links || ""])"""
    ):
        for link in links.split():
            sides.setdefault(link, set()).add(side)
    known = [name for name in join(wanted).concepts_at(path, line) if name in sides]
    return next((name for name in known if len(sides[name]) == 2), known[0] if known else None)


@pytest.mark.parametrize("name", FILMS)
def test_the_line_that_runs_and_its_concept_are_lit_on_both_sides(open_page: OpenPage, name: str) -> None:
    page = opened(open_page, name)
    trace = record(film(name))
    checked = 0
    for moment in some(name, 12):
        go(page, moment)
        event = trace.events[own(name)[moment - 1]]
        path = path_of(trace, event) if event.function >= 0 else ""
        now = page.locator(".pw-line.pw-now").evaluate_all(
            "nodes => nodes.map(n => [n.closest('.pw-pane').dataset.path, n.value])"
        )
        shown = page.locator(f".pw-pane[data-path='{path}'] .pw-line[value='{event.line}']").count()
        assert now == ([[path, event.line]] if shown else [])
        concept = concept_shown(page, film(name), path, event.line)
        same = set(page.locator(".pw-line.pw-same").evaluate_all("nodes => nodes.map(n => n.id)"))
        wanted = set(page.locator(f".pw-line[data-links~='{concept}']").evaluate_all("nodes => nodes.map(n => n.id)"))
        assert same == wanted
        checked += len(same)
    assert checked > 20


def test_panes_scroll_to_the_line_and_the_page_stays(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v1")
    top = page.evaluate("scrollY")
    trace = record(film("classic-v1"))
    seen = set()
    for moment in some("classic-v1", 10):
        go(page, moment)
        line = page.locator(".pw-line.pw-now")
        if line.count():
            pane, box = line.locator("xpath=ancestor::figure").bounding_box(), line.bounding_box()
            assert pane
            assert box
            assert pane["y"] <= box["y"]
            assert box["y"] + box["height"] <= pane["y"] + pane["height"] + 1
            seen.add(trace.events[own("classic-v1")[moment - 1]].line)
    assert len(seen) > 5
    assert page.evaluate("scrollY") == top


def test_of_several_files_the_one_that_runs_is_in_front(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v1")
    assert page.locator(".pw-side-port .pw-pane").count() > 2
    for moment in some("classic-v1", 8):
        go(page, moment)
        for side in ("port", "upstream"):
            assert page.locator(f".pw-side-{side} .pw-pane:visible").count() == 1
    page.locator("details.pw-play > summary").click()
    expect(page.locator(".pw-side-port .pw-pane:visible").nth(2)).to_be_visible()
    assert page.locator(".pw-now, .pw-same, .pw-away").count() == 0


def test_a_steps_own_panes_are_driven(open_page: OpenPage) -> None:
    page = open_page(PAGE + "#step-block-table&t=56", reduced_motion="reduce")
    page.wait_for_selector("pagewalk-player[data-state=ready]")
    trace = record(film("classic-v1"))
    joined = join(film("classic-v1"))

    def concepts(number: int) -> tuple[str, ...]:
        return joined.concepts_at(path_of(trace, trace.events[number]), trace.events[number].line)

    moment = next(place + 1 for place, n in enumerate(own("classic-v1")) if "block-table-lookup" in concepts(n))
    go(page, moment)
    line = trace.events[own("classic-v1")[moment - 1]].line
    expect(page.locator("#pair-block-table .pw-side-port .pw-now")).to_have_attribute("value", str(line))
    assert page.locator("#pair-block-table .pw-side-upstream .pw-same").count() >= 1
    assert page.locator("#pair-qk-max .pw-same").count() == 0


# ---- the picture ----


def pool_place(wanted: Film, trace: Trace, event: Event) -> str | None:
    """The slot of an access as the picture names it: block, K or V, token."""
    if event.kind not in ("read", "write", "vector", "atomic"):
        return None
    info = trace.arrays[event.array]
    pool = next((p for p in wanted.scene.pools if info.space == "global" and p.array == info.name), None)
    if pool is None:
        return None
    where = pool.where(event.index)
    letter = "KV"[where["kv"]] if "kv" in where else "V" if pool.array.startswith("v") else "K"
    return f"{where['block']} {letter} {where['token']}"


@pytest.mark.parametrize("name", ["classic-v1", "reshape-and-cache", "copy-blocks"])
def test_the_slot_of_each_access_is_lit(open_page: OpenPage, name: str) -> None:
    page = opened(open_page, name)
    trace, wanted = record(film(name)), film(name)
    moments = [m + 1 for m, n in enumerate(own(name)) if pool_place(wanted, trace, trace.events[n])]
    assert len(moments) >= 4
    for moment in moments[:: max(1, len(moments) // 12)]:
        go(page, moment)
        place = pool_place(wanted, trace, trace.events[own(name)[moment - 1]])
        under = page.evaluate(
            """() => { const box = document.querySelector(".pw-picture .pw-lit").getBoundingClientRect();
                 const x = box.left + box.width / 2, y = box.top + box.height / 2;
                 const holds = b => b.left < x && x < b.right && b.top < y && y < b.bottom;
                 return [...document.querySelectorAll(".pw-slot")]
                   .filter(slot => holds(slot.getBoundingClientRect())).map(slot => slot.dataset.slot); }"""
        )
        assert under == [place]
        mark = page.locator(".pw-picture .pw-lit")
        assert "pw-past" not in (mark.get_attribute("class") or "")
        writes = trace.events[own(name)[moment - 1]].kind == "write"
        assert ("pw-write" in (mark.get_attribute("class") or "")) == writes


def test_the_table_entry_is_lit_and_an_arrow_leads_to_its_block(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v1")
    trace, scene = record(film("classic-v1")), film("classic-v1").scene
    table = next(n for n, a in enumerate(trace.arrays) if a.name == scene.table)
    reads = [
        (place + 1, trace.events[n])
        for place, n in enumerate(own("classic-v1"))
        if trace.events[n].kind == "read" and trace.events[n].array == table
    ]
    assert len(reads) >= 2
    for moment, event in reads:
        go(page, moment)
        lit = page.locator(".pw-entry").evaluate_all(
            "nodes => nodes.map((n, i) => n.classList.contains('pw-reading') ? i : -1).filter(i => i >= 0)"
        )
        assert lit == [event.index - scene.row[0]]
        assert event.value is not None
        text = page.locator(".pw-entry").nth(lit[0]).locator("text").nth(1)
        expect(text).to_have_text(str(event.value.data))
        # The arrow ends level with the block that the entry names.
        ends = page.evaluate(
            """block => { const edge = document.querySelector(".pw-edge").getBoundingClientRect();
                 const slots = [...document.querySelectorAll(`[data-slot^="${block} "]`)];
                 const boxes = slots.map(slot => slot.getBoundingClientRect());
                 const first = Math.min(...boxes.map(b => b.top)), last = Math.max(...boxes.map(b => b.bottom));
                 return [edge.bottom, edge.top, first, last];
               }""",
            event.value.data,
        )
        bottom, top, first, last = ends
        assert first <= bottom <= last + 5 or first - 5 <= top <= last
        go(page, moment + 1)
        assert page.locator(".pw-entry.pw-held").count() == 1


def test_slots_that_the_warp_has_read_stay_tinted(open_page: OpenPage) -> None:
    page = opened(open_page, "reshape-and-cache")
    go(page, 1)
    assert page.locator(".pw-slot.pw-seen").count() == 0
    go(page, len(own("reshape-and-cache")))
    trace, wanted = record(film("reshape-and-cache")), film("reshape-and-cache")
    touched = {place for event in trace.events if (place := pool_place(wanted, trace, event))}
    seen = set(page.locator(".pw-slot.pw-seen").evaluate_all("nodes => nodes.map(n => n.dataset.slot)"))
    assert seen == touched != set()


def test_a_film_without_a_pool_has_no_picture(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v2-reduce")
    assert page.locator(".pw-picture").count() == 0
    expect(page.locator(".pw-lanes")).to_be_visible()


# ---- values ----


def frame_of(trace: Trace, number: int, thread: int) -> tuple[dict[str, Value], State]:
    state = trace.state(number + 1)
    return state.threads[thread].variables, state


@pytest.mark.parametrize("name", FILMS)
def test_variables_are_those_of_the_trace_and_the_changed_ones_are_marked(open_page: OpenPage, name: str) -> None:
    page = opened(open_page, name)
    trace = record(film(name))
    marked = 0
    for moment in some(name, 14):
        go(page, moment)
        number = own(name)[moment - 1]
        event = trace.events[number]
        shown = dict(
            page.locator(".pw-var").evaluate_all(
                "nodes => nodes.map(n => [n.querySelector('dt').textContent, n.querySelector('dd').textContent])"
            )
        )
        variables, _ = frame_of(trace, number, 0)
        plain = {key: said(value, 6) for key, value in variables.items() if value.type != "array"}
        assert {key: text for key, text in shown.items() if key in plain} == plain
        unset = {key for key, text in shown.items() if text == "–"}
        assert not unset & set(variables)
        changed = page.locator(".pw-var.pw-changed dt").all_text_contents()
        wanted = [key for key, _ in event.changed] if event.kind != "return" else []
        assert set(changed) == set(wanted) & set(shown)
        marked += len(changed)
    assert marked > 3


@pytest.mark.parametrize(("name", "thread"), [("classic-v1", 0), ("classic-v2-reduce", 0), ("reshape-and-cache", 3)])
def test_lanes_show_their_own_value_of_a_variable(open_page: OpenPage, name: str, thread: int) -> None:
    page = opened(open_page, name, 1, thread)
    trace = record(film(name))
    choices = page.locator(".pw-play-variable option").evaluate_all("nodes => nodes.map(n => n.value)")
    variable = next(v for v in ("token_idx", "i", "mask", *choices) if v in choices and v)
    page.locator(".pw-play-variable").select_option(variable)
    lines = [m + 1 for m, n in enumerate(own(name, thread)) if trace.events[n].kind == "line"]
    assert lines
    masked = 0
    for moment in lines[:: max(1, len(lines) // 8)]:
        go(page, moment)
        event = trace.events[own(name, thread)[moment - 1]]
        spot = (event.function, event.line)
        before = [trace.events[n] for n in own(name, thread)[:moment]]
        count = sum(e.kind == "line" and (e.function, e.line) == spot for e in before)
        cells = page.locator(".pw-lane-cell").evaluate_all(
            "nodes => nodes.map(n => [n.classList.contains('pw-off'), n.querySelector('.pw-lane-value').textContent])"
        )
        for lane in range(32):
            here = [n for n, t in enumerate(trace.threads) if t.number == lane]
            visits = [
                n
                for n in (trace.events_of(here[0]) if here else [])
                if trace.events[n].kind == "line" and (trace.events[n].function, trace.events[n].line) == spot
            ]
            off = len(visits) < count
            assert cells[lane][0] == off, f"moment {moment}, lane {lane}"
            masked += off
            if not off:
                frames = trace.state(visits[count - 1] + 1).threads[here[0]].frames
                held = next((f.variables[variable] for f in reversed(frames) if variable in f.variables), None)
                assert cells[lane][1] == said(held, 4)
    if name == "reshape-and-cache":
        assert masked >= 16, "its block has 16 threads"


def test_at_a_read_every_lane_shows_what_it_reads(open_page: OpenPage) -> None:
    page = opened(open_page, "copy-blocks")
    trace = record(film("copy-blocks"))
    moment = next(m + 1 for m, n in enumerate(own("copy-blocks")) if trace.events[n].kind == "read"
                  and trace.arrays[trace.events[n].array].name == "key_cache")  # fmt: skip
    go(page, moment)
    expect(page.locator(".pw-warp .pw-play-what")).to_have_text("reads key_cache")
    shown = page.locator(".pw-lane-value").all_text_contents()[:16]
    wanted = []
    for lane in range(16):
        reads = [trace.events[n] for n in trace.events_of(lane) if trace.events[n].kind == "read"]
        value = next(e.value for e in reads if trace.arrays[e.array].name == "key_cache")
        wanted.append(said(value, 4))
    assert shown == wanted
    assert len(set(wanted)) > 8


def test_what_runs_along_is_pulled_out(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v1")
    trace = record(film("classic-v1"))
    names = list(film("classic-v1").scene.running)
    assert page.locator(".pw-run-name").all_text_contents() == names
    told = set()
    for moment in some("classic-v1", 16):
        go(page, moment)
        frames = trace.state(own("classic-v1")[moment - 1] + 1).threads[0].frames
        shown = page.locator(".pw-run-value").all_text_contents()
        for name, text in zip(names, shown, strict=True):
            held = next((f.variables[name] for f in reversed(frames) if name in f.variables), None)
            if held is None:
                assert text == "–"
            elif held.type != "array":
                assert text == said(held, 6)
            told.add(text)
    assert len(told) > 4


def test_shared_memory_is_shown_as_seen(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v2-reduce")
    trace = record(film("classic-v2-reduce"))
    names = [info.name for info in trace.arrays if info.space == "shared"]
    assert page.locator(".pw-shared h5").all_text_contents() == names
    go(page, 1)
    assert page.locator(".pw-cells .pw-has").count() == 0
    go(page, len(own("classic-v2-reduce")))
    for place, name in enumerate(names):
        array = next(n for n, info in enumerate(trace.arrays) if info.name == name and info.space == "shared")
        cells = trace.state(len(trace)).cells(array)
        shown = page.locator(".pw-shared").nth(place).locator(".pw-cells span").all_text_contents()
        assert {i: text for i, text in enumerate(shown) if text != "·"} == {i: said(v, 4) for i, v in cells.items()}
        assert cells


def test_few_digits_are_shown_and_hover_tells_all(open_page: OpenPage) -> None:
    page = opened(open_page, "classic-v1", len(own("classic-v1")) // 2)
    scale = page.locator(".pw-var", has_text="scale").first.locator("dd")
    text, title = scale.text_content() or "", scale.get_attribute("title") or ""
    assert len(text.replace("0.", "")) <= 6
    assert title.startswith("float32 0.17677")
    assert len(title) > len("float32 ") + len(text)
