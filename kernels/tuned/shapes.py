"""What the benchmark measures: decode steps by batch, lengths, heads, head size, block size and number format.

Each set is one list of cells. Cells that share a compiled kernel stand together, so that a run compiles little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

CELL_LIMIT = 17.5e9
"""Bytes of keys and values that a cell may have: two sets of inputs, and a peer's own copies, must fit on one card."""
ITEM_BYTES = {"auto": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}
SHORT = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Shape:
    """One decode step. `context`: tokens of each sequence, those asked for included."""

    name: str
    context: tuple[int, ...]
    heads: int
    kv_heads: int
    head_size: int
    block_size: int = 16
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    query_len: int = 1

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(self.context)

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.heads // self.kv_heads

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(self.context)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.kv_heads * self.head_size * ITEM_BYTES[self.kv_cache_dtype]

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values that must be read."""
        return self.tokens * self.token_bytes

    @property
    def blocks(self) -> int:
        """KV blocks of all sequences."""
        return sum(-(-length // self.block_size) for length in self.context)

    @property
    def id(self) -> str:
        """The shape in one word: no two shapes of a set share it."""
        lengths = set(self.context)
        context = f"{lengths.pop()}" if len(lengths) == 1 else f"mixed{max(self.context)}"
        cache = {"auto": SHORT[self.dtype], "fp8_e4m3": "fp8", "fp8_e5m2": "e5m2"}[self.kv_cache_dtype]
        parts = [f"{self.batch}x{context}", f"{self.heads}/{self.kv_heads}", f"{self.head_size}"]
        parts += [f"b{self.block_size}", cache, *([f"q{self.query_len}"] if self.query_len > 1 else [])]
        return "-".join(parts)

    @property
    def kernel_key(self) -> tuple[object, ...]:
        """Shapes with the same key run the same compiled kernels."""
        return (self.head_size, self.block_size, self.group, self.dtype, self.kv_cache_dtype, self.query_len)


@dataclass(frozen=True)
class WriteShape:
    """One call of the cache writer: so many new tokens.

    A prompt fills whole blocks, wherever they lie; `scattered`: each token's slot is anywhere.
    """

    name: str
    tokens: int
    heads: int
    head_size: int
    block_size: int = 16
    dtype: str = "bfloat16"
    scattered: bool = False

    @property
    def id(self) -> str:
        """The shape in one word."""
        word = f"write-{self.tokens}-{self.heads}-{self.head_size}-b{self.block_size}-{SHORT[self.dtype]}"
        return f"{word}-scattered" if self.scattered else word

    @property
    def moved_bytes(self) -> int:
        """Bytes of keys and values, read once and written once."""
        return 2 * 2 * self.tokens * self.heads * self.head_size * 2


def uniform(name: str, batch: int, context: int, heads: int, kv_heads: int, head_size: int, **more: Any) -> Shape:
    """Sequences of one length. `more`: other fields of `Shape`."""
    return replace(Shape(name, (context,) * batch, heads, kv_heads, head_size), **more)


QWEN_7B = uniform("Qwen2.5-7B", 64, 4096, 28, 4, 128)
LLAMA_8B = uniform("Llama-3-8B", 64, 4096, 32, 8, 128)
LLAMA_1B = uniform("Llama-3.2-1B", 64, 4096, 32, 8, 64)
ONE_LONG = uniform("Llama-3-8B, one sequence", 1, 32768, 32, 8, 128)
ONE = uniform("one sequence of 4 Ki tokens", 1, 4096, 32, 8, 128)
EIGHT = uniform("eight sequences of 8 Ki tokens", 8, 8192, 32, 8, 128)
MANY_SHORT = uniform("256 sequences of 1 Ki tokens", 256, 1024, 32, 8, 128)
GROUP_1 = uniform("a KV head for every query head", 16, 8192, 32, 32, 128)
FACTS = (LLAMA_8B, ONE_LONG, ONE, EIGHT, MANY_SHORT, QWEN_7B, LLAMA_1B, GROUP_1)
FOUR = (QWEN_7B, LLAMA_8B, LLAMA_1B, ONE_LONG)
"""The four shapes that vLLM's compiled kernels are held against."""

BATCHES = (1, 8, 64, 256)
CONTEXTS = (128, 1024, 4096, 32768, 131072)
# Query heads and KV heads of known models, by group.
HEADS = {1: (32, 32), 4: (32, 8), 7: (28, 4), 8: (64, 8), 16: (128, 8)}
MIXED = (
    ("two long, many short", (65536,) * 2 + (512,) * 62),
    ("four long, many short", (16384,) * 4 + (256,) * 124),
    ("every length", tuple(64 * (1 + 37 * number % 128) for number in range(64))),
)


def mixed(**more: Any) -> Iterator[Shape]:
    """Sequences of unlike lengths, a few long and many short."""
    for name, lengths in MIXED:
        yield replace(Shape(name, lengths, 32, 8, 128), **more)


def matrix() -> tuple[Shape, ...]:
    """The whole matrix: every batch and context in the base form and with one thing changed; head size against group

    at three points; mixed lengths in five forms. Cells above the limit are left out. Ordered by compiled kernel.
    """
    points = [(batch, context) for batch in BATCHES for context in CONTEXTS]
    base: dict[str, Any] = {}
    forms: list[tuple[int, int, dict[str, Any], list[tuple[int, int]]]] = [(4, 128, base, points)]
    forms += [(group, 128, base, points) for group in HEADS if group != 4]
    forms += [(4, size, base, points) for size in (64, 256)]
    changes: list[dict[str, Any]] = [{"block_size": 32}, {"dtype": "float16"}, {"kv_cache_dtype": "fp8_e4m3"}]
    forms += [(4, 128, change, points) for change in changes]
    few = [(1, 32768), (64, 4096), (256, 1024)]
    forms += [(group, size, base, few) for group in HEADS if group != 4 for size in (64, 256)]
    forms += [(4, 128, {**changes[0], **changes[2]}, few), (4, 64, changes[2], few)]
    found: dict[str, Shape] = {}
    for group, size, change, where in forms:
        for batch, context in where:
            shape = uniform("", batch, context, *HEADS[group], size, **change)
            if shape.kv_bytes <= CELL_LIMIT:
                found.setdefault(shape.id, shape)
    for shape in [
        *mixed(),
        *mixed(head_size=64),
        *mixed(heads=28, kv_heads=4),
        *(s for c in changes for s in mixed(**c)),
    ]:
        found.setdefault(shape.id, shape)
    return by_kernel(found.values())


FP8 = replace(LLAMA_8B, name="fp8 cache", kv_cache_dtype="fp8_e4m3")
WIDE = replace(LLAMA_8B, name="head size 256", head_size=256)
GROUP_16 = replace(LLAMA_8B, name="groups of 16", heads=128)
QUERIES = tuple(replace(LLAMA_8B, name=f"{count} queries a sequence", query_len=count) for count in (2, 3, 4))


def extra() -> tuple[Shape, ...]:
    """What the goals ask for beyond the facts, and what it is held against in the same run."""
    return by_kernel((LLAMA_8B, *mixed(), FP8, WIDE, GROUP_16, GROUP_1, *QUERIES))


def by_kernel(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """The shapes in their order, but those of one compiled kernel together."""
    groups: dict[tuple[object, ...], list[Shape]] = {}
    for shape in shapes:
        groups.setdefault(shape.kernel_key, []).append(shape)
    return tuple(shape for group in groups.values() for shape in group)


WRITES = (
    WriteShape("8 Ki tokens", 8192, 8, 128),
    WriteShape("512 tokens", 512, 8, 128),
    WriteShape("8 Ki tokens, blocks of 32", 8192, 8, 128, 32),
    WriteShape("8 Ki tokens, heads of 64", 8192, 8, 64),
    WriteShape("8 Ki tokens, each anywhere", 8192, 8, 128, scattered=True),
)
TINY = (
    Shape("tiny", (37, 16), 4, 1, 32),
    Shape("tiny, one long", (70, 5), 8, 2, 32),
)
"""For a dry run on the SIMT machine."""
SETS: dict[str, Callable[[], tuple[Shape, ...]]] = {
    "facts": lambda: by_kernel(FACTS),
    "matrix": matrix,
    "goals": extra,
    "tiny": lambda: TINY,
}
"""Sets of decode steps, by name."""
TINY_WRITES = (WriteShape("tiny", 20, 2, 16), WriteShape("tiny", 20, 2, 16, scattered=True))
