"""Findings, part 6: lesson 1's script prints another last digit under Python 3.12 than under 3.11."""

from __future__ import annotations

import platform
import sys

import numpy as np

from kernels import reference, sums
from kernels.cases import lesson_case, unpack_keys, unpack_values
from walkthroughs.catalog.findings import WALKTHROUGH
from walkthroughs.workbench import Workbench

ORDER = 7
CASE = lesson_case("float64")
Q: list[float] = CASE.q[0, 0].tolist()
KEYS: list[list[float]] = CASE.keys[0][:, 0].tolist()
VALUES: list[list[float]] = CASE.values[0][:, 0].tolist()
TABLE = [3, 1]
TOKENS, BLOCK_SIZE, NUM_BLOCKS = 6, 4, 4
ANSWER = (0.363083, 0.449897, 0.392487, 0.386499)
UNIT = 2.0**-54
"""A unit in the last place of numbers between a quarter and a half, as all four of the output are: 5.55e-17."""
UNTIL_3_11, SINCE_3_12 = UNIT, 2 * UNIT
"""The differences that the two sums give."""
ROUNDING = 1e-15
PROBE = (1.0, 1e100, 1.0, -1e100)
"""Numbers whose sum is 2: left to right it comes out as 0."""


def difference(add: sums.Sum) -> float:
    """How far dense attention is from paged attention on the lesson's numbers, both with the same sum."""
    return sums.apart(sums.dense(Q, KEYS, VALUES, CASE.scale, add), sums.online(Q, KEYS, VALUES, CASE.scale, add))


def paged() -> list[float]:
    """The lesson's output by `kernels/reference.py`, through the block table [3, 1]."""
    k_pool, v_pool = (reference.empty_pool(NUM_BLOCKS, BLOCK_SIZE, len(Q)) for _ in range(2))
    reference.scatter(KEYS, k_pool, TABLE, BLOCK_SIZE)
    reference.scatter(VALUES, v_pool, TABLE, BLOCK_SIZE)
    return reference.paged_attention(Q, k_pool, v_pool, TABLE, TOKENS, BLOCK_SIZE)


@WALKTHROUGH.step(
    "last-digit",
    title="The last digit depends on the Python, not on the paging",
    reads=("dense-attention", "gather-loop", "online-softmax", "final-divide"),
    source="kernels/reference.py",
    port="kernels/gather.py",
)
def step_last_digit(bench: Workbench) -> None:
    """
    The script of lesson 1 computes attention twice, dense and paged, and prints the largest difference. The number
    that one reads is 1.11e-16. Under Python 3.11 it is 5.55e-17. Which is right?

    **What was run.** Our own rewriting of that script, in plain Python: `kernels/sums.py`. It takes the sum as an
    argument. So any Python can show both answers. The lesson's own script gave the same two numbers: 5.55e-17 under
    3.10.13 and 3.11.7, 1.11e-16 under 3.12.1 and 3.13.0, all on Linux.

    **Why.** Until Python 3.11, `sum` added floats from left to right and rounded each time. Since Python 3.12
    it keeps what each rounding drops and adds it at the end. That is the whole cause.

    **Which side moves.** The paged loop adds with `+`, token by token. Its four numbers are the same under both. The
    dense side calls `sum`, and its elements move up, by one or two units in the last place. So here the better sum
    gives the larger difference. That is chance: with other numbers it is as often the other way round.

    **What it means.** Both numbers are rounding, a unit or two in the last place. Neither says that paging is
    exact, and neither says that it is not. Order the operations otherwise and the number changes, too: our own
    `dense_attention` divides once at the end, not each weight. Under Python 3.11 it gives 0 where the script
    gives 5.55e-17.

    **And a kernel?** There is no kernel in this finding: it is about the Python on the processor, and a record from a
    GPU says nothing more about it. The step also runs the small gather kernel, in float64. It has no `sum` and adds
    from left to right. On the SIMT machine its output is the loop's, to the bit. A GPU has another exponential and
    may merge a product and a sum, so it may differ in the last digits: the table says by how much.

    **What was not run.** Other systems: the exponential comes from the C library, and another one may round otherwise.

    **Judge for yourself.** `pagewalk run findings/last-digit`, under Python 3.11 or any later one.
    """
    for name, add, expected in (
        ("left to right", sums.left_to_right, UNTIL_3_11), ("compensated", sums.compensated, SINCE_3_12),
    ):  # fmt: skip
        bench.check(f"{name}: paged from dense", difference(add), expected)
    bench.check("left to right: the probe's sum", sums.left_to_right(PROBE), 0.0, note="1 + 1e100 + 1 - 1e100")
    bench.check("compensated: the probe's sum", sums.compensated(PROBE), 2.0, note="exact")
    newer = sys.version_info >= (3, 12)
    own = f"sum() of Python {platform.python_version()}"
    bench.check(f"{own}: the probe's sum", sum(PROBE), 2.0 if newer else 0.0)
    bench.check(f"{own}: paged from dense", difference(sum), SINCE_3_12 if newer else UNTIL_3_11)

    old, new = (sums.online(Q, KEYS, VALUES, CASE.scale, add) for add in (sums.left_to_right, sums.compensated))
    bench.check("the paged side, with either sum", new, old, note="to the bit")
    bench.check("kernels/reference.py, through the block table", paged(), old, note="to the bit")
    old_dense, new_dense = (
        sums.dense(Q, KEYS, VALUES, CASE.scale, add) for add in (sums.left_to_right, sums.compensated)
    )
    moved = [(b - a) / UNIT for a, b in zip(old_dense, new_dense, strict=True)]
    bench.check("the dense side moves by so many units", moved, [1, 2, 1, 2])
    divided_last = sums.apart(reference.dense_attention(Q, KEYS, VALUES), old)
    bench.check(f"{own}: paged from dense, divided at the end", divided_last, 2 * UNIT if newer else 0.0)
    bench.check("the dense side, compensated", new_dense, ANSWER, tolerance=5e-7, note="the lesson's six digits")

    pools = [
        np.ascontiguousarray(unpack(cache)[:, :, 0])
        for unpack, cache in ((unpack_keys, CASE.k_cache), (unpack_values, CASE.v_cache))
    ]
    out = bench.gather(CASE.q[0, 0], (pools[0], pools[1]), np.array(TABLE, np.int32), TOKENS, CASE.scale).out[0]
    bench.check("gather kernel, in float64", out, old, tolerance=ROUNDING)
    bench.measured("gather kernel from the paged loop", sums.apart(out.tolist(), old), "")
    bench.measured("gather kernel from dense, left to right", sums.apart(out.tolist(), old_dense), "")
    bench.measured("gather kernel from dense, compensated", sums.apart(out.tolist(), new_dense), "")
