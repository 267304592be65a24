"""What became of the lines that read or write a cache: how wide the compiler's loads and stores there are.

Which lines those are comes from the port's syntax, what they became from the rows of the record: nothing is written
down by hand.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from walkthroughs import digest, machine_parse
from walkthroughs.machine_parse import Place
from walkthroughs.machine_record import NOWHERE, Code

_CACHE = re.compile(r"(^|_)(cache|pool)(_ptr)?$")
_KEY, _VALUE = re.compile(r"^(k|key)(_|$)"), re.compile(r"^(v|value)(_|$)")
KINDS = {"read": "global loads", "write": "global stores"}
VECTOR = "ld.global.v4"


@dataclass(frozen=True)
class Access:
    """A line that reads or writes a cache. `what`: K, V, or K and V. `ptx`, `sass`: how many instructions, by name.

    Both are empty where the compiler made one access of several lines: it then belongs to none of them.
    """

    kind: str
    what: str
    file: str
    line: int
    ptx: Mapping[str, int]
    sass: Mapping[str, int]

    @property
    def is_vector4(self) -> bool:
        """Whether every load of the line is a `ld.global.v4`."""
        return bool(self.ptx) and all(".v4." in name for name in self.ptx)

    @property
    def bits(self) -> tuple[int, ...]:
        """How many bits one instruction moves for a thread: each width that occurs in the PTX."""
        return tuple(sorted({machine_parse.load_bits(name) for name in self.ptx}))


def accesses(code: Code, places: Sequence[Place]) -> list[Access]:
    """Every line of a compiled kernel that reads or writes a cache; `places` are the present lines of `code.lines`."""
    lines = {place: number for number, place in enumerate(places)}
    used = {number for side in code.rows.values() for _, number in side}
    found = []
    for file in dict.fromkeys(file for file, _ in places):
        for kind, what, line in cache_lines(file):
            # A line without any instruction belongs to another specialisation.
            if (number := lines.get((file, line), NOWHERE)) in used and number != NOWHERE:
                ptx, sass = (_named(code.rows[side], number, KINDS[kind]) for side in ("ptx", "sass"))
                found.append(Access(kind, what, file, line, ptx, sass))
    return found


def unplaced(code: Code, kind: str) -> dict[str, int]:
    """The PTX loads (`read`) or stores (`write`) that belong to no line, by name."""
    return _named(code.rows["ptx"], NOWHERE, KINDS[kind])


def _named(rows: Iterable[tuple[str, int]], number: int, kind: str) -> dict[str, int]:
    texts = [text for text, line in rows if line == number and machine_parse.kind_of(text) == kind]
    return dict(sorted(Counter(map(machine_parse.mnemonic, texts)).items()))


@cache
def cache_lines(file: str) -> tuple[tuple[str, str, int], ...]:
    """The lines of a file that read or write an array whose name ends in cache or pool: kind, what, line."""
    tree = ast.parse((digest.ROOT / file).read_text("utf-8"))
    found: dict[tuple[str, str, int], None] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and _is_compiled(function):
            for statement in ast.walk(function):
                if isinstance(statement, ast.Assign | ast.AugAssign):
                    found.update(dict.fromkeys(_of_statement(statement)))
    return tuple(sorted(found, key=lambda entry: entry[2]))


def _is_compiled(function: ast.FunctionDef) -> bool:
    """Whether a function is a kernel or a device function: host code reads caches too."""
    names = {ast.unparse(decorator).split("(")[0] for decorator in function.decorator_list}
    return bool(names & {"kernel", "device"})


def _of_statement(statement: ast.Assign | ast.AugAssign) -> Iterator[tuple[str, str, int]]:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and _CACHE.search(node.value.id):
            kind = "write" if isinstance(node.ctx, ast.Store) else "read"
            yield kind, _what(node.value.id, ast.unparse(node.slice), _base(target)), node.lineno
        elif isinstance(node, ast.Call) and "load" in ast.unparse(node.func):
            # A vector load takes the array itself.
            for given in node.args:
                if isinstance(given, ast.Name) and _CACHE.search(given.id):
                    yield "read", _what(given.id, "", _base(target)), node.lineno


def _base(target: ast.expr) -> str:
    """The name of the variable or array that is assigned to."""
    return ast.unparse(target.value if isinstance(target, ast.Subscript) else target)


def _what(*names: str) -> str:
    """K or V, by the first name that says so: the array's, its index', that of what is assigned to."""
    for name in names:
        for what, pattern in (("K", _KEY), ("V", _VALUE)):
            if pattern.match(name):
                return what
    return "K and V"


def said(access: Access) -> str:
    """One sentence, as Markdown: what the line became."""
    where = f"the {access.what} {'load' if access.kind == 'read' else 'store'}, line {access.line} of `{access.file}`"
    if not access.ptx:
        return f"{where}: the compiler made one access of several lines, which belongs to none of them."
    became = f"{where}: {_list(access.ptx)}; in machine code {_list(access.sass) or 'nothing of its own'}."
    width = " or ".join(str(bits // 8) for bits in access.bits)
    moved = f"One moves {width} bytes for a thread"
    if access.kind == "write":
        return f"{became} {moved}."
    verdict = f"it became `{VECTOR}`" if access.is_vector4 else f"it did not become `{VECTOR}`"
    return f"{became} {moved}: **{verdict}**."


def _list(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{number} × `{name}`" for name, number in counts.items())
