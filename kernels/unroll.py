"""Unrolled loops and register arrays: what `#pragma unroll` does for C++, done to a kernel's syntax tree.

    scores = registers(4)
    for k in unrolled(STEPS):
        scores[k] = float32(0)

A local array that is indexed in a loop lives in memory, not in registers. So `unrolled` loops are written out, and each
element of `registers` becomes a variable of its own: `scores_0`, `scores_1`. Sizes and indices must be constants of the
specialised kernel or names of unrolled loops. Line numbers stay, so probes and regions find their lines.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import types
from collections.abc import Mapping
from functools import cache
from typing import Any

from kernels.errors import KernelError
from kernels.kernel import Kernel

LOOP, ARRAY, NUMBER = "unrolled", "registers", "fixed"
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)


class UnrollError(KernelError, ValueError):
    """A loop or a register array whose size or index is no constant; says where and which."""


def registers(size: int) -> Any:
    """`size` variables under one name. Only a kernel that `unroll` has written out can run."""
    raise UnrollError(f"registers({size}): this kernel was not unrolled; launch unroll(kernel, ...)")


def unrolled(count: int) -> Any:
    """A loop from 0 to `count`, written out. Only a kernel that `unroll` has written out can run."""
    raise UnrollError(f"unrolled({count}): this kernel was not unrolled; launch unroll(kernel, ...)")


def fixed(number: int) -> Any:
    """A number that is known when the kernel is written out, under a name of its own."""
    raise UnrollError(f"fixed({number}): this kernel was not unrolled; launch unroll(kernel, ...)")


def unroll(kernel: Kernel, **template: Any) -> Kernel:
    """The specialised kernel with its unrolled loops written out; the same object for the same parameters.

    Raises UnrollError.
    """
    return _unroll(kernel.fn, kernel.constexpr, tuple(sorted(template.items())))


def source(kernel: Kernel, **template: Any) -> str:
    """What `unroll` wrote out, as text."""
    return ast.unparse(_written_out(kernel.fn, kernel.specialise(**template).constants))


@cache
def _unroll(fn: types.FunctionType, constexpr: Any, template: tuple[tuple[str, Any], ...]) -> Kernel:
    constants = Kernel(fn, constexpr).specialise(**dict(template)).constants
    tree = _written_out(fn, constants)
    # Each loop's copies stand on the lines of the loop: compile needs no more.
    scope = dict(fn.__globals__)
    exec(compile(tree, fn.__code__.co_filename, "exec"), scope)
    made = scope[fn.__name__]
    assert isinstance(made, types.FunctionType)
    return Kernel(made, None, constants)


def _written_out(fn: types.FunctionType, constants: Mapping[str, Any]) -> ast.Module:
    lines, first = inspect.getsourcelines(fn)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    writer = _Writer({name: value for name, value in constants.items() if isinstance(value, int)})
    definition.body = writer.block(definition.body)
    ast.fix_missing_locations(tree)
    return tree


class _Writer(ast.NodeTransformer):
    """Writes loops out, with the numbers that names stand for; knows the register arrays declared so far."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self.sizes: dict[str, int] = {}

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """A list of statements, with the copies of each unrolled loop in its place."""
        found: list[ast.stmt] = []
        for statement in body:
            made = self.visit(statement)
            found += made if isinstance(made, list) else [made] if made is not None else []
        return found or [ast.copy_location(ast.Pass(), body[0])]

    def visit_For(self, node: ast.For) -> Any:
        """An unrolled loop as its copies; any other as it is, with what is in it written out."""
        if not _calls(node.iter, LOOP):
            node.iter = self.visit(node.iter)
            node.body = self.block(node.body)
            node.orelse = self.block(node.orelse) if node.orelse else []
            return node
        if not isinstance(node.target, ast.Name) or node.orelse:
            raise UnrollError(f"line {node.lineno}: an unrolled loop has one name and no else")
        found: list[ast.stmt] = []
        for number in range(self._number(_argument(node.iter), LOOP)):
            inner = _Writer({**self.numbers, node.target.id: number})
            inner.sizes = self.sizes
            found += inner.block(copy.deepcopy(node.body))
        return found

    def visit_If(self, node: ast.If) -> Any:
        """The two branches, written out; of a template parameter that is true or false, the one that it takes."""
        known = self.numbers.get(node.test.id) if isinstance(node.test, ast.Name) else None
        if isinstance(known, bool):
            taken = node.body if known else node.orelse
            return self.block(taken) if taken else []
        node.test = self.visit(node.test)
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse) if node.orelse else []
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        """The body, written out."""
        node.test = self.visit(node.test)
        node.body = self.block(node.body)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """`name = registers(n)` and `name = fixed(n)` declare, and leave nothing behind."""
        for word, known in ((ARRAY, self.sizes), (NUMBER, self.numbers)):
            if _calls(node.value, word):
                target = node.targets[0]
                if len(node.targets) != 1 or not isinstance(target, ast.Name):
                    raise UnrollError(f"line {node.lineno}: {word} is given to one name")
                known[target.id] = self._number(_argument(node.value), word)
                return None
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """An element of a register array as the variable that it is."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.sizes:
            return self.generic_visit(node)
        name, size = node.value.id, self.sizes[node.value.id]
        number = self._number(node.slice, name)
        if not 0 <= number < size:
            raise UnrollError(f"line {node.lineno}: {name}[{number}]: registers({size}) end at {size - 1}")
        return ast.copy_location(ast.Name(f"{name}_{number}", node.ctx), node)

    def visit_Name(self, node: ast.Name) -> Any:
        """The number of an unrolled loop in place of its name."""
        if isinstance(node.ctx, ast.Load) and node.id in self.numbers:
            return ast.copy_location(ast.Constant(self.numbers[node.id]), node)
        return node

    def _number(self, node: ast.expr, what: str) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.numbers:
            return self.numbers[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
            left, right = self._number(node.left, what), self._number(node.right, what)
            folded = ast.Expression(ast.BinOp(ast.Constant(left), node.op, ast.Constant(right)))
            return int(eval(compile(ast.fix_missing_locations(folded), what, "eval")))
        raise UnrollError(f"line {node.lineno}: {what}: {ast.unparse(node)} is no constant of this kernel")


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _argument(node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.Call)
    if len(node.args) != 1 or node.keywords:
        raise UnrollError(f"line {node.lineno}: {ast.unparse(node)}: takes one size")
    return node.args[0]
