"""What is measured: the shapes of the facts, a matrix that holds every value that was asked for, and their sizes."""

from __future__ import annotations

from itertools import groupby

import pytest

from kernels.tuned import shapes
from kernels.tuned.shapes import Shape


def test_the_facts_are_the_eight_shapes_that_were_measured_before() -> None:
    found = {(s.batch, s.context[0], s.heads, s.kv_heads, s.head_size): s.kv_bytes for s in shapes.FACTS}
    assert found == {
        (64, 4096, 28, 4, 128): 536_870_912,
        (64, 4096, 32, 8, 128): 1_073_741_824,
        (64, 4096, 32, 8, 64): 536_870_912,
        (1, 32768, 32, 8, 128): 134_217_728,
        (1, 4096, 32, 8, 128): 16_777_216,
        (8, 8192, 32, 8, 128): 268_435_456,
        (256, 1024, 32, 8, 128): 1_073_741_824,
        (16, 8192, 32, 32, 128): 2_147_483_648,
    }
    assert [s.name for s in shapes.FOUR] == ["Qwen2.5-7B", "Llama-3-8B", "Llama-3.2-1B", "Llama-3-8B, one sequence"]


def test_the_matrix_holds_every_value_that_was_asked_for() -> None:
    cells = shapes.matrix()
    uniform = [s for s in cells if len(set(s.context)) == 1]
    assert {s.batch for s in uniform} == {1, 8, 64, 256}
    assert {s.context[0] for s in uniform} == {128, 1024, 4096, 32768, 131072}
    assert {s.block_size for s in cells} == {16, 32}
    assert {s.head_size for s in cells} == {64, 128, 256}
    assert {s.group for s in cells} == {1, 4, 7, 8, 16}
    assert {(s.dtype, s.kv_cache_dtype) for s in cells} == {
        ("bfloat16", "auto"), ("float16", "auto"), ("bfloat16", "fp8_e4m3"),
    }  # fmt: skip
    mixed = [s for s in cells if len(set(s.context)) > 1]
    assert len(mixed) > 10
    assert all(max(s.context) >= 20 * sorted(s.context)[len(s.context) // 2] for s in mixed if "many short" in s.name)
    assert {(s.group, s.head_size) for s in cells} >= {
        (group, size) for group in (1, 4, 7, 8, 16) for size in (64, 256)
    }


@pytest.mark.parametrize("name", list(shapes.SETS))
def test_ids_differ_sizes_fit_and_kernels_stand_together(name: str) -> None:
    cells = shapes.SETS[name]()
    assert len({s.id for s in cells}) == len(cells)
    assert max(s.kv_bytes for s in cells) <= shapes.CELL_LIMIT
    runs = [key for key, _ in groupby(s.kernel_key for s in cells)]
    assert len(runs) == len(set(runs))


def test_a_shape_counts_its_bytes_and_blocks() -> None:
    shape = Shape("", (37, 16, 1), 8, 2, 64, 16, "float16")
    assert (shape.batch, shape.tokens, shape.group, shape.blocks) == (3, 54, 4, 3 + 1 + 1)
    assert shape.kv_bytes == 2 * 54 * 2 * 64 * 2
    narrow = Shape("", (37, 16, 1), 8, 2, 64, 16, "float16", "fp8_e4m3", 2)
    assert narrow.kv_bytes * 2 == shape.kv_bytes
    assert (shape.id, narrow.id) == ("3xmixed37-8/2-64-b16-fp16", "3xmixed37-8/2-64-b16-fp8-q2")


def test_the_writer_moves_each_element_twice() -> None:
    first = shapes.WRITES[0]
    assert (first.tokens, first.heads, first.head_size) == (8192, 8, 128)
    assert first.moved_bytes == 2 * (2 * 8192 * 8 * 128 * 2)
    assert len({shape.id for shape in shapes.WRITES}) == len(shapes.WRITES)
