"""tiny-vllm's ports as kernels that `sanitize`, `trace` and `hardware` launch by name; see `launchables`.

`tiny-vllm-attention`, the loop alone with its race, stands there. Here are the whole kernel, repaired and writing over
its query, the general form, and the writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.cases import DecodeCase, decode_case
from kernels.kernel import Backend
from kernels.tiny_vllm.attention import cache_of
from kernels.tiny_vllm.block_table import Blocks
from kernels.tiny_vllm.general import general_attention
from kernels.tiny_vllm.paged import tiny_attention
from kernels.tiny_vllm.scatter import write_decode, write_prefill
from walkthroughs.launchables import Case, Launchable, Outputs


def paged() -> Launchable:
    """The whole kernel with the barrier that it lacks; one case writes the output over the query."""
    return _attention(
        "tiny-vllm-paged",
        "tiny-vllm's whole decode kernel, with the barrier that it lacks.",
        "kernels/tiny_vllm/paged.py",
        lambda *args, backend: tiny_attention(*args, repaired=True, backend=backend),
        ("in-place", "one sequence of 18 tokens, 4 query heads of 64, the output over the query, float32",
         lambda: decode_case([18], 4, 1, 64, 16, seed=10), True),
        ("two", "sequences of 20 and 5 tokens in slots 1 and 0, layer 1 of 2, 8 query heads of 64, float16",
         lambda: decode_case([20, 5], 8, 2, 64, 16, dtype="float16", seed=11), False),
    )  # fmt: skip


def general() -> Launchable:
    """The general form, at a head of one and a half warps and of four."""
    return _attention(
        "tiny-vllm-general",
        "tiny-vllm's decode kernel for any head size, with two barriers a token and no race.",
        "kernels/tiny_vllm/general.py",
        lambda *args, backend: general_attention(*args, backend=backend),
        ("odd", "one sequence of 17 tokens, 4 query heads of 48, float32",
         lambda: decode_case([17], 4, 1, 48, 16, seed=12), False),
        ("wide", "sequences of 9 and 3 tokens, 4 query heads of 128, the output over the query, float16",
         lambda: decode_case([9, 3], 4, 1, 128, 16, dtype="float16", seed=13), True),
    )  # fmt: skip


def writes() -> Launchable:
    """A prompt and two decode steps through the bookkeeping."""

    def run(backend: Backend) -> Outputs:
        rng = np.random.default_rng(14)
        key, value = (rng.standard_normal((19, 1, 64)).astype(np.float16) for _ in range(2))
        cache = np.full((4, 2, 16, 1, 64), np.nan, np.float16)
        state = Blocks(num_blocks=4, slots=2, layers=1)
        write_prefill(state, 0, 0, key[:15].copy(), value[:15].copy(), cache, backend=backend)
        write_prefill(state, 1, 0, key[15:17].copy(), value[15:17].copy(), cache, backend=backend)
        for step in (0, 1):
            row = key[17 + step :][:1].repeat(2, axis=0), value[17 + step :][:1].repeat(2, axis=0)
            write_decode(state, [0, 1], [15 + step, 2 + step], 0, *row, cache, backend=backend)
        return {"kv_cache": cache}

    case = Case("small", "prompts of 15 and 2 tokens, then two more each, 1 KV head of 64, float16", run)
    return Launchable(
        "tiny-vllm-writes", "tiny-vllm's writes: a prompt into blocks, then token by token.",
        "kernels/tiny_vllm/scatter.py", {case.name: case},
    )  # fmt: skip


def _attention(
    name: str,
    title: str,
    port: str,
    attend: Callable[..., None],
    *cases: tuple[str, str, Callable[[], DecodeCase], bool],
) -> Launchable:
    def launch(make: Callable[[], DecodeCase], in_place: bool) -> Callable[[Backend], Outputs]:
        def run(backend: Backend) -> Outputs:
            case = make()
            q: Any = case.q.copy()
            output = q if in_place else np.full(case.q.shape, np.nan, case.q.dtype)
            slots = np.arange(case.num_seqs, dtype=np.int32)[::-1].copy()
            table = np.full((case.num_seqs, 2, case.block_tables.shape[1]), -1, np.int32)
            table[slots, 1] = case.block_tables
            attend(1, case.num_seqs, q, cache_of(case), table, case.seq_lens, slots, output, backend=backend)
            return {"output": output}

        return run

    made = [Case(name, title, launch(make, in_place)) for name, title, make, in_place in cases]
    return Launchable(name, title, port, {case.name: case for case in made})
