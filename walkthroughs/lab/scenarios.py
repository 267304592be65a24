"""What the lab runs: requests with the step at which each arrives, and a pool for them to share.

A scenario says everything that decides the number of blocks, and nothing that does not: lengths, the block size, the
blocks that there are, and who begins with whose tokens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from kernels import layout
from kernels.errors import ArgumentError
from walkthroughs.lab.model import SPECIAL, VOCABULARY

NULL_BLOCKS = 1
"""Blocks that vLLM keeps for itself, as a place for what is nowhere: never given to a request."""


@dataclass(frozen=True)
class Ask:
    """One request: its prompt as token ids, how many tokens it generates, and before which step it arrives."""

    name: str
    prompt: tuple[int, ...]
    generate: int
    arrives: int = 1

    def __post_init__(self) -> None:
        for field in ("generate", "arrives"):
            if getattr(self, field) < 1:
                raise ArgumentError(field, getattr(self, field), "must be at least 1")
        if not self.prompt:
            raise ArgumentError("prompt", self.prompt, "must hold at least one token")


@dataclass(frozen=True)
class Scenario:
    """Requests and the pool they run in.

    `num_blocks` counts as vLLM does, with its null block. `sharing`: prefix caching; then the pool must be large
    enough for all requests together, so that no block that was let go is ever overwritten. `batch_tokens`: the most
    tokens that one step computes. `max_seqs`: the most requests that run at once.
    """

    id: str
    title: str
    block_size: int
    num_blocks: int
    requests: tuple[Ask, ...]
    sharing: bool = True
    max_seqs: int = 8
    batch_tokens: int = 2048
    moments: tuple[int, ...] = ()
    """Steps after which the reader is asked for the blocks in use."""

    def __post_init__(self) -> None:
        most = self.num_blocks - NULL_BLOCKS
        sizes = [layout.blocks_for(len(ask.prompt) + ask.generate - 1, self.block_size) for ask in self.requests]
        if not sizes or max(sizes) > most:
            must = f"must hold the largest request alone: {max(sizes, default=0)} blocks and the null block"
            raise ArgumentError("num_blocks", self.num_blocks, must)
        if self.sharing and sum(sizes) > most:
            raise ArgumentError("num_blocks", self.num_blocks, f"must be above {sum(sizes)}, or sharing must be off")
        if len({ask.name for ask in self.requests}) < len(self.requests):
            raise ArgumentError("requests", [ask.name for ask in self.requests], "must have different names")
        if min(self.max_seqs, self.batch_tokens) < 1:
            raise ArgumentError("max_seqs", self.max_seqs, "must be at least 1, as must batch_tokens")

    @property
    def max_model_len(self) -> int:
        """The longest sequence that the engine is told to expect: what fits the pool, in tokens."""
        return min((self.num_blocks - NULL_BLOCKS) * self.block_size, 1024)


def tokens(seed: str, count: int) -> tuple[int, ...]:
    """`count` token ids that are the same at each run, and others for another seed."""
    choose = random.Random(seed)
    return tuple(choose.randrange(len(SPECIAL), VOCABULARY) for _ in range(count))


def _growing(block_size: int, prompt: int, generate: int, num_blocks: int, moments: tuple[int, ...]) -> Scenario:
    name = f"growing-{block_size}"
    ask = Ask("a", tokens(name, prompt), generate)
    return Scenario(
        name, f"One sequence grows, blocks of {block_size}", block_size, num_blocks, (ask,), moments=moments
    )


def _several(
    block_size: int, lengths: tuple[tuple[int, int, int], ...], num_blocks: int, moments: tuple[int, ...]
) -> Scenario:
    name = f"several-{block_size}"
    asks = tuple(
        Ask(chr(ord("a") + n), tokens(f"{name} {n}", prompt), generate, arrives)
        for n, (prompt, generate, arrives) in enumerate(lengths)
    )
    title = f"Several of different lengths, blocks of {block_size}"
    return Scenario(name, title, block_size, num_blocks, asks, moments=moments)


def _shared(
    block_size: int, prefix: int, tails: tuple[tuple[int, int, int], ...], num_blocks: int, moments: tuple[int, ...]
) -> Scenario:
    name = f"shared-{block_size}"
    common = tokens(name, prefix)
    asks = tuple(
        Ask(chr(ord("a") + n), common + tokens(f"{name} {n}", tail), generate, arrives)
        for n, (tail, generate, arrives) in enumerate(tails)
    )
    title = f"A prefix of {prefix} tokens is shared, blocks of {block_size}"
    return Scenario(name, title, block_size, num_blocks, asks, moments=moments)


def _demand(
    block_size: int, lengths: tuple[tuple[int, int, int], ...], num_blocks: int, moments: tuple[int, ...]
) -> Scenario:
    name = f"demand-{block_size}"
    asks = tuple(
        Ask(chr(ord("a") + n), tokens(f"{name} {n}", prompt), generate, arrives)
        for n, (prompt, generate, arrives) in enumerate(lengths)
    )
    title = f"More demand than blocks, blocks of {block_size}"
    return Scenario(name, title, block_size, num_blocks, asks, sharing=False, max_seqs=4, moments=moments)


def scenarios() -> Mapping[str, Scenario]:
    """Every scenario by its id, in the order in which a reader meets them."""
    made = (
        _growing(32, 30, 100, 65, (1, 3, 4, 100)),
        _several(32, ((1, 40, 1), (31, 30, 1), (32, 30, 2), (33, 20, 5), (64, 50, 9), (100, 25, 12)), 65, (1, 5, 30)),
        _shared(32, 100, ((10, 30, 1), (20, 20, 1), (28, 12, 4), (5, 10, 34)), 65, (1, 4, 21)),
        _demand(32, ((60, 50, 1), (60, 60, 1), (90, 40, 2), (40, 30, 3), (64, 20, 4)), 13, (1, 6, 40)),
        _growing(128, 100, 60, 33, (1, 29, 30)),
        _several(128, ((127, 10, 1), (128, 20, 1), (129, 30, 3), (1, 40, 4)), 33, (1, 3, 4)),
        _shared(128, 300, ((10, 20, 1), (100, 20, 2), (1, 8, 3)), 33, (1, 2, 3)),
        _demand(128, ((250, 30, 1), (120, 60, 1), (100, 40, 1), (300, 20, 3)), 6, (1, 8, 10)),
    )
    return {scenario.id: scenario for scenario in made}
