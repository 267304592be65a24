"""The command line as a subprocess: help, wrong use, nearest names, and plain terminals."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
ESCAPE = "\x1b["
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


def test_help_lists_every_command_in_order(run_cli: RunCli) -> None:
    done = run_cli("--help")
    assert done.returncode == 0
    listed = re.findall(r"^  ([a-z]+)  +\S", done.stdout.split("Commands:")[1], re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_that_begins_as_the_list_says(run_cli: RunCli, command: str) -> None:
    done = run_cli(command, "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert COMMANDS[command][1].removesuffix(".") in text
    assert "--json" in text or command in ("drill", "export", "lab", "site")


DRILL = ("due", "export", "import", "interview", "list", "reset", "show", "stats", "suspend", "unsuspend")
GROUPS = [
    "export notebook",
    "export site",
    "export tour",
    "lab list",
    "lab run",
    "lab serve",
    "site build",
    "site serve",
]


@pytest.mark.parametrize("command", [*GROUPS, *(f"drill {name}" for name in DRILL)])
def test_each_command_of_a_group_has_json(run_cli: RunCli, command: str) -> None:
    assert "--json" in run_cli(*command.split(), "--help").stdout


def test_help_imports_no_heavy_library() -> None:
    """What makes --help fast; the time itself is no test's business."""
    program = (
        "import sys\nsys.argv = ['pagewalk', '--help']\nfrom walkthroughs.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded
    assert not loaded & {
        "rich",
        "numpy",
        "numba",
        "torch",
        "tree_sitter",
        "requests",
        "pypi_simple",
        "annotate",
        "kernels",
    }


def test_version(run_cli: RunCli) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run_cli("--version").stdout.strip().endswith(version)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["fetsh"], "fetch"),
        (["anchor"], "anchors"),
        (["fetch", "vllm@0.24"], "vllm@0.24.0"),
        (["fetch", "--from", ".", "vllm@0.24.0", "vllm@0.26.0"], "--from"),
        (["fetch", "--from", "."], "--from"),
        (["fetch", "--from", "/no/such/folder", "vllm@0.24.0"], "/no/such/folder"),
        (["anchors", "--source", "vllm@0.25.0"], "vllm@0.2"),
        (["read", "block-table-wlk"], "block-table-walk"),
        (["read"], "CONCEPT"),
        (["run"], "--all"),
        (["run", "--all", "vllm-classic"], "--all"),
        (["run", "vllm-clasic"], "vllm-classic"),
        (["run", "vllm-classic/signatur"], "vllm-classic/signature"),
        (["run", "--all", "--backend", "tpu"], "tpu"),
        (["run", "--all", "--jobs", "0"], "0"),
        (["export"], "Usage"),
        (["export", "tour", "vllm-clasic"], "vllm-classic"),
        (["export", "tour", "--source", "vllm@0.24"], "vllm@0.24.0"),
        (["export", "tour", "paged-reference"], "paged-reference"),
        (["export", "notebook", "finding", "--no-run"], "findings"),
        (["site"], "Usage"),
        (["site", "serve", "--port", "70000"], "70000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(run_cli: RunCli, args: list[str], said: str) -> None:
    done = run_cli(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_wrong_use_with_json_prints_nothing_on_stdout(run_cli: RunCli) -> None:
    done = run_cli("run", "no-such-step", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_cuda_without_a_gpu_is_an_error_never_another_backend(run_cli: RunCli) -> None:
    """Numba's simulator claims a GPU: it must not count as one."""
    done = run_cli("run", "--all", "--backend", "cuda", env={"NUMBA_ENABLE_CUDASIM": "1"})
    assert done.returncode == 2
    assert "cuda" in done.stderr
    assert "NUMBA_ENABLE_CUDASIM" in done.stderr
    assert done.stdout == ""


def in_terminal(args: list[str], env: dict[str, str]) -> str:
    """What a command writes to a terminal."""
    leader, follower = pty.openpty()
    program = str(Path(sys.executable).with_name("pagewalk"))
    with subprocess.Popen(
        [program, *args],
        cwd=ROOT,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **env},
    ) as process:
        os.close(follower)
        written = b""
        while select.select([leader], [], [], 120)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            written += part
        process.wait(timeout=60)
    os.close(leader)
    return written.decode()


def test_colour_on_a_terminal_only(run_cli: RunCli) -> None:
    quiet = {name: "" for name in ("NO_COLOR",) if name in os.environ}
    assert ESCAPE in in_terminal(["sources"], quiet)
    assert ESCAPE not in run_cli("sources").stdout


def test_no_color_is_heard() -> None:
    written = in_terminal(["sources"], {"NO_COLOR": "1"})
    assert "vllm@0.24.0" in written
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", written)


@pytest.mark.parametrize("args", [["doctor"], ["sources"], ["list"]], ids=" ".join)
def test_a_narrow_terminal_loses_nothing(run_cli: RunCli, args: list[str]) -> None:
    done = run_cli(*args, env={"COLUMNS": "40"})
    assert max(map(len, done.stdout.splitlines())) <= 40
    assert "Traceback" not in done.stderr
    assert "…" not in done.stdout


def test_a_closed_pipe_is_no_traceback() -> None:
    program = Path(sys.executable).with_name("pagewalk")
    done = subprocess.run(
        ["bash", "-c", f"'{program}' list --json | head -c 1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
