"""How many threads the classic writer starts for a token, and what they leave unwritten."""

from __future__ import annotations

import random

from kernels import layout
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator


def _row(rng: random.Random) -> tuple[int, int, str]:
    """KV heads, head size, dtype: about as often above 512 pairs as below."""
    return (
        rng.choice((16, 32, 36, 40, 48, 64)),
        rng.choice((64, 80, 96, 128, 192, 256)),
        rng.choice(tuple(draws.ITEMSIZES)),
    )


@generator(
    "writer-threads",
    title="Threads that reshape_and_cache starts for a token",
    level=2,
    concepts=("reshape-and-cache-host", "head-of-thread"),
    steps=("vllm-classic/writer-threads",),
)
def writer_threads(rng: random.Random) -> Problem:
    """KV heads, head size, element size -> threads."""
    heads, head_size, dtype = _row(rng)
    x = layout.x_of(draws.ITEMSIZES[dtype])
    answer, pairs = layout.writer_threads(heads, head_size, x), heads * (head_size // x)
    return Problem(
        f"The classic cache writer starts one thread for each pair of a KV head and a group of x channels, but at most "
        f"{layout.MAX_WRITER_THREADS}. How many threads work on one token with {heads} KV heads of {head_size} "
        "channels in a "
        f"{dtype} cache?",
        answer,
        (
            (pairs, "forgot that at most 512 threads are started"),
            (min(heads * head_size, 512), "gave every channel a thread: a thread takes a group of x"),
            (head_size // x, "forgot the heads"),
            (min(heads * (head_size // 8), 512), "took x = 8, which holds for elements of 2 bytes only"),
            (min(2 * pairs, 512), "counted K and V: one thread writes both"),
            (-(-pairs // 32) * 32, "rounded up to whole warps"),
        ),
        bullets(
            f"x = 16 // {draws.ITEMSIZES[dtype]} = {x}",
            f"pairs = {heads} * ({head_size} // {x}) = {pairs}",
            f"min({pairs}, {layout.MAX_WRITER_THREADS}) = {answer}",
        ),
        {"heads": heads, "head_size": head_size, "dtype": dtype, "most": layout.MAX_WRITER_THREADS},
        "threads",
    )


@generator(
    "unwritten-heads",
    title="The KV heads that stay unwritten",
    level=3,
    concepts=("head-of-thread", "reshape-and-cache"),
    steps=("findings/unwritten-heads", "vllm-writers/unwritten-heads"),
)
def unwritten_heads(rng: random.Random) -> Problem:
    """KV heads, head size, element size -> heads that are not wholly written."""
    heads, head_size, dtype = _row(rng)
    x = layout.x_of(draws.ITEMSIZES[dtype])
    groups, threads = head_size // x, layout.writer_threads(heads, head_size, x)
    answer = [head for head in range(heads) if (head + 1) * groups > threads]
    by_channels = [head for head in range(heads) if (head + 1) * head_size > 512]
    return Problem(
        f"The classic cache writer starts at most {layout.MAX_WRITER_THREADS} threads for a token, one for each pair "
        "of a KV head "
        f"and a group of x channels, and has no loop over the rest. The cache holds {heads} KV heads of {head_size} "
        "channels, "
        f"{dtype}. Which KV heads are not, or not wholly, written?",
        answer,
        (
            ([], "took it that every head is written: there are more pairs than threads"),
            ([head for head in range(heads) if head * groups >= threads], "left out the head that is written in part"),
            (by_channels, "gave every channel a thread: a thread takes a group of x"),
            (
                [head for head in range(heads) if (head + 1) * (head_size // 8) > 512],
                "took x = 8, which holds for elements of 2 bytes only",
            ),
            (answer[1:], "counted one head too many as written"),
        ),
        bullets(
            f"groups a head = {head_size} // {x} = {groups}, pairs = {heads} * {groups} = {heads * groups}",
            f"threads = {threads}: heads 0 to {threads // groups - 1} are written wholly",
            f"unwritten = {answer}",
        ),
        {"heads": heads, "head_size": head_size, "dtype": dtype, "most": layout.MAX_WRITER_THREADS},
    )
