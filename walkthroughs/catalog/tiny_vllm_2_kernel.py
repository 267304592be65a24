"""tiny-vllm, part 2: the kernel in its own order, from the two indexes to one score, and what other head sizes do."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import cases, oracle, oracle_tiny
from kernels.tiny_vllm import general
from kernels.tiny_vllm.attention import cache_of
from walkthroughs.catalog.tiny_vllm_1_memory import CASE, SINGLE, WALKTHROUGH, attend, numbers, starts, table_of
from walkthroughs.workbench import Run, Workbench

ORDER = 5
GENERAL = "kernels/tiny_vllm/general.py"
FIRST = "thread_id == 0"
ONE_HEAD = "active_slot == 0 and q_head_id == 1"


def attend_general(bench: Workbench, case: cases.DecodeCase) -> Run:
    """Launch the general form on a case. `out[0]`: [sequences, heads, head size]."""
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    active = numbers(*range(case.num_seqs))
    table = table_of(case, active, 0, 1)

    def launch(entry: Any) -> None:
        general.general_attention(
            0, case.num_seqs, case.q, cache_of(case), table, case.seq_lens, active, out,
            backend=bench.backend, entry=entry,
        )  # fmt: skip

    return bench.launch(general.general_attention_kernel, (), launch, (out,), seed=case.seed)


@WALKTHROUGH.step("two-indexes", title="Which index is compact", reads=("tiny-active-slot", "gqa-mapping", "q-load"))
def step_two_indexes(bench: Workbench) -> None:
    """
    Picture a hotel and a breakfast queue. The room number stays with a guest. The place in the queue depends on
    who is up.

    The **slot** is the room: it says where a sequence's blocks are noted. The **active slot** is the place in
    the queue: query, length and output count only the sequences that run now. The kernel starts from the place,
    `blockIdx.x`, and looks the room up.

    A remark in the source calls the place a sequence id. It is not.

    Confuse the two and all still works, as long as every slot is busy. It fails when the first sequence ends. So
    our two sequences live in slots 4 and 1, of five.

    The second number of the grid is the query head. Four query heads share a KV head: a division. Here, 8 heads,
    2 KV heads.
    """
    case = cases.decode_case((18, 5), 8, 2, 64, 16, seed=30, garbage="minus-one")
    slot = bench.watch("slot", at="tiny-active-slot", after="slot", by=("active_slot",), when="cuda.threadIdx.x == 0")
    kv_head = bench.watch(
        "kv_head", "kv_head_idx", at="gqa-mapping", after="kv_head_idx", by=("q_head_id",), when=FIRST
    )
    query = bench.watch("q", at="q-load", after="q", by=("active_slot", "q_head_id", "thread_id"))
    length = bench.watch("seq_len", at="block-ranges", after="seq_len", by=("active_slot",), when=FIRST)
    run = attend(bench, case, slot, kv_head, query, length, slots=(4, 1))
    bench.check("slots of places 0 and 1", run.series("slot"), [4, 1])
    bench.check("lengths of places 0 and 1", run.series("seq_len"), [18, 5])
    bench.check("query elements, by place, head, thread", run.series("q"), case.q.reshape(-1))
    bench.check("KV head of each query head", run.series("kv_head"), [0, 0, 0, 0, 1, 1, 1, 1])
    bench.check("output, by place", run.out[0], oracle.attention(case), tolerance=SINGLE)


@WALKTHROUGH.step("block-count", title="How many blocks, how many tokens", reads=("block-ranges", "tail-guard"))
def step_block_count(bench: Workbench) -> None:
    """
    Seventeen tokens need two blocks: divide by 16 and round up. In integers, add 15 first.

    Inside the loop, the smaller of two numbers counts: what is left of the sequence, or 16. Only in the last
    block is there less left.

    Nothing behind the end is ever read. So nothing there need be zeroed; in vLLM's classic kernel it must be
    [C-07]. There is no causal mask either. The only query is that of the newest token, and it may see
    everything.

    All the unused places of our cache hold NaN. One read too far would show.
    """
    lengths = (1, 15, 16, 17, 33)
    case = cases.decode_case(lengths, 4, 1, 64, 16, seed=31, garbage="minus-one")
    blocks = bench.watch("num_blocks", at="block-ranges", after="num_blocks", by=("active_slot",), when=FIRST)
    tokens = bench.watch("tokens", "tokens_in_block", at="tail-guard", after="tokens_in_block",
                         by=("active_slot", "logical_block_idx"), when=FIRST)  # fmt: skip
    run = attend(bench, case, blocks, tokens)
    owners = [[token // 16 for token in range(length)] for length in lengths]
    bench.check("blocks of 1, 15, 16, 17, 33 tokens", run.series("num_blocks"), [len(set(own)) for own in owners])
    counted = [own.count(block) for own in owners for block in sorted(set(own))]
    bench.check("tokens taken from each block", run.series("tokens"), counted)
    bench.check("output", run.out[0], oracle.attention(case), tolerance=SINGLE)


@WALKTHROUGH.step("addresses", title="Where a key is, where a value is", reads=("k-address", "v-address"))
def step_addresses(bench: Workbench) -> None:
    """
    Read the address as you find a word in a library: shelf, page, line, place in the line. Block × bytes of a
    block, token × a line, KV head × 64 numbers, thread × one number.

    The value has the same address plus `V_OFFSET`. Nothing else differs.

    Look at one warp: 32 threads, 32 neighbouring numbers. That is one run of memory, without any x. Here a
    token's key lies together and a whole warp reads it. In vLLM's classic kernel a warp reads many tokens at
    once, and needs x for it [vllm-classic/x].

    The check asks NumPy for the place of every element of both KV heads.
    """
    case = cases.decode_case((18,), 8, 2, 64, 16, seed=32)
    by = ("logical_block_idx * 16 + token", "kv_head_idx", "thread_id")
    byte = "block_start(physical_block) + row"
    some = "q_head_id % 4 == 3"
    key = bench.watch("k_at", byte, at="k-address", after="k", by=by, when=some)
    value = bench.watch("v_at", f"{byte} + V_OFFSET", at="v-address", after="v", by=by, when=some)
    loaded = bench.watch("v", at="v-address", after="v", by=by, when=some)
    run = attend(bench, case, key, value, loaded)
    places = np.arange(case.num_blocks * 2 * 16 * 2 * 64).reshape(case.num_blocks, 2, 16, 2, 64) * 4
    owned = [places[case.block_tables[0, token // 16], :, token % 16] for token in range(18)]
    bench.check("byte of every key element", run.series("k_at"), np.reshape([rows[0] for rows in owned], -1))
    bench.check("byte of every value element", run.series("v_at"), np.reshape([rows[1] for rows in owned], -1))
    bench.check("values loaded", run.series("v"), case.values[0].reshape(-1))
    warp = [value for keys, value in sorted(run.last("k_at").items()) if keys[:2] == (0, 0) and keys[2] < 32]
    bench.check("bytes from one thread to the next", sorted(set(np.diff(warp))), [4])


@WALKTHROUGH.step("int-overflow", title="Why the cache ends at 2 GiB", reads=("k-address", "tiny-layout"))
def step_int_overflow(bench: Workbench) -> None:
    """
    An `int` in C++ is a counter with 31 places for the number and one for the sign. When it is full, it has no
    room left.

    Block number × block size is a product of two ints. The highest block is 65,535. Times 32,768 that makes
    2,147,450,880, and 32,767 more would fill the counter. The last byte of that block is the last one that an
    int can name.

    One block more and the product does not fit. In C++ that is undefined; the usual machine code wraps, and the
    address becomes *negative* by 2 GiB. So the cache has just the size that this line can bear. And since blocks
    are taken from the end, the extreme is used at once.

    Numba would widen to 64 bits by itself and hide all this. Our port cuts back to 32. vLLM widens before it
    multiplies [findings/wider-product].
    """
    blocks = numbers(0, 1, 65_534, 65_535, 65_536, 65_537, 131_072)
    short, wide = starts(bench, blocks)
    exact = [32_768 * int(block) for block in blocks]
    bench.check("first byte in 64 bits", wide, exact)
    bench.check("in 32 bits, blocks of the cache", short[:4], [0, 32_768, 2_147_418_112, 2_147_450_880])
    bench.check("last byte of block 65,535", short[3] + 32_767, 2**31 - 1)
    bench.check("in 32 bits, one block too many", short[4], -(2**31))
    wrapped = [int.from_bytes((value % 2**32).to_bytes(4, "little"), "little", signed=True) for value in exact]
    bench.check("32 bits are the low half of 64", short, wrapped)


@WALKTHROUGH.step("score", title="Sixty-four products, one score", reads=("qk-dot", "warp-reduce", "cross-warp-reduce"))
def step_score(bench: Workbench) -> None:
    """
    Each of 64 threads multiplies one number of the query by one of the key. These are 64 products of *one* dot
    product. They must be added up, and they sit in 64 different registers.

    First within a warp. In a **shuffle** each thread looks into the register of the one 16 places on and adds
    what it sees. Then from half as far, and so on. After five looks lane 0 has the sum of all 32.

    Only lane 0. A lane that looks past the end sees itself. Lane 31 doubled its own product five times.

    Then across the two warps, which cannot see each other's registers. Threads 0 and 32 leave their sums in two
    shared floats. A barrier. Thread 0 adds the two and divides by 8, the root of 64 [L2-35]. A barrier.
    Everyone reads the result.
    """
    by = ("logical_block_idx * 16 + token", "thread_id")
    product = bench.watch("product", "qk", at="qk-dot", after="qk", by=by, when=ONE_HEAD)
    steps = bench.watch("sum", "qk", at="warp-reduce", after="qk", by=by, when=ONE_HEAD)
    halves = bench.watch("half", "qk", at="cross-warp-reduce", after="dot_products[]", by=("thread_id",),
                         when=f"{ONE_HEAD} and logical_block_idx == 0 and token == 0 and thread_id == 32")  # fmt: skip
    score = bench.watch("score", "dot_product", at="cross-warp-reduce", after="dot_product", by=by, when=ONE_HEAD)
    run = attend(bench, CASE, product, steps, halves, score)
    exact = oracle_tiny.products(CASE, 0, 1)
    bench.check("products of 37 tokens", run.series("product"), exact.reshape(-1), tolerance=1e-6)
    lanes = run.by_thread("sum", block=2)  # sequence 0, head 1
    for name, thread in (("lane 0", 0), ("lane 1", 1), ("lane 31", 31)):
        wanted = [after[thread] for after in oracle_tiny.shuffled(exact[0, :32])]
        bench.check(f"{name} after each shuffle, token 0", lanes[thread][:5], wanted, tolerance=SINGLE)
    sums = [lanes[thread][5 * token + 4] for token in range(37) for thread in (0, 32)]
    bench.check("lane 0 of both warps holds half a score", sums, exact.reshape(37, 2, 32).sum(axis=2).reshape(-1),
                tolerance=SINGLE)  # fmt: skip
    bench.check("second shared float, token 0", run.series("half"), [exact[0, 32:].sum()], tolerance=SINGLE)
    found = run.last("score")
    for name, thread in (("thread 0", 0), ("thread 63", 63)):
        seen = [found[token, thread] for token in range(37)]
        bench.check(f"scores that {name} reads", seen, oracle.logits(CASE, 0, 1), tolerance=SINGLE)


@WALKTHROUGH.step(
    "head-size",
    title="Sixty-four, and nothing else",
    reads=("cross-warp-reduce", "warp-reduce", "qk-dot"),
    port=GENERAL,
)
def step_head_size(bench: Workbench) -> None:
    """
    The reduction has two shared floats, one for each warp of a head of 64 [L2-34]. But the head size decides
    how many warps there are.

    **Head size 32** has one warp, and no thread 32. Nobody writes the second float. Thread 0 adds it all the
    same: whatever lay in memory. To make that visible we put NaN there first. Every output becomes NaN.

    **Head size 128** has four warps. The last two add up their products, and nobody takes the sums [L2-36]. The
    score is that of the first 64 elements, divided by 8. No NaN, no error, just another attention. Our oracle
    computes that one too, and agrees.

    The general form has a float for each warp, and a scale from the head size. Threads behind the end of an odd
    head add zeros. It passes at 32, 80, 96 and 128.
    """
    small = cases.decode_case((5,), 4, 1, 32, 16, seed=33)
    marked = attend(bench, small, marked=True).out[0]
    bench.check("head size 32: outputs that are NaN", int(np.isnan(marked).sum()), marked.size)
    wide = cases.decode_case((19,), 4, 1, 128, 16, seed=34)
    found = attend(bench, wide).out[0]
    half = oracle_tiny.first_elements(wide, 64, 8.0)
    bench.check("head size 128: attention of the first 64 elements", found, half, tolerance=SINGLE)
    bench.check("and that is wrong", bool(np.abs(found - oracle.attention(wide)).max() > 0.1), True)
    right = attend(bench, CASE, marked=True).out[0]
    bench.check("head size 64: both floats are written", right, oracle.attention(CASE), tolerance=SINGLE)
    for head_size in (32, 64, 80, 96, 128):
        case = cases.decode_case((18,), 4, 1, head_size, 16, seed=head_size)
        exact = oracle.attention(case)
        bench.check(f"general form, head size {head_size}", attend_general(bench, case).out[0], exact, tolerance=SINGLE)


@WALKTHROUGH.step(
    "online-softmax",
    title="A softmax token by token",
    reads=("online-softmax", "running-max", "running-sum", "running-rescale", "accumulate"),
)
def step_online_softmax(bench: Workbench) -> None:
    """
    Each thread carries along the largest score so far, the sum of exponentials `d`, and its own part `acc` of
    the output.

    A larger score makes the old numbers too large, all by the same factor. One multiplication mends them. If the
    maximum stays, the factor is one.

    The first token needs no special case. The maximum starts at minus infinity, so the factor is exp(−∞) = 0. It
    multiplies zeros, and `d` becomes 1.

    The update is made for every token, not for every block. And all 64 threads compute the same maximum and the
    same `d`. Only `acc` differs: thread 5 has element 5.
    """
    by = ("logical_block_idx * 16 + token", "thread_id")
    top = bench.watch("m", "current_max", at="online-softmax", after="current_max", by=by, when=ONE_HEAD)
    factor = bench.watch("factor", "correction_factor", at="online-softmax", after="correction_factor", by=by,
                         when=ONE_HEAD)  # fmt: skip
    total = bench.watch("d", at="online-softmax", after="d", by=by, when=ONE_HEAD)
    acc = bench.watch("acc", at="accumulate", after="acc", by=by, when=ONE_HEAD)
    run = attend(bench, CASE, top, factor, total, acc)
    m, d, a = oracle_tiny.running(oracle.logits(CASE, 0, 1), CASE.values[0][:, 0].astype(np.float64))
    shape = (37, 64)
    everyone = {name: np.asarray(run.series(name)).reshape(shape) for name in ("m", "d", "acc", "factor")}
    bench.check("largest score after each token", everyone["m"][:, 0], m, tolerance=SINGLE)
    bench.check("factor of the first token", everyone["factor"][0, 0], 0.0)
    changes = sum(later > earlier for earlier, later in zip([-np.inf, *m], m, strict=False))
    bench.check("tokens that raise the maximum", int((everyone["factor"][:, 0] < 1).sum()), changes)
    bench.check("d after each token", everyone["d"][:, 0], d, tolerance=1e-5)
    bench.check("all threads hold the same d", float(np.ptp(everyone["d"], axis=1).max()), 0.0)
    bench.check("acc after each token, all threads", everyone["acc"], a, tolerance=1e-5)


@WALKTHROUGH.step("race", title="The barrier that is not there", reads=("cross-warp-reduce",))
def step_race(bench: Workbench) -> None:
    """
    Follow the first shared float from one token to the next. Thread 0 stores a half sum. Barrier. Thread 0
    stores the score over it. Barrier. All read the score. And now the next token: thread 0 stores its half sum
    *over the score*.

    Who says that all have read it by then? Warp 0 has: its lanes had to meet for the shuffles. Warp 1 may be
    anywhere between the barrier and the read. Nothing makes thread 0 wait.

    Let warp 1 be slow. On the SIMT machine a schedule does it: warp 0 first, always. On a GPU a nap of 20 µs
    does it. Then warp 1 reads the next token's half sum, unscaled, for every token but the last. Elements 0 to
    31 of the output are right, 32 to 63 are not.

    We can compute the wrong answer beforehand, and get it.

    On a GPU without a nap the kernel may be right in every run you try. That proves nothing. With one more barrier
    it is right under every delay.
    """
    exact = oracle.attention(CASE)
    slow = attend(bench, CASE, repaired=False, schedule="replay:*=0", sleepy=1).out[0]
    bench.check("warp 1 late: elements 0 to 31 are right", slow[..., :32], exact[..., :32], tolerance=SINGLE)
    bench.check("warp 1 late: elements 32 to 63, as foretold", slow[..., 32:], oracle_tiny.late(CASE)[..., 32:],
                tolerance=1e-5)  # fmt: skip
    bench.check("and that is wrong", bool(np.abs(slow - exact).max() > 0.5), True)
    fast = attend(bench, CASE, repaired=False, schedule="replay:*=1", sleepy=0).out[0]
    bench.check("warp 0 late: right, by luck", fast, exact, tolerance=SINGLE)
    for number, sleepy in enumerate((0, 1)):
        mended = attend(bench, CASE, schedule=f"replay:*={1 - number}", sleepy=sleepy).out[0]
        bench.check(f"one more barrier, warp {sleepy} late", mended, exact, tolerance=SINGLE)


@WALKTHROUGH.step("in-place", title="The output over the query", reads=("q-load", "final-divide", "tiny-launch"))
def step_in_place(bench: Workbench) -> None:
    """
    Query and output are one and the same buffer. The kernel eats its own input. Is that safe?

    Ask of each number: who reads it, who writes it, and when? Element (sequence, head, thread) of the query is
    read by one thread, at the very start. The same thread writes the same element, at the very end. No other
    thread touches it. So no order of threads, warps or thread blocks can matter.

    It would be different if a thread read a neighbour's element, or read the query again in the loop.

    We try it under twenty orders and compare every bit with the run that has two buffers. On a GPU, naps of
    either warp stand for the orders.
    """
    small = cases.decode_case((6, 2), 4, 1, 64, 16, seed=35)
    naps = (None, 0, 1)
    # Compared are runs of the same machine code: a kernel that naps is compiled anew, and may round otherwise.
    apart = {nap: attend(bench, small, schedule="in-order", sleepy=nap).out[0] for nap in naps}
    for nap, out in apart.items():
        name = "nobody naps" if nap is None else f"warp {nap} naps"
        bench.check(f"two buffers, {name}", out, oracle.attention(small), tolerance=SINGLE)
    orders = ["in-order", "reversed", *(f"random:{seed}" for seed in range(18))]
    differ = 0
    for number, order in enumerate(orders):
        nap = naps[number % 3]
        differ += int((attend(bench, small, in_place=True, schedule=order, sleepy=nap).out[0] != apart[nap]).sum())
    bench.check("orders tried", len(orders), 20)
    bench.check("numbers that differ from two buffers", differ, 0)
    read = bench.watch(
        "read", "active_slot * 256 + q_head_id * 64 + thread_id", at="q-load", after="q", by=("thread_id",)
    )
    run = attend(bench, small, read, in_place=True)
    bench.check("each element is read once", sorted(r.value for r in run.readings("read")), range(512))
    bench.check("in place, the bench's own order", run.out[0], oracle.attention(small), tolerance=SINGLE)


@WALKTHROUGH.step("divide", title="One division, and nothing to divide", reads=("final-divide",))
def step_divide(bench: Workbench) -> None:
    """
    At the end `acc` is divided by `d`, once, and stored. The weights were never normalised on their own.

    vLLM's classic kernel adds a tiny number to its sum [vllm-classic/normalise]. Here nothing is added to `d`,
    and nothing need be: the largest score contributes exp(0) = 1, so `d` is at least one. A lone token gets
    weight one exactly, and the output is its value, to the bit.

    Except for a sequence of no tokens. Then it is zero by zero, NaN. The engine never asks for that: the length
    is at least one, since the new token was written before.
    """
    case = cases.decode_case((0, 1, 20), 4, 1, 64, 16, seed=36)
    total = bench.watch("d", at="final-divide", after="output[]", by=("active_slot", "q_head_id"), when=FIRST)
    run = attend(bench, case, total)
    sums = [oracle.exp_sum(case, seq, head) for seq in range(3) for head in range(4)]
    bench.check("d of 0, 1 and 20 tokens", run.series("d"), sums, tolerance=1e-5)
    bench.check("no tokens: all NaN", bool(np.isnan(run.out[0][0]).all()), True)
    bench.check("one token: the value itself", run.out[0][1], np.repeat(case.values[1][0], 4, axis=0))
    bench.check("twenty tokens", run.out[0][2], oracle.attention(case)[2], tolerance=SINGLE)
