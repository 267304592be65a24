"""Where every element of a paged KV cache lies, and how the kernels divide the work: pure integer arithmetic.

This is the single home of each formula. Ports spell a formula out where a reader needs to see it beside its
upstream line; tests compare every such place with this module.
Offsets and strides count elements unless a name ends in `_bytes`. Every function raises `ArgumentError`,
which names the argument and its value, when one is out of range. A formula's concept stands in brackets.
"""

from operator import index

from kernels.errors import ArgumentError

WARP_SIZE = 32
"""Threads that run in lockstep on every NVIDIA GPU."""
NUM_THREADS = 128
"""Threads in one thread block of the classic kernel: four warps."""
PARTITION_SIZE = 512
"""Tokens in one partition of the v2 kernel [partition-size]."""
VECTOR_BYTES = 16
"""The widest single load of a GPU thread, and the size of one packed group of a key."""
FLOAT_BYTES = 4
"""Logits and partial sums are float32 whatever the cache holds."""
MAX_WRITER_THREADS = 512
"""Most threads that `reshape_and_cache` starts for one token [reshape-and-cache-host]."""
V1_MAX_SEQ_LEN = 8192
"""Longest context that the old selection rule gave to v1."""
V1_MIN_PARALLEL = 512
"""Above this many (sequence, query head) pairs the old rule saw enough parallel work without partitions."""


def _integer(argument: str, value: int, low: int) -> int:
    """Return value as a Python int (so that it cannot wrap as an int32 would), at least low."""
    try:
        number = index(value)
    except TypeError:
        raise ArgumentError(argument, value, "must be an integer") from None
    if number < low:
        raise ArgumentError(argument, value, f"must be at least {low}")
    return number


def _below(argument: str, value: int, limit: int, what: str) -> int:
    """Return value, which must lie in 0 .. limit - 1; `what` names the limit in the message."""
    number = _integer(argument, value, 0)
    if number >= limit:
        raise ArgumentError(argument, value, f"must be below {what} = {limit}")
    return number


def _multiple(argument: str, value: int, of: int, what: str) -> int:
    """Return value, which must be a positive multiple of `of`; `what` names it in the message."""
    number = _integer(argument, value, 1)
    if number % of:
        raise ArgumentError(argument, value, f"must be divisible by {what} = {of}")
    return number


# -- blocks and slots


def slot(block_number: int, offset: int, block_size: int) -> int:
    """Return the slot of token `offset` of physical block `block_number` [slot-formula].

    A slot numbers the token places of the whole pool from 0. Padding (-1) is not a slot.
    """
    size = _integer("block_size", block_size, 1)
    return _integer("block_number", block_number, 0) * size + _below("offset", offset, size, "block_size")


def split_slot(slot_number: int, block_size: int) -> tuple[int, int]:
    """Return (block number, offset in the block) of a slot: the inverse of `slot` [slot-split].

    A negative slot marks padding and has no place: the writers skip it before they split.
    """
    return divmod(_integer("slot_number", slot_number, 0), _integer("block_size", block_size, 1))


def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many blocks hold `tokens` tokens: the ceiling of tokens / block_size [block-ranges]."""
    return -(-_integer("tokens", tokens, 0) // _integer("block_size", block_size, 1))


def last_block_tokens(tokens: int, block_size: int) -> int:
    """Return how many tokens the last block holds: 1 .. block_size, or 0 without tokens [mask-and-store]."""
    blocks = blocks_for(tokens, block_size)
    return index(tokens) - (blocks - 1) * index(block_size) if blocks else 0


def partitions_for(tokens: int, partition_size: int = PARTITION_SIZE) -> int:
    """Return how many partitions v2 makes of `tokens` tokens [partition-exit]."""
    return -(-_integer("tokens", tokens, 0) // _integer("partition_size", partition_size, 1))


# -- the two caches


def x_of(element_size: int) -> int:
    """Return x, the elements of `element_size` bytes in one packed 16-byte group of a key [x-packing]."""
    size = _integer("element_size", element_size, 1)
    if VECTOR_BYTES % size:
        raise ArgumentError("element_size", element_size, f"must divide {VECTOR_BYTES} bytes: 1, 2, 4, 8 or 16")
    return VECTOR_BYTES // size


def key_cache_shape(
    num_blocks: int, num_kv_heads: int, head_size: int, block_size: int, element_size: int
) -> tuple[int, int, int, int, int]:
    """Return the key cache's shape: [blocks, KV heads, head_size / x, block_size, x] [split-kv-cache]."""
    x = x_of(element_size)
    return (
        _integer("num_blocks", num_blocks, 1),
        _integer("num_kv_heads", num_kv_heads, 1),
        _multiple("head_size", head_size, x, "x") // x,
        _integer("block_size", block_size, 1),
        x,
    )


def value_cache_shape(num_blocks: int, num_kv_heads: int, head_size: int, block_size: int) -> tuple[int, int, int, int]:
    """Return the value cache's shape: [blocks, KV heads, head_size, block_size] [split-kv-cache]."""
    return (
        _integer("num_blocks", num_blocks, 1),
        _integer("num_kv_heads", num_kv_heads, 1),
        _integer("head_size", head_size, 1),
        _integer("block_size", block_size, 1),
    )


def kv_head_stride(head_size: int, block_size: int) -> int:
    """Return the elements from one KV head to the next inside a block, alike in both caches [k-address]."""
    return _integer("head_size", head_size, 1) * _integer("block_size", block_size, 1)


def kv_block_stride(num_kv_heads: int, head_size: int, block_size: int) -> int:
    """Return the elements from one physical block to the next, alike in both caches [k-address]."""
    return _integer("num_kv_heads", num_kv_heads, 1) * kv_head_stride(head_size, block_size)


def key_offset(
    block: int,
    head: int,
    dim: int,
    offset: int,
    *,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    element_size: int,
) -> int:
    """Return the flat place of key element `dim` of token `offset` in (block, KV head) [k-address].

    The dim splits into a group (dim // x), which lies block_size * x elements from the next, and a place in
    the group (dim % x); between them stands the token, so that neighbouring tokens are 16 bytes apart.
    """
    x, size = x_of(element_size), _integer("block_size", block_size, 1)
    _multiple("head_size", head_size, x, "x")
    group, inside = divmod(_below("dim", dim, head_size, "head_size"), x)
    return (
        _integer("block", block, 0) * kv_block_stride(num_kv_heads, head_size, block_size)
        + _below("head", head, num_kv_heads, "num_kv_heads") * kv_head_stride(head_size, block_size)
        + group * size * x
        + _below("offset", offset, size, "block_size") * x
        + inside
    )


def value_offset(
    block: int, head: int, dim: int, offset: int, *, num_kv_heads: int, head_size: int, block_size: int
) -> int:
    """Return the flat place of value element `dim` of token `offset` in (block, KV head) [v-address].

    One row a dim, with the block's tokens side by side: the kernel reads V along the tokens and needs no x.
    """
    return (
        _integer("block", block, 0) * kv_block_stride(num_kv_heads, head_size, block_size)
        + _below("head", head, num_kv_heads, "num_kv_heads") * kv_head_stride(head_size, block_size)
        + _below("dim", dim, head_size, "head_size") * _integer("block_size", block_size, 1)
        + _below("offset", offset, block_size, "block_size")
    )


# -- bytes


def kv_bytes_per_token(num_kv_heads: int, head_size: int, element_size: int, num_layers: int = 1) -> int:
    """Return the bytes of K and V together that one token costs in `num_layers` layers."""
    return (
        2
        * _integer("num_layers", num_layers, 1)
        * _integer("num_kv_heads", num_kv_heads, 1)
        * _integer("head_size", head_size, 1)
        * _integer("element_size", element_size, 1)
    )


def kv_block_bytes(num_kv_heads: int, head_size: int, block_size: int, element_size: int) -> int:
    """Return the bytes of K and V together of one block in one layer."""
    return kv_bytes_per_token(num_kv_heads, head_size, element_size) * _integer("block_size", block_size, 1)


def row_is_aligned(row: int, num_heads: int, head_size: int, element_size: int, alignment: int = VECTOR_BYTES) -> bool:
    """Say whether row `row` of a [tokens, heads, head_size] array starts on a multiple of `alignment` bytes.

    The array itself is taken to start on one. A vector access to a row that does not is a fault on a GPU.
    """
    pitch = kv_bytes_per_token(num_heads, head_size, element_size) // 2
    return _integer("row", row, 0) * pitch % _integer("alignment", alignment, 1) == 0


# -- who computes what in the classic kernel


def num_queries_per_kv(num_heads: int, num_kv_heads: int) -> int:
    """Return how many query heads share one KV head [gqa-mapping]."""
    kv_heads = _integer("num_kv_heads", num_kv_heads, 1)
    return _multiple("num_heads", num_heads, kv_heads, "num_kv_heads") // kv_heads


def kv_head_of(query_head: int, num_heads: int, num_kv_heads: int) -> int:
    """Return the KV head that a query head reads: neighbouring query heads share one [gqa-mapping]."""
    group = num_queries_per_kv(num_heads, num_kv_heads)
    return _below("query_head", query_head, num_heads, "num_heads") // group


def thread_group_size(block_size: int, warp: int = WARP_SIZE) -> int:
    """Return how many threads share one token's key: a warp's lanes over a block's tokens [thread-groups]."""
    size, lanes = _integer("block_size", block_size, 1), _integer("warp", warp, 1)
    if lanes % size and size % lanes:
        must = f"must divide the warp of {lanes} lanes or be a multiple of it"
        raise ArgumentError("block_size", block_size, must)
    return max(lanes // size, 1)


def num_tokens_per_thread_group(block_size: int, warp: int = WARP_SIZE) -> int:
    """Return how many tokens of a block one thread group takes in turn [thread-groups]."""
    thread_group_size(block_size, warp)
    return -(-index(block_size) // index(warp))


def vec_size(group_size: int, element_size: int) -> int:
    """Return how many elements a thread loads at once: its group loads 16 bytes together [thread-groups].

    In a group too large for that a thread loads one element, and the group more than 16 bytes.
    """
    x = x_of(element_size)
    return max(x // _integer("group_size", group_size, 1), 1)


def num_elems_per_thread(head_size: int, group_size: int) -> int:
    """Return how many elements of a head one thread of a group holds [thread-groups]."""
    group = _integer("group_size", group_size, 1)
    return _multiple("head_size", head_size, group, "group_size") // group


def num_vecs_per_thread(head_size: int, group_size: int, element_size: int) -> int:
    """Return how many vectors of a head one thread of a group holds [thread-groups]."""
    elements, vec = num_elems_per_thread(head_size, group_size), vec_size(group_size, element_size)
    _multiple("head_size", head_size, index(group_size) * vec, "group_size * vec_size")
    return elements // vec


def v_vec_size(block_size: int, element_size: int) -> int:
    """Return how many tokens of a value row a thread loads at once: 16 bytes, or the whole row [v-sizes]."""
    vec = min(x_of(element_size), _integer("block_size", block_size, 1))
    _multiple("block_size", block_size, vec, "v_vec_size")
    return vec


def num_v_vecs_per_row(block_size: int, element_size: int) -> int:
    """Return how many threads share one value row (one dim, a block's tokens) [v-sizes]."""
    return index(block_size) // v_vec_size(block_size, element_size)


def num_rows_per_iter(block_size: int, element_size: int, warp: int = WARP_SIZE) -> int:
    """Return how many value rows a warp reads at once [v-sizes]."""
    vecs, lanes = num_v_vecs_per_row(block_size, element_size), _integer("warp", warp, 1)
    if lanes % vecs:
        must = f"must give rows of {vecs} loads that divide the warp of {lanes} lanes"
        raise ArgumentError("block_size", block_size, must)
    return lanes // vecs


def num_rows_per_thread(head_size: int, block_size: int, element_size: int, warp: int = WARP_SIZE) -> int:
    """Return how many value rows one thread accumulates, the last perhaps past the head's end [v-sizes]."""
    return -(-_integer("head_size", head_size, 1) // num_rows_per_iter(block_size, element_size, warp))


# -- launches


def num_warps(num_threads: int = NUM_THREADS, warp: int = WARP_SIZE) -> int:
    """Return the warps of one thread block."""
    lanes = _integer("warp", warp, 1)
    return _multiple("num_threads", num_threads, lanes, "warp") // lanes


def v1_shared_bytes(max_seq_len: int, block_size: int, head_size: int, num_threads: int = NUM_THREADS) -> int:
    """Return the dynamic shared memory of a v1 launch, in bytes [shared-size].

    The logits of the longest sequence (padded to whole blocks) and, later, the partial outputs of half of the
    warps use the same memory: the larger of the two counts.
    """
    logits = blocks_for(max_seq_len, block_size) * index(block_size) * FLOAT_BYTES
    outputs = num_warps(num_threads) // 2 * _integer("head_size", head_size, 1) * FLOAT_BYTES
    return max(logits, outputs)


def v1_static_shared_bytes(head_size: int, element_size: int, num_threads: int = NUM_THREADS) -> int:
    """Return v1's static shared memory in bytes: the query, and two floats a warp to reduce with [q-load]."""
    query = _integer("head_size", head_size, 1) * _integer("element_size", element_size, 1)
    return query + 2 * num_warps(num_threads) * FLOAT_BYTES


def v1_max_tokens(shared_bytes: int, block_size: int, static_bytes: int = 0) -> int:
    """Return the longest context, in whole blocks, whose logits fit `shared_bytes` less `static_bytes`."""
    room = _integer("shared_bytes", shared_bytes, 0) - _integer("static_bytes", static_bytes, 0)
    size = _integer("block_size", block_size, 1)
    return max(room, 0) // FLOAT_BYTES // size * size


def use_v1(max_seq_len: int, num_seqs: int, num_heads: int, partition_size: int = PARTITION_SIZE) -> bool:
    """Say whether vLLM's old rule picks v1: a context of at most 8192 and no use for partitions.

    Partitions are no use when there would be only one, or with more than 512 (sequence, query head) pairs.
    """
    pairs = _integer("num_seqs", num_seqs, 1) * _integer("num_heads", num_heads, 1)
    enough = partitions_for(max_seq_len, partition_size) == 1 or pairs > V1_MIN_PARALLEL
    return max_seq_len <= V1_MAX_SEQ_LEN and enough


def writer_threads(num_heads: int, head_size: int, x: int) -> int:
    """Return the threads that `reshape_and_cache` starts for one token [reshape-and-cache-host].

    One thread a (head, x-group) pair, but never more than 512, and the kernel has no loop over the rest: with
    more pairs the tail is not written.
    """
    groups = _multiple("head_size", head_size, _integer("x", x, 1), "x") // index(x)
    return min(_integer("num_heads", num_heads, 1) * groups, MAX_WRITER_THREADS)
