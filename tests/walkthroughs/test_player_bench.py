"""The player's benchmark: what it prints, and that it names what it lacks. It asserts no time."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from walkthroughs import player_bench

ROOT = Path(__file__).resolve().parents[2]


class Handle:
    def __init__(self, value: Any) -> None:
        self.value = value

    def json_value(self) -> Any:
        return self.value


class FakePage:
    """A page that answers as Chromium would: every frame of a scrub took 20 ms, but for five that took 100."""

    def __init__(self) -> None:
        self.address = ""

    def goto(self, address: str) -> None:
        self.address = address

    def evaluate(self, script: str, argument: int = 0) -> Any:
        if "requestAnimationFrame" not in script:
            return "step-x"
        return {"gaps": [20.0] * (argument - 5) + [100.0] * 5, "events": 5000, "moments": 700, "busy": 4.0}

    def wait_for_function(self, script: str) -> Handle:
        return Handle(812.0 if "pagewalk-player" in script else 444.0)


class FakeBrowser:
    def __init__(self) -> None:
        self.pages: list[FakePage] = []

    def new_page(self, **options: Any) -> FakePage:
        self.pages.append(FakePage())
        return self.pages[-1]


def test_the_first_use_is_measured_from_disk(tmp_path: Path) -> None:
    browser: Any = FakeBrowser()
    assert player_bench.first_use(browser, tmp_path) == (444.0, 812.0)
    assert all(page.address.startswith(tmp_path.as_uri()) for page in browser.pages)
    assert browser.pages[-1].address.endswith(f"{player_bench.PAGE}#step-x&t=1")


def test_frames_are_counted_by_the_time_they_took(tmp_path: Path) -> None:
    browser: Any = FakeBrowser()
    found = player_bench.frames(browser, tmp_path, "classic-v1")
    frames = player_bench.FRAMES
    assert math.isclose(found["fps"], 1000 * frames / (20 * (frames - 5) + 500))
    assert math.isclose(found["low"], 50.0), "five in four hundred are less than five in a hundred"
    assert found["longest"] == 100.0
    assert browser.pages[0].address == (tmp_path / "play/classic-v1/index.html").as_uri()


@pytest.mark.parametrize("lacking", ["browser", "site"])
def test_what_it_lacks_is_named(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(player_bench, "find_browser", lambda: None if lacking == "browser" else "/bin/true")
    assert player_bench.main(["--site", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert ("PAGEWALK_BROWSER" if lacking == "browser" else "pagewalk site build") in said.err


def test_the_makefile_runs_it() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^bench-player:.*\n\t.*walkthroughs\.player_bench$", text, re.M)
    assert re.search(r"^bench:.*\n(\t.*\n)*\t.*bench-player", text, re.M)
