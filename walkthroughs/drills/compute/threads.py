"""How the classic kernel divides the keys: warps over blocks, groups over tokens, threads over vectors; and GQA."""

from __future__ import annotations

import random

from kernels import layout
from kernels.explorer.geometry import Geometry
from kernels.explorer.lanes import KERNELS
from kernels.explorer.work import Point
from walkthroughs.drills.compute import draws
from walkthroughs.drills.compute.problem import Problem, bullets, generator


@generator(
    "thread-group",
    title="Threads that share one key",
    level=1,
    concepts=("thread-groups",),
    steps=("vllm-classic/thread-groups",),
)
def thread_group(rng: random.Random) -> Problem:
    """Block size, lanes, threads -> threads of a group."""
    size, lanes, threads = rng.choice((4, 8, 16, 32, 64)), rng.choice((32, 64)), rng.choice((128, 256, 512))
    answer = layout.thread_group_size(size, lanes)
    return Problem(
        f"The classic kernel with blocks of {size} tokens, warps of {lanes} lanes and {threads} threads a thread "
        "block: how "
        "many threads share the key of one token?",
        answer,
        (
            (lanes // answer, "counted the groups of a warp instead of the threads of a group"),
            (threads // size, "divided the whole thread block: one warp takes one KV block"),
            (max(size // lanes, 1), "turned the quotient round"),
            (size, "gave the tokens of a block"),
            (lanes, "gave the whole warp"),
            (lanes // size, "forgot that a group has at least one thread"),
        ),
        bullets(f"max({lanes} lanes // {size} tokens, 1) = {answer}"),
        {"block_size": size, "lanes": lanes, "threads": threads},
        "threads",
    )


@generator(
    "vector-bytes",
    title="Bytes that one thread loads of a key at once",
    level=2,
    concepts=("thread-groups", "x-packing"),
    steps=("vllm-classic/thread-groups", "vllm-classic/x"),
    claims=("L1-18",),
)
def vector_bytes(rng: random.Random) -> Problem:
    """Block size, element size -> bytes a thread loads."""
    size, dtype = rng.choice((4, 8, 16, 32, 64)), rng.choice(("float32", "float16", "bfloat16"))
    head_size = rng.choice((64, 128, 256))
    item, group = draws.ITEMSIZES[dtype], layout.thread_group_size(size)
    vec = layout.vec_size(group, item)
    answer = vec * item
    return Problem(
        f"The classic kernel on an NVIDIA GPU: {dtype}, blocks of {size} tokens, head size {head_size}. How many "
        "bytes of a key "
        "does one thread load at once?",
        answer,
        (
            (16, "gave the 16 bytes that the whole thread group loads together"),
            (vec, "gave elements instead of bytes"),
            (
                max(layout.x_of(item) // size, 1) * item,
                "divided x by the tokens of a block, not by the threads of a group",
            ),
            (head_size // group * item, "gave all that the thread loads of the key, not what it loads at once"),
            (16 * group, "multiplied by the group's threads: they share 16 bytes"),
        ),
        bullets(
            f"threads of a group = max(32 // {size}, 1) = {group}",
            f"elements of a vector = max(16 // ({group} * {item}), 1) = {vec}",
            f"bytes = {vec} * {item} = {answer}",
        ),
        {"dtype": dtype, "block_size": size, "head_size": head_size},
        "bytes",
    )


@generator(
    "tokens-per-group",
    title="Tokens of a block that one thread group takes",
    level=2,
    concepts=("thread-groups", "key-loop"),
    steps=("vllm-classic/thread-groups",),
)
def tokens_per_group(rng: random.Random) -> Problem:
    """Block size, lanes -> tokens a group takes in turn."""
    size, lanes = rng.choice((8, 16, 32, 64, 128, 256)), rng.choice((32, 64))
    threads = rng.choice((128, 256))
    answer = layout.num_tokens_per_thread_group(size, lanes)
    return Problem(
        f"Suppose the classic kernel is compiled for blocks of {size} tokens, warps of {lanes} lanes and {threads} "
        "threads. "
        "How many tokens of a block does one thread group take, one after the other?",
        answer,
        (
            (size // lanes, "rounded down: a group takes at least one token"),
            (max(lanes // size, 1), "gave the threads of a group instead of its tokens"),
            (-(-size // threads), "divided by the thread block: one warp takes one KV block"),
            (size, "gave the whole block: its tokens are dealt out to the groups of a warp"),
            (-(-size // (64 if lanes == 32 else 32)), "took a warp of another width"),
        ),
        bullets(f"ceil({size} tokens / {lanes} lanes) = {answer}"),
        {"block_size": size, "lanes": lanes, "threads": threads},
        "tokens",
    )


@generator(
    "key-vectors",
    title="Vectors of a key that one thread holds",
    level=2,
    concepts=("thread-groups", "q-load"),
    steps=("vllm-classic/thread-groups", "vllm-classic/q-load"),
)
def key_vectors(rng: random.Random) -> Problem:
    """Head size, block size, element size -> vectors a thread."""
    dtype, size, head_size = (
        rng.choice(("float32", "float16")),
        rng.choice(draws.BLOCK_SIZES),
        rng.choice((32, 64, 96, 128, 256)),
    )
    item, group = draws.ITEMSIZES[dtype], layout.thread_group_size(size)
    vec = layout.vec_size(group, item)
    answer = layout.num_vecs_per_thread(head_size, group, item)
    return Problem(
        f"The classic kernel on an NVIDIA GPU: {dtype}, blocks of {size} tokens, head size {head_size}. In how many "
        "vector loads "
        "does one thread read its part of one key?",
        answer,
        (
            (head_size // vec, "gave the whole key to one thread: its group shares it"),
            (head_size // group, "counted elements instead of vectors"),
            (head_size * item // 16 // group, "took 16 bytes a load: the group loads 16 bytes together"),
            (head_size // (group * layout.x_of(item)) or 1, "took x for the vector of a thread"),
            (head_size // vec // 32, "dealt the key out to the whole warp"),
        ),
        bullets(
            f"group = max(32 // {size}, 1) = {group} threads, vector = 16 // ({group} * {item}) = {vec} elements",
            f"{head_size} // {group} // {vec} = {answer}",
        ),
        {"dtype": dtype, "block_size": size, "head_size": head_size},
    )


@generator(
    "key-thread",
    title="The thread that loads an element of a key",
    level=3,
    concepts=("k-address", "thread-groups", "block-table-walk"),
    steps=("vllm-classic/k-address", "vllm-classic/thread-groups", "vllm-classic/block-table"),
    claims=("L1-18",),
)
def key_thread(rng: random.Random) -> Problem:
    """Position, channel, table -> thread number in its thread block."""
    dtype, size, head_size = rng.choice(("float32", "float16")), rng.choice(draws.BLOCK_SIZES), rng.choice((64, 128))
    table = draws.table(rng, rng.randint(4, 8))
    place, dim = draws.position(rng, size, len(table)), rng.randrange(head_size)
    while place // size % layout.num_warps() == 0:
        # Not warp 0: there a lane's number is its thread's.
        place = draws.position(rng, size, len(table))
    point = Point(Geometry(size, head_size, 1, 1, dtype), table, place, 0, dim)
    load = KERNELS["classic-v1"].loads(point)[0]
    answer, group, vec = load.thread, layout.thread_group_size(size), load.vector
    logical, offset = divmod(place, size)
    warps = layout.num_warps()
    token = logical % warps * 32 + offset * group
    return Problem(
        f"The classic v1 kernel with {layout.NUM_THREADS} threads on an NVIDIA GPU: {dtype}, head size {head_size}, "
        "blocks of "
        f"{size} tokens, block table `{table}`. Which thread of the thread block (0 to {layout.NUM_THREADS - 1}) "
        "loads channel "
        f"{dim} of the key at position {place}?",
        answer,
        (
            (load.lane, "gave the lane in its warp, not the thread in its thread block"),
            (token + dim % group, "dealt out single elements: a thread takes vectors of neighbours"),
            (
                token + dim // (head_size // group),
                "gave each thread of the group one run of the head: vectors alternate",
            ),
            (
                table[logical] % warps * 32 + load.lane,
                "chose the warp by the physical block: the logical block decides",
            ),
            (logical % warps * 32 + offset, "forgot that a group of threads shares a token"),
            (token + dim // layout.x_of(draws.ITEMSIZES[dtype]) % group, "took x for the vector of a thread"),
        ),
        bullets(
            f"logical block = {place} // {size} = {logical}, offset = {offset}",
            f"warp = {logical} % {warps} = {load.warp}",
            f"group of {group} threads, vectors of {vec} elements",
            f"thread of the group = {dim} // {vec} % {group} = {dim // vec % group}",
            f"thread = {load.warp} * 32 + {offset} * {group} + {dim // vec % group} = {answer}",
        ),
        {"dtype": dtype, "head_size": head_size, "block_size": size, "table": table, "position": place, "dim": dim},
    )


@generator(
    "warp-blocks",
    title="The physical blocks that one warp reads",
    level=2,
    concepts=("block-table-walk", "block-ranges", "key-loop"),
    steps=("vllm-classic/block-table", "vllm-classic/block-ranges"),
)
def warp_blocks(rng: random.Random) -> Problem:
    """Table, length, warp -> physical blocks in order."""
    size, count = rng.choice(draws.BLOCK_SIZES), rng.randint(5, 11)
    table = draws.table(rng, count + rng.randint(0, 2))
    length = size * (count - 1) + rng.randint(1, size)
    warps, warp = layout.num_warps(), rng.randrange(layout.num_warps())
    used = layout.blocks_for(length, size)
    turns = list(range(warp, used, warps))
    answer = [table[turn] for turn in turns]
    run = -(-used // warps)
    return Problem(
        f"The classic v1 kernel with {warps} warps. A sequence of {length} tokens in blocks of {size} has the block "
        "table "
        f"`{table}`. Which physical blocks does warp {warp} read in the pass over the keys, in order?",
        answer,
        (
            (turns, "gave logical blocks, without the table"),
            (table[warp * run : min((warp + 1) * run, used)], "gave each warp a run of neighbours: warps take turns"),
            (table[warp::warps], "read entries of the table behind the sequence's last token"),
            ([block for block in table[:used] if block % warps == warp], "chose by the physical block's number"),
            (table[max(warp - 1, 0) : used : warps], "counted warps from 1"),
        ),
        bullets(
            f"blocks in use = ceil({length} / {size}) = {used}",
            f"logical blocks = {warp}, {warp + warps}, ... = {turns}",
            f"table there = {answer}",
        ),
        {"length": length, "block_size": size, "table": table, "warp": warp, "warps": warps},
    )


@generator(
    "kv-head",
    title="The KV head of a query head",
    level=1,
    concepts=("gqa-mapping",),
    steps=("vllm-classic/gqa", "vllm-live/group"),
    claims=("L2-20",),
)
def kv_head(rng: random.Random) -> Problem:
    """Query head -> KV head."""
    kv_heads, group = rng.choice(draws.KV_HEADS), rng.choice((2, 4, 5, 7, 8))
    heads = kv_heads * group
    query = rng.randrange(heads)
    answer = layout.kv_head_of(query, heads, kv_heads)
    return Problem(
        f"A model has {heads} query heads and {kv_heads} KV heads. Which KV head does query head {query} read?",
        answer,
        (
            (query % kv_heads, "took the remainder: neighbouring query heads share a KV head"),
            (query // kv_heads, "divided by the KV heads instead of the size of a group"),
            (query, "gave every query head a KV head of its own"),
            (query % group, "took the place in the group"),
            (answer + 1, "counted heads from 1"),
        ),
        bullets(f"group = {heads} // {kv_heads} = {group}", f"{query} // {group} = {answer}"),
        {"heads": heads, "kv_heads": kv_heads, "query": query},
    )


@generator(
    "query-heads",
    title="The query heads of a KV head",
    level=1,
    concepts=("gqa-mapping",),
    steps=("vllm-classic/gqa",),
)
def query_heads(rng: random.Random) -> Problem:
    """KV head -> query heads."""
    kv_heads, group = rng.choice(draws.KV_HEADS), rng.choice((2, 4, 5, 7, 8))
    heads, wanted = kv_heads * group, rng.randrange(kv_heads)
    answer = [head for head in range(heads) if layout.kv_head_of(head, heads, kv_heads) == wanted]
    return Problem(
        f"A model has {heads} query heads and {kv_heads} KV heads. Which query heads read KV head {wanted}?",
        answer,
        (
            (list(range(wanted, heads, kv_heads)), "took the remainder: neighbouring query heads share a KV head"),
            (list(range(wanted * kv_heads, (wanted + 1) * kv_heads)), "took the KV heads for the size of a group"),
            ([wanted], "gave every query head a KV head of its own"),
            ([head + 1 for head in answer], "counted heads from 1"),
        ),
        bullets(
            f"group = {heads} // {kv_heads} = {group}",
            f"{wanted} * {group} to {wanted} * {group} + {group - 1} = {answer[0]} to {answer[-1]}",
        ),
        {"heads": heads, "kv_heads": kv_heads, "wanted": wanted},
    )
