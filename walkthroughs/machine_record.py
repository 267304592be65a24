"""The machine-code record of a kernel: typed, its JSON, and whether it still describes the port.

A record is written on a machine with a GPU by `walkthroughs.machine_code`, never by hand. It names lines of our files
by number and by their place among the nodes of the syntax tree: when only comments change, the lines are found again.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from walkthroughs import digest, evidence, machine_parse, machine_subjects
from walkthroughs.evidence import EvidenceError
from walkthroughs.machine_parse import Place

SCHEMA = 1
FOLDER = evidence.EVIDENCE / "machine"
LARGE = 300_000
"""Bytes; a larger record is said to be one when it is made."""
NOWHERE = -1
SIDES = ("ptx", "sass")


@dataclass(frozen=True)
class Code:
    """One compiled kernel. `rows`: by side (ptx, sass), each instruction's text and the number of its line in `lines`,

    NOWHERE for none. `lines`: file, line, and the number of the first syntax node that starts there (NOWHERE: none).
    `shared`, `local`: bytes a block and a thread. `unlike_launched`: rows of the SASS that a launch runs otherwise.
    """

    name: str
    target: str
    how: str
    notes: tuple[str, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_shared: int
    arguments: tuple[tuple[str, str], ...]
    registers: int
    shared: int
    local: int
    unlike_launched: int
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    lines: tuple[tuple[str, int, int], ...]
    rows: Mapping[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class MachineRecord:
    """What was compiled for one kernel's case, where and with what."""

    kernel: str
    title: str
    port: str
    backend: str
    device: str
    driver: str
    compute_capability: str
    versions: Mapping[str, str]
    date: str
    digest: str
    case: str
    case_title: str
    seconds: float
    kernels: tuple[Code, ...]


class LineTable:
    """Numbers the lines that instructions came from: the innermost line that is in one of our kernels' files."""

    def __init__(self, port: str) -> None:
        self.rows: list[list[Any]] = []
        self._numbers: dict[Place, int] = {}
        self._closure = set(closure(port))

    def index(self, places: Sequence[Place]) -> int:
        """The number of an instruction's line, NOWHERE for none."""
        for file, line in places:
            # A changed copy of a file is called FILE#what.
            path = relative(file.split("#")[0])
            if path in self._closure:
                place = (path, line)
                if place not in self._numbers:
                    self._numbers[place] = len(self.rows)
                    self.rows.append([path, line, _node_at(path, line)])
                return self._numbers[place]
        return NOWHERE


def relative(file: str) -> str:
    """A path of the checkout, relative to it; an empty string for any other."""
    path = Path(file)
    return path.relative_to(digest.ROOT).as_posix() if path.is_relative_to(digest.ROOT) else ""


def closure(port: str) -> tuple[str, ...]:
    """The port's file and every file of `kernels` that it imports, without the SIMT machine."""
    return tuple(file for file in digest.port_files(port) if not file.startswith("kernels/simt/"))


@cache
def node_lines(path: str) -> tuple[int, ...]:
    """The first line of every statement and expression of a file, in the order of its syntax tree.

    Docstrings and what lies inside f-strings are left out: a digest does not see the first, and Python versions differ
    over the second. Equal digests thus mean equal lists but for the numbers.
    """
    found: list[int] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        if isinstance(node, ast.stmt | ast.expr):
            found.append(node.lineno)
        if not isinstance(node, ast.JoinedStr):
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(ast.parse((digest.ROOT / path).read_text("utf-8")))
    return tuple(found)


def _node_at(path: str, line: int) -> int:
    lines = node_lines(path)
    return lines.index(line) if line in lines else NOWHERE


def present_lines(record: MachineRecord, code: Code) -> list[Place]:
    """Where the lines of a record are today; for a stale record, where they were."""
    if not fresh(record):
        return [(file, line) for file, line, _ in code.lines]
    return [(file, line if node == NOWHERE else node_lines(file)[node]) for file, line, node in code.lines]


@cache
def digest_of(name: str) -> str:
    """What the record of a kernel depends on: the files of its port, and what its case launches."""
    from walkthroughs import machine_compile

    subject = machine_subjects.subject(name)
    said = [
        f"{launch.kernel.name} {launch.grid} {launch.block} {launch.shared} {list(map(str, launch.types))} "
        f"{sorted((key, _said(value)) for key, value in launch.kernel.constants.items())}"
        for launch in machine_compile.launches(subject.run, "sim")
    ]
    return digest.of_files(closure(subject.port), extra="\n".join(said))


def _said(value: Any) -> str:
    """A template argument as text that is the same in every process."""
    inner = getattr(value, "fn", value)
    return str(getattr(inner, "__qualname__", None) or getattr(inner, "_name", None) or inner)


def fresh(record: MachineRecord) -> bool:
    """True while the record describes the present port and case."""
    return record.kernel in machine_subjects.names() and record.digest == digest_of(record.kernel)


def load(name: str, folder: Path = FOLDER) -> MachineRecord | None:
    """The record of a kernel, or None; raises EvidenceError for a file that is not one."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        found = parse(path.read_text("utf-8"))
        if found.kernel != name:
            raise EvidenceError(f"it is of {found.kernel}")
    except (EvidenceError, UnicodeDecodeError) as error:
        raise EvidenceError(f"machine/{path.name}: {error}") from error
    return found


def parse(text: str) -> MachineRecord:
    """The record in a JSON text; raises EvidenceError for another schema, missing fields, or counts that are wrong."""
    try:
        data = json.loads(text)
        if data.pop("schema") != SCHEMA:
            raise EvidenceError(f"its schema is not {SCHEMA}; record it again")
        codes = tuple(_code(entry) for entry in data.pop("kernels"))
        found = MachineRecord(kernels=codes, **data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"not a machine-code record: {type(error).__name__}: {error}") from error
    if not codes:
        raise EvidenceError("it has no kernel")
    return found


def _code(entry: dict[str, Any]) -> Code:
    fields = dict(entry)
    rows = {side: tuple((str(text), int(line)) for text, line in fields.pop(side)) for side in SIDES}
    lines = tuple((str(file), int(line), int(node)) for file, line, node in fields.pop("lines"))
    for side in SIDES:
        if not rows[side]:
            raise EvidenceError(f"{fields['name']} has no {side}")
        if not all(NOWHERE <= line < len(lines) for _, line in rows[side]):
            raise EvidenceError(f"{fields['name']}: a {side} row names a line that is not there")
        if fields["counts"][side] != machine_parse.count(text for text, _ in rows[side]):
            raise EvidenceError(f"{fields['name']}: the counts of its {side} are not those of its rows")
    for name in ("notes", "grid", "block"):
        fields[name] = tuple(fields[name])
    fields["arguments"] = tuple((str(name), str(kind)) for name, kind in fields["arguments"])
    return Code(rows=rows, lines=lines, **fields)


def dump(record: Mapping[str, Any]) -> str:
    """The record as JSON, an instruction a line: small, and a change can be read."""
    tables: list[Sequence[Any]] = []

    def marked(name: str, value: Any) -> Any:
        if name in (*SIDES, "lines"):
            tables.append(value)
            return f"@{len(tables) - 1}@"
        return value

    kernels = [{name: marked(name, value) for name, value in code.items()} for code in record["kernels"]]
    text = json.dumps({**record, "kernels": kernels}, indent=1, ensure_ascii=False, allow_nan=False)
    for number, table in enumerate(tables):
        rows = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in table)
        text = text.replace(f'"@{number}@"', f"[\n{rows}\n]", 1)
    return text + "\n"
