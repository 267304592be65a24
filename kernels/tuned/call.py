"""What a decode call is given, checked once, and the launches that a rung makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import ArgumentError
from kernels.kernel import MAX_SHARED_BYTES, Backend, Kernel
from kernels.vllm import check

FORMATS = {"uint16": "bfloat16", "float16": "float16"}
"""The dtypes that the tuned kernels take, by the dtype of the arrays that hold them."""
Zeros = Callable[[int, Any], Any]
"""`zeros(size, dtype)`: a row of zeros where the kernel runs. `numpy.zeros`, or one that makes it on the GPU."""


@dataclass(frozen=True)
class Decode:
    """The arguments of `paged_attention_v1`, checked; raises ArgumentError.

    out, query: [num_seqs * query_len, num_heads, head_size] float16 or bfloat16 codes (uint16); key_cache: [num_blocks,
    num_kv_heads, head_size/x, block_size, x]; value_cache: [num_blocks, num_kv_heads, head_size, block_size];
    block_tables: [num_seqs, max_num_blocks_per_seq] int32; seq_lens: [num_seqs] int32; alibi_slopes: [num_heads]
    float32 or None; `kv_cache_dtype`: auto, or fp8, fp8_e4m3, fp8_e5m2 (uint8 codes, times k_scale or v_scale, [1]
    float32). NumPy arrays, or arrays on the GPU; contiguous. `query_len`: a sequence's last tokens that are asked for
    at once, each of which sees those before it; `seq_lens` counts them all. `lengths`: seq_lens as the host knows them,
    for a plan that balances.
    """

    out: Any
    query: Any
    key_cache: Any
    value_cache: Any
    num_kv_heads: int
    scale: float
    block_tables: Any
    seq_lens: Any
    block_size: int
    max_seq_len: int
    alibi_slopes: Any = None
    kv_cache_dtype: str = "auto"
    k_scale: Any = None
    v_scale: Any = None
    query_len: int = 1
    lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.query_len < 1 or self.query.shape[0] % self.query_len:
            raise ArgumentError("query_len", self.query_len, f"must divide the {self.query.shape[0]} rows of query")
        one = np.ones(1, np.float32)
        for name in ("k_scale", "v_scale"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, one)
        seqs = self.query.shape[0] // self.query_len
        check.decode(
            self.out[:seqs], self.query[:seqs], self.key_cache, self.value_cache, self.num_kv_heads, self.block_tables,
            self.seq_lens, self.block_size, self.max_seq_len, self.kv_cache_dtype, self.k_scale, self.v_scale,
        )  # fmt: skip
        for name in ("out", "query", "key_cache", "value_cache"):
            array = getattr(self, name)
            check.shape(name, array, tuple(array.shape), (str(array.dtype),))
        if self.out.shape != self.query.shape:
            raise ArgumentError("out.shape", self.out.shape, f"must be {tuple(self.query.shape)}, as query's")
        if str(self.query.dtype) not in FORMATS:
            raise ArgumentError("query.dtype", self.query.dtype, f"must be {' or '.join(FORMATS)} (bfloat16 codes)")
        if self.alibi_slopes is not None:
            check.shape("alibi_slopes", self.alibi_slopes, (self.num_heads,), ("float32",))

    @property
    def num_seqs(self) -> int:
        """Sequences."""
        return int(self.seq_lens.shape[0])

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return int(self.query.shape[1])

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return int(self.query.shape[2])

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def scalar(self) -> str:
        """bfloat16 or float16."""
        return FORMATS[str(self.query.dtype)]

    def need(self, name: str, value: object, fine: bool, must: str) -> None:
        """Refuse what a rung does not take; raises ArgumentError."""
        if not fine:
            raise ArgumentError(name, value, must)


@dataclass(frozen=True)
class Launch:
    """One launch, whole: a specialised kernel, its grid, its threads and its arguments; `shared` in bytes.

    `early`: its thread blocks may come to the GPU before the launch ahead of it in the stream has ended, since the
    kernel itself waits for that (`kernels.ptx.grid_wait`). A bound launch makes use of it.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    args: tuple[Any, ...]
    shared: int = 0
    early: bool = False

    def run(self, backend: str | Backend = "sim") -> None:
        """Launch it; raises LaunchError, BackendUnavailable."""
        launcher = self.kernel.on(backend)
        if self.shared > MAX_SHARED_BYTES:
            launcher = launcher.opt_in(self.shared)
        launcher[self.grid, self.threads, 0, self.shared](*self.args)
