"""The whole screen at two sizes, compared with text files: only our own lines, and records made up for the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from walkthroughs.step import Walkthrough
from walkthroughs.stepper import opening
from walkthroughs.stepper.app import Stepper
from walkthroughs.stepper.opening import Proof
from walkthroughs.stepper.session import Session

from .screens import FOLDER, compare  # isort: skip

Press = Callable[..., Awaitable[None]]


@pytest.mark.parametrize(
    ("name", "step", "size", "keys"),
    [
        # The left side of this walkthrough is plain Python of ours.
        ("lookup-80x24", "paged-reference/lookup", (80, 24), ["right", "right", "6"]),
        ("lookup-140x45", "paged-reference/lookup", (140, 45), ["right", "right"]),
        # On the left stands what to type: no source is here.
        ("k-address-80x24", "vllm-classic/k-address", (80, 24), [*["right"] * 16, "5"]),
        ("k-address-140x45", "vllm-classic/k-address", (140, 45), ["right"] * 16),
        ("keys-80x24", "paged-reference/lookup", (80, 24), ["question_mark"]),
    ],
)
@pytest.mark.usefixtures("no_sources")
def test_the_screen(
    walkthroughs: dict[str, Walkthrough], hands: Any, press: Press, monkeypatch: pytest.MonkeyPatch,
    name: str, step: str, size: tuple[int, int], keys: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(opening, "proof_of", lambda step: Proof(None, "unavailable", "no record in this test"))

    async def use(pilot: Any) -> None:
        await press(pilot, *keys)
        compare(pilot.app, name)

    hands(Stepper(Session(walkthroughs), step), size, use)


@pytest.mark.source
def test_no_screen_holds_a_line_of_upstream(vllm_024: Any) -> None:
    """Long lines of the kernel's file, looked for in what is committed."""
    lines = {line.strip() for path in vllm_024.paths() for line in vllm_024.read(path).decode().split("\n")}
    lines = {line for line in lines if len(line) > 30 and any(map(str.isalpha, line))}
    files = sorted(FOLDER.glob("*.txt"))
    assert len(files) == 5
    for path in files:
        text = path.read_text("utf-8")
        assert not [line for line in lines if line in text], path.name
