"""The compute drills' answers by other means: arrays of numbered elements, loops, enumeration. Nothing of `kernels`.

`TRUTH[name](given)` takes what a question's text shows and works the answer out anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

ITEM = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1}
Given = Any
TRUTH: dict[str, Callable[[Given], Any]] = {}


def truth(name: str) -> Callable[[Callable[[Given], Any]], Callable[[Given], Any]]:
    def enter(work: Callable[[Given], Any]) -> Callable[[Given], Any]:
        TRUTH[name] = lambda given: work(SimpleNamespace(**given))
        return work

    return enter


def places(table: list[int], size: int) -> list[tuple[int, int]]:
    """(physical block, offset) of every position that a table leads to."""
    return [(block, offset) for block in table for offset in range(size)]


def padded(length: int, size: int) -> int:
    """Places in the blocks that `length` tokens reach, by filling blocks one by one."""
    reserved = 0
    while reserved < length:
        reserved += size
    return reserved


def room(*shape: int, item: int) -> int:
    """Bytes of an array of that shape."""
    return np.empty(shape, f"V{item}").nbytes


# -- addresses


@truth("slot")
def slot(g: Given) -> int:
    pool = np.arange((max(g.table) + 1) * g.block_size).reshape(-1, g.block_size)
    return int(pool[g.table].reshape(-1)[g.position])


@truth("position")
def position(g: Given) -> list[int]:
    return list(places(g.table, g.block_size)[g.position])


@truth("position-of-slot")
def position_of_slot(g: Given) -> int:
    pool = np.arange((max(g.table) + 1) * g.block_size).reshape(-1, g.block_size)
    return pool[g.table].reshape(-1).tolist().index(g.slot)


def key_element(g: Given, block: int, offset: int) -> int:
    """Number the elements of one block in memory, look at them as [head, token, channel], find ours."""
    x = 16 // ITEM[g.dtype]
    memory = np.arange(g.num_kv_heads * g.head_size * g.block_size)
    seen = memory.reshape(g.num_kv_heads, g.head_size // x, g.block_size, x).transpose(0, 2, 1, 3)
    logical = seen.reshape(g.num_kv_heads, g.block_size, g.head_size)
    return int(block * memory.size + logical[g.head, offset, g.dim])


@truth("k-offset")
def k_offset(g: Given) -> int:
    return key_element(g, *places(g.table, g.block_size)[g.position])


@truth("k-bytes")
def k_bytes(g: Given) -> int:
    return key_element(g, g.block, g.offset) * ITEM[g.dtype]


@truth("v-offset")
def v_offset(g: Given) -> int:
    block, offset = places(g.table, g.block_size)[g.position]
    memory = np.arange(g.num_kv_heads * g.head_size * g.block_size)
    return int(block * memory.size + memory.reshape(g.num_kv_heads, g.head_size, g.block_size)[g.head, g.dim, offset])


@truth("flash-offset")
def flash_offset(g: Given) -> int:
    memory = np.arange(g.block_size * g.num_kv_heads * 2 * g.head_size)
    half = ["key", "value"].index(g.kind)
    if g.memory == "NHD":
        found = memory.reshape(g.block_size, g.num_kv_heads, 2, g.head_size)[g.offset, g.head, half, g.dim]
    else:
        found = memory.reshape(g.num_kv_heads, g.block_size, 2, g.head_size)[g.head, g.offset, half, g.dim]
    return int(g.block * memory.size + found)


# -- lengths


@truth("blocks")
def blocks(g: Given) -> int:
    return len({token // g.block_size for token in range(g.length)})


@truth("last-block")
def last_block(g: Given) -> int:
    owners = [token // g.block_size for token in range(g.length)]
    return owners.count(owners[-1])


@truth("partitions")
def partitions(g: Given) -> int:
    return len(range(0, g.length, g.partition))


@truth("v2-busy")
def v2_busy(g: Given) -> int:
    depth = max(len(range(0, length, g.partition)) for length in g.lengths)
    return sum(z * g.partition < length for length in g.lengths for z in range(depth) for _ in range(g.heads))


@truth("prefix-hits")
def prefix_hits(g: Given) -> int:
    firsts = range(0, g.prompt, g.block_size)
    return sum(g.block_size for first in firsts if first + g.block_size <= g.common)


@truth("fragmentation")
def fragmentation(g: Given) -> int:
    return sum(g.max_len - padded(length, g.block_size) for length in g.lengths)


@truth("waste")
def waste(g: Given) -> float:
    used = [token < length for length in g.lengths for token in range(padded(length, g.block_size))]
    return 100 * used.count(False) / len(used)


@truth("in-use")
def in_use(g: Given) -> int:
    found = 0
    for prompt, made in g.requests:
        stored = [*range(prompt), *range(prompt, prompt + made)][:-1]
        found += len({token // g.block_size for token in stored})
    return found


# -- shared memory


@truth("v1-shared")
def v1_shared(g: Given) -> int:
    warps = len(range(0, g.threads, 32))
    logits = room(padded(g.longest, g.block_size), item=4)
    return max(logits, room(warps // 2, g.head_size, item=4))


@truth("v1-fits")
def v1_fits(g: Given) -> bool:
    static = room(g.head_size, item=ITEM[g.dtype]) + room(2, g.warps, item=4)
    return static + room(padded(g.longest, g.block_size), item=4) <= g.kib << 10


@truth("v1-longest")
def v1_longest(g: Given) -> int:
    tokens = 0
    while g.static + 4 * (tokens + g.block_size) <= g.kib << 10:
        tokens += g.block_size
    return tokens


@truth("v1-or-v2")
def v1_or_v2(g: Given) -> bool:
    if g.longest > 8192:
        return False
    return len(range(0, g.longest, 512)) == 1 or len([None for _ in range(g.seqs) for _ in range(g.heads)]) > 512


# -- threads: the kernel's loops, thread by thread


def group_of(size: int, lanes: int = 32) -> int:
    """Lanes to a token when a warp's lanes are dealt out evenly to as many tokens of a block as it can take at once."""
    return lanes // min(size, lanes)


def vector(size: int, item: int) -> int:
    """Elements that a thread loads: the group's 16 bytes in equal parts, one element at least."""
    return max([n for n in range(1, 17) if n * item * group_of(size) <= 16], default=1)


@truth("thread-group")
def thread_group(g: Given) -> int:
    return group_of(g.block_size, g.lanes)


@truth("vector-bytes")
def vector_bytes(g: Given) -> int:
    return vector(g.block_size, ITEM[g.dtype]) * ITEM[g.dtype]


@truth("tokens-per-group")
def tokens_per_group(g: Given) -> int:
    groups = g.lanes // group_of(g.block_size, g.lanes)
    return [token % groups for token in range(g.block_size)].count(0)


@truth("key-vectors")
def key_vectors(g: Given) -> int:
    starts = range(0, g.head_size, vector(g.block_size, ITEM[g.dtype]))
    return len(starts[:: group_of(g.block_size)])


@truth("key-thread")
def key_thread(g: Given) -> int:
    group, vec = group_of(g.block_size), vector(g.block_size, ITEM[g.dtype])
    loaded = {}
    for thread in range(128):
        for block in range(thread // 32, len(g.table), 4):
            token = block * g.block_size + thread // group % g.block_size
            for first in range(thread % group * vec, g.head_size, group * vec):
                for dim in range(first, first + vec):
                    assert (token, dim) not in loaded
                    loaded[token, dim] = thread
    return loaded[g.position, g.dim]


@truth("warp-blocks")
def warp_blocks(g: Given) -> list[int]:
    used = [g.table[token // g.block_size] for token in range(0, g.length, g.block_size)]
    turns: list[list[int]] = [[] for _ in range(g.warps)]
    for number, block in enumerate(used):
        turns[number % g.warps].append(block)
    return turns[g.warp]


@truth("kv-head")
def kv_head(g: Given) -> int:
    return int(np.repeat(np.arange(g.kv_heads), g.heads // g.kv_heads)[g.query])


@truth("query-heads")
def query_heads(g: Given) -> list[int]:
    return np.arange(g.heads).reshape(g.kv_heads, -1)[g.wanted].tolist()


# -- values


def lane_of_row(g: Given, lanes: int = 32) -> list[tuple[int, int]]:
    """(row, first token) of each lane in a warp's first read of V."""
    step = min(16 // ITEM[g.dtype], g.block_size)
    order = [(row, token) for row in range(lanes) for token in range(0, g.block_size, step)]
    return order[:lanes]


@truth("v-rows")
def v_rows(g: Given) -> int:
    return len({row for row, _ in lane_of_row(g, g.lanes)})


@truth("rows-per-thread")
def rows_per_thread(g: Given) -> int:
    at_once = len({row for row, _ in lane_of_row(g)})
    return len(range(0, g.head_size, at_once))


@truth("lane-channels")
def lane_channels(g: Given) -> list[int]:
    mine, at_once = lane_of_row(g)[g.lane][0], len({row for row, _ in lane_of_row(g)})
    return [channel for channel in range(g.head_size) if channel % at_once == mine]


# -- writers


def written(g: Given) -> Any:
    """[heads, groups]: whether a thread of the launch takes the pair."""
    x = 16 // ITEM[g.dtype]
    pairs = np.zeros((g.heads, g.head_size // x), bool)
    pairs.reshape(-1)[: g.most] = True
    return pairs


@truth("writer-threads")
def writer_threads(g: Given) -> int:
    return int(written(g).sum())


@truth("unwritten-heads")
def unwritten_heads(g: Given) -> list[int]:
    return np.flatnonzero(~written(g).all(axis=1)).tolist()


# -- tiny-vllm


@truth("tiny-index")
def tiny_index(g: Given) -> int:
    table = np.arange(g.slots * g.layers * g.columns).reshape(g.slots, g.layers, g.columns)
    return int(np.repeat(table[g.slot, g.layer], g.block_size)[g.position])


@truth("tiny-address")
def tiny_address(g: Given) -> int:
    memory = np.arange(2 * g.block_size * g.kv_heads * g.head_size)
    block = memory.reshape(2, g.block_size, g.kv_heads, g.head_size).repeat(g.heads // g.kv_heads, axis=2)
    token = list(range(g.block_size)) * (g.position // g.block_size + 1)
    return int(g.block * memory.size + block[["key", "value"].index(g.kind), token[g.position], g.query, g.dim]) * 2


# -- memory


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, by bisection."""
    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def token_bytes(g: Given, tokens: int = 1) -> int:
    return room(2, g.layers, tokens, g.kv_heads, g.head_size, item=ITEM[g.dtype])


@truth("kv-per-token")
def kv_per_token(g: Given) -> int:
    return token_bytes(g)


@truth("kv-batch")
def kv_batch(g: Given) -> int:
    return sum(token_bytes(g, g.block_size) for _ in range(g.seqs) for _ in range(0, g.length, g.block_size))


@truth("card-blocks")
def card_blocks(g: Given) -> int:
    free = Fraction(g.share, 100) * g.card * 2**30 - Fraction(10) ** 9 * g.weights
    return largest(lambda count: count * token_bytes(g, g.block_size) <= free)


@truth("largest-block")
def largest_block(g: Given) -> int:
    block = room(2, g.block_size, g.kv_heads, g.head_size, item=ITEM[g.dtype])
    return largest(lambda number: number * block <= np.iinfo(np.int32).max)


@truth("step-bytes")
def step_bytes(g: Given) -> int:
    return sum(token_bytes(g, g.context) for _ in range(g.seqs))


@truth("step-floor")
def step_floor(g: Given) -> float:
    seconds = Fraction(step_bytes(g)) / (Fraction(str(g.rate)) * 10**12)
    return float(seconds * 10**6)


# -- softmax: from all tokens at once, or without taking a maximum away


@truth("online-sum")
def online_sum(g: Given) -> float:
    return math.fsum(math.exp(score - max(g.scores)) for score in g.scores)


@truth("online-accumulator")
def online_accumulator(g: Given) -> float:
    pairs = zip(g.scores, g.values, strict=True)
    return math.fsum(math.exp(score - max(g.scores)) * value for score, value in pairs)


@truth("merge")
def merge(g: Given) -> float:
    mass = [total * math.exp(top) for top, total in zip(g.maxima, g.sums, strict=True)]
    whole = math.fsum(m * out for m, out in zip(mass, g.outputs, strict=True))
    return whole / math.fsum(mass)


@truth("global-sum")
def global_sum(g: Given) -> float:
    return math.fsum(t * math.exp(top) for top, t in zip(g.maxima, g.sums, strict=True)) / math.exp(max(g.maxima))


@truth("epsilon")
def epsilon(g: Given) -> float:
    exponentials = [math.exp(logit - max(g.logits)) for logit in g.logits]
    return 1e-6 / (math.fsum(exponentials) + 1e-6)
