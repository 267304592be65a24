"""Which numbers a step or a claim vouches for: those that its checks saw, and those that its code or its text states.

That a number is here does not make a sentence about it true. It means that the number was not made up for the sentence.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from walkthroughs.claims.ledger import claims
from walkthroughs.claims.numerals import numbers
from walkthroughs.evidence import Evidence
from walkthroughs.step import Step, StepFunction

# A list in a record that is shown in full; a longer one says how many values it has.
_LIST = re.compile(r"\[[^…\[\]]+\]")
_CATALOG = "walkthroughs.catalog."
_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: lambda left, right: left * 2**right,
}  # fmt: skip


def of_step(step: Step, record: Evidence | None) -> frozenset[float]:
    """The numbers of a step's code and of its record: what was checked, and what was measured."""
    return in_code(step.run) | (in_record(record) if record else frozenset())


def in_record(record: Evidence) -> frozenset[float]:
    """The numbers in a record's checks and measurements, and how many values a list in it has."""
    texts = [text for c in record.checks for text in (c.name, c.observed, c.expected, c.note)]
    texts += [text for m in record.measured for text in (m.name, m.text, m.note)]
    lengths = {float(c.observed.count(",") + 1) for c in record.checks if _LIST.fullmatch(c.observed)}
    return frozenset(lengths | {number.value for text in texts for number in numbers(text)})


def of_claim(name: str) -> frozenset[float]:
    """The numbers that a claim and its facts state, and those that its checks ask for."""
    claim = claims()[name]
    asked = [str(fact.params.get(key, "")) for fact in claim.facts for key in ("is", "equals", "observed", "tokens")]
    texts = (claim.says, claim.truth, claim.condition, *(fact.says for fact in claim.facts), *asked)
    return frozenset(number.value for text in texts for number in numbers(text))


def checks(step: Step) -> bool:
    """True if the step, or a helper that it calls, checks something at all."""
    calls = (node.func for code in _code(step.run) for node in ast.walk(code) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr == "check" for call in calls)


@cache
def in_code(run: StepFunction) -> frozenset[float]:
    """The numbers in a step's function and in the cases, constants and helpers of the catalog that it uses.

    Sums of literals count as their result, a range as its first and last number, `layout.NAME` as its value.
    """
    return frozenset(abs(number) for code in _code(run) for number in _numbers(code, run.__globals__))


@cache
def _code(run: StepFunction) -> tuple[ast.AST, ...]:
    """A step's function and, behind it, whatever of the catalog it names, directly or not."""
    module = Path(run.__code__.co_filename)
    found = [(module, _function(run))]
    seen = {(module, run.__name__)}
    for path, code in found:
        for name in sorted({node.id for node in ast.walk(code) if isinstance(node, ast.Name)}):
            new = [(home, other) for home, other in _defined(path, name) if (home, name) not in seen]
            seen |= {(home, name) for home, _ in new}
            found += new
    return tuple(code for _, code in found)


def _numbers(root: ast.AST, names: Mapping[str, Any]) -> Iterator[float]:
    skipped = _docstrings(root)
    for node in ast.walk(root):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield from (number.value for number in numbers(node.value))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
            yield from _ends([_value(argument) for argument in node.args])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id)
            if isinstance(module, ModuleType) and node.attr.isupper():
                yield from _number(getattr(module, node.attr, None))
        elif isinstance(node, ast.Name) and node.id.isupper():
            yield from _number(names.get(node.id))
        elif isinstance(node, ast.expr) and (known := _value(node)) is not None:
            yield known


def _value(node: ast.expr) -> float | None:
    """The value of a literal, or of a sum or product of literals; None for anything else."""
    if isinstance(node, ast.Constant):
        return next(_number(node.value), None)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATIONS:
        return None
    left, right = _value(node.left), _value(node.right)
    if left is None or right is None:
        return None
    try:
        return float(_OPERATIONS[type(node.op)](left, right))
    except ArithmeticError:
        return None


def _ends(bounds: list[float | None]) -> Iterator[float]:
    known = [int(bound) for bound in bounds if bound is not None]
    if known and len(known) == len(bounds) <= 3 and (values := range(*known)):
        yield from (values[0], values[-1])


def _number(value: object) -> Iterator[float]:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        yield float(value)


def _docstrings(root: ast.AST) -> set[ast.AST]:
    return {n.value for n in ast.walk(root) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _function(run: StepFunction) -> ast.AST:
    """The body of a step, without its decorator: titles and ids prove nothing."""
    path = Path(run.__code__.co_filename)
    first = run.__code__.co_firstlineno
    for node in ast.walk(_tree(path)):
        lines = {node.lineno, *(d.lineno for d in node.decorator_list)} if isinstance(node, ast.FunctionDef) else ()
        if isinstance(node, ast.FunctionDef) and node.name == run.__name__ and first in lines:
            return ast.Module(node.body, [])
    raise LookupError(f"{path.name}: no function {run.__name__} at line {first}")


def _defined(path: Path, name: str) -> Iterator[tuple[Path, ast.AST]]:
    """What a catalog module, or one that it imports the name from, assigns to the name or defines under it."""
    for node in _tree(path).body:
        if name != "WALKTHROUGH" and name in _targets(node):
            yield path, node
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name and not node.decorator_list:
            yield path, ast.Module(node.body, [])
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_CATALOG):
            home = path.with_name(f"{str(node.module).rpartition('.')[2]}.py")
            yield from _defined(home, name) if any(alias.name == name for alias in node.names) else ()


def _targets(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}
