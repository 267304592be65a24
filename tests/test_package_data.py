"""What ships with the packages: every file of theirs that is no Python, or a copy would lack what it reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[1]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
PACKAGES = ("annotate", "kernels", "walkthroughs")


def shipped(package: str) -> set[Path]:
    """The files that the patterns of a package find."""
    folder = ROOT / package
    return {path for pattern in SETUP["package-data"].get(package, ()) for path in folder.glob(pattern)}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_data_file_ships(package: str) -> None:
    files = {path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    data = {path for path in files if path.suffix != ".py"}
    assert sorted(data - shipped(package)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_pattern_finds_something(package: str) -> None:
    for pattern in SETUP["package-data"].get(package, ()):
        assert [*(ROOT / package).glob(pattern)], pattern


def test_what_the_live_lab_reads_ships() -> None:
    """Its lock file and its records as data; its scripts, which other Pythons run, as modules of a package."""
    lab = ROOT / "walkthroughs" / "lab"
    assert {lab / name for name in ("lab.lock", "record.json", "serve.json")} <= shipped("walkthroughs")
    assert {"engine.py", "guard.py"} <= {path.name for path in lab.glob("*.py")}
    assert "walkthroughs.lab" in find_packages(str(ROOT), include=SETUP["packages"]["find"]["include"])
