"""What a page says of live runs without any script: once a page, and nothing in a step."""

from __future__ import annotations

import re
from typing import Any

from walkthroughs.site import render
from walkthroughs.site.model import StepView, WalkthroughView


def lines_of(steps: int) -> tuple[list[str], list[str]]:
    """(lines, stashed HTML) of a walkthrough with so many steps."""
    from walkthroughs.site.model import Panes

    def step(number: int) -> StepView:
        rest: dict[str, Any] = {"reads": (), "panes": Panes(), "badges": (), "rows": (), "rows_from": "Observed"}
        return StepView(f"w/s{number}", f"s{number}", f"Step {number}", "Prose.", **rest)

    stashed: list[str] = []

    def stash(html: str) -> str:
        stashed.append(html)
        return f"STASH{len(stashed)}"

    view = WalkthroughView("w", "A walk", "Introduction.", tuple(step(number) for number in range(steps)))
    return render.walkthrough_lines(view, "..", stash), stashed


def test_the_note_stands_once_before_the_first_step() -> None:
    lines, stashed = lines_of(3)
    notes = [number for number, html in enumerate(stashed) if "pw-live-note" in html]
    assert notes == [0]
    assert lines.index("STASH1") < next(number for number, line in enumerate(lines) if line.startswith("## "))


def test_a_step_carries_nothing_of_it() -> None:
    assert len(render.LIVE_NOTE) < 700
    note = [html for html in lines_of(38)[1] if "pw-live" in html]
    assert note == [render.LIVE_NOTE]


def test_it_says_how_to_run_live_and_is_folded() -> None:
    assert render.LIVE_NOTE.startswith("<details ")
    assert " open" not in render.LIVE_NOTE.split(">")[0]
    text = re.sub(r"<[^>]+>", "", render.LIVE_NOTE)
    for words in ("recorded", "make serve", "pagewalk site serve", "pagewalk run", "GPU", "SIMT machine"):
        assert words in text
