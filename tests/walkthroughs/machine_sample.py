"""A made-up machine-code record of a real port: its instructions are invented, the lines that they name are not.

Loaded by its path, since the tests are no package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from walkthroughs import machine_parse, machine_record, machine_subjects

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "k-load"
PORT = "kernels/loads.py"


def line_of(text: str, path: str = PORT, nth: int = 0) -> int:
    """The number of the nth line of a file that has `text` in it."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if text in line][nth]


LOAD = line_of("k_vec = load_vec(k_cache")
LOOKUP = line_of("int64(block_table[block_idx])")
STORE = line_of("out[cuda.blockIdx.x * NUM_THREADS + thread_idx] = total")
ROWS = {
    "ptx": [
        ("ld.param.u64 %rd1, [k_cache.data]", None),
        ("ld.global.s32 %rd2, [%rd1]", LOOKUP),
        ("mul.lo.s64 %rd3, %rd2, 64", LOOKUP),
        ("$L__BB0_1:", None),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3]", LOAD),
        ("add.f32 %f1, %f2, %f3", None),
        ("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3+16]", LOAD),
        ("st.global.f32 [%rd4], %f1", STORE),
        *((f"add.s64 %rd{n}, %rd1, %rd2", STORE if n % 2 else LOAD) for n in range(60)),
    ],
    "sass": [
        ("LDG.E R1, desc[UR4][R2.64]", LOOKUP),
        (".L_x_0:", None),
        ("LDG.E.128 R4, desc[UR4][R2.64]", LOAD),
        ("IADD3 R1, R2, R3, RZ <&>", None),
        ("LDG.E.128 R8, desc[UR4][R2.64+0x10]", LOAD),
        ("STG.E desc[UR4][R2.64], R1", STORE),
        *((f"SHFL.BFLY PT, R{n}, R1, 0x1, 0x1f", LOAD if n % 3 else STORE) for n in range(60)),
    ],
}


def code(rows: Any = None, *, name: str = "k_load", port: str = PORT, **changes: Any) -> dict[str, Any]:
    """One compiled kernel as a record has it; a row's line is a line of `port`, or None."""
    rows = rows or ROWS
    table = machine_record.LineTable(port)
    made: dict[str, Any] = {
        "name": name, "target": "sm_90a", "how": "numba-cuda", "notes": [], "grid": [2, 1, 1], "block": [128, 1, 1],
        "dynamic_shared": 256, "arguments": [["out", "array(float32, 1d, C)"], ["num_blocks", "int64"]],
        "registers": 40, "shared": 1024, "local": 0, "unlike_launched": 0,
        "counts": {
            "ptx": machine_parse.count(text for text, _ in rows["ptx"]),
            "sass": machine_parse.count(text for text, _ in rows["sass"]),
            "launched": machine_parse.count(text for text, _ in rows["sass"]),
        },
    }  # fmt: skip
    for side in ("ptx", "sass"):
        places: list[Sequence[Any]] = [[(str(ROOT / port), line)] if line else [] for _, line in rows[side]]
        made[side] = [[text, table.index(place)] for (text, _), place in zip(rows[side], places, strict=True)]
    return {**made, "lines": table.rows, **changes}


def record(*codes: dict[str, Any], kernel: str = KERNEL, **changes: Any) -> dict[str, Any]:
    """A whole record, fresh unless `changes` say otherwise."""
    subject = machine_subjects.subject(kernel)
    made: dict[str, Any] = {
        "schema": machine_record.SCHEMA, "kernel": kernel, "title": subject.title, "port": subject.port,
        "backend": "cuda", "device": "Some <GPU>", "driver": "999.1 (CUDA 13.0)", "compute_capability": "9.0",
        "versions": {"python": "3.12.0", "numba-cuda": "0.30.4"}, "date": "2026-01-02T03:04:05Z",
        "digest": machine_record.digest_of(kernel), "case": subject.case, "case_title": subject.case_title,
        "seconds": 1.5, "kernels": list(codes) or [code(port=subject.port)],
    }  # fmt: skip
    return {**made, **changes}
