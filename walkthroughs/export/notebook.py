"""Notebooks: a walkthrough as an `.ipynb` that runs from a checkout, on a GPU service or on the SIMT machine.

A notebook holds our words and calls; the port's lines are read from the checkout when a cell runs. With outputs, it
was run here, cell by cell, and every check held.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat

from annotate.files import write_text
from walkthroughs import evidence
from walkthroughs.digest import ROOT
from walkthroughs.step import Step, Walkthrough

from . import prose
from .prose import ExportError

# Its functions have no types.
_format: Any = nbformat
BACKEND = "PAGEWALK_BACKEND"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
STARTS = 3
"""How often a kernel is started that does not answer."""
NEVER_ANSWERED = "Kernel died before replying"
HOW = """\
Run the cells from top to bottom. Each step shows its lines of the port, runs them on a small case, and compares what
it saw with an oracle that shares no code with the kernel. A check that does not hold stops the notebook.

It needs a checkout of Pagewalk beside it or above it, and numba-cuda, NumPy and torch. With an NVIDIA GPU the kernels
run there, else on a machine in software (which needs greenlet)."""
SETUP = f"""\
import os
import sys
from pathlib import Path

mark = os.path.join("walkthroughs", "export", "in_notebook.py")
here = Path.cwd()
near = [here, *here.parents, *sorted(path for path in here.iterdir() if path.is_dir())]
root = next((folder for folder in near if os.path.isfile(folder / mark)), None)
if root is None:
    raise FileNotFoundError(
        f"No checkout of Pagewalk: not in {{here}}, not above it, not in a folder of it. "
        "Put one there, or start the notebook inside one, then run this cell again."
    )
sys.path.insert(0, str(root))

from walkthroughs.export.in_notebook import lines, run, start

start(os.environ.get("{BACKEND}", "auto"))  # or "cuda", or "sim"
"""


class NotebookFailed(ExportError):
    """A cell of a notebook raised; the message has its last lines."""


def compose(walkthrough: Walkthrough, records: Mapping[str, evidence.Evidence] | None = None) -> Any:
    """A walkthrough as a notebook without outputs; `records` are the committed ones, by step id."""
    known = evidence.load_committed() if records is None else records
    cells = [
        _markdown("intro", f"# {walkthrough.title}\n\n{prose.words(walkthrough.intro)}\n\n{HOW}"),
        _code("setup", SETUP.strip()),
    ]
    for number, step in enumerate(walkthrough.steps, start=1):
        cells += [
            _markdown(f"step-{step.slug}", _words(number, step, known.get(step.id))),
            _code(f"run-{step.slug}", _call(step)),
        ]
    metadata = {"kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    made = _format.v4.new_notebook(cells=cells, metadata=metadata)
    _format.validate(made)
    return made


def _markdown(name: str, text: str) -> Any:
    return _format.v4.new_markdown_cell(text, id=name)


def _code(name: str, text: str) -> Any:
    return _format.v4.new_code_cell(text, id=name)


def _words(number: int, step: Step, record: evidence.Evidence | None) -> str:
    said = "; ".join(prose.standing(step, record).words)
    places = prose.places(step)
    upstream = [f"Upstream, at a fixed revision: {'; '.join(prose.link(span) for span in places)}."] if places else []
    parts = [f"## {number}. {step.title}", prose.words(step.prose), f"*{said[0].upper()}{said[1:]}.*"]
    return "\n\n".join([*parts, *prose.proven_by(step), *upstream])


def _call(step: Step) -> str:
    return f'display(lines("{step.id}"))\ndisplay(seen := run("{step.id}"))\nseen.must_pass()'


def execute(book: Any, backend: str, *, folder: Path = ROOT, timeout: float = 900) -> Any:
    """Run a notebook in `folder`, on a backend (`auto`, `cuda`, `sim`), and answer it with its outputs.

    `timeout` is seconds a cell. Raises NotebookFailed where a cell raises, and ExportError where nbclient is missing.
    """
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
        from traitlets.config import Config
    except ImportError as error:
        raise ExportError(
            "running a notebook needs nbclient and ipykernel (pip install -e '.[notebook]'); --no-run does without"
        ) from error

    def client(place: str) -> Any:
        config: Any = Config()
        if os.name == "posix":
            # Files in a folder of its own. Ports are picked first and bound later: two kernels may pick the same.
            config.KernelManager.transport = "ipc"
            config.KernelManager.connection_file = str(Path(place) / "kernel.json")
        return NotebookClient(
            book,
            config=config,
            timeout=timeout,
            kernel_name=KERNEL["name"],
            resources={"metadata": {"path": str(folder)}},
            # Times of each cell would make every export another file.
            record_timing=False,
            # The kernel would warn that its sockets on this machine are not encrypted.
            extra_arguments=["--log-level=ERROR"],
        )

    try:
        _executed(client, {**os.environ, BACKEND: backend})
    except CellExecutionError as error:
        raise NotebookFailed(f"{error.ename}: {error.evalue}") from error
    except (CellTimeoutError, DeadKernelError) as error:
        raise NotebookFailed(str(error)) from error
    return book


def _executed(client: Callable[[str], Any], environment: dict[str, str]) -> None:
    """Run a notebook by a client that is given a new folder. A kernel that never answered is started again."""
    for left in reversed(range(STARTS)):
        try:
            with tempfile.TemporaryDirectory(prefix="pagewalk-") as place:
                client(place).execute(env=environment)
            return
        except RuntimeError as error:
            if NEVER_ANSWERED not in str(error):
                raise
            if not left:
                raise NotebookFailed(f"{error}, {STARTS} times") from error


def dumps(book: Any) -> str:
    """A notebook as the text of its file. The version of Python that ran it is left out: it is in the first output."""
    book.metadata["language_info"] = {"name": "python"}
    return str(_format.writes(book)) + "\n"


def write(book: Any, walkthrough: Walkthrough, folder: Path) -> Path:
    """Write a notebook as a whole or not at all; answers its path. Raises OSError."""
    path = folder / f"{walkthrough.id}.ipynb"
    write_text(path, dumps(book))
    return path
