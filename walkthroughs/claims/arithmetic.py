"""Expressions in the ledger: arithmetic over `kernels.layout` and a few helpers, and nothing else.

`vec_size(thread_group_size(16), 2) * 2` can be written in TOML and read at a glance. An import, an attribute or a call
of anything that is not listed here is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from kernels import layout
from walkthroughs.claims.model import CheckError

_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Store, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.IfExp,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Subscript, ast.Slice,
)  # fmt: skip
_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": abs, "all": all, "any": any, "float": float, "len": len, "list": list, "max": max, "min": min,
    "range": range, "set": set, "sorted": sorted, "sum": sum,
}  # fmt: skip


def evaluate(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """The value of an expression. Raises CheckError for one that is malformed, or uses what is not allowed."""
    known = {**_BUILTINS, **_LAYOUT, **HELPERS, **(names or {})}
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise CheckError(f"cannot read the expression {text!r}: {error.msg}") from error
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise CheckError(f"{type(node).__name__} is not allowed in the expression {text!r}")
        if isinstance(node, ast.Name) and node.id not in known and node.id not in own:
            raise CheckError(f"nothing is called {node.id!r} in the expression {text!r}")
    # As globals: a comprehension has a scope of its own and sees nothing else.
    return eval(compile(tree, "<ledger>", "eval"), {"__builtins__": {}, **known})


def int32(value: int) -> int:
    """What a product is as a 32-bit integer that wraps around."""
    return (value + 2**31) % 2**32 - 2**31


def thread_key_bytes(block_size: int, element_size: int) -> int:
    """Bytes of a key that one thread loads at once."""
    return layout.vec_size(layout.thread_group_size(block_size), element_size) * element_size


def _warp_run(addresses: list[int], width: int) -> int:
    """The bytes that a warp's loads cover if they are one run and nothing is read twice, else 0."""
    ordered = sorted(addresses)
    whole = all(b - a == width for a, b in pairwise(ordered))
    return len(ordered) * width if whole else 0


def warp_key_run(block_size: int, head_size: int, element_size: int) -> int:
    """Bytes in one run that a warp reads of the key cache in each inner step, the same in all of them, else 0."""
    group = layout.thread_group_size(block_size)
    vec = layout.vec_size(group, element_size)
    shape = {"num_kv_heads": 1, "head_size": head_size, "block_size": block_size, "element_size": element_size}
    runs = set()
    for step in range(layout.num_vecs_per_thread(head_size, group, element_size)):
        lanes = [divmod(lane, group) for lane in range(layout.WARP_SIZE)]
        places = [
            layout.key_offset(0, 0, (offset + step * group) * vec, token % block_size, **shape) * element_size
            for token, offset in lanes
        ]
        runs.add(_warp_run(places, vec * element_size))
    return runs.pop() if len(runs) == 1 else 0


def warp_value_run(block_size: int, head_size: int, element_size: int) -> int:
    """Bytes in one run that a warp reads of the value cache in each inner step, the same in all of them, else 0."""
    vec = layout.v_vec_size(block_size, element_size)
    shape = {"num_kv_heads": 1, "head_size": head_size, "block_size": block_size}
    runs = set()
    for step in range(layout.num_rows_per_thread(head_size, block_size, element_size)):
        places = []
        for lane in range(layout.WARP_SIZE):
            row = value_rows(head_size, block_size, element_size, lane)[step]
            token = lane % layout.num_v_vecs_per_row(block_size, element_size) * vec
            places.append(layout.value_offset(0, 0, row, token, **shape) * element_size)
        runs.add(_warp_run(places, vec * element_size))
    return runs.pop() if len(runs) == 1 else 0


def value_rows(head_size: int, block_size: int, element_size: int, lane: int = 0) -> list[int]:
    """The head positions that a lane accumulates, in its order."""
    per_row = layout.num_v_vecs_per_row(block_size, element_size)
    per_iteration = layout.num_rows_per_iter(block_size, element_size)
    count = layout.num_rows_per_thread(head_size, block_size, element_size)
    return [lane // per_row + step * per_iteration for step in range(count)]


def key_elements(head_size: int, block_size: int, element_size: int, thread: int = 0) -> list[int]:
    """The elements of a key that a thread of a group holds, in its order."""
    group = layout.thread_group_size(block_size)
    vec = layout.vec_size(group, element_size)
    count = layout.num_vecs_per_thread(head_size, group, element_size)
    return [(thread + step * group) * vec + element for step in range(count) for element in range(vec)]


_LAYOUT = {name: getattr(layout, name) for name in dir(layout) if not name.startswith("_") and name != "ArgumentError"}
HELPERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (int32, thread_key_bytes, warp_key_run, warp_value_run, value_rows, key_elements)
}
