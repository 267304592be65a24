"""tiny-vllm, part 1: the memory. Blocks, the table of three parts, the list of free blocks, and the writes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import cases, oracle, oracle_tiny
from kernels.kernel import Backend, Kernel
from kernels.probe import Watch, delayed
from kernels.tiny_vllm import paged, scatter
from kernels.tiny_vllm.attention import cache_of
from kernels.tiny_vllm.block_table import Blocks
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Run, Workbench

ORDER = 5
WALKTHROUGH = Walkthrough(
    id="tiny-vllm",
    title="tiny-vllm: paged attention in a few hundred lines",
    intro="""
tiny-vllm serves one model, Llama-3.2-1B, with one file for the host and one for the kernels [L2-06]. It has
everything that paging needs: blocks, a block table, a list of free blocks, a writer and a reader. It is the
best place to see all of them at once.

Whoever only reads it leaves some questions open [L2-54]. Does the index of the block table work at run time
[tiny-vllm/table-index]? What happens at other head sizes [tiny-vllm/head-size]? Is it safe to write the output
over the query [tiny-vllm/in-place]? What does it cost to copy the table so often [tiny-vllm/table-copies]? The
steps answer them all by running the code. On the way they meet a missing barrier [tiny-vllm/race].

First the memory, then the kernel in its own order, then the life of a block. The case, unless a step says
otherwise: two sequences of 37 and 19 tokens, 4 query heads on 1 KV head of 64, float32, unused places NaN
[tiny-vllm/score].
""",
    source="tiny-vllm@e25bf19",
    port="kernels/tiny_vllm/paged.py",
)
SCATTER, TABLE = "kernels/tiny_vllm/scatter.py", "kernels/tiny_vllm/block_table.py"
CASE = cases.decode_case((37, 19), 4, 1, 64, 16, seed=20, garbage="minus-one")
SINGLE = 3e-6
NAP = 20_000


def numbers(*values: int) -> npt.NDArray[np.int32]:
    """Some 32-bit integers, as the kernels take them."""
    return np.array(values, np.int32)


def table_of(case: cases.DecodeCase, slots: npt.NDArray[np.int32], layer: int, layers: int) -> npt.NDArray[np.int32]:
    """A table in which only the slots and the layer of the case have blocks: [slots, layers, blocks]."""
    table = np.full((int(slots.max()) + 1, layers, case.block_tables.shape[1]), -1, np.int32)
    table[slots, layer] = case.block_tables
    return table


def attend(
    bench: Workbench,
    case: cases.DecodeCase,
    *watches: Watch,
    slots: tuple[int, ...] | None = None,
    layer: int = 1,
    layers: int = 2,
    in_place: bool = False,
    schedule: str | None = None,
    sleepy: int | None = None,
    **options: Any,
) -> Run:
    """Launch tiny-vllm's kernel, repaired unless told otherwise. `out[0]`: [sequences, heads, head size].

    `schedule`: an order of the SIMT machine, instead of the bench's; where that is given, `sleepy` is the warp that
    naps on a GPU.
    """
    active = numbers(*range(case.num_seqs)) if slots is None else numbers(*slots)
    q = case.q.copy()
    out = q if in_place else np.full(case.q.shape, np.nan, case.q.dtype)
    table = table_of(case, active, layer, layers)

    def launch(entry: Any, backend: Backend = bench.backend) -> None:
        paged.tiny_attention(
            layer, case.num_seqs, q, cache_of(case), table, case.seq_lens, active, out,
            backend=backend, entry=entry, **{"repaired": True, **options},
        )  # fmt: skip

    if schedule is None:
        return bench.launch(paged.tiny_attention_kernel, watches, launch, (out,), seed=case.seed)
    # The step says who is late, so nobody else may: the bench's own delay is left out.
    kernel = dict(bench.bench.kernels).get(paged.tiny_attention_kernel.name, paged.tiny_attention_kernel)
    if bench.backend.name == "sim":
        launch(kernel, Backend("sim", schedule))
    else:
        launch(kernel if sleepy is None else napping(kernel.fn, kernel.constexpr, sleepy))
    return Run((out,), None)


@cache
def napping(fn: Any, constexpr: Any, warp: int) -> Kernel:
    """The kernel with one warp that naps before every statement; made, and compiled, once."""
    return delayed(Kernel(fn, constexpr), warp, NAP)


def write_prompt(bench: Workbench, state: Blocks, slot: int, layer: int, rows: tuple[Any, Any], cache: Any) -> Run:
    """Write a prompt's keys and values, on the bench. `out[0]`: the cache."""

    def launch(entry: Any) -> None:
        scatter.write_prefill(state, slot, layer, *rows, cache, backend=bench.backend, entry=entry)

    return bench.launch(scatter.write_prefill_kernel, (), launch, (cache,))


def write_token(bench: Workbench, state: Blocks, who: list[int], where: list[int], rows: tuple[Any, Any], cache: Any,
                layer: int = 0) -> Run:  # fmt: skip
    """Write one token of each sequence in `who` at the positions `where`, on the bench. `out[0]`: the cache."""

    def launch(entry: Any) -> None:
        scatter.write_decode(state, who, where, layer, *rows, cache, backend=bench.backend, entry=entry)

    return bench.launch(scatter.write_decode_kernel, (), launch, (cache,))


def starts(bench: Workbench, blocks: npt.NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """The first byte of each block, in 32 bits and in 64, as the port computes it."""
    short, wide = np.zeros(len(blocks), np.int64), np.zeros(len(blocks), np.int64)
    bench.launch(
        paged.block_starts_kernel, (),
        lambda entry: paged.block_starts(blocks, short, wide, backend=bench.backend, entry=entry), (short, wide),
    )  # fmt: skip
    return short.tolist(), wide.tolist()


def rows_of(count: int, heads: int, head_size: int, seed: int) -> tuple[Any, Any]:
    """Random keys and values, float16: each [tokens, KV heads, head size]."""
    rng = np.random.default_rng(seed)
    key, value = (rng.standard_normal((count, heads, head_size)).astype(np.float16) for _ in range(2))
    return key, value


@WALKTHROUGH.step("block", title="One block, to the byte", reads=("tiny-layout",), port=SCATTER)
def step_block(bench: Workbench) -> None:
    """
    A block is a sheet of paper with 16 lines for keys and, below them, 16 lines for values. One line is one
    token.

    How long is a line? Llama-3.2-1B has 8 KV heads of 64 numbers: 512 numbers of 2 bytes, 1,024 bytes. Sixteen
    lines of keys take 16,384 bytes. The values begin right there: that distance is called `V_OFFSET`. The whole
    sheet has 32,768 bytes.

    A cache of 2 GiB holds 65,536 such sheets. The longest sequence has 128 of them, in each layer [L2-02].

    We write 16 tokens of the real size and look where they went.
    """
    key, value = rows_of(16, 8, 64, seed=21)
    cache = np.full((2, 2, 16, 8, 64), np.nan, np.float16)
    write_prompt(bench, Blocks(num_blocks=2, slots=1, layers=1), 0, 0, (key, value), cache)
    flat = cache.reshape(-1)
    first = int(np.flatnonzero(~np.isnan(flat))[0])
    bench.check("bytes of one token's keys", key[0].nbytes, 1_024)
    bench.check("first byte that was written", first * 2, 32_768, note="block 1: the last one is taken first")
    found = flat[first : first + 8192].reshape(16, 512)
    bench.check("keys, one line a token", found, key.reshape(16, 512))
    at = 16 * 8 * 64
    bench.check("values, 16,384 bytes behind", flat[first + at : first + 2 * at], value.reshape(-1))
    bench.check("bytes in all", int((~np.isnan(flat)).sum()) * 2, 32_768)
    bench.check("blocks in 2 GiB", 2**31 // (2 * key.nbytes), 65_536)


@WALKTHROUGH.step("constants-twice", title="The same constants, twice", reads=("tiny-layout", "tiny-launch"))
def step_constants_twice(bench: Workbench) -> None:
    """
    The block size and its relatives stand in `main.cpp`, where blocks are written. They stand once more in
    `kernels.cu`, where blocks are read. A remark beside them wonders whether to share them.

    They are defined twice, and nothing holds one against the other [L2-06]. Suppose somebody changes one of
    them. Nothing fails. The kernel just reads elsewhere.

    Try it. The writer uses blocks of 16, the kernel believes in blocks of 8. Then `V_OFFSET` is half as large,
    and where the kernel looks for the values there lie the *keys* of later tokens. The answer has the right
    shape and no NaN. It is the mean of eight keys.
    """
    case = cases.decode_case((16,), 4, 1, 64, 16, seed=22, order="identity", spare_blocks=0)
    short = cases.DecodeCase(**{**case.__dict__, "seq_lens": numbers(8)})
    run = attend(bench, short, block_size=8)
    keys = case.keys[0][:, 0].astype(np.float64)
    scores = case.q[0].astype(np.float64) @ keys[:8].T / 8
    expected = [oracle_tiny.mean(row, keys[8:]) for row in scores]
    bench.check("kernel with blocks of 8: a mean of keys", run.out[0][0], expected, tolerance=SINGLE)
    sound = attend(bench, case)
    bench.check("kernel with blocks of 16", sound.out[0], oracle.attention(case), tolerance=SINGLE)
    ours = {name: getattr(paged, name) for name in ("KV_DIM", "BLOCK_SIZE", "V_OFFSET", "BLOCK_BYTES", "N_LAYERS")}
    bench.check("the kernel's constants", list(ours.values()), [512, 16, 16_384, 32_768, 16])


@WALKTHROUGH.step("table-index", title="Three numbers, one entry", reads=("block-table-walk",))
def step_table_index(bench: Workbench) -> None:
    """
    Think of a filing cabinet. Two drawers, one for each slot. In a drawer 16 folders, one for each layer. In a
    folder 128 cards, one for each logical block. In memory it is just one long row of 4,096 cards.

    Skip whole drawers, then whole folders, then cards: slot × 16 × 128 + layer × 128 + logical block. Host and
    kernel use the same formula.

    Whether it works at run time was left open. So we ask for **every** card: 2 × 16 × 128 threads, each with its
    own three numbers. The table holds 4,096 different block numbers, so that a card that is taken for another
    one shows. None is.
    """
    rng = np.random.default_rng(23)
    table = rng.permutation(65_536)[:4096].astype(np.int32).reshape(2, 16, 128)
    found, places = np.full_like(table, -9), np.full_like(table, -9)
    bench.launch(
        paged.walk_table_kernel, (),
        lambda entry: paged.walk_table(table, found, places, backend=bench.backend, entry=entry), (found, places),
        seed=23,
    )  # fmt: skip
    bench.check("entries read", found.size, 4_096)
    bench.check("entries that differ from NumPy's", int((found != table).sum()), 0)
    bench.check("places, in the order of slot, layer, block", places.reshape(-1), np.arange(4096))
    by = ("slot", "logical_block_idx")
    block = bench.watch("physical_block", at="block-table-walk", after="physical_block", by=by)
    run = attend(bench, CASE, block, slots=(1, 0), layer=2, layers=3)
    rows = [[1, n] for n in range(3)], [[0, n] for n in range(2)]
    wanted = {tuple(key): CASE.block_tables[seq, key[1]] for seq in (0, 1) for key in rows[seq]}
    bench.check(
        "blocks that the attention kernel finds", run.series("physical_block"), [wanted[key] for key in sorted(wanted)]
    )


@WALKTHROUGH.step("free-list", title="The last block goes first", reads=("tiny-pool",), port=TABLE)
def step_free_list(bench: Workbench) -> None:
    """
    Free blocks are a stack of cards, numbered 0 to 65,535. A block is taken from the top, and the top is the
    *end* of the list. So the first block that anyone ever gets is number 65,535.

    That is cheap, and it means that a block which was just returned is the next to be used.

    Each layer of each sequence takes blocks of its own: with a prompt of 17 tokens, two blocks a layer, 32 in
    all. In vLLM one number counts for all layers of a group, and each layer has a cache of its own [L2-13].

    The slots can never hold more than 2 × 16 × 128 = 4,096 blocks [L2-12]. Of 65,536, that is one in sixteen
    [L2-49]. Most of the cache is never touched.
    """
    state = Blocks()
    bench.check("entries of the table, all -1", [state.table.size, int(state.table.max())], [4_096, -1])
    for layer in range(16):
        state.prefill_layer(0, layer, 17)
    taken = [number for number in state.table.reshape(-1) if number != -1]
    bench.check("blocks of a prompt of 17 tokens", taken, list(range(65_535, 65_535 - 32, -1)))
    bench.check("blocks still free", len(state.free_blocks), 65_536 - 32)
    bench.check("next to be taken", state.free_blocks[-1], 65_503)
    key, value = rows_of(17, 1, 64, seed=24)
    cache = np.full((4, 2, 16, 1, 64), np.nan, np.float16)
    small = Blocks(num_blocks=4, slots=1, layers=1)

    def launch(entry: Any) -> None:
        scatter.write_prefill(small, 0, 0, key, value, cache, backend=bench.backend, entry=entry)

    bench.launch(scatter.write_prefill_kernel, (), launch, (cache,), seed=24)
    touched = [block for block in range(4) if not np.isnan(cache[block]).all()]
    bench.check("of four blocks, those that a kernel wrote", touched, [2, 3])
    bench.check("token 0 lies in the last of them", cache[3, 0, 0, 0], key[0, 0])
    bench.check("token 16 lies in the one before", cache[2, 0, 0, 0], key[16, 0])


@WALKTHROUGH.step("write-prefill", title="A prompt moves in", reads=("tiny-write-prefill",), port=SCATTER)
def step_write_prefill(bench: Workbench) -> None:
    """
    A prompt has all its keys at once, one row a token. The loop takes 16 rows at a time. It pops a block, notes
    its number in the table, and copies the rows.

    Within a block the tokens lie one behind the other, just as they lie before the copy. So one copy does for
    all keys of a block and one for its values. vLLM's classic layout has no such luck: there a key is cut into
    pieces.

    The last piece is shorter. With 37 tokens the third block gets five, and the rest of it stays as it was.

    If the table has a block already, an assertion fires. A build without assertions would write on into that
    block.
    """
    key, value = rows_of(37, 1, 64, seed=25)
    state = Blocks(num_blocks=8, slots=2, layers=2)
    cache = np.full((8, 2, 16, 1, 64), np.nan, np.float16)
    copied = bench.watch("tokens", "num_tokens_to_copy", at="tiny-write-prefill", after="num_tokens_to_copy",
                         by=("token_idx",), when="cuda.threadIdx.x == 0", part=0)  # fmt: skip

    def launch(entry: Any) -> None:
        scatter.write_prefill(state, 1, 0, key, value, cache, backend=bench.backend, entry=entry)

    run = bench.launch(scatter.write_prefill_kernel, (copied,), launch, (cache,), seed=25)
    bench.check("tokens copied into each block", run.series("tokens"), [16, 16, 5])
    blocks = [int(number) for number in state.table[1, 0, :3]]
    bench.check("entries of slot 1, layer 0", blocks, [7, 6, 5])
    rows = [np.concatenate([cache[block, part] for block in blocks]) for part in (0, 1)]
    bench.check("keys, in the order of the text", rows[0][:37], key)
    bench.check("values", rows[1][:37], value)
    bench.check("places of block 5 that stay NaN", int(np.isnan(cache[5]).sum()), 2 * 11 * 64)
    bench.check("other blocks stay NaN", bool(np.isnan(cache[:5]).all()), True)


@WALKTHROUGH.step("write-decode", title="One more token", reads=("tiny-write-decode",), port=SCATTER)
def step_write_decode(bench: Workbench) -> None:
    """
    Every decode step adds one token to each running sequence. Divide its position by 16: the quotient is the
    logical block, the remainder is the line on the sheet.

    A new block is taken only when the remainder is 0. The code does not look at the old entry then. Nor need it:
    in all paths that can be taken, there is none.

    The write comes *before* the attention of the same layer. So the new token sees itself, and the length that
    the kernel is told is one more than the number of tokens before.

    Mind the names. In this loop `slot` counts the running sequences and `active_slot` is the slot. In the kernel
    it is just the other way round.
    """
    state = Blocks(num_blocks=8, slots=2, layers=1)
    cache = np.full((8, 2, 16, 1, 64), np.nan, np.float16)
    state.prefill_layer(0, 0, 14)
    state.prefill_layer(1, 0, 3)
    key, value = rows_of(8, 1, 64, seed=26)
    taken = []
    for step in range(4):
        before = len(state.free_blocks)
        rows = (key[2 * step : 2 * step + 2], value[2 * step : 2 * step + 2])
        write_token(bench, state, [0, 1], [14 + step, 3 + step], rows, cache)
        taken.append(before - len(state.free_blocks))
    bench.check("blocks taken at positions 14, 15, 16, 17", taken, [0, 0, 1, 0])
    bench.check("table of slot 0, then of slot 1", [*state.table[0, 0, :3], *state.table[1, 0, :3]],
                [7, 5, -1, 6, -1, -1])  # fmt: skip
    mine = [cache[7, 0, 14], cache[7, 0, 15], cache[5, 0, 0], cache[5, 0, 1]]
    bench.check("keys of slot 0: rows 0, 2, 4, 6", mine, key[0::2])
    bench.check("keys of slot 1: rows 1, 3, 5, 7", cache[6, 0, 3:7], key[1::2])
    bench.check("values of slot 1: rows 1, 3, 5, 7", cache[6, 1, 3:7], value[1::2])
