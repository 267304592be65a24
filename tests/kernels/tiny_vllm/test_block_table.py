"""tiny-vllm's bookkeeping against a model that is written the other way round: from what must hold, not how."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import ArgumentError, KernelError
from kernels.kernel import Backend
from kernels.simt.sanitize import Sanitizer
from kernels.tiny_vllm import block_table
from kernels.tiny_vllm.block_table import (
    NONE,
    BlockNotFree,
    Blocks,
    NoFreeBlock,
    run_bookkeeping,
    update_table,
)


def small(**changes):
    return Blocks(**{"num_blocks": 64, "slots": 2, "layers": 3, "columns": 4, **changes})


def consistent(blocks, total):
    live, free = blocks.live, blocks.free_blocks
    assert len(set(live)) == len(live), "a block stands in two places"
    assert not set(live) & set(free)
    assert sorted(live + free) == list(range(total)), "a block is lost"


# -- sizes


def test_the_numbers_of_the_lesson():
    assert (block_table.KV_DIM, block_table.V_OFFSET, block_table.BLOCK_BYTES) == (512, 16_384, 32_768)
    assert (block_table.NUM_BLOCKS, block_table.MAX_BLOCKS_PER_SEQ) == (65_536, 128)
    blocks = Blocks()
    assert blocks.table.shape == (2, 16, 128)
    assert (blocks.table.size, blocks.table.nbytes) == (4096, 16_384)
    assert set(blocks.table.reshape(-1).tolist()) == {NONE}


def test_the_first_block_is_the_last_one():
    blocks = Blocks()
    assert blocks.prefill_layer(0, 0, 17) == [65535, 65534]
    assert blocks.prefill_layer(0, 1, 1) == [65533]
    assert blocks.table[0, 0, :3].tolist() == [65535, 65534, NONE]


def test_a_layer_has_blocks_of_its_own():
    blocks = small()
    blocks.prefill(0, 16)
    assert blocks.table[0, :, 0].tolist() == [63, 62, 61]


# -- decode and release


@pytest.mark.parametrize(("position", "taken"), [(16, 1), (17, 0), (31, 0), (32, 1)])
def test_decode_takes_a_block_only_at_a_blocks_edge(position, taken):
    blocks = small()
    blocks.prefill_layer(0, 0, position)
    free = len(blocks.free_blocks)
    block, place = blocks.decode_layer(0, 0, position)
    assert free - len(blocks.free_blocks) == taken
    assert (block, place) == (blocks.table[0, 0, position // 16], position % 16)


def test_release_gives_back_layer_by_layer_and_the_last_pushed_comes_first():
    blocks = small()
    blocks.prefill(0, 20)
    assert blocks.live == [63, 62, 61, 60, 59, 58]
    assert blocks.release(0) == [63, 62, 61, 60, 59, 58]
    assert blocks.release(0) == []
    assert (blocks.table == NONE).all()
    assert blocks.free_blocks[-6:] == [63, 62, 61, 60, 59, 58]
    assert blocks.prefill_layer(1, 0, 1) == [58]


def test_release_leaves_the_other_slot_alone():
    blocks = small()
    blocks.prefill(0, 20)
    blocks.prefill(1, 5)
    kept = blocks.table[1].copy()
    blocks.release(0)
    assert np.array_equal(blocks.table[1], kept)
    consistent(blocks, 64)


def test_an_empty_list_and_a_slot_in_use_are_typed_errors():
    blocks = small(num_blocks=1)
    blocks.prefill_layer(0, 0, 1)
    with pytest.raises(NoFreeBlock, match="let a sequence go"):
        blocks.decode_layer(0, 0, 16)
    with pytest.raises(BlockNotFree, match=r"block_table\[0, 0, 0\] = 0"):
        blocks.prefill_layer(0, 0, 1)
    assert issubclass(NoFreeBlock, KernelError)
    assert issubclass(BlockNotFree, KernelError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.prefill_layer(2, 0, 1), "slot = 2: must be from 0 to 1"),
        (lambda b: b.prefill_layer(0, 3, 1), "layer = 3: must be from 0 to 2"),
        (lambda b: b.prefill_layer(0, 0, 0), "prompt_len = 0: must be from 1 to 64"),
        (lambda b: b.decode_layer(0, 0, 64), r"position \+ 1 = 65"),
        (lambda b: b.release(-1), "slot = -1"),
    ],
)
def test_what_upstream_would_not_notice_is_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call(small())


def test_an_old_entry_at_a_blocks_edge_would_leak():
    # No path of upstream's leads here; nothing would stop it either.
    blocks = small()
    blocks.prefill_layer(0, 0, 17)
    blocks.decode_layer(0, 0, 16)
    assert len(blocks.live) + len(blocks.free_blocks) == 63


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=6))
def test_no_block_is_lost_or_shared_whatever_is_served(prompts):
    blocks, _ = run_bookkeeping(prompts)
    assert blocks.live == []
    consistent(blocks, block_table.NUM_BLOCKS)


@settings(max_examples=30)
@given(st.data())
def test_every_token_finds_a_block_at_every_step(data):
    blocks = small(num_blocks=40)
    lengths = {slot: data.draw(st.integers(1, 30)) for slot in range(2)}
    for slot, length in lengths.items():
        blocks.prefill(slot, length)
    for _ in range(data.draw(st.integers(1, 20))):
        blocks.decode(lengths.items())
        lengths = {slot: length + 1 for slot, length in lengths.items()}
        used = {slot: -(-length // 16) for slot, length in lengths.items()}
        assert all((blocks.table[slot, :, :n] != NONE).all() for slot, n in used.items())
        assert all((blocks.table[slot, :, n:] == NONE).all() for slot, n in used.items())
        consistent(blocks, 40)


# -- copies


def test_a_decode_step_copies_the_table_once_a_layer_changed_or_not():
    blocks = Blocks()
    blocks.prefill(0, 15)
    assert blocks.copies.full == 1
    blocks.decode([(0, 15)])
    assert (blocks.copies.full, sum(blocks.copies.changed[1:])) == (17, 0)
    blocks.decode([(0, 16)])
    assert (blocks.copies.full, blocks.copies.changed[17:]) == (33, [1] * 16)


def test_the_share_of_steps_that_need_a_copy():
    _, steps = run_bookkeeping([(16, 321)])
    assert len(steps) == 320
    assert steps == [16 if position % 16 == 0 else 0 for position in range(16, 336)]


def test_a_sequence_ends_at_the_last_place_of_its_row():
    blocks, steps = run_bookkeeping([(2040, 100)])
    assert len(steps) == 8  # positions 2040 to 2047
    assert blocks.live == []


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4))
def test_changed_entries_alone_keep_a_copy_equal(prompts):
    blocks = small(slots=4, columns=8)
    copy = blocks.table.copy()
    for slot, (length, tokens) in enumerate(prompts):
        blocks.prefill_layer(slot, 1, length)
        for position in range(length, length + tokens):
            blocks.decode_layer(slot, 1, position)
            if position % 3 == 0:
                changes = blocks.changes()
                update_table(copy, changes)
                assert len(changes) <= 8 * len(prompts)
                assert np.array_equal(copy, blocks.sync())
    assert blocks.copies.full == len(blocks.copies.changed)


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:1"])
def test_update_table_is_clean_over_several_thread_blocks(schedule):
    table = np.zeros((2, 16, 128), np.int32)
    places = np.random.default_rng(1).permutation(4096)[:300]
    watch = Sanitizer()
    with watch:
        changes = [(int(p), int(p) + 1) for p in places]
        update_table(table, changes, backend=Backend("sim", schedule, observers=(watch,)))
    assert watch.clean
    flat = table.reshape(-1)
    assert flat[places].tolist() == (places + 1).tolist()
    assert np.count_nonzero(flat) == 300


def test_update_table_refuses_a_place_outside():
    with pytest.raises(ArgumentError, match=r"changes\[1\] = 4: must be from 0 to 3"):
        update_table(np.zeros((1, 1, 4), np.int32), [(0, 1), (4, 1)])
    with pytest.raises(ArgumentError, match=r"block_table\.shape"):
        update_table(np.zeros(4, np.int32), [(0, 1)])


@pytest.mark.gpu
def test_gpu_update_table():
    table = np.zeros((2, 16, 128), np.int32)
    update_table(table, [(5, 7), (4095, 9)], backend=Backend("cuda"))
    assert [(int(p), int(table.reshape(-1)[p])) for p in np.flatnonzero(table)] == [(5, 7), (4095, 9)]
