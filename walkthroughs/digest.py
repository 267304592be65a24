"""Digests that say whether a record still describes the code it was made with.

A digest is over syntax, not text: comments, docstrings and white space do not count, so prose can be
edited without a new GPU run. It is the same on every supported Python version.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from annotate import spans
from walkthroughs.step import Step

ROOT = Path(__file__).resolve().parent.parent
# What launches and watches a kernel is not part of the kernel.
NOT_THE_PORT = {"kernels.kernel", "kernels.errors", "kernels.probe"}
WORKBENCH = "walkthroughs/workbench.py"
INTRO = "WALKTHROUGH"
CATALOG = "walkthroughs.catalog."
# What has a body that may begin with a docstring.
WITH_BODY = (ast.Module, ast.FunctionDef, ast.ClassDef)
SPELT_DIFFERENTLY = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


@dataclass(frozen=True, slots=True)
class _Read:
    """What digests need of a Python text.

    `parts`: its statements in canonical form, each with whose it is: a step's function's name, `WALKTHROUGH` for the
    introduction, "" for all others. `kernels`, `catalog`: the names that it imports from there, a place once.
    """

    parts: tuple[tuple[str, str], ...]
    kernels: tuple[str, ...]
    catalog: tuple[str, ...]

    def text(self, *, without: Iterable[str] = ()) -> str:
        """`canonical` of the whole module, less the parts of those named."""
        body = ",".join(text for owner, text in self.parts if owner not in without)
        return f"Module(body=[{body}])" if body else "Module()"


def _read(path: str) -> _Read:
    return _read_text((ROOT / path).read_text("utf-8"))


# By text, not by name: a file may change in the course of a process. Once: nearly every step shares files with others.
@cache
def _read_text(text: str) -> _Read:
    tree = ast.parse(text)
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    kernels: dict[str, None] = {}
    for node in froms:
        if node.module and node.module.startswith("kernels"):
            kernels.update(dict.fromkeys([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]))
    return _Read(
        parts=tuple((_owner(node), canonical(node)) for node in tree.body if not _is_text(node)),
        kernels=tuple(kernels),
        catalog=tuple(dict.fromkeys(node.module for node in froms if node.module and node.module.startswith(CATALOG))),
    )


def _owner(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return node.name
    intro = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == INTRO
    return INTRO if intro else ""


def of_step(step: Step) -> dict[str, str]:
    """The digests of a step: `port` (the kernel and what it imports), `step` (its checks and cases), `anchors`

    (the upstream lines it shows), and `seen` (the record that it reads), if it reads one.
    """
    three = {"port": _short(_port(step.port)), "step": _short(_step(step)), "anchors": _short(_anchors(step))}
    return {**three, "seen": _short([(ROOT / step.seen).read_text("utf-8")])} if step.seen else three


def of_files(paths: Iterable[str], extra: str = "") -> str:
    """One digest over several Python files, given relative to the repository, and over `extra`."""
    return _short([*(f"{path} {_module(path)}" for path in sorted(paths)), extra])


def _short(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _port(path: str) -> list[str]:
    return [f"{name} {_module(name)}" for name in sorted(port_files(path))]


@cache
def port_files(path: str) -> tuple[str, ...]:
    """The port's file, and behind it every file of `kernels` that it imports, directly or not."""
    found: dict[str, None] = {}
    todo = [path]
    while todo:
        current = todo.pop(0)
        if current in found:
            continue
        found[current] = None
        files = [name.replace(".", "/") + ".py" for name in _read(current).kernels if name not in NOT_THE_PORT]
        todo += [file for file in files if (ROOT / file).is_file()]
    return tuple(found)


def _step(step: Step) -> list[str]:
    path = Path(step.run.__code__.co_filename).relative_to(ROOT).as_posix()
    own = _shared(path, step.run.__name__)
    # A later part of a walkthrough takes its case from an earlier part.
    earlier = sorted(_catalog_imports(path))
    # Cases and oracles: whatever of `kernels` these modules import.
    truth = sorted({file for module in (path, *earlier) for file in port_files(module)} - {path, *earlier})
    return [own, *(_shared(name, "") for name in earlier), *(_module(name) for name in (*truth, WORKBENCH))]


def _shared(path: str, step_name: str) -> str:
    """A catalog module without its steps, except the one that is named."""
    read = _read(path)
    return read.text(without={owner for owner, _ in read.parts} - {"", step_name})


def _catalog_imports(path: str) -> set[str]:
    found: set[str] = set()
    for module in _read(path).catalog:
        file = module.replace(".", "/") + ".py"
        found |= {file} | _catalog_imports(file)
    return found


def _anchors(step: Step) -> list[str]:
    if "@" not in step.source:
        return [_module(step.source)]
    known = spans.spans(step.source)
    return [f"{concept} {spans.digest_of(step.source, concept)}" for concept in step.reads if concept in known]


@cache
def _module(path: str) -> str:
    return hashlib.sha256(_read(path).text().encode()).hexdigest()


def canonical(node: ast.AST | list[ast.AST] | object) -> str:
    """A syntax tree as text that no Python version spells otherwise: empty fields are left out, so are docstrings."""
    if isinstance(node, list):
        return "[" + ",".join(canonical(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list) and isinstance(node, WITH_BODY):
            value = [item for item in value if not _is_text(item)]
        if isinstance(node, ast.JoinedStr):
            # Python 3.12 ends a nested format specification with an empty string.
            value = [item for item in value if not (isinstance(item, ast.Constant) and item.value == "")]
        if value not in (None, []) and name not in SPELT_DIFFERENTLY:
            parts.append(f"{name}={canonical(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
