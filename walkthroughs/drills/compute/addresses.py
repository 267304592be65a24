"""Where a token and its elements lie: slots, and offsets in the classic caches and in FlashAttention's."""

from __future__ import annotations

import random

from kernels import layout
from kernels.explorer.geometry import Geometry
from kernels.explorer.places import LAYOUTS, byte_of
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator


@generator(
    "slot",
    title="The slot of a token",
    level=1,
    concepts=("slot-formula", "slot-of-token"),
    steps=("vllm-classic/slots", "paged-reference/slots"),
)
def slot(rng: random.Random) -> Problem:
    """Position, table, block size -> slot."""
    size = rng.choice(draws.BLOCK_SIZES)
    table = draws.table(rng, rng.randint(3, 6))
    position = draws.position(rng, size, len(table))
    logical, offset = divmod(position, size)
    answer = layout.slot(table[logical], offset, size)
    return Problem(
        f"A sequence has the block table `{table}`; blocks hold {size} tokens. "
        f"In which slot of the pool lies the token at position {position}?",
        answer,
        (
            (position, "took the logical block for the physical one: the block table was not asked"),
            (table[logical] * size, "forgot the offset in the block"),
            (table[logical] + offset, "forgot to multiply the physical block by the block size"),
            (table[logical] * size + position, "added the whole position instead of its offset in the block"),
            (table[logical - 1] * size + offset, "counted the table's entries from 1"),
        ),
        bullets(
            f"logical block = {position} // {size} = {logical}, offset = {position} % {size} = {offset}",
            f"physical block = table[{logical}] = {table[logical]}",
            f"slot = {table[logical]} * {size} + {offset} = {answer}",
        ),
        {"table": table, "block_size": size, "position": position},
    )


@generator(
    "position",
    title="Physical block and offset of a position",
    level=1,
    concepts=("gather-lookup", "block-table-lookup", "block-table-walk"),
    steps=("paged-reference/lookup", "vllm-classic/block-table"),
)
def position(rng: random.Random) -> Problem:
    """Position, table, block size -> [physical block, offset]."""
    size = rng.choice((8, 16, 32, 64))
    table = draws.table(rng, rng.randint(3, 6))
    place = draws.position(rng, size, len(table))
    logical, offset = divmod(place, size)
    answer = [table[logical], offset]
    return Problem(
        f"Block table `{table}`, {size} tokens a block. Which physical block holds position {place}, and at which "
        "offset in it? Answer with the two numbers, the block first.",
        answer,
        (
            ([logical, offset], "stopped at the logical block, without the table"),
            ([offset, table[logical]], "gave the offset before the block"),
            ([table[logical - 1], offset], "counted the table's entries from 1"),
            ([table[logical], place], "left the position whole instead of taking the remainder"),
            ([table[logical], offset + 1], "counted offsets from 1"),
        ),
        bullets(
            f"physical block = table[{place} // {size}] = table[{logical}] = {table[logical]}",
            f"offset = {place} % {size} = {offset}",
            f"answer = {table[logical]}, {offset}",
        ),
        {"table": table, "block_size": size, "position": place},
    )


@generator(
    "position-of-slot",
    title="From a slot back to the position",
    level=2,
    concepts=("slot-split", "slot-formula"),
    steps=("vllm-classic/slots", "vllm-writers/slots"),
)
def position_of_slot(rng: random.Random) -> Problem:
    """Slot, table, block size -> position."""
    size = rng.choice(draws.BLOCK_SIZES)
    table = draws.table(rng, rng.randint(3, 6))
    logical, inside = rng.randrange(len(table)), rng.randrange(size)
    number = layout.slot(table[logical], inside, size)
    block, offset = layout.split_slot(number, size)
    answer = table.index(block) * size + offset
    return Problem(
        f"A writer stored a token into slot {number}. Its sequence has the block table `{table}`, with blocks of "
        f"{size} "
        "tokens. At which position of the sequence does the token stand?",
        answer,
        (
            (number, "took the slot for the position"),
            (block, "gave the physical block instead of the position"),
            (logical, "gave the logical block instead of the position"),
            (logical * size, "forgot the offset in the block"),
            ((logical + 1) * size + offset, "counted the table's entries from 1"),
            (logical + offset, "forgot to multiply the logical block by the block size"),
        ),
        bullets(
            f"physical block = {number} // {size} = {block}, offset = {number} % {size} = {offset}",
            f"block {block} is entry {logical} of the table",
            f"position = {logical} * {size} + {offset} = {answer}",
        ),
        {"slot": number, "table": table, "block_size": size},
    )


@generator(
    "k-offset",
    title="Element offset in the key cache, through the table",
    level=2,
    concepts=("k-address", "x-packing", "key-cache-view"),
    steps=("vllm-classic/k-address", "vllm-classic/x"),
    claims=("L1-14", "L1-16"),
)
def k_offset(rng: random.Random) -> Problem:
    """Position, table, KV head, channel -> element of the classic key cache."""
    made = draws.cache(rng)
    size, head_size, x = made.block_size, made.head_size, layout.x_of(made.itemsize)
    table = draws.table(rng, rng.randint(3, 5))
    place = draws.position(rng, size, len(table))
    head, dim = rng.randrange(made.num_kv_heads), rng.randrange(x, head_size)
    logical, offset = divmod(place, size)
    block = table[logical]

    def at(block: int) -> int:
        return layout.key_offset(
            block, head, dim, offset, num_kv_heads=made.num_kv_heads, head_size=head_size, block_size=size,
            element_size=made.itemsize,
        )  # fmt: skip

    answer, block_stride = at(block), layout.kv_block_stride(made.num_kv_heads, head_size, size)
    head_stride = layout.kv_head_stride(head_size, size)
    start = block * block_stride + head * head_stride
    group, inside = divmod(dim, x)
    return Problem(
        f"vLLM's classic key cache, with x: {made.words}. A sequence has the block table `{table}`. At which element "
        f"offset in the key cache lies channel {dim} of KV head {head} of the token at position {place}?",
        answer,
        (
            (start + dim * size + offset, "left x out: a value lies so, a key does not"),
            (start + offset * head_size + dim, "laid all channels of a token side by side"),
            (at(logical), "took the logical block for the physical one"),
            (start + inside * size * x + offset * x + group, "swapped dim // x and dim % x"),
            (start + group * size * x + offset + inside, "forgot that neighbouring tokens lie x elements apart"),
            (start + group * x + offset * x + inside, "forgot that neighbouring groups lie block_size * x apart"),
            (answer - head * head_stride, "left the KV head out"),
        ),
        bullets(
            f"x = 16 // {made.itemsize} = {x}",
            f"physical block = table[{place} // {size}] = {block}, offset = {place} % {size} = {offset}",
            f"block: {block} * ({made.num_kv_heads} * {head_size} * {size}) = {block * block_stride}",
            f"head: {head} * ({head_size} * {size}) = {head * head_stride}",
            f"group: {dim} // {x} * ({size} * {x}) = {group * size * x}",
            f"token: {offset} * {x} = {offset * x}",
            f"inside: {dim} % {x} = {inside}",
            f"sum = {answer}",
        ),
        {**made.given, "table": table, "position": place, "head": head, "dim": dim},
        "elements",
    )


@generator(
    "k-bytes",
    title="Byte offset in the key cache",
    level=2,
    concepts=("k-store", "x-packing", "x-view"),
    steps=("vllm-classic/write-keys", "vllm-classic/k-address"),
    claims=("L1-16",),
)
def k_bytes(rng: random.Random) -> Problem:
    """Block, offset, KV head, channel -> byte of the classic key cache."""
    made = draws.cache(rng, ("float32", "bfloat16", "fp8"))
    size, head_size, item = made.block_size, made.head_size, made.itemsize
    x = layout.x_of(item)
    block, offset = rng.randrange(1, 40), rng.randrange(1, size)
    head, dim = rng.randrange(made.num_kv_heads), rng.randrange(x, head_size)
    element = layout.key_offset(
        block,
        head,
        dim,
        offset,
        num_kv_heads=made.num_kv_heads,
        head_size=head_size,
        block_size=size,
        element_size=item,
    )
    answer = element * item
    start = block * layout.kv_block_stride(made.num_kv_heads, head_size, size)
    start += head * layout.kv_head_stride(head_size, size)
    always_8 = start + dim // 8 * size * 8 + offset * 8 + dim % 8
    return Problem(
        f"vLLM's classic key cache, with x: {made.words}. How many bytes from its start does channel {dim} of KV head "
        f"{head} lie, for the token at offset {offset} of physical block {block}?",
        answer,
        (
            (element, "gave elements instead of bytes"),
            (always_8 * item, "took x = 8, which holds for elements of 2 bytes only"),
            ((start + dim * size + offset) * item, "left x out: a value lies so, a key does not"),
            ((start + offset * head_size + dim) * item, "laid all channels of a token side by side"),
            (2 * answer, "counted K and V: the two caches start apart"),
        ),
        bullets(
            f"x = 16 // {item} = {x}",
            f"block and head: {block} * {made.num_kv_heads * head_size * size} + {head} * {head_size * size} = {start}",
            f"group, token, inside: {dim // x} * {size * x} + {offset} * {x} + {dim % x} = {element - start}",
            f"bytes = {element} * {item} = {answer}",
        ),
        {**made.given, "block": block, "offset": offset, "head": head, "dim": dim},
        "bytes",
    )


@generator(
    "v-offset",
    title="Element offset in the value cache",
    level=2,
    concepts=("v-address", "v-store", "v-table"),
    steps=("vllm-classic/write-values", "vllm-classic/v-rows"),
    claims=("L1-14", "L1-20"),
)
def v_offset(rng: random.Random) -> Problem:
    """Position, table, KV head, channel -> element of the classic value cache."""
    made = draws.cache(rng)
    size, head_size = made.block_size, made.head_size
    table = draws.table(rng, rng.randint(3, 5))
    place = draws.position(rng, size, len(table))
    head, dim = rng.randrange(made.num_kv_heads), rng.randrange(1, head_size)
    logical, offset = divmod(place, size)
    block, sizes = table[logical], {"num_kv_heads": made.num_kv_heads, "head_size": head_size, "block_size": size}
    answer = layout.value_offset(block, head, dim, offset, **sizes)
    start = answer - dim * size - offset
    as_key = layout.key_offset(block, head, dim, offset, **sizes, element_size=made.itemsize)
    return Problem(
        f"vLLM's classic value cache: {made.words}. A sequence has the block table `{table}`. At which element "
        "offset in "
        f"the value cache lies channel {dim} of KV head {head} of the token at position {place}?",
        answer,
        (
            (as_key, "used the key's layout: a value has no x"),
            (start + offset * head_size + dim, "laid all channels of a token side by side"),
            (
                layout.value_offset(logical, head, dim, offset, **sizes),
                "took the logical block for the physical one",
            ),
            (start + dim * size + place, "added the whole position instead of its offset in the block"),
            (answer - head * head_size * size, "left the KV head out"),
        ),
        bullets(
            f"physical block = table[{place} // {size}] = {block}, offset = {place} % {size} = {offset}",
            f"block: {block} * ({made.num_kv_heads} * {head_size} * {size}) = "
            f"{block * made.num_kv_heads * head_size * size}",
            f"head: {head} * ({head_size} * {size}) = {head * head_size * size}",
            f"channel: {dim} * {size} = {dim * size}",
            f"token: {offset}",
            f"sum = {answer}",
        ),
        {**made.given, "table": table, "position": place, "head": head, "dim": dim},
        "elements",
    )


@generator(
    "flash-offset",
    title="Element offset in FlashAttention's cache, NHD or HND",
    level=3,
    concepts=("flash-cache-shape", "flash-stride-order", "flash-split"),
    steps=("vllm-live/cache-shape", "vllm-live/split", "vllm-writers/strides"),
)
def flash_offset(rng: random.Random) -> Problem:
    """Block, offset, KV head, channel, memory order, K or V -> element of the cache of vLLM 0.26.0."""
    heads, head_size, size = rng.choice(draws.KV_HEADS), rng.choice(draws.HEAD_SIZES), rng.choice((16, 32, 64))
    block, offset = rng.randrange(1, 40), rng.randrange(1, size)
    head, dim = rng.randrange(heads), rng.randrange(head_size)
    memory, kind = rng.choice(("NHD", "HND")), rng.choice("KV")
    sizes = Geometry(size, head_size, heads, heads, "float16")

    def at(name: str, kind: str = kind) -> int:
        return byte_of(LAYOUTS[name], sizes, block, head, offset, dim, kind)[0]

    answer, name, other = at(f"side-{memory.lower()}"), memory.lower(), {"NHD": "hnd", "HND": "nhd"}[memory]
    row = 2 * head_size
    start, second = block * size * heads * row, head_size if kind == "V" else 0
    if memory == "NHD":
        middle = f"token and head: {offset} * {heads * row} + {head} * {row} = {(offset * heads + head) * row}"
    else:
        middle = f"head and token: {head} * {size * row} + {offset} * {row} = {(head * size + offset) * row}"
    return Problem(
        f"FlashAttention's cache at vLLM 0.26.0 keeps K and V of a token and KV head side by side: a row of twice "
        f"{head_size} channels. It has {heads} KV heads and blocks of {size} tokens, and lies in {memory} order. At "
        "which "
        f"element offset lies channel {dim} of the {'key' if kind == 'K' else 'value'} of KV head {head}, for the "
        "token at "
        f"offset {offset} of physical block {block}?",
        answer,
        (
            (at(f"side-{other}"), f"used the strides of {other.upper()} order"),
            (at(f"{name}-k"), "kept K and V in caches of their own: here a row holds both"),
            (at(f"side-{name}", "K"), "forgot that the value is the second half of the row"),
            (at(f"side-{name}", "V"), "took the key for the second half of the row"),
            (answer - start, "left the block out"),
        ),
        bullets(
            f"row = 2 * {head_size} = {row}",
            f"block: {block} * {size} * {heads} * {row} = {start}",
            middle,
            f"{'key first' if kind == 'K' else 'value second'}: {second}, channel: {dim}",
            f"sum = {answer}",
        ),
        {
            "num_kv_heads": heads, "head_size": head_size, "block_size": size, "block": block, "offset": offset,
            "head": head, "dim": dim, "memory": memory, "kind": {"K": "key", "V": "value"}[kind],
        },
        "elements",
    )  # fmt: skip
