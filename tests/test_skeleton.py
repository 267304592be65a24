"""The form of the house: top level, lock file, imports, headers and sizes, and what no file may hold."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PACKAGES = ("annotate", "kernels", "walkthroughs")
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "annotate",
    "docs",
    "kernels",
    "mkdocs.yml",
    "pyproject.toml",
    "requirements.lock",
    "tests",
    "walkthroughs",
}
TARGETS = {"setup", "serve", "drill", "site", "test", "check", "format", "gpu-records", "bench"}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LOCK_LINE = re.compile(r"([a-z0-9]+(?:[-_.][a-z0-9]+)*)==(\d[0-9a-z.]*)", re.IGNORECASE)


def tracked() -> list[Path]:
    """Every file that is committed, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def normal(name: str) -> str:
    """A distribution's name as the index compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it, by their absolute names."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def test_top_level_is_exactly_the_fixed_list() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} == TOP_LEVEL


# The lock file


def test_every_lock_line_is_an_exact_version() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not LOCK_LINE.fullmatch(line)] == []
    names = [normal(line.split("==")[0]) for line in lines]
    assert len(set(names)) == len(names)
    assert names == sorted(names)


@pytest.mark.parametrize("line", ["a==2.13.0+cpu", "a>=2", "a", "a==1 --hash=sha256:0", "-i host", "a @ file:b"])
def test_the_lock_form_refuses(line: str) -> None:
    assert not LOCK_LINE.fullmatch(line)


def test_every_direct_dependency_is_locked_within_its_bounds() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    direct = project["project"]["dependencies"] + [text for extra in extras for text in extra]
    versions = locked()
    for text in [*direct, *project["build-system"]["requires"]]:
        wanted = Requirement(text)
        assert normal(wanted.name) in versions, f"{wanted.name} is not in requirements.lock"
        assert wanted.specifier.contains(versions[normal(wanted.name)]), text


def test_the_lock_holds_the_versions_that_the_project_rests_on() -> None:
    versions = locked()
    pinned = {
        "torch": "2.13.0",
        "numba-cuda": "0.30.4",
        "tree-sitter": "0.26.1",
        "tree-sitter-cuda": "0.21.2",
    }
    assert {name: versions[name] for name in pinned} == pinned
    assert tuple(map(int, versions["numpy"].split(".")[:2])) < (2, 5)


def test_every_import_is_a_direct_dependency() -> None:
    """What we import stands in pyproject.toml, even where another package happens to bring it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named, for_measuring = (
        {normal(re.split(r"[<>=]", text)[0]) for text in wanted}
        for wanted in ([*project["dependencies"], *extras["notebook"]], extras["dev"])
    )
    distribution = {"cuda": "cuda-bindings", "pymdownx": "pymdown-extensions", "markdown_it": "markdown-it-py"}
    # numba-cuda's own requirement: it replaces numba.cuda, and is of no use without numba.
    named.add("numba")
    for path in MODULES:
        for module in imports_of(path):
            top = module.split(".")[0]
            if top not in sys.stdlib_module_names and top not in PACKAGES:
                where = path.relative_to(ROOT)
                # A benchmark drives a browser as the tests do, and says so where it is not there.
                allowed = named | for_measuring if path.name.endswith("_bench.py") else named
                assert normal(distribution.get(top, top)) in allowed, f"{where} imports {module}"


# Modules


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_has_a_header_and_a_readable_size(path: Path) -> None:
    text = path.read_text()
    header = ast.get_docstring(ast.parse(text))
    assert header, "a module opens by telling a newcomer what it is for"
    assert header.split("\n")[0].rstrip().endswith((".", ":", ")")) or "\n" in header
    assert len(text.splitlines()) <= 400


def test_every_folder_of_modules_is_a_package() -> None:
    assert [str(path.parent) for path in MODULES if not (path.parent / "__init__.py").exists()] == []


def test_simt_imports_numpy_and_greenlet_only() -> None:
    allowed = {"numpy", "greenlet"}
    files = sorted((ROOT / "kernels" / "simt").rglob("*.py"))
    assert files
    for path in files:
        for module in imports_of(path):
            top = module.split(".")[0]
            ours = module == "kernels" or module.startswith(("kernels.simt", "kernels.errors"))
            assert ours or top in allowed or top in sys.stdlib_module_names, f"{path.name} imports {module}"


def test_ports_import_layout_and_numba_only() -> None:
    """Beside them: decorators, errors, number formats, their neighbours, NumPy for host code, torch in a few files."""
    ours = ("kernels.layout", "kernels.kernel", "kernels.errors", "kernels.numbers", "kernels.vllm")
    for path in sorted((ROOT / "kernels" / "vllm").rglob("*.py")):
        allowed = {"numba", "numpy"} | ({"torch"} if path.name.startswith(("ops", "theirs")) else set())
        for module in imports_of(path):
            top = module.split(".")[0]
            of_ours = module == "kernels" or module.startswith(ours)
            assert of_ours or top in allowed or top in sys.stdlib_module_names, f"{path.name} imports {module}"


def test_import_directions_hold() -> None:
    done = run(str(BIN / "lint-imports"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


BARE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.split('.')[0]
        if top in {banned!r}:
            raise ModuleNotFoundError('not on a GPU machine: ' + name, name=top)
        return None

sys.meta_path.insert(0, Refuse())
import kernels.vllm.ops_grid
import walkthroughs.export.in_notebook
import walkthroughs.grid
import walkthroughs.hardware
import walkthroughs.machine_code
import walkthroughs.records
from walkthroughs.hardware_rows import rows
from walkthroughs.step import registry
assert registry() and rows()
"""


def test_the_record_writer_needs_only_what_a_gpu_machine_has() -> None:
    """numba-cuda, NumPy, torch and the standard library: with the rest refused, it still imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    there = {"numpy", "numba-cuda", "llvmlite", "torch"}  # llvmlite comes with numba
    banned = {normal(re.split(r"[<>=]", text)[0]).replace("-", "_") for text in project["dependencies"]} - {
        name.replace("-", "_") for name in there
    }
    banned |= {"pymdownx", "hypothesis", "pytest", "yaml"}
    done = run(sys.executable, "-c", BARE.format(banned=banned))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["annotate", "kernels"])
def test_ours_are_imported(package: str) -> None:
    """Other distributions have these names."""
    done = run(sys.executable, "-c", f"import {package}; print({package}.__file__)", cwd=Path("/"))
    assert Path(done.stdout.strip()).resolve().parent == ROOT / package


def test_no_init_under_tests_can_hide_a_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


# What no committed file may hold

FORBIDDEN = {
    # Written in pieces, so that this file does not hold them either.
    "a package index's host": re.compile("py" + r"pi\.org|python" + r"hosted\.org|registry" + r"\.npmjs"),
    "an index option": re.compile("--(extra-)?" + "index-url|--find" + "-links"),
    "a path of one machine": re.compile(r"(?<![\w.])/(" + "work" + "|root|home)" + r"/[\w.-]+"),
}
# Tests of bad URLs and the like may need the words; nothing does so far.
BINARY = {".png", ".ico", ".woff2", ".npz"}


def test_no_file_names_an_index_or_a_machine() -> None:
    found = []
    for path in tracked():
        if path.suffix in BINARY:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            where = f"{path.relative_to(ROOT)}:{number}"
            found += [f"{where}: {what}" for what, pattern in FORBIDDEN.items() if pattern.search(line)]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a package index's host", "https://py" + "pi.org/simple"),
        ("an index option", "pip install --index" + "-url x"),
        ("a path of one machine", "open('/" + "home/someone/x')"),
    ],
)
def test_the_search_finds(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


# The commands of the README


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_makefile_has_the_agreed_targets() -> None:
    assert make_targets() >= TARGETS


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "tests/README.md"])
def test_every_make_command_of_the_documents_exists(document: str) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", (ROOT / document).read_text(), re.MULTILINE))
    assert named
    assert named <= make_targets()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_pagewalk_command_of_the_documents_exists(document: str) -> None:
    from walkthroughs.cli import COMMANDS

    named = set(re.findall(r"\.venv/bin/pagewalk ([a-z]+)", (ROOT / document).read_text()))
    assert named
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_can_be_planned(target: str) -> None:
    done = run("make", "--dry-run", target)
    assert done.returncode == 0, done.stderr


def test_ci_runs_what_a_reader_would_type() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK)
    commands = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "make test"


def test_gpu_records_takes_a_bare_python_as_it_is(tmp_path: Path) -> None:
    """A Python that imports numba.cuda, NumPy and torch runs the records itself; no environment is made."""
    called = tmp_path / "called"
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
    fake.chmod(0o755)
    done = run("make", "gpu-records", f"PYTHON={fake}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 0, done.stderr
    assert called.read_text().splitlines()[-3::2] == ["-m walkthroughs.records", "-m walkthroughs.machine_code"]
    assert not (tmp_path / "venv").exists()


def test_contributing_explains_each_addition_in_under_ten_lines() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for thing in ("an anchor", "a port", "a step", "a record"):
        body = text.split(f"## Add {thing}\n")[1].split("\n## ")[0]
        lines = [line for line in body.splitlines() if line.strip()]
        assert 3 <= len(lines) < 10, thing


def test_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert len(text.splitlines()) > 190
