"""What a film's picture is drawn from: which array is the block table, which are the pool, what runs along.

A trace knows arrays and elements. A scene says what an element means: its block, its head, its token in the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Axis = tuple[str, int, int]
"""A name (block, kv, head, token, group, channel, x), a size, and the elements from one to the next."""


@dataclass(frozen=True)
class Pool:
    """An array of the trace that holds blocks; `axes` from the widest stride to the narrowest."""

    array: str
    axes: tuple[Axis, ...]

    def where(self, index: int) -> dict[str, int]:
        """The place of an element: a number for each axis."""
        found = {}
        for name, _, stride in self.axes:
            found[name], index = divmod(index, stride)
        return found

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        return next(size for name, size, _ in self.axes if name == "block")


@dataclass(frozen=True)
class Scene:
    """The picture of a film.

    `table`: the array with the block table or the slots, or "". `kind`: what its entries are. `row`: the first entry of
    the traced sequence and how many it has. `block_size`: tokens in a block. `running`: the names of what runs along.
    """

    table: str = ""
    kind: Literal["blocks", "slots"] = "blocks"
    row: tuple[int, int] = (0, 0)
    block_size: int = 0
    pools: tuple[Pool, ...] = ()
    running: tuple[str, ...] = ()


def _dense(array: str, **sizes: int) -> Pool:
    """A pool without gaps, its axes in the order given."""
    axes: list[Axis] = []
    stride = 1
    for name, size in reversed(sizes.items()):
        axes.insert(0, (name, size, stride))
        stride *= size
    return Pool(array, tuple(axes))


def _small() -> tuple[Pool, Pool]:
    return _dense("k_pool", block=4, token=4, channel=4), _dense("v_pool", block=4, token=4, channel=4)


def _classic(
    blocks: int, heads: int, head_size: int, block_size: int, x: int, k: str = "k_cache", v: str = "v_cache"
) -> tuple[Pool, Pool]:
    keys = _dense(k, block=blocks, head=heads, group=head_size // x, token=block_size, x=x)
    return keys, _dense(v, block=blocks, head=heads, channel=head_size, token=block_size)


def _tiny(blocks: int, heads: int, head_size: int) -> tuple[Pool]:
    return (_dense("kv_cache", block=blocks, kv=2, token=16, head=heads, channel=head_size),)


def _flash(array: str) -> Pool:
    """K or V of a cache that has both side by side: a token's heads 64 elements apart, 32 of them its own."""
    return Pool(array, (("block", 3, 512), ("token", 4, 128), ("head", 2, 64), ("channel", 32, 1)))


_WRITER = ("key_cache", "value_cache")
_V1 = ("qk_max", "exp_sum", "accs")
_TINY = ("current_max", "d", "acc")
SCENES = {
    "scatter": Scene("block_table", "blocks", (0, 2), 4, _small()),
    "gather": Scene("block_table", "blocks", (0, 2), 4, _small(), ("m", "l", "acc")),
    "reshape-and-cache": Scene("slot_mapping", "slots", (0, 6), 4, _classic(4, 2, 32, 4, 4, *_WRITER)),
    "classic-v1": Scene("block_tables", "blocks", (6, 6), 16, _classic(11, 1, 32, 16, 4), _V1),
    "classic-v2": Scene("block_tables", "blocks", (0, 6), 8, _classic(8, 1, 32, 8, 4), _V1),
    "classic-v2-reduce": Scene(running=("max_logit", "global_exp_sum", "acc")),
    "reshape-and-cache-fixed": Scene("slot_mapping", "slots", (0, 2), 8, _classic(1, 40, 128, 8, 8, *_WRITER)),
    "reshape-and-cache-flash": Scene("slot_mapping", "slots", (0, 5), 4, (_flash("key_cache"), _flash("value_cache"))),
    "slot-mapping": Scene("block_table_ptr", "blocks", (0, 2), 16),
    "gather-kv": Scene(
        "block_table", "blocks", (0, 2), 16,
        (Pool("kv_cache",
              (("block", 3, 2048), ("token", 16, 128), ("head", 2, 64), ("kv", 2, 32), ("channel", 32, 1))),),
    ),
    "paged-2d": Scene(
        "block_tables_ptr", "blocks", (0, 3), 16,
        _classic(5, 1, 32, 16, 4, "key_cache_ptr", "value_cache_ptr"), ("M", "L", "acc"),
    ),
    "copy-blocks": Scene(
        pools=(_dense("key_cache", block=4, token=4, channel=4), _dense("value_cache", block=4, token=4, channel=4)),
        block_size=4,
    ),
    "tiny-vllm-attention": Scene("block_table", "blocks", (0, 3), 16, _tiny(5, 1, 64), _TINY),
    "tiny-vllm-attention-repaired": Scene("block_table", "blocks", (0, 3), 16, _tiny(5, 1, 64), _TINY),
    "tiny-vllm-paged": Scene("block_table", "blocks", (9, 3), 16, _tiny(6, 2, 64), _TINY),
    "tiny-vllm-general": Scene("block_table", "blocks", (3, 3), 16, _tiny(5, 1, 48), _TINY),
    "tiny-vllm-writes": Scene("blocks", "blocks", (0, 1), 16, _tiny(4, 1, 64)),
}  # fmt: skip
"""The scene of every film, by its id."""
