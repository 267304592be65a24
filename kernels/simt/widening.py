"""Where Numba computes in float64 what the machine computes in float32: a look at a kernel's source, before a launch.

To Numba a float literal is a float64 and widens what it meets; to NumPy, and so to the machine, it takes the type of
the other side. `float32(0.5)` is the same for both. What a kernel multiplies with an int cannot be seen here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernels.simt.report import show_line


@dataclass(frozen=True)
class Widening:
    """A bare float literal, or a module's float constant, in a kernel: its line and text."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{show_line(self.file, self.line)}: Numba types {self.text} as float64; write float32({self.text})"


def widenings(fn: Callable[..., Any]) -> list[Widening]:
    """The float literals and float globals of a function that are not arguments of a call, by line.

    An argument is converted to what it is passed for: a cast, or a parameter with a type of its own.
    """
    lines, first = inspect.getsourcelines(fn)
    file = inspect.getsourcefile(fn) or "?"
    tree = ast.parse(textwrap.dedent("".join(lines)))
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda))
    local = set(fn.__code__.co_varnames)
    floats = {name for name, value in fn.__globals__.items() if isinstance(value, float) and name not in local}
    body = function.body if isinstance(function.body, list) else [function.body]
    found = [node for statement in body for node in _bare(statement, floats)]
    return [Widening(file, first + node.lineno - 1, ast.unparse(node)) for node in sorted(found, key=_place)]


def _bare(node: ast.AST, floats: set[str]) -> Iterator[ast.expr]:
    if isinstance(node, ast.Constant | ast.Name) and _is_float(node, floats):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Call) and _is_argument(child, floats)):
            yield from _bare(child, floats)


def _is_float(node: ast.AST, floats: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float)
    return isinstance(node, ast.Name) and node.id in floats


def _is_argument(node: ast.AST, floats: set[str]) -> bool:
    """A float with or without a sign, which a call may take as it is."""
    return _is_float(node.operand if isinstance(node, ast.UnaryOp) else node, floats)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
