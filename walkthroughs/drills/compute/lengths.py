"""What a length costs: blocks, partitions, places in the last block, and what paging and prefix sharing save."""

from __future__ import annotations

import random

from kernels import fragmentation, layout
from kernels.block_pool import BlockPool, BlockTable
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator


def _length(rng: random.Random, size: int, most: int) -> int:
    """A length, in one case of three a whole number of blocks: there the rounding shows."""
    return size * rng.randint(1, most // size) if rng.random() < 1 / 3 else rng.randint(1, most)


@generator(
    "blocks",
    title="Blocks for a length",
    level=1,
    concepts=("block-ranges", "block-table-growth"),
    steps=("vllm-classic/block-ranges", "block-lifetime/on-demand", "tiny-vllm/block-count"),
    claims=("L2-24",),
)
def blocks(rng: random.Random) -> Problem:
    """Length, block size -> blocks."""
    size = rng.choice((8, 16, 32, 64))
    length = _length(rng, size, 4096)
    answer = layout.blocks_for(length, size)
    return Problem(
        f"How many KV blocks of {size} tokens does a sequence of {length} tokens need?",
        answer,
        (
            (length // size, "rounded down: the last, partly filled block counts"),
            (length // size + 1, "added a block although the last one is exactly full"),
            (length / size, "forgot to round up to whole blocks"),
            (length, "counted tokens instead of blocks"),
        ),
        bullets(f"ceil({length} / {size}) = ({length} + {size - 1}) // {size} = {answer}"),
        {"length": length, "block_size": size},
        "blocks",
    )


@generator(
    "last-block",
    title="Used tokens of the last block",
    level=1,
    concepts=("mask-and-store", "tail-guard"),
    steps=("paged-reference/tail", "vllm-classic/mask", "vllm-classic/tail"),
    claims=("L1-36", "L2-26"),
)
def last_block(rng: random.Random) -> Problem:
    """Length, block size -> tokens in the last block."""
    size = rng.choice((8, 16, 32, 64))
    length = _length(rng, size, 4096)
    answer = layout.last_block_tokens(length, size)
    return Problem(
        f"A sequence has {length} tokens in blocks of {size}. How many tokens of its last block are in use?",
        answer,
        (
            (length % size, "took the remainder, which is 0 where the last block is full"),
            (size - length % size, "counted the places that are free"),
            (size, "took the whole block as used"),
            (answer - 1, "gave the last token's offset, which counts from 0"),
        ),
        bullets(
            f"blocks = ceil({length} / {size}) = {layout.blocks_for(length, size)}",
            f"last block = {length} - {layout.blocks_for(length, size) - 1} * {size} = {answer}",
        ),
        {"length": length, "block_size": size},
        "tokens",
    )


@generator(
    "partitions",
    title="Partitions for a length",
    level=1,
    concepts=("partition-size", "partition-exit", "v2-grid"),
    steps=("vllm-classic/partitions",),
    claims=("L1-29",),
)
def partitions(rng: random.Random) -> Problem:
    """Length -> partitions of v2."""
    length = _length(rng, layout.PARTITION_SIZE, 40000)
    size = rng.choice(draws.BLOCK_SIZES)
    answer = layout.partitions_for(length)
    return Problem(
        f"The classic v2 kernel works in partitions of {layout.PARTITION_SIZE} tokens. Into how many partitions does "
        "it cut "
        f"a sequence of {length} tokens, in blocks of {size}?",
        answer,
        (
            (length // layout.PARTITION_SIZE, "rounded down: the last, shorter partition counts"),
            (length // layout.PARTITION_SIZE + 1, "added a partition although the last one is exactly full"),
            (layout.blocks_for(length, size), "counted blocks instead of partitions"),
            (length / layout.PARTITION_SIZE, "forgot to round up to whole partitions"),
            (
                layout.blocks_for(length, layout.PARTITION_SIZE * size),
                "took 512 blocks for a partition, not 512 tokens",
            ),
        ),
        bullets(f"ceil({length} / {layout.PARTITION_SIZE}) = {answer}"),
        {"length": length, "block_size": size, "partition": layout.PARTITION_SIZE},
        "partitions",
    )


@generator(
    "v2-busy",
    title="Thread blocks of v2 that have work",
    level=2,
    concepts=("v2-grid", "partition-exit", "grid"),
    steps=("vllm-classic/partitions", "vllm-classic/grid"),
    claims=("L1-30",),
)
def v2_busy(rng: random.Random) -> Problem:
    """Lengths, query heads -> thread blocks that do not leave at once."""
    kv_heads, group = rng.choice((2, 4, 8)), rng.choice((1, 2, 4))
    heads, lengths = kv_heads * group, [rng.randint(1, 6000) for _ in range(rng.randint(2, 4))]
    parts = [layout.partitions_for(length) for length in lengths]
    answer = heads * sum(parts)
    return Problem(
        f"A batch holds sequences of `{lengths}` tokens; the model has {heads} query heads and {kv_heads} KV heads. "
        "The "
        f"v2 grid is as deep as the longest sequence has partitions of {layout.PARTITION_SIZE} tokens; thread blocks "
        "past "
        "the end of their own sequence leave at once. How many thread blocks do work?",
        answer,
        (
            (heads * len(lengths) * max(parts), "counted the whole grid, with those that leave at once"),
            (kv_heads * sum(parts), "used KV heads: the grid has one thread block a query head"),
            (sum(parts), "forgot the heads"),
            (heads * len(lengths), "forgot the partitions: that is v1's grid"),
            (
                heads * layout.partitions_for(sum(lengths)),
                "rounded up once for all sequences instead of once for each",
            ),
        ),
        bullets(
            *(
                f"ceil({length} / {layout.PARTITION_SIZE}) = {count}"
                for length, count in zip(lengths, parts, strict=True)
            ),
            f"{heads} query heads * {sum(parts)} partitions = {answer}",
        ),
        {"lengths": lengths, "heads": heads, "kv_heads": kv_heads, "partition": layout.PARTITION_SIZE},
    )


@generator(
    "prefix-hits",
    title="Tokens that prefix sharing takes over",
    level=2,
    concepts=("prefix-sharing",),
    steps=("block-lifetime/shared-prefix", "paged-reference/sharing"),
    claims=("L1-08",),
)
def prefix_hits(rng: random.Random) -> Problem:
    """Common prefix, block size -> tokens in full shared blocks."""
    size = rng.choice((16, 32, 64, 128))
    common = _length(rng, size, 700)
    prompt = common + rng.randint(1, 300)
    first = BlockTable(BlockPool(layout.blocks_for(prompt, size), size))
    first.append(prompt)
    answer = first.share_prefix(common).num_tokens
    return Problem(
        f"The prompt of a running request has {prompt} tokens and is cached, in blocks of {size}. A new request "
        "begins with "
        f"the same {common} tokens and goes on differently. How many tokens does it take over from the cache?",
        answer,
        (
            (common, "counted the last block as well, which is common in part only: whole blocks are shared"),
            (-(-common // size) * size, "rounded up: a block that is common in part cannot be shared"),
            (common // size, "counted blocks instead of tokens"),
            (prompt // size * size, "used the whole prompt instead of the common part"),
        ),
        bullets(f"{common} // {size} = {common // size} full blocks", f"{common // size} * {size} = {answer} tokens"),
        {"prompt": prompt, "common": common, "block_size": size},
        "tokens",
    )


@generator(
    "fragmentation",
    title="Places that paging does not reserve",
    level=2,
    concepts=("fragmentation",),
    steps=("block-lifetime/fragmentation",),
    claims=("L1-05",),
)
def saved(rng: random.Random) -> Problem:
    """Lengths, longest length, block size -> token places saved."""
    size, most = rng.choice((16, 32, 64)), rng.choice((1024, 2048, 4096))
    lengths = [rng.randint(20, most - 100) for _ in range(rng.randint(3, 5))]
    whole, paged = fragmentation.contiguous(lengths, most), fragmentation.paged(lengths, size, most)
    answer = whole.reserved - paged.reserved
    return Problem(
        f"Sequences of `{lengths}` tokens. One allocator sets aside {most} places for each, another as many blocks "
        f"of {size} "
        "as its tokens reach. How many token places does the second one not reserve that the first one does?",
        answer,
        (
            (whole.reserved - whole.used, "forgot the free places in each last block"),
            (paged.reserved, "gave what the blocks reserve, not what they save"),
            (paged.reserved - paged.used, "gave what the last blocks waste"),
            (whole.reserved - sum(length // size * size for length in lengths), "rounded the blocks down"),
            (
                whole.reserved - layout.blocks_for(sum(lengths), size) * size,
                "rounded up once for all sequences instead of once for each",
            ),
        ),
        bullets(
            f"set aside: {len(lengths)} * {most} = {whole.reserved}",
            "in blocks: "
            + " + ".join(f"{layout.blocks_for(n, size)} * {size}" for n in lengths)
            + f" = {paged.reserved}",
            f"{whole.reserved} - {paged.reserved} = {answer}",
        ),
        {"lengths": lengths, "max_len": most, "block_size": size},
        "tokens",
    )


@generator(
    "waste",
    title="Share of reserved places that stay empty",
    level=2,
    concepts=("fragmentation",),
    steps=("block-lifetime/fragmentation",),
)
def waste(rng: random.Random) -> Problem:
    """Lengths, block size -> per cent of the blocks' places that are empty."""
    size = rng.choice((16, 32, 64, 128))
    lengths = [size * rng.randint(0, 6) + rng.randint(1, size - 1) for _ in range(rng.randint(2, 4))]
    room = fragmentation.paged(lengths, size)
    answer = 100 * (1 - room.share_used)
    empty = room.reserved - room.used
    return Problem(
        f"Sequences of `{lengths}` tokens lie in blocks of {size}. How many per cent of the places in their blocks "
        "are empty?",
        answer,
        (
            (100 * room.share_used, "gave the share that is used"),
            (answer / 100, "gave a fraction instead of per cent"),
            (100 * empty / room.used, "divided by the used places instead of the reserved ones"),
            (float(empty), "gave the number of empty places"),
        ),
        bullets(
            "reserved: "
            + " + ".join(f"{layout.blocks_for(n, size)} * {size}" for n in lengths)
            + f" = {room.reserved}",
            f"used: {' + '.join(map(str, lengths))} = {room.used}",
            f"100 * ({room.reserved} - {room.used}) / {room.reserved} = {answer:.6g}",
        ),
        {"lengths": lengths, "block_size": size},
        "%",
        0.01,
    )


@generator(
    "in-use",
    title="Blocks in use while requests generate",
    level=3,
    concepts=("block-table-growth", "block-pool"),
    steps=("block-lifetime/in-use",),
    claims=("L1-07",),
)
def in_use(rng: random.Random) -> Problem:
    """Prompts and generated tokens -> blocks, when the newest token has no KV yet."""
    size = rng.choice((16, 32))
    pairs = [[rng.randint(10, 200), rng.randint(1, 60)] for _ in range(rng.randint(2, 4))]
    # One request whose newest token would open a block.
    pairs[0][1] += (1 - sum(pairs[0])) % size
    stored = [prompt + made - 1 for prompt, made in pairs]
    answer = sum(layout.blocks_for(tokens, size) for tokens in stored)
    return Problem(
        f"Running requests as (prompt tokens, tokens generated so far): `{pairs}`. Blocks hold {size} tokens, "
        "nothing is "
        "shared. A token's K and V are stored in the step after the one that generated it. How many blocks are in use?",
        answer,
        (
            (
                sum(layout.blocks_for(sum(pair), size) for pair in pairs),
                "counted the newest token, which has no K and V yet",
            ),
            (sum(tokens // size for tokens in stored), "rounded down: each last block counts whole"),
            (layout.blocks_for(sum(stored), size), "rounded up once for all requests instead of once for each"),
            (sum(layout.blocks_for(prompt, size) for prompt, _ in pairs), "forgot the generated tokens"),
        ),
        bullets(
            *(f"ceil(({p} + {g} - 1) / {size}) = {layout.blocks_for(p + g - 1, size)}" for p, g in pairs),
            f"sum = {answer}",
        ),
        {"requests": pairs, "block_size": size},
        "blocks",
    )
