"""For tests that type at a terminal: a prompt, and the moment from which keys are taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def prompted() -> Callable[..., None]:
    """Wait for a prompt of a `pexpect` child, and until its terminal hands over single keys.

    The prompt is there a moment earlier, and what is typed in that moment is forgotten.
    """

    def wait(child: Any, prompt: str = "> ") -> None:
        import termios

        child.expect_exact(prompt)
        for _ in range(2000):
            if not termios.tcgetattr(child.child_fd)[3] & termios.ICANON:
                return
            time.sleep(0.01)
        pytest.fail(f"the terminal still takes whole lines behind {prompt!r}")

    return wait
