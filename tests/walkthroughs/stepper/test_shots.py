"""Shots: other blocks, other threads and other warps than the film's own."""

from __future__ import annotations

import pytest

from walkthroughs.stepper.films import film, films, record
from walkthroughs.stepper.shots import NoSuchPlace, place_of, shoot


def test_the_films_own_shot_is_the_films_recording() -> None:
    found = shoot(film("classic-v1"))
    assert found.trace is record(film("classic-v1"))
    assert (found.block, found.focus, found.warp) == (2, 0, 0)
    assert found.lanes == tuple(range(32))
    assert found.trace.threads[found.thread].number == 0


def test_another_thread_of_the_same_recording() -> None:
    own, other = shoot(film("classic-v1")), shoot(film("classic-v1"), focus=5)
    assert other.trace is own.trace
    assert other.trace.threads[other.thread].number == 5
    first = shoot(film("classic-v1"), focus=64)
    assert (first.warp, first.trace is own.trace) == (2, True)
    assert [first.trace.threads[at].number for at in first.lanes] == [64]  # only lane 0 of another warp is recorded


def test_another_warp_is_recorded_with_all_its_lanes() -> None:
    found = shoot(film("classic-v1"), focus=70)
    numbers = [found.trace.threads[at].number for at in found.lanes]
    assert numbers == list(range(64, 96))
    assert found.warp == 2
    assert shoot(film("classic-v1"), focus=71).trace is found.trace


def test_another_block_is_recorded_for_itself() -> None:
    found = shoot(film("classic-v1"), 1)
    assert {thread.block for thread in found.trace.threads} == {(1, 0, 0)}
    assert place_of(1, found.trace.grid) == (1, 0, 0)
    seq = found.history.ever("seq_idx")
    head = found.history.ever("head_idx")
    assert seq is not None
    assert head is not None
    assert (seq.data, head.data) == (0, 1)


@pytest.mark.parametrize(
    ("block", "focus", "word"), [(4, 0, "0 to 3"), (-1, 0, "0 to 3"), (2, 128, "0 to 127"), (2, -1, "0 to")]
)
def test_places_that_are_not_there(block: int, focus: int, word: str) -> None:
    with pytest.raises(NoSuchPlace, match=word):
        shoot(film("classic-v1"), block, focus)


def test_place_of() -> None:
    grid = (3, 2, 4)
    places = [place_of(block, grid) for block in range(24)]
    assert places == [(x, y, z) for z in range(4) for y in range(2) for x in range(3)]


def test_the_moment_of_an_event() -> None:
    shot = shoot(film("gather"))
    for moment in range(1, len(shot.history) + 1):
        assert shot.moment_of(shot.history.numbers[moment - 1]) == moment


def test_every_film_knows_its_threads() -> None:
    for found in films().values():
        assert found.focus in found.threads
