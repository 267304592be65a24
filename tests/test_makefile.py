"""`make setup` with stand-in programs: what it installs, when it does so again, and what it says when it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = ("Makefile", "requirements.lock", "pyproject.toml", "kernels/gpu_extra.py")
# Makes environments whose Python is this same script, notes what pip is told, and runs the rest for real.
PYTHON = """#!/bin/bash
case "$*" in
  "-m venv --clear "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; echo "venv" >> "$LOG" ;;
  "-m pip "*) shift 3; echo "pip $*" >> "$LOG"; [[ -z "$PIP_FAILS" ]] ;;
  "-c "*torch*) exit 1 ;;
  "-m walkthroughs"*|"-m kernels"*) echo "$0 $*" >> "$LOG" ;;
  *) exec {real} "$@" ;;
esac
"""
INSTALL = ["pip install -r requirements.lock", "pip install --no-deps --no-build-isolation -e ."]


class Checkout:
    """A copy of what `make setup` reads, a Python that only pretends to install, and perhaps a GPU driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "bin").mkdir()
        self.program("python3", PYTHON.replace("{real}", sys.executable))
        self.log = folder / "log"

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def driver(self, version: str) -> None:
        self.program("nvidia-smi", f"#!/bin/bash\necho {version}\n")

    def make(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run make; `log` then holds what this run alone installed."""
        self.log.unlink(missing_ok=True)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        return subprocess.run(
            ["make", *args],
            cwd=self.folder,
            env={**inherited, "PIP_FAILS": "", "PATH": path, "LOG": str(self.log), **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @property
    def installed(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if shutil.which("nvidia-smi"):
        pytest.skip("the stand-in for a machine without a driver cannot hide this machine's own")
    return Checkout(tmp_path)


def test_first_setup_installs_the_lock_then_ourselves(checkout: Checkout) -> None:
    done = checkout.make("setup")
    assert done.returncode == 0, done.stderr
    assert checkout.installed == ["venv", *INSTALL]


def test_second_setup_does_nothing(checkout: Checkout) -> None:
    checkout.make("setup")
    assert checkout.make("setup").returncode == 0
    assert checkout.installed == []


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_list_installs_again_into_the_same_environment(checkout: Checkout, name: str) -> None:
    checkout.make("setup")
    stamp = (checkout.folder / ".venv" / ".installed").stat().st_mtime
    os.utime(checkout.folder / name, (stamp + 10, stamp + 10))
    assert checkout.make("setup").returncode == 0
    assert checkout.installed == INSTALL


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.make("setup")
    (checkout.folder / ".venv" / "bin" / "python").unlink()
    (checkout.folder / ".venv" / ".installed").unlink()
    assert checkout.make("setup").returncode == 0
    assert checkout.installed == ["venv", *INSTALL]


def test_a_failed_install_is_tried_again(checkout: Checkout) -> None:
    assert checkout.make("setup", PIP_FAILS="1").returncode != 0
    assert checkout.make("setup").returncode == 0
    assert checkout.installed == INSTALL


@pytest.mark.parametrize(("version", "extra"), [("580.65.06", "cu13"), ("550.54.14", "cu12")])
def test_a_driver_brings_its_extra_once(checkout: Checkout, version: str, extra: str) -> None:
    checkout.driver(version)
    checkout.make("setup")
    assert checkout.installed == ["venv", *INSTALL, f"pip install numba-cuda[{extra}]==0.30.4"]
    checkout.make("setup")
    assert checkout.installed == []


def test_a_new_driver_brings_the_new_extra(checkout: Checkout) -> None:
    checkout.driver("550.54.14")
    checkout.make("setup")
    checkout.driver("580.65.06")
    checkout.make("setup")
    assert checkout.installed == ["pip install numba-cuda[cu13]==0.30.4"]


def test_a_driver_that_comes_later_needs_no_other_command(checkout: Checkout) -> None:
    checkout.make("setup")
    checkout.driver("580.65.06")
    checkout.make("setup")
    assert checkout.installed == ["pip install numba-cuda[cu13]==0.30.4"]


def test_an_old_python_is_named(checkout: Checkout) -> None:
    pretend = "import sys; sys.version_info = (3, 10, 4); exec(sys.argv[1])"
    checkout.program("python3", f"#!/bin/bash\nshift\nexec {sys.executable} -c '{pretend}' \"$@\"\n")
    done = checkout.make("setup")
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "3.10" in done.stderr
    assert not (checkout.folder / ".venv").exists()


def test_no_venv_module_says_what_to_install(checkout: Checkout) -> None:
    checkout.program("python3", PYTHON.replace("{real}", sys.executable).replace('mkdir -p "$4/bin"', "exit 1"))
    done = checkout.make("setup")
    assert done.returncode != 0
    assert "python3-venv" in done.stderr


def test_gpu_records_sets_up_where_python_lacks_something(checkout: Checkout) -> None:
    done = checkout.make("gpu-records")
    assert done.returncode == 0, done.stderr
    assert checkout.installed[:3] == ["venv", *INSTALL]
    modules = [line.rpartition(" ")[2] for line in checkout.installed if line.startswith(".venv/bin/python -m ")]
    assert modules == ["walkthroughs.records", "walkthroughs.machine_code"]


@pytest.mark.parametrize(
    ("target", "modules"),
    [
        ("bench", ["kernels.bench", "walkthroughs.bench --set facts --set goals --set writer --set host"]),
        ("hardware-record", ["walkthroughs.hardware"]),
        ("grid-record", ["walkthroughs.grid"]),
        ("ladder-record", ["walkthroughs.grid --tuned", "walkthroughs.tuned_sanitizers"]),
    ],
)
def test_what_measures_sets_up_where_python_has_no_numba(checkout: Checkout, target: str, modules: list[str]) -> None:
    done = checkout.make(target)
    assert done.returncode == 0, done.stderr
    assert checkout.installed[3:] == [f".venv/bin/python -m {module}" for module in modules]


@pytest.mark.parametrize(("code", "fine"), [(0, True), (2, True), (1, False)])
def test_bench_goes_on_where_there_is_no_gpu_and_not_where_a_kernel_is_wrong(
    checkout: Checkout, code: int, fine: bool
) -> None:
    checkout.program("python3", PYTHON.replace("{real}", sys.executable).replace(
        '"-m walkthroughs"*', f'"-m walkthroughs.bench"*) exit {code} ;;\n  "-m walkthroughs"*'
    ))  # fmt: skip
    assert (checkout.make("bench").returncode == 0) == fine
