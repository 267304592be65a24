"""The ladder, part 5: the writer, which turns values over in registers so that neighbours go together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kernels import layout, oracle
from kernels.cases import WriteCase
from kernels.cases_narrow import narrow_write_case
from kernels.kernel import Backend
from kernels.tuned import writer
from kernels.vllm import cache
from walkthroughs.catalog.ladder import WALKTHROUGH
from walkthroughs.catalog.ladder_shared import chosen
from walkthroughs.workbench import Workbench

if TYPE_CHECKING:
    from walkthroughs.traffic import Traffic

ORDER = 8
TOKENS, HEADS, HEAD_SIZE, BLOCK_SIZE, ITEM = 32, 2, 64, 16, 2
HALF = TOKENS * layout.kv_bytes_per_token(HEADS, HEAD_SIZE, ITEM) // 2
"""Bytes of the keys of the counted case, and as many of its values."""


def filled_blocks() -> WriteCase:
    """32 tokens that fill two blocks, one behind the other in the text and apart in the pool."""
    case = narrow_write_case(TOKENS, HEADS, HEAD_SIZE, BLOCK_SIZE, "bfloat16", seed=82, spare_blocks=3)
    slots = [layout.slot(block, offset, BLOCK_SIZE) for block in (3, 1) for offset in range(BLOCK_SIZE)]
    return replace(case, slot_mapping=np.array(slots, np.int64))


def strangers() -> WriteCase:
    """13 tokens in slots of no order, three of which are padding."""
    return narrow_write_case(13, HEADS, HEAD_SIZE, BLOCK_SIZE, "bfloat16", seed=83, padding=3)


def write(bench: Workbench, case: WriteCase) -> tuple[np.ndarray, np.ndarray]:
    """Both caches after the writer, on the bench's backend."""
    caches = case.k_cache.copy(), case.v_cache.copy()
    bench.seed = case.seed
    for one in chosen(bench, writer.launches(case.key, case.value, *caches, case.slot_mapping)):
        one.run(bench.backend)
    return caches


def traffic(bench: Workbench, case: WriteCase, *, port: bool) -> Traffic:
    """What the writer, or the port of vLLM's, asks of memory. The machine counts, wherever the bench runs."""
    from walkthroughs.traffic import Traffic

    caches = case.k_cache.copy(), case.v_cache.copy()
    found = Traffic(key=case.key, value=case.value, keys=caches[0], values=caches[1])
    if port:
        watched = Backend("sim", observers=(found,))
        cache.reshape_and_cache(case.key, case.value, *caches, case.slot_mapping, backend=watched)
        return found
    return found.run(chosen(bench, writer.launches(case.key, case.value, *caches, case.slot_mapping)))


@WALKTHROUGH.step(
    "writer",
    title="The writer",
    reads=("k-store", "v-store", "head-of-thread"),
    source="vllm@0.26.0",
    port="kernels/tuned/writer.py",
)
def step_writer(bench: Workbench) -> None:
    """
    **The picture.** Every new token brings a key and a value, and both must go to their slot. A key is easy: it lies in
    pieces of 16 bytes, and a piece is copied. A value lies across. Each of its elements has a row of its own, and its
    neighbours in the row belong to the tokens next to it. Written one by one, every number is a store of 2 bytes.

    So turn them first. A warp takes sixteen tokens and 32 elements of each. One instruction turns over a matrix of 8 by
    8 numbers, across the registers of the warp. Then a lane holds one element of tokens in a row: 8 bytes that belong
    together.

    **Prediction.** Every byte is read once and written once. For 32 tokens that fill two blocks these are 16,384 bytes
    each way. The port of vLLM's writer does it in 8,192 stores of 2 bytes. Here there are 512 for the keys, of 16
    bytes, and 1,024 for the values, of 8 bytes. Nothing is computed, so the limit is that of a copy.

    ::: rung writer

    **Why.** Whole blocks go at nearly the speed of a copy, since whole lines of memory are written. Tokens of different
    sequences are strangers to each other, as in a decode step: each value's numbers lie alone, each is a store of 2
    bytes again, and memory must handle far more than that for each. No writer can change it. It is the price of a
    layout that was made for the reader.

    There is no end to the heads, either: what one thread block does not reach, another does. vLLM's writer stops after
    8 KiB of a token [findings/unwritten-heads].
    """
    for name, case in (("two blocks filled", filled_blocks()), ("strangers and padding", strangers())):
        found, expected = write(bench, case), oracle.written_caches(case)
        bench.check(f"{name}: the key cache", found[0], expected[0])
        bench.check(f"{name}: the value cache", found[1], expected[1])
    case = filled_blocks()
    new, old = traffic(bench, case, port=False), traffic(bench, case, port=True)
    read = [new.distinct("key"), new.distinct("value")]
    bench.check("bytes of keys and of values that are read", read, [HALF, HALF])
    bench.check("bytes in both", sum(read), 16384)
    bench.check("bytes that are written", [new.stored("keys"), new.stored("values")], [HALF, HALF])
    bench.check("bytes of one load", new.widths("key", "value"), [16])
    bench.check("stores of keys: bytes and how many", dict(new.stores["keys"]), {16: HALF // 16}, note="512")
    bench.check("stores of values: bytes and how many", dict(new.stores["values"]), {8: HALF // 8}, note="1,024")
    port = [sum(old.stores[name].values()) for name in ("keys", "values")]
    bench.check("stores of the port of vLLM's writer", sum(port), 2 * HALF // ITEM, note="of 2 bytes each")
    alone = traffic(bench, strangers(), port=False)
    bench.check("strangers: bytes of one store of values", sorted(alone.stores["values"]), [ITEM])
