"""What an exported notebook calls: it shows a step's lines of the port, runs the step, and shows what was seen.

It needs numba-cuda, NumPy, torch and the standard library, as the runner does, and nothing of the command line or the
site: a notebook service has a GPU and not much else.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.gpu_extra import NUMBA_CUDA, driver_version, extra_for, requirement

if TYPE_CHECKING:
    from kernels.kernel import Backend
    from walkthroughs.evidence import Evidence

ROOT = Path(__file__).resolve().parents[2]
HEAD = ("check", "observed", "expected", "error", "tolerance", "verdict")
NARROW = 48
_chosen: list[Backend] = []


class NotReady(RuntimeError):
    """The notebook cannot run here; the message says what to type."""


class StepDidNotPass(AssertionError):
    """A step's check did not hold, or the step did not run to its end; the message says which and how far off."""


@dataclass(frozen=True)
class Said:
    """A line of text as the output of a cell."""

    text: str

    def __repr__(self) -> str:
        return self.text


def start(backend: str = "auto") -> Said:
    """Choose where the steps run: `auto`, `cuda` or `sim`. Says which it is, why, and with which versions.

    Raises NotReady where something is missing, or where another package called `kernels` came first, and
    BackendUnavailable for `cuda` without a GPU.
    """
    _all_there()
    from kernels.kernel import cuda_unavailable
    from walkthroughs import runner

    chosen = runner.choose(backend)
    if chosen.name == "sim" and find_spec("greenlet") is None:
        raise NotReady("the SIMT machine needs greenlet: %pip install greenlet, then run this cell again")
    _chosen[:] = [chosen]
    name, driver = runner.device(chosen.name)
    versions = ", ".join(f"{package} {version}" for package, version in runner.versions(chosen.name).items())
    if chosen.name == "cuda":
        why = f"{name}, driver {driver}"
    else:
        why = f"the {name}, {'as asked' if backend == 'sim' else f'since {cuda_unavailable()}'}"
    return Said(f"Steps run on: {chosen.name} ({why})\n{versions}")


def _all_there() -> None:
    import kernels

    if Path(kernels.__file__ or "").resolve().parent != ROOT / "kernels":
        raise NotReady(f"another package kernels is loaded ({kernels.__file__}): restart, and run this cell first")
    needed = {"numpy": "numpy", "numba": _numba_cuda(), "torch": "torch"}
    lacking = [wanted for module, wanted in needed.items() if find_spec(module) is None]
    try:
        metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:
        lacking.append(_numba_cuda())
    if lacking:
        named = " ".join(f'"{wanted}"' for wanted in dict.fromkeys(lacking))
        raise NotReady(f"missing here: %pip install {named}, then restart and run this cell again")


def _numba_cuda() -> str:
    return requirement(extra_for(driver_version())) or f"numba-cuda=={NUMBA_CUDA}"


def backend() -> Backend:
    """The backend that `start` chose; raises NotReady before that."""
    if not _chosen:
        raise NotReady("run the first code cell: it chooses where the steps run")
    return _chosen[0]


# Lines


@dataclass(frozen=True)
class Piece:
    """A run of lines of one of our files: `first` is the number of the first, 1-based."""

    path: str
    first: int
    text: tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + len(self.text) - 1


@dataclass(frozen=True)
class Lines:
    """The lines of ours that a step shows, as the output of a cell."""

    pieces: tuple[Piece, ...]

    def __repr__(self) -> str:
        return "\n\n".join(_numbered(piece) for piece in self.pieces) or "No lines of ours belong to this step."

    def _repr_markdown_(self) -> str:
        parts = [f"`{p.path}`, {_said(p)}\n\n```python\n{_dedented(p)}\n```" for p in self.pieces]
        return "\n\n".join(parts) or "No lines of ours belong to this step."


def lines(step_id: str) -> Lines:
    """The lines of a step: the regions of its concepts in the port, and on its left side if that is ours too.

    They are read from the checkout. Raises UnknownStep with the nearest ids.
    """
    from walkthroughs.digest import port_files
    from walkthroughs.step import get

    step = get(step_id)
    own = [] if "@" in step.source else [step.source]
    files = dict.fromkeys([*own, *port_files(step.port)])
    return Lines(tuple(piece for path in files for piece in _pieces(path, step.reads)))


def _pieces(path: str, reads: Iterable[str]) -> Iterator[Piece]:
    from annotate.regions import is_fence

    text, found = _file(path)
    wanted = {number for name in reads for first, last in found.get(name, ()) for number in range(first, last + 1)}
    run: list[int] = []
    for number in [*sorted(number for number in wanted if not is_fence(text[number - 1])), 0]:
        # A fence inside a region leaves no gap worth showing.
        if run and not (number and all(is_fence(line) for line in text[run[-1] : number - 1])):
            yield _trimmed(path, run, text)
            run = []
        run.append(number)


def _trimmed(path: str, run: Sequence[int], text: Sequence[str]) -> Piece:
    full = [number for number in run if text[number - 1].strip()] or list(run)
    inside = [number for number in run if full[0] <= number <= full[-1]]
    return Piece(path, inside[0], tuple(text[number - 1] for number in inside))


@cache
def _file(path: str) -> tuple[tuple[str, ...], dict[str, list[tuple[int, int]]]]:
    from annotate.regions import regions

    text = (ROOT / path).read_text("utf-8")
    found = {name: [(r.first, r.last) for r in entries] for name, entries in regions(text).items()}
    return tuple(text.split("\n")), found


def _dedented(piece: Piece) -> str:
    return textwrap.dedent("\n".join(piece.text))


def _said(piece: Piece) -> str:
    return f"from line {piece.first}" if len(piece.text) > 1 else f"line {piece.first}"


def _numbered(piece: Piece) -> str:
    return f"{piece.path}, {_said(piece)}\n{_dedented(piece)}"


# Runs


@dataclass(frozen=True)
class Seen:
    """What a run of a step saw, as the output of a cell: a table, with its text for where there is no HTML."""

    record: Evidence

    def must_pass(self) -> None:
        """Raise StepDidNotPass, naming every check that does not hold, unless the step passed."""
        record = self.record
        if record.status == "passed":
            return
        wrong = [
            f"{check.name}: observed {check.observed}, expected {check.expected}, "
            f"error {_number(check.max_error)}, tolerance {_number(check.tolerance)}"
            for check in record.checks
            if not check.passed
        ]
        raise StepDidNotPass("\n".join([f"{record.step} {record.status}. {record.message}".strip(), *wrong]))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The checks and then the measured values, each as the cells of `HEAD`."""
        found: list[tuple[str, ...]] = [
            (
                _noted(check.name, check.note),
                check.observed,
                check.expected,
                _number(check.max_error),
                _number(check.tolerance),
                "passed" if check.passed else "FAILED",
            )
            for check in self.record.checks
        ]
        return found + [(_noted(row.name, row.note), row.text, "", "", "", "") for row in self.record.measured]

    @property
    def caption(self) -> str:
        """The verdict, where it ran, and how long it took."""
        record = self.record
        status = record.status if record.status == "passed" else record.status.upper()
        return f"{record.step}: {status} on {record.device} in {record.seconds:.3f} s. {record.message}".strip()

    def __repr__(self) -> str:
        rows = [HEAD, *([_short(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
        said = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*said, self.caption])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in HEAD)
        body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in self.rows)
        return (
            f"<table><caption>{escape(self.caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def run(step_id: str) -> Seen:
    """Run one step on the backend that `start` chose. Raises NotReady or UnknownStep; a check that fails does not."""
    from walkthroughs import runner
    from walkthroughs.step import get

    return Seen(runner.run(get(step_id), backend()))


def _cell(text: str) -> str:
    return f'<td style="text-align:left">{escape(text)}</td>'


def _noted(name: str, note: str) -> str:
    return f"{name} ({note})" if note else name


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def _short(text: Any) -> str:
    said = str(text)
    return said if len(said) <= NARROW else said[: NARROW - 1] + "…"
