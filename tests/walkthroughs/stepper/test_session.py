"""A reader in a walkthrough, without a screen: opening steps, moving, choosing threads, watching, coming back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.step import Walkthrough
from walkthroughs.stepper.films import clip_of
from walkthroughs.stepper.opening import prepare, proof_of
from walkthroughs.stepper.progress import Place, Progress, load, save
from walkthroughs.stepper.session import LOADING, NO_FILM, Session, last_of_statement

MOVES = ("forward", "backward", "next_line", "previous_line", "next_iteration", "next_barrier")
LOOKUP, ADDRESS, HOST = "paged-reference/lookup", "vllm-classic/k-address", "vllm-classic/padded-rows"


@pytest.fixture
def session(walkthroughs: dict[str, Walkthrough]) -> Session:
    return Session(walkthroughs)


def test_a_step_opens_where_its_lines_begin(session: Session) -> None:
    session.go(LOOKUP)
    clip = clip_of(session.step)
    assert clip is not None
    assert session.player is not None
    assert session.player.shot.history.numbers[session.player.moment - 1] == clip.start
    view = session.view()
    assert view is not None
    assert set(view.concepts) & set(session.step.reads)


def test_until_the_film_is_there_the_code_is(session: Session) -> None:
    step, place, shown = session.open_step(LOOKUP)
    assert (session.loading, session.view(), place, shown) == (True, None, None, None)
    assert session.port().path == "kernels/gather.py"
    assert session.port().step
    assert not session.move("forward")
    assert session.remark == LOADING
    assert session.settle(prepare(step))
    assert not session.loading


def test_a_film_that_comes_too_late_is_dropped(session: Session) -> None:
    late = prepare(*session.open_step(LOOKUP))
    session.open_step("paged-reference/tail")
    assert not session.settle(late)
    assert session.loading


def test_a_step_without_a_film(session: Session) -> None:
    session.go(HOST)
    assert (session.view(), session.player) == (None, None)
    assert session.left().step
    assert session.port().path == "kernels/vllm/cache.py"
    for move in MOVES:
        assert not session.move(move)
        assert session.remark == NO_FILM
    session.to_start()
    session.run_to("12")
    assert session.remark == NO_FILM
    assert session.place_of("3") is None
    assert session.choose(1) is None
    assert session.names() == session.concept_names() == []
    assert session.loaded is not None
    assert session.loaded.proof == proof_of(session.step)


@given(st.lists(st.sampled_from(MOVES), max_size=12), st.integers(0, 300))
def test_step_and_back_is_the_same_view(walkthroughs: dict[str, Walkthrough], moves: list[str], start: int) -> None:
    session = Session(walkthroughs)
    session.go(LOOKUP)
    session.move("go", start)
    for move in moves:
        session.move(move)
    before = session.view()
    session.move("forward")
    if not session.remark:
        session.move("backward")
    assert session.view() == before


@given(st.lists(st.sampled_from(MOVES), max_size=12))
def test_a_remark_says_that_nothing_moved(walkthroughs: dict[str, Walkthrough], moves: list[str]) -> None:
    session = Session(walkthroughs)
    session.go(LOOKUP)
    for move in moves:
        before = session.view()
        session.move(move)
        assert bool(session.remark) == (session.view() == before)


def test_every_step_can_be_walked(walkthroughs: dict[str, Walkthrough]) -> None:
    """Open each step, jump about in its film, and look: nothing may fail, and what is marked is in the file."""
    chance = random.Random(7)
    session = Session(walkthroughs)
    films = 0
    for walkthrough in walkthroughs.values():
        for step in walkthrough.steps:
            session.go(step.id)
            films += session.player is not None
            for _ in range(4):
                if session.player is not None:
                    session.move("go", chance.randrange(session.player.last + 1))
                view = session.view()
                for pane in (session.left(view), session.port(view)):
                    assert pane.page is not None
                    shown = [*pane.linked, *pane.step, *([(pane.line, pane.until)] if pane.line else [])]
                    if not pane.page.missing:
                        assert all(1 <= first <= last <= max(pane.page.lines) for first, last in shown)
                assert session.hints()
    assert films > 80


def test_steps_of_one_film_keep_block_and_thread(session: Session) -> None:
    session.go(ADDRESS)
    shot = session.choose(block=1, focus=3)
    assert shot is not None
    session.switch(shot)
    session.go("vllm-classic/qk-max")
    assert session.player is not None
    assert (session.player.shot.block, session.player.shot.focus) == (1, 3)
    session.go("vllm-classic/v2-max")  # another kernel's film
    assert (session.player.shot.block, session.player.shot.focus) == (0, 0)


def test_another_thread_stands_at_the_same_visit(session: Session) -> None:
    session.go("vllm-classic/block-table")
    session.move("next_iteration")
    session.move("next_iteration")
    before = session.view()
    assert before is not None
    shot = session.choose(focus=7)
    assert shot is not None
    session.switch(shot)
    after = session.view()
    assert after is not None
    assert session.remark == ""
    assert (after.thread, after.line, after.stack) == (7, before.line, before.stack)
    assert after.lanes.cells == before.lanes.cells


def test_a_thread_that_does_not_come_there(session: Session) -> None:
    session.go("vllm-classic/mask")
    session.run_to("208")
    shot = session.choose(focus=1)  # the second thread of a group keeps no score
    assert shot is not None
    line = session.view().line  # type: ignore[union-attr]
    session.switch(shot)
    assert "Thread 1 does not come" in session.remark
    assert str(line) in session.remark
    assert session.player is not None
    assert session.player.moment == 0


def test_a_thread_that_never_comes_to_a_step(session: Session) -> None:
    session.go("vllm-classic/output")
    shot = session.choose(focus=32)  # only warp 0 writes the output
    assert shot is not None
    session.switch(shot)
    session.to_start()
    assert session.player is not None
    last = session.view()
    assert last is not None
    session.run_to("output-write")
    assert session.view().concepts[:1] == ("output-write",)  # type: ignore[union-attr]
    session.run_to("344")
    assert "runs in this thread" in session.remark or "does not run" in session.remark


def test_places_in_words(session: Session) -> None:
    session.go(ADDRESS)
    assert session.place_of("33") == (None, 33)
    assert session.place_of("1/33") == (1, 33)
    assert session.place_of(" 1 / ") == (1, None)
    assert session.place_of("1,1,0/5,0") == (3, 5)
    for wrong in ("", "x", "1/2/3", "2,0/1", "1,2,3,4", "/"):
        assert session.place_of(wrong) is None
        assert "give a thread" in session.remark
    assert "0 to 127" in session.places()
    assert "2 × 2 × 1" in session.places()
    assert session.choose(9) is None
    assert "0 to 3" in session.remark


def test_run_to(session: Session) -> None:
    session.go(LOOKUP)
    line = session.view().line  # type: ignore[union-attr]
    session.move("forward")
    session.run_to(str(line))
    view = session.view()
    assert view is not None
    assert (view.line, view.kind, session.remark) == (line, "line", "")
    session.run_to("online-softmax")
    assert "online-softmax" in session.view().concepts  # type: ignore[union-attr]
    session.run_to(f"gather.py:{line}")
    assert session.view().line == line  # type: ignore[union-attr]
    before = session.view()
    for wrong in ("", "nonsense", "nofile.py:3", "3x"):
        session.run_to(wrong)
        assert "give a line" in session.remark
        assert session.view() == before
    assert "gather-lookup" in session.concept_names()


def test_watching(session: Session) -> None:
    session.go(LOOKUP)
    for name in ("block_idx", "q[1]"):
        session.watch(name)
    view = session.view()
    assert view is not None
    assert [variable.name for variable in view.watched] == ["block_idx", "q[1]"]
    session.watch("block_idx")
    assert session.watches == ["q[1]"]
    session.watch("2x")
    assert "give a variable's name" in session.remark
    assert session.watches == ["q[1]"]
    assert "block_idx" in session.names()


def test_what_the_lanes_show(session: Session) -> None:
    session.go(ADDRESS)
    session.show_in_lanes(" lane ")
    assert [lane.text for lane in session.view().lanes.cells] == [str(n) for n in range(32)]  # type: ignore[union-attr]
    session.show_in_lanes("a b")
    assert (session.subject, "give a variable" in session.remark) == ("lane", True)
    session.show_in_lanes("")
    assert session.subject == ""


def test_neighbours(session: Session, walkthroughs: dict[str, Walkthrough]) -> None:
    ids = [step.id for step in walkthroughs["paged-reference"].steps]
    session.go(ids[0])
    assert session.neighbour(-1) is None
    assert "first step" in session.remark
    for expected in ids[1:]:
        found = session.neighbour(1)
        assert found == expected
        session.go(found)
    assert session.neighbour(1) is None
    assert "last step" in session.remark


def test_each_step_keeps_its_place(session: Session) -> None:
    session.go(LOOKUP)
    session.move("go", 99)
    session.go("paged-reference/tail")
    session.go(LOOKUP)
    assert session.view().moment == 99  # type: ignore[union-attr]
    session.to_start()
    assert session.view().moment == 21  # type: ignore[union-attr]


def test_the_reader_comes_back(session: Session, walkthroughs: dict[str, Walkthrough], state: Path) -> None:
    session.go(ADDRESS)
    shot = session.choose(block=0, focus=2)
    assert shot is not None
    session.switch(shot)
    session.watch("k_offset")
    session.move("next_iteration")
    left = session.view()
    session.keep()
    assert save(state, session.progress) == ""
    progress, said = load(state)
    assert said == ""
    again = Session(walkthroughs, progress)
    again.go(progress.last)
    assert again.step.id == ADDRESS
    assert again.view() == left
    assert again.was_at(ADDRESS)
    assert not again.was_at(LOOKUP)


def test_a_place_in_another_recording_is_void(walkthroughs: dict[str, Walkthrough]) -> None:
    places = {LOOKUP: Place(200, 7, 0, 0), ADDRESS: Place(9, 9, 99, 5)}
    session = Session(walkthroughs, Progress(LOOKUP, {}, set(), places))
    session.go(LOOKUP)
    assert session.view().moment == 21  # type: ignore[union-attr]
    session.go(ADDRESS)
    assert "block 99" in session.remark
    assert session.view() is not None


def test_both_sides_are_tied_by_one_concept(session: Session) -> None:
    session.go(ADDRESS)
    for _ in range(40):
        view = session.view()
        assert view is not None
        left, port = session.left(view), session.port(view)
        assert port.line == view.line
        assert left.concept in ("", port.concept)
        assert any(first <= port.line <= last for first, last in port.linked)
        session.move("forward")


def test_other_files_of_a_step(session: Session) -> None:
    session.go("vllm-live/forward")
    paths = []
    for page in range(4):
        session.page = page
        paths.append(session.left().path)
    assert len(set(paths)) == 2
    assert paths[:2] == paths[2:]


def test_the_end_of_a_statement() -> None:
    assert last_of_statement("kernels/gather.py", 1) == 5  # the module's docstring
    assert last_of_statement("no/such/file.py", 3) == 3
