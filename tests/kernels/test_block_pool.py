"""The block pool against a model: each table's tokens as plain lists, each block's holders counted anew."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from kernels import layout
from kernels.block_pool import BlockPool, BlockTable, PoolEmpty
from kernels.errors import ArgumentError, KernelError


class PoolMachine(RuleBasedStateMachine):
    """Grows, forks, shares and releases tables, and writes a number to each slot handed out.

    `memory` stands for the caches: a table's tokens must read back from it as written, whatever others do.
    """

    tables = Bundle("tables")

    @initialize(num_blocks=st.integers(1, 12), block_size=st.integers(1, 4))
    def start(self, num_blocks: int, block_size: int) -> None:
        self.pool = BlockPool(num_blocks, block_size)
        self.memory: dict[int, int] = {}
        self.written = 0
        self.model: list[tuple[BlockTable, list[int]]] = []

    def tokens_of(self, table: BlockTable) -> list[int]:
        return next(tokens for known, tokens in self.model if known is table)

    def state(self) -> tuple[object, ...]:
        return self.pool.num_free, [(list(table.blocks), table.num_tokens) for table, _ in self.model]

    @rule(target=tables)
    def new(self) -> BlockTable:
        self.model.append((BlockTable(self.pool), []))
        return self.model[-1][0]

    @rule(table=tables, count=st.integers(0, 6))
    def append(self, table: BlockTable, count: int) -> None:
        size, tokens, before = self.pool.block_size, self.tokens_of(table), self.state()
        shared = bool(count and len(tokens) % size) and self.pool.ref_count(table.blocks[-1]) > 1
        places = len(table.blocks) * size
        needed = sum(1 for extra in range(count) if len(tokens) + extra >= places and (len(tokens) + extra) % size == 0)
        if needed + shared > self.pool.num_free:
            with pytest.raises(PoolEmpty) as caught:
                table.append(count)
            assert (caught.value.needed, caught.value.free) == (needed + shared, self.pool.num_free)
            assert self.state() == before
            return
        old_last = table.blocks[-1] if table.blocks else None
        growth = table.append(count)
        assert (growth.copy is not None) == shared
        if growth.copy:
            source, target = growth.copy
            assert (source, target) == (old_last, table.blocks[(len(tokens)) // size])
            for offset in range(size):
                if source * size + offset in self.memory:
                    self.memory[target * size + offset] = self.memory[source * size + offset]
        assert len(growth.slots) == len(set(growth.slots)) == count
        for number in growth.slots:
            self.written += 1
            self.memory[number] = self.written
            tokens.append(self.written)
        assert before[0] - self.pool.num_free == needed + shared

    @rule(target=tables, table=tables)
    def fork(self, table: BlockTable) -> BlockTable:
        self.model.append((table.fork(), list(self.tokens_of(table))))
        return self.model[-1][0]

    @rule(target=tables, table=tables, part=st.floats(0, 1))
    def share_prefix(self, table: BlockTable, part: float) -> BlockTable:
        tokens = self.tokens_of(table)
        wanted = int(part * len(tokens))
        other = table.share_prefix(wanted)
        assert wanted - self.pool.block_size < other.num_tokens <= wanted
        assert other.num_tokens % self.pool.block_size == 0
        self.model.append((other, tokens[: other.num_tokens]))
        return other

    @rule(table=consumes(tables))
    def release(self, table: BlockTable) -> None:
        table.release()
        assert table.blocks == []
        assert table.num_tokens == 0
        self.model = [(known, tokens) for known, tokens in self.model if known is not table]

    @invariant()
    def every_table_reads_back_its_own_tokens(self) -> None:
        for table, tokens in self.model:
            size = self.pool.block_size
            assert table.num_tokens == len(tokens)
            assert len(table.blocks) == -(-len(tokens) // size), "no page too many, none too few"
            assert [self.memory[table.blocks[p // size] * size + p % size] for p in range(len(tokens))] == tokens

    @invariant()
    def counts_are_the_holders(self) -> None:
        held = [block for table, _ in self.model for block in table.blocks]
        assert all(len(table.blocks) == len(set(table.blocks)) for table, _ in self.model)
        assert [self.pool.ref_count(block) for block in range(self.pool.num_blocks)] == [
            held.count(block) for block in range(self.pool.num_blocks)
        ]
        assert self.pool.num_used == len(set(held))
        assert self.pool.num_free + self.pool.num_used == self.pool.num_blocks


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=80, stateful_step_count=30)


def test_grows_one_block_at_a_time() -> None:
    pool = BlockPool(4, 16)
    table = BlockTable(pool)
    used = []
    for _ in range(33):
        table.append()
        used.append(len(table.blocks))
    assert used == [1] * 16 + [2] * 16 + [3]
    assert pool.num_free == 1


@pytest.mark.parametrize("tokens", [15, 16, 17, 32])
def test_a_prefill_takes_the_blocks_it_needs_k8(tokens: int) -> None:
    table = BlockTable(BlockPool(4, 16))
    table.append(tokens)
    assert len(table.blocks) == layout.blocks_for(tokens, 16) == (tokens + 15) // 16
    assert (len(table.blocks) - 1) * 16 + layout.last_block_tokens(tokens, 16) == tokens


def test_one_slot_a_token_k6() -> None:
    pool = BlockPool(8, 8)
    table = BlockTable(pool)
    assert table.append(16).slots == tuple(range(16))
    pool = BlockPool(8, 8)
    scattered = BlockTable(pool, blocks=[])
    pool.take(8)
    for block in (7, 1, 3):
        pool.release(block)
    assert scattered.append(20).slots == (*range(56, 64), *range(8, 16), *range(24, 28))


def test_an_empty_pool_says_so_and_changes_nothing() -> None:
    pool = BlockPool(3, 4)
    table = BlockTable(pool)
    table.append(9)
    with pytest.raises(PoolEmpty, match=r"^2 blocks needed, 0 free: ") as caught:
        table.append(8)
    assert isinstance(caught.value, KernelError)
    assert (table.num_tokens, len(table.blocks), pool.num_used) == (9, 3, 3)
    assert table.append(3).copy is None
    table.release()
    assert pool.num_free == 3


def test_copy_on_write_leaves_the_other_table_alone() -> None:
    pool = BlockPool(8, 4)
    parent = BlockTable(pool)
    parent.append(6)
    child = parent.fork()
    assert [pool.ref_count(block) for block in parent.blocks] == [2, 2]
    growth = child.append()
    assert growth.copy == (parent.blocks[1], child.blocks[1])
    assert parent.blocks[0] == child.blocks[0]
    assert parent.blocks[1] != child.blocks[1]
    assert growth.slots == (child.blocks[1] * 4 + 2,)
    # Alone again, the parent writes in place; and a full shared block is never written, so never copied.
    assert parent.append().copy is None
    parent.append()
    twin = parent.fork()
    assert twin.append().copy is None
    assert twin.blocks[:2] == parent.blocks


def test_copy_on_write_needs_a_free_block() -> None:
    pool = BlockPool(1, 4)
    parent = BlockTable(pool)
    parent.append(2)
    child = parent.fork()
    with pytest.raises(PoolEmpty):
        child.append()
    assert child.blocks == parent.blocks
    assert pool.ref_count(parent.blocks[0]) == 2
    assert child.append(0).slots == ()


@pytest.mark.parametrize(("block_size", "hit"), [(16, 96), (32, 96), (128, 0)])
def test_a_shared_prefix_counts_whole_blocks(block_size: int, hit: int) -> None:
    table = BlockTable(BlockPool(16, block_size))
    table.append(100)
    assert table.share_prefix(100).num_tokens == hit


def test_three_sharers_use_12_blocks_where_24_would_be_needed() -> None:
    pool = BlockPool(64, 16)
    first = BlockTable(pool)
    first.append(120)
    others = [first.share_prefix(100) for _ in range(2)]
    for other in others:
        other.append(120 - other.num_tokens)
    assert pool.num_used == 12
    assert sum(len(table.blocks) for table in (first, *others)) == 24
    first.release()
    assert pool.num_used == 10


def test_what_is_refused() -> None:
    pool = BlockPool(2, 4)
    for call, message in (
        (lambda: BlockPool(0, 4), r"^num_blocks = 0: must"),
        (lambda: BlockPool(2, 0), r"^block_size = 0: must"),
        (lambda: pool.release(0), r"^block = 0: must be in use"),
        (lambda: pool.share(1), r"^block = 1: must be in use"),
        (lambda: pool.ref_count(2), r"^block = 2: must be a block of the pool: 0 \.\. 1"),
        (lambda: pool.release(-1), r"^block = -1: must be a block"),
        (lambda: BlockTable(pool).append(-1), r"^tokens = -1: must be at least 0"),
        (lambda: BlockTable(pool).share_prefix(1), r"^tokens = 1: must be 0 \.\. 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()
