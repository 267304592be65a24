"""One case of the tuned writer for the ladder's grid: the case of `reshape_and_cache`, with our op in its place."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, fields
from typing import Any

import torch

from kernels.tuned import ops
from kernels.vllm import ops_writer_case as parts
from kernels.vllm.ops_attention_case import Outcome
from kernels.vllm.ops_writer_case import WriterCase

RUNS = (5, 30, 1, 9, 3)
"""Tokens in a row, over and over: a prompt's slots follow each other to the end of each block."""
GAP = 3
"""Slots between two runs, so that runs begin anywhere in a block."""


@dataclass(frozen=True)
class TunedWriterCase(WriterCase):
    """As WriterCase, of the classic layout only; the inputs and the comparison are the same.

    `runs`: the slots come in runs, as a prompt's do, with a negative one between; otherwise in random order.
    """

    runs: bool = False

    @classmethod
    def of(cls, case: Any, group: str, **more: Any) -> TunedWriterCase:
        """The same case for the tuned writer, in another group."""
        assert isinstance(case, WriterCase)
        given = {item.name: getattr(case, item.name) for item in fields(case)}
        return cls(**{**given, "group": group, **more})

    @property
    def id(self) -> str:
        """The case in a few words, unique in its group."""
        return super().id + (" runs" if self.runs else "")

    @property
    def unit(self) -> str:
        """What is compiled for it; what needs much memory runs one after another."""
        return "beyond" if self.beyond else f"tuned {super().unit}/{self.head_size}"

    def run(self, device: str) -> Outcome:
        """Call the op for every block size and number of heads; the worst of all calls counts.

        `error`: for bits the number of elements that differ; infinite where another row changed.
        """
        found = [self._one(device, *way) for way in itertools.product(self.block_sizes, self.heads)]
        worst = max(found, key=lambda o: (not o.passed, o.error))
        return Outcome(worst.error, worst.tolerance, all(o.passed for o in found), runs=len(found))

    def _one(self, device: str, block_size: int, heads: int) -> Outcome:
        make = torch.Generator(device).manual_seed(self.seed)
        caches = parts._caches(self, (block_size, heads, self.head_size), "classic", device)
        for cache in caches:
            parts._fill(cache.whole, self, make)
        num_blocks = caches[0].by_token.shape[0]
        made = self._in_runs(num_blocks, block_size) if self.runs else parts._slots(self, num_blocks, block_size)
        slots = made.to(device)
        rows = parts._rows(self, len(slots), heads, device, make)
        scales = [parts._scale(self, one, "tensor") for one in rows]
        before = [None if self.beyond else cache.whole.clone() for cache in caches]
        used = slots >= 0
        old = [cache.rows(slots[used]) for cache in caches]
        write: Any = ops.reshape_and_cache
        write(*rows, *(cache.given for cache in caches), slots, self.kv_cache_dtype, *scales)
        found = [
            parts._compare(self, cache.rows(slots[used]).flatten(2), mine[: len(slots)][used], scale)
            for cache, mine, scale in zip(caches, rows, scales, strict=True)
        ]
        for cache, was in zip(caches, old, strict=True):
            cache.put(slots[used], was)
        same = all(parts.unchanged(cache.whole, was) for cache, was in zip(caches, before, strict=True))
        error, tolerance = max(found, key=lambda pair: (pair[0] > pair[1], pair[0]))
        error = error if same else math.inf
        return Outcome(error, tolerance, error <= tolerance)

    def _in_runs(self, num_blocks: int, block_size: int) -> torch.Tensor:
        """Slots of `tokens` tokens or fewer, blocks in random order."""
        blocks = random.Random(self.seed).sample(range(num_blocks), num_blocks)
        slots: list[int] = []
        place = GAP
        for length in itertools.cycle(RUNS):
            run = range(place, min(place + min(length, self.tokens - len(slots)), num_blocks * block_size))
            slots += [blocks[at // block_size] * block_size + at % block_size for at in run]
            if len(slots) >= self.tokens or run.stop + GAP >= num_blocks * block_size:
                return torch.tensor(slots, dtype=torch.int64)
            slots.append(-1)
            place = run.stop + GAP
        raise AssertionError("a cycle does not end")
