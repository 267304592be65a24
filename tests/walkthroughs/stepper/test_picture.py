"""The block table and the pool at a moment, against the events themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels.simt.trace import Event
from walkthroughs.stepper.films import film
from walkthroughs.stepper.history import in_lockstep
from walkthroughs.stepper.picture import ACCESSES, FREE, LANE, MINE, NOW, SEEN, Stage
from walkthroughs.stepper.shots import Shot, shoot

from .conftest import QUICK  # isort: skip


def pictures(shot: Shot, moment: int) -> dict[str, dict[tuple[int, int], str]]:
    lanes = [(shot.histories[at], in_lockstep(shot.history, moment, shot.histories[at])) for at in shot.lanes]
    return {
        pool.array: {(block.number, at): mark for block in pool.blocks for at, mark in enumerate(block.slots)}
        for pool in Stage(shot).pools(moment, lanes)
    }


def touched(shot: Shot, event: Event | None, array: str) -> set[tuple[int, int]]:
    if event is None or event.kind not in ACCESSES or shot.trace.arrays[event.array].name != array:
        return set()
    pool = next(pool for pool in shot.film.scene.pools if pool.array == array)
    places = [pool.where(event.index + offset) for offset in range(max(len(event.values), 1))]
    return {(where["block"], where["token"]) for where in places}


@given(st.data())
def test_slots_are_marked_by_who_touches_them(shots: dict[str, Shot], classic: Shot, data: st.DataObject) -> None:
    shot = data.draw(st.sampled_from([*(shots[name] for name in QUICK if shots[name].film.scene.pools), classic]))
    moment = data.draw(st.integers(0, len(shot.history)))
    event = shot.history.event(moment)
    for array, marks in pictures(shot, moment).items():
        now = touched(shot, event, array)
        others: set[tuple[int, int]] = set()
        before: set[tuple[int, int]] = set()
        for at in shot.lanes:
            history = shot.histories[at]
            there = in_lockstep(shot.history, moment, history)
            if there is None:
                continue
            if now and (other := history.event(there)) is not None and event is not None and other.kind == event.kind:
                others |= touched(shot, other, array)
            for earlier in range(1, there + 1):
                before |= touched(shot, history.event(earlier), array)
        for slot, mark in marks.items():
            expected = NOW if slot in now else LANE if slot in others else SEEN if slot in before else None
            assert mark == expected or (expected is None and mark in (MINE, FREE))


def test_the_slots_of_a_sequence(classic: Shot) -> None:
    """70 tokens in blocks 7, 0, 10, 9 and 4 of 16: the last is filled by six."""
    marks = pictures(classic, 0)["k_cache"]
    mine = {slot for slot, mark in marks.items() if mark == MINE}
    assert mine == {(block, at) for block in (7, 0, 10, 9) for at in range(16)} | {(4, at) for at in range(6)}
    logical = Stage(classic).logical
    assert logical == {7: 0, 0: 1, 10: 2, 9: 3, 4: 4}


def test_the_table_marks_the_entry_that_is_read(classic: Shot) -> None:
    stage = Stage(classic)
    read = 0
    for moment in range(len(classic.history) + 1):
        event = classic.history.event(moment)
        table = stage.table(moment)
        assert table is not None
        now = [entry.index for entry in table.entries if entry.now]
        reads = event is not None and event.kind == "read" and classic.trace.arrays[event.array].name == "block_tables"
        assert now == ([event.index] if reads and event is not None else [])
        read += reads
    assert read == 4  # warp 0 takes two of five blocks, once for K and once for V
    last = stage.table(len(classic.history))
    assert last is not None
    assert [entry.seen for entry in last.entries] == [True, False, False, False, True, False]
    assert [entry.used for entry in last.entries] == [True] * 5 + [False]


def test_another_block_has_its_own_row() -> None:
    """Block 0 is head 0 of the first sequence, whose row is the first one."""
    shot = shoot(film("classic-v1"), 0)
    stage = Stage(shot)
    assert stage.row == (0, 6)
    table = stage.table(0)
    assert table is not None
    assert [entry.at for entry in table.entries if entry.used] == [0, 1, 2]  # 33 tokens


def test_a_slot_mapping_names_slots(shots: dict[str, Shot]) -> None:
    """Six tokens, one of them padding, whose slot is -1."""
    shot = shots["reshape-and-cache"]
    table = Stage(shot).table(0)
    assert table is not None
    slots = [int(entry.text) for entry in table.entries]
    assert len(slots) == 6
    assert slots.count(-1) == 1
    mine = {slot for slot, mark in pictures(shot, 0)["key_cache"].items() if mark != FREE}
    assert mine == {divmod(slot, 4) for slot in slots if slot >= 0}


def test_the_latest_pool(classic: Shot) -> None:
    stage = Stage(classic)
    names = []
    for moment in (0, len(classic.history)):
        (found,) = [pool.array for pool in stage.pools(moment, []) if pool.latest]
        names.append(found)
    assert names == ["k_cache", "v_cache"]


def test_a_film_without_a_table_or_pools(shots: dict[str, Shot]) -> None:
    stage = Stage(shots["classic-v2-reduce"])
    assert stage.table(5) is None
    assert stage.pools(5, []) == ()
