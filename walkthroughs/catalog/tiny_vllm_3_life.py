"""tiny-vllm, part 3: how a block comes and goes, and what the table costs on its way to the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import cases, oracle
from kernels.errors import ArgumentError
from kernels.tiny_vllm import block_table, paged, table_copy
from kernels.tiny_vllm.block_table import Blocks, run_bookkeeping
from walkthroughs.catalog.tiny_vllm_1_memory import SINGLE, TABLE, WALKTHROUGH, numbers, write_prompt
from walkthroughs.workbench import Workbench

ORDER = 5
MICROSECONDS = "µs a decode step"


@WALKTHROUGH.step(
    "lifetime", title="A block's second life", reads=("tiny-release", "tiny-pool"), port="kernels/tiny_vllm/scatter.py"
)
def step_lifetime(bench: Workbench) -> None:
    """
    A sequence ends. Its blocks go back to the end of the list, layer by layer, and its entries become −1.

    The numbers in the blocks stay. Nobody wipes a sheet before it is used again. Is that not dangerous? Let the
    next sequence take the same block and write 5 tokens. Lines 5 to 15 still hold the old text. Its attention
    reads 5 lines, and no more.

    Two things are not checked. An empty list would be popped all the same, which C++ leaves undefined; with at
    most 4,096 of 65,536 blocks in use it does not happen [L2-49]. And an entry of −1 that reached the kernel
    would read 32,768 bytes *before* the cache [L2-50]. Our port names both.
    """
    cache = np.full((2, 2, 16, 1, 64), np.nan, np.float32)
    state = Blocks(num_blocks=2, slots=2, layers=1)
    old, new = (cases.decode_case((length,), 4, 1, 64, 16, seed=40 + length) for length in (16, 5))
    write_prompt(bench, state, 0, 0, (old.keys[0], old.values[0]), cache)
    bench.check("block of the first sequence", state.live, [1])
    bench.check("given back", state.release(0), [1])
    bench.check("list and table afterwards", [*state.free_blocks, int(state.table.max())], [0, 1, -1])
    write_prompt(bench, state, 1, 0, (new.keys[0], new.values[0]), cache)
    bench.check("block of the second sequence", state.live, [1], note="the same")
    bench.check("old keys still there, lines 5 to 15", cache[1, 0, 5:], old.keys[0][5:])
    q = new.q.copy()

    def launch(entry: Any) -> None:
        paged.tiny_attention(0, 1, q, cache, state.table, new.seq_lens, numbers(1), q, repaired=True,
                             backend=bench.backend, entry=entry)  # fmt: skip

    bench.launch(paged.tiny_attention_kernel, (), launch, (q,), seed=new.seed)
    bench.check("its attention sees five tokens", q, oracle.attention(new), tolerance=SINGLE)
    bench.check("an entry of -1", refused(state, cache, new), "block_table[0, 0, 0]")


def refused(state: Blocks, cache: Any, case: cases.DecodeCase) -> str:
    """The argument that the port refuses when a slot without blocks is launched."""
    try:
        paged.tiny_attention(0, 1, case.q, cache, state.table, case.seq_lens, numbers(0), case.q.copy())
    except ArgumentError as error:
        return str(error).split(" = ")[0]
    return "nothing"


@WALKTHROUGH.step("table-copies", title="The same table, sixteen times a token", reads=("tiny-table-sync",), port=TABLE)
def step_table_copies(bench: Workbench) -> None:
    """
    The host keeps the table, the kernel reads a copy. When is the copy renewed? After a prompt, when a sequence
    ends, and in **every layer of every decode step**. All 16,384 bytes, changed or not: 262,144 bytes a step.

    What changes, really? A sequence takes a block when its position is a multiple of 16: one step in sixteen,
    and then one entry a layer. With two sequences at different positions, two steps in sixteen need a copy at
    all.

    We run the bookkeeping for two sequences and 320 decode steps. 40 steps change something, 16 entries of 4
    bytes each in one and 2,560 bytes in all. Copied are 83,886,080 bytes.

    The remedy is small: send the changed entries. A kernel that writes them keeps the copy equal, entry for
    entry. A remark in the source asks for such a thing, though only where the prompt is copied.

    And in time? On a GPU this step measures it, from ordinary memory as upstream copies. The rows marked
    *measured* show the medians. Read them in pairs. Sixteen whole copies against one: what does the repeating
    cost? Sixteen whole copies against sixteen of 4 bytes: is it the bytes that cost, or the calls? The last two
    rows spread one step's time over all steps, since only 40 of 320 need it.

    Two things to know. The kernel is launched from Python, which takes longer than a launch from C++; the launch
    has a row of its own. And the GPU is idle while we measure. In the engine such a copy first waits for the
    kernels before it, in every layer, and that is not in these times. The SIMT machine does not model time: a
    run there has the bytes only.

    Beside it each layer copies the new keys and values, 1,024 bytes at a time [L2-09].
    """
    blocks, steps = run_bookkeeping([(17, 321), (25, 321)])
    due = [sum((first + step) % 16 == 0 for first in (17, 25)) for step in range(320)]
    bench.check("decode steps", len(steps), 320)
    bench.check("entries that change in each step", steps, [16 * number for number in due])
    bench.check("steps that need a copy", sum(number > 0 for number in steps), 320 * 2 // 16)
    copies = blocks.copies.full
    bench.check("copies of the table: prompts, layers of steps, ends", copies, 2 + 320 * 16 + 2)
    bench.check("bytes a decode step", 16 * blocks.table.nbytes, 262_144)
    bench.check("bytes copied in the steps", 320 * 16 * blocks.table.nbytes, 83_886_080)
    bench.check("bytes that changed in the steps", 4 * sum(steps), 2_560)
    aligned = run_bookkeeping([(17, 321), (33, 321)])[1]
    bench.check("in step with each other: steps that need a copy", sum(number > 0 for number in aligned), 20)
    state = Blocks()
    copy = state.table.copy()
    wrong, sent = 0, 0
    for position in range(15, 49):
        for layer in range(16):
            if position == 15:
                state.prefill_layer(0, layer, 15)
            state.decode_layer(0, layer, position)
        changes = state.changes()
        sent += len(changes)
        bench.launch(block_table.update_table_kernel, (), send(bench, copy, changes), (copy,))
        wrong += int((copy != state.sync()).sum())
    bench.check("entries sent in 34 steps", sent, 16 * 4, note="the prompt's block, then positions 16, 32, 48")
    bench.check("entries that differ from the whole copy", wrong, 0)
    before, after, changed = table_copy.crossing()
    bench.check("bytes of the list that is sent", table_copy.packed(changed).nbytes, 16 * (4 + 4))
    if bench.backend.name == "sim":
        bench.measured("time of the copies", None, MICROSECONDS, note="the SIMT machine does not model time")
        return
    gpu = table_copy.Gpu(before, after, changed)
    bench.check("ways that leave another table on the GPU", len(table_copy.wrong_ways(gpu, after)), 0)
    show_times(bench, table_copy.measure(gpu), sum(number > 0 for number in steps), len(steps))


def show_times(bench: Workbench, times: table_copy.CopyTimes, due: int, steps: int) -> None:
    """Keep the times of one decode step, and what two of them come to where `due` of `steps` steps need a copy."""
    rows = {
        "whole table, once a layer": (times.every_layer, "16 copies of 16,384 bytes"),
        "whole table, once": (times.once, "1 copy of 16,384 bytes"),
        "changed entries, each to its place": (times.each_entry, "16 copies of 4 bytes"),
        "changed entries, a list and a kernel": (times.together, "1 copy of 128 bytes, 1 launch"),
        "that launch alone": (times.launch, "from Python"),
        "no copy": (times.nothing, "the clock and one wait, a part of every row above"),
    }
    for name, (timing, note) in rows.items():
        bench.measured(name, timing.median, MICROSECONDS, spread=(timing.low, timing.high), note=note)
    share = f"{due} of {steps} steps"
    for name, timing in (("whole table", times.once), ("a list and a kernel", times.together)):
        bench.measured(f"on average, {name} when due", timing.median * due / steps, MICROSECONDS, note=share)


def send(bench: Workbench, copy: Any, changes: list[tuple[int, int]]) -> Any:
    """A launch that writes only the changed entries into the copy."""
    return lambda entry: block_table.update_table(copy, changes, backend=bench.backend, entry=entry)
