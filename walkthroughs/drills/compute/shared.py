"""The shared memory of the classic v1 kernel: how much, whether it fits, how far it reaches, and when v1 was chosen."""

from __future__ import annotations

import random

from kernels import layout
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator

LIMITS = (48, 64, 99, 163, 227)
"""KiB of shared memory that a thread block may have, on one chip or another."""


@generator(
    "v1-shared",
    title="Dynamic shared memory of a v1 launch",
    level=2,
    concepts=("shared-size", "shared-logits"),
    steps=("vllm-classic/shared-size",),
    claims=("L1-10",),
)
def v1_shared(rng: random.Random) -> Problem:
    """Longest context, block size, head size -> bytes."""
    size, head_size = rng.choice(draws.BLOCK_SIZES), rng.choice(draws.HEAD_SIZES)
    longest = rng.randint(1, 500) if rng.random() < 1 / 3 else rng.randint(501, 12000)
    threads, warps = layout.NUM_THREADS, layout.num_warps()
    answer = layout.v1_shared_bytes(longest, size, head_size)
    padded = layout.blocks_for(longest, size) * size
    logits, outputs = padded * 4, warps // 2 * head_size * 4
    return Problem(
        f"A v1 launch of {threads} threads, head size {head_size}, blocks of {size} tokens, longest sequence "
        f"{longest} tokens, "
        "float16 cache. How much dynamic shared memory does the launcher ask for? (The logits, and later the "
        "outputs of "
        "half of the warps, use the same memory.)",
        answer,
        (
            (max(longest * 4, outputs), "forgot to round the length up to whole blocks"),
            (max(padded * 2, outputs), "took 2 bytes a logit: logits are float32 whatever the cache holds"),
            (logits + outputs, "added the two uses: they follow each other in the same memory"),
            (logits, "forgot the outputs, which need more than these few logits"),
            (outputs, "took the outputs although the logits need more"),
            (
                max(logits, warps * head_size * 4),
                "counted the outputs of all warps: half of them is in memory at a time",
            ),
            (padded, "counted logits instead of bytes"),
        ),
        bullets(
            f"logits: ceil({longest} / {size}) * {size} * 4 = {padded} * 4 = {logits}",
            f"outputs: {warps} // 2 * {head_size} * 4 = {outputs}",
            f"max({logits}, {outputs}) = {answer}",
        ),
        {"longest": longest, "block_size": size, "head_size": head_size, "threads": threads},
        "bytes",
    )


@generator(
    "v1-fits",
    title="Does a v1 launch fit?",
    level=2,
    concepts=("shared-size", "q-load"),
    steps=("vllm-classic/shared-size", "vllm-classic/v1-or-v2"),
)
def v1_fits(rng: random.Random) -> Problem:
    """Longest context and limit -> yes or no."""
    kib, size, head_size = rng.choice(LIMITS), rng.choice(draws.BLOCK_SIZES), rng.choice((64, 128, 256))
    limit, dtype = kib * 1024, rng.choice(("float32", "float16"))
    most = limit // 4
    longest = most + rng.choice((rng.randint(-300, 60), -rng.randint(300, 3000), rng.randint(60, 2000)))
    static = layout.v1_static_shared_bytes(head_size, draws.ITEMSIZES[dtype])
    dynamic = layout.v1_shared_bytes(longest, size, head_size)
    answer = static + dynamic <= limit
    if answer:
        mistake = "counted something twice, or took a KiB for 1000 bytes"
    elif longest * 4 <= limit:
        mistake = "counted the logits alone, without the padding to whole blocks and the static part"
    else:
        mistake = "took fewer than 4 bytes a logit, or compared tokens with bytes"
    return Problem(
        f"A thread block may have {kib} KiB of shared memory. v1 needs some statically: the query "
        f"({head_size} channels of {dtype}) and two float32 for each of its {layout.num_warps()} warps; and "
        "dynamically the "
        f"float32 logits of whole blocks of {size} tokens. Does a launch with a longest sequence of {longest} tokens "
        "fit?",
        answer,
        ((not answer, mistake),),
        bullets(
            f"static: {head_size} * {draws.ITEMSIZES[dtype]} + 2 * {layout.num_warps()} * 4 = {static}",
            f"dynamic: {layout.blocks_for(longest, size)} * {size} * 4 = {dynamic}",
            f"{static + dynamic} {'<=' if answer else '>'} {kib} * 1024 = {limit}: {'yes' if answer else 'no'}",
        ),
        {
            "kib": kib, "head_size": head_size, "dtype": dtype, "block_size": size, "longest": longest,
            "warps": layout.num_warps(),
        },
    )  # fmt: skip


@generator(
    "v1-longest",
    title="The longest context that v1's shared memory allows",
    level=3,
    concepts=("shared-size", "shared-logits"),
    steps=("vllm-classic/shared-size", "vllm-classic/v1-or-v2"),
    claims=("L1-10",),
)
def v1_longest(rng: random.Random) -> Problem:
    """Limit, static part, block size -> tokens."""
    kib, size = rng.choice(LIMITS), rng.choice(draws.BLOCK_SIZES)
    static = layout.v1_static_shared_bytes(rng.choice(draws.HEAD_SIZES), rng.choice((2, 4)))
    limit = kib * 1024
    answer = layout.v1_max_tokens(limit, size, static)
    return Problem(
        f"A thread block may have {kib} KiB of shared memory, and v1 takes {static} bytes of it statically. The rest "
        "holds "
        f"one float32 logit a token, for whole blocks of {size} tokens. What is the longest context that fits?",
        answer,
        (
            ((limit - static) // 4, "forgot to round down to whole blocks"),
            (limit // 4 // size * size, "forgot the static part"),
            ((limit - static) // 2 // size * size, "took 2 bytes a logit: logits are float32 whatever the cache holds"),
            (max(kib * 1000 - static, 0) // 4 // size * size, "took a KiB for 1000 bytes"),
            ((limit - static) // 4 // size, "counted blocks instead of tokens"),
            (-(-(limit - static) // 4 // size) * size, "rounded up: a block that is cut off does not fit"),
        ),
        bullets(
            f"({kib} * 1024 - {static}) // 4 = {(limit - static) // 4} logits",
            f"{(limit - static) // 4} // {size} * {size} = {answer} tokens",
        ),
        {"kib": kib, "static": static, "block_size": size},
        "tokens",
    )


@generator(
    "v1-or-v2",
    title="v1 or v2, by the old rule",
    level=2,
    concepts=("v1-launcher", "v2-launcher", "partition-size"),
    steps=("vllm-classic/v1-or-v2",),
    claims=("L1-31",),
)
def v1_or_v2(rng: random.Random) -> Problem:
    """Longest context, sequences, heads -> whether v1."""
    longest = rng.choice(
        (rng.randint(1, 512), rng.randint(513, 8192), rng.randint(513, 8192), rng.randint(8193, 20000))
    )
    heads, seqs = rng.choice((8, 16, 28, 32, 40)), rng.choice((1, 2, 4, 8, 12, 16, 20, 32, 64))
    answer = layout.use_v1(longest, seqs, heads)
    pairs, parts = seqs * heads, layout.partitions_for(longest)
    if longest > layout.V1_MAX_SEQ_LEN:
        mistake = "left out that a context above 8192 never goes to v1"
    elif parts == 1:
        mistake = "left out that one partition is no reason for v2"
    elif answer:
        mistake = "chose by the length alone: a large batch went to v1 although its context was long"
    else:
        mistake = "chose by the length alone: a small batch went to v2 as soon as there were two partitions"
    return Problem(
        f"vLLM's old rule chose v1 for at most {layout.V1_MAX_SEQ_LEN} tokens, and then only with a single partition "
        "of "
        f"{layout.PARTITION_SIZE} tokens or more than {layout.V1_MIN_PARALLEL} (sequence, query head) pairs. A batch "
        f"of {seqs} "
        f"sequences, the longest of {longest} tokens, with {heads} query heads: does it go to v1?",
        answer,
        ((not answer, mistake),),
        bullets(
            f"{longest} <= {layout.V1_MAX_SEQ_LEN}: {'yes' if longest <= layout.V1_MAX_SEQ_LEN else 'no'}",
            f"partitions = ceil({longest} / {layout.PARTITION_SIZE}) = {parts}",
            f"pairs = {seqs} * {heads} = {pairs}",
            f"v1: {'yes' if answer else 'no'}",
        ),
        {"longest": longest, "seqs": seqs, "heads": heads},
    )
