"""`make live-lab` without its two gigabytes: what is said, in which order, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sys
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.lab import environment, make
from walkthroughs.lab.make import LabNotMade

Usage = namedtuple("Usage", "total used free")


class Machine:
    """Notes what would run, and fails at the part that a test names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[Sequence[str]] = []
        self.said: list[str] = []
        self.fails = ""
        self.leaves: Path | None = None
        monkeypatch.setattr(make.venv, "create", self.create)

    def create(self, home: Path, with_pip: bool) -> None:
        assert with_pip
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").touch()
        (home / "pyvenv.cfg").touch()

    def run(self, command: Sequence[str]) -> int:
        self.commands.append(command)
        if self.leaves:
            self.leaves.mkdir(parents=True)
        return int(self.fails in command)

    def make(self, home: Path) -> bool:
        return make.make(home, self.said.append, self.run)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_cost_first_then_each_part(machine: Machine, tmp_path: Path) -> None:
    home = tmp_path / "lab"
    assert machine.make(home)
    assert "GB on the disk and 3 minutes" in machine.said[0]
    assert str(home) in machine.said[0]
    assert [line[:5] for line in machine.said[1:-1]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    pip, trial = machine.commands
    assert pip[-3:] == ["--no-deps", "-r", str(environment.LOCK)]
    assert trial[0] == str(home / "bin" / "python")
    assert environment.find(home).model == home / "model"
    assert json.loads((home / "model" / "config.json").read_text())["model_type"] == "llama"


def test_a_second_time_nothing_is_done(machine: Machine, tmp_path: Path) -> None:
    machine.make(tmp_path / "lab")
    machine.commands.clear()
    assert not machine.make(tmp_path / "lab")
    assert machine.commands == []


def test_another_lock_file_begins_anew(machine: Machine, tmp_path: Path) -> None:
    home = tmp_path / "lab"
    machine.make(home)
    (home / environment.DONE).write_text('{"lock": "another"}')
    (home / "left-over").touch()
    assert machine.make(home)
    assert not (home / "left-over").exists()


@pytest.mark.parametrize(("fails", "said"), [("--no-deps", "pip could not install"), ("-c", "cannot be imported")])
def test_a_part_that_fails_leaves_no_environment_that_looks_whole(
    machine: Machine, tmp_path: Path, fails: str, said: str
) -> None:
    machine.fails = fails
    with pytest.raises(LabNotMade, match=said):
        machine.make(tmp_path / "lab")
    assert not (tmp_path / "lab" / environment.DONE).exists()
    machine.fails = ""
    assert machine.make(tmp_path / "lab")


def test_a_package_that_breaks_vllm_is_refused(machine: Machine, tmp_path: Path) -> None:
    machine.leaves = tmp_path / "lab" / "lib" / "python3.11" / "site-packages" / "torchvision"
    with pytest.raises(LabNotMade, match="torchvision must not be in"):
        machine.make(tmp_path / "lab")


def test_a_folder_of_something_else_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(LabNotMade, match="PAGEWALK_LAB"):
        machine.make(tmp_path)
    assert (tmp_path / "letter").read_text() == "dear"
    assert machine.commands == []


def test_an_environment_of_somebody_else_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    """A reader may well name the one that their own vLLM is in."""
    machine.create(tmp_path / "theirs", with_pip=True)
    with pytest.raises(LabNotMade, match="was left alone"):
        machine.make(tmp_path / "theirs")
    assert (tmp_path / "theirs" / "bin" / "python").exists()
    assert machine.commands == []


def test_a_file_in_its_place_is_said(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(LabNotMade, match="letter is no folder"):
        machine.make(tmp_path / "letter")
    assert (tmp_path / "letter").read_text() == "dear"


def test_what_a_run_with_ones_own_python_left_is_no_hindrance(machine: Machine, tmp_path: Path) -> None:
    home = tmp_path / "lab"
    environment.find(home, python=Path(sys.executable))
    (home / "cache").mkdir()
    assert machine.make(home)
    assert environment.find(home).own


def test_a_full_disk_is_said_before_anything_starts(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 5, 5e8))
    with pytest.raises(LabNotMade, match=r"0\.5 GB are free"):
        machine.make(tmp_path / "lab")
    assert machine.commands == []


def test_the_cache_key_and_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert make.main(["--digest"]) == 0
    assert capsys.readouterr().out.startswith(environment.lock_digest())
    (tmp_path / "letter").touch()
    monkeypatch.setenv("PAGEWALK_LAB", str(tmp_path))

    def fails(*args: Any) -> bool:
        raise LabNotMade("no room")

    monkeypatch.setattr(make, "make", fails)
    assert make.main([]) == 1
    assert capsys.readouterr().err == "live-lab: no room\n"

    def stopped(*args: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(make, "make", stopped)
    assert make.main([]) == 130
    assert capsys.readouterr().err == "live-lab: stopped; `make live-lab` begins anew\n"
