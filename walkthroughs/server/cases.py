"""What a run with changed parameters does: a fresh case for the kernel that a step reads, held against the oracle.

A function for each kernel, with the form of a step: it is handed a workbench, launches the port and checks what it saw,
from the blocks that were walked to the output. `offers` says which values each of them may get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernels import cases, oracle, oracle_2d, oracle_flash, oracle_tiny, oracle_v2
from kernels.cases import DecodeCase, WriteCase
from kernels.cases_flash import flash_case
from kernels.probe import Watch
from walkthroughs.server.bounds import DOUBLE, bounds
from walkthroughs.server.parameters import Values
from walkthroughs.workbench import Run, Workbench

FIRST = "cuda.threadIdx.x == 0"
TABLE_NOTE = "sequence after sequence, in the order of the table"
EXACT_NOTE = "compared exactly, with what was never written"
BOUND_NOTE = "bound from the rounding of every operation"


def _case(values: Values, **more: Any) -> DecodeCase:
    return cases.decode_case(
        values["seq_lens"],
        values["heads"],
        more.pop("kv_heads", None) or values["kv_heads"],
        values["head_size"],
        values["block_size"],
        values["dtype"],
        values["seed"],
        values["order"],
        **more,
    )


def _rows(case: DecodeCase) -> list[tuple[int, int]]:
    return [(seq, head) for seq in range(case.num_seqs) for head in range(case.num_heads)]


def _owned(case: DecodeCase) -> list[int]:
    """The physical blocks of every sequence, one behind the other."""
    return [block for seq in range(case.num_seqs) for block in case.blocks_of(seq)]


def _walked(run: Run, name: str) -> list[float]:
    """What a watch saw, ordered by sequence and logical block (its first two keys)."""
    found = run.last(name)
    return [found[key] for key in sorted(found)]


def classic_v1(bench: Workbench, values: Values) -> None:
    """vLLM's classic kernel: blocks, maximum, sum of exponentials, output."""
    case = _case(values)
    limit = bounds(case)
    blocks = bench.watch(
        "physical_block_number", at="block-table-walk", after="physical_block_number", by=("seq_idx", "block_idx"),
        when="lane == 0 and head_idx == 0",
    )  # fmt: skip
    top = bench.watch("qk_max", at="qk-max", by=("seq_idx", "head_idx"), when=FIRST)
    total = bench.watch("exp_sum", at="exp-sum", by=("seq_idx", "head_idx"), when=FIRST)
    run = bench.attend(case, blocks, top, total)
    sums = [oracle.exp_sum(case, *row) for row in _rows(case)]
    bench.check("physical blocks walked", _walked(run, "physical_block_number"), _owned(case), note=TABLE_NOTE)
    bench.check("largest score of each row", run.series("qk_max"), [oracle.qk_max(case, *row) for row in _rows(case)],
                tolerance=limit.score, note=BOUND_NOTE)  # fmt: skip
    bench.check("sum of exponentials of each row", run.series("exp_sum"), sums, tolerance=limit.share * max(sums),
                note=BOUND_NOTE)  # fmt: skip
    bench.check("output", run.out[0], oracle.attention(case, oracle.KERNEL_EPSILON), tolerance=limit.output,
                note=BOUND_NOTE)  # fmt: skip


def classic_v2(bench: Workbench, values: Values) -> None:
    """The classic kernel in partitions: blocks, each partition's maximum and sum, the merged output."""
    from kernels.vllm import classic_v2 as port

    case, size = _case(values), values["partition_size"]
    limit = bounds(case)
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    notes = port.buffers(case.num_seqs, case.num_heads, case.head_size, case.max_seq_len, case.q.dtype, size)

    def launch(entry: Any) -> None:
        port.paged_attention_v2(
            out, *notes, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale, case.block_tables,
            case.seq_lens, case.block_size, case.max_seq_len, backend=bench.backend, entry=entry, partition_size=size,
            reduce_entry=bench.bench.entry(port.paged_attention_v2_reduce_kernel),
        )  # fmt: skip

    blocks = bench.watch(
        "physical_block_number", at="block-table-walk", after="physical_block_number", by=("seq_idx", "block_idx"),
        when="lane == 0 and head_idx == 0",
    )  # fmt: skip
    run = bench.launch(port.paged_attention_v2_kernel, (blocks,), launch, (out, *notes), seed=case.seed)
    bench.check("physical blocks walked", _walked(run, "physical_block_number"), _owned(case), note=TABLE_NOTE)
    tops = np.concatenate([oracle_v2.maxima(case, *row, size) for row in _rows(case)])
    sums = np.concatenate([oracle_v2.sums(case, *row, size) for row in _rows(case)])
    # A partition that a sequence does not have keeps its NaN.
    made = np.concatenate(
        [np.arange(notes[0].shape[2]) < len(oracle_v2.maxima(case, *row, size)) for row in _rows(case)]
    )
    bench.check("largest score of each partition", notes[1].reshape(-1)[made], tops, tolerance=limit.score,
                note=BOUND_NOTE)  # fmt: skip
    bench.check("sum of exponentials of each partition", notes[0].reshape(-1)[made], sums,
                tolerance=limit.share * float(sums.max()), note=BOUND_NOTE)  # fmt: skip
    bench.check("partitions that no sequence has", bool(np.isnan(notes[0].reshape(-1)[~made]).all()), True)
    bench.check("output", out, oracle_v2.attention(case, size), tolerance=limit.output, note=BOUND_NOTE)


def paged_2d(bench: Workbench, values: Values) -> None:
    """The kernel that vLLM runs today: blocks, maximum and sum after each tile, output."""
    from kernels.vllm import paged_2d as port

    case, window = _case(values), values["window"]
    limit, tile = bounds(case, window), port.tile_size(values["block_size"])
    out = np.full_like(case.q, np.nan)
    row = ("seq_idx", "first_query_head + query_row", "j")
    leader = "head_mask and offs_n == 0"
    physical = bench.watch(
        "physical", at="paged-2d-table", after="p_block_idx[]", by=("seq_idx", "abs_token_idx"),
        when="kv_head_idx == 0 and abs_token_idx < seq_len",
    )  # fmt: skip
    top = bench.watch("m_j", at="paged-2d-max", by=row, when=leader)
    total = bench.watch("L", "L[r]", at="paged-2d-rescale", part=0, by=row, when=leader)

    def launch(entry: Any) -> None:
        port.paged_attention_2d(
            out, case.q, case.k_cache, case.v_cache, case.block_tables, case.seq_lens, sm_scale=case.scale,
            sliding_window=window, backend=bench.backend, entry=entry,
        )  # fmt: skip

    run = bench.launch(port.kernel_paged_attention_2d, (physical, top, total), launch, (out,), seed=case.seed)
    looked = [
        case.block_tables[seq, token // case.block_size] for seq, n in enumerate(case.seq_lens) for token in range(n)
    ]
    states = [state for cell in _rows(case) for state in oracle_2d.states(case, *cell, tile, window)]
    sums = [state.l for state in states]
    bench.check("physical block of each token", _walked(run, "physical"), looked, note=TABLE_NOTE)
    bench.check("largest score after each tile", run.series("m_j"), [state.m for state in states],
                tolerance=limit.score, note=BOUND_NOTE)  # fmt: skip
    bench.check("sum of exponentials after each tile", run.series("L"), sums, tolerance=limit.share * max(sums),
                note=BOUND_NOTE)  # fmt: skip
    bench.check("output", out, oracle_2d.attention(case, window), tolerance=limit.output, note=BOUND_NOTE)


def tiny_paged(bench: Workbench, values: Values) -> None:
    """tiny-vllm's kernel, repaired."""
    from kernels.tiny_vllm import paged

    def launch(*args: Any, entry: Any) -> None:
        paged.tiny_attention(*args, repaired=True, backend=bench.backend, entry=entry)

    _tiny(bench, values, paged.tiny_attention_kernel, launch)


def tiny_general(bench: Workbench, values: Values) -> None:
    """The general form of tiny-vllm's kernel."""
    from kernels.tiny_vllm import general

    def launch(*args: Any, entry: Any) -> None:
        general.general_attention(*args, backend=bench.backend, entry=entry)

    _tiny(bench, values, general.general_attention_kernel, launch)


def _tiny(bench: Workbench, values: Values, kernel: Any, attend: Callable[..., None]) -> None:
    from kernels.tiny_vllm.attention import cache_of

    case = _case(values, kv_heads=values["heads"] // 4)
    limit = bounds(case)
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    active = np.arange(case.num_seqs, dtype=np.int32)
    by = ("active_slot", "logical_block_idx")
    running = ("active_slot", "q_head_id", "logical_block_idx", "token")
    blocks = bench.watch("physical_block", at="block-table-lookup", after="physical_block", by=by,
                         when="thread_id == 0 and q_head_id == 0")  # fmt: skip
    top = bench.watch("m", "current_max", at="online-softmax", after="current_max", by=running, when="thread_id == 0")
    total = bench.watch("d", at="online-softmax", after="d", by=running, when="thread_id == 0")
    args = (0, case.num_seqs, case.q, cache_of(case), case.block_tables[:, None].copy(), case.seq_lens, active, out)
    run = bench.launch(kernel, (blocks, top, total), lambda entry: attend(*args, entry=entry), (out,), seed=case.seed)
    states = [oracle_tiny.running(oracle.logits(case, *row), np.zeros((int(case.seq_lens[row[0]]), 1)))
              for row in _rows(case)]  # fmt: skip
    tops, sums = (np.concatenate([state[part] for state in states]) for part in (0, 1))
    bench.check("physical blocks walked", _walked(run, "physical_block"), _owned(case), note=TABLE_NOTE)
    bench.check("largest score after each token", run.series("m"), tops, tolerance=limit.score, note=BOUND_NOTE)
    bench.check("sum of exponentials after each token", run.series("d"), sums,
                tolerance=limit.share * float(sums.max()), note=BOUND_NOTE)  # fmt: skip
    bench.check("output", out, oracle.attention(case), tolerance=limit.output, note=BOUND_NOTE)


def gather(bench: Workbench, values: Values) -> None:
    """The small kernel of one thread, in float64."""
    case = cases.decode_case(
        [values["seq_len"]], 1, 1, values["head_size"], values["block_size"], "float64", values["seed"], values["order"]
    )
    limit = bounds(case, unit=DOUBLE)
    bench.seed = case.seed
    pools = cases.unpack_keys(case.k_cache)[:, :, 0].copy(), cases.unpack_values(case.v_cache)[:, :, 0].copy()
    blocks = bench.watch("physical_block_number", at="gather-lookup", after="physical_block_number", by=("block_idx",))
    top = bench.watch("m", at="online-softmax", after="m", by=("token_idx",))
    total = bench.watch("l", at="online-softmax", after="l", by=("token_idx",))
    run = bench.gather(case.q[0, 0], pools, case.block_tables[0], case.max_seq_len, case.scale, blocks, top, total)
    tops, sums, _ = oracle_tiny.running(oracle.logits(case, 0, 0), case.values[0][:, 0])
    bench.check("physical blocks walked", run.series("physical_block_number"), _owned(case), note=TABLE_NOTE)
    bench.check("m after each token", run.series("m"), tops, tolerance=limit.score, note=BOUND_NOTE)
    bench.check("l after each token", run.series("l"), sums, tolerance=limit.share * float(sums.max()), note=BOUND_NOTE)
    bench.check("output", run.out[0], oracle.output(case, 0, 0), tolerance=limit.output, note=BOUND_NOTE)


def reshape_and_cache(bench: Workbench, values: Values) -> None:
    """The classic layout's writer: who passes the guard, block and offset of each token, both caches."""
    case = _write_case(values)
    _check_write(bench, case, *_slot_watches(bench), write=lambda *watches: bench.write(case, *watches))


def reshape_and_cache_fixed(bench: Workbench, values: Values) -> None:
    """The same with the stride loop, so that no head stays unwritten."""
    from kernels.vllm import cache_fixed

    case = _write_case(values)
    caches = case.k_cache.copy(), case.v_cache.copy()

    def write(*watches: Watch) -> Run:
        return bench.launch(
            cache_fixed.reshape_and_cache_fixed_kernel,
            watches,
            lambda entry: cache_fixed.reshape_and_cache_fixed(
                case.key, case.value, *caches, case.slot_mapping, backend=bench.backend, entry=entry
            ),
            caches,
            seed=case.seed,
        )

    _check_write(bench, case, *_slot_watches(bench), write=write)


def _write_case(values: Values) -> WriteCase:
    return cases.write_case(
        values["tokens"], values["heads"], values["head_size"], values["block_size"], values["dtype"], values["seed"],
        values["order"], padding=values["padding"],
    )  # fmt: skip


def _slot_watches(bench: Workbench, at: str = "slot-split") -> tuple[Watch, Watch]:
    # The first place with the region: the port's own file, before those that it imports.
    block, offset = (
        bench.watch(name, at=at, after=name, by=("token_idx",), when=FIRST, part=0)
        for name in ("block_idx", "block_offset")
    )
    return block, offset


def _check_slots(bench: Workbench, run: Run, mapping: Any, num_blocks: int, block_size: int) -> None:
    """The guard and the split of every slot, against a walk along the street of blocks."""
    street = [(block, offset) for block in range(num_blocks) for offset in range(block_size)]
    real = [(token, street[slot]) for token, slot in enumerate(mapping) if slot >= 0]
    bench.check("tokens that pass the guard", sorted(key[0] for key in run.last("block_idx")), [t for t, _ in real])
    bench.check("block of each token", run.series("block_idx"), [block for _, (block, _) in real])
    bench.check("offset of each token", run.series("block_offset"), [offset for _, (_, offset) in real])


def _check_write(bench: Workbench, case: WriteCase, *watches: Watch, write: Callable[..., Run]) -> None:
    run = write(*watches)
    _check_slots(bench, run, case.slot_mapping, case.num_blocks, case.block_size)
    keys, values = oracle.written_caches(case)
    bench.check("key cache", run.out[0], keys, note=EXACT_NOTE)
    bench.check("value cache", run.out[1], values, note=EXACT_NOTE)


def reshape_and_cache_flash(bench: Workbench, values: Values) -> None:
    """The FlashAttention layout's writer, in any memory order."""
    from kernels.vllm import cache_flash

    case = flash_case(
        values["tokens"], values["heads"], values["head_size"], values["block_size"], values["dtype"], values["seed"],
        memory=values["memory"], form=values["form"], padding=values["padding"],
    )  # fmt: skip
    whole, keys, wanted = case.caches()

    def launch(entry: Any) -> None:
        cache_flash.reshape_and_cache_flash(
            case.key, case.value, keys, wanted, case.slot_mapping, backend=bench.backend, entry=entry
        )

    watches = _slot_watches(bench, "flash-slot")
    run = bench.launch(cache_flash.reshape_and_cache_flash_kernel, watches, launch, (whole,), seed=case.seed)
    _check_slots(bench, run, case.slot_mapping, case.num_blocks, case.block_size)
    bench.check("whole cache", whole, oracle_flash.written(case)[0], note=EXACT_NOTE)


RUNS: Mapping[str, Callable[[Workbench, Values], None]] = {
    "classic_v1": classic_v1,
    "classic_v2": classic_v2,
    "paged_2d": paged_2d,
    "tiny_paged": tiny_paged,
    "tiny_general": tiny_general,
    "gather": gather,
    "reshape_and_cache": reshape_and_cache,
    "reshape_and_cache_fixed": reshape_and_cache_fixed,
    "reshape_and_cache_flash": reshape_and_cache_flash,
}
"""What `Offer.run` names."""
