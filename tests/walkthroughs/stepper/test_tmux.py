"""The real program in a real terminal: tmux starts it, presses keys, and reads the screen."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from walkthroughs.digest import ROOT
from walkthroughs.stepper.progress import load

TMUX = shutil.which("tmux")
PATIENCE = 120.0
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed: the stepper is not tried in a terminal")


class Terminal:
    """A tmux server of its own."""

    def __init__(self, folder: Path, width: int, height: int, **env: str) -> None:
        self.status = folder / "status"
        self.starts = 0
        self.size = str(width), str(height)
        self.env = {**os.environ, "PAGEWALK_STATE": str(folder / "state"), "TERM": "xterm-256color", **env}

    @property
    def socket(self) -> str:
        """The path of a socket must be short: below 108 bytes."""
        return str(Path(tempfile.gettempdir()) / f"pw-{os.getpid()}-{id(self)}-{self.starts}")

    def tmux(self, *args: str) -> str:
        command = [str(TMUX), "-f", "/dev/null", "-S", self.socket, *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    def start(self, *args: str) -> None:
        program = Path(sys.executable).with_name("pagewalk")
        self.status.unlink(missing_ok=True)
        self.starts += 1  # a server that was just ended may still hold its socket
        # The shell stays behind, so that the last screen can be read.
        line = f"{shlex.join([str(program), 'walk', *args])}; echo $? > {shlex.quote(str(self.status))}; sleep 60"
        self.tmux("new-session", "-d", "-x", self.size[0], "-y", self.size[1], "sh", "-c", line)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def wait(self, *words: str) -> str:
        """The screen, once all the words stand on it."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = self.screen()
            if all(word in text for word in words):
                return text
            time.sleep(0.1)
        pytest.fail(f"{words} never came; the screen was:\n{text}")

    def ended(self) -> None:
        """The program has ended, and well."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.status.exists() and (said := self.status.read_text().strip()):
                assert said == "0", self.screen()
                return
            time.sleep(0.1)
        pytest.fail(f"it did not end; the screen was:\n{self.screen()}")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def stop(self) -> None:
        subprocess.run([str(TMUX), "-S", self.socket, "kill-server"], capture_output=True, check=False)
        Path(self.socket).unlink(missing_ok=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path, 80, 24)
    yield found
    found.stop()


def test_a_walk_in_a_terminal(terminal: Terminal, state: Path) -> None:
    terminal.start("paged-reference/lookup")
    terminal.wait("Read through the table", "moment 21/", "? keys")
    terminal.press("Right")
    terminal.wait("moment 22/", "▶", "gather.py")
    terminal.press("6")
    terminal.wait("block_table", "logical", "physical", "[3]")
    terminal.press("Left")
    terminal.wait("moment 21/")
    terminal.press("?")
    terminal.wait("next barrier", "Esc closes")
    terminal.press("Escape")
    terminal.wait("1 Story", "moment 21/", "block_table")  # a key right after Escape would be Alt and that key
    terminal.press("n")
    terminal.wait("The last block is only partly full")
    terminal.press("q")
    terminal.ended()
    progress, said = load(Path(terminal.env["PAGEWALK_STATE"]) / "walk.json")
    assert said == ""
    assert progress.last == "paged-reference/tail"
    assert progress.places["paged-reference/lookup"].moment == 21


def test_the_reader_comes_back_to_the_place(terminal: Terminal) -> None:
    terminal.start("paged-reference/online-softmax")
    terminal.wait("moment 46/")
    terminal.press("Right", "Right", "Right")
    terminal.wait("moment 49/")
    terminal.press("q")
    terminal.ended()
    terminal.stop()
    terminal.start()
    terminal.wait("A softmax that never waits", "moment 49/")
    terminal.press("q")
    terminal.ended()
    terminal.stop()
    terminal.start("--restart", "paged-reference/online-softmax")
    terminal.wait("moment 46/")


def test_no_color_in_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, 100, 30, NO_COLOR="1", COLORTERM="truecolor")
    try:
        terminal.start("paged-reference/lookup")
        terminal.wait("moment 21/")
        terminal.press("Right")
        terminal.wait("moment 22/", "▶")
        painted = terminal.tmux("capture-pane", "-e", "-p")
        codes = {code for part in painted.split("\x1b[")[1:] for code in part.partition("m")[0].split(";")}
        # Bold, reverse and the like may be there; of colours only the terminal's own (39, 49).
        assert not [code for code in codes if code.isdigit() and 30 <= int(code) <= 107 and code not in ("39", "49")]
    finally:
        terminal.stop()


def test_quitting_does_not_wait_for_a_film(terminal: Terminal) -> None:
    terminal.start("vllm-classic/k-address")
    terminal.wait("The address of a key, taken apart")
    terminal.press("q")
    terminal.ended()
    assert "Traceback" not in terminal.screen()
