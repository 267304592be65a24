"""Films for every test of the stepper, recorded once; a state folder of its own; the app in a test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.step import Walkthrough, registry
from walkthroughs.stepper import shelf
from walkthroughs.stepper.films import film
from walkthroughs.stepper.shots import Shot, shoot

QUICK = ("gather", "scatter", "reshape-and-cache", "slot-mapping", "classic-v2-reduce", "tiny-vllm-writes")
"""Films of every sort that take no time: one thread, a warp with padding, device functions, barriers, shuffles."""


@pytest.fixture(scope="session")
def shots() -> dict[str, Shot]:
    return {name: shoot(film(name)) for name in QUICK}


@pytest.fixture(scope="session")
def classic() -> Shot:
    """vLLM's classic kernel: several warps, helper functions, a block table and two pools."""
    return shoot(film("classic-v1"))


@pytest.fixture(scope="session")
def walkthroughs() -> dict[str, Walkthrough]:
    return registry()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes where the reader keeps progress."""
    monkeypatch.setenv("PAGEWALK_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "walk.json"


@pytest.fixture
def no_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As on a machine where nothing was fetched."""
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "nothing"))
    shelf.upstream_page.cache_clear()
    yield
    shelf.upstream_page.cache_clear()


Hands = Callable[..., None]


@pytest.fixture
def hands() -> Hands:
    """`hands(app, size, what)`: run the app without a terminal, wait for its film, and let `what(pilot)` use it."""

    def run(app: Any, size: tuple[int, int], what: Callable[[Any], Awaitable[None]]) -> None:
        async def inside() -> None:
            async with app.run_test(size=size) as pilot:
                await settled(pilot)
                await what(pilot)

        asyncio.run(inside())

    return run


async def settled(pilot: Any) -> None:
    """Until no film is being recorded and everything is drawn."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.pause()


@pytest.fixture
def press() -> Callable[..., Awaitable[None]]:
    """Press keys one after the other and wait for what they set off."""

    async def press(pilot: Any, *keys: str) -> None:
        for key in keys:
            await pilot.press(key)
            await settled(pilot)

    return press
