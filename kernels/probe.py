"""Watch variables of a running kernel, on both backends, by rewriting its syntax tree.

A watch names an expression and the lines after which it is recorded. The kernel and the device
functions that hold such lines are compiled anew with one extra statement a watch, which appends
the value to a buffer. The kernel's own lines keep their numbers, and its source stays as it is.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from kernels.errors import ProbeError
from kernels.kernel import Backend, Device, Kernel, device

KEYS = 4
BUFFERS = ("probe_ints", "probe_values", "probe_cursor")
# A rewritten function is no longer what its file says: a second rewrite must start from here.
_SYNTAX: weakref.WeakKeyDictionary[types.FunctionType, ast.Module] = weakref.WeakKeyDictionary()


@device
def probe_record(ints, values, cursor, watch, value, k0, k1, k2, k3):
    """Append one value with its watch, block, thread and keys; what does not fit is counted, not stored."""
    # A thread's own appends keep their order: atomics of one thread on one address do.
    at = cuda.atomic.add(cursor, 0, 1)
    if at < values.size:
        ints[at, 0] = watch
        ints[at, 1] = cuda.blockIdx.x + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
        ints[at, 2] = cuda.threadIdx.x + cuda.blockDim.x * (cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z)
        ints[at, 3] = k0
        ints[at, 4] = k1
        ints[at, 5] = k2
        ints[at, 6] = k3
        values[at] = value


@dataclass(frozen=True)
class Watch:
    """What to record, and where.

    `value`: an expression in the kernel's own names. `lines`: first and last line, in `file` (None: in any file that
    the kernel's functions come from). `after`: the variable whose assignments within `lines` trigger the record, or
    `name[]` for stores into an array; None records once, after the last statement that lies within `lines`, before
    a return. `by`: up to four integer expressions kept with the value. `when`: a condition.
    """

    name: str
    value: str
    lines: tuple[int, int]
    after: str | None = None
    by: tuple[str, ...] = ()
    when: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Reading:
    """One recorded value: the thread block and thread (both linear), the keys of `by`, the value as float64."""

    block: int
    thread: int
    keys: tuple[int, ...]
    value: float


class Probed:
    """A kernel with watches; stands wherever a Kernel does, and keeps what its last launch recorded."""

    def __init__(self, kernel: Kernel, watches: Sequence[Watch], capacity: int = 1 << 16) -> None:
        """Rewrite `kernel`; raises ProbeError for a watch that matches no line or has too many keys."""
        for watch in watches:
            if len(watch.by) > KEYS:
                raise ProbeError(f"watch {watch.name!r}: by has {len(watch.by)} keys, at most {KEYS} fit")
        self.watches = tuple(watches)
        self.capacity = capacity
        self._kernel = Kernel(_Rewriter(self.watches).rewrite(kernel.fn), kernel.constexpr, kernel.constants)
        self._found: dict[str, list[Reading]] = {}

    @property
    def name(self) -> str:
        """The name of the kernel underneath."""
        return self._kernel.name

    def specialise(self, **template: Any) -> Probed:
        """As Kernel.specialise; the readings go to this same object."""
        self._kernel = self._kernel.specialise(**template)
        return self

    def on(self, backend: str | Backend) -> _ProbedLauncher:
        """As Kernel.on."""
        return _ProbedLauncher(self, self._kernel.on(backend))

    def readings(self, name: str) -> list[Reading]:
        """What the last launch recorded for a watch, ordered by block, thread and program order."""
        if name not in self._found:
            raise ProbeError(f"no readings of {name!r}: watched are {', '.join(w.name for w in self.watches)}")
        return self._found[name]

    def collect(self, ints: Any, values: Any, count: int) -> None:
        """Sort the raw buffers into readings; raises ProbeError when more was recorded than fits."""
        if count > self.capacity:
            raise ProbeError(f"{count} values were recorded, {self.capacity} fit: raise capacity or narrow `when`")
        self._found = {watch.name: [] for watch in self.watches}
        rows = sorted(zip(ints[:count].tolist(), values[:count].tolist(), strict=True), key=lambda row: row[0][1:3])
        for (number, block, thread, *keys), value in rows:
            watch = self.watches[number]
            self._found[watch.name].append(Reading(block, thread, tuple(keys[: len(watch.by)]), value))


@dataclass(frozen=True)
class _ProbedLauncher:
    probed: Probed
    launcher: Any

    def opt_in(self, shared_bytes: int) -> _ProbedLauncher:
        """As Launcher.opt_in."""
        return _ProbedLauncher(self.probed, self.launcher.opt_in(shared_bytes))

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        run = self.launcher[config]

        def launch(*args: Any) -> None:
            ints = np.zeros((self.probed.capacity, 3 + KEYS), np.int64)
            values = np.zeros(self.probed.capacity, np.float64)
            cursor = np.zeros(1, np.int64)
            run(*args, ints, values, cursor)
            self.probed.collect(ints, values, int(cursor[0]))

        return launch


def delayed(kernel: Kernel, warp: int, nanoseconds: int = 2000) -> Kernel:
    """The kernel with one warp put to sleep before every statement.

    A legal delay: a kernel whose barriers are complete gives the same result under any of them.
    """
    nap = ast.parse(f"if cuda.threadIdx.x // 32 == {warp}:\n    cuda.nanosleep({nanoseconds})").body[0]
    return Kernel(_Rewriter((), nap=nap).rewrite(kernel.fn), kernel.constexpr, kernel.constants)


class _Rewriter:
    """Rewrites a kernel and every device function it reaches; collects which watches found a line."""

    def __init__(self, watches: Sequence[Watch], nap: ast.stmt | None = None) -> None:
        self.watches = watches
        self.nap = nap
        self.matched: set[int] = set()

    def rewrite(self, fn: types.FunctionType) -> types.FunctionType:
        new, _ = self._function(fn)
        missing = [w.name for number, w in enumerate(self.watches) if number not in self.matched]
        if missing:
            raise ProbeError(f"no line of {fn.__name__} matches the watch {', '.join(missing)}")
        return new

    def _function(self, fn: types.FunctionType) -> tuple[types.FunctionType, bool]:
        """The rewritten function, and whether it takes the probe buffers."""
        tree = _parse(fn)
        definition = tree.body[0]
        assert isinstance(definition, ast.FunctionDef)
        definition.decorator_list = []
        scope = dict(fn.__globals__)
        carriers: set[str] = set()
        for name in fn.__code__.co_names:
            if isinstance(scope.get(name), Device):
                inner, carries = self._function(scope[name].fn)
                scope[name] = Device(inner)
                if carries:
                    carriers.add(name)
        inserted = self._insert(definition, fn.__code__.co_filename)
        if self.nap is not None:
            _before_each(definition, self.nap)
        probed = inserted or bool(carriers)
        if probed:
            definition.args.args += [ast.arg(name) for name in BUFFERS]
            scope["probe_record"] = probe_record
            _PassBuffers(carriers).visit(definition)
        ast.fix_missing_locations(tree)
        exec(compile(tree, fn.__code__.co_filename, "exec"), scope)
        new = scope[fn.__name__]
        assert isinstance(new, types.FunctionType)
        _SYNTAX[new] = tree
        return new, probed

    def _insert(self, definition: ast.FunctionDef, file: str) -> bool:
        found = False
        for number, watch in enumerate(self.watches):
            # A changed copy of a file is called FILE#what.
            if watch.file not in (None, file.split("#")[0]):
                continue
            places = _assignments(definition, watch) if watch.after else _last_statement(definition, watch.lines)
            for body, statement in places:
                body.insert(body.index(statement) + 1, _record(number, watch, statement))
                self.matched.add(number)
                found = True
        return found


class _PassBuffers(ast.NodeTransformer):
    """Hands the probe buffers on to every rewritten device function."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.names:
            node.args += [ast.Name(name, ast.Load()) for name in BUFFERS]
        return node


def _parse(fn: types.FunctionType) -> ast.Module:
    """The function's syntax tree with the line numbers of its file."""
    if fn in _SYNTAX:
        return copy.deepcopy(_SYNTAX[fn])
    lines, first = inspect.getsourcelines(fn)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    return tree


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    """Every list of statements below `node`, outermost first."""
    found = []
    for child in ast.walk(node):
        for name in ("body", "orelse"):
            body = getattr(child, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                found.append(body)
    return found


def _within(statement: ast.stmt, lines: tuple[int, int]) -> bool:
    return lines[0] <= statement.lineno and (statement.end_lineno or statement.lineno) <= lines[1]


def _assignments(definition: ast.FunctionDef, watch: Watch) -> list[tuple[list[ast.stmt], ast.stmt]]:
    places: list[tuple[list[ast.stmt], ast.stmt]] = []
    for body in _bodies(definition):
        for statement in body:
            if isinstance(statement, ast.Assign):
                targets = statement.targets
            elif isinstance(statement, ast.AugAssign):
                targets = [statement.target]
            else:
                continue
            if watch.after in map(_target, targets) and _within(statement, watch.lines):
                places.append((body, statement))
    return places


def _target(node: ast.expr) -> str | None:
    """How `Watch.after` spells an assignment's target: `qk` for a variable, `logits[]` for a store into an array."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return f"{node.value.id}[]"
    return node.id if isinstance(node, ast.Name) else None


def _last_statement(definition: ast.FunctionDef, lines: tuple[int, int]) -> list[tuple[list[ast.stmt], ast.stmt]]:
    for body in _bodies(definition):
        inside = [s for s in body if _within(s, lines) and not isinstance(s, ast.Return | ast.Break | ast.Continue)]
        if inside:
            return [(body, inside[-1])]
    return []


def _record(number: int, watch: Watch, statement: ast.stmt) -> ast.stmt:
    keys = [*watch.by, *["0"] * (KEYS - len(watch.by))]
    call = f"probe_record({', '.join(BUFFERS)}, {number}, {watch.value}, {', '.join(keys)})"
    text = f"if {watch.when}:\n    {call}" if watch.when else call
    return _placed(ast.parse(text).body[0], statement)


def _placed(node: ast.stmt, statement: ast.stmt) -> ast.stmt:
    """The node, and all below it, as if it stood on the line of `statement`."""
    for child in ast.walk(node):
        ast.copy_location(child, statement)
    return node


def _before_each(definition: ast.FunctionDef, nap: ast.stmt) -> None:
    for body in _bodies(definition):
        body[:] = [item for s in list(body) for item in (_placed(copy.deepcopy(nap), s), s)]
