"""Measures the browser's player on the built site: `python -m walkthroughs.player_bench`. It writes nothing.

How long until the first step can be used, opened from disk, and how many frames a second are drawn while a whole film
is scrubbed. Needs Chromium or Chrome, Playwright, and a built site (`pagewalk site build`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkthroughs.commands.doctor import find_browser
from walkthroughs.digest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = "walkthroughs/vllm-classic/index.html"
FILMS = ("classic-v2-reduce", "classic-v1")
"""One of about 5,000 events, and the longest."""
FRAMES = 400
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")

# Since the address was asked for: when the lines of a step light up, and when its player shows its first moment.
USABLE = "document.querySelector('.pw-pair .pw-status') && performance.now()"
PLAYING = "document.querySelector('pagewalk-player[data-state=ready]') && performance.now()"
# A move a frame over the whole film and back, as a hand on the track makes them; the times between frames.
SCRUB = """
async frames => {
  const player = document.querySelector("pagewalk-player");
  const last = player.steps.own.length - 1;
  const gaps = [];
  let busy = 0;
  const render = player.render.bind(player);
  player.render = () => { const start = performance.now(); render(); busy += performance.now() - start; };
  let before = await new Promise(requestAnimationFrame);
  for (let frame = 1; frame <= frames; frame += 1) {
    player.go(Math.round(last * (1 - Math.abs(1 - 2 * frame / frames))), "scrub");
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - before);
    before = now;
  }
  return { gaps, busy: busy / frames, events: player.film.trace.length, moments: last + 1 };
}
"""


def first_use(browser: Browser, site: Path) -> tuple[float, float]:
    """Milliseconds from asking for a walkthrough's file to its first step, and to the first moment of its player.

    The middle one of three times each.
    """
    anchor = _open(browser, site, PAGE).evaluate("document.querySelector('pagewalk-player').getAttribute('anchor')")
    step = [_open(browser, site, PAGE).wait_for_function(USABLE).json_value() for _ in range(3)]
    played = [_open(browser, site, f"{PAGE}#{anchor}&t=1").wait_for_function(PLAYING).json_value() for _ in range(3)]
    return statistics.median(step), statistics.median(played)


def frames(browser: Browser, site: Path, film: str) -> dict[str, float]:
    """A film scrubbed from its first moment to its last and back: frames a second, and the longest frame in ms."""
    page = _open(browser, site, f"play/{film}/index.html")
    page.wait_for_function(PLAYING)
    found: dict[str, Any] = page.evaluate(SCRUB, FRAMES)
    gaps = sorted(found["gaps"])
    return {
        "events": found["events"],
        "moments": found["moments"],
        "fps": 1000 * len(gaps) / sum(gaps),
        "low": 1000 / statistics.quantiles(gaps, n=100)[94],
        "longest": gaps[-1],
        "busy": found["busy"],
    }


def _open(browser: Browser, site: Path, path: str) -> Any:
    name, _, anchor = path.partition("#")
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto((site / name).as_uri() + ("#" + anchor if anchor else ""))
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was measured; 1 where something that it needs is missing, which it names."""
    parser = argparse.ArgumentParser(prog="python -m walkthroughs.player_bench", description=__doc__)
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="the folder of a built site")
    site: Path = parser.parse_args(arguments).site.resolve()
    chromium = find_browser()
    sync_playwright: Any = None
    with suppress(ImportError):
        from playwright.sync_api import sync_playwright
    missing = (
        ("" if chromium else "no Chromium or Chrome was found; PAGEWALK_BROWSER can name one")
        or ("" if sync_playwright else "Playwright is not installed: make setup")
        or ("" if (site / PAGE).is_file() else f"no built site in {site}: pagewalk site build")
    )
    if missing:
        print(f"The player was not measured: {missing}.", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        print(f"player, Chromium {browser.version}, from disk")
        step, played = first_use(browser, site)
        print(f"  first step usable after {step:.0f} ms, its player after {played:.0f} ms ({PAGE})")
        for film in FILMS:
            found = frames(browser, site, film)
            print(
                f"  scrubbing {film}, {found['events']} events, {found['moments']} moments: "
                f"{found['fps']:.0f} frames a second, 95 in 100 above {found['low']:.0f}, "
                f"longest {found['longest']:.0f} ms, the player's own work {found['busy']:.1f} ms a frame"
            )
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
