"""The browser's set-up on machines of every kind, each built from a folder of stand-in programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "browser" / "setup_browser.sh"
BASH = "/bin/bash"


class Machine:
    """A PATH with nothing but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": str(folder), "LOG": str(folder / "log")}

    def has(self, name: str, body: str = "exit 0") -> None:
        program = self.folder / name
        program.write_text(f'#!{BASH}\necho "{name} $*" >> "$LOG"\n{body}\n')
        program.chmod(0o755)

    def run(self, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(SCRIPT)], env=self.env | env, capture_output=True, text=True, timeout=60, check=False
        )

    @property
    def calls(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if Path("/Applications").exists():
        pytest.skip("a Mac may have a browser outside PATH")
    return Machine(tmp_path)


# What Debian's package does: a program on PATH. Plain shell, as there is no other program on that PATH.
INSTALLS = r"""
if [[ "$*" == *install* ]]; then
  printf '#!/bin/bash\n' > "$PATH/chromium"
  /bin/chmod +x "$PATH/chromium"
fi
"""


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"])
def test_a_browser_that_is_there_is_taken(machine: Machine, name: str) -> None:
    machine.has(name)
    machine.has("apt-get")
    done = machine.run(CI="true")
    assert (done.returncode, done.stdout) == (0, f"browser: {machine.folder / name}\n")
    assert machine.calls == []


def test_a_named_browser_goes_first(machine: Machine) -> None:
    machine.has("chromium")
    machine.has("mine")
    done = machine.run(PAGEWALK_BROWSER=str(machine.folder / "mine"))
    assert done.stdout == f"browser: {machine.folder / 'mine'}\n"


def test_root_with_apt_installs_after_an_update(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get", INSTALLS)
    done = machine.run(CI="true")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"browser: {machine.folder / 'chromium'}\n")
    verbs = [call.split()[1] for call in machine.calls if call.startswith("apt-get")]
    assert verbs == ["update", "install"]
    assert "chromium" in machine.calls[-1]


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "no apt-get"),
        ({"apt-get": "exit 0", "id": "echo 1000"}, "needs root"),
        ({"apt-get": "exit 100", "id": "echo 0"}, "apt-get update failed"),
        ({"apt-get": '[[ "$1" == update ]]', "id": "echo 0"}, "install chromium failed"),
        ({"apt-get": "exit 0", "id": "echo 0"}, "not on PATH"),
    ],
)
def test_without_one_a_reader_is_told_why_and_ci_fails(machine: Machine, programs: dict[str, str], reason: str) -> None:
    for name, body in programs.items():
        machine.has(name, body)
    reader = machine.run()
    assert reader.returncode == 0
    assert reason in reader.stderr
    assert "skipped" in reader.stderr
    ci = machine.run(CI="true")
    assert ci.returncode != 0
    assert reason in ci.stderr
