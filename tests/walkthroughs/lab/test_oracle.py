"""vLLM as an independent oracle: our pool, tables, slots and cache view against its own, over random streams.

Counts, sharing, reference counts and hits are compared; block ids are not, as the order of reuse differs by release.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import layout
from kernels.block_pool import BlockPool, BlockTable, PoolEmpty
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineFailed
from walkthroughs.lab.oracle import Oracle, asking

MANY = settings(max_examples=60)


@pytest.fixture(scope="module")
def oracle(lab: Lab) -> Iterator[Oracle]:
    with asking(lab) as asked:
        yield asked


def test_it_is_the_release_that_is_locked(oracle: Oracle) -> None:
    assert oracle.ask("versions")["vllm"] == "0.32.0"


@MANY
@given(num_blocks=st.integers(1, 12), data=st.data())
def test_block_pool(oracle: Oracle, num_blocks: int, data: st.DataObject) -> None:
    """The same blocks free, and the same number of holders of each block, after every action."""
    ours, taken, stream, answers = BlockPool(num_blocks, 4), [], [], []  # type: ignore[var-annotated]
    live: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["take", "share", "release", "release"])) if live else "take"
        number = data.draw(st.integers(1, 5) if action == "take" else st.sampled_from(live))
        stream.append([action, number])
        if action == "take":
            try:
                blocks = ours.take(number)
            except PoolEmpty:
                answers.append("full")
                continue
            live += range(len(taken), len(taken) + number)
            taken += blocks
        elif action == "share":
            ours.share(taken[number])
        else:
            ours.release(taken[number])
            live = [one for one in live if one != number or ours.ref_count(taken[one])]
        answers.append([ours.num_free, {str(one): ours.ref_count(taken[one]) for one in live}])
    assert oracle.ask("pool", num_blocks=num_blocks, stream=stream) == answers


class Tables:
    """Our own tables, driven as vLLM's cache manager is: the longest prefix that anybody has had is found again."""

    def __init__(self, num_blocks: int, block_size: int, caching: bool) -> None:
        self.pool, self.size, self.caching = BlockPool(num_blocks, block_size), block_size, caching
        self.here: dict[str, BlockTable] = {}
        self.prompts: dict[str, list[int]] = {}
        self.gone: list[list[int]] = []

    def new(self, name: str, prompt: list[int]) -> Any:
        table, held, found = BlockTable(self.pool), 0, 0
        if self.caching:
            for other, known in self.prompts.items():
                common = self.common(known, prompt)
                if common > held:
                    table.release()
                    table, held = self.here[other].share_prefix(common), common
            found = max([held, *(self.common(known, prompt) for known in self.gone)])
        try:
            table.append(len(prompt) - table.num_tokens)
        except PoolEmpty:
            table.release()
            return "full"
        self.here[name], self.prompts[name] = table, prompt
        return self.answer(found)

    def common(self, one: list[int], other: list[int]) -> int:
        """Tokens of the whole blocks that begin alike, never the last token of the newcomer."""
        count = 0
        for left, right in zip(one, other, strict=False):
            if left != right:
                break
            count += 1
        return min(count, len(other) - 1) // self.size * self.size

    def grow(self, name: str, tokens: list[int]) -> Any:
        try:
            self.here[name].append(len(tokens))
        except PoolEmpty:
            return "full"
        return self.answer(0)

    def free(self, name: str) -> Any:
        self.here.pop(name).release()
        self.gone.append(self.prompts.pop(name))
        return self.answer(0)

    def answer(self, found: int) -> Any:
        counts = {name: [self.pool.ref_count(block) for block in table.blocks] for name, table in self.here.items()}
        return [found, self.pool.num_used, counts]


@MANY
@given(size=st.sampled_from([2, 4, 16, 32]), caching=st.booleans(), data=st.data())
def test_cache_manager(oracle: Oracle, size: int, caching: bool, data: st.DataObject) -> None:
    """Requests come, grow and go: the same hits, blocks in use and holders. Small pools run full, without caching."""
    num_blocks = 600 if caching else data.draw(st.integers(1, 12))
    ours, stream, answers, said = Tables(num_blocks, size, caching), [], [], 100_000  # type: ignore[var-annotated]
    for number in range(data.draw(st.integers(1, 16))):
        actions = ["new", "new", "grow", "grow", "free"] if ours.here else ["new"]
        action = data.draw(st.sampled_from(actions))
        name = str(number) if action == "new" else data.draw(st.sampled_from(sorted(ours.here)))
        if action == "new":
            family, length, tail = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 80), st.integers(1, 12)))
            prompt = [1000 * family + place for place in range(length)]
            prompt += [said + place for place in range(tail)] if data.draw(st.booleans()) else [7] * tail
            said += tail
            stream.append([action, name, prompt])
            answers.append(ours.new(name, prompt))
        elif action == "grow":
            count = data.draw(st.integers(1, 40))
            tokens = list(range(said, said + count))
            said += count
            stream.append([action, name, tokens])
            answers.append(ours.grow(name, tokens))
        else:
            stream.append([action, name])
            answers.append(ours.free(name))
    theirs = oracle.ask("manager", num_blocks=num_blocks, block_size=size, caching=caching, stream=stream)
    assert theirs == answers


@MANY
@given(size=st.sampled_from([1, 8, 16, 32, 128]), data=st.data())
def test_slot_mapping(oracle: Oracle, size: int, data: st.DataObject) -> None:
    """Every token of a batch of prefills and single tokens, through tables in any order."""
    width = 6
    lengths = data.draw(st.lists(st.integers(1, min(20, width * size)), min_size=1, max_size=4))
    tables = [data.draw(st.lists(st.integers(0, 5000), min_size=width, max_size=width)) for _ in lengths]
    starts, positions, expected = [0], [], []
    for length, table in zip(lengths, tables, strict=True):
        first = data.draw(st.integers(0, width * size - length))
        starts.append(starts[-1] + length)
        positions += range(first, first + length)
        expected += [layout.slot(table[p // size], p % size, size) for p in range(first, first + length)]
    found = oracle.ask("slots", starts=starts, positions=positions, tables=tables, block_size=size)
    assert found == expected


@MANY
@given(
    num_blocks=st.integers(1, 9),
    num_kv_heads=st.integers(1, 8),
    head_size=st.sampled_from([16, 32, 64, 80, 128, 256]),
    block_size=st.sampled_from([8, 16, 32, 128]),
    element_size=st.sampled_from([1, 2, 4]),
    data=st.data(),
)
def test_split_kv_cache(
    oracle: Oracle, num_blocks: int, num_kv_heads: int, head_size: int, block_size: int, element_size: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    """The shapes of both views, and where any element of them lies."""
    shape = {"num_kv_heads": num_kv_heads, "head_size": head_size, "block_size": block_size}
    keys, values = oracle.ask("split", num_blocks=num_blocks, element_size=element_size, **shape)
    x = layout.x_of(element_size)
    assert tuple(keys[0]) == layout.key_cache_shape(num_blocks, num_kv_heads, head_size, block_size, element_size)
    assert tuple(values[0]) == layout.value_cache_shape(num_blocks, num_kv_heads, head_size, block_size)
    assert keys[2] == 0
    assert values[2] == num_blocks * num_kv_heads * head_size * block_size
    for _ in range(5):
        block, head, dim, offset = (
            data.draw(st.integers(0, most - 1)) for most in (num_blocks, num_kv_heads, head_size, block_size)
        )
        place = sum(i * step for i, step in zip((block, head, dim // x, offset, dim % x), keys[1], strict=True))
        assert place == layout.key_offset(block, head, dim, offset, element_size=element_size, **shape)
        place = sum(i * step for i, step in zip((block, head, dim, offset), values[1], strict=True))
        assert place == layout.value_offset(block, head, dim, offset, **shape)


def test_an_error_of_the_oracle_is_an_error_here(oracle: Oracle) -> None:
    with pytest.raises(EngineFailed, match="KeyError"):
        oracle.ask("pool")
    assert oracle.ask("pool", num_blocks=3, stream=[["take", 2]]) == [[1, {"0": 1, "1": 1}]]


def test_without_vllm_it_says_so(tmp_path: Path) -> None:
    with asking(Lab(Path(sys.executable), tmp_path, tmp_path)) as asked:
        with pytest.raises(EngineFailed, match="No module named 'vllm'"):
            asked.ask("versions")
        with pytest.raises(EngineFailed, match="KeyError"):
            asked.ask("nothing of the kind")
