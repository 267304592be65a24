"""Findings, part 5: the largest cache that a 32-bit product of block number and block size can address."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernels.tiny_vllm import paged
from kernels.vllm import block_offsets
from walkthroughs.catalog.findings import WALKTHROUGH
from walkthroughs.workbench import Workbench

ORDER = 7
INT = 2**31
"""The first number that a signed int of 32 bits cannot hold."""
LAYERS, KV_HEADS, HEAD_SIZE, BYTES = 16, 8, 64, 2
"""Llama-3.2-1B in sixteen bits: what a token's keys and values are made of."""
BLOCK_SIZE = 16
AT_ONCE = 1024


def signed(number: int) -> int:
    """What is left of a whole number in a signed int of 32 bits, where the machine wraps."""
    return (number + INT) % (2 * INT) - INT


def byte_starts(bench: Workbench, blocks: Iterable[int]) -> tuple[list[int], list[int]]:
    """The first byte of tiny-vllm's blocks as its port computes it, in 32 bits, and in 64."""
    numbers = np.fromiter(blocks, np.int32)
    short, wide = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    bench.launch(
        paged.block_starts_kernel, (),
        lambda entry: paged.block_starts(numbers, short, wide, backend=bench.backend, entry=entry), (short, wide),
    )  # fmt: skip
    return short.tolist(), wide.tolist()


def element_starts(bench: Workbench, blocks: Iterable[int], stride: int) -> tuple[list[int], list[int]]:
    """The first element of vLLM's blocks, as a product of two ints would be, and in 64 bits as vLLM has it."""
    numbers = np.fromiter(blocks, np.int32)
    short, wide = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    bench.launch(
        block_offsets.block_offsets_kernel, (),
        lambda entry: block_offsets.block_offsets(numbers, stride, wide, short, backend=bench.backend, entry=entry),
        (wide, short),
    )  # fmt: skip
    return short.tolist(), wide.tolist()


@WALKTHROUGH.step(
    "largest-cache",
    title="2 GiB is the largest cache that tiny-vllm can address",
    reads=("block-table-lookup", "k-address", "v-address", "tiny-layout"),
    source="tiny-vllm@e25bf19",
    port="kernels/tiny_vllm/paged.py",
)
def step_largest_cache(bench: Workbench) -> None:
    """
    **What was run.** The line of our port that turns a block number into its first byte, for 1,024 block numbers
    around the edge of 32 bits. No cache of that size was allocated: the line needs none.

    **What came out.** tiny-vllm multiplies two ints, the block number and the 32,768 bytes of a block [L2-04].
    Block 65,535 begins at 2,147,450,880. Its last byte is number 2,147,483,647, the largest int. Block 65,536
    would begin one further on, and an int has no such number. In C++ that is undefined. Where the machine
    wraps, as our port does, the address is 2 GiB *before* the cache.

    So 65,536 blocks, 2 GiB, are the most that this line can bear, and that is the size that tiny-vllm has. The cache
    could not grow by a single block. Nothing in the source says so or checks it.

    **How many tokens.** A block holds 16 tokens of one layer. Llama-3.2-1B has 16 layers, 8 KV heads of 64, and
    two bytes a number. Keys and values of all layers make 32,768 bytes a token, just as much as a block has
    [L2-04]. 2 GiB hold 65,536 tokens of all sequences together.

    **Where it does not show.** At the constants of commit e25bf19. With its few slots, at most 4,096 of the
    65,536 blocks are in use [L2-49]. The edge is still near: blocks are handed out from the end of the list,
    and the very first is number 65,535.

    **The repair.** Widen one factor to 64 bits before the multiplication, in the kernel and wherever the host
    makes the same product. The next step shows vLLM, which does.

    **What was not run.** tiny-vllm itself with a larger cache.

    **Judge for yourself.** `pagewalk run findings/largest-cache`. The same in small [tiny-vllm/int-overflow].
    """
    size = 2 * BLOCK_SIZE * KV_HEADS * HEAD_SIZE * BYTES
    blocks = range(65_536 - AT_ONCE // 2, 65_536 + AT_ONCE // 2)
    short, wide = byte_starts(bench, blocks)
    bench.check("first byte of 1,024 blocks, in 64 bits", wide, [size * block for block in blocks])
    bench.check("first byte of 1,024 blocks, in 32 bits", short, [signed(size * block) for block in blocks])
    known = dict(zip(blocks, short, strict=True))
    last = max(block for block in blocks if known[block] == size * block)
    bench.check("last block whose address is right", last, 65_535)
    bench.check("its first byte", known[last], 2_147_450_880)
    bench.check("its last byte", known[last] + size - 1, INT - 1)
    bench.check("address of the block behind it", known[last + 1], -INT)
    bench.check("bytes up to there", (last + 1) * size, 2 * 1024**3)
    per_token = LAYERS * 2 * KV_HEADS * HEAD_SIZE * BYTES
    bench.check("tokens of Llama-3.2-1B, by blocks", (last + 1) * BLOCK_SIZE // LAYERS, INT // per_token)
    first, _ = byte_starts(bench, [65_535, 0])
    bench.check("blocks 65,535 and 0: distance in bytes", first[0] - first[1], INT - size)


@WALKTHROUGH.step(
    "wider-product",
    title="vLLM widens first: what its 64 bits save",
    reads=("block-table-lookup", "k-address"),
    source="vllm@0.24.0",
    port="kernels/vllm/block_offsets.py",
)
def step_wider_product(bench: Workbench) -> None:
    """
    **What was run.** The two lines of the classic kernel that make a block's address, on their own, without a cache.
    Block numbers around the edge of 32 bits. Beside it the same product as two ints would give it.

    **What came out.** vLLM turns the block number into 64 bits before it meets the stride. Every address is right, up
    to the largest block number that an int32 block table can hold.

    **What it saves.** vLLM counts elements, not bytes, and each layer has tensors of its own. Take Llama-3.2-1B
    on one GPU: 8 KV heads of 64, blocks of 16, 8,192 elements of keys in a block. As an int the product would
    miss block 262,144. In front of it lie 4,194,304 tokens of one layer. A small model hardly gets there.

    With 32 KV heads of 128 a block has 65,536 elements. There the int would miss block 32,768, behind 524,288
    tokens.

    **What was not run.** The classic kernel on a cache of that size. On small caches another step checks the
    address [vllm-classic/k-address].

    **Judge for yourself.** `pagewalk run findings/wider-product`.
    """
    for name, heads, head_size, edge, tokens in (
        ("8 heads of 64", KV_HEADS, HEAD_SIZE, 262_144, 4_194_304), ("32 heads of 128", 32, 128, 32_768, 524_288),
    ):  # fmt: skip
        stride = heads * head_size * BLOCK_SIZE
        blocks = [0, 1, *range(edge - 100, edge + 100), 2 * edge - 1, 2 * edge, INT - 1]
        short, wide = element_starts(bench, blocks, stride)
        bench.check(f"{name}: first element in 64 bits", wide, [stride * block for block in blocks])
        bench.check(f"{name}: as a product of ints", short, [signed(stride * block) for block in blocks])
        pairs = zip(blocks, short, wide, strict=True)
        missed = next((block for block, narrow, full in pairs if narrow != full), 0)
        bench.check(f"{name}: first block that an int would miss", missed, edge)
        bench.check(f"{name}: tokens in front of it, in one layer", missed * BLOCK_SIZE, tokens)
        gib = missed * stride * BYTES * 2 / 1024**3
        bench.measured(f"{name}: keys and values of one layer up to there", gib, "GiB", note="two bytes an element")
