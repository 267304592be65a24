"""How the classic kernel divides the values: a row is one channel, and a warp reads several rows at once."""

from __future__ import annotations

import random

from kernels import layout
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator


@generator(
    "v-rows",
    title="Value rows that a warp reads at once",
    level=2,
    concepts=("v-sizes", "v-loop"),
    steps=("vllm-classic/v-rows",),
    claims=("L1-20",),
)
def v_rows(rng: random.Random) -> Problem:
    """Block size, element size, lanes -> rows at once."""
    size, dtype = rng.choice(draws.BLOCK_SIZES), rng.choice(("float32", "float16", "bfloat16"))
    lanes, head_size = rng.choice((32, 64)), rng.choice((64, 128, 256))
    item = draws.ITEMSIZES[dtype]
    vec, pieces = layout.v_vec_size(size, item), layout.num_v_vecs_per_row(size, item)
    answer = layout.num_rows_per_iter(size, item, lanes)
    return Problem(
        f"The classic kernel: {dtype}, head size {head_size}, blocks of {size} tokens, warps of {lanes} lanes. How "
        "many rows of "
        "V (one channel, the tokens of a block) does a warp read at once?",
        answer,
        (
            (lanes // size, "gave every lane one token: a lane loads 16 bytes of a row"),
            (lanes, "gave every lane a row of its own"),
            (pieces, "gave the lanes that share a row"),
            (vec, "gave the tokens that a lane loads at once"),
            (-(-head_size // answer), "gave the turns that the head takes"),
        ),
        bullets(
            f"tokens a lane loads = min(16 // {item}, {size}) = {vec}",
            f"lanes a row = {size} // {vec} = {pieces}",
            f"rows = {lanes} // {pieces} = {answer}",
        ),
        {"dtype": dtype, "head_size": head_size, "block_size": size, "lanes": lanes},
        "rows",
    )


@generator(
    "rows-per-thread",
    title="Value rows that one thread adds up",
    level=2,
    concepts=("v-sizes", "accumulate"),
    steps=("vllm-classic/v-rows", "vllm-classic/accumulate"),
)
def rows_per_thread(rng: random.Random) -> Problem:
    """Head size, block size, element size -> accumulators a thread."""
    size, dtype = rng.choice(draws.BLOCK_SIZES), rng.choice(("float32", "float16", "bfloat16"))
    head_size, item = rng.choice(draws.HEAD_SIZES), draws.ITEMSIZES[dtype]
    at_once, pieces = layout.num_rows_per_iter(size, item), layout.num_v_vecs_per_row(size, item)
    answer = layout.num_rows_per_thread(head_size, size, item)
    return Problem(
        f"The classic kernel on an NVIDIA GPU: {dtype}, head size {head_size}, blocks of {size} tokens. How many "
        "rows of V does "
        "one thread add up, that is, how many accumulators does it hold?",
        answer,
        (
            (head_size // at_once, "rounded down: the last, incomplete turn counts"),
            (-(-head_size // 32), "dealt the head out to 32 lanes: several lanes share a row"),
            (head_size, "gave one thread the whole head"),
            (-(-head_size // at_once) * pieces, "counted loads of the warp's lanes, not rows of one thread"),
            (at_once, "gave the rows that the warp reads at once"),
        ),
        bullets(f"rows at once = 32 // {pieces} = {at_once}", f"ceil({head_size} / {at_once}) = {answer}"),
        {"dtype": dtype, "head_size": head_size, "block_size": size},
        "rows",
    )


@generator(
    "lane-channels",
    title="The channels that a lane adds up",
    level=3,
    concepts=("v-address", "v-sizes", "accumulate"),
    steps=("vllm-classic/v-rows", "vllm-classic/accumulate"),
    claims=("L1-13",),
)
def lane_channels(rng: random.Random) -> Problem:
    """Lane -> channels of its accumulators."""
    dtype = rng.choice(("float32", "float16", "bfloat16"))
    item = draws.ITEMSIZES[dtype]
    # Where one lane holds a whole row, a warp reads 32 rows at once and every wrong way leads to the right answer.
    size = rng.choice([size for size in draws.BLOCK_SIZES if size > layout.x_of(item)])
    pieces, at_once = layout.num_v_vecs_per_row(size, item), layout.num_rows_per_iter(size, item)
    head_size = rng.choice([head for head in (32, *draws.HEAD_SIZES) if 2 * at_once <= head <= 8 * at_once])
    lane = rng.randrange(layout.WARP_SIZE)
    answer = list(range(lane // pieces, head_size, at_once))
    many = layout.num_rows_per_thread(head_size, size, item)
    return Problem(
        f"The classic kernel on an NVIDIA GPU: {dtype}, head size {head_size}, blocks of {size} tokens. To which "
        "channels of the "
        f"output does lane {lane} of a warp add, in the order of its accumulators?",
        answer,
        (
            (
                list(range(lane // pieces, head_size, 32)),
                "stepped by the 32 lanes, not by the rows that a warp reads at once",
            ),
            (list(range(lane, head_size, 32)), "gave every lane a row of its own"),
            (
                [lane // pieces + step * 32 for step in range(many)],
                "stepped by 32 as often as there are accumulators: that leaves the head",
            ),
            (
                list(range(lane % at_once, head_size, at_once)),
                "took the lane modulo the rows: neighbouring lanes share a row",
            ),
            ([lane // pieces * many + step for step in range(many)], "gave the lane neighbouring channels"),
        ),
        bullets(
            f"lanes a row = {pieces}, rows at once = {at_once}",
            f"first channel = {lane} // {pieces} = {lane // pieces}, then every {at_once}: {answer}",
        ),
        {"dtype": dtype, "head_size": head_size, "block_size": size, "lane": lane},
    )
