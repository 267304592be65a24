"""Bytes of a KV cache: a token's, a card's worth of blocks, an index that overflows, the floor of a decode step."""

from __future__ import annotations

import random

from kernels import layout
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator

GIB, GB = 1024**3, 1000**3
INT_MAX = 2**31 - 1


@generator(
    "kv-per-token",
    title="KV bytes of one token",
    level=1,
    concepts=("rocm-cache-shape", "flash-cache-shape"),
    steps=("vllm-live/cache-shape",),
)
def kv_per_token(rng: random.Random) -> Problem:
    """Model -> bytes a token, all layers."""
    made = draws.model(rng)
    answer = layout.kv_bytes_per_token(made.kv_heads, made.head_size, made.itemsize, made.layers)
    return Problem(
        f"{made.words}. How many bytes of KV cache does one token cost?",
        answer,
        (
            (answer // 2, "forgot that K and V are both kept"),
            (answer // made.kv_heads * made.heads, "used query heads instead of KV heads"),
            (answer // made.layers, "counted one layer"),
            (answer // made.itemsize, "counted elements instead of bytes"),
            (answer // made.itemsize * 4, "took 4 bytes an element"),
        ),
        bullets(
            f"2 (K, V) * {made.layers} layers * {made.kv_heads} KV heads * {made.head_size} * {made.itemsize} bytes "
            f"= {answer}"
        ),
        made.given,
        "bytes",
    )


@generator(
    "kv-batch",
    title="KV bytes of a batch, in whole blocks",
    level=2,
    concepts=("block-ranges", "block-pool"),
    steps=("block-lifetime/on-demand", "block-lifetime/fragmentation"),
)
def kv_batch(rng: random.Random) -> Problem:
    """Model, sequences, length, block size -> bytes."""
    made, size = draws.model(rng), rng.choice((16, 32))
    seqs, length = rng.choice((4, 8, 16, 32, 64)), rng.randint(100, 6000)
    token = layout.kv_bytes_per_token(made.kv_heads, made.head_size, made.itemsize, made.layers)
    blocks = layout.blocks_for(length, size)
    answer = seqs * blocks * size * token
    return Problem(
        f"{made.words}, in blocks of {size} tokens. How much memory do the blocks of {seqs} sequences of {length} "
        "tokens each "
        "take, over all layers?",
        answer,
        (
            (seqs * length * token, "counted tokens: blocks are taken whole"),
            (answer // 2, "forgot that K and V are both kept"),
            (answer // made.kv_heads * made.heads, "used query heads instead of KV heads"),
            (answer // made.layers, "counted one layer"),
            (answer // seqs, "counted one sequence"),
            (seqs * (length // size) * size * token, "rounded the blocks down"),
            (
                layout.blocks_for(seqs * length, size) * size * token,
                "rounded up once for the batch, not for each sequence",
            ),
        ),
        bullets(
            f"a token: 2 * {made.layers} * {made.kv_heads} * {made.head_size} * {made.itemsize} = {token}",
            f"a sequence: ceil({length} / {size}) = {blocks} blocks of {size} tokens",
            f"{seqs} * {blocks} * {size} * {token} = {answer}",
        ),
        {**made.given, "block_size": size, "seqs": seqs, "length": length},
        "bytes",
    )


@generator(
    "card-blocks",
    title="Blocks that fit in a card's memory",
    level=3,
    concepts=("block-pool", "rocm-cache-shape"),
    steps=("block-lifetime/on-demand", "block-lifetime/empty-pool"),
    claims=("L1-52",),
)
def card_blocks(rng: random.Random) -> Problem:
    """Card, share, weights, model -> blocks over all layers."""
    made, size = draws.model(rng), rng.choice((16, 32))
    card, weights = rng.choice(((24, 9), (48, 16), (80, 28), (80, 16), (139, 65), (192, 140)))
    share = rng.choice((80, 85, 90, 92))
    block = size * layout.kv_bytes_per_token(made.kv_heads, made.head_size, made.itemsize, made.layers)

    def fits(room: int, block: int = block) -> int:
        return max(room, 0) // block

    room = card * GIB * share // 100 - weights * GB
    answer = fits(room)
    return Problem(
        f"{made.words}, in blocks of {size} tokens; a block has that many tokens in every layer. A card has {card} "
        "GiB, the engine "
        f"may use {share} % of it, and {weights} GB of that go to weights and work space. How many blocks fit in the "
        "rest?",
        answer,
        (
            (fits(card * GB * share // 100 - weights * GB), "took the card's GiB for GB"),
            (fits(card * GIB * share // 100 - weights * GIB), "took the weights' GB for GiB"),
            (fits(room, block // 2), "forgot that K and V are both kept"),
            (fits(room, block // made.layers), "counted one layer in the size of a block"),
            (fits(room, block // made.kv_heads * made.heads), "used query heads instead of KV heads"),
            (fits(card * GIB - weights * GB), "forgot that only a share of the card may be used"),
            (fits((card * GIB - weights * GB) * share // 100), "took the share after the weights, not before"),
            (fits(card * GIB * share // 100), "forgot the weights"),
            (answer * size, "counted tokens instead of blocks"),
            (answer + 1, "rounded up: a block that is cut off does not fit"),
        ),
        bullets(
            f"a block: {size} * 2 * {made.layers} * {made.kv_heads} * {made.head_size} * {made.itemsize} = {block} "
            "bytes",
            f"room: {card} * 2^30 * {share} // 100 - {weights} * 10^9 = {room}",
            f"{room} // {block} = {answer}",
        ),
        {**made.given, "block_size": size, "card": card, "share": share, "weights": weights},
        "blocks",
    )


@generator(
    "largest-block",
    title="The largest block id that 32 bits can address",
    level=3,
    concepts=("tiny-pool", "k-address"),
    steps=("tiny-vllm/int-overflow", "findings/largest-cache", "findings/wider-product"),
    claims=("L2-29",),
)
def largest_block(rng: random.Random) -> Problem:
    """Sizes of a block -> largest id whose product with the stride fits int32."""
    kv_heads, head_size, size = rng.choice((2, 4, 8, 16)), rng.choice((64, 80, 96, 128, 256)), rng.choice((16, 32, 64))
    dtype = rng.choice(("float32", "bfloat16", "fp8"))
    item = draws.ITEMSIZES[dtype]
    stride = layout.kv_block_bytes(kv_heads, head_size, size, item)
    answer = INT_MAX // stride
    return Problem(
        f"One buffer holds all blocks; a block has K and V of {size} tokens, {kv_heads} KV heads of {head_size} "
        f"channels, {dtype}. "
        "The code multiplies the block id by the bytes of a block in signed 32-bit integers. What is the largest id "
        "for which "
        "this product does not overflow?",
        answer,
        (
            (2**31 // stride, "divided 2^31: the largest signed number is one less"),
            ((2**32 - 1) // stride, "took unsigned 32-bit integers"),
            (INT_MAX // (stride // 2), "forgot that a block holds K and V"),
            (INT_MAX // (stride // item), "counted elements: the product is in bytes"),
            (answer - 1, "took the largest id that fits for the number of ids"),
            (INT_MAX // (stride // size), "counted one token in the size of a block"),
        ),
        bullets(
            f"a block: 2 * {size} * {kv_heads} * {head_size} * {item} = {stride} bytes",
            f"(2^31 - 1) // {stride} = {answer}",
        ),
        {"block_size": size, "kv_heads": kv_heads, "head_size": head_size, "dtype": dtype},
    )


def _step(rng: random.Random) -> tuple[draws.Model, int, int, int]:
    """Model, sequences, context, bytes of K and V that they hold."""
    made = draws.model(rng)
    seqs, context = rng.choice((2, 4, 8, 16, 32, 64)), rng.choice((512, 1000, 2048, 3000, 4096, 8192, 10000))
    token = layout.kv_bytes_per_token(made.kv_heads, made.head_size, made.itemsize, made.layers)
    return made, seqs, context, seqs * context * token


@generator(
    "step-bytes",
    title="KV bytes that a decode step must read",
    level=2,
    concepts=("key-loop", "v-loop"),
    steps=("vllm-classic/block-table", "vllm-classic/v-rows"),
)
def step_bytes(rng: random.Random) -> Problem:
    """Model, batch, context -> bytes."""
    made, seqs, context, answer = _step(rng)
    return Problem(
        f"{made.words}. A decode step makes one token for each of {seqs} sequences that hold {context} tokens "
        "each. How many "
        "bytes of K and V must it read at least, over all layers? (Each byte once: the query heads of a group share "
        "it.)",
        answer,
        (
            (answer // 2, "forgot that K and V are both read"),
            (answer // made.kv_heads * made.heads, "used query heads instead of KV heads"),
            (answer // made.layers, "counted one layer"),
            (answer // seqs, "counted one sequence"),
            (answer // context, "counted one token a sequence: a step reads the whole context"),
            (answer // made.itemsize, "counted elements instead of bytes"),
        ),
        bullets(
            f"a token: 2 * {made.layers} * {made.kv_heads} * {made.head_size} * {made.itemsize} = "
            f"{answer // (seqs * context)}",
            f"{seqs} * {context} * {answer // (seqs * context)} = {answer}",
        ),
        {**made.given, "seqs": seqs, "context": context},
        "bytes",
    )


@generator(
    "step-floor",
    title="The bandwidth floor of a decode step",
    level=3,
    concepts=("key-loop", "v-loop"),
    steps=("vllm-classic/block-table", "vllm-classic/v-rows"),
)
def step_floor(rng: random.Random) -> Problem:
    """Model, batch, context, bandwidth -> microseconds."""
    made, seqs, context, moved = _step(rng)
    rate = rng.choice((0.9, 1.0, 1.6, 2.0, 3.3, 4.0, 4.8))

    def time(moved: float) -> float:
        return moved / (rate * 1e12) * 1e6

    answer = time(moved)
    return Problem(
        f"{made.words}. A decode step for {seqs} sequences of {context} tokens each reads every byte of their K and "
        "V once, over all "
        f"layers, at {rate} TB/s (10^12 bytes a second). How many microseconds does the reading alone take?",
        answer,
        (
            (time(moved / 2), "forgot that K and V are both read"),
            (time(moved / made.kv_heads * made.heads), "used query heads instead of KV heads"),
            (time(moved / made.layers), "counted one layer"),
            (time(moved / seqs), "counted one sequence"),
            (time(moved * 1e12 / 2**40), "took a TB for 2^40 bytes"),
            (answer / 1000, "gave milliseconds as microseconds"),
            (answer * 1000, "gave nanoseconds as microseconds"),
            (time(moved / made.itemsize), "counted elements instead of bytes"),
        ),
        bullets(
            f"bytes: {seqs} * {context} * 2 * {made.layers} * {made.kv_heads} * {made.head_size} * {made.itemsize} = "
            f"{moved}",
            f"{moved} / ({rate} * 10^12) * 10^6 = {answer:.6g} us",
        ),
        {**made.given, "seqs": seqs, "context": context, "rate": rate},
        "us",
        0.01,
    )
