"""The one table of what can be changed: for each port, its fields, their bounds, and the function that runs a case.

A step offers what its port offers. A port that is not listed here offers nothing: its steps run as they are. The bounds
are such that the SIMT machine answers within some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from walkthroughs.server.parameters import Choice, Field, Lengths, Offer, Rule, Values, Whole

MOST_WORK = 262_144
MOST_SEED = 2**31 - 1

_SEED = Whole("seed", "Seed", 0, MOST_SEED, 1)
_ORDER = Choice("order", "Order of the blocks in the pool", ("shuffled", "reversed", "identity"), "shuffled")
_DTYPE = Choice("dtype", "Number format", ("float32", "float16"), "float32")
_LENGTHS = Lengths("seq_lens", "Sequence lengths", 4, 1, 512, (70, 9))
_HEADS = Choice("heads", "Query heads", (1, 2, 4, 8), 4)
_KV_HEADS = Choice("kv_heads", "KV heads", (1, 2, 4, 8), 2)
_TOKENS = Whole("tokens", "Tokens", 1, 128, 9)
_PADDING = Whole("padding", "Of which padding", 0, 128, 2)

_GROUPED = Rule("heads", lambda v: v["heads"] % v["kv_heads"] == 0, "must be a multiple of the {kv_heads} KV heads")
_PADDED = Rule("padding", lambda v: v["padding"] <= v["tokens"], "must be at most the {tokens} tokens")


def _decode_work(values: Values) -> int:
    return int(sum(values["seq_lens"]) * values["heads"] * values["head_size"])


def _write_work(values: Values) -> int:
    return int(values["tokens"] * values["heads"] * values["head_size"])


def _decode(kernel: str, run: str, *fields: Field, rules: tuple[Rule, ...] = (), most: int = MOST_WORK) -> Offer:
    return Offer(kernel, run, (_LENGTHS, *fields, _DTYPE, _SEED, _ORDER), rules, _decode_work, most)


def _write(kernel: str, run: str, *fields: Field) -> Offer:
    unit = "tokens × KV heads × head size"
    return Offer(kernel, run, (_TOKENS, _PADDING, *fields, _DTYPE, _SEED), (_PADDED,), _write_work, MOST_WORK, unit)


_CLASSIC = (
    Choice("block_size", "Block size", (8, 16, 32), 16),
    _HEADS,
    _KV_HEADS,
    Choice("head_size", "Head size", (32, 64, 80, 96, 112, 120, 128, 192, 256), 64),
)
_SHELF = Choice("block_size", "Block size", (4, 8, 16, 32), 16)
_TINY_HEADS = Choice("heads", "Query heads, four to a KV head", (4, 8), 4)
_SMALL_HEADS = Choice("head_size", "Head size", (32, 64, 128), 32)

OFFERS: Mapping[str, Offer] = {
    "kernels/vllm/classic_v1.py": _decode("paged_attention_v1", "classic_v1", *_CLASSIC, rules=(_GROUPED,)),
    "kernels/vllm/classic_v2.py": _decode(
        "paged_attention_v2",
        "classic_v2",
        *_CLASSIC,
        Choice("partition_size", "Tokens in a partition", (32, 64, 128, 512), 32),
        rules=(_GROUPED,),
    ),
    "kernels/vllm/cache.py": _write(
        "reshape_and_cache", "reshape_and_cache", _SHELF, Choice("heads", "KV heads", (1, 2, 4, 8), 2), _SMALL_HEADS,
        _ORDER,
    ),
    "kernels/vllm/cache_fixed.py": _write(
        "reshape_and_cache with its stride loop", "reshape_and_cache_fixed", _SHELF,
        Choice("heads", "KV heads", (1, 2, 4, 8, 40), 40), Choice("head_size", "Head size", (32, 64, 128), 128),
        _ORDER,
    ),
    "kernels/vllm/cache_flash.py": _write(
        "reshape_and_cache_flash", "reshape_and_cache_flash", _SHELF,
        Choice("heads", "KV heads", (1, 2, 4, 8), 4), Choice("head_size", "Head size", (32, 46, 64, 128), 32),
        Choice("memory", "Order in memory", ("NHD", "HND"), "NHD"),
        Choice("form", "Where V lies", ("side-by-side", "stacked"), "side-by-side"),
    ),
    "kernels/vllm/paged_2d.py": _decode(
        "kernel_paged_attention_2d",
        "paged_2d",
        Choice("block_size", "Block size", (8, 16, 24, 32), 16),
        _HEADS,
        _KV_HEADS,
        _SMALL_HEADS,
        Whole("window", "Sliding window (0: none)", 0, 512, 0),
        rules=(_GROUPED,),
    ),
    "kernels/tiny_vllm/paged.py": _decode(
        "pagedAttentionKernel, with the barrier that it lacks", "tiny_paged",
        Choice("block_size", "Block size", (16,), 16), _TINY_HEADS,
        Choice("head_size", "Head size", (64,), 64), most=MOST_WORK // 2,
    ),
    "kernels/tiny_vllm/general.py": _decode(
        "the general form of tiny-vllm's kernel", "tiny_general",
        Choice("block_size", "Block size", (8, 16, 32), 16), _TINY_HEADS,
        Choice("head_size", "Head size", (32, 48, 64, 96, 128), 128), most=MOST_WORK // 2,
    ),
    "kernels/gather.py": Offer(
        "gather_kernel",
        "gather",
        (
            Whole("seq_len", "Sequence length", 1, 256, 21),
            Choice("block_size", "Block size", (2, 4, 8, 16), 4),
            Choice("head_size", "Head size", (4, 8, 16, 32), 4),
            _SEED,
            _ORDER,
        ),
        (),
        lambda v: math.prod((v["seq_len"], v["head_size"])),
        256 * 32,
        "tokens × head size",
    ),
}  # fmt: skip
"""Port -> what can be changed about its kernel."""


def offer_of(port: str) -> Offer | None:
    """What a step of this port offers, or None."""
    return OFFERS.get(port)
