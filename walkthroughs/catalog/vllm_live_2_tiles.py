"""What vLLM runs today, part 2: the 2d kernel, from its grid to the scores of one tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import cases, oracle, oracle_2d
from kernels.probe import Watch
from kernels.vllm import paged_2d
from walkthroughs.catalog.vllm_live_1_cache import CASE, WALKTHROUGH, int32
from walkthroughs.workbench import Run, Workbench

ORDER = 4
SCORE = 3e-6
HEAD = "first_query_head + query_row"


def attend(bench: Workbench, case: cases.DecodeCase, *watches: Watch, q: Any = None, **options: Any) -> Run:
    """Run the 2d kernel on a case, perhaps with other query rows. `out[0]`: like the queries; it starts as NaN."""
    query = case.q if q is None else q
    out = np.full_like(query, np.nan)
    return bench.launch(
        paged_2d.kernel_paged_attention_2d,
        watches,
        lambda entry: paged_2d.paged_attention_2d(
            out, query, case.k_cache, case.v_cache, case.block_tables, case.seq_lens, sm_scale=case.scale,
            alibi_slopes=case.alibi_slopes, backend=bench.backend, entry=entry, **options,
        ),
        (out,),
        seed=case.seed,
    )  # fmt: skip


@WALKTHROUGH.step(
    "program",
    title="Programs, not threads",
    reads=("paged-2d", "paged-2d-program", "paged-2d-filter", "paged-2d-launch"),
)
def step_program(bench: Workbench) -> None:
    """
    From here on you read Triton. It looks like NumPy: whole tiles are loaded, multiplied, compared. No thread is ever
    mentioned. What CUDA calls a thread block, Triton calls a program, and its compiler decides who does what.

    Our port is CUDA, so it has to decide. Where it does, a comment says so. Both have the same grid: one program for
    each sequence and **KV head**. The classic kernel had one for each query head.

    A batch may hold sequences that are still in prefill. They have more than one query row. Their programs leave at
    once; another kernel has done that work before. Its output rows stay as they were.
    """
    heads = bench.watch("kv_head_idx", at="paged-2d-program", by=("seq_idx", "kv_head_idx"), when="thread_idx == 0")
    run = attend(bench, CASE, heads)
    cells = [(seq, head) for seq in range(2) for head in range(2)]
    bench.check("cells of the grid (sequence, KV head)", [list(k) for k in sorted(run.last("kv_head_idx"))], cells)
    rows = np.concatenate([CASE.q[:1], CASE.q[:1], CASE.q[:1], CASE.q[1:]])
    stays = bench.watch("row", "query_offset", at="paged-2d-group", after="query_offset", by=("seq_idx", "kv_head_idx"))
    mixed = attend(bench, CASE, stays, q=rows, query_start_loc=int32([0, 3, 4]))
    bench.check("sequences that go on", sorted({key[0] for key in mixed.last("row")}), [1])
    bench.check("its query rows start at", mixed.series("row"), [3 * 4 * 32, 3 * 4 * 32 + 2 * 32])
    bench.check("prefill rows are left alone", bool(np.isnan(mixed.out[0][:3]).all()), True)
    truth = oracle.attention(CASE)[1]
    bench.check("the decoding sequence's output", mixed.out[0][3], truth, tolerance=1.5e-3)


@WALKTHROUGH.step("group", title="One key, several listeners", reads=("paged-2d-signature", "paged-2d-group"))
def step_group(bench: Workbench) -> None:
    """
    Four query heads, two KV heads: two query heads share each key. The classic kernel gave every query head its own
    thread block, and each fetched the same keys again.

    Here the query heads of one KV head are the rows of one small matrix Q. A tile of keys is fetched once, and
    all rows use it. The larger the group, the more reading that saves.

    Triton's matrix product wants at least 16 rows, and powers of two. So it pads the rows and the head, and masks
    the padding. Our threads take real rows only. Where a warp must stay whole, `head_mask` returns.

    Note the arguments: every stride is one of them. Nothing about the layout is taken for granted.
    """
    query = bench.watch(
        "q", "Q[i // HEAD_SIZE, i % HEAD_SIZE]", at="paged-2d-group", after="Q[]", by=("seq_idx", "kv_head_idx", "i")
    )
    run = attend(bench, CASE, query)
    found = run.last("q")
    for seq, kv_head in ((0, 1), (1, 0)):
        rows = [value for key, value in sorted(found.items()) if key[:2] == (seq, kv_head)]
        bench.check(
            f"Q of sequence {seq}, KV head {kv_head}", rows, CASE.q[seq, 2 * kv_head : 2 * kv_head + 2].reshape(-1)
        )
    loads = bench.watch("k", "k_offset", at="paged-2d-loads", after="K[]", when="kv_load_mask")
    count = len(attend(bench, CASE, loads).readings("k"))
    bench.check("elements of K read, in all", count, (70 + 9) * 2 * 32, note="tokens x KV heads x head size: once each")


@WALKTHROUGH.step(
    "table", title="Each token asks for its own block", reads=("paged-2d-loop", "paged-2d-table", "paged-2d-tile")
)
def step_table(bench: Workbench) -> None:
    """
    The loop goes over tiles. For each token of a tile the kernel works out its logical block, and looks it up.
    All tokens at once: in Triton the look-up is a vector of loads.

    Why so many look-ups, when a tile is a block? Because it need not be. Some models come with blocks whose
    size is no power of two, and a tile must be one. Then vLLM takes tiles of 32.

    Take blocks of 48. The second tile begins at token 32. Its first half lies in the first block, its second
    half in the next one, which may be anywhere. The look-up by token does not mind.

    vLLM lets tiles grow larger. Ours stop at 32 tokens: they have one lane a token, and live in shared memory.
    """
    by = ("abs_token_idx",)
    only = "seq_idx == 0 and kv_head_idx == 0 and abs_token_idx < seq_len"
    physical = bench.watch("physical", at="paged-2d-table", after="p_block_idx[]", by=by, when=only)
    run = attend(bench, CASE, physical)
    bench.check("blocks of 16: look-ups", run.series("physical"), np.repeat(CASE.block_tables[0], 16)[:70])
    odd = cases.decode_case((70,), 2, 1, 32, 48, "float16", seed=22)
    tiles = bench.watch("num_blocks", at="paged-2d-loop", after="num_blocks", when="thread_idx == 0")
    run = attend(bench, odd, physical, tiles)
    bench.check("blocks of 48: look-ups", run.series("physical"), np.repeat(odd.block_tables[0], 48)[:70])
    bench.check("blocks of 48: tiles", run.series("num_blocks"), [3], note="70 tokens in tiles of 32")
    second = run.series("physical")[32:64]
    bench.check("blocks in the second tile", len(set(second)), 2)
    bench.check("output", run.out[0], oracle_2d.attention(odd), tolerance=1.5e-3)


@WALKTHROUGH.step(
    "k-address", title="The same shelf, five strides", reads=("paged-2d-layouts", "paged-2d-k", "paged-2d-v")
)
def step_k_address(bench: Workbench) -> None:
    """
    This kernel keeps the classic layout: K with x innermost, V with the tokens innermost. The address is the
    same postal address as before. Block, KV head, piece of 16 bytes, token, place in the piece. Each term has
    its stride.

    V has four: block, KV head, element, token.

    Because the strides are arguments, the same lines also serve FlashAttention's rows: one piece as wide as the head,
    and steps from the other layout. That is how our stand-in read them a few steps ago.

    The check asks NumPy where each element lies, for every token of a sequence.
    """
    by = ("start_n + offs_n", "offs_d")
    when = "seq_idx == 0 and kv_head_idx == 1 and kv_load_mask"
    k = bench.watch("k_offset", at="paged-2d-k", after="k_offset", by=by, when=when)
    v = bench.watch("v_offset", at="paged-2d-v", after="v_offset", by=by, when=when)
    run = attend(bench, CASE, k, v)
    places = np.arange(CASE.k_cache.size).reshape(CASE.k_cache.shape)
    table = CASE.block_tables[0]
    expected = [places[table[t // 16], 1, d // 8, t % 16, d % 8] for t in range(70) for d in range(32)]
    bench.check("addresses of K", run.series("k_offset"), expected)
    places = np.arange(CASE.v_cache.size).reshape(CASE.v_cache.shape)
    expected = [places[table[t // 16], 1, d, t % 16] for t in range(70) for d in range(32)]
    bench.check("addresses of V", run.series("v_offset"), expected)


@WALKTHROUGH.step("tail", title="The tail is never loaded", reads=("paged-2d-tail-mask", "paged-2d-loads"))
def step_tail(bench: Workbench) -> None:
    """
    Behind the last token lie places that nobody has written. They may hold NaN. A score can be masked, but a value
    cannot: its weight is zero, and zero times NaN is NaN.

    The classic kernel loaded the tail of V and then zeroed it. This kernel does not load it at all: the mask stands
    in the load, and zero is what a masked load gives. For K and for V.

    Release 0.24.0 had no such mask here; the kernel trusted the scores alone. 0.25.0 put it in [L1-36].

    Seventy tokens end six places into the fifth tile. We look at that tile: six columns of keys, ten of zeros.
    """
    by = ("start_n + offs_n", "offs_d")
    when = "seq_idx == 0 and kv_head_idx == 0 and j == 4"
    k = bench.watch("k", "K[offs_d, offs_n]", at="paged-2d-loads", after="K[]", by=by, when=when)
    v = bench.watch("v", "V[offs_n, offs_d]", at="paged-2d-loads", after="V[]", by=by, when=when)
    run = attend(bench, CASE, k, v)
    for name, rows in (("k", CASE.keys[0]), ("v", CASE.values[0])):
        tile = np.reshape(run.series(name), (16, 32))
        bench.check(f"{name.upper()}: tokens 64 to 69", tile[:6], rows[64:, 0])
        bench.check(f"{name.upper()}: ten tokens behind the end", tile[6:], np.zeros((10, 32)))
    last = CASE.block_tables[0, 4]
    bench.check("what lies there in the cache", bool(np.isnan(CASE.v_cache[last, 0, :, 6:]).all()), True, note="NaN")
    bench.check("NaNs in the output", int(np.isnan(run.out[0]).sum()), 0)


@WALKTHROUGH.step("scores", title="A tile of scores", reads=("paged-2d-qk",))
def step_scores(bench: Workbench) -> None:
    """
    Q times K: two rows of query, sixteen columns of keys, thirty-two scores. In Triton it is one `dot`. In the port
    each thread owns one score: its row is a query head, its lane a token. No score waits for another thread.

    The products are added up in float32. Then comes the scale.

    Behind the end the score becomes **minus infinity**. The classic kernel stored zero there and kept the token out of
    the maximum. Here minus infinity does both: it never wins a maximum, and its exponential is zero.
    """
    score = bench.watch("S", at="paged-2d-qk", after="S", by=("seq_idx", HEAD, "seq_offset"), when="head_mask")
    found = attend(bench, CASE, score).last("S")
    for seq, head in ((0, 3), (1, 0)):
        row = [value for key, value in sorted(found.items()) if key[:2] == (seq, head)]
        length = int(CASE.seq_lens[seq])
        expected = oracle.logits(CASE, seq, head)
        bench.check(f"scores of sequence {seq}, head {head}", row[:length], expected, tolerance=SCORE)
        bench.check(f"sequence {seq}: behind the end", row[length:], [-np.inf] * (-length % 16))


@WALKTHROUGH.step("alibi", title="The same bias, the same offset", reads=("alibi",))
def step_alibi(bench: Workbench) -> None:
    """
    ALiBi again: slope × (position − last position). The kernel calls the last position the context length: it
    is the length minus one. It is the same number as before: zero for the newest token.

    It is added after the mask. Minus infinity plus a bias is still minus infinity.
    """
    case = cases.decode_case((20,), 4, 2, 32, 16, "float16", seed=23, alibi=True)
    score = bench.watch("S", at="alibi", by=(HEAD, "seq_offset"), when="head_mask and seq_offset < seq_len")
    found = attend(bench, case, score).last("S")
    for head in (0, 3):
        row = [value for key, value in sorted(found.items()) if key[0] == head]
        bench.check(f"scores of head {head}", row, oracle.logits(case, 0, head), tolerance=2e-5)
    plain = cases.DecodeCase(**{**vars(case), "alibi_slopes": None})
    without = attend(bench, plain, score).last("S")
    bench.check("bias of the newest token", [found[h, 19] - without[h, 19] for h in range(4)], [0.0] * 4)


@WALKTHROUGH.step("window", title="A window made of scores", reads=("paged-2d-window",))
def step_window(bench: Workbench) -> None:
    """
    Some models let a token see only the last W tokens, itself included. How does the kernel hide the others?
    It gives them a score of **−10,000**. Not minus infinity.

    See what follows for 70 tokens and a window of 20. The first three tiles hold nothing but hidden tokens.
    Their largest score is −10,000, so each gets exp(0) = 1. For a while the sum is 16, 32, 48: pure nonsense.

    Then the first real score `s` arrives. The factor exp(−10,000 − `s`) is zero, and the nonsense is gone.

    The loop does not skip those tiles. They are read, multiplied and thrown away.
    """
    case = CASE
    score = bench.watch("S", at="paged-2d-window", by=(HEAD, "seq_offset"), when="seq_idx == 0 and head_mask")
    sums = bench.watch(
        "L", "L[r]", at="paged-2d-rescale", part=0, by=(HEAD, "j"), when="seq_idx == 0 and head_mask and offs_n == 0"
    )
    run = attend(bench, case, score, sums, sliding_window=20)
    row = [value for key, value in sorted(run.last("S").items()) if key[0] == 1][:70]
    bench.check("scores", row, oracle_2d.scores(case, 0, 1, 20), tolerance=SCORE)
    bench.check("hidden tokens", int(np.sum(np.array(row) == -10000)), 50)
    found = [value for key, value in sorted(run.last("L").items()) if key[0] == 1]
    bench.check("sums after three tiles of nonsense", found[:3], [16, 32, 48])
    expected = [state.l for state in oracle_2d.states(case, 0, 1, 16, 20)]
    bench.check("sums after all five", found, expected, tolerance=1e-5)
    bench.check("output", run.out[0], oracle_2d.attention(case, 20), tolerance=1.5e-3)
