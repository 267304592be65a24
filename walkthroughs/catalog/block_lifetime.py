"""The life of a block: taken by need, shared, copied, let go, taken again; each table is then read by a kernel."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.block_pool import BlockPool, BlockTable, PoolEmpty
from kernels.fragmentation import chat_lengths, ways
from kernels.vllm import copy_blocks as copy_port
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import ROOT, Run, Workbench

ORDER = 6
WALKTHROUGH = Walkthrough(
    id="block-lifetime",
    title="The life of a block",
    intro="""
Kernels read block tables [vllm-classic/block-table]. Somebody has to write them. This is the bookkeeping: a
pool of blocks, a queue of the free ones, a count of readers for each block, and a table for each sequence. It
is plain Python, and no number of a key is ever touched by it.

On the left stands our pool. vLLM's does the same for a living, with hashes and eviction on top [L1-08]. On the
right stands the kernel that reads what the pool decided: after each scene a query goes through the table, and
must find its tokens.

Blocks hold 4 tokens here, unless a step says otherwise, and heads have size 4 [block-lifetime/on-demand].
""",
    source="kernels/block_pool.py",
    port="kernels/gather.py",
)
HEAD_SIZE = 4
ROUNDING = 1e-13
RNG = np.random.default_rng(31)
QUERY = RNG.standard_normal(HEAD_SIZE)
KEYS, VALUES, OTHER_KEYS, OTHER_VALUES = RNG.standard_normal((4, 32, HEAD_SIZE))
Pools = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def dense(keys: Any, values: Any) -> Any:
    """Attention over rows that lie together."""
    scores = keys @ QUERY * 0.5
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum()


def empty(pool: BlockPool) -> Pools:
    """Key and value memory for a pool, all NaN."""
    k_pool = np.full((pool.num_blocks, pool.block_size, HEAD_SIZE), np.nan)
    return k_pool, k_pool.copy()


def put(pools: Pools, slots: tuple[int, ...], keys: Any, values: Any) -> None:
    """Write one row a slot, by hand."""
    for rows, memory in ((keys, pools[0]), (values, pools[1])):
        for slot, row in zip(slots, rows, strict=True):
            memory[slot // memory.shape[1], slot % memory.shape[1]] = row


def read(bench: Workbench, pools: Pools, table: BlockTable, tokens: int | None = None) -> Run:
    """One query through a table; the blocks that the kernel looks up are watched as `block`, the slots as `slot`."""
    block = bench.watch("block", "physical_block_number", at="gather-lookup", by=("block_idx",))
    slot = bench.watch("slot", at="gather-loop", after="slot", by=("token_idx",))
    blocks = np.array(table.blocks, np.int32)
    return bench.gather(QUERY, pools, blocks, table.num_tokens if tokens is None else tokens, 0.5, block, slot)


@WALKTHROUGH.step(
    "on-demand", title="Taken when needed, not before", reads=("block-pool", "block-table-growth", "gather-lookup")
)
def step_on_demand(bench: Workbench) -> None:
    """
    A pool is like a box of numbered lockers. The box itself is there from the start: vLLM reserves most of the
    GPU's memory for it [L1-52]. What is done by need is handing lockers out.

    A sequence of six tokens arrives. Six places need two blocks of four. The pool gives its first two, and no more,
    though the sequence may grow to a thousand tokens later. Nobody knows yet.

    Two more tokens come. There is room for two in the second block. Nothing is taken. The ninth token takes the third
    block.
    """
    pool = BlockPool(8, 4)
    table, pools = BlockTable(pool), empty(pool)
    free = []
    for first, count in ((0, 6), (6, 2), (8, 1)):
        growth = table.append(count)
        put(pools, growth.slots, KEYS[first : first + count], VALUES[first : first + count])
        free.append(pool.num_free)
    bench.check("free blocks after 6, 8 and 9 tokens", free, [6, 6, 5])
    run = read(bench, pools, table)
    bench.check("blocks that the kernel reads", run.series("block"), [0, 1, 2])
    bench.check("output", run.out[0], dense(KEYS[:9], VALUES[:9]), tolerance=ROUNDING)


@WALKTHROUGH.step("edges", title="At the edge of a block", reads=("block-table-growth", "gather-loop", "tail-guard"))
def step_edges(bench: Workbench) -> None:
    """
    Sixteen tokens, blocks of sixteen. How many blocks? One. It is full, and full is fine.

    A common mistake is to take the next block already, "because the last is full". Then someone computes the length
    from the blocks: (2 − 1) × 16 + 16 = 32 tokens, where there are 16. The kernel reads sixteen strangers. With small
    numbers in them nobody notices for weeks.

    The right sum: blocks = tokens / 16, rounded up. The last block holds tokens − (blocks − 1) × 16, and that is
    1 to 16, never 0.

    The check fills a spare block with large keys. One wrong read would shift the output.
    """
    for tokens, blocks, last in ((15, 1, 15), (16, 1, 16), (17, 2, 1), (32, 2, 16)):
        pool = BlockPool(4, 16)
        table, pools = BlockTable(pool), empty(pool)
        pools[0][:], pools[1][:] = 50.0, 1000.0
        for token in range(tokens):
            put(pools, table.append().slots, KEYS[token : token + 1], VALUES[token : token + 1])
        run = read(bench, pools, table)
        bench.check(f"{tokens} tokens: blocks", len(table.blocks), blocks)
        in_last = sum(1 for slot in run.series("slot") if slot // 16 == table.blocks[-1])
        bench.check(f"{tokens} tokens: read from the last block", in_last, last)
        bench.check(f"{tokens} tokens: output", run.out[0], dense(KEYS[:tokens], VALUES[:tokens]), tolerance=ROUNDING)


@WALKTHROUGH.step("unsorted", title="A table is not sorted", reads=("block-table-growth", "gather-lookup"))
def step_unsorted(bench: Workbench) -> None:
    """
    Two sequences grow side by side, a block each in turn. So one gets blocks 0 and 2, the other 1 and 3. A third comes
    and goes in between, and its block is used again by the first, later, behind higher numbers.

    In the end the first table reads 0, 2, 5, 4, or whatever the traffic made of it. The numbers are names of lockers,
    not positions. Sorting them would scramble the text.

    Order lives in one place only: in the index of the table.
    """
    pool = BlockPool(6, 4)
    first, second, third = (BlockTable(pool) for _ in range(3))
    pools = empty(pool)
    seen = 0

    def grow() -> None:
        nonlocal seen
        put(pools, first.append(4).slots, KEYS[seen : seen + 4], VALUES[seen : seen + 4])
        seen += 4

    grow()
    put(pools, second.append(4).slots, OTHER_KEYS[:4], OTHER_VALUES[:4])
    grow()
    put(pools, second.append(4).slots, OTHER_KEYS[4:8], OTHER_VALUES[4:8])
    third.append(4)
    grow()
    third.release()
    grow()
    bench.check("first table", first.blocks, [0, 2, 5, 4])
    bench.check("second table", second.blocks, [1, 3])
    run = read(bench, pools, first)
    bench.check("blocks in the order of the text", run.series("block"), [0, 2, 5, 4])
    bench.check("first output", run.out[0], dense(KEYS[:16], VALUES[:16]), tolerance=ROUNDING)
    other = read(bench, pools, second)
    bench.check("second output", other.out[0], dense(OTHER_KEYS[:8], OTHER_VALUES[:8]), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "shared-prefix", title="One copy, two readers", reads=("prefix-sharing", "block-pool", "gather-lookup")
)
def step_shared_prefix(bench: Workbench) -> None:
    """
    A hundred users send the same instructions in front of their question. Why store them a hundred times?

    The second sequence begins with the first ten tokens of the first. Ten tokens are two full blocks and a half. The
    two full ones are shared: both tables name them. The half is not. A block that is only partly common would have to
    differ in its other part.

    So eight tokens are saved, not ten. The pool counts: two readers each. A shared block is free only
    when both have let go.

    The kernel knows nothing of this. It reads block 0 for the one and block 0 for the other.
    """
    pool = BlockPool(8, 4)
    one, pools = BlockTable(pool), empty(pool)
    put(pools, one.append(11).slots, KEYS[:11], VALUES[:11])
    two = one.share_prefix(10)
    bench.check("tokens saved", two.num_tokens, 8)
    keys = np.concatenate([KEYS[:8], OTHER_KEYS[8:13]])
    values = np.concatenate([VALUES[:8], OTHER_VALUES[8:13]])
    put(pools, two.append(5).slots, keys[8:], values[8:])
    bench.check("blocks in use", pool.num_used, 5, note="3 + 4 blocks, of which 2 are shared")
    bench.check("readers of each block", [pool.ref_count(block) for block in range(6)], [2, 2, 1, 1, 1, 0])
    first, second = read(bench, pools, one), read(bench, pools, two)
    bench.check("blocks read for the second", second.series("block"), [0, 1, 3, 4])
    bench.check("first output", first.out[0], dense(KEYS[:11], VALUES[:11]), tolerance=ROUNDING)
    bench.check("second output", second.out[0], dense(keys, values), tolerance=ROUNDING)
    one.release()
    bench.check("after the first has gone: free again", pool.num_free, 4, note="8 blocks, 4 held by the second")
    third = read(bench, pools, two)
    bench.check("the second still reads its tokens", third.out[0], dense(keys, values), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "copy-on-write", title="Copy before you write", reads=("block-table-growth", "prefix-sharing", "block-copy"),
    port="kernels/vllm/copy_blocks.py",
)  # fmt: skip
def step_copy_on_write(bench: Workbench) -> None:
    """
    Now a sequence splits in two: the same text, two different continuations. All blocks are shared, also the last
    one, and that one is not full. The next token wants to go into it. But the other reader must not see it.

    So the writer takes a free block, has the shared one **copied** into it, and writes there. The other
    keeps the old one. Only one block is copied, however long the text.

    `append` answers with the pair (from, to); the copy is a kernel's work. Forget it, and the new block lacks
    tokens that its table promises: here they would be NaN.

    vLLM's prefix cache shares full blocks as a rule, and then no copy is needed. Where release 0.26.0 allows a hit on
    part of a block, it queues just such a copy.
    """
    pool = BlockPool(6, 4)
    one, pools = BlockTable(pool), empty(pool)
    put(pools, one.append(7).slots, KEYS[:7], VALUES[:7])
    two = one.fork()
    growth = two.append()
    bench.check("copy from, to", growth.copy, (1, 2))
    number = bench.watch(
        "src", "src_block_number", at="block-copy", after="src_block_number", when="cuda.threadIdx.x == 0"
    )
    target = bench.watch(
        "dst", "dst_block_number", at="block-copy", after="dst_block_number", when="cuda.threadIdx.x == 0"
    )
    mapping = np.array([growth.copy], np.int64)
    run = bench.launch(
        copy_port.copy_blocks_kernel,
        (number, target),
        lambda entry: copy_port.copy_blocks(*pools, mapping, backend=bench.backend, entry=entry),
        pools,
    )
    bench.check("pair that the kernel copies", run.series("src") + run.series("dst"), [1, 2])
    bench.check("the copy", run.out[0][2], run.out[0][1])
    put(pools, growth.slots, OTHER_KEYS[:1], OTHER_VALUES[:1])
    put(pools, one.append().slots, KEYS[7:8], VALUES[7:8])
    bench.check("tables", [*one.blocks, *two.blocks], [0, 1, 0, 2])
    gather = Workbench("kernels/gather.py", bench.bench)
    bench.check("first output", read(gather, pools, one).out[0], dense(KEYS[:8], VALUES[:8]), tolerance=ROUNDING)
    keys, values = np.concatenate([KEYS[:7], OTHER_KEYS[:1]]), np.concatenate([VALUES[:7], OTHER_VALUES[:1]])
    bench.check("second output", read(gather, pools, two).out[0], dense(keys, values), tolerance=ROUNDING)


@WALKTHROUGH.step("reuse", title="Let go, and taken again", reads=("block-pool", "tail-guard", "gather-lookup"))
def step_reuse(bench: Workbench) -> None:
    """
    A sequence ends. Its blocks go to the back of the queue, the last one first. The front of the queue
    is what nobody has used for longest.

    That order is chosen with care. A block's contents stay where they are until it is taken again. So the first
    blocks of a text, which others are most likely to begin with, survive longest. vLLM 0.26.0 does so with
    blocks that it can find again by their hash [L1-08]. A block without one goes to the front: nobody can ask
    for it.

    Nobody wipes a block. The next owner finds the old numbers in it, and must not look: it reads only as far as its
    own length. We check that it never sees the three old tokens behind its one.
    """
    pool = BlockPool(4, 4)
    old, pools = BlockTable(pool), empty(pool)
    put(pools, old.append(12).slots, OTHER_KEYS[:12], OTHER_VALUES[:12])
    old.release()
    new = BlockTable(pool)
    growth = new.append(9)
    bench.check("blocks of the new sequence", new.blocks, [3, 2, 1], note="the unused one first, then 2, 1; 0 is last")
    put(pools, growth.slots, KEYS[:9], VALUES[:9])
    left = pools[0][new.blocks[-1], 1:]
    bench.check("old keys behind the new token", left, OTHER_KEYS[5:8])
    run = read(bench, pools, new)
    bench.check("slots read", run.series("slot"), list(growth.slots))
    bench.check("output", run.out[0], dense(KEYS[:9], VALUES[:9]), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "empty-pool", title="When the pool is empty", reads=("block-pool", "block-table-growth", "gather-loop")
)
def step_empty_pool(bench: Workbench) -> None:
    """
    Three blocks, and two sequences that hold them all. The first wants a ninth token. There is no block for it.

    What must happen now? Nothing by halves. `take` gives all or none, and says so by an error with two numbers in it:
    how many were needed, how many were free. The table is as it was. The sequence can still be read.

    Then somebody decides. A scheduler may preempt: it takes all blocks of one request, and lets it begin anew
    later. After that the append succeeds.

    tiny-vllm has no such check: taking from an empty list is undefined there [L2-49]. Its sizes make sure that
    it cannot happen.
    """
    pool = BlockPool(3, 4)
    one, two, pools = BlockTable(pool), BlockTable(pool), empty(pool)
    put(pools, one.append(8).slots, KEYS[:8], VALUES[:8])
    put(pools, two.append(3).slots, OTHER_KEYS[:3], OTHER_VALUES[:3])
    try:
        one.append(5)
    except PoolEmpty as error:
        bench.check("needed, free", [error.needed, error.free], [2, 0])
    bench.check("table and tokens as before", [*one.blocks, one.num_tokens], [0, 1, 8])
    before = read(bench, pools, one)
    bench.check("still readable", before.out[0], dense(KEYS[:8], VALUES[:8]), tolerance=ROUNDING)
    two.release()
    put(pools, one.append().slots, KEYS[8:9], VALUES[8:9])
    after = read(bench, pools, one)
    bench.check("blocks after a preemption", after.series("block"), [0, 1, 2])
    bench.check("output", after.out[0], dense(KEYS[:9], VALUES[:9]), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "in-use", title="How many blocks are in use", reads=("block-pool", "block-table-growth", "gather-loop")
)
def step_in_use(bench: Workbench) -> None:
    """
    A server tells how full its cache is. Can you predict the number?

    The prompt has 6 tokens, blocks hold 4. After the prompt and g generated tokens, how many tokens lie in the cache?
    Not 6 + g. The newest token has been chosen, but it has not gone through the model yet. It has no key.
    So it is 6 + g − 1, and the blocks are that over 4, rounded up.

    The obvious formula, without the −1, is right most of the time. It is wrong whenever the newest token is the first
    of a block. We go through ten generated tokens and see both.
    """
    pool = BlockPool(8, 4)
    table, pools = BlockTable(pool), empty(pool)
    put(pools, table.append(6).slots, KEYS[:6], VALUES[:6])
    used, naive = [], []
    for generated in range(1, 11):
        used.append(pool.num_used)
        naive.append((6 + generated + 3) // 4)
        token = 6 + generated - 1
        put(pools, table.append().slots, KEYS[token : token + 1], VALUES[token : token + 1])
    # By hand: 6 to 15 tokens cached.
    bench.check("blocks after 1 to 10 generated tokens", used, [2, 2, 2, 3, 3, 3, 3, 4, 4, 4])
    wrong = [g for g, (a, b) in enumerate(zip(used, naive, strict=True), 1) if a != b]
    bench.check("where the obvious formula is wrong", wrong, [3, 7])
    run = read(bench, pools, table)
    bench.check("tokens that the next query reads", len(run.series("slot")), 16)
    bench.check("its output", run.out[0], dense(KEYS[:16], VALUES[:16]), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "fragmentation", title="What is reserved and never used", reads=("fragmentation", "gather-loop"),
    source="kernels/fragmentation.py",
)  # fmt: skip
def step_fragmentation(bench: Workbench) -> None:
    """
    Before paging, a sequence got one long run of memory, for the longest length that it might reach. A table for
    twelve, reserved for every guest who comes alone.

    Take 200 requests with lengths as chats have them: most of them short, a few very long. These are drawn from
    a model, not measured. With one run of 2,048 for each, a fifth of the room is used. Knowing each length in
    advance and rounding up to a power of two, two thirds. With blocks of 16, all but a fiftieth: only the last
    block of a sequence has empty places.

    ::: svg fragmentation Internal fragmentation of the KV cache, for 200 requests

    The paper counts two wastes more: runs that are kept for later, and gaps between runs that fit nobody. Blocks of one
    size leave no such gaps.

    The check hands out real blocks, token by token, and reads one sequence through its table.
    """
    lengths = chat_lengths(200)
    pool = BlockPool(20_000, 16)
    tables = []
    for length in lengths:
        tables.append(BlockTable(pool))
        for _ in range(length):
            tables[-1].append()
    used = sum(lengths)
    runs = [2048 * 200, sum(next(2**n for n in range(12) if 2**n >= length) for length in lengths)]
    paged = [sum(-(-length // size) * size for length in lengths) for size in (128, 16)]
    shares = [used / room for room in (*runs, *paged)]
    bench.check(
        "share used: one run, power of two, 128, 16", [r.share_used for _, r in ways(lengths)], shares, tolerance=1e-12
    )
    bench.check("blocks of 16 that the pool handed out", pool.num_used * 16, paged[1])
    drawing = (ROOT / "docs/assets/svg/fragmentation.svg").read_text("utf-8")
    shown = [float(number) for number in re.findall(r">([\d.]+) %<", drawing)]
    bench.check("percentages in the figure", shown, [round(100 * share, 1) for share in shares])
    small = BlockTable(BlockPool(2, 16))
    pools = empty(small.pool)
    put(pools, small.append(21).slots, KEYS[:21], VALUES[:21])
    run = read(bench, pools, small)
    bench.check("21 tokens: places reserved and not read", 2 * 16 - len(run.series("slot")), 11)
    bench.check("output", run.out[0], dense(KEYS[:21], VALUES[:21]), tolerance=ROUNDING)
