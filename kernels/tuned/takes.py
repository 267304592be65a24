"""What each rung takes, and where it rounds: stated once here, and held against the rungs by the grid.

A rung must compute every call that its row takes, and refuse every other with a typed error. The grid tries both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

DTYPES = ("bfloat16", "float16", "float32")
KINDS = ("auto", "fp8", "fp8_e5m2")
BLOCK_SIZES = (8, 16, 32)
HEAD_SIZES = (256, 192, 128, 120, 112, 96, 80, 64, 32)
PAIRS = ((2, 2), (40, 40), (4, 2), (8, 2), (14, 2), (16, 2), (16, 1))
"""Query and KV heads: 1:1, vLLM's 40, 2:1, 4:1, 7:1 (Qwen's), 8:1, and 16:1. Few heads where heads are large: a kernel
that is written out takes the longer to compile the more of both it has."""
ALIBI = (False, True)
QUERY_LENS = (1, 2, 3, 4)
AXES: Mapping[str, tuple[Any, ...]] = {
    "head_size": HEAD_SIZES, "heads": PAIRS, "dtype": DTYPES, "kind": KINDS, "block_size": BLOCK_SIZES,
    "alibi": ALIBI, "query_len": QUERY_LENS,
}  # fmt: skip
"""What a call can differ in, and the values that the grid tries."""


@dataclass(frozen=True)
class Rounding:
    """Where a rung rounds to 16 bits between a score and the output; everything else is float32.

    `port`: v1 or v2, for a port of vLLM's kernel, which rounds where that does (`ops_reference.BOUNDS`). Otherwise:
    `weights`: a weight is rounded before it meets a value, to the query's dtype or, if named, to another (`narrow`) for
    an fp8 cache. A product of two 16-bit numbers is exact in float32. `scale_first`: an element of an fp8 cache is
    rounded to the query's dtype after its scale, as in vLLM; else the scale is applied in float32, to sums.
    """

    why: str
    port: str = ""
    weights: bool = False
    narrow: str = ""
    scale_first: bool = False


@dataclass(frozen=True)
class Takes:
    """What a rung takes.

    `head_step`, `fp8_head_step`: head sizes are multiples of it, without and with an fp8 cache. `most_in_group`: query
    heads of a KV head; `columns`: those times `query_len`. `longest`: tokens of a sequence. None: any number.
    `balance`: it follows a plan that balances.
    """

    rounding: Rounding
    dtype: tuple[str, ...] = ("bfloat16", "float16")
    kind: tuple[str, ...] = KINDS
    block_size: tuple[int, ...] = BLOCK_SIZES
    alibi: tuple[bool, ...] = ALIBI
    query_len: tuple[int, ...] = (1,)
    head_step: int = 8
    fp8_head_step: int = 16
    most_in_group: int | None = None
    columns: int | None = None
    longest: int | None = None
    balance: bool = False

    def refused(self, row: Mapping[str, Any]) -> str:
        """Which of a call's values the rung does not take, or the empty string; a row may lack axes."""
        for name in ("dtype", "kind", "block_size", "alibi", "query_len"):
            if name in row and row[name] not in getattr(self, name):
                return name
        step = self.head_step if row.get("kind", "auto") == "auto" else self.fp8_head_step
        if "head_size" in row and row["head_size"] % step:
            return "head_size"
        query, kv = row.get("heads", (1, 1))
        for most, count in ((self.most_in_group, query // kv), (self.columns, query // kv * row.get("query_len", 1))):
            if most is not None and count > most:
                return "heads"
        return ""

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether the rung takes all of a row's values."""
        return not self.refused(row)


FLOAT32 = Rounding("float32 from the cache to the output, which is rounded once")
PORT_V1 = Rounding("where vLLM's v1 rounds", port="v1", scale_first=True)
PORT_V2 = replace(PORT_V1, why="where vLLM's v2 rounds", port="v2")
WEIGHTS = Rounding("a weight is rounded for the tensor core; products and sums are float32", weights=True)
RING = replace(WEIGHTS, narrow="float16")
WIDE = ("auto",)
"""The kinds of a rung that takes caches of 16 bits only."""
V1_LONGEST = 57_600
"""The tokens that vLLM's test takes for v1's longest: all its scores lie in shared memory."""
TAKES: dict[str, Takes] = {
    "token-loop": Takes(FLOAT32, kind=WIDE),
    "classic-v1": Takes(PORT_V1, kind=WIDE, longest=V1_LONGEST),
    "classic-v2": Takes(PORT_V2, kind=WIDE),
    "wide-loads": Takes(FLOAT32, kind=WIDE),
    "grouped": Takes(FLOAT32, kind=WIDE),
    "online": Takes(FLOAT32, kind=WIDE),
    "split": Takes(FLOAT32, kind=WIDE),
    "tensor-cores": Takes(WEIGHTS, kind=WIDE, block_size=(16, 32), head_step=32, most_in_group=16),
    "ring": Takes(
        RING, block_size=(16, 32), query_len=QUERY_LENS, head_step=16, fp8_head_step=32, columns=16, balance=True
    ),
}
"""By the rung's id."""
