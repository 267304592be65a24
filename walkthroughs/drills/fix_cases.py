"""The cases that are held out: small, drawn anew from a seed, and held against an oracle as a live run's are.

A solution that knows only the case of the steps fails here. `walkthroughs.server.cases` runs most of them; what that
has no case for stands below.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_verdict import MOST_SEED
from walkthroughs.server.cases import EXACT_NOTE, RUNS
from walkthroughs.server.offers import OFFERS
from walkthroughs.server.parameters import Values
from walkthroughs.workbench import Workbench

Draw = Callable[[random.Random], Values]
Run = Callable[[Workbench, Values], None]
ORDERS = ("shuffled", "reversed")
NARROW = 2**31
GROUPS = ((4, 1), (2, 2))
"""Query heads and KV heads: never the groups of two that the steps have."""


def held_out(case: str, seed: int) -> Callable[[Workbench], None]:
    """A case of this kind, drawn from a seed, as a step: it is handed a workbench, launches and checks."""
    draw, run = CASES[case]
    values = draw(random.Random(f"{case} {seed}"))

    def held(bench: Workbench) -> None:
        run(bench, values)

    return held


def port(task: Task) -> str:
    """The port that a task's held-out cases launch."""
    return next((port for port, offer in OFFERS.items() if offer.run == task.case), task.file)


def _decode(rng: random.Random, *, blocks: tuple[int, ...], sizes: tuple[int, ...], **more: Any) -> Values:
    """A batch of two short sequences; the first ends inside a block, and has at least two."""
    block_size = rng.choice(blocks)
    first = block_size * rng.randint(1, 2) + rng.randint(1, block_size - 1)
    lengths = (first, rng.randint(1, block_size + 3))
    return {"seq_lens": lengths, "block_size": block_size, "head_size": rng.choice(sizes), "dtype": "float32",
            "seed": rng.randrange(MOST_SEED), "order": rng.choice(ORDERS), **more}  # fmt: skip


def _classic_v1(rng: random.Random) -> Values:
    heads, kv_heads = rng.choice(GROUPS)
    return _decode(rng, blocks=(8, 16), sizes=(32, 64), heads=heads, kv_heads=kv_heads)


def _classic_v2(rng: random.Random) -> Values:
    drawn = _decode(rng, blocks=(8, 16), sizes=(32,), heads=2, kv_heads=1, partition_size=32)
    return drawn | {"seq_lens": (rng.randint(65, 90), rng.randint(33, 60))}


def _paged_2d(rng: random.Random) -> Values:
    heads, kv_heads = rng.choice(GROUPS)
    drawn = _decode(rng, blocks=(8, 16, 24), sizes=(32,), heads=heads, kv_heads=kv_heads, window=0)
    return drawn | {"window": rng.choice((0, 0, 7))}


def _tiny_paged(rng: random.Random) -> Values:
    return _decode(rng, blocks=(16,), sizes=(64,), heads=rng.choice((4, 8))) | {
        "seq_lens": (rng.randint(17, 21), rng.randint(2, 5))
    }


def _gather(rng: random.Random) -> Values:
    block_size = rng.choice((4, 8))
    return {"seq_len": block_size * rng.randint(1, 3) + rng.randint(1, block_size - 1), "block_size": block_size,
            "head_size": rng.choice((4, 8)), "seed": rng.randrange(MOST_SEED), "order": rng.choice(ORDERS)}  # fmt: skip


def _write(rng: random.Random, **more: Any) -> Values:
    tokens = rng.randint(5, 9)
    return {"tokens": tokens, "padding": rng.randint(1, 3), "block_size": rng.choice((4, 8)), "heads": 2,
            "head_size": 32, "dtype": rng.choice(("float32", "float16")), "seed": rng.randrange(MOST_SEED),
            "order": rng.choice(ORDERS), **more}  # fmt: skip


def _write_fixed(rng: random.Random) -> Values:
    # Forty heads of 128 in float32 are 1,280 pieces: more than a block's threads.
    return _write(rng, heads=40, head_size=128, dtype="float32", tokens=3, padding=1)


def _write_flash(rng: random.Random) -> Values:
    drawn = _write(rng, heads=4, memory=rng.choice(("NHD", "HND")), form=rng.choice(("side-by-side", "stacked")))
    del drawn["order"]
    return drawn


def _slots(rng: random.Random) -> Values:
    lengths = [rng.randint(1, 9) for _ in range(rng.randint(2, 3))]
    return {"block_size": rng.choice((8, 16)), "lengths": lengths, "seed": rng.randrange(MOST_SEED),
            "starts": [rng.randint(0, 40) for _ in lengths]}  # fmt: skip


def slot_mapping(bench: Workbench, values: Values) -> None:
    """A batch of requests in a pool so large that a slot does not fit 32 bits; the slots, counted by hand."""
    from kernels.vllm import slot_mapping as port

    rng = np.random.default_rng(values["seed"])
    size, lengths, starts = values["block_size"], values["lengths"], values["starts"]
    columns = max(start + n for start, n in zip(starts, lengths, strict=True)) // size + 1
    # int32 block numbers, whose slots lie on both sides of 2**31.
    table = rng.integers(1, 2 * NARROW // size, (len(lengths), columns)).astype(np.int32)
    table[0] = np.int32(2 * NARROW // size - 1) - np.arange(columns, dtype=np.int32)
    positions = [start + place for start, n in zip(starts, lengths, strict=True) for place in range(n)]
    owner = [row for row, n in enumerate(lengths) for _ in range(n)]
    mapping = np.full(sum(lengths) + 4, -7, np.int64)
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    bench.launch(
        port.compute_slot_mapping_kernel, (),
        lambda entry: port.compute_slot_mapping(
            mapping, ends, np.array(positions, np.int64), table, size, backend=bench.backend, entry=entry
        ),
        (mapping,), seed=values["seed"],
    )  # fmt: skip
    wanted = [int(table[row][place // size]) * size + place % size for row, place in zip(owner, positions, strict=True)]
    bench.check("slots", mapping[: len(wanted)], wanted, note=EXACT_NOTE)
    bench.check("padding", mapping[len(wanted) :], [-1] * 4, note=EXACT_NOTE)


def _offsets(rng: random.Random) -> Values:
    return {"stride": rng.randint(1, 64) * 1024, "seed": rng.randrange(MOST_SEED)}


def block_offsets(bench: Workbench, values: Values) -> None:
    """Where blocks begin, before and behind the edge of 32 bits; a product of Python's whole numbers."""
    from kernels.vllm import block_offsets as port

    stride = values["stride"]
    rng, edge = np.random.default_rng(values["seed"]), NARROW // stride
    numbers = np.array([1, edge - 1, edge, edge + 1, *rng.integers(edge, NARROW - 1, 4)], np.int32)
    wide, short = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    bench.launch(
        port.block_offsets_kernel, (),
        lambda entry: port.block_offsets(numbers, stride, wide, short, backend=bench.backend, entry=entry),
        (wide, short), seed=values["seed"],
    )  # fmt: skip
    bench.check("first element of each block", wide, [int(number) * stride for number in numbers], note=EXACT_NOTE)


def fused_rows(bench: Workbench, values: Values) -> None:
    """The classic writer, with keys and values that are slices of fused query, key and value rows; both caches."""
    from kernels import cases, oracle
    from kernels.vllm import cache as port

    case = cases.write_case(
        values["tokens"], values["heads"], values["head_size"], values["block_size"], values["dtype"], values["seed"],
        values["order"], padding=values["padding"],
    )  # fmt: skip
    # Between two tokens' keys lie their queries and values.
    fused = np.concatenate([np.full_like(case.key, np.nan), case.key, case.value], axis=1)
    key, value = fused[:, case.num_heads : 2 * case.num_heads], fused[:, 2 * case.num_heads :]
    caches = case.k_cache.copy(), case.v_cache.copy()
    bench.launch(
        port.reshape_and_cache_kernel, (),
        lambda entry: port.reshape_and_cache(
            key, value, *caches, case.slot_mapping, backend=bench.backend, entry=entry
        ),
        caches, seed=case.seed,
    )  # fmt: skip
    keys, written = oracle.written_caches(case)
    bench.check("key cache", caches[0], keys, note=EXACT_NOTE)
    bench.check("value cache", caches[1], written, note=EXACT_NOTE)


CASES: Mapping[str, tuple[Draw, Run]] = {
    "classic_v1": (_classic_v1, RUNS["classic_v1"]),
    "classic_v2": (_classic_v2, RUNS["classic_v2"]),
    "paged_2d": (_paged_2d, RUNS["paged_2d"]),
    "tiny_paged": (_tiny_paged, RUNS["tiny_paged"]),
    "gather": (_gather, RUNS["gather"]),
    "reshape_and_cache": (_write, RUNS["reshape_and_cache"]),
    "reshape_and_cache_fixed": (_write_fixed, RUNS["reshape_and_cache_fixed"]),
    "reshape_and_cache_flash": (_write_flash, RUNS["reshape_and_cache_flash"]),
    "fused_rows": (_write, fused_rows),
    "slot_mapping": (_slots, slot_mapping),
    "block_offsets": (_offsets, block_offsets),
}
"""Kind of case -> how it is drawn, and what runs and checks it."""
