"""The ladder's rungs and its writer on small cases, for the sanitizers of both sides: the SIMT machine and the GPU.

Every rung runs whole and split, and with what else it takes: slopes, an fp8 cache, several queries, a balanced list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kernels.kernel import Backend

Launch = Callable[["Backend"], dict[str, Any]]
"""Builds its inputs (the same each time), launches on a backend, and answers with the arrays that were written."""
WRITER = "writer"


def names() -> tuple[str, ...]:
    """The rungs in their order, and the writer."""
    from kernels.tuned.ladder import RUNGS

    return (*RUNGS, WRITER)


def cases(name: str) -> Mapping[str, Launch]:
    """The small cases of a rung, or of the writer."""
    return _writes() if name == WRITER else _rung(name)


def _rung(rung: str) -> dict[str, Launch]:
    from kernels.tuned.plan import Plan
    from kernels.tuned.takes import TAKES

    takes = TAKES[rung]
    wide = 16 if 16 in takes.block_size else takes.block_size[0]
    found = {
        "whole": _decode(rung, (20, 0, 16), (4, 2), 32, wide, "bfloat16", plan=Plan(1, 2, 2)),
        "split": _decode(
            rung, (70, 5), (4, 1), 32, takes.block_size[-1], "float16", plan=Plan(3, 2, 1), alibi=True in takes.alibi
        ),
    }
    if "fp8" in takes.kind:
        found["fp8"] = _decode(rung, (33,), (2, 1), 64, wide, "bfloat16", plan=Plan(2, 2, 2), kind="fp8")
    if 3 in takes.query_len:
        found["queries"] = _decode(rung, (20, 3), (4, 1), 32, wide, "bfloat16", plan=Plan(2, 1, 2), query_len=3)
    if takes.balance:
        found["balanced"] = _decode(
            rung, (70, 5), (2, 1), 32, wide, "bfloat16", plan=Plan(1, 2, 2, balance=True)
        )  # fmt: skip
    return found


def _decode(
    rung: str, lengths: tuple[int, ...], heads: tuple[int, int], head_size: int, block_size: int, scalar: str, *,
    plan: Any, kind: str = "auto", alibi: bool = False, query_len: int = 1,
) -> Launch:  # fmt: skip
    def run(backend: Backend) -> dict[str, Any]:
        from kernels.cases_narrow import narrow_decode_case
        from kernels.tuned.call import Decode
        from kernels.tuned.ladder import attend

        scales = (0.37, 0.21) if kind != "auto" else (1.0, 1.0)
        narrow = narrow_decode_case(
            lengths, *heads, head_size, block_size, scalar, kind, *scales, seed=6, alibi=alibi, garbage="minus-one"
        )  # fmt: skip
        case, query = narrow.case, np.repeat(narrow.q, query_len, axis=0)
        out = np.full(query.shape, 0x7FFF, np.uint16).view(query.dtype)
        call = Decode(
            out, query, narrow.k_cache, narrow.v_cache, case.num_kv_heads, case.scale, case.block_tables, case.seq_lens,
            block_size, max(1, case.max_seq_len), case.alibi_slopes, kind, narrow.k_scale, narrow.v_scale, query_len,
            lengths,
        )  # fmt: skip
        attend(rung, call, plan=plan, backend=backend)
        return {"out": out}

    return run


def _writes() -> dict[str, Launch]:
    return {
        "auto": _write(5, 3, 64, 16, "bfloat16"),
        "half": _write(4, 2, 120, 8, "float16"),
        "fp8": _write(5, 2, 32, 16, "bfloat16", "fp8"),
        "runs": _write(20, 2, 40, 16, "bfloat16", first=3),
    }


def _write(
    tokens: int, heads: int, head_size: int, block_size: int, scalar: str, kind: str = "auto", *,
    first: int | None = None,
) -> Launch:  # fmt: skip
    """`first`: the slots follow each other from there on, as a prompt's do; else they lie anywhere."""

    def run(backend: Backend) -> dict[str, Any]:
        from kernels.cases_narrow import narrow_write_case
        from kernels.tuned.writer import reshape_and_cache

        case = narrow_write_case(tokens, heads, head_size, block_size, scalar, kind, seed=7)
        scale = np.full(1, 0.37, np.float32)
        slots = case.slot_mapping if first is None else np.arange(first, first + tokens)
        reshape_and_cache(case.key, case.value, case.k_cache, case.v_cache, slots, kind, scale, scale, backend=backend)
        return {"key_cache": case.k_cache, "value_cache": case.v_cache}

    return run
