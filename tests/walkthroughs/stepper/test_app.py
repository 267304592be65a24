"""The stepper's keys in Textual's hands: what a reader presses, and what then stands on the screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.step import Walkthrough
from walkthroughs.stepper.app import PANES, Stepper
from walkthroughs.stepper.code_pane import CodePane
from walkthroughs.stepper.progress import load
from walkthroughs.stepper.session import Session

from .screens import screen_of  # isort: skip

NARROW, WIDE = (80, 24), (140, 45)
LOOKUP, ADDRESS, HOST = "paged-reference/lookup", "vllm-classic/k-address", "vllm-classic/padded-rows"
Press = Callable[..., Awaitable[None]]


@pytest.fixture
def app(walkthroughs: dict[str, Walkthrough], state: Path) -> Callable[[str], Stepper]:
    return lambda step: Stepper(Session(walkthroughs), step, state)


def moment(app: Stepper) -> int:
    view = app.session.view()
    assert view is not None
    return view.moment


def test_the_story_comes_first_and_a_move_leads_to_the_code(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        start = moment(pilot.app)
        assert "Read through the table" in screen_of(pilot.app)
        assert not pilot.app.query_one("#port").display
        await press(pilot, "right")
        assert moment(pilot.app) == start + 1
        assert pilot.app.query_one("#port").display
        assert f"moment {start + 1}/" in screen_of(pilot.app)
        await press(pilot, "left", "left")
        assert moment(pilot.app) == start - 1

    hands(app(LOOKUP), NARROW, use)


@pytest.mark.parametrize(
    ("key", "move"),
    [
        ("right", "forward"),
        ("left", "backward"),
        ("right_square_bracket", "next_line"),
        ("left_square_bracket", "previous_line"),
        ("i", "next_iteration"),
        ("b", "next_barrier"),
    ],
)
def test_each_key_makes_its_move(
    app: Any, hands: Any, press: Press, walkthroughs: dict[str, Walkthrough], key: str, move: str
) -> None:
    expected = Session(walkthroughs)
    expected.go(ADDRESS)
    expected.move(move)

    async def use(pilot: Any) -> None:
        await press(pilot, key)
        assert pilot.app.session.view() == expected.view()
        assert pilot.app.session.remark == expected.remark

    hands(app(ADDRESS), WIDE, use)


def test_home_end_and_back_to_the_step(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        start = moment(pilot.app)
        await press(pilot, "end")
        assert moment(pilot.app) == pilot.app.session.player.last
        assert "is done" in screen_of(pilot.app)
        await press(pilot, "right")
        assert "end of the run" in screen_of(pilot.app)
        await press(pilot, "home")
        assert moment(pilot.app) == 0
        assert "has not begun" in screen_of(pilot.app)
        await press(pilot, "r")
        assert moment(pilot.app) == start

    hands(app(LOOKUP), WIDE, use)


def test_next_and_previous_step(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right", "right")
        here = moment(pilot.app)
        await press(pilot, "n")
        assert pilot.app.session.step.id == "paged-reference/tail"
        assert "The last block is only partly full" in screen_of(pilot.app)
        await press(pilot, "p")
        assert pilot.app.session.step.id == LOOKUP
        assert moment(pilot.app) == here
        for _ in range(4):
            await press(pilot, "p")
        assert pilot.app.session.step.id == "paged-reference/dense"
        assert "first step" in screen_of(pilot.app)

    hands(app(LOOKUP), NARROW, use)


def test_the_keys_are_listed(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "question_mark")
        text = screen_of(pilot.app)
        assert "next iteration" in text
        assert "next barrier" in text
        await press(pilot, "escape")
        assert "next barrier" not in screen_of(pilot.app)
        assert pilot.app.is_running

    hands(app(LOOKUP), NARROW, use)


def test_a_hint_says_what_to_look_at_and_what_was_checked(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "h")
        title, summary = pilot.app.session.hints()[0]
        text = " ".join(screen_of(pilot.app).replace("│", " ").split())
        assert title in text
        assert summary[:30] in text
        await press(pilot, "q")
        assert pilot.app.is_running

    hands(app(LOOKUP), WIDE, use)


def test_the_list_of_steps_opens_another(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "l")
        text = screen_of(pilot.app)
        assert "▶" in text
        assert "The answer to keep" in text
        await press(pilot, "down", "enter")
        assert pilot.app.session.step.id == "paged-reference/tail"
        await press(pilot, "l", "escape")
        assert pilot.app.session.step.id == "paged-reference/tail"

    hands(app(LOOKUP), WIDE, use)


def test_run_to_a_line(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        line = pilot.app.session.view().line
        await press(pilot, "right", "g", *str(line), "enter")
        assert pilot.app.session.view().line == line
        await press(pilot, "g", *"zzz", "enter")
        assert "give a line's number" in screen_of(pilot.app)
        await press(pilot, "g", "escape")
        assert pilot.app.session.view().line == line

    hands(app(LOOKUP), NARROW, use)


def test_a_click_on_a_line_runs_to_it(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right")
        port = pilot.app.query_one("#port", CodePane)
        here = pilot.app.session.view().line
        history = pilot.app.session.player.shot.history
        later = (history.line(at) for at in range(moment(pilot.app), len(history)))
        wanted = next(line for line in later if line > here)
        row = port._first[wanted] - port.scroll_offset.y
        await pilot.click(port, offset=(20, row + 1))
        await pilot.pause()
        assert pilot.app.session.view().line == wanted

    hands(app(LOOKUP), WIDE, use)


def test_another_thread_and_block(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "t", *"1/5", "enter")
        view = pilot.app.session.view()
        assert (view.block, view.thread) == ((1, 0, 0), 5)
        assert "block 1,0,0  thread 5" in screen_of(pilot.app)
        await press(pilot, "t", *"70", "enter")
        assert pilot.app.session.view().lanes.warp == 2
        await press(pilot, "t", *"9/1", "enter")
        assert "the launch has 4" in screen_of(pilot.app)
        assert pilot.app.session.view().thread == 70

    hands(app(ADDRESS), WIDE, use)


def test_watch_a_variable(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right", "w", *"token_idx", "enter")
        assert pilot.app.session.watches == ["token_idx"]
        assert "watched" in screen_of(pilot.app)
        await press(pilot, "v", *"lane", "enter")
        assert pilot.app.session.view().lanes.title == "lane"

    hands(app(ADDRESS), WIDE, use)


def test_panes_by_number_and_tab(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        for number, name in enumerate(PANES, start=1):
            await press(pilot, str(number))
            assert pilot.app.query_one(f"#{name}").has_class("-chosen")
            assert pilot.app.query_one(f"#{name}").display
        await press(pilot, "tab")
        assert pilot.app.query_one("#story").has_class("-chosen")
        await press(pilot, "shift+tab")
        assert pilot.app.query_one("#memory").has_class("-chosen")

    hands(app(ADDRESS), NARROW, use)


def test_wide_shows_everything_at_once(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right")
        assert all(pilot.app.query_one(f"#{name}").display for name in PANES)
        sizes = [pilot.app.query_one(f"#{name}").size for name in PANES]
        assert all(size.width > 30 and size.height > 5 for size in sizes)

    hands(app(ADDRESS), WIDE, use)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (99, 50), (100, 24), (140, 45), (220, 70)])
def test_every_size_shows_the_line_and_fits(app: Any, hands: Any, press: Press, size: tuple[int, int]) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right", "right", "right")
        text = screen_of(pilot.app)
        assert f"{pilot.app.session.view().line} ▶" in text
        assert "? keys" in text
        lines = text.rstrip("\n").split("\n")
        assert len(lines) <= size[1]
        assert max(map(len, lines)) <= size[0]

    hands(app(ADDRESS), size, use)


def test_another_size_while_it_runs(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right")
        for size in ((140, 45), (80, 24), (101, 30)):
            await pilot.resize_terminal(*size)
            await press(pilot, "right")
            assert f"{pilot.app.session.view().line} ▶" in screen_of(pilot.app)

    hands(app(ADDRESS), NARROW, use)


def test_the_current_line_stays_in_sight(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        for _ in range(40):
            await press(pilot, "i" if moment(pilot.app) % 3 else "right_square_bracket")
            assert f"{pilot.app.session.view().line:>4} ▶" in screen_of(pilot.app)

    hands(app("vllm-classic/block-ranges"), NARROW, use)


def test_a_step_without_a_film(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        text = screen_of(pilot.app)
        assert "Slots count, not rows" in text
        await press(pilot, "right", "3")
        text = screen_of(pilot.app)
        assert "without a film" in text
        assert "cache.py" in text

    hands(app(HOST), NARROW, use)


@pytest.mark.usefixtures("no_sources")
def test_a_source_that_is_not_here(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right", "2")
        assert "pagewalk fetch vllm@0.24.0" in screen_of(pilot.app)

    hands(app(ADDRESS), NARROW, use)


def test_day_and_night(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right", "d")
        assert not pilot.app.current_theme.dark
        assert f"{pilot.app.session.view().line} ▶" in screen_of(pilot.app)
        await press(pilot, "d")
        assert pilot.app.current_theme.dark

    hands(app(ADDRESS), WIDE, use)


def test_the_marks_have_colours_of_their_own(app: Any, hands: Any, press: Press) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right")
        port = pilot.app.query_one("#port", CodePane)
        view, pane = pilot.app.session.view(), pilot.app.session.port()
        linked = next(n for a, b in pane.linked for n in range(a, b + 1) if n in port._first and n > pane.until)
        plain = [strip_of(port, number) for number in (view.line, linked)]
        assert len({colours[-1] for colours in plain}) == 2  # two backgrounds
        assert all(len(set(colours)) > 1 for colours in plain)

    hands(app(ADDRESS), (140, 60), use)


def strip_of(pane: CodePane, number: int) -> list[str]:
    strip = pane.render_line(pane._first[number] - pane.scroll_offset.y)
    return [f"{segment.style.color} on {segment.style.bgcolor}" for segment in strip if segment.style is not None]


def test_no_color_leaves_no_colour(
    app: Any, hands: Any, press: Press, monkeypatch: pytest.MonkeyPatch, walkthroughs: dict[str, Walkthrough]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def use(pilot: Any) -> None:
        await press(pilot, "right")
        assert pilot.app.no_color
        strips = pilot.app.screen._compositor.render_strips()
        shown = [pilot.app._filters[-1].apply(list(strip), strip_background(pilot.app)) for strip in strips]
        for segments in shown:
            for segment in segments:
                if segment.style is not None:
                    assert segment.style.color is None or segment.style.color.is_default
                    assert segment.style.bgcolor is None or segment.style.bgcolor.is_default
        assert f"{pilot.app.session.view().line} ▶" in screen_of(pilot.app)

    hands(Stepper(Session(walkthroughs), ADDRESS), NARROW, use)


def strip_background(app: Any) -> Any:
    from textual.color import Color

    return Color(0, 0, 0)


def test_the_place_is_kept_when_the_reader_quits(app: Any, hands: Any, press: Press, state: Path) -> None:
    async def use(pilot: Any) -> None:
        await press(pilot, "right", "right", "w", *"m", "enter", "q")

    hands(app(LOOKUP), NARROW, use)
    progress, said = load(state)
    assert said == ""
    assert progress.last == LOOKUP
    assert progress.places[LOOKUP].moment == 23
    assert progress.places[LOOKUP].watches == ("m",)


def test_the_place_is_kept_soon_after_a_move(app: Any, hands: Any, press: Press, state: Path) -> None:
    """A terminal may be closed without a word."""

    async def use(pilot: Any) -> None:
        await press(pilot, "right")
        pilot.app.save_now()
        assert load(state)[0].places[LOOKUP].moment == 22

    hands(app(LOOKUP), NARROW, use)


def test_a_folder_that_cannot_be_written_is_said_once(
    walkthroughs: dict[str, Walkthrough], hands: Any, press: Press, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    async def use(pilot: Any) -> None:
        pilot.app.save_now()
        await pilot.pause()
        assert "cannot be written" in screen_of(pilot.app)
        await press(pilot, "right")
        assert "cannot be written" not in screen_of(pilot.app)

    hands(Stepper(Session(walkthroughs), LOOKUP, tmp_path / "file" / "walk.json"), WIDE, use)


def test_a_damaged_file_is_said(walkthroughs: dict[str, Walkthrough], hands: Any) -> None:
    async def use(pilot: Any) -> None:
        assert "walk.json: damaged" in screen_of(pilot.app)

    hands(Stepper(Session(walkthroughs), LOOKUP, None, "walk.json: damaged; starting over"), WIDE, use)


def test_quick_steps_show_the_last_one(app: Any, hands: Any, press: Press) -> None:
    """Keys that come faster than films."""

    async def use(pilot: Any) -> None:
        for key in ("n", "n", "p", "n", "n"):
            await pilot.press(key)
        await press(pilot, "right")
        assert pilot.app.session.step.id == "vllm-classic/alibi"
        assert not pilot.app.session.loading
        assert "A bias for distance" in screen_of(pilot.app)
        assert set(pilot.app.session.view().concepts) & set(pilot.app.session.step.reads)

    hands(app("vllm-classic/x"), WIDE, use)
