"""The kernels that `sanitize` and `trace` can launch by name, each with its named small cases.

A case is launched on a backend and answers with the arrays that it wrote, so that two runs can be compared. Nothing
is built or imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from annotate.errors import UnknownName, nearest

if TYPE_CHECKING:
    from kernels.kernel import Backend

Outputs = dict[str, npt.NDArray[Any]]
"""The arrays that a launch wrote, by the name of the argument."""


@dataclass(frozen=True)
class Case:
    """One launch, small enough to read: `run` builds its inputs (the same each time) and launches on a backend."""

    name: str
    title: str
    run: Callable[[Backend], Outputs] = field(repr=False)


@dataclass(frozen=True)
class Launchable:
    """A kernel by the name that the command line uses. `port` is its file; the first case is the default."""

    name: str
    title: str
    port: str
    cases: Mapping[str, Case]

    def case(self, name: str | None = None) -> Case:
        """The case of that name, or the default; raises UnknownName with the nearest names."""
        if name is None:
            return next(iter(self.cases.values()))
        if name not in self.cases:
            raise UnknownName(f"case of {self.name}", name, nearest(name, self.cases) or self.cases)
        return self.cases[name]


def names() -> tuple[str, ...]:
    """Every kernel's name, in the order that a reader meets them."""
    return tuple(_MAKERS)


def launchable(name: str) -> Launchable:
    """The kernel of that name; raises UnknownName with the nearest names."""
    if name not in _MAKERS:
        raise UnknownName("kernel", name, nearest(name, _MAKERS) or _MAKERS)
    return _MAKERS[name]()


def _of(name: str, title: str, port: str, *cases: Case) -> Launchable:
    return Launchable(name, title, port, {case.name: case for case in cases})


def _scatter() -> Launchable:
    from kernels import gather

    def run(backend: Backend) -> Outputs:
        rng = np.random.default_rng(1)
        key, value = rng.standard_normal((6, 4)), rng.standard_normal((6, 4))
        k_pool, v_pool = np.full((4, 4, 4), np.nan), np.full((4, 4, 4), np.nan)
        gather.scatter(k_pool, v_pool, key, value, np.array([3, 1], np.int32), backend=backend)
        return {"k_pool": k_pool, "v_pool": v_pool}

    case = Case("lesson", "6 tokens, blocks of 4, block table [3, 1]", run)
    return _of("scatter", "One thread writes one token through the block table.", "kernels/gather.py", case)


def _gather() -> Launchable:
    from kernels import gather
    from kernels.cases import lesson_case, unpack_keys, unpack_values

    def run(backend: Backend) -> Outputs:
        case = lesson_case("float64")
        pools = unpack_keys(case.k_cache)[:, :, 0].copy(), unpack_values(case.v_cache)[:, :, 0].copy()
        out = np.full(case.head_size, np.nan)
        q, table = case.q[0, 0], case.block_tables[0]
        gather.gather(out, q, *pools, table, case.max_seq_len, case.scale, backend=backend)
        return {"out": out}

    case = Case("lesson", "6 tokens, blocks of 4, block table [3, 1]", run)
    return _of("gather", "One thread gathers a whole sequence, block after block.", "kernels/gather.py", case)


def _classic_v1() -> Launchable:
    from kernels.cases import DecodeCase, decode_case
    from kernels.vllm.classic_v1 import paged_attention_v1

    def attend(name: str, title: str, make: Callable[[], DecodeCase]) -> Case:
        def run(backend: Backend) -> Outputs:
            case = make()
            out = np.full(case.q.shape, np.nan, case.q.dtype)
            paged_attention_v1(
                out, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale, case.block_tables,
                case.seq_lens, case.block_size, case.max_seq_len, case.alibi_slopes, backend=backend,
            )  # fmt: skip
            return {"out": out}

        return Case(name, title, run)

    return _of(
        "classic-v1",
        "vLLM's classic decode kernel, the whole sequence in one thread block.",
        "kernels/vllm/classic_v1.py",
        attend(
            "small",
            "one sequence of 20 tokens, 1 head of 32, blocks of 16, float32",
            lambda: decode_case([20], 1, 1, 32, 16, seed=3),
        ),
        attend(
            "grouped",
            "two sequences of 33 and 70 tokens, 2 query heads on 1 KV head of 32, blocks of 16, float32",
            lambda: decode_case([33, 70], 2, 1, 32, 16, seed=4),
        ),
        attend(
            "half",
            "one sequence of 40 tokens, 2 heads of 64 with ALiBi slopes, blocks of 8, float16",
            lambda: decode_case([40], 2, 2, 64, 8, dtype="float16", seed=5, alibi=True),
        ),
    )


def _reshape_and_cache() -> Launchable:
    from kernels.cases import WriteCase, write_case
    from kernels.vllm.cache import reshape_and_cache

    def write(name: str, title: str, make: Callable[[], WriteCase]) -> Case:
        def run(backend: Backend) -> Outputs:
            case = make()
            reshape_and_cache(case.key, case.value, case.k_cache, case.v_cache, case.slot_mapping, backend=backend)
            return {"key_cache": case.k_cache, "value_cache": case.v_cache}

        return Case(name, title, run)

    return _of(
        "reshape-and-cache",
        "vLLM's writer for the classic layout: new keys and values into their slots.",
        "kernels/vllm/cache.py",
        write(
            "small",
            "6 tokens of which 1 is padding, 2 heads of 32, blocks of 4, float32",
            lambda: write_case(6, 2, 32, 4, seed=6, padding=1),
        ),
        write(
            "half",
            "3 tokens, 2 heads of 64, blocks of 16, float16",
            lambda: write_case(3, 2, 64, 16, dtype="float16", seed=7),
        ),
    )


def _classic_v2() -> Launchable:
    from kernels.cases import DecodeCase, decode_case
    from kernels.vllm.classic_v2 import buffers, paged_attention_v2

    def attend(name: str, title: str, size: int, make: Callable[[], DecodeCase]) -> Case:
        def run(backend: Backend) -> Outputs:
            case = make()
            out = np.full(case.q.shape, np.nan, case.q.dtype)
            notes = buffers(case.num_seqs, case.num_heads, case.head_size, case.max_seq_len, case.q.dtype, size)
            paged_attention_v2(
                out, *notes, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale, case.block_tables,
                case.seq_lens, case.block_size, case.max_seq_len, case.alibi_slopes, backend=backend,
                partition_size=size,
            )  # fmt: skip
            return {"out": out, "exp_sums": notes[0], "max_logits": notes[1], "tmp_out": notes[2]}

        return Case(name, title, run)

    return _of(
        "classic-v2",
        "vLLM's classic decode kernel in partitions, and the kernel that merges them.",
        "kernels/vllm/classic_v2.py",
        attend(
            "small",
            "one sequence of 40 tokens in partitions of 16, 1 head of 32, blocks of 8, float32",
            16,
            lambda: decode_case([40], 1, 1, 32, 8, seed=3),
        ),
        attend(
            "single",
            "sequences of 9 and 70 tokens in partitions of 32, 2 query heads on 1 KV head of 32, blocks of 16, float16",
            32,
            lambda: decode_case([9, 70], 2, 1, 32, 16, dtype="float16", seed=4),
        ),
    )


def _reshape_and_cache_fixed() -> Launchable:
    from kernels.cases import write_case
    from kernels.vllm.cache_fixed import reshape_and_cache_fixed

    def run(backend: Backend) -> Outputs:
        case = write_case(2, 40, 128, 8, dtype="float16", seed=6, padding=1, spare_blocks=0)
        reshape_and_cache_fixed(case.key, case.value, case.k_cache, case.v_cache, case.slot_mapping, backend=backend)
        return {"key_cache": case.k_cache, "value_cache": case.v_cache}

    case = Case("wide", "2 tokens of which 1 is padding, 40 heads of 128, blocks of 8, float16", run)
    title = "Our corrected writer for the classic layout, with the stride loop that vLLM's lacks."
    return _of("reshape-and-cache-fixed", title, "kernels/vllm/cache_fixed.py", case)


def _reshape_and_cache_flash() -> Launchable:
    from kernels.cases_flash import FlashCase, flash_case
    from kernels.vllm.cache_flash import reshape_and_cache_flash

    def write(name: str, title: str, make: Callable[[], FlashCase], *scales: Any) -> Case:
        def run(backend: Backend) -> Outputs:
            case = make()
            whole, keys, values = case.caches()
            reshape_and_cache_flash(case.key, case.value, keys, values, case.slot_mapping, *scales, backend=backend)
            return {"kv_cache": whole}

        return Case(name, title, run)

    one = np.full(1, 0.5, np.float32)
    return _of(
        "reshape-and-cache-flash",
        "vLLM's writer for the FlashAttention layout, by strides.",
        "kernels/vllm/cache_flash.py",
        write(
            "nhd",
            "5 tokens of which 1 is padding, 2 heads of 32, blocks of 4, K and V side by side, NHD, float32",
            lambda: flash_case(5, 2, 32, 4, seed=6, padding=1),
        ),
        write(
            "hnd",
            "the same, HND, float16, keys and values from one projection",
            lambda: flash_case(5, 2, 32, 4, "float16", seed=6, padding=1, memory="HND", fused=True),
        ),
        write(
            "odd",
            "3 tokens, 1 head of 46, K and V apart: rows that start off the 16-byte lines",
            lambda: flash_case(3, 1, 46, 4, "float16", seed=7, form="stacked"),
        ),
        write(
            "fp8",
            "3 tokens, 2 heads of 32 as fp8 codes, one scale",
            lambda: flash_case(3, 2, 32, 4, "float16", seed=8, cache_dtype="uint8"),
            "fp8",
            one,
            one,
        ),
    )


def _tiny_vllm_attention(repaired: bool) -> Launchable:
    from kernels.cases import DecodeCase, decode_case
    from kernels.tiny_vllm.attention import cache_of, paged_attention

    def attend(name: str, title: str, make: Callable[[], DecodeCase]) -> Case:
        def run(backend: Backend) -> Outputs:
            case = make()
            output = np.full(case.q.shape, np.nan, case.q.dtype)
            # Slots in reverse: the table is known by the slot, all else by the place among the active ones.
            slots = np.arange(case.num_seqs, dtype=np.int32)[::-1].copy()
            table = case.block_tables[slots][:, None].copy()
            paged_attention(
                output, case.q, cache_of(case), table, case.seq_lens, slots, repaired=repaired, backend=backend
            )
            return {"output": output}

        return Case(name, title, run)

    return _of(
        f"tiny-vllm-attention{'-repaired' if repaired else ''}",
        f"tiny-vllm's two-warp decode kernel, {'with the barrier that it lacks' if repaired else 'with its race'}.",
        "kernels/tiny_vllm/attention.py",
        attend(
            "small",
            "one sequence of 20 tokens, 4 query heads on 1 KV head of 64, float32",
            lambda: decode_case([20], 4, 1, 64, 16, seed=8),
        ),
        attend(
            "two",
            "sequences of 37 and 19 tokens, 8 query heads on 2 KV heads of 64, float16",
            lambda: decode_case([37, 19], 8, 2, 64, 16, dtype="float16", seed=9),
        ),
    )


def _tiny(maker: str) -> Launchable:
    from walkthroughs import launchables_tiny

    make: Callable[[], Launchable] = getattr(launchables_tiny, maker)
    return make()


def _live(name: str) -> Launchable:
    from walkthroughs.launchables_live import MAKERS

    return MAKERS[name]()


_MAKERS: dict[str, Callable[[], Launchable]] = {
    "classic-v1": _classic_v1,
    "classic-v2": _classic_v2,
    "reshape-and-cache": _reshape_and_cache,
    "reshape-and-cache-fixed": _reshape_and_cache_fixed,
    "reshape-and-cache-flash": _reshape_and_cache_flash,
    "paged-2d": lambda: _live("paged-2d"),
    "slot-mapping": lambda: _live("slot-mapping"),
    "gather-kv": lambda: _live("gather-kv"),
    "copy-blocks": lambda: _live("copy-blocks"),
    "scatter": _scatter,
    "gather": _gather,
    "tiny-vllm-attention": lambda: _tiny_vllm_attention(repaired=False),
    "tiny-vllm-attention-repaired": lambda: _tiny_vllm_attention(repaired=True),
    "tiny-vllm-paged": lambda: _tiny("paged"),
    "tiny-vllm-general": lambda: _tiny("general"),
    "tiny-vllm-writes": lambda: _tiny("writes"),
}
