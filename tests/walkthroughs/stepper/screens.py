"""What stands on the app's screen, as plain text, and the comparison with what is committed.

pytest-textual-snapshot holds pytest below 9. Plain text can also be read in a review.
PAGEWALK_UPDATE_SCREENS=1 writes the files anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("screens")


def screen_of(app: Any) -> str:
    """The characters of the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def compare(app: Any, name: str) -> None:
    """The screen is what the file says."""
    path = FOLDER / f"{name}.txt"
    found = screen_of(app)
    if os.environ.get("PAGEWALK_UPDATE_SCREENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8"), f"{path.name}: look at it, then PAGEWALK_UPDATE_SCREENS=1 writes it anew"
