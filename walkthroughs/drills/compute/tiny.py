"""tiny-vllm's one table of three parts, and its addresses: K and V of a block one behind the other."""

from __future__ import annotations

import random

from kernels.explorer.geometry import Geometry
from kernels.explorer.lanes import TINY
from kernels.explorer.places import LAYOUTS, byte_of
from walkthroughs.drills.compute.problem import Problem, bullets, generator

SIZES = Geometry(**TINY)  # type: ignore[arg-type]


@generator(
    "tiny-index",
    title="Index into tiny-vllm's block table",
    level=2,
    concepts=("tiny-active-slot", "tiny-layout"),
    steps=("tiny-vllm/table-index", "tiny-vllm/two-indexes"),
    claims=("L2-10", "L2-15"),
)
def tiny_index(rng: random.Random) -> Problem:
    """Slot, layer, position -> entry of the flat table."""
    from kernels.tiny_vllm.block_table import BLOCK_SIZE, MAX_BLOCKS_PER_SEQ, N_LAYERS, Blocks

    slots = rng.choice((2, 4, 8))
    slot, layer, place = rng.randrange(slots), rng.randrange(N_LAYERS), rng.randrange(16, 2048)
    logical = place // BLOCK_SIZE
    table = Blocks(num_blocks=1, slots=slots).table
    table[slot, layer, logical] = 0
    answer = int((table.reshape(-1) == 0).argmax())
    return Problem(
        f"tiny-vllm keeps one flat block table for {slots} slots, {N_LAYERS} layers and {MAX_BLOCKS_PER_SEQ} blocks "
        "a sequence, in "
        f"this order. Blocks hold {BLOCK_SIZE} tokens. Which entry belongs to position {place} of the sequence in "
        f"slot {slot}, in "
        f"layer {layer}?",
        answer,
        (
            (slot * MAX_BLOCKS_PER_SEQ + logical, "left the layer out: here each layer has blocks of its own"),
            ((layer * slots + slot) * MAX_BLOCKS_PER_SEQ + logical, "put the layer before the slot"),
            ((slot * N_LAYERS + layer) * MAX_BLOCKS_PER_SEQ + place, "used the position instead of its block"),
            ((slot * N_LAYERS + layer) * 2048 + logical, "took tokens for the length of a row: it has 128 blocks"),
            (answer * 4, "gave bytes instead of an entry"),
        ),
        bullets(
            f"block of the sequence = {place} // {BLOCK_SIZE} = {logical}",
            f"({slot} * {N_LAYERS} + {layer}) * {MAX_BLOCKS_PER_SEQ} + {logical} = {answer}",
        ),
        {
            "slots": slots, "layers": N_LAYERS, "columns": MAX_BLOCKS_PER_SEQ, "block_size": BLOCK_SIZE, "slot": slot,
            "layer": layer, "position": place,
        },
    )  # fmt: skip


@generator(
    "tiny-address",
    title="Byte address in tiny-vllm's cache",
    level=3,
    concepts=("tiny-layout", "k-address", "v-address"),
    steps=("tiny-vllm/addresses", "tiny-vllm/block"),
    claims=("L2-04", "L2-28"),
)
def tiny_address(rng: random.Random) -> Problem:
    """Block, position, query head, channel, K or V -> byte."""
    block, place = rng.randrange(1, 65536), rng.randrange(17, 2048)
    query, dim, kind = rng.randrange(1, 32), rng.randrange(1, 64), rng.choice("KV")
    size, head_size, item = SIZES.block_size, SIZES.head_size, SIZES.itemsize
    kv_head, offset = query // SIZES.group, place % size
    row = SIZES.num_kv_heads * head_size

    def at(head: int = kv_head, offset: int = offset, kind: str = kind) -> int:
        return byte_of(LAYOUTS["tiny"], SIZES, block, head, offset, dim, kind)[1]

    answer, half = at(), size * row * item
    word = {"K": "key", "V": "value"}[kind]
    return Problem(
        f"tiny-vllm's cache: a block of {size} tokens holds first all keys, then all values; a token's row is "
        f"{SIZES.num_kv_heads} KV heads of {head_size} bfloat16. {SIZES.num_heads} query heads share the KV heads. "
        "At which byte "
        f"does query head {query} find channel {dim} of the {word} at position {place}, if the table names physical "
        f"block {block}?",
        answer,
        (
            (at(kind="K"), "forgot that the values lie behind all keys of the block"),
            (at(kind="V"), "took the values' half of the block for the keys"),
            (at(head=query), "used the query head where its KV head is meant"),
            (at(offset=place), "used the position instead of its offset in the block"),
            (answer // item, "gave elements instead of bytes"),
            (answer - block * half, "counted K only in the size of a block"),
        ),
        bullets(
            f"half a block = {size} * {row} * {item} = {half}, a block = {2 * half}",
            f"block: {block} * {2 * half} = {block * 2 * half}",
            f"{word}: {half if kind == 'V' else 0}",
            f"token: {place} % {size} = {offset}, {offset} * {row} * {item} = {offset * row * item}",
            f"KV head: {query} // {SIZES.group} = {kv_head}, {kv_head} * {head_size} * {item} = "
            f"{kv_head * head_size * item}",
            f"channel: {dim} * {item} = {dim * item}",
            f"sum = {answer}",
        ),
        {
            "block": block, "position": place, "query": query, "dim": dim, "kind": word, "block_size": size,
            "kv_heads": SIZES.num_kv_heads, "head_size": head_size, "heads": SIZES.num_heads,
        },
        "bytes",
    )  # fmt: skip
