"""Notebooks: the same each time, valid, free of upstream text, and run cell by cell; a fault stops its cell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from annotate.sources import SourceTree
from walkthroughs.export import notebook, prose
from walkthroughs.mutations import MUTATIONS, Mutation
from walkthroughs.step import registry

ROOT = Path(__file__).resolve().parents[3]
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
TIME = re.compile(r"in \d+\.\d+ s\b")


def cells(book: Any, kind: str) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == kind]


def outputs(book: Any) -> str:
    return json.dumps([cell.get("outputs", []) for cell in book.cells], ensure_ascii=False)


@pytest.fixture(scope="module")
def books() -> dict[str, Any]:
    return {name: notebook.compose(walkthrough) for name, walkthrough in registry().items()}


@pytest.fixture(scope="module")
def exported(run_cli: RunCli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, as a reader would export them."""
    folder = tmp_path_factory.mktemp("notebooks")
    done = run_cli("export", "notebook", "--backend", "sim", "--output", str(folder), timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


# What is written


def test_a_notebook_has_a_text_and_a_code_cell_for_every_step(books: dict[str, Any]) -> None:
    for name, book in books.items():
        steps = registry()[name].steps
        wanted = ["intro", "setup"] + [f"{part}-{step.slug}" for step in steps for part in ("step", "run")]
        assert [cell.id for cell in book.cells] == wanted
        for step, text, code in zip(steps, cells(book, "markdown")[1:], cells(book, "code")[1:], strict=True):
            assert f". {step.title}\n" in text.source
            assert prose.words(step.prose) in text.source
            assert code.source.count(f'"{step.id}"') == 2
            assert code.source.endswith("seen.must_pass()")


def test_a_notebook_is_valid_and_says_its_kernel(books: dict[str, Any]) -> None:
    for book in books.values():
        again = nbformat.reads(notebook.dumps(book), as_version=4)
        nbformat.validate(again)
        assert again.metadata.kernelspec.name == "python3"
        assert again.nbformat_minor >= 5


def test_a_notebook_is_composed_the_same_each_time(books: dict[str, Any]) -> None:
    for name in ("paged-reference", "findings"):
        assert notebook.dumps(notebook.compose(registry()[name])) == notebook.dumps(books[name])


def test_code_cells_compile_and_import_nothing_of_the_site(books: dict[str, Any]) -> None:
    for book in books.values():
        for cell in cells(book, "code"):
            compile(cell.source, cell.id, "exec")
        imported = re.findall(r"^(?:import|from) (\S+)", "\n".join(c.source for c in cells(book, "code")), re.MULTILINE)
        assert set(imported) == {"os", "sys", "pathlib", "walkthroughs.export.in_notebook"}


def test_every_upstream_place_is_linked_and_every_link_absolute(books: dict[str, Any]) -> None:
    for name, book in books.items():
        for step, cell in zip(registry()[name].steps, cells(book, "markdown")[1:], strict=True):
            links = re.findall(r"\]\(([^)]*)\)", re.sub(r"`[^`\n]*`", "", cell.source))
            assert all(link.startswith("https://") for link in links)
            assert all(prose.link(span) in cell.source for span in prose.places(step))


@pytest.mark.source
def test_nothing_upstream_is_in_the_text(books: dict[str, Any], vllm_024: SourceTree, vllm_026: SourceTree) -> None:
    said = " ".join(" ".join(cell.source.split()) for book in books.values() for cell in cells(book, "markdown"))
    for tree in (vllm_024, vllm_026):
        paths = {
            s.path
            for w in registry().values()
            for step in w.steps
            for s in prose.places(step)
            if s.source == tree.pin.id
        }
        lines = {" ".join(line.split()) for path in paths for line in tree.read(path).decode("utf-8").split("\n")}
        long = {line for line in lines if len(line) >= 30}
        assert len(long) > 300
        assert sorted(line for line in long if line in said) == []


# What runs


def test_every_exported_notebook_ran_and_every_check_held(exported: Path, books: dict[str, Any]) -> None:
    for name, composed in books.items():
        book = nbformat.read(exported / f"{name}.ipynb", as_version=4)
        nbformat.validate(book)
        assert [cell.source for cell in book.cells] == [cell.source for cell in composed.cells]
        assert "Steps run on: sim" in json.dumps(cells(book, "code")[0].outputs)
        for step, cell in zip(registry()[name].steps, cells(book, "code")[1:], strict=True):
            assert [out.output_type for out in cell.outputs] == ["display_data", "display_data"], (
                cell.id,
                cell.outputs,
            )
            assert set(cell.outputs[0].data) == {"text/markdown", "text/plain"}
            assert f"{step.id}: passed on SIMT machine" in cell.outputs[1].data["text/html"]
            assert cell.execution_count is not None


def test_an_exported_notebook_names_no_folder_of_the_machine(exported: Path) -> None:
    for path in exported.glob("*.ipynb"):
        assert str(ROOT) not in path.read_text("utf-8")
        assert str(Path.home()) not in path.read_text("utf-8")


def test_a_second_run_differs_in_the_times_only(exported: Path, run_cli: RunCli, tmp_path: Path) -> None:
    done = run_cli("export", "notebook", "paged-reference", "--backend", "sim", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    texts = [(folder / "paged-reference.ipynb").read_text("utf-8") for folder in (exported, tmp_path)]
    assert TIME.search(texts[0])
    assert TIME.sub("", texts[0]) == TIME.sub("", texts[1])


# Elsewhere: the notebook finds a checkout, says so if there is none, and shows a fault


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, as far as a notebook needs it."""
    folder = tmp_path_factory.mktemp("elsewhere") / "pagewalk"
    for part in ("annotate", "kernels", "walkthroughs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


RUN = """
import sys
from pathlib import Path
import nbformat
from walkthroughs.export import notebook
path, folder, backend = sys.argv[1:]
book = nbformat.read(path, as_version=4)
try:
    notebook.execute(book, backend, folder=Path(folder))
except notebook.NotebookFailed as error:
    print("FAILED", error)
Path(path).write_text(notebook.dumps(book), "utf-8")
"""


class Client:
    """A notebook client whose kernel dies at its first starts."""

    starts = 0

    def __init__(self, deaths: int, said: str = "Kernel died before replying to kernel_info") -> None:
        self.deaths, self.said = deaths, said

    def execute(self, env: dict[str, str]) -> None:
        Client.starts += 1
        assert env == {"A": "b"}
        if Client.starts <= self.deaths:
            raise RuntimeError(self.said)


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_kernel_that_never_answered_is_started_again(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "starts", 0)
    notebook._executed(lambda _: Client(deaths), {"A": "b"})
    assert Client.starts == deaths + 1


def test_it_is_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "starts", 0)
    with pytest.raises(notebook.NotebookFailed, match="kernel_info, 3 times"):
        notebook._executed(lambda _: Client(3), {"A": "b"})
    monkeypatch.setattr(Client, "starts", 0)
    with pytest.raises(RuntimeError, match="something else"):
        notebook._executed(lambda _: Client(1, "something else"), {"A": "b"})
    assert Client.starts == 1


def executed(book: Any, tmp_path: Path, folder: Path, backend: str = "sim") -> tuple[str, Any]:
    """Run a notebook in a folder, in a process of its own; answers what was said and the notebook with outputs."""
    path = tmp_path / "book.ipynb"
    path.write_text(notebook.dumps(book), "utf-8")
    command = [sys.executable, "-c", RUN, str(path), str(folder), backend]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, nbformat.read(path, as_version=4)


@pytest.mark.parametrize("where", ["inside", "deep", "beside"])
def test_a_notebook_finds_the_checkout(copy: Path, tmp_path: Path, where: str) -> None:
    places = {"inside": copy, "deep": copy / "docs" / "mine", "beside": copy.parent}
    places[where].mkdir(parents=True, exist_ok=True)
    book = notebook.compose(registry()["paged-reference"])
    shown = 'import kernels\nprint("from", kernels.__file__)'
    book.cells = [*book.cells[:4], nbformat.v4.new_code_cell(shown, id="where")]  # type: ignore[no-untyped-call]
    said, ran = executed(book, tmp_path, places[where])
    assert said == ""
    assert f"from {copy / 'kernels' / '__init__.py'}" in outputs(ran)


def test_without_a_checkout_the_first_cell_says_so_and_nothing_else_runs(tmp_path: Path) -> None:
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    said, ran = executed(notebook.compose(registry()["paged-reference"]), tmp_path, lonely)
    assert said.startswith("FAILED FileNotFoundError: No checkout of Pagewalk: not in")
    assert all(not cell.get("outputs") for cell in ran.cells[2:])


def mutation() -> Mutation:
    """A mutation of the small gather kernel that some step of paged-reference notices."""
    return next(m for m in MUTATIONS if m.file == "kernels/gather.py" and "paged-reference" in " ".join(m.steps))


def test_a_fault_in_the_kernel_fails_its_cell_for_all_to_see(copy: Path, tmp_path: Path) -> None:
    fault = mutation()
    port = copy / fault.file
    sound = port.read_text("utf-8")
    assert sound.count(fault.old) >= 1
    port.write_text(sound.replace(fault.old, fault.new), "utf-8")
    try:
        said, ran = executed(notebook.compose(registry()["paged-reference"]), tmp_path, copy)
    finally:
        port.write_text(sound, "utf-8")
    assert said.startswith("FAILED StepDidNotPass: paged-reference/")
    bad = [cell for cell in cells(ran, "code") if any(out.output_type == "error" for out in cell.outputs)]
    assert len(bad) == 1
    error = bad[0].outputs[-1]
    assert error.ename == "StepDidNotPass"
    assert "observed" in error.evalue
    assert "expected" in error.evalue
    # The table is there too, with the check that does not hold.
    assert "FAILED" in bad[0].outputs[1].data["text/html"]


def test_a_gpu_that_is_not_there_fails_the_first_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    said, _ = executed(notebook.compose(registry()["paged-reference"]), tmp_path, ROOT, "cuda")
    assert "FAILED BackendUnavailable" in said


def test_without_nbclient_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbclient", None)
    with pytest.raises(prose.ExportError, match="--no-run"):
        notebook.execute(notebook.compose(registry()["paged-reference"]), "sim")
