"""The made-up site, served on 127.0.0.1, and pages in a headless browser that fail on errors and foreign requests."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
OpenPage = Callable[..., Page]
PATIENCE = 30_000
"""Milliseconds until what should come is given up; a slow machine is not a bug."""
expect.set_options(timeout=PATIENCE)
SETTLED = """() => Promise.allSettled(document.getAnimations()
  .filter(({effect}) => effect.getComputedTiming().endTime < Infinity)
  .map(({finished}) => finished)).then(() => true)"""


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    handler = functools.partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def serving() -> Callable[[Path], AbstractContextManager[str]]:
    return serve


@pytest.fixture(scope="session")
def watching() -> Callable[[Browser, str], AbstractContextManager[OpenPage]]:
    return watched_pages


@pytest.fixture(scope="session")
def settled() -> Callable[[Page], None]:
    """Waits until no colour or place of a page is on its way to another."""

    def wait(page: Page) -> None:
        assert page.evaluate(SETTLED)

    return wait


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the made-up site; `address` fills it."""
    site = tmp_path_factory.mktemp("browser") / "site"
    site.mkdir()
    return site


@pytest.fixture(scope="session")
def address(
    chromium: str, sample_site: Path, built: Path, put_site: Callable[[Path, Path, str], None]
) -> Iterator[str]:
    with serve(built) as url:
        # Instant navigation believes the site map, which holds the address that the site was built for.
        put_site(sample_site, built, url)
        yield url


@pytest.fixture(scope="session")
def mending(loaded: Callable[[Path], ModuleType]) -> ModuleType:
    return loaded(Path(__file__).parents[1] / "site" / "mending.py")


@pytest.fixture(scope="session")
def fix_real(chromium: str, mending: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The real pages of three kernels to fix, on a server that allows code and judges it as for a reader."""
    folder = tmp_path_factory.mktemp("mending")
    docs, site = folder / "docs", folder / "site"
    docs.mkdir()
    site.mkdir()
    with mending.serving(site, "code=real") as served:
        mending.build(docs, site, ("kv-head", "max-subtract", "gather-rescale"), site_url=served.url)
        yield served


@pytest.fixture(scope="session")
def fix_quick(fix_real: Any, mending: ModuleType) -> Iterator[Any]:
    """The same pages, on a server whose program executes the text, whatever it is."""
    with mending.serving(fix_real.site, "code=stand-in") as served:
        yield served


# A module long, no longer: while Playwright is there it keeps an event loop running, and other tests need their own.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@contextmanager
def watched_pages(browser: Browser, base: str) -> Iterator[OpenPage]:
    """Open pages under `base`; at the end, no page may have logged an error or asked another host for anything."""
    contexts, troubles = [], []

    def open_page(path: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda m: troubles.append(f"console {m.type}: {m.text}") if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda e: troubles.append(f"script: {e}"))
        context.on(
            "request",
            lambda r: None if r.url.startswith((base, "data:", "blob:")) else troubles.append(f"foreign: {r.url}"),
        )
        context.on("response", lambda r: troubles.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        page.goto(base + path)
        if options.get("java_script_enabled", True):
            page.wait_for_function(
                "window.pagewalk && (!document.querySelector('.pw-pair') || document.querySelector('.pw-status'))"
            )
        return page

    try:
        yield open_page
    finally:
        for context in contexts:
            context.close()
    assert troubles == []


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[OpenPage]:
    with watched_pages(browser, address) as opener:
        yield opener
